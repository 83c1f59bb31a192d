//! Builds the tree that existed before the first operation.

use anyhow::{Context, Result, anyhow};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use serde::Serialize;
use std::ffi::{CStr, OsStr};
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::age::{self, Age, Crowd};
use crate::model::expect::tree::{Thing, Tree};
use crate::model::state::names::parent_of;
use crate::pattern::Pattern;
use crate::pieces::Pieces;
use crate::sandbox::Confinement;
use crate::semantics;
use crate::target_files::{as_path, make_directory, make_file, make_node};
use crate::xattrs;

const PIECE: i64 = 1 << 20;

/// Counts of what was built, for the JSON line.
#[derive(Debug, Default, Serialize)]
pub struct Built {
    pub files: u64,
    pub directories: u64,
    pub others: u64,
    pub bytes: i64,
    /// Symlinks, where they could lead out of the target: never made.
    pub refused: u64,
    /// Sockets that stand in for device nodes, which are never made.
    pub stand_ins: u64,
    /// Names that were made and removed to age directories; among the facts of ageing.
    #[serde(skip)]
    pub names_aged: u64,
    /// Extended attributes that were set.
    pub xattrs: u64,
    /// Extended attributes that were not set: see `xattrs.rs`.
    pub xattrs_skipped: u64,
}

impl Built {
    fn add(&mut self, part: &Self) {
        self.files += part.files;
        self.directories += part.directories;
        self.others += part.others;
        self.bytes += part.bytes;
        self.refused += part.refused;
        self.stand_ins += part.stand_ins;
        self.xattrs += part.xattrs;
        self.xattrs_skipped += part.xattrs_skipped;
    }
}

/// Builds the whole tree: directories, then files by several threads, then further names.
///
/// Modes, owners and times are set when an object is complete.
///
/// An aged target gets its names in the same order every time, by one thread.
pub fn build(
    tree: &Tree,
    confinement: &Confinement,
    pattern: &Pattern,
    age: Option<Age>,
) -> Result<Built> {
    // SAFETY: plain system call.
    unsafe { libc::umask(0) };
    let parts = Parts::of(tree);
    let maker = Maker {
        tree,
        confinement,
        pattern,
    };
    let mut built = Built::default();
    if tree.lost_and_found {
        maker.make_lost_and_found()?;
    }
    for (name, thing) in &parts.directories {
        maker.make(name, *thing, &mut built)?;
    }
    let crowd = age.map(|age| Crowd::gather(age, &parts.crowded(), confinement));
    let crowd = crowd.transpose()?;
    let refused = maker.make_all(&parts.files, age.is_some(), &mut built)?;
    for (name, first, thing) in &parts.links {
        if !refused.contains(thing) {
            maker.link(first, name)?;
        }
    }
    built.names_aged = crowd.map_or(Ok(0), Crowd::leave)?;
    for (name, thing) in parts.directories.iter().rev() {
        maker.finish(name, *thing, &mut built)?;
    }
    Ok(built)
}

type Named<'a> = (&'a [u8], usize);

/// Names to be made, in order.
struct Parts<'a> {
    directories: Vec<Named<'a>>,
    files: Vec<Named<'a>>,
    /// Name, first name of the same object, object.
    links: Vec<(&'a [u8], &'a [u8], usize)>,
}

impl<'a> Parts<'a> {
    fn of(tree: &'a Tree) -> Self {
        let mut parts = Self {
            directories: Vec::new(),
            files: Vec::new(),
            links: Vec::new(),
        };
        let mut first_names: Vec<Option<&[u8]>> = vec![None; tree.things.len()];
        for (name, thing) in &tree.names {
            let mode = tree.things[*thing].attributes.mode;
            match first_names[*thing].replace(name) {
                Some(first) => {
                    first_names[*thing] = Some(first);
                    parts.links.push((name, first, *thing));
                }
                None if mode & libc::S_IFMT == libc::S_IFDIR => {
                    parts.directories.push((name, *thing));
                }
                None => parts.files.push((name, *thing)),
            }
        }
        parts
    }

