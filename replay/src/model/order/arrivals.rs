//! The earliest time at which a name can have got its object: a rename may last long before that.
//!
//! A call that found the object at the name later gives a bound: calls before it that showed or
//! made something else there came before the object, which stayed from then on. This narrows the
//! place of an operation where the calls that found its object are too far away to be searched with
//! it.

use foldhash::HashMap;
use spoolscope_traces::records::PlanOp;

use crate::model::order::rivals::ByName;
use crate::model::state::names::Names;
use crate::touches::{self, Makes, Need, Touch};

/// The earliest effects of operations, as far as they were asked for.
#[derive(Debug)]
pub struct Arrivals {
    known: HashMap<u32, i64>,
    allowance: u64,
}

impl Arrivals {
    /// All searches together look at up to `allowance` operations; then nothing more is known.
    pub fn new(allowance: u64) -> Self {
        Self {
            known: HashMap::default(),
            allowance,
        }
    }

    /// Returns the earliest time at which an operation can have taken effect.
    pub fn earliest_ns(&mut self, names: &Names, by_name: &ByName, ops: &[PlanOp], at: u32) -> i64 {
        let allowance = &mut self.allowance;
        *self.known.entry(at).or_insert_with(|| {
            let op = &ops[at as usize];
            let mut search = Search {
                by_name,
                ops,
                allowance,
            };
            search
                .earliest(names, at)
                .filter(|earliest_ns| *earliest_ns < op.end_ns)
                .map_or(op.start_ns, |earliest_ns| earliest_ns.max(op.start_ns))
        })
    }
}

struct Search<'a> {
    by_name: &'a ByName,
    ops: &'a [PlanOp],
    allowance: &'a mut u64,
}

impl<'a> Search<'a> {
    fn earliest(&mut self, names: &Names, at: u32) -> Option<i64> {
        let (path, ino) = self.arrival(at)?;
        // An object that moves with a directory above it may come back with it.
        if !names.ancestors(path).is_empty() {
            return None;
        }
        let end_ns = self.ops[at as usize].end_ns;
        let mut others: Vec<(i64, i64)> = Vec::new();
        for other in self.by_name.around(path, at).1 {
            let (op, touch) = self.look(*other, path)?;
            let changes = touch.makes != Makes::Same;
            match shown(op, &touch) {
                // It was made anew with an inode number that was free again.
                Some(Shown::Object(found)) if found == ino && touch.makes == Makes::Object => {
                    return None;
                }
                Some(Shown::Object(found)) if found == ino => {
                    let before = others.iter().filter(|(_, end)| *end <= op.start_ns);
                    return before.map(|(start, _)| *start).max();
                }
                None if !changes => continue,
                _ => others.push((op.start_ns, op.end_ns)),
            }
            let comes = matches!(touch.makes, Makes::Moved | Makes::Linked | Makes::Swapped);
            if changes && op.start_ns >= end_ns
                || comes && self.arrival(*other).is_none_or(|(_, it)| it == ino)
            {
                return None;
            }
        }
        None
    }

    /// Returns the name at which an operation puts an object, and its inode.
    fn arrival(&mut self, at: u32) -> Option<(u32, u64)> {
        let op = &self.ops[at as usize];
        match touches::of(op) {
            [Some(from), Some(to)] if matches!(to.makes, Makes::Moved | Makes::Linked) => {
                Some((to.path, self.source(at, from.path)?))
            }
            [Some(own), None] if own.makes == Makes::Object && own.need == Need::Absent => {
                (op.ino != 0).then_some((own.path, op.ino))
            }
            _ => None,
        }
    }

