//! Data that can be foretold: every byte follows from the object and its offset.

use anyhow::{Result, ensure};
use std::ptr;

/// The pattern repeats after this many bytes; a power of two.
const PERIOD: usize = 1 << 16;
const TILE: usize = 1 << 20;
/// Longest single write that is replayed.
pub const LONGEST: i64 = 1 << 30;

/// The pattern, mapped often enough that any write can point into it without copying.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    base: *const u8,
    len: usize,
}

// SAFETY: the memory is never written after `new`.
unsafe impl Send for Pattern {}
// SAFETY: as above.
unsafe impl Sync for Pattern {}

impl Pattern {
    /// Prepares writes of up to `longest` bytes.
    pub fn new(longest: i64) -> Result<Self> {
        let longest = usize::try_from(longest.clamp(0, LONGEST))?;
        let len = (longest + 2 * PERIOD).next_multiple_of(TILE);
        // SAFETY: plain system calls; the results are checked.
        unsafe {
            let memory = libc::memfd_create(c"pattern".as_ptr(), libc::MFD_CLOEXEC);
            ensure!(
                memory >= 0 && libc::ftruncate(memory, TILE as i64) == 0,
                "no memory file"
            );
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let base = libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            );
            ensure!(
                base != libc::MAP_FAILED,
                "no memory for {len} bytes of pattern"
            );
            for at in (0..len).step_by(TILE) {
                let place = base.byte_add(at);
                let tile = libc::mmap(
                    place,
                    TILE,
                    prot,
                    libc::MAP_SHARED | libc::MAP_FIXED,
                    memory,
                    0,
                );
                ensure!(tile == place, "cannot map the pattern");
            }
            libc::close(memory);
            fill(std::slice::from_raw_parts_mut(base.cast(), TILE));
            Ok(Self {
                base: base.cast(),
                len,
            })
        }
    }

    /// The bytes of an object from an offset on; at least `LONGEST` asked for in `new`.
    pub fn at(&self, ino: u64, offset: i64) -> *const u8 {
        let phase = (offset as u64).wrapping_add(mix(ino)) as usize % PERIOD;
        self.base.wrapping_add(phase)
    }

    /// As `at`, checked: `None` if more than was prepared is asked for.
    pub fn bytes(&self, ino: u64, offset: i64, len: usize) -> Option<&[u8]> {
        if len + PERIOD > self.len {
            return None;
        }
        // SAFETY: phase < PERIOD and phase + len stays within the mapping.
        Some(unsafe { std::slice::from_raw_parts(self.at(ino, offset), len) })
    }
}

fn mix(ino: u64) -> u64 {
    let mixed = ino.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

fn fill(tile: &mut [u8]) {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for word in tile[..PERIOD].chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    for at in (PERIOD..tile.len()).step_by(PERIOD) {
        tile.copy_within(..PERIOD, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_follow_from_object_and_offset_only() {
        let pattern = Pattern::new(3 << 20).expect("memory");
        let whole = pattern.bytes(7, 0, 2 << 20).expect("prepared").to_vec();
        assert_eq!(
            pattern.bytes(7, 100_000, 5000).expect("prepared"),
            &whole[100_000..105_000]
        );
        assert_ne!(pattern.bytes(8, 0, 64), pattern.bytes(7, 0, 64));
        assert!(pattern.bytes(7, 0, 5 << 20).is_none());
    }
}
