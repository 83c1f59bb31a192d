//! Compares the target with the state the trace must have left behind.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::model::expect::tree::{Thing, Tree};
use crate::pattern::Pattern;
use crate::sandbox::Confinement;
use crate::semantics;
use crate::xattrs;

const MAX_EXAMPLES: usize = 20;
const PIECE: usize = 1 << 20;
/// Directories read at once: the caches are cold, and a disk serves several as fast as one.
const THREADS: usize = 4;

/// Number of names compared, and differences.
#[derive(Debug, Default)]
pub struct Comparison {
    pub checked: u64,
    pub mismatched: u64,
    /// The first examples of names that are expected, then of others.
    examples: BTreeMap<(bool, Vec<u8>), Value>,
}

impl Comparison {
    pub fn json(&self) -> Value {
        let examples: Vec<&Value> = self.examples.values().collect();
        json!({"checked": self.checked, "mismatched": self.mismatched, "examples": examples})
    }

    fn note(&mut self, path: &[u8], (what, expected, found): Difference, extra: bool) {
        self.mismatched += 1;
        let example = json!({
            "path": String::from_utf8_lossy(path),
            "what": what,
            "expected": expected,
            "found": found,
        });
        self.examples.insert((extra, path.to_vec()), example);
        self.shorten();
    }

    fn shorten(&mut self) {
        while self.examples.len() > MAX_EXAMPLES {
            self.examples.pop_last();
        }
    }

    fn add(&mut self, part: Self) {
        self.checked += part.checked;
        self.mismatched += part.mismatched;
        self.examples.extend(part.examples);
        self.shorten();
    }
}

/// Walks the target and compares every name, attribute and byte with the expected tree.
pub fn compare(tree: &Tree, confinement: &Confinement, pattern: &Pattern) -> Comparison {
    let root = PathBuf::from(std::ffi::OsString::from_vec(confinement.prefix.clone()));
    let names = tree
        .names
        .iter()
        .map(|(name, thing)| (name.as_slice(), &tree.things[*thing]));
    let walk = Walk {
        names: names.collect(),
        met: tree.names.iter().map(|_| AtomicBool::new(false)).collect(),
        confinement,
        pattern,
        waiting: Mutex::new((vec![root.clone()], 0)),
        root,
        more: Condvar::new(),
    };
    let mut comparison = Comparison::default();
    thread::scope(|scope| {
        let running: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| walk.work())).collect();
        for thread in running {
            comparison.add(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
    });
    for ((name, thing), met) in walk.names.iter().zip(&walk.met) {
        if makes(thing, confinement) {
            comparison.checked += 1;
            if !met.load(Relaxed) && !name.is_empty() {
                comparison.note(name, absent("present", "absent"), false);
            }
        }
    }
    comparison
}

fn absent(expected: &str, found: &str) -> Difference {
    ("name", expected.into(), found.into())
}

/// A walk of several threads over the target.
struct Walk<'a> {
    root: PathBuf,
    /// Expected names, sorted.
    names: Vec<(&'a [u8], &'a Thing)>,
    met: Vec<AtomicBool>,
    confinement: &'a Confinement,
    pattern: &'a Pattern,
    /// Directories to be read, and number of those being read.
    waiting: Mutex<(Vec<PathBuf>, usize)>,
    more: Condvar,
}

