//! Files of the target as the replayer makes them, and its room.

use std::ffi::{CStr, OsStr};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Returns the result of a system call as an `io::Result`.
pub fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Returns a path of the kernel's as one of the standard library.
pub fn as_path(path: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(path.to_bytes()))
}

/// Makes a directory, unless there is one.
pub fn make_directory(path: &CStr) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(as_path(path)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Makes a file, which must not be there.
pub fn make_file(path: &CStr, mode: u32) -> io::Result<File> {
    let mut how = File::options();
    how.write(true).create_new(true).mode(mode);
    how.open(as_path(path))
}

/// Makes an empty file, a pipe or a socket, by its mode.
pub fn make_node(path: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: the path is NUL-terminated.
    check(unsafe { libc::mknod(path.as_ptr(), mode, 0) }).map(drop)
}

/// Returns the room of a filesystem.
pub fn statvfs(place: &CStr) -> io::Result<libc::statvfs> {
    // SAFETY: zero is a valid statvfs; the path is NUL-terminated.
    unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        check(libc::statvfs(place.as_ptr(), &raw mut stat))?;
        Ok(stat)
    }
}
