//! The meaning of absolute names in processes that see other mounts than the recorder: the answers
//! to `views.bpf.h`, and the translation of such names to the recorder's.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, MapMut};
use rustc_hash::{FxHashMap, FxHashSet};
use spoolscope_traces::calls;
use spoolscope_traces::records::{CALL_OTHER_VIEW, Syscall};

use crate::aliases;
use crate::below::Below;
use crate::host::{self, Spool};
use crate::mounts::{Mounts, join, mount_id};
use crate::ways::{self, Heads, Ways};

/// `mnt_namespace.event` cannot be read here and never has this value, so the first call asks.
const UNKNOWN_EVENT: u64 = u64::MAX;
/// Failed looks after which a view is left unknown, as where /proc hides processes.
const FAILURES: u32 = 8;

/// `struct view_key`: the root at which absolute names begin.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, bytemuck::Pod, bytemuck::Zeroable)]
struct Key {
    root_ino: u64,
    root_mount: u32,
    mount_ns: u32,
}

impl Key {
    fn of(task: impl std::fmt::Display) -> io::Result<Key> {
        let root = PathBuf::from(format!("/proc/{task}/root"));
        Ok(Key {
            root_ino: fs::metadata(&root)?.ino(),
            root_mount: mount_id(&root)?,
            mount_ns: namespace(&task)?,
        })
    }
}

fn namespace(task: impl std::fmt::Display) -> io::Result<u32> {
    Ok(fs::metadata(format!("/proc/{task}/ns/mnt"))?.ino() as u32)
}

/// `struct view`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct View {
    event: u64,
    number: u32,
    unsure: u32,
    heads: Heads,
}

/// `struct ring_view` without its head.
#[repr(C)]
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Question {
    key: Key,
    event: u64,
    tid: u32,
    pad: u32,
}

/// Translation of the absolute names of one view to the recorder's.
#[derive(Debug, Default)]
pub struct Names {
    /// Names of the spools in that view, each with its name here.
    spools: FxHashMap<Vec<u8>, Vec<u8>>,
    /// True if it has our root directory: other names are the same here.
    same_root: bool,
    /// Places of the spools here; a name of the view that reads like these leads elsewhere.
    places: Vec<Vec<u8>>,
}

fn place_of(spool: &Spool) -> Vec<u8> {
    spool.mount.as_os_str().as_bytes().to_vec()
}

/// Return true if a name is that of a directory, or one below it.
fn begins_with(name: &[u8], directory: &[u8]) -> bool {
    matches!(name.strip_prefix(directory), Some([] | [b'/', ..]))
}

/// Return the form of proc(5) for a name that lies below no root directory.
fn unreachable(name: &[u8]) -> Vec<u8> {
    [b"(unreachable)", name].concat()
}

impl Names {
    fn new(found: &BTreeMap<PathBuf, PathBuf>, same_root: bool, spools: &[Spool]) -> Names {
        let bytes = |path: &PathBuf| path.as_os_str().as_bytes().to_vec();
        let pairs = found
            .iter()
            .map(|(alias, here)| (bytes(alias), bytes(here)));
        // A filesystem mounted as the root directory is recognised by its device.
        Names {
            spools: pairs.filter(|(alias, _)| alias != b"/").collect(),
            same_root,
            places: spools.iter().map(place_of).collect(),
        }
    }

    /// Return an absolute path of that view, which may contain "//" and "/./", as a path here; None
    /// if it has no name here. If several names fit, the longest counts.
    fn here(&self, path: &[u8]) -> Option<Vec<u8>> {
        let (mut name, mut rest, mut found) = (Vec::new(), path, None);
        loop {
            let part = skip_slashes(rest);
            let end = part.iter().position(|byte| *byte == b'/');
            let end = end.unwrap_or(part.len());
            if end == 0 {
                break;
            }
            name.push(b'/');
            name.extend(&part[..end]);
            rest = &part[end..];
            if let Some(here) = self.spools.get(&name) {
                found = Some([here, rest].concat());
            }
        }
        let same = self.same_root && !self.reads_like_a_spool(&name);
        found.or_else(|| same.then(|| path.to_vec()))
    }

