//! The order of recorded moments: a call that began after another had ended waits for it.

use foldhash::{HashMap, HashMapExt};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::plan::Plan;

/// Returns (operation, thread waited for, number of operations it must have finished), as edges.
///
/// Calls that overlapped may still overlap. An edge is left out where the last call that ended
/// before the waiting one waits for the same call already.
pub fn edges(plan: &Plan) -> Vec<(u32, u32, u32)> {
    let (ops, position) = (plan.ops(), plan.positions());
    let mut running: BinaryHeap<Reverse<(i64, u32)>> = BinaryHeap::new();
    let mut ended: Vec<u32> = Vec::new();
    let mut waited: HashMap<(u32, u32), u32> = HashMap::new();
    let mut found = Vec::new();
    for (at, op) in ops.iter().enumerate() {
        while let Some(Reverse((end_ns, done))) = running.peek().copied() {
            if end_ns > op.start_ns {
                break;
            }
            running.pop();
            ended.push(done);
        }
        let last_began = ended
            .last()
            .map_or(i64::MAX, |last| ops[*last as usize].start_ns);
        let news = ended.iter().rev().take_while(|before| {
            let before = &ops[**before as usize];
            before.end_ns > last_began || before.start_ns == last_began
        });
        for before in news {
            let thread = ops[*before as usize].thread;
            let finished = position[*before as usize] + 1;
            let known = waited.entry((op.thread, thread)).or_default();
            if thread != op.thread && *known < finished {
                *known = finished;
                found.push((at as u32, thread, finished));
            }
        }
        running.push(Reverse((op.end_ns, at as u32)));
    }
    found
}

#[cfg(test)]
mod tests {
    use crate::testing::plan;

    /// (waiting operation, thread, number of operations it must have finished).
    fn edges(script: &str) -> Vec<(u32, u32, u32)> {
        let plan = plan(script);
        super::edges(&plan)
    }

    #[test]
    fn a_call_waits_for_all_that_had_ended_and_for_none_that_had_not() {
        let script = "
            A 0-10 stat a = -2
            B 5-30 stat b = -2
            C 20-40 stat c = -2
            A 50-60 stat a = -2
        ";
        assert_eq!(edges(script), [(2, 0, 1), (3, 2, 1), (3, 1, 1)]);
    }

    #[test]
    fn what_the_last_one_waited_for_is_not_named_again() {
        let script = "
            A 0-10 stat a = -2
            B 20-30 stat b = -2
            C 40-50 stat c = -2
        ";
        assert_eq!(edges(script), [(1, 0, 1), (2, 1, 1)]);
    }
}
