//! The command under observation: forked first, executed when all programs are attached.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use spoolscope_traces::error_code::{Code, Failure};

/// A forked child that waits for its release before it executes the command.
#[derive(Debug)]
pub struct Command {
    /// Its process id.
    pub pid: libc::pid_t,
    gate: Option<OwnedFd>,
}

impl Command {
    /// Fork; must be called while this process has one thread.
    pub fn fork(words: &[OsString]) -> Result<Command> {
        if !executable(&words[0]) {
            bail!(Failure::new(
                Code::Failed,
                format!("cannot execute {}", words[0].to_string_lossy()),
                "give an executable after --",
            ));
        }
        let words: Vec<CString> = words
            .iter()
            .map(|word| CString::new(word.as_bytes()))
            .collect::<Result<_, _>>()
            .context("the command contains a NUL byte")?;
        let mut argv: Vec<*const libc::c_char> = words.iter().map(|w| w.as_ptr()).collect();
        argv.push(std::ptr::null());
        let mut pipe = [0; 2];
        // SAFETY: pipe has room for two descriptors.
        if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            bail!("Failed to make a pipe: {}", std::io::Error::last_os_error());
        }
        // SAFETY: single-threaded here; the child only reads, executes and exits.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: async-signal-safe calls on our own descriptors and C strings.
            unsafe {
                libc::close(pipe[1]);
                let mut byte = 0u8;
                if libc::read(pipe[0], (&raw mut byte).cast(), 1) != 1 {
                    libc::_exit(125); // the recorder gave up before it was ready
                }
                libc::signal(libc::SIGPIPE, libc::SIG_DFL); // Rust's start-up ignores it
                libc::execvp(argv[0], argv.as_ptr());
                libc::_exit(if *libc::__errno_location() == libc::ENOENT {
                    127
                } else {
                    126
                });
            }
        }
        if pid < 0 {
            bail!("Failed to fork: {}", std::io::Error::last_os_error());
        }
        // SAFETY: both descriptors were just made and have no other owner.
        let (read, write) =
            unsafe { (OwnedFd::from_raw_fd(pipe[0]), OwnedFd::from_raw_fd(pipe[1])) };
        drop(read);
        Ok(Command {
            pid,
            gate: Some(write),
        })
    }

    /// Let the child execute the command.
    pub fn release(&mut self) {
        if let Some(gate) = self.gate.take() {
            // SAFETY: one byte from a live buffer to our own pipe.
            unsafe { libc::write(gate.as_raw_fd(), [1u8].as_ptr().cast(), 1) };
        }
    }

    /// Return the wait status if the command has ended.
    pub fn ended(&self) -> Option<i32> {
        let mut status = 0;
        // SAFETY: our own child; status is ours.
        let pid = unsafe { libc::waitpid(self.pid, &raw mut status, libc::WNOHANG) };
        (pid == self.pid).then_some(status)
    }

    /// Ask the command to end.
    pub fn terminate(&self) {
        // SAFETY: our own child, not yet reaped.
        unsafe { libc::kill(self.pid, libc::SIGTERM) };
    }
}

/// Return true if it is a program, by path or on PATH.
fn executable(name: &OsStr) -> bool {
    let is_program = |path: &Path| {
        path.metadata()
            .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    if name.as_bytes().contains(&b'/') {
        return is_program(Path::new(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| is_program(&dir.join(name)))
}

/// Return the exit code that a shell gives for that wait status.
pub fn exit_code(status: i32) -> i32 {
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    }
}
