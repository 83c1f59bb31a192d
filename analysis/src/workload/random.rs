//! Pseudorandom numbers from a seed.

use std::f64::consts::TAU;

/// A generator (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Make a generator from a seed and a stream number, e.g. of a process or a mail.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut made = Self(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        made.next();
        made
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A whole number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// A number from 0 to 1, 1 excluded.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Return true with a probability.
    pub fn coin(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Exponentially distributed, with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Normally distributed, with mean 0 and deviation 1.
    pub fn normal(&mut self) -> f64 {
        (2.0 * self.exponential()).sqrt() * (TAU * self.unit()).cos()
    }

    /// Log-normally distributed, with a median and the deviation of its logarithm.
    pub fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        median * (sigma * self.normal()).exp()
    }

    /// Gamma distributed with shape 1.5 and a mean.
    pub fn gamma_1_5(&mut self, mean: f64) -> f64 {
        let half = self.normal().powi(2) / 2.0;
        (self.exponential() + half) * mean / 1.5
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    fn mean(n: u32, mut draw: impl FnMut() -> f64) -> f64 {
        (0..n).map(|_| draw()).sum::<f64>() / f64::from(n)
    }

    #[test]
    fn a_seed_says_all() {
        let draw = |seed, stream| Random::new(seed, stream).next();
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn distributions_have_their_means() {
        let mut random = Random::new(7, 0);
        assert!((mean(100_000, || random.unit()) - 0.5).abs() < 0.01);
        assert!((mean(100_000, || random.gamma_1_5(16384.0)) / 16384.0 - 1.0).abs() < 0.02);
        let expected = 3500.0 * (0.5_f64).exp();
        assert!((mean(200_000, || random.log_normal(3500.0, 1.0)) / expected - 1.0).abs() < 0.03);
        assert!((mean(100_000, || f64::from(u8::from(random.coin(0.8)))) - 0.8).abs() < 0.01);
    }
}
