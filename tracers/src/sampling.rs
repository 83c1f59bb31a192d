//! The clock behind `on_sample`: a software event on every CPU.

use std::mem::size_of;

use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys::{
    PERF_COUNT_SW_CPU_CLOCK, PERF_FLAG_FD_CLOEXEC, PERF_TYPE_SOFTWARE, perf_event_attr,
};
use libbpf_rs::{Link, ProgramMut};

use crate::rings;

/// Let the program run `hz` times a second on every CPU, until the links are dropped.
pub fn attach(program: &ProgramMut<'_>, hz: u32) -> Result<Vec<Link>> {
    let mut links = Vec::new();
    for cpu in 0..rings::cpus()? {
        match open(cpu, hz) {
            Ok(event) => links.push(program.attach_perf_event(event)?),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {} // it is offline
            Err(error) => return Err(error).context("Failed to open a perf event"),
        }
    }
    Ok(links)
}

fn open(cpu: u32, hz: u32) -> std::io::Result<i32> {
    let mut attr = perf_event_attr {
        type_: PERF_TYPE_SOFTWARE,
        size: size_of::<perf_event_attr>() as u32,
        config: u64::from(PERF_COUNT_SW_CPU_CLOCK),
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = 1_000_000_000 / u64::from(hz);
    // SAFETY: attr lives and states its own size; -1: every task, no group.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            -1,
            cpu as i32,
            -1,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(fd as i32)
}
