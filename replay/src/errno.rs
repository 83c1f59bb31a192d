//! Results of system calls as errors.

use std::io;

/// Returns the result of a system call as an `io::Result`.
pub fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
