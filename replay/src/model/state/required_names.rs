//! Conditions at a call's names just before it, without which it would have another result.

use spoolscope_traces::records::{BASE_FD, NONE, PlanOp};

use crate::model::state::names::{Names, parent_of};
use crate::model::state::world::World;
use crate::semantics;
use crate::touches::{self, Makes, Need, Touch};

/// Returns whether `holds` for a name that a result depends on, with what it must have been.
///
/// These are the call's own names; for success also the directories above them; for a file that
/// could not be made the directory that was missing.
pub fn any_need(world: &World, op: &PlanOp, mut holds: impl FnMut(u32, Need) -> bool) -> bool {
    let (names, stopped) = (&world.names, stopped(world, op));
    if stopped == Some(Stopped::AtDescriptor) {
        return false;
    }
    touches::of(op).iter().flatten().any(|touch| {
        let above = match op.ret >= 0 {
            true => names.above(touch),
            false => &[],
        };
        let need = match missing_either(names, op) {
            None if stopped.is_none() => touch.need,
            _ => Need::Any,
        };
        above.iter().any(|path| holds(*path, Need::Present(0)))
            || failed_at_parent(names, op, touch.path, need)
                .is_some_and(|(path, need)| holds(path, need))
            || holds(touch.path, need)
    })
}

/// Returns the names one of which a rename or link missed: the old one, or the new one's directory;
/// for an exchange the new one itself.
pub fn missing_either(names: &Names, op: &PlanOp) -> Option<(u32, u32)> {
    let nothing = op.ret == -i64::from(libc::ENOENT) && semantics::has_second_path(op);
    let nothing = nothing && !semantics::leads_through(op);
    let known = op.path != NONE && op.path2 != NONE;
    let other = (nothing && known).then(|| match touches::exchanges(op) {
        true => Some(op.path2),
        false => changing_parent(names, op.path2),
    });
    other.flatten().map(|other| (op.path, other))
}

/// Returns the names that a call changed, or about which its result shows something.
pub fn telling(op: &PlanOp) -> impl Iterator<Item = Touch> + '_ {
    let tells = |touch: &Touch| op.ret >= 0 || is_evidence(op, touch);
    touches::of(op).into_iter().flatten().filter(tells)
}

/// Returns whether the result can show where this call ran among overlapping ones.
pub fn is_evidence(op: &PlanOp, touch: &Touch) -> bool {
    let looked_in_vain = op.ret == -i64::from(libc::ENOENT) || op.ret == -i64::from(libc::ENOTDIR);
    touch.makes != Makes::Same || touch.need != Need::Any || looked_in_vain
}

/// Returns whether a call met more symlinks than the kernel follows: all must have been there.
pub fn went_round(op: &PlanOp) -> bool {
    op.ret == -i64::from(libc::ELOOP)
}

/// The place where a call ended that met a file where a directory should be (ENOTDIR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The descriptor that a name begins at leads to no directory.
    AtDescriptor,
    /// Something above the name is no directory.
    AboveName,
}

/// Returns where an ENOTDIR arose, if it shows nothing of the names, which were not reached.
pub fn stopped(world: &World, op: &PlanOp) -> Option<Stopped> {
    if op.ret != -i64::from(libc::ENOTDIR) {
        return None;
    }
    let begins_at_file =
        |(base, dirfd)| semantics::base(base) == BASE_FD && world.leads_to_file(op.thread, dirfd);
    if [(op.base, op.dirfd), (op.base2, op.dirfd2)]
        .into_iter()
        .any(begins_at_file)
    {
        return Some(Stopped::AtDescriptor);
    }
    let touches = touches::of(op);
    let mut touches = touches.iter().flatten();
    let above = touches.any(|touch| world.is_below_file(touch.path));
    above.then_some(Stopped::AboveName)
}

fn failed_at_parent(names: &Names, op: &PlanOp, path: u32, need: Need) -> Option<(u32, Need)> {
    if path != op.path || need != Need::Any || semantics::leads_through(op) {
        return None;
    }
    let need = match -op.ret {
        error if error == i64::from(libc::ENOENT) && !semantics::has_second_path(op) => {
            Need::Absent
        }
        error if error == i64::from(libc::ENOTDIR) && !semantics::has_second_path(op) => Need::File,
        _ => return None,
    };
    changing_parent(names, op.path).map(|parent| (parent, need))
}

