//! Memory that every replay task sees: progress, outcomes, the schedule and the plan.

use anyhow::{Result, ensure};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::memory::nameless;

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
        *base = nameless::aligned(ROOM, HUGE_PAGE).expose_provenance();
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
    let alone = || nameless::memory(bytes, libc::MAP_SHARED);
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
    let alone = || nameless::map(bytes, libc::MAP_SHARED);
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

/// Returns private memory for buffers; only pages that are used cost anything.
pub fn allocate_private(bytes: usize) -> Result<*mut u8> {
    checked(nameless::memory(bytes, libc::MAP_PRIVATE), bytes)
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
