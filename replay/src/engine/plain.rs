//! Calls that are made with their registers as the plan fills them.

use spoolscope_traces::records::{PlanOp, REASON_AROUND, REASON_BAD_FD, REASON_UNSUPPORTED};

use crate::engine::args::shape_of;
use crate::engine::fds::Open;
use crate::engine::raw::syscall;
use crate::engine::task::Task;
use crate::engine::verdict::Refusal;
use crate::semantics::{self, Kind};

/// Makes a call as it is planned; a lock call waits for its turn.
pub fn plain(task: &mut Task, op: &PlanOp, kind: Kind) -> Result<i64, Refusal> {
    let shape = shape_of(op).ok_or(REASON_UNSUPPORTED)?;
    let registers = task.arguments(op, kind, &shape)?;
    // The other waiters of the deadlock are not in the trace.
    if semantics::was_deadlock(op) && task.context.schedule.rivals(task.slot).is_empty() {
        return Err(REASON_AROUND);
    }
    if kind == Kind::Fcntl || kind == Kind::Flock {
        return Ok(task.lock_in_turn(op, shape.number, registers));
    }
    Ok(until_done(reads_on(op), shape.number, registers, |_| ()))
}

/// Returns whether a listing must show more names than were recorded.
pub fn reads_on(op: &PlanOp) -> bool {
    op.arg == semantics::READS_ON && semantics::kind(op) == Kind::Getdents
}

/// Makes a call, until it has nothing more to return if a listing is to be read to its end.
pub fn until_done(
    to_end: bool,
    number: i64,
    registers: [i64; 6],
    mut take: impl FnMut(i64),
) -> i64 {
    loop {
        let ret = syscall(number, registers);
        take(ret);
        if ret <= 0 || !to_end {
            return ret;
        }
    }
}

/// Returns the open file of a descriptor of the plan.
pub fn open_here(task: &Task, op: &PlanOp, fd: i32) -> Result<Open, Refusal> {
    task.process
        .fds
        .get(fd)
        .ok_or(match op.ret == -i64::from(libc::EBADF) {
            true => REASON_UNSUPPORTED,
            false => REASON_BAD_FD,
        })
}

/// Returns the directory that a call begins at, and its path.
pub fn name_of(task: &mut Task, op: &PlanOp) -> Result<(i64, i64), Refusal> {
    let shape = shape_of(op).ok_or(REASON_UNSUPPORTED)?;
    let [first, second, ..] = task.arguments(op, semantics::kind(op), &shape)?;
    Ok(match shape.begins_with_directory() {
        true => (first, second),
        false => (i64::from(libc::AT_FDCWD), first),
    })
}
