//! Things that operations conflict on, and what is kept of a conflict.

use serde::{Deserialize, Serialize};

use crate::model::order::subjects::Subject;
use crate::model::state::locks::LockKey;

/// The thing that two operations conflict on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Key {
    Name(u32),
    /// Size and contents of an inode.
    Data(u64),
    /// Size and contents of an object whose inode is not known.
    DataOf(u32),
    Lock(LockKey),
    /// A descriptor of a process with several threads, or one that came from another process.
    Fd(u32, i32),
    /// All descriptors of a process with several threads, for its forks.
    Table(u32),
    Cwd(u32),
    /// The umask of a process with several threads.
    Umask(u32),
    /// The position of an open file that processes share.
    Position(u32),
    /// The names in a directory, for calls that list it.
    Listing(u32),
    /// Mode, owner and times.
    Attributes(Subject),
    /// An extended attribute, and its name.
    Xattr(Subject, u32),
    /// All extended attributes, for calls that list them.
    Xattrs(Subject),
    /// An inode that leases were asked for: a lease is given or not, depending on what is open.
    Lease(u64),
    /// The end of a process with several threads.
    Exit(u32),
    /// An open file with locks, for the call that closes its last descriptor.
    Copies(u32),
}

#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub op: u32,
    /// The result shows the order even among overlapping operations.
    pub definite: bool,
}

/// The reason why an operation comes after one of another thread.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Why {
    pub op: u32,
    pub thread: u32,
    /// Number of operations that the other thread must have finished.
    pub finished: u32,
    /// The thing that both work on; `None` if only the order of moments counts (`moments.rs`).
    pub key: Option<Key>,
    /// True if there is an edge; else the thread of `op` has waited for it, or a later one, before.
    pub waits: bool,
}
