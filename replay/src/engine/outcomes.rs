//! Outcomes of all operations: in shared memory while they are new, then in a file.
//!
//! Tasks only write memory: a page of a file could make them wait for the disk under test. In a
//! large replay the engine writes finished outcomes to a file and frees their memory. An outcome
//! that is read after that has a time of zero, the earliest that there is.

use anyhow::{Context, Result};
use memmap2::Mmap;
use spoolscope_traces::records::{Outcome, as_bytes};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::slice;

use crate::memory::nameless;
use crate::memory::shared::{self, SHORT};
use crate::plan::Plan;

const PAGE: usize = 4096;

/// One outcome per operation, thread by thread.
#[derive(Debug)]
pub struct Outcomes {
    place: *mut Outcome,
    /// First slot of each thread; one more than there are threads.
    first: &'static [u32],
    /// Finished outcomes, if there are many.
    file: Option<File>,
}

// SAFETY: every slot is written by one task only, and read after its progress includes the slot.
unsafe impl Sync for Outcomes {}
// SAFETY: as above.
unsafe impl Send for Outcomes {}

impl Outcomes {
    pub fn new(first: &'static [u32]) -> Result<Self> {
        let count = first.last().map_or(0, |last| *last as usize);
        let bytes = count * size_of::<Outcome>();
        Ok(Self {
            place: shared::allocate(count)?,
            first,
            file: (bytes > SHORT).then(|| nameless::file(bytes)).flatten(),
        })
    }

    /// Writes the result of a slot; only the thread that owns the slot does.
    pub fn store(&self, slot: usize, outcome: Outcome) {
        // SAFETY: `slot` is within the array and no other task writes this slot.
        unsafe { self.place.add(slot).write(outcome) };
    }

    /// Returns when an operation ended; only valid once its thread's progress includes the
    /// operation.
    pub fn ended_ns(&self, slot: usize) -> i64 {
        // SAFETY: the slot was written before the progress that the caller has seen.
        unsafe { (*self.place.add(slot)).end_ns }
    }

    /// Calls `see` with all results in the order of the plan, when no task runs any more.
    pub fn in_order(
        &self,
        plan: &Plan,
        mut see: impl FnMut(u32, &Outcome) -> Result<()>,
    ) -> Result<()> {
        let written = self.file.as_ref().map(|file| {
            // SAFETY: the file has no name, and nothing writes to it any more.
            unsafe { Mmap::map(file) }
        });
        let written = written.transpose().context("cannot map the outcomes")?;
        let all = written
            .as_ref()
            .map_or(self.place.cast_const(), |map| map.as_ptr().cast());
        let mut next = self.first.to_vec();
        for (at, op) in plan.ops().iter().enumerate() {
            let slot = &mut next[op.thread as usize];
            // SAFETY: within the array, and no task writes this slot any more.
            see(at as u32, unsafe { &*all.add(*slot as usize) })?;
            *slot += 1;
        }
        Ok(())
    }
}

/// Writes outcomes to the file, and counts those written of each thread.
#[derive(Debug)]
pub struct Drain {
    outcomes: &'static Outcomes,
    written: Vec<u32>,
}

impl Drain {
    pub fn new(outcomes: &'static Outcomes) -> Self {
        Self {
            outcomes,
            written: vec![0; outcomes.first.len() - 1],
        }
    }

    /// Writes new outcomes and frees their memory; `done` returns how many of a thread are
    /// finished.
    pub fn go(&mut self, done: impl Fn(usize) -> u32) -> Result<()> {
        let Some(file) = &self.outcomes.file else {
            return Ok(());
        };
        for thread in 0..self.written.len() {
            let first = self.outcomes.first[thread];
            let most = self.outcomes.first[thread + 1] - first;
            let (from, to) = (self.written[thread], done(thread).min(most));
            if from >= to {
                continue;
            }
            let (from, to) = ((first + from) as usize, (first + to) as usize);
            // SAFETY: within the array; the thread is done with these.
            let new = unsafe { slice::from_raw_parts(self.outcomes.place.add(from), to - from) };
            file.write_all_at(as_bytes(new), (from * size_of::<Outcome>()) as u64)
                .context("cannot write outcomes beside the plan")?;
            self.written[thread] = to as u32 - first;
            self.free(from, to);
        }
        Ok(())
    }

