//! Findings of the snapshot.

use spoolscope_traces::records::{HeldLock, Mapping, OpenFile, Task};

use crate::rows::Names;

/// One finding, with the strings that the capture interns.
#[derive(Debug)]
pub enum Found {
    /// A task with its working directory, root (empty: the host's) and program.
    Task(Task, Vec<u8>, Vec<u8>, Vec<u8>),
    OpenFile(OpenFile, Vec<u8>),
    HeldLock(HeldLock),
    Mapping(Mapping, Vec<u8>),
    Names(Names),
}

impl From<Names> for Found {
    fn from(names: Names) -> Self {
        Found::Names(names)
    }
}
