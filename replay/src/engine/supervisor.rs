//! The engine's own process: starts roots, watches, reaps, and ends everything.

use anyhow::{Result, ensure};
use spoolscope_traces::ending_signals::catch_ending;
use spoolscope_traces::records::NONE;
use spoolscope_traces::text::complain;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use crate::engine::args;
use crate::engine::clock::{epoch_less_monotonic_ns, now_ns};
use crate::engine::cpus::{Meter, Shares};
use crate::engine::descendants::Descendants;
use crate::engine::futex::{futex_wait, futex_wake};
use crate::engine::gate::state;
use crate::engine::life;
use crate::engine::mapped;
use crate::engine::outcomes::{Drain, Outcomes};
use crate::engine::passing::Passing;
use crate::engine::raw::last_errno;
use crate::engine::realtime;
use crate::engine::schedule::Schedule;
use crate::engine::shared_files::SharedFiles;
use crate::engine::task::{Context, Task};
use crate::engine::watchdog::Watchdog;
use crate::memory::shared;
use crate::model::expect::listings::Listings;
use crate::model::state::passed_on::Pass;
use crate::pattern::{Content, Pattern};
use crate::room::Room;
use crate::sandbox::Confinement;

/// Time between set-up and the first operation.
const LEAD_NS: i64 = 50_000_000;
/// Time that killed tasks have to die.
const IMMORTAL_NS: i64 = 10_000_000_000;
/// Interval of the checks of the CPUs and for tasks that died.
const LOOK_NS: i64 = 250_000_000;
/// Interval at which outcomes are written out, if there are many.
const DRAIN_NS: i64 = 100_000_000;
/// Roots are started this much recorded time before they are needed.
const AHEAD_NS: i64 = 1_000_000_000;

/// Options of a run.
#[derive(Debug)]
pub struct Options {
    pub stall_ns: i64,
    /// File of one JSON line, which is overwritten again and again.
    pub progress: Option<File>,
    pub cpus: Meter,
    pub tasks: Descendants,
    pub content: Content,
    pub listings: &'static Listings,
    /// Open files that change hands.
    pub passes: Vec<Pass>,
}

/// Results of a run, besides the outcomes.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Error that ended the run early.
    pub failed: Option<String>,
    pub given_up: u64,
    /// Locks that were granted before their turn, and given back.
    pub given_back: u32,
    pub crashed: u64,
    pub interrupted: bool,
    /// Start of the replay, ns since the epoch.
    pub start_epoch_ns: i64,
    pub cpus: Option<Shares>,
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupt(_: libc::c_int) {
    INTERRUPTED.store(true, Relaxed);
}

extern "C" fn nudged(_: libc::c_int) {}

/// Opens /dev/null, the target of sendfile in place of a socket, before the root directory changes.
pub fn open_sink() -> i32 {
    // SAFETY: plain system call.
    unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) }
}

/// Runs a prepared schedule inside a confinement. Returns a summary and all outcomes, also of a
/// replay that failed.
pub fn run(
    schedule: Schedule,
    confinement: Confinement,
    sink: i32,
    options: Options,
) -> Result<(Summary, &'static Outcomes)> {
    if schedule.realtime {
        realtime::permit()?;
    }
    let room = Room::of(&confinement);
    let context = context(schedule, confinement, sink, &options)?;
    args::prepare();
    let mut engine = Supervisor {
        context,
        roots: roots(context),
        started: 0,
        progress: options.progress,
        cpus: options.cpus,
        tasks: options.tasks,
        summary: Summary::default(),
        watchdog: Watchdog::new(options.stall_ns),
        room,
        last_report_ns: 0,
        last_look_ns: 0,
        drain: Drain::new(&context.schedule.outcomes),
        last_drain_ns: 0,
    };
    if let Err(error) = engine.supervise() {
        engine.summary.failed = Some(format!("{error:#}"));
    }
    engine.summary.cpus = engine.cpus.shares();
    engine.summary.given_back = context.schedule.control().given_back.load(Relaxed);
    engine.end();
    engine.drain.go(|_| u32::MAX)?;
    Ok((engine.summary, &context.schedule.outcomes))
}

