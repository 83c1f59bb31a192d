//! Makes one system call for real and keeps track of what it did to descriptors.

use spoolscope_traces::records::{
    NONE, PlanOp, REASON_AROUND, REASON_BAD_FD, REASON_NOT_A_FILE, REASON_UNSUPPORTED,
};
use std::sync::atomic::Ordering::Relaxed;

use crate::engine::args::shape_of;
use crate::engine::by_own_name;
use crate::engine::copies;
use crate::engine::fds::{self, Open};
use crate::engine::life;
use crate::engine::mapped;
use crate::engine::plain::{name_of, open_here, plain};
use crate::engine::raw::{is_direct, locked, syscall};
use crate::engine::special;
use crate::engine::task::Task;
use crate::engine::verdict::{self, Refusal, Stat, Verdict};
use crate::semantics::{self, Kind, OpenFlags, XattrCall, XattrRole};

/// Alignment of memory for O_DIRECT in bytes, enough for any disk.
const ALIGNED: usize = 4096;

/// Executes an operation; the verdict states whether the result is the recorded one.
pub fn make(task: &mut Task, op: &PlanOp, kind: Kind) -> Result<(i64, Verdict), Refusal> {
    refuse(task, op, kind)?;
    if special::is_opened(op, kind) {
        return special::open(task, op, REASON_NOT_A_FILE);
    }
    let ret = match semantics::was_denied(op) {
        true => life::as_denied(task, op, |task| perform(task, op, kind)),
        false => perform(task, op, kind),
    }?;
    if let Some(left_out) = special::met(task, op, kind, ret) {
        return left_out;
    }
    after(task, op, kind, ret);
    let stat = (ret >= 0 && matches!(kind, Kind::Stat | Kind::Fstat)).then(|| stat_of(task, op));
    Ok((ret, verdict::compare(op, kind, ret, stat)))
}

fn perform(task: &mut Task, op: &PlanOp, kind: Kind) -> Result<i64, Refusal> {
    Ok(match kind {
        Kind::Close => close(task, op)?,
        Kind::CloseRange => close_range(task, op),
        Kind::Dup2 => dup2(task, op)?,
        Kind::Watch => watch(task, op)?,
        Kind::Unwatch => unwatch(task, op)?,
        Kind::Unmap | Kind::Msync => mapped::change(task, op)?,
        Kind::Fault => mapped::touch(task, op)?,
        Kind::Sendfile => copies::sendfile(task, op)?,
        Kind::CopyRange => copies::copy_range(task, op)?,
        Kind::Splice => copies::splice(task, op)?,
        Kind::Clone => copies::clone(task, op)?,
        Kind::Chroot => look_up(task, op)?,
        Kind::Identity => life::change_identity(task, op),
        Kind::Chdir | Kind::Fchdir if semantics::leaves_spool(op) => leave_spool(task),
        Kind::FailedExec => failed_exec(task, op)?,
        // The call would flush the whole machine; only the target is meant.
        Kind::SyncAll => sync_target(task),
        Kind::Write => write(task, op)?,
        Kind::Ftruncate | Kind::SetXattr => by_own_name::plain_or_reopened(task, op, kind)?,
        Kind::Chmod | Kind::Chown => match special::change(task, op, kind) {
            Some(ret) => ret,
            None => plain(task, op, kind)?,
        },
        _ => plain(task, op, kind)?,
    })
}

