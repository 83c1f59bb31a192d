//! The times of an arm over platters.

use super::spec::Rotating;

const MS: f64 = 1e6;

/// Seek, rotation and transfer of one disk; times in nanoseconds, places in bytes.
///
/// Seek distances are scaled, as if the image filled the whole disk: a third of the image is as far
/// as a third of the modelled disk.
#[derive(Debug)]
pub struct Geometry {
    bytes: f64,
    period: f64,
    seeks: [f64; 3],
    outer: f64,
    inner: f64,
}

/// Position of the arm: at `offset`, with the platter under it at `turn` (0 to 1) at a time.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    pub offset: u64,
    pub turn: f64,
    pub at: f64,
}

impl Geometry {
    pub fn new(spec: &Rotating, bytes: u64) -> Self {
        Self {
            bytes: bytes as f64,
            period: 60e9 / spec.rpm,
            seeks: spec.seek_ms.map(|ms| ms * MS),
            outer: spec.outer_mb_s / 1e3,
            inner: spec.inner_mb_s / 1e3,
        }
    }

    /// Bytes that pass the head in a nanosecond.
    pub fn rate(&self, offset: u64) -> f64 {
        let inward = (offset as f64 / self.bytes).min(1.0);
        self.outer + (self.inner - self.outer) * inward
    }

    fn track(&self) -> f64 {
        f64::midpoint(self.outer, self.inner) * self.period
    }

    fn turn_of(&self, offset: u64) -> f64 {
        (offset as f64 / self.track()).fract()
    }

    /// Return the seek time between two places: by the root of the distance up to a third of the
    /// disk, linear beyond (Ruemmler and Wilkes, 1994).
    fn seek(&self, from: u64, to: u64) -> f64 {
        let distance = from.abs_diff(to) as f64;
        if distance < self.track() {
            return 0.0;
        }
        let [next, third, full] = self.seeks;
        let part = (distance / self.bytes).min(1.0);
        match part * 3.0 {
            near if near <= 1.0 => next + (third - next) * near.sqrt(),
            _ => third + (full - third) * (part - 1.0 / 3.0) * 1.5,
        }
    }

    /// Return the time from `now` until the head is over `offset`.
    pub fn reach(&self, head: &Head, now: f64, offset: u64) -> f64 {
        let seek = self.seek(head.offset, offset);
        let turn = head.turn + (now + seek - head.at) / self.period;
        let wait = (self.turn_of(offset) - turn).rem_euclid(1.0);
        // A rounding error must not cost a turn for a place just ahead.
        let wait = if wait > 1.0 - 1e-6 { 0.0 } else { wait };
        seek + wait * self.period
    }

    /// Return the head after it has passed over `bytes` from `offset`, at a time.
    pub fn after(&self, offset: u64, bytes: u64, at: f64) -> Head {
        let end = offset + bytes;
        Head {
            offset: end,
            turn: self.turn_of(end),
            at,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn disk() -> Rotating {
        Rotating {
            rpm: 10_000.0,
            seek_ms: [0.5, 5.0, 10.0],
            outer_mb_s: 60.0,
            inner_mb_s: 40.0,
            bus_mb_s: 320.0,
            command_us: 100.0,
            read_ahead_kib: 1024,
            write_cache_kib: 0,
            queue_depth: 32,
            members: 1,
            stripe_kib: 16,
            seed: 1,
        }
    }

    const GIB: u64 = 1 << 30;

    #[test]
    fn seeks_are_those_of_the_data_sheet() {
        let disk = Geometry::new(&disk(), 3 * GIB);
        assert_eq!(disk.seek(0, 1000), 0.0);
        assert!((disk.seek(0, GIB) - 5.0 * MS).abs() < 1.0);
        assert!((disk.seek(3 * GIB, 0) - 10.0 * MS).abs() < 1.0);
        assert!(disk.seek(0, 1 << 20) > 0.5 * MS && disk.seek(0, 1 << 20) < MS);
    }

    #[test]
    fn what_follows_at_once_needs_no_turn_and_what_comes_late_a_whole_one() {
        let disk = Geometry::new(&disk(), GIB);
        let head = disk.after(0, 4096, 1000.0);
        assert_eq!(disk.reach(&head, 1000.0, 4096), 0.0);
        let late = disk.reach(&head, 51_000.0, 4096);
        assert!((late - (6.0 * MS - 50_000.0)).abs() < 1.0, "{late}");
    }

    #[test]
    fn random_places_wait_half_a_turn_in_the_mean() {
        let disk = Geometry::new(&disk(), GIB);
        let head = disk.after(0, 0, 0.0);
        let near = (0..1000).map(|i| disk.reach(&head, 0.0, i * 307));
        let mean = near.sum::<f64>() / 1000.0;
        assert!((mean / MS - 3.0).abs() < 0.3, "{mean}");
    }
}