    /// Returns directories, with the number of names that will be in each.
    fn crowded(&self) -> Vec<(&'a [u8], usize)> {
        let mut names: HashMap<&[u8], usize> = HashMap::new();
        let made = self.files.iter().chain(&self.directories);
        let made = made.map(|(name, _)| *name);
        for name in made.chain(self.links.iter().map(|(name, _, _)| *name)) {
            *names.entry(parent_of(name).unwrap_or(b"")).or_default() += 1;
        }
        let all = self.directories.iter().map(|(name, _)| *name);
        all.filter_map(|name| Some((name, *names.get(name)?)))
            .collect()
    }
}

/// Counts the pieces in which the files of a tree lie.
pub fn pieces(tree: &Tree, confinement: &Confinement) -> Result<Pieces> {
    age::settle(&confinement.path(b""))?;
    let (mut pieces, mut seen) = (Pieces::default(), HashSet::new());
    for (name, thing) in &tree.names {
        let regular = semantics::is_regular(tree.things[*thing].attributes.mode);
        if regular && seen.insert(thing) {
            pieces.add(&confinement.path(name))?;
        }
    }
    Ok(pieces)
}

/// Data that the threads which make objects share.
struct Maker<'a> {
    tree: &'a Tree,
    confinement: &'a Confinement,
    pattern: &'a Pattern,
}

/// Names that a thread takes at once: most are in one directory, so that threads seldom wait for
/// each other to change it.
const SHARE: usize = 256;
const MOST_THREADS: usize = 8;

impl Maker<'_> {
    /// Makes lost+found, which on ext* is there already.
    fn make_lost_and_found(&self) -> Result<()> {
        let path = self.confinement.path(b"lost+found");
        make_directory(&path).context("cannot make lost+found")
    }

    /// Makes and finishes files; returns those refused.
    fn make_all(
        &self,
        files: &[Named],
        in_order: bool,
        built: &mut Built,
    ) -> Result<HashSet<usize>> {
        let next = AtomicUsize::new(0);
        let work = || -> Result<(Built, Vec<usize>)> {
            let (mut built, mut refused) = (Built::default(), Vec::new());
            loop {
                let at = next.fetch_add(SHARE, Relaxed);
                if at >= files.len() {
                    return Ok((built, refused));
                }
                for (name, thing) in &files[at..files.len().min(at + SHARE)] {
                    match self.make(name, *thing, &mut built)? {
                        true => self.finish(name, *thing, &mut built)?,
                        false => refused.push(*thing),
                    }
                }
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let most = if in_order { 1 } else { MOST_THREADS };
        let threads = threads.min(most).min(files.len().div_ceil(SHARE));
        let mut all_refused = HashSet::new();
        std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            for thread in running {
                let done = thread.join().map_err(|_| anyhow!("a thread panicked"))?;
                let (part, refused) = done?;
                built.add(&part);
                all_refused.extend(refused);
            }
            Ok(all_refused)
        })
    }

    fn make(&self, name: &[u8], thing: usize, built: &mut Built) -> Result<bool> {
        let path = self.confinement.path(name);
        let mode = self.mode_at_once(thing).unwrap_or(0o600);
        let thing = &self.tree.things[thing];
        make(thing, &path, mode, self.confinement, self.pattern, built)
            .with_context(|| format!("cannot make '{}'", String::from_utf8_lossy(name)))
    }

    /// Returns the mode of a file that can be made with it: a further call would cost as much
    /// again.
    fn mode_at_once(&self, thing: usize) -> Option<u32> {
        let mode = self.tree.things[thing].attributes.mode;
        let plain = semantics::is_regular(mode) && mode & 0o7000 == 0;
        (plain && self.tree.things[thing].xattrs.is_empty()).then_some(mode & 0o777)
    }

    fn link(&self, first: &[u8], name: &[u8]) -> Result<()> {
        let (first, path) = (self.confinement.path(first), self.confinement.path(name));
        fs::hard_link(as_path(&first), as_path(&path))
            .with_context(|| format!("cannot make '{}'", String::from_utf8_lossy(name)))
    }

    /// Sets attributes before the mode, which may forbid them.
    fn finish(&self, name: &[u8], thing: usize, built: &mut Built) -> Result<()> {
        let path = self.confinement.path(name);
        let moded = self.mode_at_once(thing).is_some();
        let thing = &self.tree.things[thing];
        let (set, skipped) = xattrs::make(thing, &path, self.pattern, self.confinement);
        built.xattrs += set;
        built.xattrs_skipped += skipped;
        finish(thing, &path, self.confinement, moded)
            .with_context(|| format!("cannot own '{}'", String::from_utf8_lossy(name)))
    }
}

