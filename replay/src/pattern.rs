//! Predictable data: every byte follows from the object and its offset.

use anyhow::{Result, ensure};
use std::ptr;

/// The pattern repeats after this many bytes: farther than a filesystem looks back to compress.
const PERIOD: usize = TILE;
const TILE: usize = 1 << 20;
/// Each stretch of this many bytes is partly easy to compress.
const STRETCH: usize = 512;
/// Longest single write that is replayed.
pub const LONGEST: i64 = 1 << 30;

/// How easily the data is compressed and deduplicated.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Content {
    /// Percent of the data that compress to nothing.
    #[arg(long, global = true, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub compressible: u8,
    /// Percent of the files that hold the same data, as far as they reach.
    #[arg(long, global = true, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub duplicate: u8,
}

/// The pattern, mapped often enough that any write can point into it without copying.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    base: *const u8,
    len: usize,
    duplicate: u64,
}

// SAFETY: the memory is never written after `new`.
unsafe impl Send for Pattern {}
// SAFETY: as above.
unsafe impl Sync for Pattern {}

impl Pattern {
    /// Prepares writes of up to `longest` bytes.
    pub fn new(longest: i64, content: Content) -> Result<Self> {
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
            let tile = std::slice::from_raw_parts_mut(base.cast(), TILE);
            fill(tile, usize::from(content.compressible));
            Ok(Self {
                base: base.cast(),
                len,
                duplicate: u64::from(content.duplicate),
            })
        }
    }

    /// Returns the bytes of an object from an offset on; at least `longest` of `new` may be read.
    pub fn at(&self, ino: u64, offset: i64) -> *const u8 {
        let mixed = mix(ino);
        let own = if mixed >> 32 & 0xffff_ffff < self.duplicate * PERCENT {
            0
        } else {
            mixed
        };
        let phase = (offset as u64).wrapping_add(own) as usize % PERIOD;
        self.base.wrapping_add(phase)
    }

    /// As `at`, checked: returns `None` if more was asked for than prepared.
    pub fn bytes(&self, ino: u64, offset: i64, len: usize) -> Option<&[u8]> {
        if len + PERIOD > self.len {
            return None;
        }
        // SAFETY: phase < PERIOD and phase + len stays within the mapping.
        Some(unsafe { std::slice::from_raw_parts(self.at(ino, offset), len) })
    }
}

/// Returns a key for `Pattern`, in place of an object, for the value of an extended attribute; no
/// two attributes of an object begin alike.
pub fn of_xattr(ino: u64, name: &[u8]) -> u64 {
    const PRIME: u64 = 0x100_0000_01b3; // FNV-1a
    name.iter().fold(ino, |key, byte| {
        (key ^ u64::from(*byte)).wrapping_mul(PRIME)
    })
}

/// A hundredth of the range of 32 bits, rounded up, so that a hundred of them cover it.
const PERCENT: u64 = (1 << 32) / 100 + 1;

fn mix(ino: u64) -> u64 {
    let mixed = ino.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// Fills a tile with noise, and with spaces for the compressible share.
fn fill(tile: &mut [u8], compressible: usize) {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for word in tile.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    for stretch in tile.chunks_exact_mut(STRETCH) {
        stretch[..STRETCH * compressible / 100].fill(b' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_follow_from_object_and_offset_only() {
        let pattern = Pattern::new(3 << 20, Content::default()).expect("memory");
        let whole = pattern.bytes(7, 0, 2 << 20).expect("prepared").to_vec();
        assert_eq!(
            pattern.bytes(7, 100_000, 5000).expect("prepared"),
            &whole[100_000..105_000]
        );
        assert_ne!(pattern.bytes(8, 0, 64), pattern.bytes(7, 0, 64));
        assert!(pattern.bytes(7, 0, 5 << 20).is_none());
    }

    #[test]
    fn content_is_as_compressible_and_as_equal_as_asked_for() {
        let content = Content {
            compressible: 75,
            duplicate: 30,
        };
        let pattern = Pattern::new(1 << 20, content).expect("memory");
        let bytes = pattern.bytes(7, 0, 1 << 20).expect("prepared");
        let spaces = bytes.iter().filter(|byte| **byte == b' ').count();
        assert!((75..77).contains(&(spaces * 100 / bytes.len())));
        let common = (1..10_000).filter(|ino| pattern.at(*ino, 0) == pattern.base);
        assert!((2_800..3_200).contains(&common.count()));
        let plain = Pattern::new(1 << 20, Content::default()).expect("memory");
        let common = (1..10_000).filter(|ino| plain.at(*ino, 0) == plain.base);
        assert!(common.count() < 10);
    }
}