fn refuse(task: &Task, op: &PlanOp, kind: Kind) -> Result<(), Refusal> {
    if kind != Kind::Unsupported
        && let Some(reason) = semantics::machine_lacked(op)
    {
        return Err(reason);
    }
    match kind {
        Kind::Unsupported => Err(REASON_UNSUPPORTED),
        // A signal ended the call; only those that end the sleep for a lock are replayed.
        _ if op.ret == -i64::from(libc::EINTR) && !semantics::was_interrupted(op) => {
            Err(REASON_UNSUPPORTED)
        }
        _ if semantics::had_bad_address(op) || had_many_parts(task, op) => Err(REASON_UNSUPPORTED),
        // The root has no name here that a slash can follow, and any other is refused otherwise.
        Kind::Open if makes_mount_point(task, op) => Err(REASON_AROUND),
        Kind::Symlink if !task.context.confinement.chrooted => Err(REASON_UNSUPPORTED),
        Kind::SetXattr | Kind::GetXattr if !takes_xattr(task, op) => Err(REASON_UNSUPPORTED),
        Kind::Fcntl if !is_known_fcntl(op) => Err(REASON_UNSUPPORTED),
        _ => special::refuse(task, op, kind),
    }
}

/// Returns whether a call failed for too many parts of a vector; it may have failed for O_DIRECT.
fn had_many_parts(task: &Task, op: &PlanOp) -> bool {
    let file = || task.process.fds.get(op.fd);
    semantics::may_have_many_parts(op) && file().is_some_and(|open| !is_direct(open.real))
}

/// Returns whether a call was to make the mount point, by a name that ended in a slash.
fn makes_mount_point(task: &Task, op: &PlanOp) -> bool {
    let at_root = op.path != NONE && task.context.schedule.plan.string(op.path).is_empty();
    at_root && OpenFlags::of(op).only_creates() && op.ret == -i64::from(libc::EISDIR)
}

/// Returns whether an xattr call can be replayed. An access ACL changes the mode: it can be read
/// and removed, and set where the resulting mode is known. Attributes that are left out never exist
/// here: a call that found none can be replayed.
fn takes_xattr(task: &Task, op: &PlanOp) -> bool {
    if op.path2 == NONE {
        return false;
    }
    let name = task.context.schedule.plan.string(op.path2);
    if semantics::has_no_namespace(op, name) {
        return true;
    }
    let name = semantics::whole_xattr(name);
    match semantics::xattr_role(&name) {
        XattrRole::Plain => name.starts_with(b"user.") || task.context.confinement.owners,
        XattrRole::Acl => {
            let sets = semantics::xattr_call(op) == Some(XattrCall::Set);
            !sets || semantics::mode_by_acl(op).is_some()
        }
        XattrRole::Left => match semantics::xattr_call(op) {
            Some(XattrCall::Get) => op.ret == -i64::from(libc::ENODATA),
            Some(XattrCall::Remove) => op.ret >= 0 && name == b"system.posix_acl_default",
            _ => false,
        },
    }
}

fn is_known_fcntl(op: &PlanOp) -> bool {
    let flags = matches!(
        op.cmd,
        libc::F_GETFD | libc::F_SETFD | libc::F_GETFL | libc::F_SETFL
    );
    let copies = matches!(op.cmd, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC);
    let leases = matches!(op.cmd, libc::F_SETLEASE | libc::F_GETLEASE);
    semantics::is_lock_command(op.cmd) || flags || copies || leases
}

fn close(task: &Task, op: &PlanOp) -> Result<i64, Refusal> {
    match task.process.fds.take(op.fd) {
        Some(open) => Ok(syscall(
            libc::SYS_close,
            [i64::from(open.real), 0, 0, 0, 0, 0],
        )),
        None if op.ret < 0 => Ok(syscall(libc::SYS_close, [-1, 0, 0, 0, 0, 0])),
        None => Err(REASON_BAD_FD),
    }
}

fn close_range(task: &Task, op: &PlanOp) -> i64 {
    if op.ret < 0 {
        return op.ret;
    }
    let (fds, marks) = semantics::fd_range(op);
    let inside: Vec<(i32, Open)> = task
        .process
        .fds
        .open_fds()
        .filter(|(fd, _)| fds.contains(fd))
        .collect();
    for (fd, open) in inside {
        if marks {
            task.process.fds.bind(
                fd,
                Open {
                    cloexec: true,
                    ..open
                },
            );
        } else if let Some(open) = task.process.fds.take(fd) {
            fds::close(open.real);
        }
    }
    op.ret
}

