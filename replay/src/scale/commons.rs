//! Directories that all copies of the users have in common: they only hold what belongs to users.

use foldhash::{HashSet, HashSetExt};
use spoolscope_traces::records::{NONE, PlanOp};

use crate::model::expect::tree::Tree;
use crate::model::order::one_order::Linear;
use crate::model::state::names::parent_of;
use crate::plan::Plan;
use crate::semantics::{self, Kind};
use crate::touches::{self, Makes};

/// Longest name of a directory entry (NAME_MAX).
const NAME_MAX: usize = 255;

/// Directories that are not copied, by name below the spool and by inode; the spool is one.
#[derive(Debug)]
pub struct Commons {
    pub names: HashSet<Vec<u8>>,
    pub inos: HashSet<u64>,
}

impl Commons {
    /// Finds directories that are there at the start, belong to no user, and stay as they are: no
    /// call makes, moves, removes, owns or locks them. Names in them must have room for
    /// `longest_tag`.
    pub fn of(plan: &Plan, users: &HashSet<Vec<u8>>, longest_tag: usize) -> Self {
        let linear = Linear::walk(plan);
        let tree = Tree::initial(plan, &linear.world);
        let busy = Busy::of(plan, longest_tag);
        let mut common = Self {
            names: HashSet::from_iter([Vec::new(), b"lost+found".to_vec()]), // that is of mkfs
            inos: HashSet::new(),
        };
        // Parents come first.
        for (name, thing) in &tree.names {
            let thing = &tree.things[*thing];
            let above = common.names.contains(parent_of(name).unwrap_or(b""));
            let kept = above && !users.contains(name) && !busy.changes(name, thing.ino);
            if name.is_empty() || semantics::is_directory(thing.attributes.mode) && kept {
                common.names.insert(name.clone());
                common.inos.insert(thing.ino);
            }
        }
        for op in plan.ops().iter().filter(|op| tells_directory(op)) {
            if common.names.contains(plan.string(op.path)) {
                common.inos.insert(op.ino);
            }
        }
        common
    }

    /// Returns the first part of a path that is not common, with all that is above it.
    pub fn own<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        let mut all = above(path).chain([path]);
        all.find(|name| !self.names.contains(*name))
    }

    /// Returns the name that a path has in a copy.
    pub fn renamed(&self, path: &[u8], tag: &[u8]) -> Vec<u8> {
        match self.own(path) {
            Some(own) => [own, tag, &path[own.len()..]].concat(),
            None => path.to_vec(),
        }
    }

    /// Returns the target of a symlink in a copy, which leads from its new name to what it led to.
    pub fn retargeted(&self, link: &[u8], target: &[u8], tag: &[u8]) -> Vec<u8> {
        let mut place: Vec<&[u8]> = parent_of(link).map_or(Vec::new(), |parent| split(parent));
        let mut parts: Vec<Vec<u8>> = Vec::new();
        for part in split(target) {
            match part {
                b"" if parts.is_empty() => return target.to_vec(), // absolute: it leads nowhere
                b"" | b"." => parts.push(part.to_vec()),
                b".." if place.pop().is_none() => return target.to_vec(),
                b".." => parts.push(part.to_vec()),
                name => {
                    place.push(name);
                    let whole = self.renamed(&place.join(&b'/'), tag);
                    parts.extend(split(&whole).last().map(|name| name.to_vec()));
                }
            }
        }
        parts.join(&b'/')
    }
}

/// Returns the directories that a path leads through, from the top.
pub fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = (0..path.len()).filter(|at| path[*at] == b'/');
    ends.map(|end| &path[..end])
}

fn split(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/').collect()
}

/// Returns whether the last part of a path has no room for a tag.
pub fn is_crowded(path: &[u8], tag: usize) -> bool {
    let length = path.len() - parent_of(path).map_or(0, |parent| parent.len() + 1);
    length <= NAME_MAX && length + tag > NAME_MAX
}

/// Returns whether an operation records the inode of the directory that it names.
fn tells_directory(op: &PlanOp) -> bool {
    op.ret >= 0 && op.path != NONE && semantics::is_directory(u32::from(op.obj_mode))
}

/// Directories that one copy would change for the others.
struct Busy {
    names: HashSet<Vec<u8>>,
    inos: HashSet<u64>,
}

impl Busy {
    fn of(plan: &Plan, longest_tag: usize) -> Self {
        let mut busy = Self {
            names: HashSet::new(),
            inos: HashSet::new(),
        };
        for op in plan.ops() {
            let made = touches::of(op).into_iter().flatten();
            let made = made.filter(|touch| touch.makes != Makes::Same && op.ret >= 0);
            let changed = made.map(|touch| touch.path);
            let itself = changes_itself(op).then_some(op.path);
            for path in changed.chain(itself).filter(|path| *path != NONE) {
                busy.names.insert(plan.string(path).to_vec());
            }
            if changes_itself(op) && op.ino != 0 {
                busy.inos.insert(op.ino);
            }
        }
        let names = (0..plan.n_strings()).map(|at| plan.string(at));
        for name in names.filter(|name| is_crowded(name, longest_tag)) {
            busy.names.extend(parent_of(name).map(<[u8]>::to_vec));
        }
        busy
    }

    fn changes(&self, name: &[u8], ino: u64) -> bool {
        self.names.contains(name) || self.inos.contains(&ino)
    }
}

fn changes_itself(op: &PlanOp) -> bool {
    let kind = semantics::kind(op);
    let changed = matches!(kind, Kind::Chmod | Kind::Chown | Kind::SetXattr) && op.ret >= 0;
    changed || semantics::lock(op).is_some()
}
