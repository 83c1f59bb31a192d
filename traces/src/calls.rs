//! The table of calls (`calls.txt`) and the numbers of this architecture.

use std::sync::LazyLock;

const TEXT: &str = include_str!("../calls.txt");

/// Defines an enum whose variants are words of a column of `calls.txt`. A variant without a word is
/// none of a call.
#[macro_export]
macro_rules! words_of_calls {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident $($word:literal)?)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)] // the words are explained in calls.txt
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// The variant of a word; `None` if there is no such word.
            pub const fn of_word(word: &[u8]) -> Option<Self> {
                match word {
                    $($($word => Some(Self::$variant),)?)+
                    _ => None,
                }
            }
        }
    };
}

words_of_calls! {
    /// The effect of a call on what other calls find; `calls.txt` explains the words.
    Effect {
        None b"none"
        Reads b"reads"
        Writes b"writes"
        Lists b"lists"
        Sets b"sets"
        Opens b"opens"
        Closes b"closes"
        Duplicates b"duplicates"
        Marks b"marks"
        Locks b"locks"
        Maps b"maps"
        Unmaps b"unmaps"
        Makes b"makes"
        Links b"links"
        Renames b"renames"
        Removes b"removes"
        Mounts b"mounts"
        Watches b"watches"
        Enters b"enters"
        Roots b"roots"
        Masks b"masks"
        Becomes b"becomes"
        Forks b"forks"
        Execs b"execs"
        Exits b"exits"
    }
}

/// One row of `calls.txt`.
#[derive(Debug, Clone)]
pub struct Call {
    /// Id in captures and plans; it never changes.
    pub id: u16,
    /// Name without prefix, as in `syscalls(2)`.
    pub name: &'static str,
    /// open, data, meta, dir, sync, lock, map, fd, task or watch.
    pub class: &'static str,
    /// Calls of one kind are replayed alike; "-" is not replayed as it is.
    pub kind: &'static str,
    /// Its effect on what other calls find.
    pub effect: Effect,
    /// Calls of one family are shown together.
    pub family: &'static str,
    /// Meaning of each argument, by position; the words are explained in `calls.txt`.
    pub args: Vec<&'static str>,
    /// The result is a new descriptor.
    pub returns_fd: bool,
}

static CALLS: LazyLock<Vec<Call>> = LazyLock::new(|| TEXT.lines().filter_map(parse).collect());

/// Every call, in order of its id.
pub fn all() -> &'static [Call] {
    &CALLS
}

/// The call with that id.
pub fn by_id(id: u16) -> Option<&'static Call> {
    CALLS.get(usize::from(id)).filter(|call| call.id == id)
}

/// The names of all calls by id as a constant, for tables that are made at compile time.
pub const NAMES: [&[u8]; count()] = column(1);

/// The kinds of all calls by id as a constant.
pub const KINDS: [&[u8]; count()] = column(3);

/// The effects of all calls by id. A word that has no effect is an error of compilation.
const EFFECTS: [Effect; count()] = {
    let (words, mut effects, mut id) = (column(4), [Effect::None; count()], 0);
    while id < words.len() {
        effects[id] = match Effect::of_word(words[id]) {
            Some(effect) => effect,
            None => panic!("calls.txt has an effect that is not in Effect"),
        };
        id += 1;
    }
    effects
};

/// Returns true if a call has an argument word, for tables that are made at compile time.
pub const fn takes(id: usize, argument: &str) -> bool {
    let mut rest = ARGUMENTS[id];
    while !rest.is_empty() {
        let (one, after) = split(rest, b' ');
        if same(one, argument.as_bytes()) {
            return true;
        }
        rest = after;
    }
    false
}

/// The words of the arguments of all calls by id.
const ARGUMENTS: [&[u8]; count()] = {
    let (lines, mut rests, mut id) = (lines(), [b"".as_slice(); count()], 0);
    while id < lines.len() {
        rests[id] = skip(lines[id], 6);
        id += 1;
    }
    rests
};

/// The id of a call by name; for an unknown name an id that no call has.
pub const fn id_of(name: &str) -> u16 {
    let mut id = 0;
    while id < NAMES.len() {
        if same(NAMES[id], name.as_bytes()) {
            return id as u16;
        }
        id += 1;
    }
    u16::MAX
}

