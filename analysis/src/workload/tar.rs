//! A tar stream without a file: the source for a program that unpacks it.

use std::io::{self, Write};

const BLOCK: usize = 512;
/// Blocks of a record: GNU tar ends a stream with two empty blocks, and fills up the record.
pub const RECORD_BLOCKS: u64 = 20;
const END_BLOCKS: u64 = 2;
const MTIME: u64 = 1_078_142_400;

/// A stream under way.
#[derive(Debug)]
pub struct Tar<W: Write> {
    out: W,
    blocks: u64,
}

impl<W: Write> Tar<W> {
    /// Begin an empty stream.
    pub fn new(out: W) -> Self {
        Self { out, blocks: 0 }
    }

    /// Add a directory; its name ends with a slash.
    pub fn directory(&mut self, name: &str) -> io::Result<()> {
        self.header(name, 0, 0o755, b'5')
    }

    /// Add a file.
    pub fn file(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.header(name, content.len() as u64, 0o644, b'0')?;
        self.out.write_all(content)?;
        let over = content.len() % BLOCK;
        if over > 0 {
            self.out.write_all(&[0; BLOCK][over..])?;
        }
        self.blocks += blocks_of(content.len() as u64);
        Ok(())
    }

    /// End the stream.
    pub fn end(mut self) -> io::Result<()> {
        for _ in self.blocks..ended(self.blocks) {
            self.out.write_all(&[0; BLOCK])?;
        }
        self.out.flush()
    }

    fn header(&mut self, name: &str, size: u64, mode: u32, kind: u8) -> io::Result<()> {
        let mut block = [0_u8; BLOCK];
        put(&mut block[0..100], name);
        put(&mut block[100..108], &format!("{mode:07o}"));
        put(&mut block[108..116], "0000000");
        put(&mut block[116..124], "0000000");
        put(&mut block[124..136], &format!("{size:011o}"));
        put(&mut block[136..148], &format!("{MTIME:011o}"));
        block[148..156].fill(b' ');
        block[156] = kind;
        put(&mut block[257..265], "ustar\x0000");
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        put(&mut block[148..155], &format!("{sum:06o}\0"));
        self.blocks += 1;
        self.out.write_all(&block)
    }
}

fn put(field: &mut [u8], text: &str) {
    field[..text.len()].copy_from_slice(text.as_bytes());
}

/// Return the number of blocks for the contents of a file.
pub fn blocks_of(size: u64) -> u64 {
    size.div_ceil(BLOCK as u64)
}

/// Return the number of blocks of a whole stream, from those of its entries.
pub fn ended(blocks: u64) -> u64 {
    (blocks + END_BLOCKS).next_multiple_of(RECORD_BLOCKS)
}
