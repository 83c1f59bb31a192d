//! Reasons why operations wait, in the order found. They are kept encoded: there are many more of
//! them than edges, so they go to a file as they are found, if there is one.

use anyhow::{Result, anyhow};
use std::fs::File;
use std::io::{self, Write};
use std::mem;

use crate::model::order::keys::{Key, Why};

/// Bytes that are written to the file at once.
const PIECE: usize = 1 << 20;

/// Reasons, one after the other: in memory, or in a file except for the last ones.
#[derive(Debug, Default)]
pub struct Reasons {
    kept: Vec<u8>,
    file: Option<File>,
    failed: Option<io::Error>,
}

impl Reasons {
    /// Makes reasons that are written to a file, at its present position.
    pub fn written_to(file: File) -> Self {
        Self {
            file: Some(file),
            ..Self::default()
        }
    }

    pub fn push(&mut self, why: &Why) {
        let before = mem::take(&mut self.kept);
        // Encoding fails only if a writer has no room.
        self.kept = postcard::to_extend(why, before).unwrap_or_default();
        if self.kept.len() >= PIECE && self.file.is_some() {
            self.write();
        }
    }

    /// Writes the last ones; returns the error of the first write that failed.
    pub fn finish(&mut self) -> io::Result<()> {
        self.write();
        self.failed.take().map_or(Ok(()), Err)
    }

    fn write(&mut self) {
        if let Some(file) = &mut self.file {
            if self.failed.is_none() {
                self.failed = file.write_all(&self.kept).err();
            }
            self.kept.clear();
        }
    }

    /// Returns the encoded reasons in memory.
    pub fn bytes(&self) -> &[u8] {
        &self.kept
    }
}

/// Returns the reasons that bytes hold; bytes that hold none end them with an error.
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

/// Returns the subject of an edge, in words that `waiting.py` knows.
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
