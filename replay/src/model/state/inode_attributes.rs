//! Modes, owners, sizes and times of objects, as stat would show them.

use serde::{Deserialize, Serialize};
use spoolscope_traces::records::PlanEntry;

use crate::semantics;

/// The result of stat, as far as it is replayed.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Attributes {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: i64,
    pub mtime_ns: i64,
}

impl Attributes {
    pub fn chmod(&mut self, mode: u32) {
        self.mode = self.mode & libc::S_IFMT | mode & 0o7777;
    }

    /// Takes `uid | gid << 32`; all ones keep an id. A regular file loses its set-id bits.
    pub fn chown(&mut self, ids: i64) {
        let (uid, gid) = (ids as u32, (ids as u64 >> 32) as u32);
        if uid != u32::MAX {
            self.uid = uid;
        }
        if gid != u32::MAX {
            self.gid = gid;
        }
        if !semantics::is_directory(self.mode) {
            let group = if self.mode & libc::S_IXGRP != 0 {
                libc::S_ISGID
            } else {
                0
            };
            self.mode &= !(libc::S_ISUID | group);
        }
    }

    /// Returns what the snapshot shows; sizes of directories mean nothing elsewhere.
    pub fn of_entry(entry: &PlanEntry) -> Self {
        Self {
            mode: if entry.mode == 0 {
                libc::S_IFREG | 0o600 // not known
            } else {
                entry.mode
            },
            uid: entry.uid,
            gid: entry.gid,
            size: if semantics::is_regular(entry.mode) {
                entry.size
            } else {
                0
            },
            mtime_ns: entry.mtime_ns,
        }
    }
}
