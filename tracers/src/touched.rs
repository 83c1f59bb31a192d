//! Finds the directories that calls use. It follows working directories and descriptors of
//! directories as texts: enough to list a directory soon after its first use. The reader later
//! resolves names exactly, with renames and inodes; a directory that moved meanwhile is not found
//! here and is requested again at its next use.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use spoolscope_traces::calls::{self, Effect};
use spoolscope_traces::records::{CALL_OTHER_VIEW, OpenFile, Syscall, TASK_EXIT, TASK_FORK, Task};

use crate::host::{self, Spool};
use crate::lister::{self, Control, FAILED, Wanted, Wish};
use crate::rows::Names;
use crate::snapshot_items::Found;

/// Number of requests for a directory that was not found where a call named it.
const TRIES: u32 = 100;

/// Positions of the arguments of a call that matter here, and its effect.
#[derive(Debug, Clone, Copy)]
struct Shape {
    fd: Option<usize>,
    dirfd: Option<usize>,
    dirfd2: Option<usize>,
    path: bool,
    path2: bool,
    /// `None` also for effects that are not followed here.
    effect: Effect,
}

static SHAPES: LazyLock<Vec<Shape>> = LazyLock::new(|| calls::all().iter().map(shape).collect());

fn shape(call: &calls::Call) -> Shape {
    let at = |word| call.args.iter().position(|arg| *arg == word);
    Shape {
        fd: at("fd"),
        dirfd: at("dirfd"),
        dirfd2: at("dirfd2"),
        path: at("path").is_some(),
        path2: at("path2").is_some(),
        effect: match call.effect {
            Effect::Closes if call.kind == "close_range" => Effect::None,
            Effect::Opens
            | Effect::Closes
            | Effect::Duplicates
            | Effect::Enters
            | Effect::Roots
            | Effect::Lists
            | Effect::Renames
            | Effect::Links => call.effect,
            _ => Effect::None,
        },
    }
}

/// A call or task event to follow, at the time it returned.
#[derive(Debug)]
enum Event {
    Call(Box<Syscall>, Vec<u8>, Vec<u8>),
    Task(Task),
}

impl Event {
    fn time_ns(&self) -> u64 {
        match self {
            Event::Call(call, ..) => call.end_ns,
            Event::Task(task) => task.ts_ns,
        }
    }
}

/// Directories from which a process resolves names.
#[derive(Debug, Default, Clone)]
struct Process {
    cwd: Option<Rc<[u8]>>,
    root: Option<Rc<[u8]>>,
    directories: FxHashMap<i32, Rc<[u8]>>,
}

/// A directory that was requested.
#[derive(Debug)]
struct Asked {
    wanted: Arc<Wanted>,
    tries: u32,
}

impl Asked {
    fn listed_ns(&self) -> u64 {
        self.wanted.listed_ns.load(Ordering::Acquire)
    }
}

/// Directories that calls use, and the thread that lists them.
#[derive(Debug)]
pub struct Touched {
    spools: Vec<Spool>,
    rate: Option<u32>,
    aliases: FxHashMap<Vec<u8>, Vec<u8>>,
    processes: FxHashMap<u32, Process>,
    /// The facts of the segment before.
    pub facts_before: Value,
    /// Events not followed yet: rings are read one after the other.
    pending: Vec<Event>,
    asked: FxHashMap<Vec<u8>, Asked>,
    /// Those of `asked` that were not listed when last looked at, in order.
    unlisted: BTreeSet<Vec<u8>>,
    control: Arc<Control>,
    wishes: Option<Sender<(u32, Wish)>>,
    waiting: Option<Receiver<(u32, Wish)>>,
    thread: Option<Lister>,
}

#[derive(Debug)]
struct Lister {
    found: Receiver<Names>,
    thread: JoinHandle<Result<()>>,
}

