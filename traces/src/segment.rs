//! The capture file: chunks of flat records, readable up to the last whole chunk even if the
//! writer crashes.

use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use anyhow::{Context, Result};
use bytemuck::Pod;
use rustc_hash::FxHashMap;

use crate::disk::{Chunk, ChunkFile};
use crate::records::{
    self, CAPTURE_VERSION, CHUNK_MAGIC, CODEC_ZSTD, ChunkHeader, FILE_MAGIC, FileHeader,
    STACK_FRAMES, STATE_CLOSED, STATE_OPEN, Syscall, as_bytes,
};

/// Kind of the content of a chunk; `enum spsc_kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
#[allow(missing_docs)]
pub enum Kind {
    Syscall = records::KIND_SYSCALL,
    Switch = records::KIND_SWITCH,
    Task = records::KIND_TASK,
    Journal = records::KIND_JOURNAL,
    Block = records::KIND_BLOCK,
    OpenFile = records::KIND_OPEN_FILE,
    Tree = records::KIND_TREE,
    Stack = records::KIND_STACK,
    String = records::KIND_STRING,
    Symbols = records::KIND_SYMBOLS,
    Meta = records::KIND_META,
    HeldLock = records::KIND_HELD_LOCK,
    Mapping = records::KIND_MAPPING,
    Xattr = records::KIND_XATTR,
    Wait = records::KIND_WAIT,
    Fault = records::KIND_FAULT,
    Uring = records::KIND_URING,
    Shed = records::KIND_SHED,
    Prelude = records::KIND_PRELUDE,
    Sample = records::KIND_SAMPLE,
    UserCall = records::KIND_USER_CALL,
}

/// A number above the largest kind.
const KINDS: usize = 24;
/// Kinds that show which calls are lost when the disk is full, and kinds that others refer to.
const LAST_WORDS: [Kind; 5] = [
    Kind::Task,
    Kind::Meta,
    Kind::String,
    Kind::Stack,
    Kind::Symbols,
];
/// A chunk is written when its buffer reaches this size.
const CHUNK_BYTES: usize = 256 << 10;
/// Calls are buffered until `settle`, which keeps the order of each thread's calls, or until the
/// buffer reaches this size.
const MOST_BYTES: usize = 16 << 20;
/// Level 1 keeps up with a million calls a second; the Parquet files are the archive.
const ZSTD_LEVEL: i32 = 1;

/// Kernel addresses, innermost first, zero-padded.
pub type Stack = [u64; STACK_FRAMES];

#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    records: u32,
}

/// Writes a capture. Strings and stacks are stored once, and records refer to them by id.
#[derive(Debug)]
pub struct Capture {
    file: ChunkFile,
    header: FileHeader,
    buffers: [Buffer; KINDS],
    strings: FxHashMap<Rc<[u8]>, u32>,
    new_strings: Vec<Rc<[u8]>>,
    stacks: FxHashMap<Box<Stack>, u32>,
    new_stacks: Vec<Stack>,
    dropped: [u64; KINDS],
}

impl Capture {
    /// Creates the file in an open directory; fails if it exists or is a symbolic link.
    ///
    /// `number` counts the segments of a recording from 1; `start` is CLOCK_MONOTONIC and
    /// CLOCK_REALTIME of its beginning; `like`: it fails unless it can reserve as much space for
    /// the last records as that capture.
    pub fn create(
        directory: BorrowedFd<'_>,
        name: &str,
        number: u32,
        start: (i64, i64),
        like: Option<&Capture>,
    ) -> Result<Capture> {
        let like_bytes = like.map(|capture| capture.file.reserve_bytes());
        let file = ChunkFile::create(directory, name, like_bytes.filter(|bytes| *bytes > 0))
            .with_context(|| format!("Failed to create {name}"))?;
        let header = FileHeader {
            magic: *FILE_MAGIC,
            version: CAPTURE_VERSION,
            state: STATE_OPEN,
            start_mono_ns: start.0,
            start_real_ns: start.1,
            number,
            ..FileHeader::default()
        };
        let mut capture = Capture {
            file,
            header,
            buffers: Default::default(),
            strings: FxHashMap::default(),
            new_strings: Vec::new(),
            stacks: FxHashMap::default(),
            new_stacks: Vec::new(),
            dropped: [0; KINDS],
        };
        let header = capture.checked_header();
        let written = capture
            .file
            .append(Chunk::LastWords, as_bytes(&[header]), &[]);
        written.context("Failed to write the header of a segment")?;
        Ok(capture)
    }

    /// Sets the beginning, which was not yet known when the file was created.
    pub fn begin_at(&mut self, start: (i64, i64)) -> Result<()> {
        (self.header.start_mono_ns, self.header.start_real_ns) = start;
        let header = self.checked_header();
        let written = self.file.write_header(as_bytes(&[header]));
        written.context("Failed to write the header of a segment")
    }

