//! The six registers of a call, filled after the words of `calls.txt`.

use spoolscope_traces::calls;
use spoolscope_traces::records::{
    BASE_CWD, BASE_FD, BASE_NONE, BASE_ROOT, NONE, PlanOp, REASON_BAD_FD, REASON_UNSUPPORTED,
};
use std::sync::LazyLock;
use std::sync::atomic::Ordering::Relaxed;

use crate::engine::fds::FdTable;
use crate::engine::paths::{below, leads_up, write_parts};
use crate::engine::raw::{appends, mode_of};
use crate::engine::task::Task;
use crate::engine::verdict::Refusal;
use crate::model::state::sizes::write_offset;
use crate::pattern;
use crate::semantics::{self, Kind};
use crate::xattrs;

/// Zeros that serve as two `timespec` or `timeval`, or as a `utimbuf`.
static TIMES: [i64; 4] = [0; 4];

/// Meaning of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Fd,
    Fd2,
    Dirfd,
    Dirfd2,
    Path,
    Path2,
    Target,
    Name,
    Flags,
    Mode,
    Cmd,
    Size,
    Offset,
    Uid,
    Gid,
    At,
    At2,
    Stat,
    Flock,
    Iov,
    Iovcnt,
    How,
    Arg,
    Handle,
    Filled,
    Blank,
}

/// The shape of a call: its number and the meaning of its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub number: i64,
    words: [Word; 6],
    len: usize,
}

fn word(text: &str) -> Word {
    match text {
        "fd" => Word::Fd,
        "fd2" => Word::Fd2,
        "dirfd" => Word::Dirfd,
        "dirfd2" => Word::Dirfd2,
        "path" => Word::Path,
        "path2" => Word::Path2,
        "target" => Word::Target,
        "name" => Word::Name,
        "flags" => Word::Flags,
        "mode" => Word::Mode,
        "cmd" => Word::Cmd,
        "size" => Word::Size,
        "offset" => Word::Offset,
        "uid" => Word::Uid,
        "gid" => Word::Gid,
        "at" => Word::At,
        "at2" => Word::At2,
        "stat" | "statx" => Word::Stat,
        "flock" => Word::Flock,
        "iov" => Word::Iov,
        "iovcnt" => Word::Iovcnt,
        "how" => Word::How,
        "arg" | "arg2" => Word::Arg,
        "handle" => Word::Handle,
        "filled" => Word::Filled,
        _ => Word::Blank,
    }
}

impl Shape {
    pub fn begins_with_directory(&self) -> bool {
        matches!(self.words[0], Word::Dirfd)
    }
}

fn shape(call: &calls::Call) -> Option<Shape> {
    let mut words = [Word::Blank; 6];
    for (place, text) in words.iter_mut().zip(&call.args) {
        *place = word(text);
    }
    Some(Shape {
        number: calls::nr_of(call.name)?,
        words,
        len: call.args.len(),
    })
}

static SHAPES: LazyLock<Vec<Option<Shape>>> =
    LazyLock::new(|| calls::all().iter().map(shape).collect());

/// Returns the shape of a call; `None` where this architecture does not have it.
pub fn shape_of(op: &PlanOp) -> Option<Shape> {
    SHAPES.get(usize::from(op.op)).copied().flatten()
}

/// Looks up every shape, so that no forked task has to take the lock.
pub fn prepare() {
    LazyLock::force(&SHAPES);
}

const RESOLVE_BENEATH: u64 = 8;

impl Task {
    /// Fills the registers of an operation's call.
    pub fn arguments(
        &mut self,
        op: &PlanOp,
        kind: Kind,
        shape: &Shape,
    ) -> Result<[i64; 6], Refusal> {
        let mut registers = [0; 6];
        for (at, word) in shape.words[..shape.len].iter().enumerate() {
            registers[at] = self.argument(op, kind, *word)?;
        }
        if kind == Kind::Statfs {
            // The buffer is not in the table: nothing of it is recorded.
            registers[1] = self.scratch.stat.as_mut_ptr() as i64;
        }
        if kind == Kind::Touch && op.ret == -i64::from(libc::EPERM) {
            // A writer may set the present time; any other time only the owner may set.
            let path = shape.words.iter().position(|word| *word == Word::Path);
            registers[path.map_or(1, |at| at + 1)] = TIMES.as_ptr() as i64;
        }
        if kind == Kind::Map {
            // Never at a fixed place, never executable: the recorded address means nothing here.
            registers[0] = 0;
            registers[2] &= !i64::from(libc::PROT_EXEC);
            registers[3] &= !i64::from(libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE);
        }
        Ok(registers)
    }

