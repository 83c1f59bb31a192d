//! Directories that calls list, and the names in them that a listing shows.

use foldhash::HashSet;
use spoolscope_traces::records::{ENTRY_LISTED, PlanEntry};

use crate::model::state::names::{Names, parent_of};
use crate::plan::Plan;
use crate::semantics::Kind;

/// Directories that a plan lists, by the path their descriptors had, and what changes in them.
#[derive(Debug)]
pub struct Listed {
    directories: HashSet<u32>,
    /// Names that came (true) or went in them.
    changes: Vec<(u32, bool)>,
}

impl Listed {
    pub fn of(plan: &Plan) -> Self {
        let lists = plan.of_kind(|kind| kind == Kind::Getdents);
        let ended = lists.filter(|(_, op)| op.ret >= 0);
        Self {
            directories: ended.map(|(_, op)| op.path).collect(),
            changes: Vec::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.directories.is_empty()
    }

    pub fn has(&self, directory: u32) -> bool {
        self.directories.contains(&directory)
    }

    pub fn note(&mut self, name: u32, came: bool) {
        self.changes.push((name, came));
    }

    pub fn take_changes(&mut self) -> Vec<(u32, bool)> {
        std::mem::take(&mut self.changes)
    }
}

/// Returns whether all names in a directory were seen when the recording began.
pub fn is_listed(entry: &PlanEntry) -> bool {
    entry.flags & ENTRY_LISTED != 0
}

/// Returns whether a replay surely has such a name: without a root of its own it makes no symlinks,
/// and names made by mkfs or an NFS client are not from the trace.
pub fn is_shown(names: &Names, path: u32, mode: u32) -> bool {
    let name = last_part(names, path);
    mode & libc::S_IFMT != libc::S_IFLNK && name != b"lost+found" && !is_silly(name)
}

/// Returns whether an NFS client gave the name to a file that was removed while it was open
/// (nfs_sillyrename in fs/nfs/unlink.c): ".nfs", the file's number, and a count.
pub fn is_silly(name: &[u8]) -> bool {
    const DIGITS: usize = 16 + 8;
    let digits = name.strip_prefix(b".nfs");
    digits.is_some_and(|rest| rest.len() == DIGITS && rest.iter().all(u8::is_ascii_hexdigit))
}

pub fn last_part<'a>(names: &'a Names, path: u32) -> &'a [u8] {
    let bytes = names.bytes(path);
    &bytes[parent_of(bytes).map_or(0, |parent| parent.len() + 1)..]
}

#[cfg(test)]
mod tests {
    use super::is_silly;

    #[test]
    fn names_of_removed_files_are_known() {
        assert!(is_silly(b".nfs000000000000000e00000001"));
        assert!(is_silly(b".nfs00000000003fabcd0000000f"));
        assert!(!is_silly(b".nfs000000000000000e0000000"));
        assert!(!is_silly(b".nfs000000000000000e0000000x"));
        assert!(!is_silly(b".nfs"));
    }
}
