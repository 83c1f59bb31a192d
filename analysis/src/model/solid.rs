//! Flash and volumes of a cloud: latency, channels, bandwidth, and limits per second.

use super::spec;
use crate::delays::Kind;
use anyhow::{Result, ensure};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

const US: f64 = 1e3;
const MIB: f64 = 1_048_576.0;

/// A limit: `a_second` units per second, of which `credit` may be saved up.
#[derive(Debug)]
struct Bucket {
    a_second: f64,
    credit: f64,
    /// Time at which the taken units are earned, nanoseconds.
    earned: f64,
}

impl Bucket {
    fn new(a_second: f64, credit: f64) -> Self {
        Self {
            a_second,
            credit,
            earned: 0.0,
        }
    }

    /// Take `units` and return when they are available.
    fn take(&mut self, units: f64, now: f64) -> f64 {
        if self.a_second == 0.0 {
            return now;
        }
        self.earned = self.earned.max(now) + units / self.a_second * 1e9;
        self.earned - self.credit / self.a_second * 1e9
    }
}

#[derive(Debug)]
struct State {
    /// Time at which each channel is free, nanoseconds.
    channels: Vec<f64>,
    bus: f64,
    unflushed: f64,
    flushed: f64,
    operations: Bucket,
    bytes: Bucket,
    random: u64,
}

/// A device without an arm.
#[derive(Debug)]
pub struct Solid {
    spec: spec::Solid,
    began: Instant,
    state: Mutex<State>,
}

impl Solid {
    pub fn new(spec: spec::Solid) -> Result<Self> {
        let rates = [spec.read_mb_s, spec.write_mb_s, spec.flush_mb_s];
        ensure!(
            rates.iter().all(|x| x.is_finite() && *x > 0.0),
            "rates are positive"
        );
        let times = [spec.read_us, spec.write_us, spec.flush_us, spec.spread];
        let limits = [spec.iops, spec.iops_credit, spec.mib_s, spec.mib_credit];
        ensure!(
            times
                .iter()
                .chain(&limits)
                .all(|x| x.is_finite() && *x >= 0.0),
            "times and limits are not negative"
        );
        ensure!(
            spec.channels > 0 && spec.operation_kib > 0,
            "channels and operation_kib are positive"
        );
        let state = State {
            channels: vec![0.0; spec.channels],
            bus: 0.0,
            unflushed: 0.0,
            flushed: 0.0,
            operations: Bucket::new(spec.iops, spec.iops_credit),
            bytes: Bucket::new(spec.mib_s * MIB, spec.mib_credit * MIB),
            random: spec.seed,
        };
        Ok(Self {
            spec,
            began: Instant::now(),
            state: Mutex::new(state),
        })
    }

    /// Block until a request is done; `path` is the further time of the way to us and back.
    pub fn serve(&self, kind: Kind, bytes: u64, path: Duration) {
        let path = path.as_nanos() as f64;
        let now = self.began.elapsed().as_nanos() as f64;
        let done = self.end(kind, bytes as f64, now);
        let left = done - path - self.began.elapsed().as_nanos() as f64;
        if left > 0.0 {
            thread::sleep(Duration::from_nanos(left as u64));
        }
    }

    fn end(&self, kind: Kind, bytes: f64, now: f64) -> f64 {
        let spec = &self.spec;
        let state = &mut *self.state.lock().expect("no thread panics with it");
        let factor = (spec.spread * normal(&mut state.random)).exp();
        if kind == Kind::Flush {
            let data = std::mem::take(&mut state.unflushed) / spec.flush_mb_s * US;
            state.flushed = state.flushed.max(now) + spec.flush_us * US * factor + data;
            return state.flushed;
        }
        let (latency, rate) = match kind {
            Kind::Read => (spec.read_us, spec.read_mb_s),
            _ => (spec.write_us, spec.write_mb_s),
        };
        if kind == Kind::Write {
            state.unflushed += bytes;
        }
        let free = state.channels.iter_mut().min_by(|a, b| a.total_cmp(b));
        let channel = free.map_or(now, |free| {
            *free = free.max(now) + latency * US * factor;
            *free
        });
        state.bus = state.bus.max(now) + bytes / rate * US;
        let operations = (bytes / (spec.operation_kib << 10) as f64).ceil();
        let granted = state.operations.take(operations, now);
        let granted = granted.max(state.bytes.take(bytes, now));
        channel.max(state.bus).max(granted)
    }
}

/// Return an approximately normal random number: the sum of twelve uniform ones.
fn normal(random: &mut u64) -> f64 {
    let uniform = |random: &mut u64| {
        *random = random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = *random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / 2f64.powi(53)
    };
    (0..12).map(|_| uniform(random)).sum::<f64>() - 6.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> spec::Solid {
        spec::Solid {
            read_us: 500.0,
            write_us: 700.0,
            flush_us: 100.0,
            flush_mb_s: 100.0,
            spread: 0.0,
            channels: 4,
            read_mb_s: 500.0,
            write_mb_s: 500.0,
            iops: 1000.0,
            iops_credit: 10.0,
            mib_s: 0.0,
            mib_credit: 0.0,
            operation_kib: 256,
            seed: 1,
        }
    }

    #[test]
    fn channels_work_at_once_and_others_wait_for_one() {
        let solid = Solid::new(volume()).expect("valid");
        let ends: Vec<f64> = (0..5).map(|_| solid.end(Kind::Read, 4096.0, 0.0)).collect();
        assert_eq!(ends[..4], [500_000.0; 4]);
        assert_eq!(ends[4], 1_000_000.0);
    }

    #[test]
    fn credits_are_used_up_and_then_the_rate_counts() {
        let solid = Solid::new(volume()).expect("valid");
        let end = (0..110)
            .map(|_| solid.end(Kind::Read, 4096.0, 0.0))
            .fold(0.0, f64::max);
        assert!((end - 100e6).abs() < 2e6, "{end}");
    }

    #[test]
    fn a_flush_takes_its_data_once() {
        let solid = Solid::new(volume()).expect("valid");
        solid.end(Kind::Write, 1e6, 0.0);
        assert_eq!(solid.end(Kind::Flush, 0.0, 0.0), 100_000.0 + 10e6);
        assert_eq!(solid.end(Kind::Flush, 0.0, 20e6), 20e6 + 100_000.0);
    }

    #[test]
    fn times_spread_about_their_median() {
        let (mut random, mut all) = (7, Vec::new());
        for _ in 0..10_000 {
            all.push(normal(&mut random));
        }
        let mean = all.iter().sum::<f64>() / 1e4;
        let deviation = (all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1e4).sqrt();
        assert!(
            mean.abs() < 0.05 && (deviation - 1.0).abs() < 0.05,
            "{mean} {deviation}"
        );
    }
}
