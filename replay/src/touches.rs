//! Needs of a call for its names, and effects on them, given its result.

use spoolscope_traces::records::{END_DOT, END_NONE, END_SLASH, NONE, PlanOp};

use crate::semantics::{
    Kind, OpenFlags, creates, end, has_second_path, kind, leads_through, leads_up,
    links_descriptor, uses_path,
};

/// State that a name must have had just before the call, given its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The result fits any state.
    Any,
    /// The name existed; its inode, or 0 if that is not recorded.
    Present(u64),
    Absent,
    /// It existed and was no directory.
    File,
    /// A directory.
    Directory,
    /// A directory with at least one name in it.
    Full,
    /// A directory without any.
    Empty,
}

impl Need {
    /// Returns whether something must have been there.
    pub fn is_present(self) -> bool {
        !matches!(self, Self::Any | Self::Absent)
    }
}

/// Effect of a call on a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Makes {
    Same,
    Gone,
    /// A new object, unless one is there and the call accepts it.
    Object,
    /// The object that the other name had.
    Moved,
    Linked,
    /// Both names change places (RENAME_EXCHANGE).
    Swapped,
    /// A device without a driver, in place of the object moved away (RENAME_WHITEOUT).
    Whiteout,
}

/// One name a call depends on.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    pub path: u32,
    /// The name as it was given, if that leads another way.
    pub given: u32,
    pub need: Need,
    pub makes: Makes,
}

impl Touch {
    /// Returns the name as it was given.
    pub fn name(&self) -> u32 {
        match self.given {
            NONE => self.path,
            given => given,
        }
    }
}

/// The names of a call: one, or two for rename and link.
pub type Touches = [Option<Touch>; 2];

const NOREPLACE: u32 = 1;
const EXCHANGE: u32 = 2;
const WHITEOUT: u32 = 4;

/// Returns whether calls of a kind may make, move or remove names.
pub fn changes_names(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Open
            | Kind::Rename
            | Kind::Link
            | Kind::Symlink
            | Kind::Unlink
            | Kind::Mkdir
            | Kind::Rmdir
            | Kind::Mknod
    )
}

/// Returns whether calls of a kind may be given a name, and not only a descriptor.
pub fn may_name(kind: Kind) -> bool {
    let by_descriptor = matches!(
        kind,
        Kind::Read
            | Kind::Write
            | Kind::Close
            | Kind::Fcntl
            | Kind::Flock
            | Kind::Seek
            | Kind::Sync
            | Kind::Ftruncate
            | Kind::Fstat
            | Kind::Getdents
            | Kind::Map
            | Kind::Unmap
            | Kind::Fault
    );
    !by_descriptor
}

/// Returns the names that an operation looked up or changed; an unknown name is left out.
pub fn of(op: &PlanOp) -> Touches {
    let found = match op.ret {
        _ if !uses_path(op) => [None, None],
        ..0 => failed(op),
        _ => succeeded(op),
    };
    found.map(|touch| touch.filter(|touch| touch.path != NONE))
}

fn first(op: &PlanOp, need: Need, makes: Makes) -> Option<Touch> {
    Some(Touch {
        path: op.path,
        given: op.given,
        need,
        makes,
    })
}

fn second(op: &PlanOp, need: Need, makes: Makes) -> Option<Touch> {
    Some(Touch {
        path: op.path2,
        given: op.given2,
        need,
        makes,
    })
}

