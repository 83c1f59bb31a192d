//! Recorded descriptors and the real ones that they are bound to.

use anyhow::Result;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, Ordering::Relaxed};

use spoolscope_traces::records::NONE;

const CLOEXEC: u32 = 1;
const APPEND: u32 = 2;
const SPECIAL: u32 = 4;

/// One recorded descriptor; zero means closed, so real numbers are kept plus one.
#[derive(Debug)]
struct Slot {
    real: AtomicI32,
    path: AtomicU32,
    bits: AtomicU32,
    /// Bytes by which listings through it are ahead of the recorded ones.
    ahead: AtomicI64,
}

/// The real descriptor that a recorded one is bound to.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    pub real: i32,
    /// String index of the name it was opened by, or `NONE`.
    pub path: u32,
    pub cloexec: bool,
    pub append: bool,
    /// It leads to a pipe, a socket or a device, which was not opened (O_PATH).
    pub special: bool,
}

/// An inotify watch: descriptor, recorded number, real number.
pub type Watch = (i32, i64, i64);

/// A stretch of a file in memory.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// Recorded address.
    pub start: i64,
    pub len: usize,
    /// Address here.
    pub real: usize,
    /// Identity of the file in the trace, and where in it the mapping begins.
    pub ino: u64,
    pub offset: i64,
    /// PROT_* bits.
    pub prot: i32,
}

/// The descriptor table of one process. A fork copies it with the memory it lies in.
#[derive(Debug)]
pub struct FdTable {
    slots: &'static [Slot],
    pub watches: Mutex<Vec<Watch>>,
    pub mappings: Mutex<Vec<Mapping>>,
}

impl FdTable {
    /// Returns an empty table for descriptors below `size`, in memory that costs only what is used.
    pub fn new(size: usize) -> Result<Self> {
        let bytes = size * size_of::<Slot>();
        // SAFETY: plain system call; the result is checked.
        let place = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        anyhow::ensure!(place != libc::MAP_FAILED, "no memory for descriptors");
        Ok(Self {
            // SAFETY: zeroed memory is a valid array of atomics and is never unmapped.
            slots: unsafe { std::slice::from_raw_parts(place.cast(), size) },
            watches: Mutex::default(),
            mappings: Mutex::default(),
        })
    }

    /// Returns the table of a forked process: the slots are in its copied memory.
    pub fn inherited(&self, watches: Vec<Watch>, mappings: Vec<Mapping>) -> Self {
        Self {
            slots: self.slots,
            watches: Mutex::new(watches),
            mappings: Mutex::new(mappings),
        }
    }

    pub fn get(&self, fd: i32) -> Option<Open> {
        let slot = self.slot(fd)?;
        let real = slot.real.load(Relaxed) - 1;
        let bits = slot.bits.load(Relaxed);
        (real >= 0).then(|| Open {
            real,
            path: slot.path.load(Relaxed),
            cloexec: bits & CLOEXEC != 0,
            append: bits & APPEND != 0,
            special: bits & SPECIAL != 0,
        })
    }

    /// Binds a recorded number; a real descriptor still bound to it is closed.
    pub fn bind(&self, fd: i32, open: Open) {
        if let Some(old) = self.take(fd).filter(|old| old.real != open.real) {
            close(old.real);
        }
        let Some(slot) = self.slot(fd) else {
            close(open.real);
            return;
        };
        slot.path.store(open.path, Relaxed);
        let bits = [
            (open.cloexec, CLOEXEC),
            (open.append, APPEND),
            (open.special, SPECIAL),
        ];
        let bits = bits.iter().map(|(is, bit)| u32::from(*is) * bit).sum();
        slot.bits.store(bits, Relaxed);
        slot.ahead.store(0, Relaxed);
        slot.real.store(open.real + 1, Relaxed);
    }

    /// Adds to the bytes by which listings are ahead of the recorded ones; returns the sum.
    pub fn listed(&self, fd: i32, more: i64) -> i64 {
        self.slot(fd)
            .map_or(0, |slot| slot.ahead.fetch_add(more, Relaxed) + more)
    }

    /// Notes that a listing begins again.
    pub fn rewind(&self, fd: i32) {
        if let Some(slot) = self.slot(fd) {
            slot.ahead.store(0, Relaxed);
        }
    }

    fn slot(&self, fd: i32) -> Option<&Slot> {
        self.slots.get(usize::try_from(fd).ok()?)
    }

    /// Forgets a recorded number and returns its descriptor.
    pub fn take(&self, fd: i32) -> Option<Open> {
        let open = self.get(fd)?;
        self.slots[fd as usize].real.store(0, Relaxed);
        Some(open)
    }

    /// Closes the descriptors that `which` chooses.
    pub fn close_all(&self, which: impl Fn(&Open) -> bool) {
        let chosen = self.open_fds().filter(|(_, open)| which(open));
        for (fd, open) in chosen {
            self.take(fd);
            close(open.real);
        }
    }

    /// Returns all open recorded numbers.
    pub fn open_fds(&self) -> impl Iterator<Item = (i32, Open)> + '_ {
        (0..self.slots.len() as i32).filter_map(|fd| Some((fd, self.get(fd)?)))
    }
}

impl Open {
    pub fn new(real: i32) -> Self {
        Self {
            real,
            path: NONE,
            cloexec: false,
            append: false,
            special: false,
        }
    }
}

pub fn close(real: i32) {
    // SAFETY: the descriptor is ours; an error would only mean that it is closed already.
    unsafe { libc::close(real) };
}