fn context(
    schedule: Schedule,
    confinement: Confinement,
    sink: i32,
    options: &Options,
) -> Result<&'static Context> {
    let longest_write = args::longest_write(schedule.plan.ops());
    let buffer = shared::allocate_private(schedule.longest_read as usize)?;
    // SAFETY: plain system calls.
    let (own_id, engine_pid) = unsafe { (libc::geteuid(), libc::getpid()) };
    Ok(Box::leak(Box::new(Context {
        pattern: Pattern::new(longest_write, options.content)?,
        shared_files: SharedFiles::open(schedule.plan, &confinement),
        listings: options.listings,
        passing: Passing::new(&options.passes)?,
        schedule,
        confinement,
        longest_write,
        read_buffer: buffer as i64,
        own_id,
        sink,
        engine_pid,
    })))
}

/// Returns the threads that no recorded process forks, in order of their start.
fn roots(context: &Context) -> Vec<u32> {
    let threads = context.schedule.plan.threads();
    let mut roots: Vec<u32> = (0..threads.len() as u32)
        .filter(|at| threads[*at as usize].parent == NONE)
        .collect();
    roots.sort_by_key(|at| threads[*at as usize].start_ns);
    roots
}

struct Supervisor {
    context: &'static Context,
    roots: Vec<u32>,
    started: usize,
    progress: Option<File>,
    cpus: Meter,
    tasks: Descendants,
    summary: Summary,
    watchdog: Watchdog,
    room: Room,
    last_report_ns: i64,
    last_look_ns: i64,
    drain: Drain,
    last_drain_ns: i64,
}

impl Supervisor {
    fn supervise(&mut self) -> Result<()> {
        install_handlers();
        let control = self.context.schedule.control();
        self.start_first()?;
        let start = now_ns() + LEAD_NS;
        self.summary.start_epoch_ns = start + epoch_less_monotonic_ns();
        self.cpus.start();
        let n_cpus = std::thread::available_parallelism().map_or(1, usize::from);
        control.spinning.adapt(self.cpus.lately(), n_cpus);
        control.begin(start);
        let n_threads = self.context.schedule.gates.len();
        while (control.finished.load(SeqCst) as usize) < n_threads {
            if INTERRUPTED.load(Relaxed) {
                self.summary.interrupted = true;
                return Ok(());
            }
            self.start_roots()?;
            self.reap();
            let schedule = &self.context.schedule;
            self.summary.given_up += self.watchdog.look(schedule, &self.tasks);
            self.watchdog.require_life(&self.context.schedule)?;
            self.room.require(now_ns())?;
            self.report();
            self.look_around(n_cpus);
            self.drain()?;
            // The nap is short while roots have still to start, so that none starts too late.
            let finished = control.finished.load(SeqCst);
            if (finished as usize) < n_threads {
                let nap = if self.started < self.roots.len() {
                    1_000_000
                } else {
                    50_000_000
                };
                futex_wait(&control.finished, finished, nap);
            }
        }
        Ok(())
    }

    /// Lets tasks spin while CPUs are free, and finds tasks that died.
    fn look_around(&mut self, n_cpus: usize) {
        let now = now_ns();
        if now - self.last_look_ns < LOOK_NS {
            return;
        }
        self.last_look_ns = now;
        self.miss();
        if let Some(shares) = self.cpus.lately() {
            let control = self.context.schedule.control();
            control.spinning.adapt(Some(shares), n_cpus);
        }
    }

    /// Writes finished outcomes to their file, so that their memory is free.
    fn drain(&mut self) -> Result<()> {
        let now = now_ns();
        if now - self.last_drain_ns < DRAIN_NS {
            return Ok(());
        }
        self.last_drain_ns = now;
        let gates = self.context.schedule.gates;
        self.drain.go(|thread| gates[thread].progress.load(SeqCst))
    }