    fn reads_like_a_spool(&self, name: &[u8]) -> bool {
        let mut places = self.places.iter();
        places.any(|place| begins_with(name, place))
    }
}

fn mounted(spools: &[Spool], mounts: &Mounts) -> BTreeMap<PathBuf, PathBuf> {
    let found = spools.iter().map(|spool| aliases::mounted(spool, mounts));
    found.flatten().collect()
}

/// Return the mount of the root directory: the filesystem, and the directory of it.
fn root_of(mounts: &Mounts) -> Option<(u32, PathBuf)> {
    let mut roots = mounts.all.iter();
    let root = roots.rfind(|mount| mount.mount == Path::new("/"))?;
    Some((root.dev, root.root.clone()))
}

/// Remove leading slashes, and "." between slashes.
fn skip_slashes(mut path: &[u8]) -> &[u8] {
    loop {
        path = match path {
            [b'/', rest @ ..] => rest,
            [b'.', rest @ ..] if rest.first() == Some(&b'/') => rest,
            _ => return path,
        }
    }
}

/// The facts found out about one view.
#[derive(Debug, Default)]
struct Found {
    names: Names,
    /// Names that lead to the spools, and off them.
    ways: ways::Names,
    /// There may be other names.
    unsure: bool,
}

/// The names of a view that are in `ways`, and its number.
#[derive(Debug)]
struct Entered {
    number: u32,
    ways: ways::Names,
}

/// All views that were looked at.
#[allow(missing_debug_implementations)] // BPF maps have none
pub struct Views<'a> {
    maps: &'a ViewMaps<'a>,
    spools: &'a [Spool],
    own: Key,
    root: Option<(u32, PathBuf)>,
    /// Symbolic links to the spools, which also exist where our root directory is mounted
    /// elsewhere.
    links: BTreeMap<PathBuf, PathBuf>,
    /// By their number, from 1.
    known: Vec<Names>,
    entered: FxHashMap<Key, Entered>,
    /// Names that views had until a moment ago: calls may still be looking at them.
    old: Vec<Entered>,
    failures: FxHashMap<Key, u32>,
    /// Mounts below the spools.
    pub below: Below,
}

/// The maps of the kernel side.
#[allow(missing_debug_implementations)] // BPF maps have none
pub struct ViewMaps<'a> {
    views: &'a MapMut<'a>,
    asked: &'a MapMut<'a>,
    ways: &'a MapMut<'a>,
}

impl<'a> ViewMaps<'a> {
    pub fn of(views: &'a MapMut<'a>, asked: &'a MapMut<'a>, ways: &'a MapMut<'a>) -> Self {
        Self { views, asked, ways }
    }
}

