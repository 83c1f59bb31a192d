//! Changes by the name that a descriptor has below /proc/self/fd.
//!
//! The trace has `truncate("/proc/self/fd/3")` as `ftruncate(3)`. A descriptor that only stands for a
//! name (O_PATH) takes no such call, and one that is open for reading no ftruncate.

use spoolscope_traces::records::{PlanOp, REASON_UNSUPPORTED};
use std::io::Write;

use crate::engine::args::shape_of;
use crate::engine::fds;
use crate::engine::plain::plain;
use crate::engine::raw::syscall;
use crate::engine::task::Task;
use crate::engine::verdict::Refusal;
use crate::semantics::Kind;

const BAD_FD: i64 = -(libc::EBADF as i64);
/// Result of ftruncate by a descriptor that is open for reading.
const NOT_WRITABLE: i64 = -(libc::EINVAL as i64);

/// Makes a change by a descriptor; one that does not take it here, but did, is opened for it.
pub fn plain_or_reopened(task: &mut Task, op: &PlanOp, kind: Kind) -> Result<i64, Refusal> {
    let ret = plain(task, op, kind)?;
    let only_named = ret == BAD_FD && op.ret != BAD_FD;
    let unwritable = ret == NOT_WRITABLE && op.ret >= 0 && kind == Kind::Ftruncate;
    let open = task.process.fds.get(op.fd);
    let Some(open) = open.filter(|_| only_named || unwritable) else {
        return Ok(ret);
    };
    let access = match kind {
        Kind::Ftruncate => libc::O_WRONLY,
        _ => libc::O_RDONLY,
    };
    let real = reopened(task.context.confinement.proc, open.real, access);
    if real < 0 {
        return Ok(real);
    }
    let shape = shape_of(op).ok_or(REASON_UNSUPPORTED)?;
    let mut registers = task.arguments(op, kind, &shape)?;
    registers[0] = real; // all these calls begin with their descriptor
    let ret = syscall(shape.number, registers);
    fds::close(real as i32);
    Ok(ret)
}

/// Opens the object of a descriptor by its name; the root directory is not the one that has /proc.
fn reopened(proc: i32, real: i32, access: i32) -> i64 {
    let mut name = [0_u8; 32];
    // Always fits, and the rest is NUL.
    let _ = write!(&mut name[..31], "thread-self/fd/{real}");
    let flags = access | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let place = name.as_ptr() as i64;
    syscall(
        libc::SYS_openat,
        [proc.into(), place, flags.into(), 0, 0, 0],
    )
}
