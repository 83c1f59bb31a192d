//! How far each thread has come in the segment being written: what the next one must be told.

use rustc_hash::{FxHashMap, FxHashSet};
use spoolscope_traces::records::{NO_CALL, Switch, Syscall, TASK_BORDER, TASK_EXIT, Task};

/// Absences of a call under way that are carried over a border; a call has seldom more.
const CARRIED: usize = 256;

#[derive(Debug, Default)]
struct Progress {
    pid: u32,
    next_seq: u64,
    last_end_ns: u64,
    ended: bool,
    /// Absences since the last call was recorded: of the call under way, if there is one.
    away: Vec<Switch>,
}

/// The threads of one segment, by tid.
#[derive(Debug, Default)]
pub struct Threads(FxHashMap<u32, Progress>);

impl Threads {
    /// A call was recorded. Rings are read one after the other, so that of two calls of a
    /// thread that moved to another CPU the later may come first.
    pub fn called(&mut self, call: &Syscall) {
        let thread = self.0.entry(call.tid).or_default();
        if thread.ended && call.end_ns > thread.last_end_ns {
            *thread = Progress::default(); // the tid was given out again
        }
        thread.pid = call.pid;
        if call.end_ns >= thread.last_end_ns {
            thread.last_end_ns = call.end_ns;
            thread.next_seq = call.seq + 1;
            thread.away.retain(|switch| switch.out_ns > call.end_ns);
        }
    }

    /// An absence from the CPU was recorded.
    pub fn switched(&mut self, switch: &Switch) {
        if switch.call_ns == NO_CALL {
            return; // a watched kernel thread
        }
        let thread = self.0.entry(switch.tid).or_default();
        thread.pid = switch.pid;
        if thread.away.len() < CARRIED {
            thread.away.push(*switch);
        }
    }

    /// Something happened in a thread's life.
    pub fn lived(&mut self, task: &Task) {
        if task.event == TASK_EXIT
            && let Some(thread) = self.0.get_mut(&task.tid)
        {
            thread.ended = true;
            thread.last_end_ns = thread.last_end_ns.max(task.ts_ns);
        }
    }

    /// What the next segment must know of each thread that goes on, and the absences of calls
    /// under way. `alive` are the threads that still exist; `next` those of the next segment.
    pub fn border(&self, alive: &FxHashSet<u32>, next: &Threads) -> Vec<(Task, &[Switch])> {
        let goes_on = |tid: &u32, thread: &Progress| {
            !thread.ended && (alive.contains(tid) || next.0.contains_key(tid))
        };
        let going_on = self.0.iter().filter(|(tid, thread)| goes_on(tid, thread));
        going_on
            .map(|(tid, thread)| {
                let border = Task {
                    ts_ns: thread.last_end_ns,
                    n_calls: thread.next_seq,
                    event: TASK_BORDER,
                    pid: thread.pid,
                    tid: *tid,
                    ..Task::default()
                };
                (border, thread.away.as_slice())
            })
            .collect()
    }

    /// Takes over, from the segment before, the threads that were not met again yet.
    pub fn inherit(&mut self, before: Threads, alive: &FxHashSet<u32>) {
        for (tid, thread) in before.0 {
            if !thread.ended && alive.contains(&tid) {
                self.0.entry(tid).or_insert(thread);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tid: u32, seq: u64, end_ns: u64) -> Syscall {
        Syscall {
            tid,
            seq,
            end_ns,
            ..Syscall::default()
        }
    }

    fn switch(tid: u32, out_ns: u64) -> Switch {
        Switch {
            tid,
            out_ns,
            call_ns: 1,
            ..Switch::default()
        }
    }

    fn borders(threads: &Threads, alive: &[u32]) -> Vec<(u32, u64, usize)> {
        let alive = alive.iter().copied().collect();
        let mut found: Vec<_> = threads
            .border(&alive, &Threads::default())
            .iter()
            .map(|(task, away)| (task.tid, task.n_calls, away.len()))
            .collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn a_border_tells_the_next_seq_and_the_absences_of_the_call_under_way() {
        let mut threads = Threads::default();
        threads.switched(&switch(7, 5));
        threads.called(&call(7, 3, 10));
        threads.switched(&switch(7, 15));
        threads.switched(&switch(8, 16));
        assert_eq!(borders(&threads, &[7, 8]), [(7, 4, 1), (8, 0, 1)]);
    }

    #[test]
    fn calls_out_of_order_do_not_move_the_border_back() {
        let mut threads = Threads::default();
        threads.called(&call(7, 6, 20));
        threads.called(&call(7, 5, 10));
        assert_eq!(borders(&threads, &[7]), [(7, 7, 0)]);
    }

    #[test]
    fn the_dead_have_no_border_and_a_tid_given_out_again_counts_anew() {
        let mut threads = Threads::default();
        threads.called(&call(7, 6, 20));
        threads.called(&call(8, 6, 20));
        threads.called(&call(9, 6, 20));
        threads.lived(&Task {
            tid: 7,
            ts_ns: 30,
            event: TASK_EXIT,
            ..Task::default()
        });
        assert_eq!(borders(&threads, &[7, 8]), [(8, 7, 0)]);
        threads.called(&call(7, 0, 40));
        assert_eq!(borders(&threads, &[7, 8]), [(7, 1, 0), (8, 7, 0)]);
    }

    #[test]
    fn a_thread_that_ended_while_its_segment_was_closed_is_known_from_the_next() {
        let (mut old, mut new) = (Threads::default(), Threads::default());
        old.called(&call(7, 6, 20));
        new.called(&call(7, 7, 30));
        let found = old.border(&FxHashSet::default(), &new);
        assert_eq!(found[0].0.n_calls, 7);
    }
}
