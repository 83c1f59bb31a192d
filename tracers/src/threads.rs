//! Progress of each thread in the segment being written, to be handed to the next segment.

use rustc_hash::{FxHashMap, FxHashSet};
use spoolscope_traces::records::{NO_CALL, Switch, Syscall, TASK_BORDER, TASK_EXIT, Task};

/// Absences of a call under way that are carried over a border at most; a call seldom has more.
const CARRIED: usize = 256;

#[derive(Debug, Default)]
struct Progress {
    pid: u32,
    next_seq: u64,
    last_end_ns: u64,
    ended: bool,
    /// Absences since the last recorded call: they belong to the call under way, if there is one.
    away: Vec<Switch>,
}

impl Progress {
    /// Return true if at most absences were recorded: of a call that began before, or of the first.
    fn is_in_its_first_call(&self) -> bool {
        self.last_end_ns == 0
    }
}

/// The threads of one segment, by tid.
#[derive(Debug, Default)]
pub struct Threads(FxHashMap<u32, Progress>);

impl Threads {
    /// Note a call that was recorded. Rings are read one after the other, so if a thread moved to
    /// another CPU, the later of its calls may arrive first.
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

    /// Note an absence from the CPU.
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

    /// Note an event of a thread's life.
    pub fn lived(&mut self, task: &Task) {
        if task.event == TASK_EXIT {
            let thread = self.0.entry(task.tid).or_default();
            thread.ended = true;
            thread.last_end_ns = thread.last_end_ns.max(task.ts_ns);
        }
    }

    /// Return what the next segment needs for each thread that goes on, and the absences of calls
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

    /// Take over, from the segment before, the threads that made no call here yet.
    pub fn inherit(&mut self, before: Threads, alive: &FxHashSet<u32>) {
        for (tid, mut thread) in before.0 {
            if thread.ended || !alive.contains(&tid) {
                continue;
            }
            let here = self.0.entry(tid).or_default();
            if here.is_in_its_first_call() {
                thread.away.append(&mut here.away);
                thread.away.truncate(CARRIED);
                *here = thread;
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

    fn exit(tid: u32, ts_ns: u64) -> Task {
        Task {
            tid,
            ts_ns,
            event: TASK_EXIT,
            ..Task::default()
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
        threads.lived(&exit(7, 30));
        assert_eq!(borders(&threads, &[7, 8]), [(8, 7, 0)]);
        threads.called(&call(7, 0, 40));
        assert_eq!(borders(&threads, &[7, 8]), [(7, 1, 0), (8, 7, 0)]);
    }

    #[test]
    fn a_call_over_two_borders_that_was_absent_before_the_first_was_complete_keeps_its_number() {
        let (mut old, mut new) = (Threads::default(), Threads::default());
        old.called(&call(7, 6, 20));
        old.switched(&switch(7, 25));
        new.switched(&switch(7, 35));
        new.inherit(old, &FxHashSet::from_iter([7]));
        assert_eq!(borders(&new, &[7]), [(7, 7, 2)]);
    }

    #[test]
    fn nothing_is_inherited_by_who_has_the_tid_of_one_that_ended_since() {
        let (mut old, mut new) = (Threads::default(), Threads::default());
        old.called(&call(7, 6, 20));
        new.lived(&exit(7, 30));
        new.switched(&switch(7, 35));
        new.inherit(old, &FxHashSet::from_iter([7]));
        new.called(&call(7, 0, 40));
        assert_eq!(borders(&new, &[7]), [(7, 1, 0)]);
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
