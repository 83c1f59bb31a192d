//! Directories: opened without a change of access time where that is allowed, entered, listed.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Result, ensure};

/// Bytes of directory entries read at once.
const LISTING: usize = 64 << 10;

/// Give the calling thread a working directory of its own.
pub fn roam() -> Result<()> {
    // SAFETY: a plain system call; it concerns this thread only.
    let own = unsafe { libc::unshare(libc::CLONE_FS) };
    ensure!(own == 0, "unshare: {}", io::Error::last_os_error());
    Ok(())
}

/// Open a directory for listing, without changing its access time where that is allowed.
pub fn open(path: &CStr) -> io::Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    for flags in [flags | libc::O_NOATIME, flags] {
        // SAFETY: the path is NUL-terminated; the descriptor has no other owner.
        let fd = unsafe { libc::open(path.as_ptr(), flags) };
        if fd >= 0 {
            // SAFETY: just opened.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        if io::Error::last_os_error().raw_os_error() != Some(libc::EPERM) {
            break;
        }
    }
    Err(io::Error::last_os_error())
}

/// Open a spool so that `watch_kernel_threads` sees it and learns its superblock; a spool that
/// cannot be opened is not seen.
pub fn hold(mount: &Path) -> io::Result<fs::File> {
    let options = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    fs::File::options()
        .read(true)
        .custom_flags(options)
        .open(mount)
}

/// Make it the working directory of the calling thread.
pub fn enter(directory: &OwnedFd) -> Result<()> {
    // SAFETY: a live descriptor.
    let entered = unsafe { libc::fchdir(directory.as_raw_fd()) };
    ensure!(entered == 0, "fchdir: {}", io::Error::last_os_error());
    Ok(())
}

/// Return all names of a directory except "." and ".."; one that is removed has none.
pub fn entries(directory: &OwnedFd) -> Result<Vec<CString>> {
    /// Offset of `d_name` in `struct linux_dirent64`, and of its `d_reclen`.
    const NAME: usize = 19;
    const LENGTH: usize = 16;
    let mut buffer = vec![0u8; LISTING];
    let mut names = Vec::new();
    loop {
        // SAFETY: the kernel writes at most `LISTING` bytes.
        let n = unsafe {
            libc::syscall(
                libc::SYS_getdents64,
                directory.as_raw_fd(),
                buffer.as_mut_ptr(),
                LISTING,
            )
        };
        let error = io::Error::last_os_error();
        let gone = matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESTALE));
        if n == 0 || n < 0 && gone {
            return Ok(names);
        }
        ensure!(n > 0, "getdents64: {error}");
        let mut rest = &buffer[..n as usize];
        while rest.len() > NAME {
            let length = usize::from(u16::from_ne_bytes([rest[LENGTH], rest[LENGTH + 1]]));
            let name = CStr::from_bytes_until_nul(&rest[NAME..])?;
            if name != c"." && name != c".." {
                names.push(name.to_owned());
            }
            rest = &rest[length..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{entries, open};
    use std::ffi::CString;
    use std::fs;

    #[test]
    fn one_that_is_removed_while_it_is_open_is_empty() {
        let place = std::env::temp_dir().join(format!("removed-{}", std::process::id()));
        fs::create_dir(&place).unwrap();
        fs::write(place.join("name"), "").unwrap();
        let opened = open(&CString::new(place.to_str().unwrap()).unwrap()).unwrap();
        assert_eq!(entries(&opened).unwrap(), [c"name".to_owned()]);
        fs::remove_dir_all(&place).unwrap();
        assert!(entries(&opened).unwrap().is_empty());
    }
}
