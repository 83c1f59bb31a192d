//! One replay task: state of a recorded thread, and of the process that it belongs to.

use anyhow::Result;
use spoolscope_traces::records::{
    NONE, PLAN_FORK, PlanOp, PlanThread, TASK_SHARE_FILES, TASK_SHARE_FS,
};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use crate::engine::call_memory::{Reader, Scratch};
use crate::engine::fds::{FdTable, Mapping, Watch};
use crate::engine::gate::Gate;
use crate::engine::pace::Standing;
use crate::engine::passing::Passing;
use crate::engine::realtime;
use crate::engine::schedule::Schedule;
use crate::engine::shared_files::SharedFiles;
use crate::model::expect::listings::Listings;
use crate::pattern::Pattern;
use crate::sandbox::Confinement;
use crate::semantics::Kind;

/// Set-up that every task inherits.
#[derive(Debug)]
pub struct Context {
    pub schedule: Schedule,
    /// Listings whose names are known.
    pub listings: &'static Listings,
    pub confinement: Confinement,
    pub pattern: Pattern,
    pub longest_write: i64,
    /// Address of a buffer that reads may fill.
    pub read_buffer: i64,
    /// Stands in for recorded owners where only one id may be used.
    pub own_id: u32,
    /// /dev/null, opened before the root directory changed.
    pub sink: i32,
    pub engine_pid: i32,
    /// Open files that processes shared when the recording began.
    pub shared_files: SharedFiles,
    pub passing: Passing,
}

impl Context {
    pub fn longest(&self, kind: Kind) -> i64 {
        match kind {
            Kind::Write | Kind::SetXattr => self.longest_write,
            Kind::Read | Kind::Getdents | Kind::Readlink => self.schedule.longest_read,
            Kind::GetXattr | Kind::ListXattr => self.schedule.longest_read,
            _ => i64::MAX,
        }
    }
}

/// State that the threads of one process share; a fork copies it with the memory.
#[derive(Debug)]
pub struct Process {
    pub fds: FdTable,
    /// String index of the working directory.
    pub cwd: AtomicU32,
    /// Held by a fork while it copies descriptors and memory, and in a process with several threads
    /// by each call that changes descriptors: a copy must see real descriptors and their numbers
    /// agree.
    pub births: RwLock<()>,
    /// A second thread was started.
    pub threaded: AtomicBool,
    /// Threads that have not come to their recorded exit.
    pub alive: AtomicU32,
}

impl Process {
    /// Returns the state of a forked child; its descriptors lie in copied memory already.
    pub fn inherited(&self, watches: Vec<Watch>, mappings: Vec<Mapping>) -> Self {
        Self {
            fds: self.fds.inherited(watches, mappings),
            cwd: AtomicU32::new(self.cwd.load(Relaxed)),
            births: RwLock::new(()),
            threaded: AtomicBool::new(false),
            alive: AtomicU32::new(1),
        }
    }
}

/// A recorded thread being replayed.
#[derive(Debug)]
pub struct Task {
    pub context: &'static Context,
    pub process: &'static Process,
    pub thread: u32,
    pub scratch: Box<Scratch>,
    pub tid: u32,
    /// The task has real-time priority.
    pub realtime: bool,
    /// Present user and group.
    pub ids: (u32, u32),
    pub standing: Standing,
    pub reader: Reader,
    /// Slot of the present operation in the schedule.
    pub slot: usize,
    /// The watchdog ended a wait of the present operation.
    pub gave_up: bool,
}

impl Task {
    pub fn new(
        context: &'static Context,
        process: &'static Process,
        thread: u32,
        born: Standing,
    ) -> Self {
        Self {
            context,
            process,
            thread,
            scratch: Box::new(Scratch::new()),
            tid: 0,
            realtime: context.schedule.realtime && realtime::is_on(),
            ids: (0, 0),
            standing: born,
            reader: Reader::default(),
            slot: 0,
            gave_up: false,
        }
    }

    /// Goes on as the first thread of a forked process, in its copy of the parent's memory.
    pub fn become_child(&mut self, process: &'static Process, thread: u32, born: Standing) {
        self.process = process;
        self.thread = thread;
        self.standing = born;
        self.reader = Reader::default();
        self.gave_up = false;
    }

    /// Creates the task of a thread that no recorded process forked, with a process of its own.
    pub fn root(context: &'static Context, thread: u32) -> Result<Self> {
        let process = Process {
            fds: FdTable::new(context.schedule.n_fds)?,
            cwd: AtomicU32::new(NONE),
            births: RwLock::new(()),
            threaded: AtomicBool::new(false),
            alive: AtomicU32::new(1),
        };
        let process = Box::leak(Box::new(process));
        Ok(Self::new(context, process, thread, Standing::default()))
    }

    pub fn gate(&self) -> &'static Gate {
        &self.context.schedule.gates[self.thread as usize]
    }

    pub fn cwd(&self) -> u32 {
        self.process.cwd.load(Relaxed)
    }
}

/// Returns whether a fork makes a thread: of the same process, or of one that shares descriptors.
pub fn is_thread(schedule: &Schedule, op: &PlanOp) -> bool {
    let threads = schedule.plan.threads();
    let (parent, child) = (&threads[op.thread as usize], &threads[op.arg as usize]);
    debug_assert_eq!(op.op, PLAN_FORK);
    parent.pid == child.pid || child.flags & TASK_SHARE_FILES != 0
}

/// Returns whether a thread shares working directory and umask with the thread that began it.
/// Threads of one process do; for a thread that was there at start, no fork is recorded.
pub fn shares_fs(threads: &[PlanThread], thread: u32) -> bool {
    const BOTH: u32 = TASK_SHARE_FILES | TASK_SHARE_FS;
    let child = &threads[thread as usize];
    let parent = threads.get(child.parent as usize);
    parent.is_some_and(|parent| parent.pid == child.pid || child.flags & BOTH == BOTH)
}
