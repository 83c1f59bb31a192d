//! Calls that were denied something, and the modes and owners that denied it.
//!
//! Only modes, owners and the user and group of a thread are judged: where another reason denied a
//! call, nothing follows from it.

use spoolscope_traces::records::{END_DOT, NONE, PlanOp};

use crate::model::order::subjects::{self, Subject};
use crate::model::state::inode_attributes::Attributes;
use crate::model::state::slots::Slot;
use crate::model::state::world::World;
use crate::semantics::{self, Kind, OpenFlags};

const READ: u32 = 4;
const WRITE: u32 = 2;
const SEARCH: u32 = 1;

/// Returns whether a call was denied what it is permitted in the present state.
pub fn is_missing(world: &World, op: &PlanOp) -> bool {
    semantics::was_denied(op) && Judge::of(world, op, None).permits(op)
}

/// Returns whether `cause` makes the present state deny a call what it was denied.
pub fn explained_by(world: &World, op: &PlanOp, cause: &PlanOp) -> bool {
    let after = || Some(Judge::of(world, op, Some(after(world, cause)?)));
    is_missing(world, op) && after().is_some_and(|judge| !judge.permits(op))
}

/// Returns whether `op` would permit what `before` was denied.
pub fn spoilt_by(world: &World, before: &PlanOp, op: &PlanOp) -> bool {
    if !semantics::was_denied(before) || is_missing(world, before) {
        return false;
    }
    after(world, op).is_some_and(|changed| Judge::of(world, before, Some(changed)).permits(before))
}

/// The attributes that a change of mode or owner leaves.
fn after(world: &World, op: &PlanOp) -> Option<(Subject, Attributes)> {
    let subject = subjects::subject_of(op, world)?;
    let mut left = before(world, subject)?;
    match semantics::kind(op) {
        _ if op.ret < 0 => return None,
        Kind::Chmod => left.chmod(op.mode),
        Kind::Chown => left.chown(op.arg),
        _ => return None,
    }
    Some((subject, left))
}

fn before(world: &World, subject: Subject) -> Option<Attributes> {
    match subject {
        Subject::Object(object) => Some(world.object(object).attributes()),
        Subject::Name(name) if world.slot(name) == Slot::Absent => None,
        Subject::Name(name) => world.recorded().at(name).map(Attributes::of_entry),
    }
}

/// The state that a call is held against.
struct Judge<'a> {
    world: &'a World<'a>,
    changed: Option<(Subject, Attributes)>,
    ids: (u32, u32),
}

impl<'a> Judge<'a> {
    fn of(world: &'a World<'a>, op: &PlanOp, changed: Option<(Subject, Attributes)>) -> Self {
        let ids = world.processes().ids(op.thread);
        Self {
            world,
            changed,
            ids,
        }
    }

    fn permits(&self, op: &PlanOp) -> bool {
        if !semantics::uses_path(op) {
            let subject = subjects::subject_of(op, self.world);
            let own = subject.and_then(|subject| self.attributes(subject));
            return self.permits_there(op, own, None);
        }
        let mut names = vec![(op.path, op.given, semantics::end(op.base))];
        // A second name outside the spool does not count.
        if semantics::has_second_path(op) && op.path2 != NONE {
            names.push((op.path2, op.given2, semantics::end(op.base2)));
        }
        names.into_iter().all(|(path, given, end)| {
            let way = self.world.way_to(if given == NONE { path } else { given });
            let above = way.iter().filter(|name| **name != path || end == END_DOT);
            let above: Vec<Attributes> = above.filter_map(|name| self.at(*name)).collect();
            let mut directories = above.iter().filter(|it| semantics::is_directory(it.mode));
            directories.all(|it| self.may(it, SEARCH))
                && self.permits_there(op, self.at(path), above.last())
        })
    }

    /// The rights that a call needs besides those to find its name.
    fn permits_there(
        &self,
        op: &PlanOp,
        own: Option<Attributes>,
        directory: Option<&Attributes>,
    ) -> bool {
        let owns = |it: &Attributes| it.uid == self.ids.0;
        let has = |rights: u32| own.as_ref().is_none_or(|it| self.may(it, rights));
        match semantics::kind(op) {
            Kind::Open => match own {
                Some(_) => has(asked_by_open(op)),
                None => directory.is_none_or(|it| self.may(it, WRITE)),
            },
            Kind::Truncate | Kind::SetXattr => has(WRITE),
            Kind::GetXattr => has(READ),
            Kind::Access => has(op.mode & 7),
            Kind::Chdir => has(SEARCH),
            Kind::Chmod | Kind::Chown => own.as_ref().is_none_or(owns),
            Kind::Touch => own.as_ref().is_none_or(owns) || has(WRITE),
            Kind::Mkdir | Kind::Mknod | Kind::Symlink | Kind::Link => {
                directory.is_none_or(|it| self.may(it, WRITE))
            }
            Kind::Unlink | Kind::Rmdir | Kind::Rename => directory.is_none_or(|it| {
                let sticks = it.mode & libc::S_ISVTX != 0 && !owns(it);
                self.may(it, WRITE) && (!sticks || own.as_ref().is_none_or(owns))
            }),
            _ => true,
        }
    }

    fn may(&self, it: &Attributes, rights: u32) -> bool {
        let (uid, gid) = self.ids;
        let shift = match () {
            () if it.uid == uid => 6,
            () if it.gid == gid => 3,
            () => 0,
        };
        it.mode >> shift & rights == rights
    }

    fn at(&self, name: u32) -> Option<Attributes> {
        self.attributes(subjects::subject_at(name, self.world))
    }

    fn attributes(&self, subject: Subject) -> Option<Attributes> {
        match self.changed {
            Some((changed, left)) if changed == subject => Some(left),
            _ => before(self.world, subject),
        }
    }
}

fn asked_by_open(op: &PlanOp) -> u32 {
    let flags = OpenFlags::of(op);
    let reads = if flags.reads() { READ } else { 0 };
    let writes = flags.writes() || flags.truncates();
    reads | if writes { WRITE } else { 0 }
}
