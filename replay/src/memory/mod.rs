//! Allocations as long as a trace: in files without a name, so that memory need not grow with it.
//!
//! This is the allocator of the program. An allocation from `LARGE` on gets a file of its own,
//! which the kernel can write out and take out of memory; smaller ones share one (`arena.rs`).
//! Where no file can be had, all stays in memory. Files are shared with forked tasks, so none may
//! change them: `stay_in_memory` comes before the first of them.

mod arena;
pub mod nameless;
pub mod shared;

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::ptr;

use crate::memory::nameless::{LARGE, map};

const PAGE: usize = 4096;

/// Allocations lie in files of this directory from now on, if it can be opened.
pub fn lie_in(directory: &Path) {
    nameless::place_in(directory);
    if let Some(shared) = nameless::unnamed() {
        arena::open(shared);
    }
}

/// Makes new allocations stay in memory, and closes the directory. Freed memory is given back, so
/// that no fork has to copy its page tables.
pub fn stay_in_memory() {
    nameless::place_nowhere();
    arena::close();
    // SAFETY: plain library call.
    unsafe { libc::malloc_trim(0) };
}

/// The system's allocator, except for allocations that lie in files.
#[derive(Debug)]
pub struct Allocator;

fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= PAGE
}

/// Returns a place in a file, null if none can be had; `None` if the system is to allocate.
fn in_a_file(layout: Layout) -> Option<*mut u8> {
    match is_large(layout) {
        true => Some(map(layout.size(), libc::MAP_PRIVATE)),
        false => arena::alloc(layout),
    }
}

// SAFETY: large allocations are mapped and unmapped by size alone; the address of another shows
// whether it is the arena's or the system's.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match in_a_file(layout) {
            // SAFETY: as the caller promised.
            None => unsafe { System.alloc(layout) },
            Some(place) => place,
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match in_a_file(layout) {
            // SAFETY: as the caller promised.
            None => unsafe { System.alloc_zeroed(layout) },
            // A mapping of its own is zeroed.
            Some(place) if is_large(layout) => place,
            Some(place) => {
                // SAFETY: new, and at least so large.
                unsafe { place.write_bytes(0, layout.size()) };
                place
            }
        }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: it came from `alloc` with this layout, as the caller promised.
        unsafe {
            match is_large(layout) {
                true => drop(libc::munmap(place.cast(), layout.size())),
                false if arena::holds(place) => arena::dealloc(place, layout),
                false => System.dealloc(place, layout),
            }
        }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promised that the new size is valid with this alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if !is_large(layout) && !is_large(wanted) {
            match arena::holds(place) {
                // SAFETY: as the caller promised.
                false => return unsafe { System.realloc(place, layout, size) },
                true if arena::fits(layout, size) => return place,
                true => {}
            }
        }
        // SAFETY: both are valid for the smaller of the two sizes, and do not overlap.
        unsafe {
            let moved = self.alloc(wanted);
            if !moved.is_null() {
                ptr::copy_nonoverlapping(place, moved, layout.size().min(size));
                self.dealloc(place, layout);
            }
            moved
        }
    }
}
