//! Names of the tree on their way from a walk to the capture, with a limited rate.

use std::ffi::CStr;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use anyhow::Result;
use spoolscope_traces::records::{Tree, Xattr};
use spoolscope_traces::segment::{Capture, Kind};

use crate::attributes::{self, Attributes};
use crate::host::clock;

/// Most names sent at once.
const BATCH: usize = 512;
/// With a rate, a batch has at most the names of this part of a second.
const BURSTS: u32 = 20;

/// A batch of names. The fields `path`, `target` and `name` of its records are lengths; the texts
/// follow each other: for each row its name, then its target.
#[derive(Debug, Default)]
pub struct Names {
    /// The segment they were looked up for.
    pub segment: u32,
    rows: Vec<Tree>,
    texts: Vec<u8>,
    xattrs: Vec<Xattr>,
    xattr_texts: Vec<u8>,
}

impl Names {
    /// Write all records, their texts interned.
    pub fn store(self, capture: &mut Capture) -> Result<()> {
        let mut texts = self.texts.as_slice();
        for mut row in self.rows {
            row.path = intern(capture, &mut texts, row.path);
            row.target = intern(capture, &mut texts, row.target);
            capture.push(Kind::Tree, &row)?;
        }
        let mut texts = self.xattr_texts.as_slice();
        for mut xattr in self.xattrs {
            xattr.name = intern(capture, &mut texts, xattr.name);
            capture.push(Kind::Xattr, &xattr)?;
        }
        Ok(())
    }
}

fn intern(capture: &mut Capture, texts: &mut &[u8], length: u32) -> u32 {
    let (text, rest) = texts.split_at(length as usize);
    *texts = rest;
    capture.string(text)
}

/// Rows of one segment's tree, numbered continuously from 1.
#[derive(Debug)]
pub struct Rows<'a, T> {
    to: &'a SyncSender<T>,
    /// Names per second at most.
    rate: Option<u32>,
    /// When the next batch may begin.
    due: Instant,
    /// Names sent at once.
    batch_size: usize,
    n: u32,
    batch: Names,
}

impl<'a, T: From<Names> + Send + Sync + 'static> Rows<'a, T> {
    pub fn new(to: &'a SyncSender<T>, rate: Option<u32>, segment: u32) -> Self {
        Self {
            to,
            rate,
            due: Instant::now(),
            batch_size: rate.map_or(BATCH, |rate| ((rate / BURSTS) as usize).clamp(1, BATCH)),
            n: 0,
            batch: Names {
                segment,
                ..Names::default()
            },
        }
    }

    /// Add a name of the working directory and return the number of its row.
    pub fn add(&mut self, dev: u32, found: &Attributes, parent: u32, name: &CStr) -> Result<u32> {
        self.n += 1;
        let target = found.target(name);
        self.batch.texts.extend_from_slice(name.to_bytes());
        self.batch.texts.extend_from_slice(&target);
        self.batch.rows.push(Tree {
            dev,
            parent,
            path: name.to_bytes().len() as u32,
            target: target.len() as u32,
            extents: found.extents(name),
            ts_ns: clock(libc::CLOCK_MONOTONIC) as u64,
            ..found.record()
        });
        attributes::each_xattr(name, |text, length| {
            self.batch.xattr_texts.extend_from_slice(text);
            self.batch.xattrs.push(Xattr {
                tree: self.n,
                name: text.len() as u32,
                length,
                pad: 0,
            });
        });
        if self.batch.rows.len() >= self.batch_size {
            self.send()?;
        }
        Ok(self.n)
    }

    /// Add the row that marks a directory as completely listed.
    pub fn listed(&mut self, dev: u32, directory: u32) {
        self.n += 1;
        self.batch.rows.push(Tree {
            ts_ns: clock(libc::CLOCK_MONOTONIC) as u64,
            dev,
            parent: directory,
            ..Tree::default()
        });
    }

    /// Send the present batch, and wait as the rate demands.
    pub fn send(&mut self) -> Result<()> {
        let sent = self.batch.rows.len() as f64;
        let next = Names {
            segment: self.batch.segment,
            ..Names::default()
        };
        let names = std::mem::replace(&mut self.batch, next);
        self.to.send(names.into())?;
        if let Some(rate) = self.rate {
            // Time lost waiting for the disk is not made up: no second exceeds the rate.
            let now = Instant::now();
            self.due = now.max(self.due + Duration::from_secs_f64(sent / f64::from(rate)));
            std::thread::sleep(self.due - now);
        }
        Ok(())
    }
}
