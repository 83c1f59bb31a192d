//! Effects of calls on names and objects, as far as their arguments and results show.

mod attributes;
mod failures;
mod kind;
mod named;
mod opening;

use spoolscope_traces::calls;
pub use spoolscope_traces::calls::id_of;
use spoolscope_traces::records::{
    NONE, PLAN_EXEC, PLAN_EXIT, PLAN_FAULT, PLAN_FORK, PLAN_LEFT_OUT, PlanOp,
};
use std::ops::RangeInclusive;

pub use attributes::{
    MODE_AS_ACL, XattrCall, XattrRole, follows_links, has_no_namespace, missing_namespace,
    mode_by_acl, whole_xattr, xattr_call, xattr_role,
};
pub use failures::{
    had_bad_address, lacked_room, machine_lacked, may_have_many_parts, may_preallocate, to_write,
    was_deadlock, was_denied, was_interrupted,
};
pub use kind::{Kind, kind};
pub use named::{
    base, end, has_second_path, is_empty_path, leads_through, leads_up, links_descriptor,
    reads_descriptor, uses_path,
};
pub use opening::{OpenFlags, makes_nameless};

const STATX: u16 = id_of("statx");

/// The name of the call, or of the pseudo operation.
pub fn name(op: &PlanOp) -> String {
    match op.op {
        PLAN_FORK => "fork".into(),
        PLAN_EXEC => "exec".into(),
        PLAN_EXIT => "exit".into(),
        PLAN_FAULT => "fault".into(),
        PLAN_LEFT_OUT => "left out".into(),
        id => calls::by_id(id).map_or_else(|| format!("call {id}"), |call| call.name.into()),
    }
}

/// Returns whether an operation is a seek to data or to a hole.
pub fn looks_for_holes(op: &PlanOp) -> bool {
    kind(op) == Kind::Seek && matches!(op.cmd, libc::SEEK_DATA | libc::SEEK_HOLE)
}

/// Returns whether calls of a kind may close descriptors.
pub fn may_close(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Close | Kind::CloseRange | Kind::Dup2 | Kind::Exit | Kind::Exec
    )
}

/// Returns whether a call makes what it names, if that is not there.
pub fn creates(op: &PlanOp) -> bool {
    match kind(op) {
        Kind::Open => OpenFlags::of(op).creates(),
        Kind::Mkdir | Kind::Mknod | Kind::Symlink => true,
        _ => false,
    }
}

/// Returns whether a call may have made what it names, with the group of its directory.
pub fn may_make(op: &PlanOp) -> bool {
    op.ret >= 0 && uses_path(op) && creates(op)
}

/// Returns whether a call learned that a file may be executed, which its mode can forbid to all.
pub fn asks_to_execute(op: &PlanOp) -> bool {
    op.ret >= 0 && kind(op) == Kind::Access && op.mode & libc::X_OK as u32 != 0
}

/// Returns whether calls of a kind write to their second descriptor what they read from the first.
pub const fn is_copy(kind: Kind) -> bool {
    matches!(kind, Kind::CopyRange | Kind::Sendfile | Kind::Splice)
}

/// Returns whether bytes went from one descriptor to another.
pub fn copies(op: &PlanOp) -> bool {
    op.ret > 0 && is_copy(kind(op))
}

/// Returns whether the result is a new descriptor.
pub fn makes_fd(op: &PlanOp) -> bool {
    op.ret >= 0
        && match kind(op) {
            Kind::Open | Kind::Dup => true,
            Kind::Dup2 => op.ret != i64::from(op.fd),
            Kind::Fcntl => copies_descriptor(op),
            _ => false,
        }
}

/// Returns whether the command of an fcntl makes a copy of its descriptor.
pub fn copies_descriptor(op: &PlanOp) -> bool {
    matches!(op.cmd, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC)
}

/// Returns whether the first descriptor of a call led out of the spool: its file is not recorded.
pub fn is_outside(op: &PlanOp) -> bool {
    op.path == NONE && op.ino == 0 && op.obj_mode == 0
}

/// Returns whether a file outside the spool takes the number of a descriptor, which is closed
/// thereby: a shell restores its output in this way.
pub fn puts_outside(op: &PlanOp) -> bool {
    op.ret >= 0 && is_outside(op) && kind(op) == Kind::Dup2 && op.ret != i64::from(op.fd)
}