impl<'a> Views<'a> {
    /// Return the views that exist now.
    pub fn of_now(maps: &'a ViewMaps<'a>, spools: &'a [Spool], ways: &Ways) -> Result<Views<'a>> {
        let own = Key::of("self").context("Failed to read the own root directory")?;
        let mounts = Mounts::own().context("Failed to read mounts")?;
        let mut views = Views {
            maps,
            spools,
            own,
            root: root_of(&mounts),
            links: spools.iter().flat_map(aliases::links).collect(),
            known: Vec::new(),
            entered: FxHashMap::default(),
            old: Vec::new(),
            failures: FxHashMap::default(),
            below: Below::own(own.mount_ns, spools, ways, &mounts),
        };
        views.look()?;
        Ok(views)
    }

    /// Look at the views of all processes. A process that ends meanwhile needs none.
    fn look(&mut self) -> Result<()> {
        let mut seen = FxHashSet::from_iter([self.own]);
        for pid in host::running()? {
            if let Ok(key) = Key::of(pid)
                && seen.insert(key)
                && let Ok(found) = self.find(pid, &key)
            {
                let here = |name: &Path| found.names.here(name.as_os_str().as_bytes());
                self.below.add(key.mount_ns, &found.ways, here);
                self.enter(key, UNKNOWN_EVENT, found);
            }
        }
        Ok(())
    }

    /// Answer the kernel side. If the task that asked is gone, the next one asks again.
    pub fn answer(&mut self, question: &Question) {
        if question.key == self.own {
            return self.look_again(question);
        }
        if let Ok(found) = self.find(question.tid, &question.key) {
            self.failures.remove(&question.key);
            return self.enter(question.key, question.event, found);
        }
        let failures = self.failures.entry(question.key).or_default();
        *failures += 1;
        if *failures < FAILURES {
            let _ = self.maps.asked.delete(bytemuck::bytes_of(&question.key));
        }
    }

    /// Update the recorder's own view after something was mounted or unmounted.
    fn look_again(&mut self, question: &Question) {
        if self.below.take_away(self.spools, self.maps.ways).is_err() {
            return; // until then, calls by names that may lead to the spool are recorded
        }
        let mut view: View = bytemuck::Zeroable::zeroed();
        view.event = question.event;
        let (at, view) = (bytemuck::bytes_of(&question.key), bytemuck::bytes_of(&view));
        let _ = self.maps.views.update(at, view, MapFlags::ANY);
    }

    /// Return the names that a task has for the spools; an error if it has another view by now.
    fn find(&self, task: u32, key: &Key) -> io::Result<Found> {
        let mounts = Mounts::of(task)?;
        // A root directory that is not a mount point has no line.
        let roots = mounts.all.iter().filter(|m| m.mount == Path::new("/"));
        let roots: Vec<u32> = roots.map(|root| root.id).collect();
        if !roots.is_empty() && !roots.contains(&key.root_mount) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut found = mounted(self.spools, &mounts);
        let unsure = roots.is_empty() && !self.add_below_root(task, key, &mut found)?;
        let same_root = self.root.is_some() && root_of(&mounts) == self.root;
        if same_root {
            // The links lead to a spool only where that is mounted at the same place as here.
            let own = found.iter().filter(|(alias, here)| alias == here);
            let own: Vec<PathBuf> = own.map(|(alias, _)| alias.clone()).collect();
            for (alias, here) in &self.links {
                if own.iter().any(|spool| here.starts_with(spool)) {
                    found.entry(alias.clone()).or_insert_with(|| here.clone());
                }
            }
        }
        Ok(Found {
            ways: ways::names(found.iter(), self.spools, &mounts),
            names: Names::new(&found, same_root, self.spools),
            unsure,
        })
    }

    /// Add the spools below a root directory that is not a mount point: spools that are a directory
    /// of their filesystem are no mount points either. Return false if their place cannot be
    /// determined.
    fn add_below_root(
        &self,
        task: u32,
        key: &Key,
        found: &mut BTreeMap<PathBuf, PathBuf>,
    ) -> io::Result<bool> {
        if !self.spools.iter().any(Spool::is_part) {
            return Ok(true);
        }
        if key.mount_ns != self.own.mount_ns {
            return Ok(false);
        }
        let root = fs::read_link(format!("/proc/{task}/root"))?;
        for spool in self.spools {
            if let Ok(rest) = spool.mount.strip_prefix(&root) {
                found.insert(join(Path::new("/"), rest), spool.mount.clone());
            }
        }
        Ok(true)
    }

    /// Enter a view; if its names are the same as before, it keeps its number.
    fn enter(&mut self, key: Key, event: u64, found: Found) {
        let before = self.entered.get(&key);
        let same = before.filter(|before| before.ways == found.ways);
        let same = same.map(|same| same.number);
        let number = same.unwrap_or(self.known.len() as u32 + 1);
        let fits = same.is_some() || ways::enter_view(self.maps.ways, number, &found.ways);
        let view = View {
            event,
            number,
            unsure: u32::from(found.unsure || !fits),
            heads: Heads::of(&found.ways),
        };
        if same.is_some() {
            self.known[number as usize - 1] = found.names;
        } else {
            self.known.push(found.names);
        }
        // A full map leaves the view unknown, and its calls unjudged.
        let (at, view) = (bytemuck::bytes_of(&key), bytemuck::bytes_of(&view));
        let _ = self.maps.views.update(at, view, MapFlags::ANY);
        if same.is_none() {
            let ways = found.ways;
            self.forget();
            self.old
                .extend(self.entered.insert(key, Entered { number, ways }));
        }
    }

    /// Remove names that views had before.
    fn forget(&mut self) {
        for old in self.old.drain(..) {
            ways::remove_view(self.maps.ways, old.number, &old.ways);
        }
    }

    /// Return the names of a view by its number; None if it was not looked at yet.
    pub fn names(&self, number: u32) -> Option<&Names> {
        self.known.get((number as usize).wrapping_sub(1))
    }
}

/// Translate the absolute names of a call of another view to the recorder's; empty if they have no
/// name here.
pub fn rewrite(names: Option<&Names>, call: &mut Syscall, path: &mut Vec<u8>, path2: &mut Vec<u8>) {
    call.flags |= CALL_OTHER_VIEW;
    let args = calls::by_id(call.call).map_or(&[][..], |known| &known.args);
    for (word, text, longer) in [
        ("path", path, &mut call.longer),
        ("path2", path2, &mut call.longer2),
    ] {
        if args.contains(&word) && text.first() == Some(&b'/') {
            let before = text.len() as i16;
            *text = names.and_then(|names| names.here(text)).unwrap_or_default();
            *longer = text.len() as i16 - before;
        }
    }
}

/// For the snapshot: the kernel gives names of files of another namespace as that namespace has
/// them.
#[derive(Debug)]
pub struct Foreign {
    spools: Vec<Spool>,
    own: u32,
    by_root: FxHashMap<(u32, PathBuf), Option<Rc<Names>>>,
    by_pid: FxHashMap<u32, Option<Rc<Names>>>,
}

impl Foreign {
    pub fn new(spools: &[Spool]) -> Result<Foreign> {
        Ok(Foreign {
            spools: spools.to_vec(),
            own: namespace("self").context("Failed to read the own namespace")?,
            by_root: FxHashMap::default(),
            by_pid: FxHashMap::default(),
        })
    }