    fn argument(&mut self, op: &PlanOp, kind: Kind, word: Word) -> Result<i64, Refusal> {
        Ok(match word {
            Word::Fd => real(&self.process.fds, op.fd, op.ret)?,
            Word::Fd2 => real(&self.process.fds, op.fd2, op.ret)?,
            Word::Dirfd => self.directory(op, op.base, op.dirfd)?,
            Word::Dirfd2 => self.directory(op, op.base2, op.dirfd2)?,
            Word::Path if self.is_pathless(op, kind) => self.no_path(op, kind)?,
            Word::Path => {
                let buffer = &raw mut self.scratch.path;
                self.path(op, [op.path, op.given], (op.base, op.dirfd), buffer)?
            }
            Word::Path2 => {
                let buffer = &raw mut self.scratch.path2;
                self.path(op, [op.path2, op.given2], (op.base2, op.dirfd2), buffer)?
            }
            Word::Target => self.text(op.path2, b"")?,
            Word::Name => self.xattr_name(op)?,
            Word::Flags => self.flags(op, kind),
            Word::Mode if kind == Kind::Mknod => node(op.mode),
            Word::Mode => i64::from(op.mode),
            Word::Cmd => i64::from(op.cmd),
            // getdents64 takes 32 bits: a negative size is a large one, larger than the buffer.
            Word::Size if kind == Kind::Getdents => self.length(op, kind).max(0),
            Word::Size => self.length(op, kind),
            Word::Offset => op.offset,
            Word::Uid => self.owner(op.arg as u32),
            Word::Gid => self.owner((op.arg as u64 >> 32) as u32),
            Word::At => place(&mut self.scratch.offsets[0], op.offset),
            Word::At2 => place(&mut self.scratch.offsets[1], op.arg),
            Word::Stat => self.scratch.stat.as_mut_ptr() as i64,
            Word::Flock => self.third_of_fcntl(op),
            Word::Iov => self.iov(op, kind),
            Word::Iovcnt => 1,
            Word::How => self.how(op),
            Word::Arg => op.arg,
            Word::Handle => self.handle(op),
            Word::Filled => self.scratch.offsets.as_mut_ptr() as i64,
            Word::Blank => self.blank(op, kind),
        })
    }

    /// Returns room for a `struct file_handle`; none where it was too small for the handle.
    fn handle(&mut self, op: &PlanOp) -> i64 {
        const LARGEST: u64 = 128;
        self.scratch.stat[0] = match op.ret == -i64::from(libc::EOVERFLOW) {
            true => 0,
            false => LARGEST,
        };
        self.scratch.stat.as_mut_ptr() as i64
    }

    /// Returns a buffer to read into, or data to write; else 0.
    fn blank(&mut self, op: &PlanOp, kind: Kind) -> i64 {
        match kind {
            Kind::Read | Kind::Getdents | Kind::Readlink | Kind::GetXattr | Kind::ListXattr => {
                self.context.read_buffer
            }
            Kind::Write => self.data(op),
            Kind::SetXattr => {
                if let Some(mode) = semantics::mode_by_acl(op) {
                    let room: &mut [u8] = bytemuck::cast_slice_mut(&mut self.scratch.stat);
                    xattrs::fill_acl(&mut room[..op.size as usize], mode);
                    return room.as_ptr() as i64;
                }
                let name = semantics::whole_xattr(self.context.schedule.plan.string(op.path2));
                let key = pattern::of_xattr(op.ino, &name);
                self.context.pattern.at(key, 0) as i64
            }
            Kind::Open => size_of::<[u64; 3]>() as i64,
            _ => 0,
        }
    }

    /// Returns where the pattern of the bytes to be written lies.
    fn data(&self, op: &PlanOp) -> i64 {
        let open = self.process.fds.get(op.fd);
        let control = self.context.schedule.control();
        let append = open.is_some_and(|open| match control.append_changed.load(Relaxed) {
            0 => open.append,
            _ => appends(open.real),
        });
        let offset = write_offset(op, append).unwrap_or(0);
        self.context.pattern.at(op.ino, offset) as i64
    }

    /// Returns the data of a write.
    pub fn to_write(&self, op: &PlanOp) -> (*const u8, usize) {
        let len = self.length(op, Kind::Write).max(0);
        (self.data(op) as *const u8, len as usize)
    }

    /// Changes the registers of a write, just filled by `arguments`, to data at another place.
    pub fn with_data(&mut self, mut registers: [i64; 6], place: *const u8) -> [i64; 6] {
        match registers[1] == (&raw const self.scratch.iov) as i64 {
            true => self.scratch.iov.iov_base = place.cast_mut().cast(),
            false => registers[1] = place as i64,
        }
        registers
    }