/// Returns whether a call moves the working directory out of the spool; find and rm return in this
/// way to where they were started.
pub fn leaves_spool(op: &PlanOp) -> bool {
    let outside = match kind(op) {
        Kind::Chdir => true,
        Kind::Fchdir => op.ino == 0,
        _ => false,
    };
    op.ret >= 0 && op.path == NONE && outside
}

/// Returns whether the descriptor that a call makes is closed by exec.
pub fn closes_on_exec(op: &PlanOp) -> bool {
    match kind(op) {
        Kind::Open | Kind::Dup2 => OpenFlags::of(op).closes_on_exec(),
        Kind::Fcntl => op.cmd == libc::F_DUPFD_CLOEXEC,
        _ => false,
    }
}

/// Returns the descriptors of close_range; true if they are only marked as closed by exec.
pub fn fd_range(op: &PlanOp) -> (RangeInclusive<i32>, bool) {
    const CLOSE_RANGE_CLOEXEC: u32 = 4;
    let last = if op.fd2 < 0 { i32::MAX } else { op.fd2 };
    (op.fd.max(0)..=last, op.flags & CLOSE_RANGE_CLOEXEC != 0)
}

/// The `arg` of a getdents that found no more names: names that were not recorded may be there, so
/// it is repeated until there are none.
pub const READS_ON: i64 = 1;

/// Calls that use the position of a descriptor.
const POSITIONED: [bool; calls::NAMES.len()] = {
    let mut uses = [false; calls::NAMES.len()];
    let mut id = 0;
    while id < uses.len() {
        uses[id] = match Kind::of_word(calls::KINDS[id]) {
            Some(Kind::Read | Kind::Write) => !calls::takes(id, "offset"),
            kind => matches!(kind, Some(Kind::Seek | Kind::Getdents | Kind::Sendfile)),
        };
        id += 1;
    }
    uses
};

/// Returns whether the call uses, or moves, the position of its descriptor.
pub fn moves_position(op: &PlanOp) -> bool {
    let uses = POSITIONED.get(usize::from(op.op)) == Some(&true);
    let elsewhere = kind(op) == Kind::Sendfile && op.offset >= 0;
    op.ret >= 0 && uses && !elsewhere
}

/// Returns whether the call uses or changes what all copies of its descriptor share: the position,
/// and flags such as O_APPEND.
pub fn changes_open_file(op: &PlanOp) -> bool {
    moves_position(op) || (op.ret >= 0 && sets_flags(op))
}

/// Returns whether the call sets the flags of an open file.
fn sets_flags(op: &PlanOp) -> bool {
    kind(op) == Kind::Fcntl && op.cmd == libc::F_SETFL
}

/// Returns whether the call fills a `struct statx`.
pub fn is_statx(op: &PlanOp) -> bool {
    op.op == STATX
}

/// Returns the permissions that a mask takes away from what its process makes.
pub fn umask(mask: u32) -> u32 {
    mask & 0o777
}

/// Role of a lock operation, as its result shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    Exclusive,
    Shared,
    /// A call that failed, mostly because the lock was held; or a query.
    Refused,
    Release,
}

/// Returns the lock role of fcntl and flock; true if the call may block.
pub fn lock(op: &PlanOp) -> Option<(Lock, bool)> {
    match kind(op) {
        Kind::Fcntl => fcntl_lock(op),
        Kind::Flock => {
            let command = op.cmd & !libc::LOCK_NB;
            let shared = command == libc::LOCK_SH;
            let blocks = op.cmd & libc::LOCK_NB == 0;
            Some(lock_role(op, command == libc::LOCK_UN, shared, blocks))
        }
        _ => None,
    }
}

/// Returns whether a call may sleep for a lock of the kind that the kernel checks for circles.
pub fn may_close_circle(op: &PlanOp) -> bool {
    op.cmd == libc::F_SETLKW && fcntl_lock(op).is_some_and(|(_, blocks)| blocks)
}

/// Returns whether a call asked for a shared lock; the answer to a query overwrote its question.
pub fn asks_shared(op: &PlanOp) -> bool {
    match kind(op) {
        Kind::Flock => op.cmd & !libc::LOCK_NB == libc::LOCK_SH,
        _ => i32::from(op.lock_type) == libc::F_RDLCK && !is_lock_query(op.cmd),
    }
}

