//! Why operations wait, in the order found. They are kept encoded: there are many more than edges.

use anyhow::{Result, anyhow};

use crate::model::edges::{Key, Why};

/// Reasons, one after the other.
#[derive(Debug, Default)]
pub struct Reasons(Vec<u8>);

impl Reasons {
    pub fn push(&mut self, why: &Why) {
        let before = std::mem::take(&mut self.0);
        // Only a writer without room fails.
        self.0 = postcard::to_extend(why, before).unwrap_or_default();
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The reasons that bytes hold; what is none ends them with an error.
pub fn decoded(mut bytes: &[u8]) -> impl Iterator<Item = Result<Why>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let (why, rest) = match postcard::take_from_bytes(bytes) {
            Ok((why, rest)) => (Ok(why), rest),
            Err(error) => (Err(anyhow!("no reason: {error}")), &[][..]),
        };
        bytes = rest;
        Some(why)
    })
}

/// What an edge is about, in words that `waiting.py` knows.
pub fn kind(why: &Why) -> &'static str {
    match why.key {
        None => "moment",
        Some(Key::Name(_)) => "name",
        Some(Key::Data(_) | Key::DataOf(_)) => "data",
        Some(Key::Lock(_)) => "lock",
        Some(Key::Fd(..)) => "descriptor",
        Some(Key::Table(_)) => "descriptors",
        Some(Key::Cwd(_)) => "working directory",
        Some(Key::Umask(_)) => "umask",
        Some(Key::Position(_)) => "position",
        Some(Key::Listing(_)) => "names in a directory",
        Some(Key::Attributes(_)) => "mode, owner or times",
        Some(Key::Xattr(..)) => "attribute",
        Some(Key::Xattrs(_)) => "names of attributes",
        Some(Key::Lease(_)) => "lease",
        Some(Key::Exit(_)) => "exit",
        Some(Key::Copies(_)) => "copies of a descriptor",
    }
}