    /// Gives back the pages of these slots in which nothing is left to be written.
    fn free(&self, from: usize, to: usize) {
        let [first, last] = [from, to].map(|slot| slot * size_of::<Outcome>() / PAGE);
        let start = first + usize::from(!self.is_written(first));
        let end = last + usize::from(self.is_written(last));
        if start < end {
            // SAFETY: whole pages of this mapping, which no task writes any more.
            unsafe {
                let place = self.outcomes.place.cast::<u8>().add(start * PAGE);
                libc::madvise(place.cast(), (end - start) * PAGE, libc::MADV_REMOVE);
            }
        }
    }

    /// Returns whether the file holds every slot of which a part lies in this page.
    fn is_written(&self, page: usize) -> bool {
        let slots = &self.outcomes.first;
        let end = slots[slots.len() - 1] as usize;
        let from = page * PAGE / size_of::<Outcome>();
        let to = ((page + 1) * PAGE).div_ceil(size_of::<Outcome>()).min(end);
        let mut thread = slots.partition_point(|first| *first as usize <= from) - 1;
        while thread < self.written.len() && (slots[thread] as usize) < to {
            let written = (slots[thread] + self.written[thread]) as usize;
            if written < to.min(slots[thread + 1] as usize) {
                return false;
            }
            thread += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;
    use spoolscope_traces::records::from_bytes;

    fn some(slot: usize) -> Outcome {
        Outcome {
            end_ns: slot as i64 + 1,
            ..Outcome::default()
        }
    }

    #[test]
    fn what_is_done_goes_to_the_file_and_its_memory_is_free() {
        let sizes = [200_000, 1, 0, 500_000, 7, 299_992];
        let mut first = vec![0];
        for size in sizes {
            first.push(first[first.len() - 1] + size);
        }
        memory::lie_in(&std::env::temp_dir());
        let outcomes = Outcomes::new(first.clone().leak()).expect("memory");
        memory::stay_in_memory();
        assert!(outcomes.file.is_some());
        let outcomes: &'static Outcomes = Box::leak(Box::new(outcomes));
        let mut drain = Drain::new(outcomes);
        let mut written = [0_u32; 6];
        // Uneven steps; unfinished outcomes follow each.
        for step in [1_u32, 99, 101, 30_000, 600_000] {
            for (thread, size) in sizes.iter().enumerate() {
                let to = (written[thread] + step).min(*size);
                for at in written[thread]..to {
                    let slot = (first[thread] + at) as usize;
                    outcomes.store(slot, some(slot));
                }
                written[thread] = to;
            }
            drain.go(|thread| written[thread]).expect("room");
        }
        let all = outcomes.place.cast::<libc::c_void>();
        let pages = (1_000_000 * size_of::<Outcome>()).div_ceil(PAGE);
        let mut there = vec![0_u8; pages];
        // SAFETY: the whole mapping, and a byte for each of its pages.
        let asked = unsafe { libc::mincore(all, pages * PAGE, there.as_mut_ptr()) };
        assert_eq!(asked, 0);
        assert_eq!(there.iter().filter(|page| **page & 1 != 0).count(), 0);
        let file = outcomes.file.as_ref().expect("a file");
        let mut bytes = vec![0; 1_000_000 * size_of::<Outcome>()];
        file.read_exact_at(&mut bytes, 0).expect("all of it");
        let read: &[Outcome] = from_bytes(&bytes).expect("aligned");
        for (slot, outcome) in read.iter().enumerate() {
            assert_eq!(outcome.end_ns, slot as i64 + 1);
        }
    }
}
