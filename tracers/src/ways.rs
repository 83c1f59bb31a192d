//! Targets of names, as `names.bpf.h` looks them up: absolute names, and names relative to
//! directories above the spools.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, MapMut};

use crate::aliases;
use crate::host::Spool;
use crate::mounts::Mounts;

/// Where a name leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To a mount below a spool.
    Out,
    /// To a spool on this device.
    In(u32),
}

impl Way {
    /// Return the value in `ways`: of names that lead to a spool WAY_IN and its device.
    fn code(self) -> [u8; 4] {
        match self {
            Way::Out => 1u32.to_ne_bytes(),
            Way::In(dev) => (2 + dev).to_ne_bytes(),
        }
    }
}

/// `NAME_COMPARED`.
const COMPARED: usize = 244;
/// Bytes of a key before the name.
const BEFORE: usize = 16;
/// `VIEW_PLACE`.
const VIEW: u32 = u32::MAX;
/// Number of keys that all views together may have.
const ROOM_FOR_VIEWS: usize = 1 << 16;
/// `MAX_HEADS`.
const HEADS: usize = 16;

/// Names of the spools and of mounts below them.
pub type Names = BTreeMap<PathBuf, Way>;

/// Return the names that lead to spools, and those below where another filesystem is mounted.
///
/// `leading` are the names of spools, each with the place here that it stands for.
pub fn names<'a>(
    leading: impl Iterator<Item = (&'a PathBuf, &'a PathBuf)>,
    spools: &[Spool],
    mounts: &Mounts,
) -> Names {
    let mut names: Names = leading
        .map(|(name, here)| (name.clone(), Way::In(device(here, spools))))
        .collect();
    let others: BTreeMap<&Path, _> = mounts.all.iter().map(|m| (m.mount.as_path(), m)).collect();
    for (place, mount) in others {
        let nearest = place.ancestors().find_map(|above| names.get(above));
        let is_new = !names.contains_key(place);
        if is_new && matches!(nearest, Some(Way::In(_))) && mounts.is_reachable(mount) {
            names.insert(place.to_owned(), Way::Out);
        }
    }
    names
}

/// Return the device of the spool on which a place lies; 0 if it lies on none.
fn device(place: &Path, spools: &[Spool]) -> u32 {
    let holding = spools
        .iter()
        .filter(|spool| place.starts_with(&spool.mount));
    holding
        .max_by_key(|spool| spool.mount.as_os_str().len())
        .map_or(0, |spool| spool.dev)
}

/// Return the names of the recorder's own view, as they are now.
pub fn own_names(spools: &[Spool], mounts: &Mounts) -> Result<Names> {
    let aliases = aliases::of_all(spools)?;
    let mine = spools.iter().map(|spool| (&spool.mount, &spool.mount));
    Ok(names(mine.chain(&aliases), spools, mounts))
}

/// The names of the recorder's own view, before they are written to the maps.
#[derive(Debug)]
pub struct Ways {
    keys: BTreeMap<Vec<u8>, Way>,
    places: BTreeSet<(u64, u32)>,
    /// The keys of each name that leads off a spool.
    pub out: BTreeMap<PathBuf, Vec<Vec<u8>>>,
    pub heads: Heads,
}

impl Ways {
    /// Return the names of the present moment.
    pub fn own(spools: &[Spool]) -> Result<Ways> {
        let mounts = Mounts::own().context("Failed to read mounts")?;
        Ok(Ways::of(&own_names(spools, &mounts)?, &mounts))
    }

    /// Return the keys of every name from the root directory and from each directory above it.
    pub fn of(names: &Names, mounts: &Mounts) -> Ways {
        let mut ways = Ways {
            keys: BTreeMap::new(),
            places: BTreeSet::new(),
            out: BTreeMap::new(),
            heads: Heads::of(names),
        };
        let mut directories = HashMap::new();
        for (name, way) in names {
            let mut all = spellings(0, 0, name, *way);
            for above in name.ancestors().skip(1) {
                let found = directories
                    .entry(above)
                    .or_insert_with(|| identity(above, mounts));
                let (Some((ino, dev)), Ok(rest)) = (*found, name.strip_prefix(above)) else {
                    continue;
                };
                ways.places.insert((ino, dev));
                all.extend(spellings(ino, dev, rest, *way));
            }
            ways.keys.extend(all.iter().map(|key| (key.clone(), *way)));
            if *way == Way::Out {
                ways.out.insert(name.clone(), all);
            }
        }
        ways
    }

