//! Signals to tasks by their process numbers, which may belong to others by now.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process;

use crate::target_files::check;

/// Longest chain of forks that is followed.
const DEEPEST: usize = 4096;

/// The processes that descend from this one; no others get its signals.
///
/// The kernel itself reaps the children of tasks with several threads, and may give their numbers to
/// any process. A pidfd is of one process for ever.
#[derive(Debug)]
pub struct Descendants {
    /// /proc, opened before the root directory changes.
    proc: Option<File>,
}

impl Descendants {
    pub fn open() -> Self {
        Self {
            proc: File::open("/proc").ok(),
        }
    }

    /// Kills a process, if it is a descendant.
    pub fn kill(&self, pid: u32) {
        if let Some(process) = self.find(pid) {
            let (none, flags) = (std::ptr::null::<libc::siginfo_t>(), 0);
            let number = libc::SYS_pidfd_send_signal;
            // SAFETY: plain system call on an open descriptor.
            unsafe { libc::syscall(number, process.as_raw_fd(), libc::SIGKILL, none, flags) };
        }
    }

    /// Interrupts the call of a thread, if its process is a descendant.
    pub fn interrupt(&self, pid: u32, tid: u32) {
        if self.find(pid).is_some() {
            // SAFETY: a task of this replay; the signal only interrupts its call.
            unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, libc::SIGUSR1) };
        }
    }

    /// Returns a pidfd of a process, if it is a descendant.
    fn find(&self, pid: u32) -> Option<OwnedFd> {
        // SAFETY: plain system call; the descriptor is new and owned from here on.
        let found = unsafe {
            let opened = libc::syscall(libc::SYS_pidfd_open, pid, 0) as libc::c_int;
            OwnedFd::from_raw_fd(check(opened).ok()?)
        };
        (is_child(&found) || self.descends(pid)).then_some(found)
    }

    /// Returns whether the process that has a number now is a descendant. If its pidfd is older, and
    /// still takes signals, it is that one.
    fn descends(&self, pid: u32) -> bool {
        let above = std::iter::successors(Some(pid), |pid| self.parent(*pid));
        above.skip(1).take(DEEPEST).any(|pid| pid == process::id())
    }

    fn parent(&self, pid: u32) -> Option<u32> {
        let place = self.proc.as_ref()?.as_raw_fd();
        let name = CString::new(format!("{pid}/stat")).ok()?;
        // SAFETY: the name is NUL-terminated; the descriptor is new and owned from here on.
        let mut file = unsafe {
            let opened = libc::openat(place, name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            File::from_raw_fd(check(opened).ok()?)
        };
        let mut text = Vec::new();
        file.read_to_end(&mut text).ok()?;
        // After the name, which may hold anything: state and parent.
        let name_end = text.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(&text[name_end + 1..]).ok()?;
        rest.split_whitespace().nth(1)?.parse().ok()
    }
}

fn is_child(process: &OwnedFd) -> bool {
    // SAFETY: zeros are a valid siginfo.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    let number = process.as_raw_fd() as libc::id_t;
    // SAFETY: `info` is valid for writing; WNOWAIT leaves a child that has ended as it is.
    unsafe { libc::waitid(libc::P_PIDFD, number, &raw mut info, how) == 0 }
}

#[cfg(test)]
mod tests {
    use super::Descendants;
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::ExitStatusExt;
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};

    /// Starts a shell that starts a sleeping process; returns both.
    fn shell(then: &str) -> (Child, u32) {
        let script = format!("sleep 60 >/dev/null 2>&1 & echo $!; {then}");
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", &script]).stdout(Stdio::piped()).spawn();
        let mut shell = shell.expect("a shell");
        let mut line = String::new();
        let output = shell.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("a line");
        (shell, line.trim().parse().expect("a number"))
    }

    #[test]
    fn children_and_theirs_are_killed_and_no_other_process() {
        let tasks = Descendants::open();
        let (mut ended, stranger) = shell("exit 0");
        ended.wait().expect("a status");
        let (mut parent, grandchild) = shell("wait $!; exit $(($? - 128))");
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        for pid in [0, stranger, child.id(), grandchild] {
            tasks.kill(pid);
        }
        let status = child.wait().expect("a status");
        assert_eq!(status.signal(), Some(libc::SIGKILL));
        assert_eq!(parent.wait().expect("a status").code(), Some(libc::SIGKILL));
        assert!(PathBuf::from(format!("/proc/{stranger}/exe")).exists());
        // SAFETY: the process was begun above, and sleeps for a minute.
        unsafe { libc::kill(stranger as i32, libc::SIGTERM) };
    }
}