/// Replays a dup2. Its target is bound here to another real number, or to none yet.
fn dup2(task: &Task, op: &PlanOp) -> Result<i64, Refusal> {
    if semantics::puts_outside(op) {
        if let Some(target) = task.process.fds.take(op.fd2) {
            fds::close(target.real);
        }
        return Ok(op.ret);
    }
    let open = open_here(task, op, op.fd)?;
    let real = i64::from(open.real);
    let onto = |target: i64| {
        let flags = i64::from(op.flags as i32);
        Ok(syscall(libc::SYS_dup3, [real, target, flags, 0, 0, 0]))
    };
    match task.process.fds.get(op.fd2) {
        // dup2 onto itself does nothing, dup3 fails.
        _ if op.fd == op.fd2 && op.ret >= 0 => Ok(real),
        _ if op.fd == op.fd2 => onto(real),
        _ if op.ret < 0 => onto(-1),
        Some(target) => onto(i64::from(target.real)),
        None => Ok(syscall(libc::SYS_dup, [real, 0, 0, 0, 0, 0])),
    }
}

/// Changes to the target's root directory, which stands for the world outside the spool.
fn leave_spool(task: &Task) -> i64 {
    let path = task.context.confinement.path(b"");
    syscall(libc::SYS_chdir, [path.as_ptr() as i64, 0, 0, 0, 0, 0])
}

/// Adds a watch. The inotify instance is not in the trace: one is made at the first use.
fn watch(task: &mut Task, op: &PlanOp) -> Result<i64, Refusal> {
    if task.process.fds.get(op.fd2).is_none() {
        // SAFETY: plain system call.
        let real = unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) };
        if real < 0 {
            return Err(REASON_UNSUPPORTED);
        }
        task.process.fds.bind(
            op.fd2,
            Open {
                cloexec: true,
                ..Open::new(real)
            },
        );
    }
    let ret = plain(task, op, Kind::Watch)?;
    if ret >= 0 && op.ret >= 0 {
        locked(&task.process.fds.watches).push((op.fd2, op.ret, ret));
    }
    Ok(ret)
}

fn unwatch(task: &mut Task, op: &PlanOp) -> Result<i64, Refusal> {
    let open = open_here(task, op, op.fd2)?;
    let watches = locked(&task.process.fds.watches);
    let known = watches
        .iter()
        .rev()
        .find(|(fd, recorded, _)| (*fd, *recorded) == (op.fd2, op.arg));
    let real = known.map_or(-1, |(_, _, real)| *real);
    Ok(syscall(
        libc::SYS_inotify_rm_watch,
        [i64::from(open.real), real, 0, 0, 0, 0],
    ))
}

/// Makes a write. A file opened with O_DIRECT takes only aligned memory: the pattern is then
/// copied.
fn write(task: &mut Task, op: &PlanOp) -> Result<i64, Refusal> {
    let ret = plain(task, op, Kind::Write)?;
    if ret != -i64::from(libc::EINVAL) || op.ret <= 0 {
        return Ok(ret);
    }
    let (data, len) = task.to_write(op);
    // SAFETY: the pattern is as long as the longest write.
    let data = unsafe { std::slice::from_raw_parts(data, len) };
    let mut room = vec![0; len + ALIGNED];
    let start = room.as_ptr().align_offset(ALIGNED);
    room[start..start + len].copy_from_slice(data);
    let place = room[start..].as_ptr();
    let shape = shape_of(op).ok_or(REASON_UNSUPPORTED)?;
    let registers = task.arguments(op, Kind::Write, &shape)?;
    let registers = task.with_data(registers, place);
    Ok(syscall(shape.number, registers))
}

/// Makes only the lookup of a path. The root directory stays the target: names in a plan are whole.
fn look_up(task: &mut Task, op: &PlanOp) -> Result<i64, Refusal> {
    let (directory, path) = name_of(task, op)?;
    Ok(syscall(
        libc::SYS_faccessat,
        [directory, path, i64::from(libc::X_OK), 0, 0, 0],
    ))
}

