//! Properties of a name in the working directory: attributes, link target, data extents, extended
//! attributes.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use spoolscope_traces::records::Tree;

/// Data extents of a sparse file that are counted at most.
const MOST_EXTENTS: u32 = 1 << 20;
/// Buffer sizes for the names of extended attributes, in bytes: enough for most files, and for all.
const NAMES: usize = 1024;
const MOST_NAMES: usize = 65536; // XATTR_LIST_MAX

/// Attributes of a name, from statx(2).
#[derive(Debug)]
pub struct Attributes {
    pub ino: u64,
    pub mtime_ns: i64,
    /// True if another filesystem is mounted here.
    pub mounted: bool,
    stat: libc::statx,
}

/// Look at a name without following it.
pub fn of(name: &CStr) -> io::Result<Attributes> {
    // SAFETY: all-zero is a valid statx.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the name is NUL-terminated and `stat` is ours.
    let done = unsafe {
        libc::statx(
            libc::AT_FDCWD,
            name.as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT,
            libc::STATX_BASIC_STATS | libc::STATX_BTIME,
            &raw mut stat,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Attributes {
        ino: stat.stx_ino,
        mtime_ns: ns(stat.stx_mtime),
        mounted: stat.stx_attributes & libc::STATX_ATTR_MOUNT_ROOT as u64 != 0,
        stat,
    })
}

/// Return the inode of an open file.
pub fn inode(file: &OwnedFd) -> io::Result<u64> {
    // SAFETY: all-zero is a valid stat.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a live descriptor, and `stat` is ours.
    match unsafe { libc::fstat(file.as_raw_fd(), &raw mut stat) } {
        0 => Ok(stat.st_ino),
        _ => Err(io::Error::last_os_error()),
    }
}

fn ns(time: libc::statx_timestamp) -> i64 {
    time.tv_sec * 1_000_000_000 + i64::from(time.tv_nsec)
}

impl Attributes {
    fn is(&self, kind: u32) -> bool {
        u32::from(self.stat.stx_mode) & libc::S_IFMT == kind
    }

    pub fn is_directory(&self) -> bool {
        self.is(libc::S_IFDIR)
    }

    pub fn is_symlink(&self) -> bool {
        self.is(libc::S_IFLNK)
    }

    /// Return the record, without its names, place and time.
    pub fn record(&self) -> Tree {
        let born = self.stat.stx_mask & libc::STATX_BTIME != 0;
        Tree {
            ino: self.ino,
            size: self.stat.stx_size as i64,
            mtime_ns: self.mtime_ns,
            btime_ns: if born { ns(self.stat.stx_btime) } else { 0 },
            blocks: self.stat.stx_blocks as i64,
            mode: u32::from(self.stat.stx_mode),
            uid: self.stat.stx_uid,
            gid: self.stat.stx_gid,
            nlink: self.stat.stx_nlink,
            ..Tree::default()
        }
    }

    /// Return the target of a symbolic link; empty for everything else.
    pub fn target(&self, name: &CStr) -> Vec<u8> {
        if !self.is(libc::S_IFLNK) {
            return Vec::new();
        }
        let mut target = vec![0u8; libc::PATH_MAX as usize];
        // SAFETY: the kernel writes at most the buffer's length.
        let n = unsafe { libc::readlink(name.as_ptr(), target.as_mut_ptr().cast(), target.len()) };
        target.truncate(n.max(0) as usize);
        target
    }

    /// Count the stretches of data of a file with holes; 0 for a file without holes.
    pub fn extents(&self, name: &CStr) -> u32 {
        let sparse = self.stat.stx_blocks * 512 < self.stat.stx_size;
        if !sparse || !self.is(libc::S_IFREG) {
            return 0;
        }
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        // SAFETY: the name is NUL-terminated; the descriptor is closed below.
        let fd = unsafe { libc::open(name.as_ptr(), flags) }; // seeking leaves no access time
        if fd < 0 {
            return 0;
        }
        let (mut at, mut n) = (0, 0);
        // SAFETY: a live descriptor of ours.
        unsafe {
            while n < MOST_EXTENTS {
                let data = libc::lseek(fd, at, libc::SEEK_DATA);
                if data < 0 {
                    break; // the rest is a hole
                }
                n += 1;
                at = libc::lseek(fd, data, libc::SEEK_HOLE);
                if at < 0 {
                    break;
                }
                // Compressed data: fewer blocks than bytes, but no hole.
                if data == 0 && at >= self.stat.stx_size as i64 && self.stat.stx_blocks > 0 {
                    n = 0;
                    break;
                }
            }
            libc::close(fd);
        }
        n
    }
}

/// Call `found` with the name and the length of the value of every extended attribute.
pub fn each_xattr(name: &CStr, mut found: impl FnMut(&[u8], u32)) {
    let names = xattr_names(name);
    let mut rest = names.as_slice();
    while let Ok(text) = CStr::from_bytes_until_nul(rest) {
        // SAFETY: both names are NUL-terminated; a length of 0 only asks for the size.
        let length =
            unsafe { libc::lgetxattr(name.as_ptr(), text.as_ptr(), std::ptr::null_mut(), 0) };
        if length >= 0 {
            found(text.to_bytes(), length as u32);
        }
        rest = &rest[text.to_bytes_with_nul().len()..];
    }
}

/// Return the names of all extended attributes, each with its NUL; empty where none are supported.
fn xattr_names(name: &CStr) -> Vec<u8> {
    for room in [NAMES, MOST_NAMES] {
        let mut names = vec![0u8; room];
        // SAFETY: the kernel writes at most the buffer's length.
        let n = unsafe { libc::llistxattr(name.as_ptr(), names.as_mut_ptr().cast(), room) };
        if n >= 0 {
            names.truncate(n as usize);
            return names;
        }
        if io::Error::last_os_error().raw_os_error() != Some(libc::ERANGE) {
            break;
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::io::Write;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn fewer_blocks_than_bytes_are_no_hole_by_themselves() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(&[7; 1 << 16]).expect("room");
        let name = CString::new(file.path().as_os_str().as_bytes()).expect("a name");
        let mut found = super::of(&name).expect("attributes");
        found.stat.stx_blocks = 8; // as of a filesystem that compressed it
        assert_eq!(found.extents(&name), 0);
        file.as_file().set_len(1 << 17).expect("a longer file");
        let mut found = super::of(&name).expect("attributes");
        found.stat.stx_blocks = 8;
        assert_eq!(found.extents(&name), 1);
    }
}
