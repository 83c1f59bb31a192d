//! Contents of a directory when it was moved, as far as later calls below its new name show.
//!
//! A call that makes a name in a directory may last while the directory is moved away and another
//! takes its place. Only what is found in the two later shows which of them has the name, and that
//! may be too far away for a search.

use smallvec::SmallVec;
use spoolscope_traces::records::PlanOp;

use crate::model::order::rivals::ByName;
use crate::model::state::names::{Names, rest_below};
use crate::touches::{self, Makes, Need, Touch};

/// Operations below a new name that are looked at.
const FURTHEST: usize = 64;

/// Knowledge about a directory at the moment it was moved; names begin with a slash.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Names in it, with what each was.
    pub names: Vec<(Vec<u8>, Need)>,
    /// Names that were taken away before the last call that shows if it was empty.
    pub gone: Vec<Vec<u8>>,
    /// True if it held more than those that were taken away.
    pub others: Option<bool>,
}

/// Returns what the directory that `at` moved held, if it moved one.
///
/// Looks ahead until operations overlap or a name is made.
pub fn held(names: &Names, by_name: &ByName, ops: &[PlanOp], at: u32) -> Held {
    let moved = &ops[at as usize];
    let mut held = Held::default();
    let mut gone = Vec::new();
    let mut until_ns = moved.end_ns;
    for other in by_name.around(moved.path2, at).1.iter().take(FURTHEST) {
        let op = &ops[*other as usize];
        if op.start_ns < until_ns {
            break;
        }
        until_ns = op.end_ns;
        let touches: SmallVec<[Touch; 2]> = touches::of(op).into_iter().flatten().collect();
        let note = |touch| held.note(names, moved.path2, touch, &mut gone);
        if !touches.iter().all(note) {
            break;
        }
    }
    held
}

impl Held {
    /// Returns `false` if later operations show nothing more.
    fn note(
        &mut self,
        names: &Names,
        directory: u32,
        touch: &Touch,
        gone: &mut Vec<Vec<u8>>,
    ) -> bool {
        if touch.path == directory {
            if let Need::Full | Need::Empty = touch.need {
                self.others = Some(touch.need == Need::Full);
                self.gone.clone_from(gone);
            }
            return touch.makes == Makes::Same;
        }
        let name = match rest_below(names.bytes(touch.path), names.bytes(directory)) {
            Some(name) if !name[1..].contains(&b'/') => name,
            _ => return true,
        };
        if touch.need == Need::Any {
            return touch.makes == Makes::Same;
        }
        if !self.names.iter().any(|(known, _)| known == name) {
            let need = match touch.need {
                // It may have been emptied or filled after the move.
                Need::Full | Need::Empty => Need::Directory,
                need => need,
            };
            self.names.push((name.to_vec(), need));
        }
        if touch.makes == Makes::Gone {
            gone.push(name.to_vec());
        }
        matches!(touch.makes, Makes::Same | Makes::Gone)
    }
}

#[cfg(test)]
mod tests {
    use super::held;
    use crate::model::order::rivals::ByName;
    use crate::model::state::names::Names;
    use crate::testing::plan;
    use crate::touches::Need;

    /// Returns names in `box` when line 0 moved it, names that went, and whether it held others.
    fn held_in_box(after: &str) -> (Vec<(String, Need)>, Vec<String>, Option<bool>) {
        let plan = plan(&format!(
            "A 0-100 rename box trash = 0
             {after}"
        ));
        let names = Names::new(&plan);
        let by_name = ByName::new(&names, &plan);
        let held = held(&names, &by_name, plan.ops(), 0);
        let text = |name: Vec<u8>| String::from_utf8(name).expect("a name");
        let found = held
            .names
            .into_iter()
            .map(|(name, need)| (text(name), need));
        let gone = held.gone.into_iter().map(text);
        (found.collect(), gone.collect(), held.others)
    }

    #[test]
    fn who_cannot_remove_it_tells_that_it_was_not_empty() {
        let full = held_in_box("A 200-210 rmdir trash = -39");
        assert_eq!(full, (vec![], vec![], Some(true)));
        let empty = held_in_box("A 200-210 rmdir trash = 0");
        assert_eq!(empty, (vec![], vec![], Some(false)));
    }

    #[test]
    fn what_was_taken_out_of_it_had_been_in_it() {
        let (names, gone, others) = held_in_box(
            "A 200-210 unlink trash/a ino=7 = 0
             B 300-310 unlink trash/b = -2
             A 400-410 rmdir trash = 0",
        );
        let expected = [("/a", Need::Present(7)), ("/b", Need::Absent)];
        assert_eq!(names, expected.map(|(name, need)| (name.to_owned(), need)));
        assert_eq!((gone, others), (vec!["/a".to_owned()], Some(false)));
    }

    #[test]
    fn who_removes_it_tells_more_than_who_could_not() {
        let (_, gone, others) = held_in_box(
            "A 200-210 rmdir trash = -39
             B 300-310 unlink trash/a ino=7 = 0
             A 400-410 rmdir trash = 0",
        );
        assert_eq!((gone, others), (vec!["/a".to_owned()], Some(false)));
    }

    #[test]
    fn what_went_after_a_call_last_showed_it_may_have_been_all() {
        let (_, gone, others) = held_in_box(
            "A 200-210 rmdir trash = -39
             B 300-310 unlink trash/a ino=7 = 0",
        );
        assert_eq!((gone, others), (vec![], Some(true)));
    }

    #[test]
    fn what_came_later_tells_nothing() {
        let created = "A 200-210 openat trash/a flags=301 ino=7 = 3
                       A 300-310 rmdir trash = -39";
        let (names, _, others) = held_in_box(created);
        assert_eq!(
            (names, others),
            (vec![("/a".to_owned(), Need::Absent)], None)
        );
        let replaced = "A 200-210 rename other trash = 0
                        A 300-310 rmdir trash = -39";
        assert_eq!(held_in_box(replaced), (vec![], vec![], None));
    }

    #[test]
    fn who_overlaps_tells_nothing() {
        let overlapping = "B 50-210 rmdir trash = -39";
        assert_eq!(held_in_box(overlapping), (vec![], vec![], None));
        let others = "A 200-260 unlink trash/a ino=7 = 0
                      B 250-300 rmdir trash = -39";
        assert_eq!(held_in_box(others).2, None);
    }

    #[test]
    fn a_directory_in_it_may_have_been_emptied_later() {
        let (names, _, _) = held_in_box(
            "A 200-210 rmdir trash/d/e = 0
             A 300-310 rmdir trash/d = 0",
        );
        assert_eq!(names, vec![("/d".to_owned(), Need::Directory)]);
    }

    #[test]
    fn what_lies_deeper_tells_nothing_of_names_in_it() {
        let deeper = "A 200-210 unlink trash/d/a ino=7 = 0
                      A 300-310 rmdir trash = -39";
        assert_eq!(held_in_box(deeper), (vec![], vec![], Some(true)));
    }
}
