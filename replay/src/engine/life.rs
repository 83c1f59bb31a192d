//! Birth and identity of replay tasks.

use spoolscope_traces::records::{
    NONE, PlanOp, PlanThread, REASON_ERRNO, REASON_NONE, VERDICT_DIVERGED, VERDICT_SAME,
};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::engine::gate::state;
use crate::engine::opened;
use crate::engine::pace::Standing;
use crate::engine::raw::{last_errno, locked};
use crate::engine::schedule::{Schedule, children};
use crate::engine::task::{Context, Process, Task, is_thread, shares_fs};
use crate::engine::verdict::{Refusal, Verdict};
use crate::semantics::{self, Kind};

const STACK_BYTES: usize = 256 << 10;

/// Makes this thread what the recorded one was: owner, umask, working directory.
pub fn settle(task: &mut Task) {
    // SAFETY: plain system calls.
    unsafe {
        task.tid = libc::syscall(libc::SYS_gettid) as u32;
        task.gate().pid.store(libc::getpid() as u32, SeqCst);
        task.gate().tid.store(task.tid, SeqCst);
        task.gate().enter(state::RUNNING);
        // By default the kernel lets a sleep end up to 50 us late.
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
    }
    let schedule = &task.context.schedule;
    let recorded = schedule.plan.threads()[task.thread as usize];
    // The other threads have set by now what this thread shares. Its record is of its first call,
    // which may come long after its birth.
    if !shares_fs(schedule.plan.threads(), task.thread) {
        take_place(task, &recorded);
    }
    if recorded.parent == NONE {
        opened::restore(task);
    }
    task.ids = (recorded.uid, recorded.gid);
    become_owner(task, Rights::All);
    leave_if_orphaned(task.context.engine_pid);
}

/// Sets umask and working directory as recorded.
fn take_place(task: &Task, recorded: &PlanThread) {
    // SAFETY: plain system call.
    unsafe { libc::umask(semantics::umask(recorded.umask)) };
    if recorded.cwd != NONE && recorded.cwd != task.cwd() {
        let name = task.context.schedule.plan.string(recorded.cwd);
        let path = task.context.confinement.path(name);
        // SAFETY: the path is NUL-terminated.
        if unsafe { libc::chdir(path.as_ptr()) } == 0 {
            task.process.cwd.store(recorded.cwd, Relaxed);
        }
    }
}

/// Ends the task if its engine is gone: there is nothing more to do.
pub fn leave_if_orphaned(engine_pid: i32) {
    // SAFETY: signal 0 only asks whether the process exists.
    let gone = unsafe { libc::kill(engine_pid, 0) } < 0 && last_errno() == libc::ESRCH;
    if gone {
        leave(true);
    }
}

/// Makes a thread go on as another user, as LMTP servers do for each recipient.
pub fn change_identity(task: &mut Task, op: &PlanOp) -> i64 {
    task.ids = semantics::identity(op, task.ids);
    become_owner(task, Rights::All);
    op.ret
}

/// Makes a call that was denied, without the capabilities that would allow it.
pub fn as_denied<T>(task: &mut Task, op: &PlanOp, call: impl FnOnce(&mut Task) -> T) -> T {
    let root = task.ids.0 == 0 && task.context.confinement.owners;
    become_owner(task, Rights::Less(lacking(op, task.ids.0)));
    if root {
        lend_to_access(false);
    }
    let made = call(task);
    if root {
        lend_to_access(true);
    }
    become_owner(task, Rights::All);
    made
}

const CHOWN: u32 = 1 << 0;
const DAC_OVERRIDE: u32 = 1 << 1;
const DAC_READ_SEARCH: u32 = 1 << 2;
const FOWNER: u32 = 1 << 3;
const FSETID: u32 = 1 << 4;
const SYS_ADMIN: u32 = 1 << 21;
const LEASE: u32 = 1 << 28;

