//! Kinds of calls, from `calls.txt`.

use spoolscope_traces::calls;
use spoolscope_traces::records::{
    PLAN_EXEC, PLAN_EXIT, PLAN_FAULT, PLAN_FORK, PLAN_LEFT_OUT, PlanOp,
};
use spoolscope_traces::words_of_calls;

words_of_calls! {
    /// Calls that the replayer treats alike, by the column `kind` of `calls.txt`. Those without a
    /// word are operations of the plan.
    Kind {
        Read b"read"
        Write b"write"
        Open b"open"
        Close b"close"
        CloseRange b"close_range"
        Dup b"dup"
        Dup2 b"dup2"
        Fcntl b"fcntl"
        Flock b"flock"
        Seek b"seek"
        Sync b"sync"
        SyncAll b"sync_all"
        Truncate b"truncate"
        Ftruncate b"ftruncate"
        Fallocate b"fallocate"
        Stat b"stat"
        Fstat b"fstat"
        Access b"access"
        Readlink b"readlink"
        Statfs b"statfs"
        Getdents b"getdents"
        Rename b"rename"
        Link b"link"
        Symlink b"symlink"
        Unlink b"unlink"
        Mkdir b"mkdir"
        Rmdir b"rmdir"
        Mknod b"mknod"
        Chmod b"chmod"
        Chown b"chown"
        Touch b"touch"
        GetXattr b"get_xattr"
        ListXattr b"list_xattr"
        SetXattr b"set_xattr"
        Map b"map"
        Unmap b"unmap"
        Msync b"msync"
        Advise b"advise"
        CopyRange b"copy_range"
        Sendfile b"sendfile"
        Splice b"splice"
        /// The first descriptor gets the contents of the second.
        Clone b"clone"
        Chroot b"chroot"
        /// A successful one is `Exec`.
        FailedExec b"failed_exec"
        Chdir b"chdir"
        Fchdir b"fchdir"
        Umask b"umask"
        /// Changes the user or group that files belong to and are reached by.
        Identity b"identity"
        Watch b"watch"
        Unwatch b"unwatch"
        Fork
        /// A call that is left out on purpose: the pause before it and the one after it remain.
        LeftOut
        Exec
        Exit
        /// A mapped page is touched.
        Fault
        /// Not replayed as it is.
        Unsupported b"-"
    }
}

/// More than there are ids of calls and pseudo operations.
const IDS: usize = 1024;

static KINDS: [Kind; IDS] = {
    let mut kinds = [Kind::Unsupported; IDS];
    let mut id = 0;
    while id < calls::KINDS.len() {
        kinds[id] = match Kind::of_word(calls::KINDS[id]) {
            Some(kind) => kind,
            None => panic!("calls.txt has a kind that is not in Kind"),
        };
        id += 1;
    }
    kinds[PLAN_FORK as usize] = Kind::Fork;
    kinds[PLAN_EXEC as usize] = Kind::Exec;
    kinds[PLAN_EXIT as usize] = Kind::Exit;
    kinds[PLAN_FAULT as usize] = Kind::Fault;
    kinds[PLAN_LEFT_OUT as usize] = Kind::LeftOut;
    kinds
};

const UNLINKAT: u16 = calls::id_of("unlinkat");
const REMOVEDIR: u32 = libc::AT_REMOVEDIR as u32;

/// The kind of an operation, with unlinkat(AT_REMOVEDIR) counted as rmdir.
pub fn kind(op: &PlanOp) -> Kind {
    match KINDS.get(usize::from(op.op)) {
        Some(Kind::Unlink) if op.op == UNLINKAT && op.flags & REMOVEDIR != 0 => Kind::Rmdir,
        Some(kind) => *kind,
        None => Kind::Unsupported,
    }
}