impl Touched {
    pub fn new(
        spools: &[Spool],
        aliases: &BTreeMap<PathBuf, PathBuf>,
        rate: Option<u32>,
    ) -> Touched {
        let (wishes, waiting) = channel();
        let bytes = |path: &PathBuf| path.as_os_str().as_bytes().to_vec();
        let aliases = aliases.iter().map(|(a, b)| (bytes(a), bytes(b))).collect();
        let control = Control::default();
        control.segment.store(1, Ordering::Relaxed);
        Touched {
            spools: spools.to_vec(),
            rate,
            aliases,
            processes: FxHashMap::default(),
            facts_before: Value::Null,
            pending: Vec::new(),
            asked: FxHashMap::default(),
            unlisted: BTreeSet::new(),
            control: Arc::new(control),
            wishes: Some(wishes),
            waiting: Some(waiting),
            thread: None,
        }
    }

    /// Begin to list; its thread has the rights that the calling thread has now.
    pub fn begin(&mut self) {
        let Some(waiting) = self.waiting.take() else {
            return;
        };
        let (to, found) = sync_channel(64);
        let (spools, rate) = (self.spools.clone(), self.rate);
        let control = Arc::clone(&self.control);
        let thread = std::thread::spawn(move || {
            host::come_as_others();
            lister::run(&spools, rate, &waiting, &control, &to)
        });
        self.thread = Some(Lister { found, thread });
    }

    /// Learn from the snapshot the working directory and root of a process, and its open files.
    pub fn found(&mut self, item: &Found) {
        match item {
            Found::Task(task, cwd, root, _) if !cwd.is_empty() => {
                let process = self.processes.entry(task.pid).or_default();
                process.cwd = Some(Rc::from(cwd.as_slice()));
                process.root = (!root.is_empty()).then(|| Rc::from(root.as_slice()));
            }
            Found::OpenFile(file, path) => self.was_open(file, path),
            _ => {}
        }
    }

    fn was_open(&mut self, file: &OpenFile, path: &[u8]) {
        if file.mode & libc::S_IFMT == libc::S_IFDIR {
            let process = self.processes.entry(file.pid).or_default();
            process.directories.insert(file.fd, Rc::from(path));
        }
        if let Some(path) = self.real(normal(path)) {
            self.want_holder(&path);
        }
    }

    /// Note a call that was recorded.
    pub fn called(&mut self, call: &Syscall, path: &[u8], path2: &[u8]) {
        let Some(shape) = SHAPES.get(usize::from(call.call)) else {
            return;
        };
        if shape.path || shape.path2 || shape.effect != Effect::None {
            let event = Event::Call(Box::new(*call), path.to_vec(), path2.to_vec());
            self.pending.push(event);
        }
    }

    /// Note an event of a thread's life.
    pub fn lived(&mut self, task: &Task) {
        if task.event == TASK_FORK && task.pid != task.parent_pid
            || task.event == TASK_EXIT && task.pid == task.tid
        {
            self.pending.push(Event::Task(*task));
        }
    }

    /// Follow the events that returned before that moment, all of which have come out of the rings.
    pub fn follow(&mut self, before_ns: u64) {
        let (mut past, rest) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition::<Vec<_>, _>(|event| event.time_ns() < before_ns);
        self.pending = rest;
        past.sort_by_key(Event::time_ns);
        for event in past {
            match event {
                Event::Call(call, path, path2) => self.call(&call, &path, &path2),
                Event::Task(task) if task.event == TASK_FORK => {
                    let child = self.processes.get(&task.parent_pid).cloned();
                    self.processes.insert(task.pid, child.unwrap_or_default());
                }
                Event::Task(task) => {
                    self.processes.remove(&task.pid);
                }
            }
        }
    }

    fn call(&mut self, call: &Syscall, path: &[u8], path2: &[u8]) {
        let shape = SHAPES[usize::from(call.call)];
        let fd_at = |at: Option<usize>| at.map(|at| call.args[at] as i32);
        let first = if shape.path {
            self.named(call, fd_at(shape.dirfd), path)
        } else {
            None
        };
        let second = if shape.path2 {
            self.named(call, fd_at(shape.dirfd2), path2)
        } else {
            None
        };
        let mut source = None;
        for (i, name) in [&first, &second].into_iter().enumerate() {
            let asked = name.clone().and_then(|path| self.real(path));
            let asked = asked.and_then(|path| self.want_holder(&path));
            source = if i == 0 { asked } else { source };
        }
        if call.ret < 0 {
            return;
        }
        if matches!(shape.effect, Effect::Renames | Effect::Links) {
            self.moved(call, source, first, second);
            return;
        }
        self.does(shape.effect, call, fd_at(shape.fd), first);
    }