fn is_lock_query(cmd: i32) -> bool {
    matches!(cmd, libc::F_GETLK | libc::F_OFD_GETLK)
}

fn fcntl_lock(op: &PlanOp) -> Option<(Lock, bool)> {
    let blocks = match op.cmd {
        libc::F_SETLKW | libc::F_OFD_SETLKW => true,
        libc::F_SETLK | libc::F_OFD_SETLK => false,
        libc::F_GETLK | libc::F_OFD_GETLK => return Some((Lock::Refused, false)),
        _ => return None,
    };
    let kind = i32::from(op.lock_type);
    Some(lock_role(
        op,
        kind == libc::F_UNLCK,
        kind == libc::F_RDLCK,
        blocks,
    ))
}

fn lock_role(op: &PlanOp, unlock: bool, shared: bool, blocks: bool) -> (Lock, bool) {
    match () {
        () if op.ret < 0 => (Lock::Refused, blocks && op.ret == -i64::from(libc::EINTR)),
        () if unlock => (Lock::Release, false),
        () if shared => (Lock::Shared, blocks),
        () => (Lock::Exclusive, blocks),
    }
}

/// Returns the user and the group of a thread after a call that may change one of them.
pub fn identity(op: &PlanOp, (uid, gid): (u32, u32)) -> (u32, u32) {
    if op.ret < 0 || kind(op) != Kind::Identity {
        return (uid, gid);
    }
    let given = |id: u32, before| if id == u32::MAX { before } else { id };
    match calls::takes(usize::from(op.op), "gid") {
        true => (uid, given((op.arg as u64 >> 32) as u32, gid)),
        false => (given(op.arg as u32, uid), gid),
    }
}

/// Returns whether a call surely made the file that it names: its inode number meant another
/// before.
pub fn is_birth(op: &PlanOp) -> bool {
    op.ret >= 0
        && match kind(op) {
            Kind::Open => OpenFlags::of(op).only_creates(),
            Kind::Mkdir | Kind::Mknod => true,
            _ => false,
        }
}

/// Relation of an operation to the lease on its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// Takes it, or gives it up.
    Asks,
    Looks,
    Opens,
    Closes,
}

pub fn lease(op: &PlanOp) -> Option<Lease> {
    match kind(op) {
        _ if op.ino == 0 => None,
        Kind::Fcntl if op.cmd == libc::F_SETLEASE => Some(Lease::Asks),
        Kind::Fcntl if op.cmd == libc::F_GETLEASE => Some(Lease::Looks),
        Kind::Open | Kind::Truncate => Some(Lease::Opens),
        Kind::Close => Some(Lease::Closes),
        _ => None,
    }
}

/// Returns whether the command of an fcntl uses a `struct flock`.
pub fn is_lock_command(cmd: i32) -> bool {
    matches!(
        cmd,
        libc::F_GETLK
            | libc::F_SETLK
            | libc::F_SETLKW
            | libc::F_OFD_GETLK
            | libc::F_OFD_SETLK
            | libc::F_OFD_SETLKW
    )
}

/// Returns whether a page fault on a mapped file was a write.
pub fn dirties(op: &PlanOp) -> bool {
    const WRITES: u32 = 1;
    op.flags & WRITES != 0
}

/// Returns whether a mode names a regular file.
pub fn is_regular(mode: u32) -> bool {
    mode & libc::S_IFMT == libc::S_IFREG
}

/// Returns whether a mode names a directory.
pub fn is_directory(mode: u32) -> bool {
    mode & libc::S_IFMT == libc::S_IFDIR
}

/// Returns whether a mode names a device; the replayer makes a socket in its place.
pub fn is_device(mode: u32) -> bool {
    matches!(mode & libc::S_IFMT, libc::S_IFCHR | libc::S_IFBLK)
}

/// Returns whether an object of the first mode may stand in for one of the second. RENAME_WHITEOUT
/// leaves a device that leads nowhere.
pub fn stands_in(found: u32, recorded: u32) -> bool {
    is_device(recorded) && (is_device(found) || found & libc::S_IFMT == libc::S_IFSOCK)
}

/// Returns whether a mode names a pipe, a socket or a device: never opened by the replayer.
pub fn is_special(mode: u32) -> bool {
    let kind = mode & libc::S_IFMT;
    !matches!(kind, 0 | libc::S_IFREG | libc::S_IFDIR | libc::S_IFLNK)
}
