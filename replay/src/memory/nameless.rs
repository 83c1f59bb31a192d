//! Memory from the kernel: in files without a name while there is a directory for them, or in none.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

/// Allocations of this size are few, so each may have a file of its own.
pub const LARGE: usize = 16 << 20;
const NOWHERE: i32 = -1;

/// Descriptor of the directory that files are made in.
static PLACE: AtomicI32 = AtomicI32::new(NOWHERE);

/// Makes files in this directory from now on, if it can be opened.
pub(super) fn place_in(directory: &Path) {
    let Ok(path) = CString::new(directory.as_os_str().as_bytes()) else {
        return;
    };
    let flags = libc::O_DIRECTORY | libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: plain system call.
    let opened = unsafe { libc::open(path.as_ptr(), flags) };
    close(PLACE.swap(opened.max(NOWHERE), SeqCst));
}

/// Makes no more files.
pub(super) fn place_nowhere() {
    close(PLACE.swap(NOWHERE, SeqCst));
}

fn close(descriptor: i32) {
    if descriptor != NOWHERE {
        // SAFETY: `place_in` opened it, and nothing uses it any more.
        unsafe { libc::close(descriptor) };
    }
}

/// Returns a file without a name that has so much room; `None` without a directory or room.
pub fn file(bytes: usize) -> Option<File> {
    unnamed().filter(|file| has_room(file, 0, bytes))
}

pub(super) fn unnamed() -> Option<File> {
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

/// Makes the kernel read ahead in a large allocation, which is now read from its begin to its end.
pub fn read_on<T>(part: &Vec<T>) {
    let bytes = part.capacity() * size_of::<T>();
    if bytes >= LARGE {
        // SAFETY: advice about a mapping of its own; it changes no contents.
        unsafe {
            libc::madvise(
                part.as_ptr().cast_mut().cast(),
                bytes,
                libc::MADV_SEQUENTIAL,
            )
        };
    }
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