    /// Look again, at its new place, at a name that came from a directory not yet listed when it
    /// moved.
    fn moved(
        &mut self,
        call: &Syscall,
        source: Option<Arc<Wanted>>,
        from: Option<Vec<u8>>,
        to: Option<Vec<u8>>,
    ) {
        let to = to.and_then(|path| self.real(path));
        if let (Some(from), Some(to)) = (from.and_then(|path| self.real(path)), &to) {
            self.moved_below(&from, to);
        }
        let listed_ns = source.map_or(0, |wanted| wanted.listed_ns.load(Ordering::Acquire));
        let before = listed_ns > 0 && listed_ns != FAILED && listed_ns < call.start_ns;
        if let Some(to) = to.filter(|_| !before) {
            self.wish(Wish::Name(to));
        }
    }

    /// Request again, at their new place, the directories below a name that moved that were
    /// requested but not listed yet.
    fn moved_below(&mut self, from: &[u8], to: &[u8]) {
        let below = (Bound::Included(from), Bound::Unbounded);
        let paths = self.unlisted.range::<[u8], _>(below);
        let paths = paths.take_while(|path| path.starts_with(from));
        let paths: Vec<Vec<u8>> = paths.cloned().collect();
        for path in paths {
            let listed_ns = self.asked.get(&path).map(|asked| asked.listed_ns());
            if listed_ns.is_some_and(|ns| ns > 0 && ns != FAILED) {
                self.unlisted.remove(&path);
            } else if path.len() == from.len() || path[from.len()] == b'/' {
                self.want(&[to, &path[from.len()..]].concat());
            }
        }
    }

    fn does(&mut self, effect: Effect, call: &Syscall, fd: Option<i32>, path: Option<Vec<u8>>) {
        let process = self.processes.entry(call.pid).or_default();
        let behind = fd.and_then(|fd| process.directories.get(&fd).cloned());
        let named: Option<Rc<[u8]>> = path.map(Rc::from).or_else(|| behind.clone());
        match effect {
            Effect::Opens => {
                let directory = u32::from(call.obj_mode) & libc::S_IFMT == libc::S_IFDIR;
                match named.filter(|_| directory) {
                    Some(path) => process.directories.insert(call.ret as i32, path),
                    None => process.directories.remove(&(call.ret as i32)),
                };
            }
            Effect::Closes => {
                process.directories.remove(&fd.unwrap_or(-1));
            }
            Effect::Duplicates => {
                if let Some(path) = behind.filter(|_| call.ret > 2) {
                    process.directories.insert(call.ret as i32, path);
                }
            }
            Effect::Enters => process.cwd = named,
            Effect::Roots => process.root = named,
            Effect::Lists => {
                if let Some(path) = behind.and_then(|path| self.real(path.to_vec())) {
                    self.want(&path);
                }
            }
            _ => {}
        }
    }

    /// Return a path as the caller meant it, absolute and normal; None if that is not known.
    fn named(&self, call: &Syscall, dirfd: Option<i32>, path: &[u8]) -> Option<Vec<u8>> {
        let process = self.processes.get(&call.pid);
        let absolute = path.starts_with(b"/");
        let base = match dirfd {
            _ if path.is_empty() => return None,
            _ if absolute && call.flags & CALL_OTHER_VIEW != 0 => None,
            _ if absolute => process.and_then(|p| p.root.clone()),
            None | Some(libc::AT_FDCWD) => Some(process?.cwd.clone()?),
            Some(fd) => Some(process?.directories.get(&fd)?.clone()),
        };
        let base = base.as_deref().unwrap_or_default();
        Some(normal(&[base, b"/", path].concat()))
    }

