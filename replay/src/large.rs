//! Allocations as long as a trace: in files without a name, so that memory need not grow with it.
//!
//! This is the allocator of the program. An allocation from `LARGE` on gets a file of its own,
//! which the kernel can write out and take out of memory; smaller ones share one (`arena.rs`).
//! Where no file can be had, all stays in memory. Files are shared with forked tasks, so none may
//! change them: `stay_in_memory` comes before the first of them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

use crate::arena;

/// Allocations of this size are few, so each may have a file of its own.
pub const LARGE: usize = 16 << 20;
const PAGE: usize = 4096;
const NOWHERE: i32 = -1;

/// Descriptor of the directory that files are made in.
static PLACE: AtomicI32 = AtomicI32::new(NOWHERE);

/// Allocations lie in files of this directory from now on, if it can be opened.
pub fn lie_in(directory: &Path) {
    let Ok(path) = CString::new(directory.as_os_str().as_bytes()) else {
        return;
    };
    let flags = libc::O_DIRECTORY | libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: plain system call.
    let opened = unsafe { libc::open(path.as_ptr(), flags) };
    close(PLACE.swap(opened.max(NOWHERE), SeqCst));
    if let Some(shared) = unnamed() {
        arena::open(shared);
    }
}

/// Makes new allocations stay in memory, and closes the directory. Freed memory is given back, so
/// that no fork has to copy its page tables.
pub fn stay_in_memory() {
    close(PLACE.swap(NOWHERE, SeqCst));
    arena::close();
    // SAFETY: plain library call.
    unsafe { libc::malloc_trim(0) };
}

fn close(descriptor: i32) {
    if descriptor != NOWHERE {
        // SAFETY: `lie_in` opened it, and nothing uses it any more.
        unsafe { libc::close(descriptor) };
    }
}

/// Returns a file without a name that has so much room; `None` without a directory or room.
pub fn file(bytes: usize) -> Option<File> {
    unnamed().filter(|file| has_room(file, 0, bytes))
}

fn unnamed() -> Option<File> {
    let place = PLACE.load(SeqCst);
    if place == NOWHERE {
        return None;
    }
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: plain system call; the descriptor is new and owned from here on.
    unsafe {
        let descriptor = libc::openat(place, c".".as_ptr(), flags, 0o600);
        (descriptor >= 0).then(|| File::from_raw_fd(descriptor))
    }
}

/// Takes room in a file now: on a full disk a store to the mapping would kill the process.
pub fn has_room(file: &File, from: usize, bytes: usize) -> bool {
    // SAFETY: plain system call.
    unsafe { libc::posix_fallocate(file.as_raw_fd(), from as i64, bytes as i64) == 0 }
}

/// Returns zeroed memory of a file without a name, shared with forked tasks; null if there is none.
fn from_file(bytes: usize) -> *mut u8 {
    match file(bytes) {
        Some(file) => mapping(ptr::null_mut(), bytes, libc::MAP_SHARED, file.as_raw_fd()),
        None => ptr::null_mut(),
    }
}

/// Makes the kernel read back only pages that are touched. If memory is short, it would else read
/// as much around each page as the disk's read-ahead, megabytes on some, and drop needed pages for
/// that.
pub fn read_singly(place: *mut u8, bytes: usize) {
    // SAFETY: advice about what was mapped just now; it changes no contents.
    unsafe { libc::madvise(place.cast(), bytes, libc::MADV_RANDOM) };
}

/// Returns zeroed memory that forked tasks share (MAP_SHARED) or copy (MAP_PRIVATE); null if there
/// is none.
pub fn memory(bytes: usize, sharing: i32) -> *mut u8 {
    memory_at(ptr::null_mut(), bytes, sharing)
}

fn memory_at(place: *mut u8, bytes: usize, sharing: i32) -> *mut u8 {
    let kind = sharing | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    mapping(place, bytes.max(1), kind, -1)
}

/// Returns zeroed memory that forked tasks share, at a multiple of `unit`: the kernel has huge
/// pages only for places that are such multiples both in memory and in the mapping. Null if there
/// is none.
pub fn aligned(bytes: usize, unit: usize) -> *mut u8 {
    let reserved = memory(bytes + unit, libc::MAP_PRIVATE);
    if reserved.is_null() {
        return reserved;
    }
    let place = reserved.map_addr(|address| address.next_multiple_of(unit));
    let before = place.addr() - reserved.addr();
    // SAFETY: both ends of the new mapping are unused; a length of 0 is refused, no more.
    unsafe {
        libc::munmap(reserved.cast(), before);
        libc::munmap(place.add(bytes).cast(), unit - before);
    }
    memory_at(place, bytes, libc::MAP_SHARED | libc::MAP_FIXED)
}

/// Returns zeroed memory, from a file if it is large and one can be had, else as `sharing` states.
pub fn map(bytes: usize, sharing: i32) -> *mut u8 {
    if bytes >= LARGE {
        let place = from_file(bytes);
        if !place.is_null() {
            read_singly(place, bytes);
            return place;
        }
    }
    memory(bytes, sharing)
}

/// Maps memory at the given place with MAP_FIXED, else anywhere.
fn mapping(place: *mut u8, bytes: usize, flags: i32, file: i32) -> *mut u8 {
    let allowed = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: plain system call; the result is checked.
    match unsafe { libc::mmap(place.cast(), bytes, allowed, flags, file, 0) } {
        libc::MAP_FAILED => ptr::null_mut(),
        place => place.cast(),
    }
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
