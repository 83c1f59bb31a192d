//! BPF iterators: attached once, read on request.

use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result, bail};
use libbpf_rs::{Link, ProgramMut};
use spoolscope_traces::records::Task;

/// Attach an iterator, which then may be opened many times.
pub fn attach(program: &ProgramMut<'_>) -> Result<Link> {
    program.attach().context("Failed to attach an iterator")
}

/// Open a BPF iterator for one reading.
pub fn open(link: &Link) -> Result<OwnedFd> {
    // SAFETY: a live link of an iterator program.
    let fd = unsafe { libbpf_rs::libbpf_sys::bpf_iter_create(link.as_fd().as_raw_fd()) };
    if fd < 0 {
        bail!(
            "Failed to open an iterator: {}",
            std::io::Error::from_raw_os_error(-fd)
        );
    }
    // SAFETY: just created, with no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Read a BPF iterator to its end.
pub fn read_all(iterator: OwnedFd) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::from(iterator)
        .read_to_end(&mut bytes)
        .context("Failed to read a BPF iterator")?;
    Ok(bytes)
}

/// Read an iterator that writes task records.
pub fn tasks(link: &Link) -> Result<Vec<Task>> {
    let bytes = read_all(open(link)?)?;
    let records = bytes.chunks_exact(size_of::<Task>());
    Ok(records.map(bytemuck::pod_read_unaligned).collect())
}
