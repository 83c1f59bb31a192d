//! Calls that copy contents from one descriptor to another.

use spoolscope_traces::records::{PlanOp, REASON_UNSUPPORTED};

use crate::engine::args::place;
use crate::engine::fds;
use crate::engine::plain::{open_here, plain};
use crate::engine::raw::syscall;
use crate::engine::task::Task;
use crate::engine::verdict::Refusal;
use crate::semantics::{self, Kind};

/// Bytes that a pipe holds; the pattern is longer.
const PIPE: i64 = 65_536;
/// Most bytes of one copy, where a whole range is copied.
const MOST: i64 = 1 << 30;

/// Replays a copy_file_range; contents that came from outside the spool are a pattern.
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

/// Replays a sendfile; contents that went to a socket go to /dev/null.
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

/// Replays a splice; the pipe at one end is a private one, emptied or filled for the purpose.
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

/// Makes a splice; each descriptor has an offset, or -1 for its position.
fn splice_call(from: (i32, i64), to: (i32, i64), size: i64) -> i64 {
    let mut offsets = [0; 2];
    let [off_in, off_out] = &mut offsets;
    let (off_in, off_out) = (place(off_in, from.1), place(off_out, to.1));
    let (from, to) = (i64::from(from.0), i64::from(to.0));
    syscall(libc::SYS_splice, [from, off_in, to, off_out, size, 0])
}

/// Replays FICLONE and FICLONERANGE. A filesystem whose files share no blocks refuses them; the
/// contents are then copied, as `cp` does, so that later calls find them.
pub fn clone(task: &Task, op: &PlanOp) -> Result<i64, Refusal> {
    if matches!(op.cmd as libc::Ioctl, libc::FIOCLEX | libc::FIONCLEX) {
        // A mark that failed; others are planned as fcntl, which takes more descriptors (O_PATH).
        let real = task.process.fds.get(op.fd).map_or(-1, |open| open.real);
        let registers = [real.into(), op.cmd.into(), 0, 0, 0, 0];
        return Ok(syscall(libc::SYS_ioctl, registers));
    }
    let to = i64::from(open_here(task, op, op.fd)?.real);
    let from = i64::from(open_here(task, op, op.fd2)?.real);
    let mut range = libc::file_clone_range {
        src_fd: from,
        src_offset: op.arg.max(0) as u64,
        src_length: op.size.max(0) as u64,
        dest_offset: op.offset.max(0) as u64,
    };
    if op.ret < 0 {
        // A clone that failed must change nothing here either: no filesystem shares single bytes.
        (range.src_offset, range.src_length, range.dest_offset) = (1, 1, 1);
    }
    let command = match op.cmd as libc::Ioctl {
        libc::FICLONE | libc::FICLONERANGE => libc::FICLONERANGE as i64,
        _ => return Err(REASON_UNSUPPORTED),
    };
    let place = &raw const range as i64;
    let ret = syscall(libc::SYS_ioctl, [to, command, place, 0, 0, 0]);
    let shares_none = [libc::EOPNOTSUPP, libc::EINVAL].map(|error| -i64::from(error));
    match op.ret >= 0 && shares_none.contains(&ret) {
        true => Ok(copy_all(from, to, &range).err().unwrap_or(ret)),
        false => Ok(ret),
    }
}

/// Copies a range except its holes; length 0 means to the end of the file. The position of the
/// source stays as it was.
fn copy_all(from: i64, to: i64, range: &libc::file_clone_range) -> Result<(), i64> {
    let seek = |at, whence| syscall(libc::SYS_lseek, [from, at, i64::from(whence), 0, 0, 0]);
    let position = seek(0, libc::SEEK_CUR);
    let size = seek(0, libc::SEEK_END);
    let (begin, length) = (range.src_offset as i64, range.src_length as i64);
    let end = match length {
        0 => size,
        length => size.min(begin.saturating_add(length)),
    };
    let moved = (range.dest_offset as i64).saturating_sub(begin);
    let mut at = begin;
    let mut failed = 0;
    while at < end && failed == 0 {
        // ENXIO: no data before the end. Another error: the filesystem does not know.
        at = match seek(at, libc::SEEK_DATA) {
            data @ 0.. => data,
            error if error == -i64::from(libc::ENXIO) => break,
            _ => at,
        };
        let stop = seek(at, libc::SEEK_HOLE).max(at.saturating_add(1)).min(end);
        (at, failed) = copy_part(from, to, (at, stop), moved);
    }
    seek(position, libc::SEEK_SET);
    // The range may end with a hole.
    let last = end.saturating_add(moved);
    if failed == 0 && size_of(to) < last {
        failed = syscall(libc::SYS_ftruncate, [to, last, 0, 0, 0, 0]);
    }
    if failed < 0 { Err(failed) } else { Ok(()) }
}

fn size_of(fd: i64) -> i64 {
    // SAFETY: a `stat` of zeros is valid.
    let mut stat = unsafe { std::mem::zeroed::<libc::stat>() };
    // SAFETY: the kernel fills it, or leaves it as it is.
    unsafe { libc::fstat(fd as i32, &raw mut stat) };
    stat.st_size
}

/// Copies a part of a range, `moved` bytes further on; returns the end reached, and an error or 0.
fn copy_part(from: i64, to: i64, (begin, end): (i64, i64), moved: i64) -> (i64, i64) {
    let mut at = begin;
    while at < end {
        let (mut at_from, mut at_to) = (at, at.saturating_add(moved));
        let places = [&raw mut at_from as i64, &raw mut at_to as i64];
        let registers = [from, places[0], to, places[1], (end - at).min(MOST), 0];
        match syscall(libc::SYS_copy_file_range, registers) {
            0 => return (end, 0),
            done @ 1.. => at += done,
            error => return (at, error),
        }
    }
    (at, 0)
}
