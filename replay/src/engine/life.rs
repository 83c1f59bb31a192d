//! Birth and identity of replay tasks.

use spoolscope_traces::records::{
    NONE, PlanOp, REASON_ERRNO, REASON_NONE, TASK_SHARE_FS, VERDICT_DIVERGED, VERDICT_SAME,
};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::engine::args::Refusal;
use crate::engine::call::last_errno;
use crate::engine::shared::state;
use crate::engine::task::{Task, is_thread};
use crate::engine::verdict::Verdict;

const STACK_BYTES: usize = 256 << 10;

/// Makes this thread what the recorded one was: owner, umask, working directory.
pub fn settle(task: &mut Task) {
    // SAFETY: plain system calls.
    unsafe {
        task.tid = libc::syscall(libc::SYS_gettid) as u32;
        task.gate().pid.store(libc::getpid() as u32, SeqCst);
        task.gate().tid.store(task.tid, SeqCst);
        task.gate().enter(state::RUNNING);
        // The kernel would let a sleep end up to 50 us late.
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
    }
    let recorded = task.context.schedule.plan.threads()[task.thread as usize];
    // SAFETY: plain system call.
    unsafe { libc::umask(recorded.umask & 0o777) };
    if recorded.cwd != NONE && recorded.cwd != task.cwd() {
        let name = task.context.schedule.plan.string(recorded.cwd);
        let path = task.context.confinement.path(name);
        // SAFETY: the path is NUL-terminated.
        if unsafe { libc::chdir(path.as_ptr()) } == 0 {
            task.process.cwd.store(recorded.cwd, Relaxed);
        }
    }
    if recorded.parent == NONE {
        task.open_files();
    }
    if task.context.confinement.owners {
        become_owner(task, recorded.uid, recorded.gid);
    }
    // SAFETY: plain system calls; must follow the change of owner, which clears the setting.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if task.context.engine_pid != libc::getppid() && libc::getppid() == 1 {
            libc::_exit(1);
        }
    }
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

/// Files belong to the filesystem ids. Groups beyond the first are not recorded, so permission
/// is enforced only for threads that were denied something.
fn become_owner(task: &Task, uid: u32, gid: u32) {
    let enforce = task.context.schedule.denied[task.thread as usize];
    let header = CapHeader {
        version: 0x2008_0522,
        pid: 0,
    };
    let mut data = [CapData::default(); 2];
    // SAFETY: raw calls act on this thread only; header and data have the kernel's layout.
    unsafe {
        libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>());
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
        libc::syscall(libc::SYS_capget, &raw const header, data.as_mut_ptr());
        let keep = !enforce || uid == 0;
        for half in data.iter_mut().filter(|_| keep) {
            half.effective = half.permitted;
        }
        libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr());
    }
}

/// Replays a fork: a real child for a process, a thread for a thread.
pub fn fork(task: &mut Task, op: &PlanOp) -> Result<(i64, Verdict), Refusal> {
    let _births = task
        .process
        .births
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if op.arg == i64::from(NONE) {
        return Ok(judged(fork_process(|| ())));
    }
    let child = op.arg as u32;
    let (context, process) = (task.context, task.process);
    if is_thread(&context.schedule, op) {
        let flags = context.schedule.plan.threads()[child as usize].flags;
        let own_fs = flags & TASK_SHARE_FS == 0;
        let started = std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || {
                if own_fs {
                    // SAFETY: affects this thread only.
                    unsafe { libc::unshare(libc::CLONE_FS) };
                }
                Task::new(context, process, child).run();
                leave();
            });
        let ret = started.map_or(-i64::from(libc::EAGAIN), |_| 0);
        return Ok(judged(ret));
    }
    Ok(judged(fork_process(move || {
        Task::new(context, process, child).run()
    })))
}

fn judged(ret: i64) -> (i64, Verdict) {
    match ret {
        0.. => (ret, (VERDICT_SAME, REASON_NONE)),
        _ => (ret, (VERDICT_DIVERGED, REASON_ERRNO)),
    }
}

/// Forks; the child belongs to the engine, which outlives the recorded parent, and does `work`.
pub fn fork_process(work: impl FnOnce()) -> i64 {
    let flags = libc::CLONE_PARENT | libc::SIGCHLD;
    // SAFETY: without CLONE_VM this is a plain fork; no lock is held (see `Process::births`).
    let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match child {
        0 => {
            work();
            leave();
        }
        -1 => -i64::from(last_errno()),
        _ => child,
    }
}

/// Ends this thread only; the process ends with its last thread.
pub fn leave() -> ! {
    // SAFETY: never returns.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("exit returned")
}
