//! Questions and news of the BPF programs while they sum: call_parts.bpf.h and call_sums.bpf.h.

use bytemuck::{Pod, Zeroable};
use spoolscope_traces::records::STACK_FRAMES;

use super::sum_rows::Key;

/// `RING_STACK`, `RING_UNNAMED`, `RING_DIRECTORY` of state.bpf.h.
pub const STACK: u16 = 257;
pub const UNNAMED: u16 = 258;
pub const DIRECTORY: u16 = 259;

const MOST_PARTS: usize = 16;
const DEPTH: usize = 16;
const NAME_NOTED: usize = 128;

/// A stack whose cause is asked for; `struct ring_stack` without its head.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct Stack {
    pub hash: u64,
    n_frames: u32,
    pad: u32,
    frames: [u64; STACK_FRAMES],
}

impl Stack {
    /// Return its addresses, the innermost first.
    pub fn frames(&self) -> &[u64] {
        &self.frames[..(self.n_frames as usize).min(STACK_FRAMES)]
    }
}

/// A part of a call: a cause, or the hash of a stack, and its time.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct Part {
    pub what: u64,
    pub ns: u64,
}

/// A call with a cause that was not known when it returned; `struct ring_unnamed`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct Unnamed {
    pub key: Key,
    pub end_ns: u64,
    pub call_ns: u64,
    pub cpu_ns: u64,
    pub steal_ns: u64,
    pub runq_ns: u64,
    pub preempt_ns: u64,
    n_parts: u32,
    pad: u32,
    parts: [Part; MOST_PARTS],
}

impl Unnamed {
    /// Return the parts asleep.
    pub fn parts(&self) -> &[Part] {
        &self.parts[..(self.n_parts as usize).min(MOST_PARTS)]
    }
}

/// A directory with the names that lead to it; `struct ring_directory`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct Directory {
    pub ino: u64,
    pub dev: u32,
    n: u32,
    names: [[u8; NAME_NOTED]; DEPTH],
}

impl Directory {
    /// Return its path from the root of the filesystem; None if it is too long.
    pub fn path(&self) -> Option<Vec<u8>> {
        let n = (self.n as usize).checked_sub(1)?;
        let mut path = Vec::new();
        for name in self.names[..n.min(DEPTH)].iter().rev() {
            let length = name.iter().position(|byte| *byte == 0)?;
            if length == NAME_NOTED - 1 {
                return None; // perhaps it was cut
            }
            path.push(b'/');
            path.extend_from_slice(&name[..length]);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Some(path)
    }
}

/// Return the record at the beginning of these bytes.
pub fn of<T: Pod>(bytes: &[u8]) -> Option<T> {
    bytes
        .get(..size_of::<T>())
        .map(bytemuck::pod_read_unaligned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_put_together_from_its_end() {
        let mut found: Directory = Zeroable::zeroed();
        assert_eq!(found.path(), None);
        found.n = 1;
        assert_eq!(found.path().as_deref(), Some(&b"/"[..]));
        found.n = 3;
        found.names[0][..3].copy_from_slice(b"new");
        found.names[1][..4].copy_from_slice(b"user");
        assert_eq!(found.path().as_deref(), Some(&b"/user/new"[..]));
        found.names[1][..127].fill(b'x');
        assert_eq!(found.path(), None);
    }
}
