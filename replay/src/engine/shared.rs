//! Memory that every replay task sees: progress, outcomes and the schedule.

use anyhow::{Result, ensure};
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::engine::spin::Spinning;
use crate::large;

const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;
/// Short arrays lie in one mapping of this size: a fork copies mappings one by one.
const ROOM: usize = 64 << 20;
/// Arrays of more bytes than this have mappings of their own.
pub const SHORT: usize = ROOM / 2;

/// Start of the mapping (0: not yet made), and how many bytes of it are in use.
static REGION: Mutex<(usize, usize)> = Mutex::new((0, 0));

fn region() -> MutexGuard<'static, (usize, usize)> {
    REGION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whole pages of the common mapping, if the array is short and there is room.
fn among_others(bytes: usize) -> Option<*mut u8> {
    let mut region = region();
    let (base, used) = &mut *region;
    if *base == 0 {
        *base = large::aligned(ROOM, HUGE_PAGE).expose_provenance();
    }
    let from = *used;
    let end = from + bytes.next_multiple_of(PAGE);
    if *base == 0 || bytes > SHORT || end > ROOM {
        return None;
    }
    *used = end;
    Some(ptr::with_exposed_provenance_mut(*base + from))
}

/// Takes the memory of the common mapping now, in huge pages if the kernel has some: else each task
/// would meet the pages one by one, with a fault for each.
pub fn populate() {
    let (base, used) = *region();
    let place = ptr::with_exposed_provenance_mut(base);
    // SAFETY: advice on memory that is never unmapped; if it is refused, pages come as they are
    // met.
    unsafe {
        libc::madvise(place, used, libc::MADV_POPULATE_WRITE);
        let whole = used.next_multiple_of(HUGE_PAGE);
        libc::madvise(place, whole, libc::MADV_COLLAPSE);
    }
}

/// Returns zeroed memory, shared with every process forked from here; it lives as long as they.
pub fn allocate<T>(count: usize) -> Result<*mut T> {
    let bytes = count * size_of::<T>();
    let alone = || large::memory(bytes, libc::MAP_SHARED);
    checked(among_others(bytes).unwrap_or_else(alone), bytes)
}

fn checked<T>(place: *mut u8, bytes: usize) -> Result<*mut T> {
    ensure!(!place.is_null(), "no memory for {bytes} shared bytes");
    Ok(place.cast())
}

/// Returns a shared array of values that are valid when zeroed and hold only atomics.
pub fn array<T: Atomic>(count: usize) -> Result<&'static [T]> {
    let place = allocate::<T>(count)?;
    // SAFETY: the memory is zeroed, never unmapped, and `T` holds atomics only.
    Ok(unsafe { std::slice::from_raw_parts(place, count) })
}

/// Copies a slice to shared memory, so that a fork does not have to copy its page tables.
pub fn copy<T: Copy>(from: &[T]) -> Result<&'static [T]> {
    let bytes = size_of_val(from);
    let alone = || large::map(bytes, libc::MAP_SHARED);
    let place: *mut T = checked(among_others(bytes).unwrap_or_else(alone), bytes)?;
    // SAFETY: the memory is large enough, new, and never unmapped.
    unsafe {
        ptr::copy_nonoverlapping(from.as_ptr(), place, from.len());
        Ok(std::slice::from_raw_parts(place, from.len()))
    }
}

/// Types made of atomics only.
///
/// # Safety
/// All-zero bytes must be a valid value, and every member an atomic.
pub unsafe trait Atomic {}

/// Present state of a task, for the watchdog.
pub mod state {
    pub const UNBORN: u32 = 0;
    pub const RUNNING: u32 = 1;
    /// Waits for its time.
    pub const PACING: u32 = 2;
    /// Waits for another thread.
    pub const WAITING: u32 = 3;
    pub const CALLING: u32 = 4;
    pub const DONE: u32 = 5;
}