    /// Return a working directory as it reads here; `dev` is 0 if its device is unknown. That of
    /// a chrooted process in another namespace may read like the spool and be another filesystem.
    pub fn directory(&mut self, pid: u32, dev: u32, path: Vec<u8>) -> Vec<u8> {
        let here = self.here(pid, path);
        let on_spool = dev == 0 || self.spools.iter().any(|spool| spool.dev == dev);
        let mut places = self.spools.iter().map(place_of);
        if on_spool || !places.any(|place| begins_with(&here, &place)) || self.shares_mounts(pid) {
            return here;
        }
        unreachable(&here)
    }

    fn shares_mounts(&self, pid: u32) -> bool {
        namespace(pid).is_ok_and(|number| number == self.own)
    }

    /// Return a path of a process as it reads here. One that has no name here begins as those of
    /// proc(5) do that lie below no root directory.
    pub fn here(&mut self, pid: u32, path: Vec<u8>) -> Vec<u8> {
        let names = match self.by_pid.get(&pid) {
            Some(names) => names.clone(),
            None => {
                let names = self.look(pid);
                self.by_pid.insert(pid, names.clone());
                names
            }
        };
        match names.map(|names| names.here(&path)) {
            None => path,
            Some(here) => here.unwrap_or_else(|| unreachable(&path)),
        }
    }