/// Makes one object; `false` if it is refused.
fn make(
    thing: &Thing,
    path: &CStr,
    first_mode: u32,
    confinement: &Confinement,
    pattern: &Pattern,
    built: &mut Built,
) -> Result<bool> {
    let mode = thing.attributes.mode;
    match mode & libc::S_IFMT {
        libc::S_IFDIR => {
            make_directory(path)?;
            built.directories += 1;
        }
        libc::S_IFLNK if confinement.chrooted => {
            symlink(OsStr::from_bytes(&thing.target), as_path(path))?;
            built.others += 1;
        }
        libc::S_IFIFO | libc::S_IFSOCK => {
            make_node(path, mode & libc::S_IFMT | 0o600)?;
            built.others += 1;
        }
        libc::S_IFCHR | libc::S_IFBLK => {
            make_node(path, libc::S_IFSOCK | 0o600)?;
            built.stand_ins += 1;
        }
        libc::S_IFREG | 0 => {
            write_file(thing, path, first_mode, pattern)?;
            built.files += 1;
            built.bytes += thing.takes;
        }
        _ => {
            built.refused += 1;
            return Ok(false);
        }
    }
    Ok(true)
}

fn write_file(thing: &Thing, path: &CStr, mode: u32, pattern: &Pattern) -> Result<()> {
    let file = make_file(path, mode)?;
    let ranges = thing.written.ranges();
    for (from, to) in ranges {
        for at in (*from..*to).step_by(PIECE as usize) {
            let piece = PIECE.min(to - at) as usize;
            let bytes = pattern.bytes(thing.ino, at, piece);
            file.write_all_at(bytes.context("piece too long")?, at as u64)?;
        }
    }
    if ranges.last().map_or(0, |range| range.1) < thing.attributes.size {
        let ends = file.set_len(thing.attributes.size as u64);
        ends.context("cannot end in a hole")?;
    }
    Ok(())
}

fn finish(thing: &Thing, path: &CStr, confinement: &Confinement, moded: bool) -> Result<()> {
    let attributes = &thing.attributes;
    let link = attributes.mode & libc::S_IFMT == libc::S_IFLNK;
    let time = libc::timespec {
        tv_sec: attributes.mtime_ns.div_euclid(1_000_000_000),
        tv_nsec: attributes.mtime_ns.rem_euclid(1_000_000_000),
    };
    let owner = (attributes.uid, attributes.gid);
    // SAFETY: plain system calls.
    let own = owner == unsafe { (libc::geteuid(), libc::getegid()) };
    if confinement.owners && !own {
        lchown(as_path(path), Some(owner.0), Some(owner.1))?;
    }
    if !link && !moded {
        let mode = Permissions::from_mode(attributes.mode & 0o7777);
        fs::set_permissions(as_path(path), mode)?;
    }
    if attributes.mtime_ns > 0 {
        let (times, flags) = ([time, time], libc::AT_SYMLINK_NOFOLLOW);
        // SAFETY: the path is NUL-terminated and `times` has two elements.
        unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), flags) };
    }
    Ok(())
}