/// The ids of several calls by name.
pub const fn ids_of<const N: usize>(names: [&str; N]) -> [u16; N] {
    let (mut ids, mut at) = ([0; N], 0);
    while at < N {
        ids[at] = id_of(names[at]);
        at += 1;
    }
    ids
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

const fn count() -> usize {
    let (mut rest, mut n) = (TEXT.as_bytes(), 0);
    while !rest.is_empty() {
        n += rest[0].is_ascii_digit() as usize;
        rest = split(rest, b'\n').1;
    }
    n
}

const fn lines() -> [&'static [u8]; count()] {
    let mut lines: [&[u8]; count()] = [b""; count()];
    let (mut rest, mut n) = (TEXT.as_bytes(), 0);
    while !rest.is_empty() {
        if rest[0].is_ascii_digit() {
            lines[n] = split(rest, b'\n').0;
            n += 1;
        }
        rest = split(rest, b'\n').1;
    }
    lines
}

const fn column(at: usize) -> [&'static [u8]; count()] {
    let (mut words, mut n) = (lines(), 0);
    while n < words.len() {
        words[n] = split(skip(words[n], at), b' ').0;
        n += 1;
    }
    words
}

/// Skips words of a line.
const fn skip(line: &'static [u8], words: usize) -> &'static [u8] {
    let (mut rest, mut skipped) = (line, 0);
    while skipped < words {
        rest = split(rest, b' ').1;
        skipped += 1;
    }
    rest
}

/// Splits a text at the first run of a byte: returns the parts before and after the run.
const fn split(text: &[u8], at: u8) -> (&[u8], &[u8]) {
    let mut end = 0;
    while end < text.len() && text[end] != at {
        end += 1;
    }
    let (before, mut after) = text.split_at(end);
    while let [first, rest @ ..] = after {
        if *first != at {
            break;
        }
        after = rest;
    }
    (before, after)
}

fn parse(line: &'static str) -> Option<Call> {
    let line = line.split('#').next().unwrap_or("");
    let mut words = line.split_whitespace();
    let id: u16 = words.next()?.parse().ok()?;
    let (name, class, kind) = (words.next()?, words.next()?, words.next()?);
    let (_effect, family) = (words.next()?, words.next()?);
    let mut args: Vec<_> = words.collect();
    let returns_fd = args.last() == Some(&"=fd");
    if returns_fd {
        args.pop();
    }
    Some(Call {
        id,
        name,
        class,
        kind,
        effect: EFFECTS[usize::from(id)],
        family,
        args,
        returns_fd,
    })
}

/// The number of fchmodat2, which libc lacks on some architectures. Calls since Linux 5.1 have the
/// same one everywhere.
pub const FCHMODAT2: libc::c_long = 452;

mod libc_numbers {
    pub use super::FCHMODAT2 as SYS_fchmodat2;
    pub use libc::*;
}

macro_rules! numbers {
    (everywhere { $($common:ident $number:ident)+ } x86 { $($legacy:ident $old:ident)+ }) => {
        /// The system call number on the running architecture; `None` where it does not exist.
        pub fn nr_of(name: &str) -> Option<libc::c_long> {
            match name {
                $(stringify!($common) => Some(libc_numbers::$number),)+
                $(
                    #[cfg(target_arch = "x86_64")]
                    stringify!($legacy) => Some(libc_numbers::$old),
                )+
                _ => None,
            }
        }
    };
}

numbers! {
    everywhere {
        read SYS_read write SYS_write pread64 SYS_pread64 pwrite64 SYS_pwrite64
        readv SYS_readv writev SYS_writev preadv SYS_preadv pwritev SYS_pwritev
        preadv2 SYS_preadv2 pwritev2 SYS_pwritev2 openat SYS_openat openat2 SYS_openat2
        close SYS_close close_range SYS_close_range dup SYS_dup dup3 SYS_dup3
        fcntl SYS_fcntl flock SYS_flock lseek SYS_lseek fsync SYS_fsync
        fdatasync SYS_fdatasync sync_file_range SYS_sync_file_range syncfs SYS_syncfs
        sync SYS_sync msync SYS_msync ftruncate SYS_ftruncate truncate SYS_truncate
        fallocate SYS_fallocate fstat SYS_fstat newfstatat SYS_newfstatat statx SYS_statx
        faccessat SYS_faccessat faccessat2 SYS_faccessat2 readlinkat SYS_readlinkat
        statfs SYS_statfs fstatfs SYS_fstatfs getdents64 SYS_getdents64
        renameat SYS_renameat renameat2 SYS_renameat2 linkat SYS_linkat
        symlinkat SYS_symlinkat unlinkat SYS_unlinkat mkdirat SYS_mkdirat
        mknodat SYS_mknodat fchmod SYS_fchmod fchmodat SYS_fchmodat
        fchmodat2 SYS_fchmodat2 fchown SYS_fchown fchownat SYS_fchownat
        utimensat SYS_utimensat getxattr SYS_getxattr lgetxattr SYS_lgetxattr
        fgetxattr SYS_fgetxattr setxattr SYS_setxattr lsetxattr SYS_lsetxattr
        fsetxattr SYS_fsetxattr listxattr SYS_listxattr llistxattr SYS_llistxattr
        flistxattr SYS_flistxattr removexattr SYS_removexattr
        lremovexattr SYS_lremovexattr fremovexattr SYS_fremovexattr mmap SYS_mmap
        munmap SYS_munmap fadvise64 SYS_fadvise64 readahead SYS_readahead
        copy_file_range SYS_copy_file_range sendfile SYS_sendfile splice SYS_splice
        chdir SYS_chdir fchdir SYS_fchdir chroot SYS_chroot umask SYS_umask
        inotify_add_watch SYS_inotify_add_watch inotify_rm_watch SYS_inotify_rm_watch
        clone SYS_clone clone3 SYS_clone3 execve SYS_execve execveat SYS_execveat
        exit SYS_exit exit_group SYS_exit_group
        setuid SYS_setuid setgid SYS_setgid setreuid SYS_setreuid setregid SYS_setregid
        setresuid SYS_setresuid setresgid SYS_setresgid setfsuid SYS_setfsuid
        setfsgid SYS_setfsgid ioctl SYS_ioctl bind SYS_bind mount SYS_mount
        umount2 SYS_umount2 move_mount SYS_move_mount open_tree SYS_open_tree
        name_to_handle_at SYS_name_to_handle_at
    }
    x86 {
        open SYS_open creat SYS_creat dup2 SYS_dup2 stat SYS_stat lstat SYS_lstat
        access SYS_access readlink SYS_readlink getdents SYS_getdents rename SYS_rename
        link SYS_link symlink SYS_symlink unlink SYS_unlink mkdir SYS_mkdir
        rmdir SYS_rmdir mknod SYS_mknod chmod SYS_chmod chown SYS_chown lchown SYS_lchown
        utime SYS_utime utimes SYS_utimes futimesat SYS_futimesat fork SYS_fork
        vfork SYS_vfork
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_dense_and_names_unique() {
        for (at, call) in all().iter().enumerate() {
            assert_eq!(usize::from(call.id), at);
            assert_eq!(id_of(call.name), call.id);
            assert_eq!(NAMES[at], call.name.as_bytes());
        }
        assert_eq!((NAMES.len(), id_of("rea")), (all().len(), u16::MAX));
        assert_eq!(by_id(all().len() as u16).map(|call| call.name), None);
    }

    #[test]
    fn results_and_arguments_are_told_apart() {
        let openat = by_id(id_of("openat")).expect("openat is in the table");
        assert!(openat.returns_fd);
        assert_eq!(openat.args, ["dirfd", "path", "flags", "mode"]);
    }

    #[test]
    fn kinds_effects_and_families_are_those_of_the_line() {
        let shown = |name| {
            let call = by_id(id_of(name)).expect("the call is in the table");
            assert_eq!(KINDS[usize::from(call.id)], call.kind.as_bytes());
            (call.kind, call.effect, call.family)
        };
        assert_eq!(shown("dup3"), ("dup2", Effect::Duplicates, "other"));
        assert_eq!(shown("exit_group"), ("-", Effect::Exits, "other"));
        assert_eq!(shown("open_tree"), ("-", Effect::Opens, "other"));
        let [pread, write, setgid] =
            ["pread64", "write", "setresgid"].map(|n| usize::from(id_of(n)));
        assert!(takes(pread, "offset") && !takes(write, "offset") && !takes(write, "f"));
        assert!(takes(setgid, "gid") && !takes(setgid, "uid"));
        assert_eq!(shown("fsync"), ("sync", Effect::None, "sync"));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn every_call_has_a_number_here() {
        for call in all() {
            assert!(nr_of(call.name).is_some(), "{}", call.name);
        }
    }
}