    /// Return the size for the map of names, with room for those of views.
    pub fn room(&self) -> u32 {
        (self.keys.len() + ROOM_FOR_VIEWS) as u32
    }

    /// Return the size for the map of directories.
    pub fn n_places(&self) -> u32 {
        self.places.len().max(1) as u32
    }

    /// Return `above` of state.bpf.h.
    pub fn bits(&self) -> [u64; 64] {
        let mut bits = [0; 64];
        for (ino, _) in &self.places {
            bits[(ino >> 6 & 63) as usize] |= 1 << (ino & 63);
        }
        bits
    }

    /// Write the names and directories to the maps.
    pub fn enter(&self, ways: &MapMut<'_>, places: &MapMut<'_>) -> Result<()> {
        for (ino, dev) in &self.places {
            let key = [*ino, u64::from(*dev)]; // struct place
            places
                .update(bytemuck::cast_slice(&key), &[1], MapFlags::ANY)
                .context("Failed to write a directory above a spool")?;
        }
        for (key, way) in &self.keys {
            ways.update(key, &way.code(), MapFlags::ANY)
                .context("Failed to write a name of a spool")?;
        }
        Ok(())
    }
}

/// Return the keys of absolute names.
fn keys(names: &Names, ino: u64, dev: u32) -> BTreeMap<Vec<u8>, Way> {
    let all = names.iter().flat_map(|(name, way)| {
        let keys = spellings(ino, dev, name, *way);
        keys.into_iter().map(|key| (key, *way))
    });
    all.collect()
}

/// Write the absolute names of a view; return false if there was no room for all.
pub fn enter_view(map: &MapMut<'_>, number: u32, names: &Names) -> bool {
    let keys = keys(names, u64::from(number), VIEW);
    let mut entered = keys
        .iter()
        .map(|(key, way)| map.update(key, &way.code(), MapFlags::ANY));
    entered.all(|done| done.is_ok())
}

/// Remove the names of a view.
pub fn remove_view(map: &MapMut<'_>, number: u32, names: &Names) {
    for key in keys(names, u64::from(number), VIEW).keys() {
        let _ = map.delete(key); // there may have been no room for it
    }
}

/// Return the inode of a directory and the device of its superblock; stat(2) gives other devices
/// for btrfs subvolumes.
fn identity(directory: &Path, mounts: &Mounts) -> Option<(u64, u32)> {
    let ino = fs::metadata(directory).ok()?.ino();
    Some((ino, mounts.holding(directory)?.dev))
}

/// Return the keys of a name as seen from a directory: for the names below it, and for itself. A
/// name that is too long is cut, and every name that begins like it is taken for it. That is done
/// only for names of spools: for a name that leads off a spool it would lose names of the spool.
fn spellings(ino: u64, dev: u32, name: &Path, way: Way) -> Vec<Vec<u8>> {
    let name = name.as_os_str().as_bytes();
    let key = |text: &[&[u8]]| key(ino, dev, &text.concat());
    match name {
        _ if name.len() >= COMPARED && way != Way::Out => vec![key(&[&name[..COMPARED]])],
        _ if name.len() >= COMPARED => Vec::new(),
        [.., b'/'] => vec![key(&[name])],
        _ => vec![key(&[name, b"/"]), key(&[name, b"\0"])],
    }
}

/// Return `struct name`, padded to the key size of the map.
fn key(ino: u64, dev: u32, text: &[u8]) -> Vec<u8> {
    let bits = 8 * (BEFORE - size_of::<u32>() + text.len()) as u32;
    let mut key = Vec::with_capacity(BEFORE + COMPARED);
    key.extend(bits.to_ne_bytes());
    key.extend(dev.to_ne_bytes());
    key.extend(ino.to_ne_bytes());
    key.extend(text);
    key.resize(BEFORE + COMPARED, 0);
    key
}

/// `struct heads`: the first bytes of the names of spools.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Heads {
    pub word: [u64; HEADS],
    pub mask: [u64; HEADS],
    pub n: u32,
    pub pad: u32,
}