    /// CLOCK_MONOTONIC and CLOCK_REALTIME of its beginning.
    pub fn start(&self) -> (i64, i64) {
        (self.header.start_mono_ns, self.header.start_real_ns)
    }

    /// Number of this segment, from 1.
    pub fn number(&self) -> u32 {
        self.header.number
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    /// The disk is full: only task records are still taken, in the reserved space.
    pub fn is_full(&self) -> bool {
        self.file.is_full()
    }

    /// Records that a full disk did not take, by kind.
    pub fn dropped(&self) -> impl Iterator<Item = (u32, u64)> {
        (0..).zip(self.dropped).filter(|(_, n)| *n > 0)
    }

    /// Appends one record.
    pub fn push<T: Pod>(&mut self, kind: Kind, record: &T) -> Result<()> {
        if self.file.is_full() && kind != Kind::Task {
            self.dropped[kind as usize] += 1;
            return Ok(());
        }
        let buffer = &mut self.buffers[kind as usize];
        buffer.bytes.extend_from_slice(bytemuck::bytes_of(record));
        buffer.records += 1;
        let most = if kind == Kind::Syscall {
            MOST_BYTES
        } else {
            CHUNK_BYTES
        };
        if buffer.bytes.len() >= most {
            self.flush_names()?;
            self.flush_kind(kind as u16)?;
        }
        Ok(())
    }

    /// The id of a string; 0 for the empty one.
    pub fn string(&mut self, text: &[u8]) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(id) = self.strings.get(text) {
            return *id;
        }
        let id = self.strings.len() as u32 + 1;
        let text: Rc<[u8]> = text.into();
        self.strings.insert(text.clone(), id);
        self.new_strings.push(text);
        id
    }

    /// The id of a stack; 0 for the empty one.
    pub fn stack(&mut self, frames: &[u64]) -> u32 {
        let mut stack: Stack = [0; STACK_FRAMES];
        let n = frames.len().min(STACK_FRAMES);
        stack[..n].copy_from_slice(&frames[..n]);
        if stack[0] == 0 {
            return 0;
        }
        if let Some(id) = self.stacks.get(&stack) {
            return *id;
        }
        let id = self.stacks.len() as u32 + 1;
        self.stacks.insert(Box::new(stack), id);
        self.new_stacks.push(stack);
        id
    }

    /// The stacks by id, from 1 on.
    pub fn stacks_by_id(&self) -> Vec<Stack> {
        let mut stacks = vec![[0; STACK_FRAMES]; self.stacks.len()];
        for (stack, id) in &self.stacks {
            stacks[*id as usize - 1] = **stack;
        }
        stacks
    }

