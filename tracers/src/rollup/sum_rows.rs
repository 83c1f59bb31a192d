//! Sums of calls that are alike, as the BPF programs keep them: call_sums.bpf.h, commit_sums.bpf.h and
//! call_parts.bpf.h.

use bytemuck::{Pod, Zeroable};
use rustc_hash::FxHashMap;

/// `enum cause` of epochs.bpf.h.
pub const CALL: u8 = 1;
const ONLY_CPU: u8 = 2;
pub const CPU: u8 = 3;
pub const STEAL: u8 = 4;
pub const RUNQ: u8 = 5;
pub const PREEMPT: u8 = 6;
pub const UNEXPLAINED: u8 = 7;
/// Number of the first cause that rules name.
pub const FIRST_OF_RULES: u8 = 8;

/// Names of the causes before those that rules name, by number.
pub const NAMES: [&str; FIRST_OF_RULES as usize] = [
    "",
    "call",
    "",
    "cpu",
    "steal",
    "runq",
    "preempt",
    "unexplained",
];

const SUB_BITS: u32 = 5;

/// `struct sum_key`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Pod, Zeroable)]
pub struct Key {
    pub comm: [u8; 16],
    pub cgroup_id: u64,
    pub dev: u32,
    pub bucket: u16,
    /// Its id in calls.txt.
    pub call: u8,
    pub size_class: i8,
    pub failed: u8,
    pub cause: u8,
    pad: u16,
    pad2: u32,
}

/// `struct sum`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Pod, Zeroable)]
pub struct Sum {
    pub n: u64,
    pub ns: u64,
}

/// `struct commit_key`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Pod, Zeroable)]
pub struct CommitKey {
    pub comm: [u8; 16],
    pub cgroup_id: u64,
    pub dev: u32,
    pad: u32,
}

/// `struct commit_sum`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Pod, Zeroable)]
pub struct CommitSum {
    pub n: u64,
    pub ns: u64,
    pub max_ns: u64,
}

/// `struct directory_key`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Pod, Zeroable)]
pub struct DirectoryKey {
    pub ino: u64,
    /// 0: a look-up; else the hash of a stack whose cause was not known yet.
    pub what: u64,
    pub dev: u32,
    pad: u32,
}

/// The sums of one minute.
#[derive(Debug, Default)]
pub struct Sums {
    pub calls: FxHashMap<Key, Sum>,
    pub commits: FxHashMap<CommitKey, CommitSum>,
    pub directories: FxHashMap<DirectoryKey, Sum>,
}

impl Sums {
    /// Add the sum of one key, from each CPU.
    pub fn add(&mut self, key: &Key, of_cpus: &[Sum]) {
        let key = Key {
            comm: ended(key.comm),
            ..*key
        };
        for sum in of_cpus {
            if key.cause == ONLY_CPU {
                self.add_one(Key { cause: CALL, ..key }, *sum);
                if sum.ns > 0 {
                    self.add_one(Key { cause: CPU, ..key }, *sum);
                }
            } else {
                self.add_one(key, *sum);
            }
        }
    }

    fn add_one(&mut self, key: Key, add: Sum) {
        if add.n > 0 {
            let sum = self.calls.entry(key).or_default();
            sum.n += add.n;
            sum.ns += add.ns;
        }
    }

    /// Add a part of one call, `cause` and bucket of the key are set here.
    pub fn add_part(&mut self, key: &Key, cause: u8, ns: u64) {
        if ns == 0 && cause != CALL {
            return;
        }
        let key = Key {
            comm: ended(key.comm),
            bucket: bucket_of(ns),
            cause,
            ..*key
        };
        self.add_one(key, Sum { n: 1, ns });
    }

    /// Add the sum of one program's commits, from each CPU.
    pub fn add_commits(&mut self, key: &CommitKey, of_cpus: &[CommitSum]) {
        let key = CommitKey {
            comm: ended(key.comm),
            ..*key
        };
        let sum = self.commits.entry(key).or_default();
        for add in of_cpus {
            sum.n += add.n;
            sum.ns += add.ns;
            sum.max_ns = sum.max_ns.max(add.max_ns);
        }
    }

    /// Add the sum of one directory, from each CPU.
    pub fn add_directory(&mut self, key: &DirectoryKey, of_cpus: &[Sum]) {
        let sum = self
            .directories
            .entry(DirectoryKey { what: 0, ..*key })
            .or_default();
        for add in of_cpus {
            sum.n += add.n;
            sum.ns += add.ns;
        }
    }
}

/// Zero the bytes after the NUL of a thread's name: older kernels leave some there.
fn ended(comm: [u8; 16]) -> [u8; 16] {
    let length = comm.iter().position(|byte| *byte == 0).unwrap_or(16);
    let mut ended = [0; 16];
    ended[..length].copy_from_slice(&comm[..length]);
    ended
}

/// Return the bucket of a time, as buckets.py defines it.
fn bucket_of(ns: u64) -> u16 {
    let shift = ns.max(1).ilog2().saturating_sub(SUB_BITS);
    ((u64::from(shift) << SUB_BITS) + (ns >> shift)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAUSES: &str = include_str!("../bpf/epochs.bpf.h");

    #[test]
    fn causes_are_those_of_the_kernel_side() {
        for (name, number) in [
            ("CAUSE_CALL", CALL),
            ("CAUSE_ONLY_CPU", ONLY_CPU),
            ("CAUSE_CPU", CPU),
            ("CAUSE_STEAL", STEAL),
            ("CAUSE_RUNQ", RUNQ),
            ("CAUSE_PREEMPT", PREEMPT),
            ("CAUSE_UNEXPLAINED", UNEXPLAINED),
            ("CAUSE_RULES", FIRST_OF_RULES),
        ] {
            assert!(CAUSES.contains(&format!("{name} = {number},")), "{name}");
        }
    }

    #[test]
    fn a_call_on_the_cpu_alone_is_two_rows() {
        let mut sums = Sums::default();
        let mut key: Key = Zeroable::zeroed();
        (key.cause, key.bucket) = (ONLY_CPU, 70);
        key.comm[..6].copy_from_slice(b"a\0rest");
        sums.add(&key, &[Sum { n: 2, ns: 9 }, Sum { n: 1, ns: 4 }]);
        let mut found: Vec<_> = sums
            .calls
            .iter()
            .map(|(k, s)| (k.cause, s.n, s.ns))
            .collect();
        found.sort_unstable();
        assert_eq!(found, [(CALL, 3, 13), (CPU, 3, 13)]);
        assert!(sums.calls.keys().all(|k| k.comm[..3] == *b"a\0\0"));
    }

    #[test]
    fn buckets_are_log_linear() {
        let found = [0, 1, 63, 64, 65, 66, 1 << 20, u64::MAX].map(bucket_of);
        assert_eq!(found, [0, 1, 63, 64, 64, 65, 512, 1919]);
    }
}