/// Replays a failed execve as a path lookup, and only below the spool. A file that was found but
/// could not be executed is not looked up.
fn failed_exec(task: &mut Task, op: &PlanOp) -> Result<i64, Refusal> {
    const OF_NAMES: [i32; 3] = [libc::ENOENT, libc::ENOTDIR, libc::ENAMETOOLONG];
    let by_name = OF_NAMES.iter().any(|errno| op.ret == -i64::from(*errno));
    match by_name && semantics::uses_path(op) {
        true => look_up(task, op),
        false => Ok(op.ret),
    }
}

fn sync_target(task: &Task) -> i64 {
    let root = task.context.confinement.path(b"");
    // SAFETY: the path is NUL-terminated; the descriptor is closed below.
    let real = unsafe { libc::open(root.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY) };
    let ret = syscall(libc::SYS_syncfs, [i64::from(real), 0, 0, 0, 0, 0]);
    fds::close(real);
    ret
}

/// Binds new descriptors to their recorded numbers and follows the working directory.
fn after(task: &mut Task, op: &PlanOp, kind: Kind, ret: i64) {
    if semantics::puts_outside(op) {
        return;
    }
    if ret >= 0 && (semantics::makes_fd(op) || kind == Kind::Open) {
        bind_result(task, op, kind, ret as i32);
        return;
    }
    if ret < 0 {
        if semantics::makes_fd(op)
            && let Some(open) = task.process.fds.take(op.ret as i32)
        {
            fds::close(open.real);
        }
        return;
    }
    match kind {
        Kind::Chdir | Kind::Fchdir => task.process.cwd.store(op.path, Relaxed),
        Kind::Map if op.ret >= 0 => mapped::note(task, op, ret as usize),
        Kind::Fcntl => change_bits(task, op),
        Kind::Seek if ret == 0 => task.process.fds.rewind(op.fd),
        _ => {}
    }
}

fn bind_result(task: &Task, op: &PlanOp, kind: Kind, real: i32) {
    if !semantics::makes_fd(op) {
        // The recorded call failed: there is no number to bind the descriptor to.
        fds::close(real);
        return;
    }
    let source = task.process.fds.get(op.fd);
    let cloexec = semantics::closes_on_exec(op);
    let opened = || Open {
        path: op.path,
        append: OpenFlags::of(op).appends(),
        ..Open::new(real)
    };
    let open = source.filter(|_| kind != Kind::Open).unwrap_or_else(opened);
    task.process.fds.bind(
        op.ret as i32,
        Open {
            real,
            cloexec,
            ..open
        },
    );
}

fn change_bits(task: &Task, op: &PlanOp) {
    let Some(open) = task.process.fds.get(op.fd) else {
        return;
    };
    match op.cmd {
        libc::F_SETFD => {
            let cloexec = op.arg as i32 & libc::FD_CLOEXEC != 0;
            task.process.fds.bind(op.fd, Open { cloexec, ..open });
        }
        // All copies of the descriptor share it, those of other processes too.
        libc::F_SETFL if OpenFlags::new(op.arg as u32).appends() != open.append => {
            let control = task.context.schedule.control();
            control.append_changed.store(1, Relaxed);
        }
        _ => {}
    }
}

/// Returns type and size from the buffer that stat or statx filled.
fn stat_of(task: &Task, op: &PlanOp) -> Stat {
    let place = task.scratch.stat.as_ptr();
    // SAFETY: the kernel filled the buffer, which is larger than both structs.
    unsafe {
        if semantics::is_statx(op) {
            let stat = &*place.cast::<libc::statx>();
            return Stat {
                mode: u32::from(stat.stx_mode),
                size: stat.stx_size as i64,
            };
        }
        let stat = &*place.cast::<libc::stat>();
        Stat {
            mode: stat.st_mode,
            size: stat.st_size,
        }
    }
}