    /// Returns the inode at a name when an operation took it, if no call overlaps with it there.
    fn source(&mut self, at: u32, path: u32) -> Option<u64> {
        let op = &self.ops[at as usize];
        let (before, after) = self.by_name.around(path, at);
        let ops = self.ops;
        for other in after
            .iter()
            .take_while(|other| ops[**other as usize].start_ns < op.end_ns)
        {
            if self.look(*other, path)?.1.makes != Makes::Same {
                return None;
            }
        }
        for other in before.iter().rev() {
            let (earlier, touch) = self.look(*other, path)?;
            match shown(earlier, &touch) {
                _ if earlier.end_ns > op.start_ns => return None,
                Some(Shown::Object(ino)) if matches!(touch.makes, Makes::Same | Makes::Object) => {
                    return Some(ino);
                }
                _ if touch.makes != Makes::Same => return None,
                _ => {}
            }
        }
        None
    }

    /// Returns an operation and what it does at a name; `None` if nothing, or at the limit.
    fn look(&mut self, at: u32, path: u32) -> Option<(&'a PlanOp, Touch)> {
        *self.allowance = self.allowance.checked_sub(1)?;
        let op = &self.ops[at as usize];
        let mut touches = touches::of(op).into_iter().flatten();
        Some((op, touches.find(|touch| touch.path == path)?))
    }
}

/// The state of a name as a result shows it.
enum Shown {
    Object(u64),
    Absent,
}

/// Returns the state at the moment of the operation; for an object that it makes, just after it.
fn shown(op: &PlanOp, touch: &Touch) -> Option<Shown> {
    match (touch.makes, touch.need) {
        (Makes::Object, _) if op.ino != 0 => Some(Shown::Object(op.ino)),
        (_, Need::Present(ino)) if ino != 0 => Some(Shown::Object(ino)),
        (_, Need::Absent) => Some(Shown::Absent),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::Arrivals;
    use crate::model::order::rivals::ByName;
    use crate::model::state::names::Names;
    use crate::testing::plan;

    const OTHERS: &str = "
        B 110-120 openat b flags=301 ino=8 = 3
        B 200-300 rename b hot = 0
        B 400-500 unlink hot = 0
    ";

    /// Returns the earliest effect of the rename in line 1, which lasts from 100 to 900.
    fn earliest_ns(rest: &str) -> i64 {
        earliest_within(rest, 100)
    }

    fn earliest_within(rest: &str, allowance: u64) -> i64 {
        let script = format!(
            "A 0-10 openat t flags=301 ino=7 = 3
             A 100-900 rename t hot = 0
             {rest}"
        );
        let plan = plan(&script);
        let names = Names::new(&plan);
        let by_name = ByName::new(&names, &plan);
        Arrivals::new(allowance).earliest_ns(&names, &by_name, plan.ops(), 1)
    }

    #[test]
    fn who_may_look_no_further_knows_nothing() {
        let script = format!("{OTHERS} A 950-960 openat hot ino=7 = 3");
        let found = [2, 3, 4, 5].map(|allowance| earliest_within(&script, allowance));
        assert_eq!(found, [100, 100, 100, 400]);
    }

    #[test]
    fn what_was_found_later_came_after_what_was_found_before() {
        let found = earliest_ns(&format!("{OTHERS} A 950-960 openat hot ino=7 = 3"));
        assert_eq!(found, 400);
    }

    #[test]
    fn another_object_at_the_name_tells_nothing() {
        let found = earliest_ns(&format!("{OTHERS} A 950-960 openat hot ino=9 = 3"));
        assert_eq!(found, 100);
    }

    #[test]
    fn who_overlaps_the_one_who_found_it_may_have_come_later() {
        let found = earliest_ns(&format!("{OTHERS} C 450-960 openat hot ino=7 = 3"));
        assert_eq!(found, 200);
    }

    #[test]
    fn what_may_have_come_twice_tells_nothing() {
        let again = "
            B 700-710 rename unknown hot = 0
            A 950-960 openat hot ino=7 = 3
        ";
        assert_eq!(earliest_ns(&format!("{OTHERS} {again}")), 100);
    }

    #[test]
    fn an_inode_number_that_is_used_again_tells_nothing() {
        let again = "
            B 600-610 openat hot flags=301 ino=7 = 3
            A 950-960 openat hot ino=7 = 3
        ";
        assert_eq!(earliest_ns(&format!("{OTHERS} {again}")), 100);
    }
}