/// Progress of one recorded thread. One cache line, so that threads do not disturb each other.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Gate {
    /// Operations finished.
    pub progress: AtomicU32,
    /// Futex word that this thread sleeps on while it waits for another.
    pub epoch: AtomicU32,
    pub state: AtomicU32,
    /// Thread waited for << 32 | operations it must have finished.
    pub waits_for: AtomicU64,
    /// When the present state began.
    pub since_ns: AtomicI64,
    /// Real process id.
    pub pid: AtomicU32,
    /// Real thread id.
    pub tid: AtomicU32,
    /// Set by the watchdog: stop waiting.
    pub give_up: AtomicU32,
}

// SAFETY: atomics only; zero means "not begun".
unsafe impl Atomic for Gate {}

/// One per replay.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Control {
    pub start_ns: AtomicI64,
    /// Tasks that have what they need to begin.
    pub ready: AtomicU32,
    /// Futex word: `start_ns` is fixed.
    pub begun: AtomicU32,
    /// Threads that ran to the end of their stream.
    pub finished: AtomicU32,
    /// Futex word: the replay is over, tasks that outlived their stream may go.
    pub over: AtomicU32,
    /// Locks that were granted before their turn, and given back.
    pub given_back: AtomicU32,
    pub spinning: Spinning,
}

// SAFETY: atomics only.
unsafe impl Atomic for Control {}

impl Control {
    /// Lets the tasks begin.
    pub fn begin(&self, start_ns: i64) {
        self.start_ns.store(start_ns, SeqCst);
        self.begun.store(1, SeqCst);
        futex_wake(&self.begun);
    }
}

/// Sleeps until `word` differs from `expected`, a wake, or the timeout.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: i64) {
    let timeout = libc::timespec {
        tv_sec: timeout_ns / 1_000_000_000,
        tv_nsec: timeout_ns % 1_000_000_000,
    };
    // SAFETY: the word outlives the call; no result is needed, callers check again.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &raw const timeout,
        );
    }
}

/// Wakes every sleeper.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word outlives the call.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
    }
}

/// Returns CLOCK_MONOTONIC, in nanoseconds.
pub fn now_ns() -> i64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Returns what to add to the monotonic clock to get time since the epoch.
pub fn epoch_less_monotonic_ns() -> i64 {
    // The try with the shortest time between its readings is the most exact.
    let tries = (0..16).map(|_| {
        let before = now_ns();
        let real = clock_ns(libc::CLOCK_REALTIME);
        let after = now_ns();
        (after - before, real - before - (after - before) / 2)
    });
    tries.min().unwrap_or_default().1
}

fn clock_ns(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writing.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Returns private memory for buffers; only pages that are used cost anything.
pub fn allocate_private(bytes: usize) -> Result<*mut u8> {
    checked(large::memory(bytes, libc::MAP_PRIVATE), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_things_lie_in_one_mapping_and_are_there_before_they_are_met() {
        let first = copy(&[7_u8; 5_000]).expect("memory");
        let second: *mut u64 = allocate(3 * PAGE).expect("memory");
        let long: *mut u8 = allocate(SHORT + 1).expect("memory");
        populate();
        let (base, used) = *region();
        let from_base = |place: usize| place.wrapping_sub(base);
        let [first_at, second_at] = [first.as_ptr().addr(), second.addr()].map(from_base);
        assert!(first_at < ROOM && second_at < ROOM && from_base(long.addr()) >= ROOM);
        assert!(first_at % PAGE == 0 && second_at % PAGE == 0);
        assert_eq!(base % HUGE_PAGE, 0, "no huge page can be there");
        let apart = first_at + first.len() <= second_at || second_at + 24 * PAGE <= first_at;
        assert!(apart && first.iter().all(|byte| *byte == 7));
        let mut there = vec![0_u8; used / PAGE];
        let place = ptr::with_exposed_provenance_mut(base);
        // SAFETY: whole pages of the mapping, and a byte for each of them.
        let asked = unsafe { libc::mincore(place, used, there.as_mut_ptr()) };
        assert_eq!(asked, 0);
        assert!(there.iter().all(|page| page & 1 != 0));
        // SAFETY: the memory is that large, and nothing writes to it.
        assert!(unsafe { std::slice::from_raw_parts(second, 3 * PAGE) } == [0; 3 * PAGE]);
    }
}
