//! Calls that have not returned yet, read from an iterator.

use anyhow::Result;
use libbpf_rs::Link;
use serde_json::{Value, json};
use spoolscope_traces::calls;
use spoolscope_traces::records::STACK_FRAMES;

use crate::iterators;
use crate::symbols::Functions;

/// The most calls that the end of a recording lists, the longest ones.
const LISTED: usize = 100;

/// `struct call_under_way` of under_way.bpf.h, with the stack.
#[repr(C)]
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct UnderWay {
    pub start_ns: u64,
    /// The time since which it sleeps; 0 if it does not.
    pub out_ns: u64,
    ino: u64,
    dev: u32,
    pub pid: u32,
    pub tid: u32,
    n_frames: u32,
    call: u32,
    in_directory: u32,
    comm: [u8; 16],
    stack: [u64; STACK_FRAMES],
}

impl UnderWay {
    /// Return the stack on which it sleeps.
    pub fn frames(&self) -> &[u64] {
        &self.stack[..STACK_FRAMES.min(self.n_frames as usize)]
    }

    /// Return the description that the frozen trace gets; the call itself is in no trace.
    pub fn as_json(&self, now_ns: u64) -> Value {
        let name = calls::by_id(self.call as u16).map(|call| call.name);
        json!({
            "pid": self.pid, "tid": self.tid, "comm": text(&self.comm),
            "syscall": name, "start_ns": self.start_ns,
            "ns": now_ns.saturating_sub(self.start_ns),
            "dev": self.dev, "ino": self.ino, "in_directory": self.in_directory != 0,
            "frames": if self.out_ns == 0 { &[] } else { self.frames() },
        })
    }
}

/// Return the descriptions of the longest calls, for the trace that ends now.
pub fn listed(mut calls: Vec<UnderWay>, now_ns: u64) -> Value {
    calls.sort_by_key(|call| call.start_ns);
    calls.truncate(LISTED);
    let functions = match calls.is_empty() {
        true => None,
        false => Functions::read().ok(),
    };
    let listed = calls.iter().map(|call| {
        let mut about = call.as_json(now_ns);
        name_frames(&mut about["frames"], functions.as_ref());
        about
    });
    listed.collect()
}

/// Replace the addresses of a stack by names, as far as they are known.
pub fn name_frames(frames: &mut Value, functions: Option<&Functions>) {
    let addresses = frames.as_array().into_iter().flatten();
    let names = addresses.filter_map(|at| functions?.at(at.as_u64()?));
    *frames = names.collect::<Vec<_>>().into();
}

/// Return a name in a fixed-size field; bytes that are not UTF-8 become replacement characters.
pub fn text(name: &[u8]) -> String {
    let end = name.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&name[..end.unwrap_or(name.len())]).into_owned()
}

/// Return all calls that have not returned now.
pub fn read(link: &Link) -> Result<Vec<UnderWay>> {
    let bytes = iterators::read_all(iterators::open(link)?)?;
    let records = bytes.chunks_exact(size_of::<UnderWay>());
    Ok(records.map(bytemuck::pod_read_unaligned).collect())
}
