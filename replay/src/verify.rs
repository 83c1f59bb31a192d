//! Compares the target with the state the trace must have left behind.

use foldhash::{HashMap, HashMapExt};
use serde_json::{Value, json};
use std::ffi::CString;
use std::fs::{self, File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::model::state::{Thing, Tree};
use crate::pattern::Pattern;
use crate::sandbox::Confinement;
use crate::semantics;
use crate::xattrs;

const MAX_EXAMPLES: usize = 20;
const PIECE: usize = 1 << 20;

/// Names compared and what differed.
#[derive(Debug, Default)]
pub struct Comparison {
    pub checked: u64,
    pub mismatched: u64,
    pub examples: Vec<Value>,
}

impl Comparison {
    pub fn json(&self) -> Value {
        json!({"checked": self.checked, "mismatched": self.mismatched, "examples": self.examples})
    }

    fn note(&mut self, path: &[u8], what: &str, expected: impl ToString, found: impl ToString) {
        self.mismatched += 1;
        if self.examples.len() < MAX_EXAMPLES {
            self.examples.push(json!({
                "path": String::from_utf8_lossy(path),
                "what": what,
                "expected": expected.to_string(),
                "found": found.to_string(),
            }));
        }
    }
}

/// Walks the target and compares every name, attribute and byte with the expected tree.
pub fn compare(tree: &Tree, confinement: &Confinement, pattern: &Pattern) -> Comparison {
    let mut found = HashMap::new();
    let root = PathBuf::from(std::ffi::OsString::from_vec(confinement.prefix.clone()));
    walk(&root, &root, &mut found);
    let mut comparison = Comparison::default();
    for (name, thing) in &tree.names {
        let thing = &tree.things[*thing];
        if !makes(thing, confinement) {
            continue;
        }
        comparison.checked += 1;
        match found.remove(name.as_slice()) {
            Some((path, metadata)) => {
                if let Some((what, expected, got)) =
                    differs(thing, &path, &metadata, confinement, pattern)
                {
                    comparison.note(name, what, expected, got);
                }
            }
            None if name.is_empty() => {}
            None => comparison.note(name, "name", "present", "absent"),
        }
    }
    let mut extra: Vec<_> = found.into_keys().collect();
    extra.sort();
    for name in extra {
        comparison.checked += 1;
        comparison.note(&name, "name", "absent", "present");
    }
    comparison
}

/// Whether the fixture and the replayer would have made this object at all.
fn makes(thing: &Thing, confinement: &Confinement) -> bool {
    match thing.attributes.mode & libc::S_IFMT {
        libc::S_IFLNK => confinement.chrooted,
        _ => true,
    }
}

fn walk(root: &Path, at: &Path, found: &mut HashMap<Vec<u8>, (PathBuf, Metadata)>) {
    let Ok(entries) = fs::read_dir(at) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        let name = path
            .strip_prefix(root)
            .unwrap_or(&path)
            .as_os_str()
            .as_bytes()
            .to_vec();
        let directory = metadata.is_dir();
        if name == b"lost+found" {
            continue;
        }
        found.insert(name, (path.clone(), metadata));
        if directory {
            walk(root, &path, found);
        }
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

/// The first byte that is neither the pattern where it was written nor zero in a hole.
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

/// Goes on behind what is a hole and should be one, which would take hours to read in a huge file.
fn past_hole(thing: &Thing, file: &mut File, at: i64) -> i64 {
    let ranges = thing.written.ranges();
    let next = ranges.partition_point(|range| range.1 <= at);
    let wanted = ranges.get(next).map(|range| range.0.max(at));
    // SAFETY: plain system call on an open file.
    let found = unsafe { libc::lseek(file.as_raw_fd(), at, libc::SEEK_DATA) };
    // Behind the last data there is none; a filesystem that cannot tell says that all is data.
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
