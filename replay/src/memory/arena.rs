//! Small allocations, millions of them: in one nameless file, as large ones are (`nameless.rs`).
//!
//! The kernel can write the file out, so that memory need not grow with the names and files of a
//! trace. Sizes are rounded up to classes, and each class has a list of its free places. The file
//! is shared with forked tasks, so none may change it: `close` comes before the first of them, and
//! an allocation that is freed after that stays where it is.

use std::alloc::Layout;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::memory::nameless::{LARGE, has_room, read_singly};

/// The file grows by this much, and is given back in such pieces.
const CHUNK: usize = 16 << 20;
/// Addresses set aside, which cost nothing.
const RESERVED: usize = 256 << 30;
/// Up to here there is a class for every multiple of `ALIGNED`; above, four for each doubling.
const FINE: usize = 1024;
const ALIGNED: usize = 16;
const N_FINE: usize = FINE / ALIGNED;
const N_CLASSES: usize = N_FINE + 4 * (LARGE.ilog2() - FINE.ilog2()) as usize;

static OPEN: AtomicBool = AtomicBool::new(false);
/// Start of the reserved addresses; 0 until the arena is opened.
static BASE: AtomicUsize = AtomicUsize::new(0);
static ARENA: Mutex<Arena> = Mutex::new(Arena {
    file: None,
    used: 0,
    end: 0,
    free: [0; N_CLASSES],
    living: [0; RESERVED / CHUNK],
});

struct Arena {
    file: Option<File>,
    /// Bytes from the base: `used` were taken, and the file reaches to `end`.
    used: usize,
    end: usize,
    /// The first free place of each class, which holds the next one; 0: none.
    free: [usize; N_CLASSES],
    /// Allocations that lie in each chunk, or reach into it.
    living: [u32; RESERVED / CHUNK],
}

/// Takes the file of small allocations; only the first one is used.
pub fn open(file: File) {
    let mut arena = lock();
    if BASE.load(SeqCst) != 0 {
        return;
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: plain system call; the result is checked.
    let base = unsafe { libc::mmap(ptr::null_mut(), RESERVED, libc::PROT_NONE, flags, -1, 0) };
    if base != libc::MAP_FAILED {
        arena.file = Some(file);
        BASE.store(base as usize, SeqCst);
        OPEN.store(true, SeqCst);
    }
}

/// Ends allocation, and gives back the chunks in which nothing lives.
pub fn close() {
    let mut arena = lock();
    OPEN.store(false, SeqCst);
    let Some(file) = arena.file.take() else {
        return;
    };
    for chunk in (0..arena.end / CHUNK).filter(|chunk| arena.living[*chunk] == 0) {
        let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (from, bytes) = ((chunk * CHUNK) as i64, CHUNK as i64);
        // SAFETY: plain system call; where it fails the bytes stay until the end of the program.
        unsafe { libc::fallocate(file.as_raw_fd(), how, from, bytes) };
    }
}

/// Returns a place for a small allocation, if there is one.
pub fn alloc(layout: Layout) -> Option<*mut u8> {
    if !OPEN.load(Relaxed) || layout.align() > ALIGNED {
        return None;
    }
    let place = lock().take(layout.size());
    place.map(ptr::with_exposed_provenance_mut)
}

/// Returns whether a place is in the arena.
pub fn holds(place: *mut u8) -> bool {
    let base = BASE.load(Relaxed);
    base != 0 && place.addr().wrapping_sub(base) < RESERVED
}

/// Returns whether an allocation can change its size in place: the class stays the same.
pub fn fits(layout: Layout, bytes: usize) -> bool {
    class(layout.size()) == class(bytes)
}

/// Frees a place that `alloc` gave for the same layout.
pub fn dealloc(place: *mut u8, layout: Layout) {
    let mut arena = lock();
    if arena.file.is_some() {
        arena.give_back(place.expose_provenance(), layout.size());
    }
}

fn lock() -> MutexGuard<'static, Arena> {
    ARENA.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the class of a size, and the bytes that it takes.
fn class(bytes: usize) -> (usize, usize) {
    if bytes <= FINE {
        let class = bytes.max(1).div_ceil(ALIGNED) - 1;
        return (class, (class + 1) * ALIGNED);
    }
    let doubling = (bytes - 1).ilog2();
    let step = 1 << (doubling - 2);
    let steps = bytes.div_ceil(step);
    let above = 4 * (doubling - FINE.ilog2()) as usize + steps - 5;
    (N_FINE + above, steps * step)
}

impl Arena {
    fn take(&mut self, bytes: usize) -> Option<usize> {
        let (class, bytes) = class(bytes);
        let place = match self.free[class] {
            0 => self.fresh(bytes)?,
            place => {
                let free: *const usize = ptr::with_exposed_provenance(place);
                // SAFETY: a free place of this class, in which `give_back` stored the next one.
                self.free[class] = unsafe { *free };
                place
            }
        };
        self.count(place, bytes, 1);
        Some(place)
    }

    fn give_back(&mut self, place: usize, bytes: usize) {
        let (class, bytes) = class(bytes);
        self.count(place, bytes, u32::MAX);
        let free: *mut usize = ptr::with_exposed_provenance_mut(place);
        // SAFETY: the place is not in use any more, it is aligned, and no class is smaller.
        unsafe { *free = self.free[class] };
        self.free[class] = place;
    }

    /// Adds to the number of allocations in the chunks that a place reaches into, modulo 2^32.
    fn count(&mut self, place: usize, bytes: usize, number: u32) {
        let from = place - BASE.load(Relaxed);
        for chunk in from / CHUNK..=(from + bytes - 1) / CHUNK {
            self.living[chunk] = self.living[chunk].wrapping_add(number);
        }
    }

    /// Returns room that was never used.
    fn fresh(&mut self, bytes: usize) -> Option<usize> {
        let file = self.file.as_ref()?;
        let base = BASE.load(Relaxed);
        if self.used + bytes > self.end {
            let (from, to) = (self.end, self.end + CHUNK);
            let place = ptr::with_exposed_provenance_mut(base + from);
            let (allowed, how) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED,
            );
            // SAFETY: the addresses are set aside and unused, and there is room in the file.
            let map =
                || unsafe { libc::mmap(place, CHUNK, allowed, how, file.as_raw_fd(), from as i64) };
            let mapped = to <= RESERVED && has_room(file, from, CHUNK) && map() != libc::MAP_FAILED;
            if !mapped {
                return None;
            }
            read_singly(place.cast(), CHUNK);
            self.end = to;
        }
        self.used += bytes;
        Some(base + self.used - bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{ALIGNED, LARGE, N_CLASSES, class};

    #[test]
    fn every_size_has_a_class_that_holds_it_and_is_not_much_larger() {
        let sizes = (1..100_000)
            .chain((100_000..LARGE).step_by(4_099))
            .chain([LARGE - 1]);
        let mut last = (0, ALIGNED);
        for size in sizes {
            let (at, bytes) = class(size);
            assert!(at < N_CLASSES && bytes >= size && bytes % ALIGNED == 0);
            assert!(bytes - size < ALIGNED.max(size / 4 + 1));
            assert_eq!(at == last.0, bytes == last.1, "one size for each class");
            assert!((at, bytes) >= last);
            last = (at, bytes);
        }
    }
}