impl Walk<'_> {
    /// Reads directories until there are no more.
    fn work(&self) -> Comparison {
        let mut comparison = Comparison::default();
        let mut waiting = self.waiting();
        loop {
            let Some(directory) = waiting.0.pop() else {
                if waiting.1 == 0 {
                    return comparison;
                }
                waiting = self
                    .more
                    .wait(waiting)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            waiting.1 += 1;
            drop(waiting);
            let below = self.look_into(&directory, &mut comparison);
            waiting = self.waiting();
            waiting.0.extend(below.into_iter().rev());
            waiting.1 -= 1;
            self.more.notify_all();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, (Vec<PathBuf>, usize)> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares the entries of a directory; returns the directories among them.
    fn look_into(&self, directory: &Path, comparison: &mut Comparison) -> Vec<PathBuf> {
        let mut below = Vec::new();
        let Ok(entries) = fs::read_dir(directory) else {
            return below;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let Ok(metadata) = fs::symlink_metadata(&path) else {
                continue;
            };
            let name = path.strip_prefix(&self.root).unwrap_or(&path);
            let name = name.as_os_str().as_bytes();
            if name == b"lost+found" {
                continue;
            }
            self.compare(name, &path, &metadata, comparison);
            if metadata.is_dir() {
                below.push(path);
            }
        }
        below
    }

    fn compare(&self, name: &[u8], path: &Path, metadata: &Metadata, comparison: &mut Comparison) {
        let known = self.names.binary_search_by_key(&name, |(name, _)| name);
        match known.map(|at| (at, self.names[at].1)) {
            Ok((at, thing)) if makes(thing, self.confinement) => {
                self.met[at].store(true, Relaxed);
                let found = differs(thing, path, metadata, self.confinement, self.pattern);
                if let Some(difference) = found {
                    comparison.note(name, difference, false);
                }
            }
            _ => {
                comparison.checked += 1;
                comparison.note(name, absent("absent", "present"), true);
            }
        }
    }
}

/// Returns whether fixture and replayer make such an object at all.
fn makes(thing: &Thing, confinement: &Confinement) -> bool {
    match thing.attributes.mode & libc::S_IFMT {
        libc::S_IFLNK => confinement.chrooted,
        _ => true,
    }
}

type Difference = (&'static str, String, String);

fn differs(
    thing: &Thing,
    path: &Path,
    metadata: &Metadata,
    confinement: &Confinement,
    pattern: &Pattern,
) -> Option<Difference> {
    attributes_differ(thing, path, metadata, confinement, pattern).or_else(|| {
        let name = CString::new(path.as_os_str().as_bytes()).ok()?;
        let (xattr, wanted, got) = xattrs::differ(thing, &name, pattern, confinement)?;
        let shown = String::from_utf8_lossy(&xattr);
        Some(("xattr", format!("{shown}: {wanted}"), got))
    })
}

fn attributes_differ(
    thing: &Thing,
    path: &Path,
    metadata: &Metadata,
    confinement: &Confinement,
    pattern: &Pattern,
) -> Option<Difference> {
    let expected = &thing.attributes;
    let octal = |mode: u32| format!("{mode:o}");
    let (wanted, got) = (expected.mode & libc::S_IFMT, metadata.mode() & libc::S_IFMT);
    if wanted != 0 && wanted != got && !semantics::stands_in(got, wanted) {
        return Some(("type", octal(wanted), octal(got)));
    }
    if wanted == libc::S_IFLNK {
        let target = fs::read_link(path).unwrap_or_default();
        let same = target.as_os_str().as_bytes() == thing.target;
        let wanted = String::from_utf8_lossy(&thing.target).into_owned();
        return (!same).then(|| ("target", wanted, target.display().to_string()));
    }
    let (wanted, got) = (expected.mode & 0o7777, metadata.mode() & 0o7777);
    if wanted != got {
        return Some(("mode", octal(wanted), octal(got)));
    }
    let (wanted, got) = (
        (expected.uid, expected.gid),
        (metadata.uid(), metadata.gid()),
    );
    if confinement.owners && wanted != got {
        return Some(("owner", format!("{wanted:?}"), format!("{got:?}")));
    }
    if !semantics::is_regular(expected.mode) {
        return None;
    }
    file_differs(thing, path, metadata, pattern)
}

fn file_differs(
    thing: &Thing,
    path: &Path,
    metadata: &Metadata,
    pattern: &Pattern,
) -> Option<Difference> {
    let size = metadata.len() as i64;
    if !thing.unsized_ && thing.attributes.size != size {
        return Some(("size", thing.attributes.size.to_string(), size.to_string()));
    }
    if metadata.nlink() != u64::from(thing.nlink) {
        return Some((
            "nlink",
            thing.nlink.to_string(),
            metadata.nlink().to_string(),
        ));
    }
    if thing.blurred {
        return None;
    }
    let at = first_wrong_byte(thing, path, pattern)?;
    Some((
        "data",
        "the pattern".into(),
        format!("another byte at {at}"),
    ))
}

/// Returns the first byte that is neither the pattern where it was written nor zero in a hole.
fn first_wrong_byte(thing: &Thing, path: &Path, pattern: &Pattern) -> Option<i64> {
    let mut file = File::open(path).ok()?;
    let mut piece = vec![0_u8; PIECE.min(thing.attributes.size.max(1) as usize)];
    let mut wanted = Vec::new();
    let mut at = 0_i64;
    loop {
        at = past_hole(thing, &mut file, at);
        let got = file.read(&mut piece).unwrap_or(0);
        if got == 0 {
            return None;
        }
        expect(thing, at, got, pattern, &mut wanted);
        if wanted != piece[..got] {
            let wrong = wanted
                .iter()
                .zip(&piece)
                .position(|(a, b)| a != b)
                .unwrap_or(0);
            return Some(at + wrong as i64);
        }
        at += got as i64;
    }
}

/// Skips what is a hole and should be one: in a huge file, reading it would take hours.
fn past_hole(thing: &Thing, file: &mut File, at: i64) -> i64 {
    let ranges = thing.written.ranges();
    let next = ranges.partition_point(|range| range.1 <= at);
    let wanted = ranges.get(next).map(|range| range.0.max(at));
    // SAFETY: plain system call on an open file.
    let found = unsafe { libc::lseek(file.as_raw_fd(), at, libc::SEEK_DATA) };
    // SEEK_DATA fails behind the last data; a filesystem without holes reports all as data.
    let found = (found >= 0).then_some(found);
    let to = found.into_iter().chain(wanted).min();
    let to = to.unwrap_or(thing.attributes.size).max(at);
    match file.seek(SeekFrom::Start(to as u64)) {
        Ok(_) => to,
        Err(_) => at,
    }
}

fn expect(thing: &Thing, at: i64, len: usize, pattern: &Pattern, wanted: &mut Vec<u8>) {
    wanted.clear();
    wanted.resize(len, 0);
    let end = at + len as i64;
    let ranges = thing.written.ranges();
    let first = ranges.partition_point(|range| range.1 <= at);
    for (start, stop) in ranges[first..].iter().take_while(|range| range.0 < end) {
        let (from, to) = ((*start).max(at), (*stop).min(end));
        if from < to
            && let Some(bytes) = pattern.bytes(thing.ino, from, (to - from) as usize)
        {
            wanted[(from - at) as usize..(to - at) as usize].copy_from_slice(bytes);
        }
    }
}
