//! Number of pieces in which files lie on the device, from FIEMAP.

use anyhow::Result;
use serde::Serialize;
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use crate::target_files::as_path;

/// _IOWR('f', 11, struct fiemap)
const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
const FIEMAP_EXTENT_LAST: u32 = 1;
/// Extents asked for at once.
const BATCH: usize = 128;

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[derive(Debug)]
#[repr(C)]
struct Map {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; BATCH],
}

/// Files by the number of pieces they are in; extents that follow one another are one piece.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Pieces {
    /// Files that have any data.
    files: u64,
    #[serde(rename = "extents")]
    pieces: u64,
    /// Files in more than one piece.
    #[serde(rename = "files_split")]
    split: u64,
    /// Pieces of the file that has most.
    most: u64,
    largest_bytes: u64,
}

impl Pieces {
    /// Counts a file. Data not yet written back has no place; some filesystems report no places.
    pub fn add(&mut self, path: &CStr) -> Result<()> {
        let mut how = File::options();
        how.read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let found = runs(&how.open(as_path(path))?);
        if found.is_empty() {
            return Ok(());
        }
        let n = found.len() as u64;
        self.files += 1;
        self.pieces += n;
        self.split += u64::from(n > 1);
        self.most = self.most.max(n);
        let largest = found.into_iter().max().unwrap_or(0);
        self.largest_bytes = self.largest_bytes.max(largest);
        Ok(())
    }
}

/// Returns the lengths of the stretches of the device that hold a file, in bytes.
fn runs(file: &File) -> Vec<u64> {
    let mut found: Vec<u64> = Vec::new();
    let (mut start, mut end) = (0, None);
    loop {
        let mut map = Map {
            start,
            length: u64::MAX - start,
            flags: 0,
            mapped: 0,
            count: BATCH as u32,
            reserved: 0,
            extents: [Extent::default(); BATCH],
        };
        // SAFETY: the kernel fills at most `count` extents.
        if unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut map) } < 0 {
            return Vec::new();
        }
        let extents = &map.extents[..(map.mapped as usize).min(BATCH)];
        for extent in extents {
            match found.last_mut().filter(|_| end == Some(extent.physical)) {
                Some(run) => *run += extent.length,
                None => found.push(extent.length),
            }
            end = Some(extent.physical + extent.length);
        }
        match extents.last() {
            Some(last) if last.flags & FIEMAP_EXTENT_LAST == 0 => {
                start = last.logical + last.length;
            }
            _ => return found,
        }
    }
}