    /// Return the path below the spool's mount point; None if it lies on no spool.
    fn real(&self, path: Vec<u8>) -> Option<Vec<u8>> {
        let named = |path: &[u8]| PathBuf::from(OsStr::from_bytes(path));
        let mut names = std::iter::successors(Some(path.as_slice()), |name| {
            Some(above(name)).filter(|above| above.len() < name.len())
        });
        let real = names.find_map(|name| {
            let target = self.aliases.get(name)?;
            Some([target, &path[name.len()..]].concat())
        });
        let path = real.unwrap_or(path);
        let mut mounts = self.spools.iter().map(|spool| &spool.mount);
        mounts
            .any(|mount| named(&path).starts_with(mount))
            .then_some(path)
    }

    /// Request the directory that a name lies in; for a spool's mount point the mount point itself.
    fn want_holder(&mut self, path: &[u8]) -> Option<Arc<Wanted>> {
        let mut mounts = self.spools.iter().map(|s| s.mount.as_os_str().as_bytes());
        let is_top = mounts.any(|mount| mount == path);
        self.want(if is_top { path } else { above(path) })
    }

    /// Request a directory, unless it was listed or failed too often.
    fn want(&mut self, path: &[u8]) -> Option<Arc<Wanted>> {
        let mut tries = 0;
        if let Some(asked) = self.asked.get(path) {
            let failed = asked.listed_ns() == FAILED;
            if !failed || asked.tries >= TRIES {
                return Some(Arc::clone(&asked.wanted));
            }
            tries = asked.tries;
        }
        let wanted = Arc::new(Wanted {
            path: path.to_vec(),
            listed_ns: 0.into(),
        });
        let asked = Asked {
            wanted: Arc::clone(&wanted),
            tries: tries + 1,
        };
        self.asked.insert(path.to_vec(), asked);
        self.unlisted.insert(path.to_vec());
        self.wish(Wish::Directory(Arc::clone(&wanted)));
        Some(wanted)
    }

    fn wish(&self, wish: Wish) {
        let segment = self.control.segment.load(Ordering::Relaxed);
        if let Some(wishes) = &self.wishes {
            // The error of a failed lister is reported at the end.
            let _ = wishes.send((segment, wish));
        }
    }

    /// Return the names found since the last call.
    pub fn names(&self) -> impl Iterator<Item = Names> {
        self.thread
            .iter()
            .flat_map(|lister| lister.found.try_iter())
    }

    /// Begin the next segment, which has a tree of its own.
    pub fn restart(&mut self, segment: u32) {
        self.facts_before = self.facts();
        self.control.segment.store(segment, Ordering::Relaxed);
        self.asked.clear();
        self.unlisted.clear();
    }

    /// Request nothing more; return true when all requests are fulfilled.
    pub fn ends(&mut self) -> bool {
        self.wishes = None;
        self.thread
            .as_ref()
            .is_none_or(|lister| lister.thread.is_finished())
    }

    /// End the lister, which may leave directories out; return all rows that it still had.
    pub fn end(&mut self) -> Result<Vec<Names>> {
        self.wishes = None;
        self.control.stop.store(true, Ordering::Relaxed);
        let Some(lister) = self.thread.take() else {
            return Ok(Vec::new());
        };
        let rows = lister.found.iter().collect();
        match lister.thread.join() {
            Ok(ended) => ended.context("Failed to list directories")?,
            Err(_) => bail!("the thread that lists directories died"),
        }
        Ok(rows)
    }

    /// Return the facts for meta.json: number of directories listed, and of those that were gone,
    /// or not yet listed, when the recording ended.
    pub fn facts(&self) -> Value {
        let mut counts = [0u64; 2];
        for asked in self.asked.values() {
            let listed_ns = asked.listed_ns();
            counts[usize::from(listed_ns == 0 || listed_ns == FAILED)] += 1;
        }
        json!({"directories": counts[0], "directories_missed": counts[1]})
    }
}

/// Return the path without empty parts, "." and "..".
fn normal(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    [b"/", parts.join(&b"/"[..]).as_slice()].concat()
}

/// Return the directory that a normal path lies in.
fn above(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) | None => b"/",
        Some(at) => &path[..at],
    }
}