fn succeeded(op: &PlanOp) -> Touches {
    let one = |need, makes| [first(op, need, makes), None];
    match kind(op) {
        Kind::Open => opened(op),
        Kind::Rename => renamed(op),
        Kind::Link if links_descriptor(op) => [None, second(op, Need::Absent, Makes::Linked)],
        Kind::Link => [
            first(op, Need::Present(op.ino), Makes::Same),
            second(op, Need::Absent, Makes::Linked),
        ],
        Kind::Symlink | Kind::Mkdir | Kind::Mknod => one(Need::Absent, Makes::Object),
        Kind::Unlink => one(Need::Present(op.ino), Makes::Gone),
        Kind::Rmdir => one(Need::Empty, Makes::Gone),
        Kind::Statfs | Kind::Watch => one(Need::Present(0), Makes::Same),
        _ if op.ino == 0 && end(op.base) != END_NONE => one(Need::Directory, Makes::Same),
        _ => one(Need::Present(op.ino), Makes::Same),
    }
}

fn opened(op: &PlanOp) -> Touches {
    let (need, makes) = match OpenFlags::of(op) {
        flags if flags.is_nameless() => (Need::Present(0), Makes::Same),
        flags if flags.only_creates() => (Need::Absent, Makes::Object),
        flags if flags.creates() => (Need::Any, Makes::Object),
        _ => (Need::Present(op.ino), Makes::Same),
    };
    [first(op, need, makes), None]
}

/// Returns whether a call is to change two names' places.
pub fn exchanges(op: &PlanOp) -> bool {
    kind(op) == Kind::Rename && op.flags & EXCHANGE != 0
}

fn renamed(op: &PlanOp) -> Touches {
    let (need, makes) = match op.flags {
        flags if flags & EXCHANGE != 0 => (Need::Present(0), Makes::Swapped),
        flags if flags & NOREPLACE != 0 => (Need::Absent, Makes::Moved),
        _ => (Need::Any, Makes::Moved),
    };
    let leaves = match makes {
        Makes::Swapped => Makes::Swapped,
        _ if op.flags & WHITEOUT != 0 => Makes::Whiteout,
        _ => Makes::Gone,
    };
    [
        first(op, Need::Present(op.ino), leaves),
        second(op, need, makes),
    ]
}

fn failed(op: &PlanOp) -> Touches {
    let (one, other) = match leads_through(op) {
        true => refusal_on_way(op),
        false => refusal(op),
    };
    let other = has_second_path(op).then(|| second(op, other, Makes::Same));
    [first(op, one, Makes::Same), other.flatten()]
}

/// Returns what an error shows of the first and the second name.
fn refusal(op: &PlanOp) -> (Need, Need) {
    let wants_directory = match kind(op) {
        Kind::Open => OpenFlags::of(op).wants_directory(),
        Kind::Rmdir | Kind::Chdir => true,
        _ => false,
    };
    let pair = has_second_path(op);
    let rename = kind(op) == Kind::Rename;
    match -op.ret as i32 {
        libc::ENOENT if pair && op.path2 == NONE => (Need::Any, Need::Any),
        // Either of the two may have been missing.
        libc::ENOENT if exchanges(op) => (Need::Any, Need::Any),
        libc::ENOENT if !creates(op) => (Need::Absent, Need::Any),
        libc::EEXIST if rename && op.flags & NOREPLACE == 0 => (Need::Present(0), Need::Full),
        // The old name is looked up first.
        libc::EEXIST if pair && !links_descriptor(op) => (Need::Present(0), Need::Present(0)),
        libc::EEXIST if pair => (Need::Any, Need::Present(0)),
        // Something that is no symlink is there.
        libc::EINVAL if kind(op) == Kind::Readlink && op.size > 0 => (Need::Present(0), Need::Any),
        libc::EEXIST | libc::ENODATA | libc::ERANGE => (Need::Present(0), Need::Any),
        libc::ENOTEMPTY if rename => (Need::Present(0), Need::Full),
        libc::ENOTEMPTY => (Need::Full, Need::Any),
        libc::EISDIR if rename => (Need::File, Need::Directory),
        libc::ENOTDIR if rename => (Need::Directory, Need::File),
        libc::EISDIR => (Need::Directory, Need::Any),
        libc::ENOTDIR if wants_directory => (Need::File, Need::Any),
        _ => (Need::Any, Need::Any),
    }
}

