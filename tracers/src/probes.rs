//! State of the BPF side besides its records: living threads, open files, counters.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;

use anyhow::{Result, bail};
use libbpf_rs::{Link, MapCore, MapFlags, MapMut};
use serde_json::Value;
use spoolscope_traces::error_code::{Code, Failure};
use spoolscope_traces::records::{KIND_TASK, Task};

use crate::counters::Counters;
use crate::host;
use crate::iterators;
use crate::skel::{RecorderMaps, RecorderProgs};
use crate::under_way::{self, UnderWay};
use crate::unjudged;

/// Iterators and counters, read at every border and at the end.
#[allow(missing_debug_implementations)] // BPF maps have none
pub struct Probes<'a> {
    counts: &'a MapMut<'a>,
    exits: &'a MapMut<'a>,
    requests: &'a MapMut<'a>,
    unjudged: &'a MapMut<'a>,
    files: Link,
    tasks: Link,
    calls: Result<Link>,
    reported: RefCell<Counters>,
    rescued: Cell<u64>,
    cpu_ns: Cell<i64>,
}

impl<'a> Probes<'a> {
    pub fn attach(progs: &RecorderProgs<'_>, maps: &'a RecorderMaps<'a>) -> Result<Probes<'a>> {
        Ok(Probes {
            counts: &maps.counts,
            exits: &maps.unreported_exits,
            requests: &maps.requests,
            unjudged: &maps.unjudged_calls,
            files: iterators::attach(&progs.dump_open_files)?,
            tasks: iterators::attach(&progs.dump_tasks)?,
            calls: iterators::attach(&progs.dump_calls),
            reported: RefCell::default(),
            rescued: Cell::new(0),
            cpu_ns: Cell::new(0),
        })
    }

    /// Open an iterator over the descriptors that are open now, to be read by another thread.
    pub fn open_files(&self) -> Result<OwnedFd> {
        iterators::open(&self.files)
    }

    /// Return every living thread that made a call, with the number of its calls.
    pub fn living(&self) -> Result<Vec<Task>> {
        iterators::tasks(&self.tasks)
    }

    /// Return the calls that have not returned.
    pub fn under_way(&self) -> Result<Vec<UnderWay>> {
        match &self.calls {
            Ok(link) => under_way::read(link),
            Err(_) => bail!(Failure::new(
                Code::NoKernel,
                "this kernel refuses the program dump_calls, which shows calls under way",
                "leave out --freeze-on on in-flight and causes",
            )),
        }
    }

    /// Return descriptions of the calls that have not returned, none if they cannot be read.
    pub fn listed_under_way(&self) -> Value {
        let calls = self.under_way().unwrap_or_default();
        under_way::listed(calls, host::clock(libc::CLOCK_MONOTONIC) as u64)
    }

    /// Return the threads whose EXIT record found no room in the ring, each only once.
    pub fn unreported_exits(&self) -> Result<Vec<Task>> {
        let mut found = Vec::new();
        for key in self.exits.keys().collect::<Vec<_>>() {
            if let Some(task) = self.exits.lookup(&key, MapFlags::ANY)? {
                found.push(bytemuck::pod_read_unaligned(&task));
            }
            self.exits.delete(&key)?;
        }
        self.rescued.set(self.rescued.get() + found.len() as u64);
        Ok(found)
    }

    /// Return the meta data of the end of a segment, given its clocks: losses since the last one.
    pub fn end_meta(&self, end: (i64, i64)) -> Result<Value> {
        let mut now = Counters::read(self.counts)?;
        now.less(KIND_TASK.into(), self.rescued.get());
        let cpu_ns = host::cpu_time();
        let mut meta = now.since(&self.reported.replace(now.clone())).meta();
        meta["unjudged"] = unjudged::take(self.unjudged)?;
        meta["end_mono_ns"] = end.0.into();
        meta["end_real_ns"] = end.1.into();
        meta["requests_unfinished"] = self.requests.keys().count().into();
        meta["recorder_cpu_ns"] = (cpu_ns - self.cpu_ns.replace(cpu_ns)).into();
        Ok(meta)
    }
}
