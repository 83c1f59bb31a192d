//! The capture file: chunks of flat records, readable up to the last whole chunk
//! whatever happens to the writer.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result};
use bytemuck::Pod;
use rustc_hash::FxHashMap;

use crate::records::{
    self, CHUNK_MAGIC, CODEC_ZSTD, ChunkHeader, FILE_MAGIC, FileHeader, STACK_FRAMES, STATE_CLOSED,
    STATE_OPEN, VERSION, as_bytes,
};

/// What a chunk holds; `enum spsc_kind`.
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
    Wait = records::KIND_WAIT,
    Fault = records::KIND_FAULT,
    Uring = records::KIND_URING,
    Shed = records::KIND_SHED,
}

/// More than the largest of them.
const KINDS: usize = 24;
/// A chunk is written when its buffer reaches this size.
const CHUNK_BYTES: usize = 256 << 10;
/// Level 1 keeps up with a million calls a second; the Parquet files are the archive.
const ZSTD_LEVEL: i32 = 1;

/// Kernel addresses, innermost first, zero-padded.
pub type Stack = [u64; STACK_FRAMES];

#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    records: u32,
}

/// Writes a capture. Strings and stacks are stored once and referred to by id.
#[derive(Debug)]
pub struct Capture {
    file: File,
    header: FileHeader,
    buffers: [Buffer; KINDS],
    strings: FxHashMap<Rc<[u8]>, u32>,
    new_strings: Vec<Rc<[u8]>>,
    stacks: FxHashMap<Box<Stack>, u32>,
    new_stacks: Vec<Stack>,
    /// Bytes written so far.
    pub bytes: u64,
}

impl Capture {
    /// Creates the file; fails if it exists or is a symbolic link.
    pub fn create(path: &Path, start_mono_ns: i64, start_real_ns: i64) -> Result<Capture> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
            .with_context(|| format!("Failed to create {}", path.display()))?;
        let header = FileHeader {
            magic: *FILE_MAGIC,
            version: VERSION,
            state: STATE_OPEN,
            start_mono_ns,
            start_real_ns,
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
            bytes: 0,
        };
        capture.write(as_bytes(&[header]))?;
        Ok(capture)
    }

    /// Appends one record.
    pub fn push<T: Pod>(&mut self, kind: Kind, record: &T) -> Result<()> {
        let buffer = &mut self.buffers[kind as usize];
        buffer.bytes.extend_from_slice(bytemuck::bytes_of(record));
        buffer.records += 1;
        if buffer.bytes.len() >= CHUNK_BYTES {
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

    /// Every address seen in a stack, unordered and with repetitions.
    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        self.stacks.keys().flat_map(|stack| stack.iter().copied())
    }

    /// Writes all that is buffered, names before the records that use them.
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

    /// Writes what is left and marks the file as closed in order.
    pub fn finish(mut self) -> Result<u64> {
        self.flush()?;
        self.header.state = STATE_CLOSED;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(as_bytes(&[self.header]))?;
        self.file.sync_data()?;
        Ok(self.bytes)
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
        let header = ChunkHeader {
            magic: CHUNK_MAGIC,
            kind,
            codec: CODEC_ZSTD,
            n_records: records,
            raw_bytes: raw.len() as u32,
            stored_bytes: stored.len() as u32,
            crc32: crc32fast::hash(&stored),
            base,
        };
        self.write(as_bytes(&[header]))?;
        self.write(&stored)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all(bytes)
            .context("Failed to write the capture (is the disk full?)")?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Switch;

    #[test]
    fn chunks_carry_names_before_records() {
        let dir = std::env::temp_dir().join(format!("spoolscope-segment-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("capture.seg");
        let mut capture = Capture::create(&path, 1, 2).unwrap();
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
            let header: ChunkHeader = bytemuck::pod_read_unaligned(&bytes[at..at + 32]);
            let body = &bytes[at + 32..at + 32 + header.stored_bytes as usize];
            assert_eq!(crc32fast::hash(body), header.crc32);
            kinds.push(header.kind);
            at += 32 + body.len();
        }
        assert_eq!(kinds, [9, 8, 2]);
    }
}