/// As `refusal`, where a name has dots in it or ends in a slash: only what is sure.
fn refusal_on_way(op: &PlanOp) -> (Need, Need) {
    let opens = kind(op) == Kind::Open;
    let rename = kind(op) == Kind::Rename;
    let led_through = |given| match end(given) {
        END_DOT => Need::Directory,
        _ => Need::Any,
    };
    // The error may be of either name, or of a directory that one of them leads through.
    let several = has_second_path(op) || leads_up(op.base);
    match (-op.ret as i32, end(op.base)) {
        (libc::ENOENT | libc::ENOTDIR, _) if several => (Need::Any, Need::Any),
        (libc::ENOENT | libc::ENOTDIR, END_SLASH) if creates(op) => (Need::Any, Need::Any),
        (libc::ENOENT, _) => (Need::Absent, Need::Any),
        (libc::ENOTDIR, _) => (Need::File, Need::Any),
        // A slash at the end is refused whatever is there.
        (libc::EISDIR, END_SLASH) if opens && creates(op) => (Need::Any, Need::Any),
        (libc::EBUSY, _) if rename => (led_through(op.base), led_through(op.base2)),
        (libc::EINVAL | libc::ENOTEMPTY, END_DOT) if kind(op) == Kind::Rmdir => {
            (Need::Directory, Need::Any)
        }
        (libc::EEXIST, END_DOT) if !opens && creates(op) => (Need::Directory, Need::Any),
        _ => refusal(op),
    }
}

#[cfg(test)]
mod tests {
    use spoolscope_traces::calls;
    use spoolscope_traces::records::{BASE_NONE, BASE_ROOT, PLAN_EXIT, PLAN_FORK, PLAN_LEFT_OUT};

    use super::*;
    use crate::model::state::sizes::{changes_size, may_change};

    /// Every call with all values that its result may depend on, and all pseudo operations.
    fn operations() -> Vec<PlanOp> {
        let takes_path = |call: &calls::Call| call.args.contains(&"path");
        let named = calls::all().iter().map(|call| (call.id, takes_path(call)));
        let pseudo = (PLAN_FORK..=PLAN_LEFT_OUT).map(|id| (id, false));
        let ids: Vec<(u16, bool)> = named.chain(pseudo).collect();
        assert!(ids.len() > 100 && ids.contains(&(PLAN_EXIT, false)));
        let with = |(id, named): (u16, bool)| {
            let flags = [0, libc::O_CREAT, libc::O_TRUNC, libc::AT_REMOVEDIR];
            let rets = [0, 1, -i64::from(libc::ENOENT)];
            flags.into_iter().flat_map(move |flags| {
                rets.into_iter().map(move |ret| PlanOp {
                    op: id,
                    base: if named { BASE_ROOT } else { BASE_NONE },
                    path: 1,
                    path2: 2,
                    flags: flags as u32,
                    ret,
                    ..PlanOp::default()
                })
            })
        };
        ids.into_iter().flat_map(with).collect()
    }

    #[test]
    fn kinds_that_a_plan_is_looked_through_for_are_all_that_matter() {
        let (mut named, mut changed, mut resized) = (0, 0, 0);
        for op in operations() {
            let (touches, kind) = (of(&op), kind(&op));
            let touches: Vec<Touch> = touches.into_iter().flatten().collect();
            let changes = |touch: &Touch| touch.makes != Makes::Same;
            if !touches.is_empty() {
                assert!(may_name(kind), "{op:?} is given a name");
                named += 1;
            }
            if touches.iter().any(changes) {
                assert!(changes_names(kind), "{op:?} changes a name");
                changed += 1;
            }
            if changes_size(&op) {
                assert!(may_change(kind), "{op:?} changes a size");
                resized += 1;
            }
        }
        assert!(named > 100 && changed > 10 && resized > 5);
    }
}
