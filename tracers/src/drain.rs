//! Ring buffer -> capture: interns strings and stacks, keeps records flat.

use anyhow::Result;
use bytemuck::Pod;
use spoolscope_traces::records::{self, Block, Fault, Journal, Switch, Syscall, Task, Uring, Wait};
use spoolscope_traces::segment::{Capture, Kind};

/// `struct ring_head` of state.bpf.h.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct RingHead {
    kind: u32,
    len1: u16,
    len2: u16,
    stride: u32,
    pad: u32,
}

const HEAD: usize = size_of::<RingHead>();

fn record<T: Pod>(bytes: &[u8]) -> Option<(T, &[u8])> {
    let size = size_of::<T>();
    let record = bytes.get(..size)?;
    Some((bytemuck::pod_read_unaligned(record), &bytes[size..]))
}

/// Text up to its length or its first NUL.
fn text(bytes: &[u8], at: usize, len: u16) -> &[u8] {
    let slice = bytes.get(at..at + usize::from(len)).unwrap_or_default();
    slice.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// n_frames, pad, frames.
fn frames(bytes: &[u8]) -> Vec<u64> {
    let Some((n, rest)) = record::<[u32; 2]>(bytes) else {
        return Vec::new();
    };
    rest.chunks_exact(8)
        .take(n[0] as usize)
        .map(bytemuck::pod_read_unaligned)
        .collect()
}

/// Stores one ring record. Unknown kinds cannot occur: both sides are one build.
pub fn store(capture: &mut Capture, bytes: &[u8]) -> Result<()> {
    let Some((head, rest)) = record::<RingHead>(bytes) else {
        return Ok(());
    };
    debug_assert_eq!(bytes.len() - rest.len(), HEAD);
    match head.kind as u16 {
        records::KIND_SYSCALL => store_call(capture, &head, rest),
        records::KIND_SWITCH => store_switch(capture, rest),
        records::KIND_TASK => store_task(capture, &head, rest),
        records::KIND_JOURNAL => store_journal(capture, rest),
        records::KIND_WAIT => match record::<Wait>(rest) {
            Some((wait, _)) => capture.push(Kind::Wait, &wait),
            None => Ok(()),
        },
        records::KIND_BLOCK => match record::<Block>(rest) {
            Some((block, _)) => capture.push(Kind::Block, &block),
            None => Ok(()),
        },
        records::KIND_URING => match record::<Uring>(rest) {
            Some((operation, _)) => capture.push(Kind::Uring, &operation),
            None => Ok(()),
        },
        records::KIND_FAULT => match record::<Fault>(rest) {
            Some((fault, _)) => capture.push(Kind::Fault, &fault),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

fn store_call(capture: &mut Capture, head: &RingHead, rest: &[u8]) -> Result<()> {
    let Some((mut call, tail)) = record::<Syscall>(rest) else {
        return Ok(());
    };
    call.path = capture.string(text(tail, 0, head.len1));
    call.path2 = capture.string(text(tail, head.stride as usize, head.len2));
    capture.push(Kind::Syscall, &call)
}

fn store_switch(capture: &mut Capture, rest: &[u8]) -> Result<()> {
    let Some((mut switch, tail)) = record::<Switch>(rest) else {
        return Ok(());
    };
    switch.stack = capture.stack(&frames(tail));
    capture.push(Kind::Switch, &switch)
}

fn store_task(capture: &mut Capture, head: &RingHead, rest: &[u8]) -> Result<()> {
    let Some((mut task, tail)) = record::<Task>(rest) else {
        return Ok(());
    };
    task.path = capture.string(text(tail, 0, head.len1));
    capture.push(Kind::Task, &task)
}

fn store_journal(capture: &mut Capture, rest: &[u8]) -> Result<()> {
    let Some((mut event, tail)) = record::<Journal>(rest) else {
        return Ok(());
    };
    event.stack = capture.stack(&frames(tail));
    capture.push(Kind::Journal, &event)
}
