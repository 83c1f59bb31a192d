//! The parameters of a model, as in `devices.toml`.

use serde::Deserialize;

/// A device.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Spec {
    /// Disks with arms and platters.
    Rotating(Rotating),
    /// Flash, or a volume of a cloud.
    Solid(Solid),
}

/// A disk, or several that make a RAID 5.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rotating {
    /// Rotations a minute.
    pub rpm: f64,
    /// Seek to the next track, over a third of the disk, and over the whole of it; milliseconds.
    pub seek_ms: [f64; 3],
    /// Rate at the outer edge, where a disk begins; 10^6 bytes a second.
    pub outer_mb_s: f64,
    /// Rate at the inner edge.
    pub inner_mb_s: f64,
    /// Rate of the bus.
    pub bus_mb_s: f64,
    /// Work of the disk's controller for each command, microseconds.
    pub command_us: f64,
    /// Length of read-ahead, KiB.
    pub read_ahead_kib: u64,
    /// Cache from which writes are answered; 0 for none.
    pub write_cache_kib: u64,
    /// Commands among which the disk chooses the next.
    pub queue_depth: usize,
    /// Disks: 1, or at least 3 for a RAID 5.
    pub members: usize,
    /// Bytes on one member before the next, KiB.
    pub stripe_kib: u64,
    /// Seed of the platters' positions at the beginning.
    pub seed: u64,
}

/// Latencies, bandwidth and limits.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Solid {
    /// Median time of a small read, microseconds.
    pub read_us: f64,
    /// Median time of a small write.
    pub write_us: f64,
    /// Time of a flush, besides that of the data.
    pub flush_us: f64,
    /// Rate at which a flush writes the cache out; 10^6 bytes a second.
    pub flush_mb_s: f64,
    /// Standard deviation of the logarithm of a time.
    pub spread: f64,
    /// Requests that are worked on at once.
    pub channels: usize,
    /// Rate of reads; 10^6 bytes a second.
    pub read_mb_s: f64,
    /// Rate of writes.
    pub write_mb_s: f64,
    /// Limit of operations a second; 0 for no limit.
    pub iops: f64,
    /// Most unused operations that are saved up.
    pub iops_credit: f64,
    /// Limit of bytes a second, MiB; 0 for no limit.
    pub mib_s: f64,
    /// Most unused bytes that are saved up, MiB.
    pub mib_credit: f64,
    /// Bytes of one operation at most, KiB: a larger request counts for several.
    pub operation_kib: u64,
    /// Seed of the random times.
    pub seed: u64,
}
