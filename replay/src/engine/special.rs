//! Pipes, sockets and devices: none is opened, and no device is made; a socket stands in for it.
//!
//! Name, mode and owner are as recorded, so calls that need only these are made for real. An open
//! gets a descriptor that leads to the object without opening it (O_PATH): it can be copied,
//! closed, looked at, and named where a directory should be.

use spoolscope_traces::calls::FCHMODAT2;
use spoolscope_traces::records::{
    PlanOp, REASON_ERRNO, REASON_NOT_A_FILE, REASON_STAND_IN, VERDICT_DIVERGED, VERDICT_SKIPPED,
};

use crate::engine::fds::Open;
use crate::engine::plain;
use crate::engine::raw::{only_names, syscall};
use crate::engine::task::Task;
use crate::engine::verdict::{Refusal, Verdict};
use crate::semantics::{self, Kind, OpenFlags};

const NO_NAME: &[u8] = b"\0";

/// Refuses calls that need the device, or an open descriptor of an object that is not opened.
pub fn refuse(task: &Task, op: &PlanOp, kind: Kind) -> Result<(), Refusal> {
    let forbidden = op.ret == -i64::from(libc::EPERM);
    if kind == Kind::Mknod && semantics::is_device(op.mode) && forbidden {
        return Err(REASON_STAND_IN);
    }
    if semantics::uses_path(op) {
        return Ok(());
    }
    let held = held(task, op);
    let special = held.is_some_and(|open| open.special)
        || semantics::is_special(u32::from(op.obj_mode)) && kind != Kind::CloseRange;
    let possible = || held.is_some() && works_unopened(op, kind);
    match special && !possible() {
        true => Err(REASON_NOT_A_FILE),
        false => Ok(()),
    }
}

fn held(task: &Task, op: &PlanOp) -> Option<Open> {
    let fd = match semantics::is_empty_path(op) {
        true => op.dirfd,
        false => op.fd,
    };
    task.process.fds.get(fd)
}

fn works_unopened(op: &PlanOp, kind: Kind) -> bool {
    match kind {
        Kind::Close | Kind::Dup | Kind::Dup2 | Kind::Stat | Kind::Fstat | Kind::Fchdir => true,
        Kind::Chmod | Kind::Chown => true,
        Kind::Fcntl => matches!(
            op.cmd,
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC | libc::F_GETFD | libc::F_SETFD
        ),
        _ => false,
    }
}

/// Returns whether the call opened a pipe, socket or device.
pub fn is_opened(op: &PlanOp, kind: Kind) -> bool {
    kind == Kind::Open && op.ret >= 0 && semantics::is_special(u32::from(op.obj_mode))
}

/// Binds a descriptor of the object that does not open it.
pub fn open(task: &mut Task, op: &PlanOp, reason: u8) -> Result<(i64, Verdict), Refusal> {
    let (directory, path) = plain::name_of(task, op)?;
    let flags = libc::O_PATH | OpenFlags::of(op).bits() & libc::O_NOFOLLOW;
    let real = syscall(
        libc::SYS_openat,
        [directory, path, i64::from(flags), 0, 0, 0],
    );
    if real < 0 {
        return Ok((real, (VERDICT_DIVERGED, REASON_ERRNO)));
    }
    let open = Open {
        path: op.path,
        cloexec: semantics::closes_on_exec(op),
        special: true,
        ..Open::new(real as i32)
    };
    task.process.fds.bind(op.ret as i32, open);
    Ok((real, (VERDICT_SKIPPED, reason)))
}

/// Changes mode or owner of the object of an unopened descriptor; `None` if it is opened.
pub fn change(task: &mut Task, op: &PlanOp, kind: Kind) -> Option<i64> {
    let open = held(task, op).filter(|_| !semantics::uses_path(op))?;
    // The recorded call may have used the descriptor's name below /proc/self/fd.
    let by_name = || op.ret != -i64::from(libc::EBADF) && only_names(open.real);
    if !open.special && !by_name() {
        return None;
    }
    let (real, name) = (i64::from(open.real), NO_NAME.as_ptr() as i64);
    let here = i64::from(libc::AT_EMPTY_PATH);
    if kind == Kind::Chown {
        let (uid, gid) = (
            task.owner(op.arg as u32),
            task.owner((op.arg as u64 >> 32) as u32),
        );
        return Some(syscall(libc::SYS_fchownat, [real, name, uid, gid, here, 0]));
    }
    let mode = i64::from(op.mode);
    // Kernels have it since 6.6.
    let ret = syscall(FCHMODAT2, [real, name, mode, here, 0, 0]);
    if ret != -i64::from(libc::ENOSYS) {
        return Some(ret);
    }
    let path = task.context.schedule.plan.string(op.path);
    let path = task.context.confinement.path(path);
    let registers = [libc::AT_FDCWD.into(), path.as_ptr() as i64, mode, 0, 0, 0];
    Some(syscall(libc::SYS_fchmodat, registers))
}

/// Returns the outcome of a call that met a stand-in; `None` if it is judged as any other.
///
/// Sockets cannot be opened (ENXIO); the errors of opening a device have nothing to do with names.
pub fn met(
    task: &mut Task,
    op: &PlanOp,
    kind: Kind,
    ret: i64,
) -> Option<Result<(i64, Verdict), Refusal>> {
    const OF_DEVICES: [i32; 7] = [
        libc::EACCES,
        libc::EPERM,
        libc::EBUSY,
        libc::EINVAL,
        libc::ENODEV,
        libc::ENOMEDIUM,
        libc::EMEDIUMTYPE,
    ];
    let left_out = Some(Ok((ret, (VERDICT_SKIPPED, REASON_STAND_IN))));
    let of_device = || OF_DEVICES.iter().any(|error| op.ret == -i64::from(*error));
    const NONE_THERE: i64 = -(libc::ENXIO as i64);
    // The target is mounted without devices (nodev): a device without a driver gives EACCES there.
    const FORBIDDEN: i64 = -(libc::EACCES as i64);
    match kind {
        Kind::Mknod if semantics::is_device(op.mode) && ret >= 0 && op.ret >= 0 => left_out,
        Kind::Open if (ret, op.ret) == (FORBIDDEN, NONE_THERE) => left_out,
        Kind::Open if ret != NONE_THERE => None,
        Kind::Open if op.ret >= 0 && op.obj_mode == 0 => Some(open(task, op, REASON_STAND_IN)),
        Kind::Open if of_device() => left_out,
        _ => None,
    }
}
