//! Hands open files from one task to another, as a socket did in the recording.
//!
//! The opener puts its file into the socket at once: there it stays open, whatever becomes of the
//! opener, until the other task takes it.

use anyhow::{Result, ensure};
use std::mem;
use std::ptr;

use crate::model::state::passed_on::Pass;

/// Room for one descriptor in a control message, aligned as its header must be.
type Control = [u64; 4];

/// A socket for every open file that changes hands; made before there are tasks.
#[derive(Debug, Default)]
pub struct Passing {
    passes: Vec<(Pass, [i32; 2])>,
}

impl Passing {
    pub fn new(passes: &[Pass]) -> Result<Self> {
        let socket = |pass: &Pass| {
            let mut pair = [-1; 2];
            let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
            // SAFETY: the array has room for two descriptors.
            let made = unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) };
            ensure!(
                made == 0,
                "no socket to pass a descriptor: raise the limit of open files (ulimit -n)"
            );
            Ok((*pass, pair))
        };
        let passes = passes.iter().map(socket).collect::<Result<_>>()?;
        Ok(Self { passes })
    }

    /// Sends the file that an operation opened to all tasks that will use it.
    pub fn send(&self, op: u32, real: i32) {
        for (_, [from, _]) in self.passes.iter().filter(|(pass, _)| pass.opened == op) {
            send(*from, real);
        }
    }

    /// Returns whether an operation uses a file that another task opened.
    pub fn hands_over(&self, op: u32) -> bool {
        let used = |(pass, _): &(Pass, [i32; 2])| pass.used;
        self.passes.binary_search_by_key(&op, used).is_ok()
    }

    /// Returns the file that an operation uses and another task opened, and its real number here.
    pub fn receive(&self, op: u32) -> Option<(Pass, i32)> {
        let at = self.passes.binary_search_by_key(&op, |(pass, _)| pass.used);
        let (pass, [_, into]) = &self.passes[at.ok()?];
        Some((*pass, receive(*into)?))
    }
}

fn message(byte: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: zero is a valid value of every member.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (byte, 1);
    (message.msg_control, message.msg_controllen) =
        (control.as_mut_ptr().cast(), mem::size_of::<Control>());
    message
}

fn send(socket: i32, real: i32) {
    let (mut text, mut control) = (0_u8, Control::default());
    let mut byte = libc::iovec {
        iov_base: (&raw mut text).cast(),
        iov_len: 1,
    };
    let mut message = message(&mut byte, &mut control);
    // SAFETY: the control buffer holds one message with one descriptor.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(mem::size_of::<i32>() as u32) as usize;
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(mem::size_of::<i32>() as u32) as usize;
        ptr::write_unaligned(libc::CMSG_DATA(head).cast(), real);
        libc::sendmsg(socket, &raw const message, libc::MSG_DONTWAIT);
    }
}

/// Returns `None` if nothing was sent: the open failed, or without an order comes later.
fn receive(socket: i32) -> Option<i32> {
    let (mut text, mut control) = (0_u8, Control::default());
    let mut byte = libc::iovec {
        iov_base: (&raw mut text).cast(),
        iov_len: 1,
    };
    let mut message = message(&mut byte, &mut control);
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the message and what it points to live until here; a header that is there is whole.
    unsafe {
        if libc::recvmsg(socket, &raw mut message, flags) < 0 {
            return None;
        }
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (!head.is_null()).then(|| ptr::read_unaligned(libc::CMSG_DATA(head).cast()))
    }
}