    fn look(&mut self, pid: u32) -> Option<Rc<Names>> {
        let number = namespace(pid).ok().filter(|number| *number != self.own)?;
        // These names begin at the root of the namespace, those of mountinfo at the root of the
        // process.
        let root = fs::read_link(format!("/proc/{pid}/root")).ok()?;
        let (spools, top) = (&self.spools, root.clone());
        // Below another root directory mountinfo leaves out mounts, also that of a spool.
        let all = if top == Path::new("/") {
            &spools[..]
        } else {
            &[]
        };
        let names = || {
            let found = mounted(spools, &Mounts::of(pid).ok()?).into_iter();
            let below = found.map(|(alias, here)| {
                let name = alias.strip_prefix("/").unwrap_or(&alias);
                (join(&top, name), here)
            });
            Some(Rc::new(Names::new(&below.collect(), true, all)))
        };
        self.by_root
            .entry((number, root))
            .or_insert_with(names)
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pairs: &[(&str, &str)]) -> Names {
        let pairs = pairs
            .iter()
            .map(|(a, b)| (PathBuf::from(a), PathBuf::from(b)));
        Names::new(&pairs.collect(), false, &[])
    }

    fn here(names: &Names, path: &str) -> Option<String> {
        let found = names.here(path.as_bytes())?;
        Some(String::from_utf8_lossy(&found).into_owned())
    }

    #[test]
    fn the_longest_name_counts_and_ends_with_a_component() {
        let names = names(&[("/srv", "/var/mail"), ("/srv/box", "/var/mail/alice")]);
        assert_eq!(
            here(&names, "/srv/new/1").as_deref(),
            Some("/var/mail/new/1")
        );
        assert_eq!(
            here(&names, "/srv/box/1").as_deref(),
            Some("/var/mail/alice/1")
        );
        assert_eq!(here(&names, "/srv").as_deref(), Some("/var/mail"));
        assert_eq!(here(&names, "/srv2/x"), None);
        assert_eq!(here(&names, "/var/mail/x"), None);
    }

    #[test]
    fn untidy_paths_keep_what_follows_the_name() {
        let names = names(&[("/srv/spool", "/var/mail")]);
        let found = here(&names, "//srv/././/spool//a/./b/");
        assert_eq!(found.as_deref(), Some("/var/mail//a/./b/"));
        assert_eq!(here(&names, "/srv/.spool/x"), None);
    }

    #[test]
    fn names_that_lead_elsewhere_are_not_kept() {
        let call = calls::all().iter().find(|call| call.name == "rename");
        let mut call = Syscall {
            call: call.map_or(0, |call| call.id),
            ..Syscall::default()
        };
        let (mut path, mut path2) = (b"/etc/passwd".to_vec(), b"relative".to_vec());
        let views = names(&[("/srv", "/var/mail")]);
        rewrite(Some(&views), &mut call, &mut path, &mut path2);
        assert_eq!((path.as_slice(), call.longer), (&b""[..], -11));
        assert_eq!((path2.as_slice(), call.longer2), (&b"relative"[..], 0));
        assert_eq!(call.flags, CALL_OTHER_VIEW);
    }

    #[test]
    fn with_our_root_directory_other_names_stay() {
        let names = Names {
            same_root: true,
            ..names(&[("/srv", "/var/mail")])
        };
        assert_eq!(here(&names, "/srv/a").as_deref(), Some("/var/mail/a"));
        assert_eq!(here(&names, "/etc").as_deref(), Some("/etc"));
    }

    #[test]
    fn another_filesystem_at_the_place_of_a_spool_has_no_name_here() {
        let names = Names {
            same_root: true,
            places: vec![b"/var/mail".to_vec()],
            ..names(&[("/srv", "/var/mail")])
        };
        assert_eq!(here(&names, "/srv/a").as_deref(), Some("/var/mail/a"));
        assert_eq!(here(&names, "/var//mail/a"), None);
        assert_eq!(here(&names, "/var/mail"), None);
        assert_eq!(here(&names, "/var/mails").as_deref(), Some("/var/mails"));
    }
}