    /// Starts the processes that were there when the recording began, and waits until each has
    /// opened its files: an operation of another may remove their names.
    fn start_first(&mut self) -> Result<()> {
        let threads = self.context.schedule.plan.threads();
        while let Some(root) = self.roots.get(self.started).copied() {
            if threads[root as usize].start_ns > 0 {
                break;
            }
            self.start(root)?;
            self.started += 1;
        }
        self.context.shared_files.close();
        let control = self.context.schedule.control();
        while !INTERRUPTED.load(Relaxed) {
            let ready = control.ready.load(SeqCst);
            if u64::from(ready) + self.summary.crashed >= self.started as u64 {
                break;
            }
            futex_wait(&control.ready, ready, 50_000_000);
            self.reap();
        }
        Ok(())
    }

    /// Starts the roots that are due soon, judged by how far the replay has come.
    fn start_roots(&mut self) -> Result<()> {
        if self.started == self.roots.len() {
            return Ok(());
        }
        let horizon = self.frontier_ns().saturating_add(AHEAD_NS);
        while let Some(root) = self.roots.get(self.started).copied() {
            let thread = &self.context.schedule.plan.threads()[root as usize];
            if thread.start_ns as i64 > horizon {
                break;
            }
            self.start(root)?;
            self.started += 1;
        }
        Ok(())
    }

    fn start(&self, root: u32) -> Result<()> {
        let context = self.context;
        // SAFETY: the engine has one thread, so a plain fork is safe.
        let child = unsafe { libc::fork() };
        ensure!(
            child >= 0,
            "cannot fork: {}",
            std::io::Error::last_os_error()
        );
        if child == 0 {
            reset_handlers();
            match Task::root(context, root) {
                Ok(mut task) => {
                    task.run();
                    life::leave(!task.process.threaded.load(Relaxed));
                }
                Err(error) => complain(&format!("spoolscope-replay: {error:#}")),
            }
            life::leave(true);
        }
        context.schedule.gates[root as usize]
            .pid
            .store(child as u32, SeqCst);
        Ok(())
    }

    /// Returns the recorded time of the earliest operation that a live thread has still to do.
    fn frontier_ns(&self) -> i64 {
        let schedule = &self.context.schedule;
        let passed = (now_ns() - schedule.control().start_ns.load(Relaxed)).max(0);
        if let Some(recorded) = schedule.pace.recorded_ns(passed) {
            return recorded;
        }
        let mut earliest = i64::MAX;
        for (at, gate) in schedule.gates.iter().enumerate() {
            let progress = gate.progress.load(Relaxed);
            let alive = !matches!(gate.state.load(Relaxed), state::UNBORN | state::DONE);
            if alive && progress < schedule.n_ops(at as u32) {
                let op = schedule.op_at(schedule.slot(at as u32, progress));
                earliest = earliest.min(schedule.plan.ops()[op as usize].start_ns);
            }
        }
        if earliest == i64::MAX {
            let next = self.roots.get(self.started).copied().unwrap_or(0);
            return schedule.plan.threads()[next as usize].start_ns as i64;
        }
        earliest
    }

    /// Reaps children; one that died before its end takes its unborn descendants with it.
    fn reap(&mut self) {
        loop {
            let mut status = 0;
            // SAFETY: `status` is valid for writing.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
            if pid <= 0 {
                return;
            }
            self.give_up_process(pid as u32, &format!("status {status:#x}"));
        }
    }

    /// Finds tasks that died without being reaped here: children of processes with several threads.
    fn miss(&mut self) {
        let gates = self.context.schedule.gates.iter();
        let alive = gates.filter(|gate| gate.state.load(SeqCst) != state::DONE);
        let pids = alive.map(|gate| gate.pid.load(SeqCst));
        let gone: BTreeSet<u32> = pids.filter(|pid| *pid != 0 && is_gone(*pid)).collect();
        for pid in gone {
            self.give_up_process(pid, "status unknown");
        }
    }

