//! One replay task: executes the stream of one recorded thread.

use anyhow::Result;
use spoolscope_traces::records::{
    NONE, Outcome, PLAN_FORK, PlanOp, PlanThread, REASON_NO_ORDER, REASON_NONE, TASK_SHARE_FILES,
    TASK_SHARE_FS, VERDICT_DIVERGED, VERDICT_SAME, VERDICT_SKIPPED,
};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use crate::engine::args::{Refusal, Scratch};
use crate::engine::fds::{FdTable, Mapping, Open, Watch};
use crate::engine::listing::{self, Reader};
use crate::engine::opened::SharedFiles;
use crate::engine::pace::Standing;
use crate::engine::passing::Passing;
use crate::engine::realtime;
use crate::engine::schedule::{Follower, Schedule};
use crate::engine::shared::{Gate, futex_wait, futex_wake, now_ns, state};
use crate::engine::verdict::Verdict;
use crate::engine::{call, life};
use crate::model::listings::Listings;
use crate::pattern::Pattern;
use crate::sandbox::Confinement;
use crate::semantics::{self, Kind};

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

    /// Runs the stream to its end; the caller then ends the thread.
    pub fn run(&mut self) {
        let schedule = &self.context.schedule;
        life::settle(self);
        let start = self.wait_for_start();
        if now_ns() < start {
            self.gate().sleep_until(start, &schedule.control().spinning);
        }
        let mut exited = false;
        let n_ops = schedule.n_ops(self.thread);
        let mut followers = schedule.followers(self.thread);
        for position in 0..n_ops {
            let slot = schedule.slot(self.thread, position);
            let op = &schedule.plan.ops()[schedule.op_at(slot) as usize];
            exited = semantics::kind(op) == Kind::Exit;
            let outcome = self.step(op, slot, start);
            schedule.outcomes.store(slot, outcome);
            self.advance(slot, position + 1, &mut followers);
        }
        self.finish(exited);
    }

    /// Marks the operation of a slot as done, and wakes only threads that wait for it.
    fn advance(&self, slot: usize, finished: u32, followers: &mut &'static [Follower]) {
        let schedule = &self.context.schedule;
        self.gate().progress.store(finished, SeqCst);
        while let Some((follower, rest)) = followers.split_first()
            && follower.after as usize == slot
        {
            *followers = rest;
            let gate = &schedule.gates[follower.thread as usize];
            gate.wake_from(self.thread, finished);
        }
    }

    /// Reports this task as ready, waits for the start of the replay and returns its time.
    fn wait_for_start(&self) -> i64 {
        let control = self.context.schedule.control();
        control.ready.fetch_add(1, SeqCst);
        futex_wake(&control.ready);
        while control.begun.load(SeqCst) == 0 {
            futex_wait(&control.begun, 0, 1_000_000_000);
            life::leave_if_orphaned(self.context.engine_pid);
        }
        control.start_ns.load(SeqCst)
    }

    /// Waits for time and order, makes the call, and judges its result.
    fn step(&mut self, op: &PlanOp, slot: usize, start: i64) -> Outcome {
        let schedule = &self.context.schedule;
        self.keep_priority();
        let due = self.standing.due_ns(schedule.pace, op);
        if due > self.standing.ended_ns {
            let spinning = &schedule.control().spinning;
            self.gate().sleep_until(start + due, spinning);
        }
        self.slot = slot;
        let kind = semantics::kind(op);
        let mut ready = self.wait_for_others(slot).max(due);
        if matches!(kind, Kind::Fcntl | Kind::Flock) {
            ready = ready.max(self.line_up(slot));
        }
        let at = schedule.op_at(slot);
        // Time spent here is not charged to the call.
        let whole = self.keep_descriptors_whole(op, at, kind);
        let births = (kind == Kind::Fork).then(|| call::written(&self.process.births));
        let now = now_ns();
        self.gate().enter_call(now);
        let issue = now - start;
        // The life of a forked task begins at this time.
        self.standing.ended_ns = issue;
        let (ret, (verdict, reason)) = match schedule.noop && kind != Kind::Fork {
            true => (op.ret, (VERDICT_SAME, REASON_NONE)),
            false => self.act(op, at, kind),
        };
        let end = now_ns() - start;
        drop((whole, births));
        self.gate().enter(state::RUNNING);
        self.standing = Standing {
            ended_ns: end,
            recorded_ns: op.end_ns,
        };
        let reason = if std::mem::take(&mut self.gave_up) {
            REASON_NO_ORDER
        } else {
            reason
        };
        Outcome {
            issue_ns: issue,
            end_ns: end,
            ready_ns: ready,
            ret,
            tid: self.tid,
            verdict,
            reason,
            pad: 0,
        }
    }

    /// Takes real-time priority, if that was asked for, and gives it back when CPUs are busy.
    fn keep_priority(&mut self) {
        let schedule = &self.context.schedule;
        let wanted = schedule.realtime && schedule.control().spinning.is_allowed();
        if wanted != self.realtime {
            self.realtime = wanted;
            // A task that is refused goes on without it.
            realtime::set(wanted);
        }
    }

    /// Returns when the last call ended that had to be waited for; 0 if there was none.
    fn wait_for_others(&mut self, slot: usize) -> i64 {
        let schedule = &self.context.schedule;
        let mut ended = 0;
        for (thread, finished) in schedule.edges(slot) {
            let other = &schedule.gates[*thread as usize];
            if other.progress.load(SeqCst) >= *finished {
                continue;
            }
            if self.gate().wait_for(other, *thread, *finished) {
                ended = ended.max(
                    schedule
                        .outcomes
                        .ended_ns(schedule.slot(*thread, *finished - 1)),
                );
            } else {
                self.gave_up = true;
            }
        }
        ended
    }

    fn act(&mut self, op: &PlanOp, at: u32, kind: Kind) -> (i64, Verdict) {
        self.take_passed(at);
        let done = match kind {
            Kind::Fork => life::fork(self, op),
            Kind::Exec => self.exec(),
            Kind::Exit => self.exit(),
            Kind::LeftOut => Ok((op.ret, (VERDICT_SAME, REASON_NONE))),
            Kind::Getdents => match self.context.listings.of(at) {
                Some(listing) => listing::read(self, op, at, listing),
                None => call::make(self, op, kind),
            },
            _ => call::make(self, op, kind),
        };
        if kind == Kind::Open
            && let Some(open) = self.process.fds.get(op.ret as i32)
        {
            self.context.passing.send(at, open.real);
        }
        match done {
            Ok(result) => result,
            Err(reason) => (-i64::from(libc::ENOSYS), (refused(reason), reason)),
        }
    }

    /// Returns the lock that keeps forks out until a call that changes descriptors is noted. An
    /// open may sleep until a lease is given up; with leases it takes no lock, or forks would wait.
    fn keep_descriptors_whole(
        &self,
        op: &PlanOp,
        at: u32,
        kind: Kind,
    ) -> Option<RwLockReadGuard<'static, ()>> {
        let process: &'static Process = self.process;
        if !process.threaded.load(Relaxed) {
            return None;
        }
        let changes = match kind {
            Kind::Open => !self.context.schedule.leases,
            Kind::Close | Kind::CloseRange | Kind::Dup2 | Kind::Watch | Kind::Exec => true,
            Kind::Fork => false,
            _ => semantics::makes_fd(op),
        };
        let takes = changes || self.context.passing.hands_over(at);
        takes.then(|| {
            process
                .births
                .read()
                .unwrap_or_else(PoisonError::into_inner)
        })
    }

    /// Binds the open file that another task passes, if the recorded process got one from another.
    fn take_passed(&self, at: u32) {
        if let Some((pass, real)) = self.context.passing.receive(at) {
            let opened = &self.context.schedule.plan.ops()[pass.opened as usize];
            let open = Open {
                path: opened.path,
                append: semantics::open_flags(opened) & libc::O_APPEND != 0,
                ..Open::new(real)
            };
            self.process.fds.bind(pass.fd, open);
        }
    }

    /// Replays an exec: closes descriptors marked close-on-exec; there is nothing to execute.
    fn exec(&mut self) -> Result<(i64, Verdict), Refusal> {
        self.process.fds.close_all(|open| open.cloexec);
        Ok((0, (VERDICT_SAME, REASON_NONE)))
    }

    /// Closes files now: a task that waits for the end of this process relies on its locks being
    /// free.
    fn exit(&self) -> Result<(i64, Verdict), Refusal> {
        self.leave();
        Ok((0, (VERDICT_SAME, REASON_NONE)))
    }

    /// Leaves the process; its last thread closes its files.
    fn leave(&self) {
        if self.process.alive.fetch_sub(1, SeqCst) == 1 {
            self.process.fds.close_all(|_| true);
        }
    }

    /// A thread that outlived the recording keeps its descriptors and locks until all are done.
    ///
    /// Without an order it closes them: it may be here before threads that had these locks earlier.
    fn finish(&self, exited: bool) {
        let control = self.context.schedule.control();
        if self.context.schedule.unordered && !exited {
            self.leave();
        }
        self.gate().enter(state::DONE);
        control.finished.fetch_add(1, SeqCst);
        futex_wake(&control.finished);
        while !exited && control.over.load(Relaxed) == 0 {
            futex_wait(&control.over, 0, 1_000_000_000);
            life::leave_if_orphaned(self.context.engine_pid);
        }
    }
}

/// Returns the verdict of a refusal: a missing descriptor follows from an earlier divergence,
/// everything else is deliberate.
fn refused(reason: Refusal) -> u8 {
    match reason {
        spoolscope_traces::records::REASON_BAD_FD => VERDICT_DIVERGED,
        _ => VERDICT_SKIPPED,
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