impl Heads {
    /// Return the heads of names that lead to spools: eight bytes, or fewer if there would be too
    /// many heads.
    pub fn of(names: &Names) -> Heads {
        let spools = names.iter().filter(|(_, way)| **way != Way::Out);
        let spools: Vec<&[u8]> = spools
            .map(|(name, _)| name.as_os_str().as_bytes())
            .collect();
        let begin = |length: usize| -> BTreeSet<&[u8]> {
            let cut = spools.iter().map(|name| &name[..length.min(name.len())]);
            cut.collect()
        };
        let few = (1..=8).rev().map(begin).find(|few| few.len() <= HEADS);
        let mut heads = bytemuck::Zeroable::zeroed();
        let Heads { word, mask, n, .. } = &mut heads;
        for (i, head) in few.into_iter().flatten().enumerate() {
            let (mut text, mut ones) = ([0u8; 8], [0u8; 8]);
            text[..head.len()].copy_from_slice(head);
            ones[..head.len()].fill(0xff);
            (word[i], mask[i]) = (u64::from_ne_bytes(text), u64::from_ne_bytes(ones));
            *n += 1;
        }
        heads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(lines: &str, spools: &[&str]) -> Vec<(String, Way)> {
        let mounts = Mounts::parse(lines);
        let at = |place: &&str| Spool {
            mount: PathBuf::from(place),
            fstype: String::new(),
            options: String::new(),
            source: String::new(),
            dev: place.len() as u32,
            root: PathBuf::from("/"),
            id: 0,
        };
        let spools: Vec<Spool> = spools.iter().map(at).collect();
        let leading = spools.iter().map(|spool| (&spool.mount, &spool.mount));
        let names = names(leading, &spools, &mounts).into_iter();
        let named = names.map(|(name, way)| (name.display().to_string(), way));
        named.collect()
    }

    #[test]
    fn what_is_mounted_below_a_spool_is_none_of_it() {
        let lines = "1 1 8:1 / / rw - ext4 d rw\n2 1 0:5 / /proc rw - proc p rw\n\
                     3 2 0:6 / /proc/fs rw - nfsd n rw\n4 1 8:1 /m /srv/m rw - ext4 d rw\n\
                     5 4 0:7 / /srv/m/tmp rw - tmpfs t rw\n";
        let named = [
            ("/", Way::In(1)),
            ("/proc", Way::Out),
            ("/srv/m", Way::In(6)),
            ("/srv/m/tmp", Way::Out),
        ];
        assert_eq!(
            all(lines, &["/", "/srv/m"]),
            named.map(|(name, way)| (name.to_owned(), way))
        );
        assert_eq!(all(lines, &["/home"]), [("/home".to_owned(), Way::In(5))]);
    }

    #[test]
    fn names_of_any_length_and_number_have_keys() {
        let long = PathBuf::from(format!("/{}", "a/".repeat(200)));
        let names: Names = (0..3000)
            .map(|i| (PathBuf::from(format!("/srv/box{i}/mail")), Way::In(1)))
            .chain([(long, Way::In(1))])
            .collect();
        let keys = keys(&names, 0, 0);
        assert_eq!(keys.len(), 2 * 3000 + 1);
        assert!(keys.keys().all(|key| key.len() == BEFORE + COMPARED));
    }

    #[test]
    fn heads_are_few_and_miss_no_name() {
        let begins = |heads: &Heads, name: &str| {
            let mut first = [0u8; 8];
            let n = name.len().min(8);
            first[..n].copy_from_slice(&name.as_bytes()[..n]);
            let first = u64::from_ne_bytes(first);
            (0..heads.n as usize).any(|i| first & heads.mask[i] == heads.word[i])
        };
        let of = |names: &[String]| {
            let names = names.iter().map(|name| (PathBuf::from(name), Way::In(1)));
            Heads::of(&names.collect())
        };
        let few = of(&["/var/mail".to_owned(), "/srv".to_owned()]);
        assert_eq!(few.n, 2);
        assert!(begins(&few, "/var/mail/x") && begins(&few, "/srv/x"));
        assert!(!begins(&few, "/var/lib") && !begins(&few, "/sr"));
        let many: Vec<String> = (0..3000).map(|i| format!("/{i}/x")).collect();
        let heads = of(&many);
        assert!(heads.n as usize <= HEADS);
        assert!(many.iter().all(|name| begins(&heads, name)));
    }
}