/// Returns capabilities that the caller of a denied call cannot have had, or that make no
/// difference to the call.
///
/// Users other than 0 lose those for files anyway. EPERM means that the names were found and modes
/// permitted the call, perhaps to a backup that may read everything, but that only the owner may
/// make it; only `link` also returns it for a file that the caller may not write to.
fn lacking(op: &PlanOp, uid: u32) -> u32 {
    let of_owners = CHOWN | FOWNER | FSETID;
    let of_files = match (uid, op.ret == -i64::from(libc::EPERM)) {
        (1.., _) => 0,
        (0, true) if semantics::kind(op) == Kind::Link => of_owners | DAC_OVERRIDE,
        (0, true) => of_owners,
        (0, false) => of_owners | DAC_OVERRIDE | DAC_READ_SEARCH,
    };
    of_files | SYS_ADMIN | LEASE
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Rights of a thread on files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rights {
    /// Those of its user and first group, without these capabilities.
    Less(u32),
    /// Everything: groups beyond the first are not recorded.
    All,
}

/// Takes the owner of the task. The filesystem ids count for files; `access` uses the real ids.
fn become_owner(task: &Task, rights: Rights) {
    if task.context.confinement.owners {
        change_ids(task.ids, rights);
    }
    // SAFETY: plain system calls; a change of ids clears the setting.
    unsafe {
        if libc::getppid() == task.context.engine_pid {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
    }
}

fn change_ids((uid, gid): (u32, u32), rights: Rights) {
    let (real_uid, real_gid) = match rights {
        Rights::Less(_) => (uid, gid),
        Rights::All => (0, 0),
    };
    let all = |half: CapData| CapData {
        effective: half.permitted,
        ..half
    };
    // A change of ids needs capabilities: take back those given up before.
    change_capabilities(all, all);
    // SAFETY: raw calls act on this thread only.
    unsafe {
        libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>());
        libc::syscall(libc::SYS_setresgid, real_gid, u32::MAX, u32::MAX);
        libc::syscall(libc::SYS_setresuid, real_uid, u32::MAX, u32::MAX);
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
    }
    match rights {
        // The kernel drops capabilities for files when the filesystem uid leaves 0.
        Rights::All => change_capabilities(all, all),
        Rights::Less(lost) => {
            let less = |half: CapData| CapData {
                effective: half.effective & !lost,
                ..half
            };
            change_capabilities(less, |half| half);
        }
    }
}

/// Changes capabilities: `low` those below 32, `high` the others.
fn change_capabilities(low: impl Fn(CapData) -> CapData, high: impl Fn(CapData) -> CapData) {
    let header = CapHeader {
        version: 0x2008_0522,
        pid: 0,
    };
    let mut data = [CapData::default(); 2];
    // SAFETY: raw calls act on this thread only; header and data have the kernel's layout.
    unsafe {
        libc::syscall(libc::SYS_capget, &raw const header, data.as_mut_ptr());
        let changed = [low(data[0]), high(data[1])];
        libc::syscall(libc::SYS_capset, &raw const header, changed.as_ptr());
    }
}

/// Lets `access` use all capabilities that user 0 could have, which is the default, or only those
/// that the thread has.
fn lend_to_access(all: bool) {
    const NO_SETUID_FIXUP: libc::c_int = 1 << 2;
    // SAFETY: plain system calls that act on this thread only.
    unsafe {
        let bits = libc::prctl(libc::PR_GET_SECUREBITS);
        let changed = match all {
            true => bits & !NO_SETUID_FIXUP,
            false => bits | NO_SETUID_FIXUP,
        };
        libc::prctl(libc::PR_SET_SECUREBITS, changed);
    }
}

/// Work of a new task: its stream, to the end.
pub type Work = fn(&mut Task);

/// Replays a fork: a real child for a process, a thread for a thread; it does `work`.
pub fn fork(task: &mut Task, op: &PlanOp, work: Work) -> Result<(i64, Verdict), Refusal> {
    let (context, parent) = (task.context, task.process);
    let child = op.arg as u32;
    let born = Standing {
        ended_ns: task.standing.ended_ns,
        recorded_ns: op.start_ns,
    };
    let known = op.arg != i64::from(NONE);
    let ret = match known {
        true if is_thread(&context.schedule, op) => {
            start_thread(context, parent, (child, born), work)
        }
        _ => start_process(task, parent, known.then_some((child, born)), work),
    };
    if known && ret < 0 {
        mark_ended(&context.schedule, child);
    }
    Ok(judged(ret))
}

fn start_process(
    task: &mut Task,
    parent: &'static Process,
    child: Option<(u32, Standing)>,
    work: Work,
) -> i64 {
    // Both locks are held across the fork, as `births` is. Else the child could have a lock that is
    // never released, or a number for a descriptor that it does not have: the kernel copies
    // descriptors before the memory.
    let watches = locked(&parent.fds.watches);
    let mappings = locked(&parent.fds.mappings);
    let Some((child, born)) = child else {
        return fork_process(parent, || true);
    };
    let gate = &task.context.schedule.gates[child as usize];
    let made = fork_process(parent, || {
        let process = parent.inherited(watches.clone(), mappings.clone());
        let process: &'static Process = Box::leak(Box::new(process));
        task.become_child(process, child, born);
        work(task);
        !process.threaded.load(Relaxed)
    });
    if made > 0 {
        // The child stores this, too, unless it is killed before.
        gate.pid.store(made as u32, SeqCst);
    }
    made
}

fn start_thread(
    context: &'static Context,
    parent: &'static Process,
    (child, born): (u32, Standing),
    work: Work,
) -> i64 {
    let own_fs = !shares_fs(context.schedule.plan.threads(), child);
    if !parent.threaded.swap(true, Relaxed) {
        // From now on its forks are its own children, and it waits for none: the kernel reaps them.
        // SAFETY: plain system call.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    }
    parent.alive.fetch_add(1, SeqCst);
    let started = std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || {
            if own_fs {
                // SAFETY: affects this thread only.
                unsafe { libc::unshare(libc::CLONE_FS) };
            }
            work(&mut Task::new(context, parent, child, born));
            leave(false);
        });
    started.map_or(-i64::from(libc::EAGAIN), |_| 0)
}

/// Marks a dead thread, and those that it would have forked, as done: nothing waits for them.
pub fn mark_ended(schedule: &Schedule, thread: u32) {
    let gate = &schedule.gates[thread as usize];
    if gate.state.swap(state::DONE, SeqCst) == state::DONE {
        return;
    }
    gate.progress.store(u32::MAX, SeqCst);
    let followers = schedule.followers(thread).iter();
    let waiting: BTreeSet<u32> = followers.map(|follower| follower.thread).collect();
    for waiting in waiting {
        schedule.gates[waiting as usize].wake();
    }
    schedule.control().finished.fetch_add(1, SeqCst);
    for child in children(schedule.plan, thread) {
        if schedule.gates[child as usize].state.load(SeqCst) == state::UNBORN {
            mark_ended(schedule, child);
        }
    }
}

fn judged(ret: i64) -> (i64, Verdict) {
    match ret {
        0.. => (ret, (VERDICT_SAME, REASON_NONE)),
        _ => (ret, (VERDICT_DIVERGED, REASON_ERRNO)),
    }
}

/// Forks, and does `work` in the child; it returns whether the whole process is to end.
///
/// The child belongs to the engine, which outlives the recorded parent. But in a parent with
/// several threads the C library must fork, so that its own locks are free in the child: such a
/// child belongs to the parent, and so do the processes that it forks.
pub fn fork_process(parent: &Process, work: impl FnOnce() -> bool) -> i64 {
    let flags = libc::CLONE_PARENT | libc::SIGCHLD;
    let threaded = parent.threaded.load(Relaxed);
    // SAFETY: without CLONE_VM this is a plain fork, and then of a single thread.
    let child = unsafe {
        match threaded {
            true => i64::from(libc::fork()),
            false => libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0),
        }
    };
    match child {
        0 => leave(work()),
        -1 => -i64::from(last_errno()),
        _ => child,
    }
}

/// Ends this thread, and with `whole` the process, which else ends with its last thread.
pub fn leave(whole: bool) -> ! {
    let number = if whole {
        libc::SYS_exit_group
    } else {
        libc::SYS_exit
    };
    // SAFETY: never returns.
    unsafe { libc::syscall(number, 0) };
    unreachable!("exit returned")
}