    /// Returns how many bytes are asked for.
    fn length(&self, op: &PlanOp, kind: Kind) -> i64 {
        let asked = match kind {
            // The caller asked for "all there is" in a loop until nothing was left.
            Kind::CopyRange if op.ret >= 0 => op.size.min(op.ret),
            Kind::Write => semantics::to_write(op),
            _ => op.size,
        };
        asked.min(self.context.longest(kind))
    }

    fn iov(&mut self, op: &PlanOp, kind: Kind) -> i64 {
        self.scratch.iov = libc::iovec {
            iov_base: self.blank(op, kind) as *mut libc::c_void,
            iov_len: self.length(op, kind).max(0) as usize,
        };
        (&raw const self.scratch.iov) as i64
    }

    fn how(&mut self, op: &PlanOp) -> i64 {
        let flags = self.flags(op, Kind::Open) as u64;
        let creates = op.flags as i32 & (libc::O_CREAT | libc::O_TMPFILE) != 0;
        let mode = if creates { u64::from(op.mode) } else { 0 };
        // The resolve flags are not recorded, but nothing else makes an openat2 fail so.
        let beneath = op.ret == -i64::from(libc::EXDEV);
        self.scratch.how = [flags, mode, if beneath { RESOLVE_BENEATH } else { 0 }];
        self.scratch.how.as_ptr() as i64
    }

    fn flags(&self, op: &PlanOp, kind: Kind) -> i64 {
        let special = u32::from(op.obj_mode) & libc::S_IFMT;
        let known = matches!(special, libc::S_IFREG | libc::S_IFDIR);
        let flags = match kind {
            // An unknown object could be a pipe put there by a hostile trace: never wait for it.
            Kind::Open if !known => op.flags | libc::O_NONBLOCK as u32,
            // A stat of a descriptor has an empty path, which needs the flag.
            Kind::Stat | Kind::Chown
                if semantics::base(op.base) == BASE_NONE && op.ret != -i64::from(libc::ENOENT) =>
            {
                op.flags | libc::AT_EMPTY_PATH as u32
            }
            _ => op.flags,
        };
        i64::from(flags as i32)
    }

    /// Returns the third argument of fcntl: locks take a `struct flock`, other commands a number.
    fn third_of_fcntl(&mut self, op: &PlanOp) -> i64 {
        if !semantics::is_lock_command(op.cmd) {
            return match op.cmd {
                libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => 0,
                _ => op.arg,
            };
        }
        self.scratch.flock = libc::flock {
            l_type: asked_lock(op),
            l_whence: i16::from(op.lock_whence),
            l_start: op.offset,
            l_len: op.size,
            l_pid: 0,
        };
        (&raw const self.scratch.flock) as i64
    }

    pub fn owner(&self, id: u32) -> i64 {
        let keep = id == u32::MAX;
        let shown = if self.context.confinement.owners || keep {
            id
        } else {
            self.context.own_id
        };
        i64::from(shown)
    }

    fn directory(&self, op: &PlanOp, base: u8, dirfd: i32) -> Result<i64, Refusal> {
        match semantics::base(base) {
            BASE_FD => real(&self.process.fds, dirfd, op.ret),
            BASE_NONE if dirfd >= 0 => real(&self.process.fds, dirfd, op.ret),
            _ => Ok(i64::from(libc::AT_FDCWD)),
        }
    }

    /// Returns whether the call works on its descriptor: with an empty path, or none at all.
    fn is_pathless(&self, op: &PlanOp, kind: Kind) -> bool {
        let directory = u32::from(op.obj_mode) & libc::S_IFMT == libc::S_IFDIR;
        let own = || {
            self.process
                .fds
                .get(op.dirfd)
                .is_some_and(|open| open.path == op.path)
        };
        // With flags the kernel refuses a null path: rsync then passes ".". So does cp, without
        // flags; its form is recorded.
        let base = semantics::base(op.base);
        let unnamed = base == BASE_FD && op.given == NONE;
        let plain = kind == Kind::Touch && unnamed && op.flags == 0;
        let inside = op.ret == -i64::from(libc::ENOTDIR);
        let touched = plain && !directory && !inside && own();
        let itself = semantics::links_descriptor(op) || semantics::reads_descriptor(op);
        let nameless = itself && own();
        base == BASE_NONE || touched || nameless || semantics::is_empty_path(op)
    }