    /// Every address seen in a stack, unordered and with repetitions.
    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        self.stacks.keys().flat_map(|stack| stack.iter().copied())
    }

    /// Writes the calls that returned before a moment, if they fill a chunk. All rings have been
    /// read since that moment. As rings are read one after the other, a later call of a thread that
    /// changed its CPU may be here before an earlier one, but this cannot concern calls that
    /// returned before that moment. So the file that a crash leaves has the first calls of each
    /// thread, without a hole.
    pub fn settle(&mut self, before_ns: u64) -> Result<()> {
        if self.buffers[Kind::Syscall as usize].bytes.len() < CHUNK_BYTES {
            return Ok(());
        }
        self.flush_names()?;
        self.flush_calls(before_ns)
    }

    /// Writes all buffered records except calls that returned at that moment or later.
    pub fn flush_until(&mut self, before_ns: u64) -> Result<()> {
        self.flush_names()?;
        self.flush_calls(before_ns)?;
        (0..KINDS as u16)
            .filter(|kind| *kind != Kind::Syscall as u16)
            .try_for_each(|kind| self.flush_kind(kind))
    }

    fn flush_calls(&mut self, before_ns: u64) -> Result<()> {
        let buffer = std::mem::take(&mut self.buffers[Kind::Syscall as usize]);
        let mut now = Buffer::default();
        for record in buffer.bytes.chunks_exact(size_of::<Syscall>()) {
            let end = &record[offset_of!(Syscall, end_ns)..][..size_of::<u64>()];
            let settled = bytemuck::pod_read_unaligned::<u64>(end) < before_ns;
            let to = if settled {
                &mut now
            } else {
                &mut self.buffers[Kind::Syscall as usize]
            };
            to.bytes.extend_from_slice(record);
            to.records += 1;
        }
        if now.records > 0 {
            self.chunk(Kind::Syscall as u16, &now.bytes, now.records, 0)?;
        }
        Ok(())
    }

    /// Writes all buffered records, names before the records that use them.
    pub fn flush(&mut self) -> Result<()> {
        self.flush_names()?;
        for kind in 0..KINDS as u16 {
            self.flush_kind(kind)?;
        }
        Ok(())
    }

    /// Writes a chunk of text: symbols or the JSON of META.
    pub fn text(&mut self, kind: Kind, text: &str) -> Result<()> {
        self.chunk(kind as u16, text.as_bytes(), 1, 0)
    }

    /// Writes the remaining records and marks the file as closed in order.
    pub fn finish(&mut self) -> Result<u64> {
        self.flush()?;
        self.header.state = STATE_CLOSED;
        let (header, bytes) = (self.checked_header(), self.bytes());
        self.file.write_header(as_bytes(&[header]))?;
        self.file.sync()?;
        Ok(bytes)
    }

    fn checked_header(&self) -> FileHeader {
        let mut header = self.header;
        header.crc32 = crc32fast::hash(as_bytes(&[header]));
        header
    }

    fn flush_names(&mut self) -> Result<()> {
        if !self.new_strings.is_empty() {
            let names = std::mem::take(&mut self.new_strings);
            let mut raw = Vec::new();
            for name in &names {
                raw.extend_from_slice(&(name.len() as u32).to_le_bytes());
            }
            for name in &names {
                raw.extend_from_slice(name);
            }
            let first = self.strings.len() - names.len() + 1;
            self.chunk(Kind::String as u16, &raw, names.len() as u32, first as u64)?;
        }
        if !self.new_stacks.is_empty() {
            let stacks = std::mem::take(&mut self.new_stacks);
            let first = self.stacks.len() - stacks.len() + 1;
            let n = stacks.len() as u32;
            self.chunk(
                Kind::Stack as u16,
                bytemuck::cast_slice(&stacks),
                n,
                first as u64,
            )?;
        }
        Ok(())
    }

    fn flush_kind(&mut self, kind: u16) -> Result<()> {
        let buffer = std::mem::take(&mut self.buffers[usize::from(kind)]);
        if buffer.records > 0 {
            self.chunk(kind, &buffer.bytes, buffer.records, 0)?;
        }
        Ok(())
    }

    fn chunk(&mut self, kind: u16, raw: &[u8], records: u32, base: u64) -> Result<()> {
        let stored = zstd::bulk::compress(raw, ZSTD_LEVEL).context("Failed to compress a chunk")?;
        let mut header = ChunkHeader {
            magic: CHUNK_MAGIC,
            kind,
            codec: CODEC_ZSTD,
            n_records: records,
            raw_bytes: raw.len() as u32,
            stored_bytes: stored.len() as u32,
            crc32: 0,
            base,
        };
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(as_bytes(&[header]));
        checksum.update(&stored);
        header.crc32 = checksum.finalize();
        let what = match LAST_WORDS.iter().any(|word| *word as u16 == kind) {
            true => Chunk::LastWords,
            false => Chunk::Data,
        };
        let written = self.file.append(what, as_bytes(&[header]), &stored);
        if !written.context("Failed to write the capture")? {
            self.dropped[usize::from(kind)] += u64::from(records);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::records::Switch;

    #[test]
    fn calls_that_are_not_settled_wait() {
        let dir = std::env::temp_dir().join(format!("spoolscope-settle-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let directory = std::fs::File::open(&dir).unwrap();
        let mut capture =
            Capture::create(directory.as_fd(), "capture.seg", 1, (1, 2), None).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        for end_ns in [30, 10, 20] {
            let call = Syscall {
                end_ns,
                ..Syscall::default()
            };
            capture.push(Kind::Syscall, &call).unwrap();
        }
        capture.settle(25).unwrap();
        let waiting = |capture: &Capture| capture.buffers[Kind::Syscall as usize].records;
        assert_eq!(waiting(&capture), 3); // not a chunk's worth
        capture.flush_until(25).unwrap();
        assert_eq!(waiting(&capture), 1);
        capture.flush().unwrap();
        assert_eq!(waiting(&capture), 0);
    }

    #[test]
    fn chunks_carry_names_before_records() {
        let dir = std::env::temp_dir().join(format!("spoolscope-segment-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("capture.seg");
        let directory = std::fs::File::open(&dir).unwrap();
        let mut capture =
            Capture::create(directory.as_fd(), "capture.seg", 1, (1, 2), None).unwrap();
        assert_eq!(capture.string(b"one"), 1);
        assert_eq!(capture.string(b"two"), 2);
        assert_eq!(capture.string(b"one"), 1);
        let stack = capture.stack(&[7, 8]);
        let switch = Switch {
            stack,
            ..Switch::default()
        };
        capture.push(Kind::Switch, &switch).unwrap();
        capture.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(&bytes[..8], FILE_MAGIC);
        assert_eq!(bytes[12..16], [0; 4]);
        let mut at = 64;
        let mut kinds = Vec::new();
        while at < bytes.len() {
            let mut header: ChunkHeader = bytemuck::pod_read_unaligned(&bytes[at..at + 32]);
            let body = &bytes[at + 32..at + 32 + header.stored_bytes as usize];
            let stated = std::mem::take(&mut header.crc32);
            let checked = [as_bytes(&[header]), body].concat();
            assert_eq!(crc32fast::hash(&checked), stated);
            kinds.push(header.kind);
            at += 32 + body.len();
        }
        assert_eq!(kinds, [9, 8, 2]);
    }
}
