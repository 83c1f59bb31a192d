//! Ring buffer -> segments: interns strings and stacks, keeps records flat.

use std::cell::RefCell;

use anyhow::Result;
use bytemuck::Pod;
use spoolscope_traces::records::{
    self, Block, Fault, Journal, Sample, Switch, Syscall, Task, Uring, UserCall, Wait,
};
use spoolscope_traces::segment::Kind;

use crate::rollup::Rollup;
use crate::segments::Segments;
use crate::user_stacks::NEAR_WORDS;
use crate::views::{self, Question, Views};

/// `RING_VIEW` of state.bpf.h.
const RING_VIEW: u16 = 256;

/// `struct ring_head` of state.bpf.h.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct RingHead {
    kind: u32,
    len1: u16,
    len2: u16,
    stride: u32,
    /// For a call: the view by which its absolute names are resolved.
    view: u32,
}

const HEAD: usize = size_of::<RingHead>();

fn record<T: Pod>(bytes: &[u8]) -> Option<(T, &[u8])> {
    let size = size_of::<T>();
    let record = bytes.get(..size)?;
    Some((bytemuck::pod_read_unaligned(record), &bytes[size..]))
}

/// Return the text up to its length or its first NUL.
fn text(bytes: &[u8], at: usize, len: u16) -> &[u8] {
    let slice = bytes.get(at..at + usize::from(len)).unwrap_or_default();
    slice.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Return the frames; the bytes are n_frames, pad, frames.
fn frames(bytes: &[u8]) -> Vec<u64> {
    let Some((n, rest)) = record::<[u32; 2]>(bytes) else {
        return Vec::new();
    };
    rest.chunks_exact(8)
        .take(n[0] as usize)
        .map(bytemuck::pod_read_unaligned)
        .collect()
}

/// All that takes records.
#[allow(missing_debug_implementations)] // BPF maps have none
pub struct Sinks<'s, 'v, 'r>(
    pub &'s RefCell<Segments>,
    pub &'s RefCell<Views<'v>>,
    pub &'s RefCell<Option<Rollup<'r>>>,
);

impl Sinks<'_, '_, '_> {
    /// Store one ring record in the segment of its time.
    pub fn store(&self, bytes: &[u8]) -> Result<()> {
        let (mut segments, mut views) = (self.0.borrow_mut(), self.1.borrow_mut());
        store(
            &mut segments,
            &mut views,
            self.2.borrow_mut().as_mut(),
            bytes,
        )
    }
}

/// Store one ring record. Unknown kinds cannot occur: both sides are one build.
fn store(
    segments: &mut Segments,
    views: &mut Views<'_>,
    rollup: Option<&mut Rollup<'_>>,
    bytes: &[u8],
) -> Result<()> {
    let Some((head, rest)) = record::<RingHead>(bytes) else {
        return Ok(());
    };
    debug_assert_eq!(bytes.len() - rest.len(), HEAD);
    match head.kind as u16 {
        records::KIND_SYSCALL => store_call(segments, views, &head, rest),
        records::KIND_SWITCH => store_switch(segments, rest),
        records::KIND_TASK => store_task(segments, &head, rest),
        records::KIND_JOURNAL => store_journal(segments, rest),
        records::KIND_SAMPLE => store_sample(segments, rest),
        records::KIND_USER_CALL => store_user_call(segments, rest),
        records::KIND_WAIT => match record::<Wait>(rest) {
            Some((wait, _)) => segments.at(wait.end_ns).push(Kind::Wait, &wait),
            None => Ok(()),
        },
        records::KIND_BLOCK => match record::<Block>(rest) {
            Some((block, _)) => segments.at(block.done_ns).push(Kind::Block, &block),
            None => Ok(()),
        },
        records::KIND_URING => match record::<Uring>(rest) {
            Some((operation, _)) => store_uring(segments, &operation),
            None => Ok(()),
        },
        records::KIND_FAULT => match record::<Fault>(rest) {
            Some((fault, _)) => segments.at(fault.ts_ns).push(Kind::Fault, &fault),
            None => Ok(()),
        },
        RING_VIEW => {
            if let Some((question, _)) = record::<Question>(rest) {
                views.answer(&question);
            }
            Ok(())
        }
        other => rollup.map_or(Ok(()), |rollup| rollup.take(other, rest)),
    }
}

/// Store an operation; one that was refused at once has only the time of its submission.
fn store_uring(segments: &mut Segments, operation: &Uring) -> Result<()> {
    let time_ns = operation.done_ns.max(operation.submit_ns);
    segments.at(time_ns).push(Kind::Uring, operation)
}

fn store_call(
    segments: &mut Segments,
    views: &Views<'_>,
    head: &RingHead,
    rest: &[u8],
) -> Result<()> {
    let Some((mut call, tail)) = record::<Syscall>(rest) else {
        return Ok(());
    };
    let path = text(tail, 0, head.len1);
    let path2 = text(tail, head.stride as usize, head.len2);
    if head.view == 0 {
        return segments.push_call(call, path, path2);
    }
    let (mut path, mut path2) = (path.to_vec(), path2.to_vec());
    views::rewrite(views.names(head.view), &mut call, &mut path, &mut path2);
    segments.push_call(call, &path, &path2)
}

fn store_switch(segments: &mut Segments, rest: &[u8]) -> Result<()> {
    let Some((switch, tail)) = record::<Switch>(rest) else {
        return Ok(());
    };
    segments.push_switch(switch, &frames(tail))
}

fn store_sample(segments: &mut Segments, rest: &[u8]) -> Result<()> {
    let Some((mut sample, tail)) = record::<Sample>(rest) else {
        return Ok(());
    };
    let capture = segments.at(sample.ts_ns);
    sample.stack = capture.stack(&frames(tail));
    capture.push(Kind::Sample, &sample)
}

fn store_user_call(segments: &mut Segments, rest: &[u8]) -> Result<()> {
    let Some((mut call, rest)) = record::<UserCall>(rest) else {
        return Ok(());
    };
    let Some((near, tail)) = record::<[u64; NEAR_WORDS]>(rest) else {
        return Ok(());
    };
    let stacks = &mut segments.user_stacks;
    if let Some(number) = stacks.number(call.pid, &frames(tail), &near) {
        call.user_stack = number;
        segments.at(call.end_ns).push(Kind::UserCall, &call)?;
    }
    Ok(())
}

fn store_task(segments: &mut Segments, head: &RingHead, rest: &[u8]) -> Result<()> {
    let Some((task, tail)) = record::<Task>(rest) else {
        return Ok(());
    };
    segments.push_task(task, text(tail, 0, head.len1))
}

fn store_journal(segments: &mut Segments, rest: &[u8]) -> Result<()> {
    let Some((mut event, tail)) = record::<Journal>(rest) else {
        return Ok(());
    };
    segments.trigger.journal(&event);
    let capture = segments.at(event.ts_ns);
    event.stack = capture.stack(&frames(tail));
    capture.push(Kind::Journal, &event)
}