/// Returns the directory of a name, if any call makes, moves or removes it.
fn changing_parent(names: &Names, path: u32) -> Option<u32> {
    let nearest = *names.ancestors(path).last()?;
    (parent_of(names.bytes(path)) == Some(names.bytes(nearest))).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use crate::model::expect::tree::Tree;
    use crate::model::order::one_order::Linear;
    use crate::testing::plan;

    /// Returns names at start and at the end, and how many results have no explanation.
    fn walked(script: &str) -> (Vec<String>, Vec<String>, usize) {
        let plan = plan(&format!("tree f ino=5\ntree d mode=40755 ino=6\n{script}"));
        let linear = Linear::walk(&plan);
        let names = |tree: Tree| {
            let names = tree.names.into_keys();
            names
                .map(|name| String::from_utf8_lossy(&name).into_owned())
                .collect()
        };
        let last = names(Tree::expected(&plan, &linear.world));
        let first = names(Tree::initial(&plan, &linear.world));
        (first, last, linear.unexplained.len())
    }

    #[test]
    fn what_ended_at_a_file_tells_nothing_of_the_names() {
        for call in [
            "rename f/x d = -20",
            "rename f/x/y gone = -20",
            "rename d f/x = -20",
            "rmdir f/x = -20",
            "renameat f/f gone base=3 dirfd=3 = -20",
            "renameat d gone base=3 dirfd=3 = -20",
            "openat d/new base=3 dirfd=3 flags=200000 = -20",
        ] {
            let (first, last, unexplained) = walked(&format!(
                "tree gone ino=7
                 A 0-1 unlink gone = 0
                 A 2-3 openat f ino=5 omode=100644 = 3
                 A 4-5 {call}"
            ));
            assert_eq!(first, ["d", "f", "gone"], "{call}");
            assert_eq!(last, ["d", "f"], "{call}");
            assert_eq!(unexplained, 0, "{call}");
        }
    }

    #[test]
    fn an_exchange_in_vain_missed_either_name() {
        let (first, _, unexplained) = walked("A 0-1 renameat2 f gone flags=2 = -2");
        assert_eq!(
            (first, unexplained),
            (vec!["d".to_owned(), "f".to_owned()], 0)
        );
        let (_, _, unexplained) = walked(
            "A 0-1 mkdir x = 0
             A 2-3 renameat2 x y flags=2 = -2
             A 4-5 rmdir x = 0",
        );
        assert_eq!(unexplained, 0);
    }

    #[test]
    fn a_directory_that_could_not_replace_a_file_is_known() {
        let (first, _, _) = walked("A 0-1 rename e g = -20");
        assert_eq!(first, ["d", "e", "f", "g"]);
    }

    #[test]
    fn names_with_ends_are_believed_no_further_than_their_errors_tell() {
        // END_SLASH << 4 | BASE_ROOT, and with END_DOT.
        for call in [
            "rename f g given2=g/ base2=17 = -20",
            "link f g given2=g/ base2=17 = -2",
            "openat g given=g/ base=17 flags=101 = -21",
            "rmdir d given=d/.. base=33 = -39",
            "unlink f given=f/ base=17 = -20",
            "newfstatat g given=f/../g base=65 = -20",
            "mkdir d given=d/. base=33 = -17",
        ] {
            let kept = vec!["d".to_owned(), "f".to_owned()];
            let expected = (kept.clone(), kept, 0);
            assert_eq!(walked(&format!("A 0-10 {call}")), expected, "{call}");
        }
    }

    #[test]
    fn who_leads_through_a_name_in_vain_was_there_before_it() {
        for missing in [
            "given=x/ base=17",
            "given=x/. base=33",
            "given=x/.. base=33",
        ] {
            let script = format!("A 0-100 mkdir x = 0\nB 50-150 newfstatat x {missing} = -2");
            assert_eq!(walked(&script).2, 0, "{script}");
        }
        let script = "A 0-100 mkdir x = 0\nB 50-90 newfstatat d given=x/../d base=65 ino=6 = 0";
        assert_eq!(walked(script).2, 0);
    }
}
