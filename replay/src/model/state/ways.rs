//! Names that the kernel meets on the way to a name.

use spoolscope_traces::records::NONE;

use crate::model::state::names::parent_of;
use crate::model::state::slots::Slot;
use crate::model::state::world::World;

/// Number of symlinks that the kernel follows.
const MOST: usize = 40;

impl World<'_> {
    /// Returns the spool, the directories and symlinks that lead to a name, and the name, as far as
    /// any operation or the snapshot names them; each once. An absolute symlink ends the way.
    pub fn way_to(&self, path: u32) -> Vec<u32> {
        let mut left: Vec<&[u8]> = self.names.bytes(path).split(is_slash).rev().collect();
        let mut done: Vec<u8> = Vec::new();
        let mut met: Vec<u32> = self.names.find(b"").into_iter().collect();
        let mut followed = 0;
        while let Some(part) = left.pop() {
            match part {
                b"" | b"." => continue,
                b".." => {
                    leave(&mut done);
                    continue;
                }
                _ => {}
            }
            if !done.is_empty() {
                done.push(b'/');
            }
            done.extend(part);
            let Some(name) = self.names.find(&done) else {
                continue;
            };
            if !met.contains(&name) {
                met.push(name);
            }
            let Some(target) = self.link_at(name) else {
                continue;
            };
            followed += 1;
            if target.starts_with(b"/") || followed > MOST {
                break;
            }
            leave(&mut done);
            left.extend(target.split(is_slash).rev());
        }
        met
    }

    /// Returns whether something above a name is known and is no directory.
    pub fn is_below_file(&self, path: u32) -> bool {
        let is_file = |name: &[u8]| {
            let mode = match self.names.find(name).map(|path| (path, self.slot(path))) {
                Some((_, Slot::Present(object))) => self.object(object).mode(),
                Some((path, Slot::Unknown)) => self.recorded.at(path).map_or(0, |at| at.mode),
                _ => 0,
            };
            !matches!(mode & libc::S_IFMT, 0 | libc::S_IFDIR | libc::S_IFLNK)
        };
        let mut above = parent_of(self.names.bytes(path));
        while let Some(name) = above {
            if is_file(name) {
                return true;
            }
            above = parent_of(name);
        }
        false
    }

    /// Returns whether a descriptor leads to something that is known to be no directory.
    pub fn leads_to_file(&self, thread: u32, fd: i32) -> bool {
        let known = self.descriptors.get(self.leader(thread), fd).object;
        let mode = known.map_or(0, |object| self.object(object).mode());
        !matches!(mode & libc::S_IFMT, 0 | libc::S_IFDIR)
    }

    /// Returns the target of the symlink at a name, if it is one.
    fn link_at(&self, name: u32) -> Option<&[u8]> {
        let (mode, target) = match self.slot(name) {
            Slot::Present(object) => (self.object(object).mode(), self.object(object).target()),
            Slot::Unknown => {
                let entry = self.recorded.at(name)?;
                (entry.mode, entry.target)
            }
            Slot::Absent => return None,
        };
        let is_link = mode & libc::S_IFMT == libc::S_IFLNK;
        (is_link && target != NONE).then(|| self.names.bytes(target))
    }
}

fn is_slash(byte: &u8) -> bool {
    *byte == b'/'
}

/// Takes the last part off a name.
fn leave(name: &mut Vec<u8>) {
    let at = name.iter().rposition(is_slash);
    name.truncate(at.unwrap_or(0));
}