    fn no_path(&mut self, op: &PlanOp, kind: Kind) -> Result<i64, Refusal> {
        match kind {
            _ if op.ret == -i64::from(libc::ENOENT) => write_parts(&raw mut self.scratch.path, &[]),
            _ if op.dirfd < 0 => Err(REASON_UNSUPPORTED),
            Kind::Touch => Ok(0),
            _ => write_parts(&raw mut self.scratch.path, &[]),
        }
    }

    /// Returns whether a real descriptor is open and leads to no directory.
    fn is_file(&self, fd: i32) -> bool {
        let open = self.process.fds.get(fd);
        open.is_some_and(|open| mode_of(open.real) & libc::S_IFMT != libc::S_IFDIR)
    }

    fn text(&mut self, string: u32, before: &[u8]) -> Result<i64, Refusal> {
        if string == NONE {
            return Err(REASON_UNSUPPORTED);
        }
        let buffer = &raw mut self.scratch.path2;
        write_parts(buffer, &[before, self.context.schedule.plan.string(string)])
    }

    fn xattr_name(&mut self, op: &PlanOp) -> Result<i64, Refusal> {
        let name = self.context.schedule.plan.string(op.path2);
        let before = match semantics::has_no_namespace(op, name) {
            true => b"",
            false => semantics::missing_namespace(name),
        };
        self.text(op.path2, before)
    }

    /// Writes the path as the caller gave it: absolute, or relative to its directory, with its
    /// dots.
    fn path(
        &mut self,
        op: &PlanOp,
        [path, given]: [u32; 2],
        (base, dirfd): (u8, i32),
        buffer: *mut [u8; 8192],
    ) -> Result<i64, Refusal> {
        let base = semantics::base(base);
        match path {
            NONE if base == BASE_NONE && op.ret == -i64::from(libc::ENOENT) => {
                return write_parts(buffer, &[]);
            }
            NONE => return Err(REASON_UNSUPPORTED),
            _ => {}
        }
        if base == BASE_FD && op.ret == -i64::from(libc::ENOTDIR) && self.is_file(dirfd) {
            // Below a file every name fails so; an older trace has it shortened: "f/../g" is "g".
            return write_parts(buffer, &[b".."]);
        }
        let plan = self.context.schedule.plan;
        let whole = plan.string(if given == NONE { path } else { given });
        if !self.context.confinement.chrooted && leads_up(whole) {
            return Err(REASON_UNSUPPORTED);
        }
        let from = match base {
            BASE_CWD => self.cwd(),
            BASE_FD => self.process.fds.get(dirfd).map_or(NONE, |open| open.path),
            _ => NONE,
        };
        match below(whole, plan.string(from)).filter(|_| from != NONE && base != BASE_ROOT) {
            Some(b"") => write_parts(buffer, &[b"."]),
            Some(rest) => write_parts(buffer, &[rest]),
            None => write_parts(buffer, &[self.context.confinement.prefix_of(whole), whole]),
        }
    }
}

/// Returns the mode to pass to mknod: a socket stands in for a device.
fn node(mode: u32) -> i64 {
    i64::from(match semantics::is_device(mode) {
        true => libc::S_IFSOCK | mode & 0o7777,
        false => mode,
    })
}

/// Returns the type of lock asked for. The answer of a query overwrote its type in the trace, and
/// no query can ask for "unlocked".
fn asked_lock(op: &PlanOp) -> i16 {
    let query = matches!(op.cmd, libc::F_GETLK | libc::F_OFD_GETLK);
    match i32::from(op.lock_type) {
        libc::F_UNLCK if query => libc::F_WRLCK as i16,
        kind => kind as i16,
    }
}

/// Returns the pointer to an offset, stored in `room`; null if the call is to use the position.
pub fn place(room: &mut i64, offset: i64) -> i64 {
    if offset < 0 {
        return 0;
    }
    *room = offset;
    &raw mut *room as i64
}

/// Returns the real descriptor, or -1 for one that was not open in the recording either.
fn real(fds: &FdTable, fd: i32, recorded: i64) -> Result<i64, Refusal> {
    match fds.get(fd) {
        Some(open) => Ok(i64::from(open.real)),
        None if recorded == -i64::from(libc::EBADF) => Ok(-1),
        None => Err(REASON_BAD_FD),
    }
}

/// Returns the length of the longest write, which the pattern is prepared for.
pub fn longest_write(ops: &[PlanOp]) -> i64 {
    let sizes = ops
        .iter()
        .filter(|op| matches!(semantics::kind(op), Kind::Write | Kind::SetXattr));
    sizes
        .map(|op| op.size)
        .max()
        .unwrap_or(0)
        .clamp(0, pattern::LONGEST)
}
