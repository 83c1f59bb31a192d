//! The file that holds an order: a header, then sections one after the other.
//!
//! It is untrusted input like the plan: each part is checked before it is used.

use anyhow::{Context, Result, ensure};
use bytemuck::{Pod, Zeroable};
use memmap2::Mmap;
use serde::Serialize;
use serde::de::DeserializeOwned;
use spoolscope_traces::records::{as_bytes, from_bytes};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::slice;

use crate::model::expect::tree::Tree;
use crate::model::order::reasons::Reasons;
use crate::plan::Plan;
use crate::planned::checks;
use crate::planned::parts::{Rules, Start, Why};
use crate::planned::walked::Walked;

const MAGIC: [u8; 8] = *b"SPOOLORD";
/// Goes up whenever the encoding or the meaning of a section changes.
const VERSION: u32 = 2;

/// The sections, in their order: reasons are written while the walk finds them.
#[derive(Clone, Copy, Debug)]
enum Section {
    Reasons,
    Rules,
    Start,
    End,
    Names,
}

const SECTIONS: usize = 5;

/// The header is written last: that of an unfinished file has no magic.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct Header {
    magic: [u8; 8],
    version: u32,
    /// Checksum and length of the plan.
    plan_crc32: u32,
    plan_bytes: u64,
    /// End of each section.
    ends: [u64; SECTIONS],
}

/// Walks over a plan, and writes the results to an empty file.
pub fn write<'a>(plan: &'a Plan, mut file: File) -> Result<Walked<'a>> {
    file.write_all(&[0; size_of::<Header>()])?;
    let mut walked = Walked::with(plan, Some(Reasons::written_to(file.try_clone()?)));
    walked.reasons.finish()?;
    let mut file = BufWriter::with_capacity(1 << 20, file);
    let (plan_bytes, plan_crc32) = plan.digest();
    let mut header = Header {
        magic: MAGIC,
        version: VERSION,
        plan_crc32,
        plan_bytes,
        ends: [0; SECTIONS],
    };
    header.ends[Section::Reasons as usize] = file.stream_position()?;
    put(walked.rules(), &mut file)?;
    header.ends[Section::Rules as usize] = file.stream_position()?;
    put(&walked.start(), &mut file)?;
    header.ends[Section::Start as usize] = file.stream_position()?;
    put(&walked.end(), &mut file)?;
    header.ends[Section::End as usize] = file.stream_position()?;
    put(&walked.why().names, &mut file)?;
    header.ends[Section::Names as usize] = file.stream_position()?;
    file.rewind()?;
    file.write_all(as_bytes(slice::from_ref(&header)))?;
    file.flush()?;
    Ok(walked)
}

fn put(value: &impl Serialize, file: &mut impl Write) -> Result<()> {
    postcard::to_io(value, file)?;
    Ok(())
}

/// An order that lies in a file.
#[derive(Debug)]
pub struct Stored<'a> {
    plan: &'a Plan,
    map: Mmap,
    header: Header,
}

impl<'a> Stored<'a> {
    /// Opens the order of a plan; `None` if there is no file.
    pub fn open(plan: &'a Plan, path: &Path) -> Result<Option<Self>> {
        let mut how = File::options();
        how.read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = match how.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.with_context(|| format!("cannot open {}", path.display()))?,
        };
        let refused = || format!("{} is no order of this plan, remove it", path.display());
        Self::of(plan, &file).with_context(refused).map(Some)
    }

    /// Returns the order of a plan that a file holds.
    pub fn of(plan: &'a Plan, file: &File) -> Result<Self> {
        // SAFETY: the mapping is private and read-only; the file belongs to this replay.
        let map = unsafe { Mmap::map(file) }?;
        let head = map.get(..size_of::<Header>()).context("too short")?;
        let header: Header = from_bytes(head).context("misaligned")?[0];
        ensure!(header.magic == MAGIC, "wrong magic");
        ensure!(header.version == VERSION, "version is not known");
        let digest = (header.plan_bytes, header.plan_crc32);
        ensure!(digest == plan.digest(), "made of another plan");
        ensure!(
            header.ends[SECTIONS - 1] == map.len() as u64,
            "another length"
        );
        Ok(Self { plan, map, header })
    }

    fn bytes(&self, section: Section) -> Result<&[u8]> {
        let from = match (section as usize).checked_sub(1) {
            Some(before) => self.header.ends[before],
            None => size_of::<Header>() as u64,
        };
        let to = self.header.ends[section as usize];
        let part = self.map.get(from as usize..to as usize);
        part.with_context(|| format!("order: {section:?} lies past the end"))
    }

    fn get<T: DeserializeOwned>(&self, section: Section) -> Result<T> {
        let refused = || format!("order: {section:?} cannot be read");
        let (value, rest) =
            postcard::take_from_bytes(self.bytes(section)?).with_context(refused)?;
        ensure!(rest.is_empty(), "order: more than {section:?}");
        Ok(value)
    }

    pub fn rules(&self) -> Result<Rules> {
        let rules = self.get(Section::Rules)?;
        checks::rules(self.plan, &rules).context("order")?;
        Ok(rules)
    }

    pub fn start(&self) -> Result<Start> {
        let start: Start = self.get(Section::Start)?;
        checks::tree(&start.tree).context("order: tree at the start")?;
        checks::room(&start).context("order: tree at the start")?;
        Ok(start)
    }

    pub fn end(&self) -> Result<Tree> {
        let tree = self.get(Section::End)?;
        checks::tree(&tree).context("order: tree at the end")?;
        Ok(tree)
    }

    pub fn why(&self) -> Result<Why<'_>> {
        let why = Why {
            reasons: Cow::Borrowed(self.bytes(Section::Reasons)?),
            names: self.get(Section::Names)?,
        };
        checks::reasons(self.plan, &why).context("order: reasons")?;
        Ok(why)
    }
}
