//! Contents that go from one descriptor to another.

use spoolscope_traces::records::{PlanOp, REASON_UNSUPPORTED};

use crate::engine::args::{Refusal, place};
use crate::engine::call::{open_here, plain, syscall};
use crate::engine::fds;
use crate::engine::task::Task;
use crate::semantics::{self, Kind};

/// What a pipe holds; the pattern is longer.
const PIPE: i64 = 65_536;
/// At once, where all there is was asked for.
const MOST: i64 = 1 << 30;

/// A copy of which one end was outside the spool: what came from there is a pattern.
pub fn copy_range(task: &mut Task, op: &PlanOp) -> Result<i64, Refusal> {
    let ends = [op.fd, op.fd2].map(|fd| task.process.fds.get(fd));
    match ends {
        [None, Some(to)] if op.ret >= 0 && semantics::is_outside(op) => {
            Ok(fill(task, op, to.real, op.arg))
        }
        [Some(_), None] => Err(REASON_UNSUPPORTED),
        _ => plain(task, op, Kind::CopyRange),
    }
}

/// Writes as many bytes as a call brought from outside, at an offset or, if negative, the position.
fn fill(task: &Task, op: &PlanOp, to: i32, offset: i64) -> i64 {
    let mut done = 0;
    while done < op.ret {
        let data = task.context.pattern.at(op.ino, done) as i64;
        let len = (op.ret - done).min(PIPE);
        let ret = match offset {
            0.. => {
                let at = offset.saturating_add(done);
                syscall(libc::SYS_pwrite64, [to.into(), data, len, at, 0, 0])
            }
            _ => syscall(libc::SYS_write, [to.into(), data, len, 0, 0, 0]),
        };
        if ret <= 0 {
            return ret;
        }
        done += ret;
    }
    done
}

/// What went to a socket goes to /dev/null.
pub fn sendfile(task: &mut Task, op: &PlanOp) -> Result<i64, Refusal> {
    let to = task.process.fds.get(op.fd2);
    if let (None, Some(to)) = (task.process.fds.get(op.fd), to)
        && op.ret >= 0
        && semantics::is_outside(op)
    {
        return Ok(fill(task, op, to.real, -1));
    }
    let from = open_here(task, op, op.fd)?;
    let (to, size) = match to {
        Some(file) => (file.real, op.size.min(op.ret.max(0))),
        None => (task.context.sink, op.size),
    };
    let mut offset = 0;
    let at = place(&mut offset, op.offset);
    let registers = [i64::from(to), i64::from(from.real), at, size, 0, 0];
    Ok(syscall(libc::SYS_sendfile, registers))
}

/// One end of a splice is a pipe: a private one, emptied or filled for the purpose.
pub fn splice(task: &mut Task, op: &PlanOp) -> Result<i64, Refusal> {
    let mut pipe = [0; 2];
    // SAFETY: `pipe` has room for two descriptors.
    if op.ret < 0 || unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_NONBLOCK) } < 0 {
        return Err(REASON_UNSUPPORTED);
    }
    let [out, into] = pipe;
    let size = op.size.min(op.ret.max(1));
    let ret = match (task.process.fds.get(op.fd), task.process.fds.get(op.fd2)) {
        (Some(file), _) => splice_call((file.real, op.offset), (into, -1), size),
        (None, Some(file)) => {
            let data = task.context.pattern.at(op.ino, 0);
            // SAFETY: the pattern is longer than a pipe holds; a full pipe only writes less.
            unsafe { libc::write(into, data.cast(), size.min(PIPE) as usize) };
            splice_call((out, -1), (file.real, op.arg), size)
        }
        (None, None) => -i64::from(libc::EBADF),
    };
    fds::close(out);
    fds::close(into);
    Ok(ret)
}

/// Descriptors, each with an offset, or -1 for its position.
fn splice_call(from: (i32, i64), to: (i32, i64), size: i64) -> i64 {
    let mut offsets = [0; 2];
    let [off_in, off_out] = &mut offsets;
    let (off_in, off_out) = (place(off_in, from.1), place(off_out, to.1));
    let (from, to) = (i64::from(from.0), i64::from(to.0));
    syscall(libc::SYS_splice, [from, off_in, to, off_out, size, 0])
}

/// FICLONE and FICLONERANGE. A filesystem whose files share no blocks refuses them, and the contents
/// are copied, as `cp` does then: later calls find what they found.
pub fn clone(task: &Task, op: &PlanOp) -> Result<i64, Refusal> {
    let to = i64::from(open_here(task, op, op.fd)?.real);
    let from = i64::from(open_here(task, op, op.fd2)?.real);
    let mut range = libc::file_clone_range {
        src_fd: from,
        src_offset: op.arg.max(0) as u64,
        src_length: op.size.max(0) as u64,
        dest_offset: op.offset.max(0) as u64,
    };
    if op.ret < 0 {
        // What failed must leave nothing where it would not: no filesystem shares single bytes.
        (range.src_offset, range.src_length, range.dest_offset) = (1, 1, 1);
    }
    let command = match op.cmd as libc::Ioctl {
        libc::FICLONE | libc::FICLONERANGE => libc::FICLONERANGE as i64,
        _ => return Err(REASON_UNSUPPORTED),
    };
    let place = &raw const range as i64;
    let ret = syscall(libc::SYS_ioctl, [to, command, place, 0, 0, 0]);
    if ret < 0 && op.ret >= 0 {
        copy_all(from, to, &range);
    }
    Ok(ret)
}

/// Copies a range; length 0: to the end of the file.
fn copy_all(from: i64, to: i64, range: &libc::file_clone_range) {
    let (mut at, mut at2) = (range.src_offset, range.dest_offset);
    let mut left = match range.src_length as i64 {
        0 => i64::MAX,
        length => length,
    };
    while left > 0 {
        let places = [&raw mut at as i64, &raw mut at2 as i64];
        let registers = [from, places[0], to, places[1], left.min(MOST), 0];
        match syscall(libc::SYS_copy_file_range, registers) {
            ..=0 => return,
            done => left -= done,
        }
    }
}
