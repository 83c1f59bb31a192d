//! Names that a listing really showed, compared with those that the model predicts.

use spoolscope_traces::records::{PlanOp, REASON_NAMES, REASON_UNSUPPORTED, VERDICT_DIVERGED};
use std::ffi::CStr;
use std::mem::MaybeUninit;

use crate::engine::args::shape_of;
use crate::engine::call;
use crate::engine::plain::{reads_on, until_done};
use crate::engine::task::Task;
use crate::engine::verdict::{self, Refusal, SAME, Verdict};
use crate::model::expect::listings::{Listing, NameSet};
use crate::model::state::listed::is_silly;
use crate::semantics::Kind;

/// Makes a getdents; the last one of a listing diverges if the listing showed other names.
///
/// The number of calls that a listing takes is no difference: filesystems fill a buffer as they
/// like, and a signal ends a call after the names that it has by then.
pub fn read(
    task: &mut Task,
    op: &PlanOp,
    at: u32,
    (place, listing): (u32, &Listing),
) -> Result<(i64, Verdict), Refusal> {
    let shape = shape_of(op).ok_or(REASON_UNSUPPORTED)?;
    let mut registers = task.arguments(op, Kind::Getdents, &shape)?;
    let mut buffer = std::mem::take(&mut task.reader.buffer);
    buffer.resize(registers[2].max(0) as usize, 0);
    registers[1] = buffer.as_mut_ptr() as i64;
    let mut names = match at == listing.first {
        true => NameSet::default(),
        false => task.reader.names.remove(&place).unwrap_or_default(),
    };
    let typed = shape.number == libc::SYS_getdents64;
    let to_end = reads_on(op) || at == listing.last;
    let ret = until_done(to_end, shape.number, registers, |ret| {
        let filled = buffer.get(..ret.max(0) as usize).unwrap_or(&[]);
        add(&mut names, filled, typed, registers[0] as i32);
    });
    task.reader.buffer = buffer;
    let mut verdict = verdict::compare(op, Kind::Getdents, ret, None);
    let ended_before = ret == 0 && op.ret > 0 && names == listing.names;
    if ended_before {
        verdict = SAME;
    }
    if at != listing.last {
        task.reader.names.insert(place, names);
    } else if verdict.0 != VERDICT_DIVERGED && names != listing.names {
        verdict = (VERDICT_DIVERGED, REASON_NAMES);
    }
    Ok((ret, verdict))
}

/// Makes a getdents of a directory whose names are not known. It may end where the recorded one
/// goes on if calls before it returned the bytes that were recorded up to here, and the reverse.
pub fn read_unknown(task: &mut Task, op: &PlanOp) -> Result<(i64, Verdict), Refusal> {
    let (ret, verdict) = call::make(task, op, Kind::Getdents)?;
    if ret < 0 || op.ret < 0 {
        return Ok((ret, verdict));
    }
    let ahead = task.process.fds.listed(op.fd, ret - op.ret);
    let covered = (ret == 0 && ahead >= 0) || (op.ret == 0 && ahead <= 0);
    Ok((ret, if covered { SAME } else { verdict }))
}

/// Adds the names of a filled buffer, see getdents(2); in a `linux_dirent` the type is the last
/// byte.
fn add(names: &mut NameSet, mut buffer: &[u8], typed: bool, directory: i32) {
    const LENGTH: usize = 16;
    while let Some(length) = buffer.get(LENGTH..LENGTH + 2) {
        let length = usize::from(u16::from_ne_bytes([length[0], length[1]]));
        let Some(entry) = buffer.get(..length.max(LENGTH + 3)) else {
            return;
        };
        let (kind, name) = match typed {
            true => (entry[LENGTH + 2], &entry[LENGTH + 3..]),
            false => (entry[entry.len() - 1], &entry[LENGTH + 2..]),
        };
        if let Ok(name) = CStr::from_bytes_until_nul(name)
            && is_shown(name, kind, directory)
        {
            names.add(name.to_bytes());
        }
        buffer = &buffer[entry.len()..];
    }
}

/// As `listings::is_shown`, with the type that the filesystem reports.
fn is_shown(name: &CStr, kind: u8, directory: i32) -> bool {
    let kind = match kind {
        libc::DT_UNKNOWN => type_of(name, directory),
        known => known,
    };
    let name = name.to_bytes();
    kind != libc::DT_LNK && !matches!(name, b"." | b".." | b"lost+found") && !is_silly(name)
}

/// Returns the type of a name, where the filesystem keeps none in its directories.
fn type_of(name: &CStr, directory: i32) -> u8 {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the name is NUL-terminated, the buffer large enough and valid when zeroed.
    let mode = unsafe {
        libc::fstatat(
            directory,
            name.as_ptr(),
            stat.as_mut_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
        );
        stat.assume_init().st_mode
    };
    (mode >> 12) as u8 // IFTODT of dirent.h
}
