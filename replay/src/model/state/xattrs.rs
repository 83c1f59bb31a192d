//! Extended attributes: the names that objects have, and the lengths of their values.

use foldhash::HashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Knowledge about an attribute that an object has, had or got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xattr {
    /// Bytes of its value; `None` if the object does not have it.
    pub length: Option<u32>,
    /// Identity that its value is derived from.
    pub ino: u64,
    /// A call set it, and if it is an ACL the mode that it comes to is not known.
    pub mode_unknown: bool,
}

/// The attributes of an object by their whole names.
pub type Named = BTreeMap<Vec<u8>, Xattr>;

/// The tree that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Start,
    End,
}

/// One attribute of one object through its life.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Life {
    /// Its length at start, as shown by the first call that found or missed it.
    pub(super) first: Option<Option<u32>>,
    /// The state after the last call that changed it.
    pub(super) last: Option<Xattr>,
}

#[derive(Debug, Default)]
pub struct Xattrs {
    /// Name and length, by the entry of the snapshot.
    pub(super) shown: HashMap<u32, Vec<(u32, u32)>>,
    /// By object and name.
    pub(super) met: HashMap<u32, BTreeMap<u32, Life>>,
}