    fn give_up_process(&mut self, pid: u32, status: &str) {
        let gates = self.context.schedule.gates;
        let dead = (0..gates.len() as u32).filter(|at| {
            let gate = &gates[*at as usize];
            gate.pid.load(SeqCst) == pid && gate.state.load(SeqCst) != state::DONE
        });
        let dead: Vec<u32> = dead.collect();
        for thread in dead {
            self.summary.crashed += 1;
            let name = self.context.schedule.plan.threads()[thread as usize].tid;
            complain(&format!(
                "spoolscope-replay: the task of thread {name} died ({status})"
            ));
            life::mark_ended(&self.context.schedule, thread);
        }
    }

    fn report(&mut self) {
        let now = now_ns();
        let Some(file) = &self.progress else {
            return;
        };
        if now - self.last_report_ns < 200_000_000 {
            return;
        }
        self.last_report_ns = now;
        let gates = self.context.schedule.gates;
        let n_ops = self.context.schedule.plan.ops().len() as u64;
        let done: u64 = gates
            .iter()
            .map(|gate| u64::from(gate.progress.load(Relaxed)))
            .sum();
        let passed = now - self.context.schedule.control().start_ns.load(Relaxed);
        // The line is padded, so that a shorter one leaves nothing of a longer one.
        let line = serde_json::json!({"done": done.min(n_ops), "of": n_ops, "passed_ns": passed});
        let _ = file.write_all_at(format!("{:<100}\n", line.to_string()).as_bytes(), 0);
    }

    /// Lets tasks that finished their stream go, and kills the rest.
    fn end(&self) {
        let control = self.context.schedule.control();
        control.over.store(1, SeqCst);
        futex_wake(&control.over);
        let deadline = now_ns() + 2_000_000_000;
        let mut killed = self.summary.interrupted || self.summary.failed.is_some();
        loop {
            if killed {
                self.kill_all();
            }
            // SAFETY: no status is wanted.
            match unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } {
                // The task is in an uninterruptible call; it dies when the call returns.
                0 if now_ns() > deadline + IMMORTAL_NS => return,
                0 if now_ns() > deadline => killed = true,
                0 => std::thread::sleep(Duration::from_millis(1)),
                -1 => return,
                _ => {}
            }
        }
    }

    fn kill_all(&self) {
        for gate in self.context.schedule.gates {
            self.tasks.kill(gate.pid.load(SeqCst));
        }
    }
}

/// Returns whether a process ended and was reaped.
fn is_gone(pid: u32) -> bool {
    // SAFETY: signal 0 only asks whether the process exists.
    unsafe { libc::kill(pid as i32, 0) < 0 && last_errno() == libc::ESRCH }
}

/// Asks for SIGTERM when the parent dies, which unmounts the target: a replay then ends in order.
pub fn end_with_parent() {
    // SAFETY: plain system call.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
}

fn install_handlers() {
    mapped::survive_missing_pages();
    catch_ending(interrupt);
    // SAFETY: the handlers store nothing but flags.
    unsafe {
        // Orphaned tasks become children of the engine.
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        // SIGIO asks the holder of a lease to give it up; the holder does so when the recorded one
        // did.
        libc::signal(libc::SIGIO, libc::SIG_IGN);
        // SIGUSR1 only interrupts calls that wait for a lock; all tasks inherit its handler.
        let mut nudge: libc::sigaction = std::mem::zeroed();
        nudge.sa_sigaction = nudged as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::sigaction(libc::SIGUSR1, &raw const nudge, std::ptr::null_mut());
    }
}

/// Ctrl-C and the end of the terminal are for the engine only, which kills the tasks.
fn reset_handlers() {
    // SAFETY: plain system calls.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        libc::signal(libc::SIGTERM, libc::SIG_DFL);
    }
}
