//! Roll-ups: sums of calls by minute. The BPF programs sum; here the sums are read once a minute,
//! get the names of causes, and are written to a file, from which Python makes tables.

mod asked_causes;
mod minute_files;
mod sum_rows;
pub mod sum_tables;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, MapMut};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::budget::Budget;
use crate::causes::Causes;
use crate::cgroups;
use crate::cli::Options;
use crate::counters;
use crate::host::{self, Spool};
use crate::skel::RecorderMaps;

use asked_causes::{Directory, Stack, Unnamed};
use minute_files::{Minute, Programs};
use sum_rows::{DirectoryKey, NAMES, Sum, Sums, UNEXPLAINED};
use sum_tables::Tables;

/// Longest time for which a program still writes to the table before a border.
const GRACE_NS: u64 = 20_000_000;
/// Time until a border that was not planned: no program has read the old one for so long.
const SOON_NS: u64 = 2_000_000;
/// The border before the first one is chosen: it never comes.
const NEVER_NS: u64 = (u64::MAX >> 1) & !1;
/// Directories of a minute: those with the longest waits.
const DIRECTORIES: usize = 50;
/// Most names of directories that are kept.
const MOST_NAMES: usize = 32_768;

/// Flags of `stack_causes` in call_parts.bpf.h, and the causes that have them.
const LOOKUP: (u32, &[&str]) = (256, &["lookup_io", "dir_lock"]);
const COMMIT: (u32, &[&str]) = (512, &["journal_commit"]);

/// `COUNT_NO_STATE` and `COUNT_UNSUMMED` of state.bpf.h.
const LOST: [u32; 2] = [0, 52];

/// Programs that sum; all others make records.
pub const PROGRAMS: &[&str] = &[
    "on_enter",
    "on_exit",
    "on_fork",
    "on_exec",
    "on_task_exit",
    "on_switch",
    "on_waking",
    "on_irq_in",
    "on_irq_out",
    "on_softirq_in",
    "on_softirq_out",
    "on_jbd2_start",
    "on_jbd2_end",
    "on_xfs_log_force",
    "on_xfs_iclog_sync",
    "on_xfs_iclog_done",
    "on_btrfs_sync_file",
    "on_btrfs_write",
    "on_btrfs_commit",
    "dump_open_files",
    "dump_tasks",
    "dump_calls",
    "watch_kernel_threads",
    "find_tops",
];

/// Reads the sums of the BPF programs, minute by minute.
#[allow(missing_debug_implementations)] // BPF maps have none
pub struct Rollup<'a> {
    tables: Tables<'a>,
    stack_causes: &'a MapMut<'a>,
    reported: &'a MapMut<'a>,
    counts: &'a MapMut<'a>,
    border: &'a AtomicU64,
    n_rows: &'a [AtomicU64; 2],
    causes: Causes,
    /// Names of causes by number.
    names: Vec<String>,
    /// Causes of stacks by hash, with their flags.
    known: FxHashMap<u64, u32>,
    unnamed: Vec<Unnamed>,
    directories: FxHashMap<(u32, u64), Option<Vec<u8>>>,
    sums: Sums,
    spools: Value,
    folder: PathBuf,
    period_ns: i64,
    most_rows: u64,
    minute: Minute,
    /// The next border, and the table before it.
    border_ns: u64,
    side: usize,
    lost: u64,
    cpu_ns: i64,
}

impl<'a> Rollup<'a> {
    /// If the options ask for it, prepare for calls. `border` and `n_rows` are variables of the BPF
    /// programs.
    pub fn begin(
        options: &Options,
        maps: &'a RecorderMaps<'a>,
        border: &'a mut u64,
        n_rows: &'a mut [u64; 2],
        spools: &[Spool],
    ) -> Result<Option<Rollup<'a>>> {
        let Some(seconds) = options.rollup else {
            return Ok(None);
        };
        let rules = options.cause_rules.as_ref();
        let causes = Causes::read(rules.context("no rules of causes given")?)?;
        let mut names: Vec<String> = NAMES.map(str::to_owned).into();
        for name in causes.names() {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        let period_ns = (seconds * 1e9) as i64;
        let output = &options.output;
        // SAFETY: the variables are aligned, live as long as the maps, and are shared with the
        // kernel, which uses atomic operations or whole words as well.
        let (border, n_rows) = unsafe {
            (
                AtomicU64::from_ptr(border),
                &*std::ptr::from_mut(n_rows).cast::<[AtomicU64; 2]>(),
            )
        };
        let rollup = Rollup {
            tables: Tables {
                calls: [&maps.sums0, &maps.sums1],
                commits: [&maps.commits0, &maps.commits1],
                directories: [&maps.directories0, &maps.directories1],
            },
            stack_causes: &maps.stack_causes,
            reported: &maps.directories_reported,
            counts: &maps.counts,
            border,
            n_rows,
            causes,
            names,
            known: FxHashMap::default(),
            unnamed: Vec::new(),
            directories: FxHashMap::default(),
            sums: Sums::default(),
            spools: spools.iter().map(as_json).collect(),
            folder: output.parent().map(PathBuf::from).unwrap_or_default(),
            period_ns,
            most_rows: sum_tables::CALLS.into(),
            border_ns: NEVER_NS,
            minute: Minute::at(0, 0, 0, 0, period_ns),
            side: 0,
            lost: 0,
            cpu_ns: host::cpu_time(),
        };
        rollup.set_border();
        Ok(Some(rollup))
    }

    /// Calls are noted from now on: set the first border, however long the start has taken.
    pub fn armed(&mut self) {
        let (now_ns, real_ns) = host::clock_pair();
        let start_ns = now_ns as u64;
        self.minute = Minute::at(0, start_ns, start_ns, real_ns - now_ns, self.period_ns);
        self.border_ns = self.minute.end_ns;
        self.set_border();
    }

    fn set_border(&self) {
        let word = self.border_ns & !1 | self.side as u64;
        self.border.store(word, Ordering::SeqCst);
    }

    /// Take what a program asks or says; `kind` is that of the ring's record.
    pub fn take(&mut self, kind: u16, bytes: &[u8]) -> Result<()> {
        match kind {
            asked_causes::STACK => {
                if let Some(stack) = asked_causes::of::<Stack>(bytes) {
                    self.name(&stack)?;
                }
            }
            asked_causes::UNNAMED => self.unnamed.extend(asked_causes::of::<Unnamed>(bytes)),
            asked_causes::DIRECTORY => {
                if let Some(found) = asked_causes::of::<Directory>(bytes) {
                    self.directories
                        .insert((found.dev, found.ino), found.path());
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Tell the programs the cause of a stack.
    fn name(&mut self, stack: &Stack) -> Result<()> {
        let cause = match self.causes.of(stack.frames()) {
            Some(name) => {
                let number = self.names.iter().position(|known| known == name);
                let flags = [LOOKUP, COMMIT];
                let flags = flags.iter().filter(|(_, causes)| causes.contains(&name));
                number.map_or(0, |number| number as u32) | flags.map(|(flag, _)| flag).sum::<u32>()
            }
            None => UNEXPLAINED.into(),
        };
        self.known.insert(stack.hash, cause);
        let key = stack.hash.to_ne_bytes();
        Ok(self
            .stack_causes
            .update(&key, &cause.to_ne_bytes(), MapFlags::ANY)?)
    }

    /// Read a table whose time is over; to be called every few moments. All rings were read since
    /// `read_ns`. Return the name of the file if a minute is over.
    pub fn tick(
        &mut self,
        read_ns: u64,
        budget: &mut Budget<'_>,
        groups: &cgroups::Names,
    ) -> Result<Option<String>> {
        if read_ns >= self.border_ns + GRACE_NS {
            return self.turn(budget, groups);
        }
        let rows = self.n_rows[self.side].load(Ordering::Relaxed);
        let now_ns = host::clock(libc::CLOCK_MONOTONIC) as u64;
        if rows > self.most_rows / 2 && now_ns + 10 * SOON_NS < self.border_ns {
            self.border_ns = (now_ns + SOON_NS) & !1;
            self.set_border();
        }
        Ok(None)
    }

    /// Read the table before the border; if a minute ends there, write it.
    fn turn(&mut self, budget: &mut Budget<'_>, groups: &cgroups::Names) -> Result<Option<String>> {
        self.read_table()?;
        self.side ^= 1;
        let over = self.border_ns >= self.minute.end_ns;
        let written = if over {
            let shift_ns = shift_ns();
            let name = self.write(shift_ns, budget, groups)?;
            let earliest_ns = host::clock(libc::CLOCK_MONOTONIC) as u64 + SOON_NS;
            let (seq, start_ns) = (self.minute.seq + 1, self.minute.end_ns);
            self.minute = Minute::at(seq, start_ns, earliest_ns, shift_ns, self.period_ns);
            Some(name)
        } else {
            None
        };
        self.border_ns = self.minute.end_ns;
        self.set_border();
        Ok(written)
    }

    /// Write what is left, once the programs are detached.
    pub fn end(
        &mut self,
        end_ns: u64,
        budget: &mut Budget<'_>,
        groups: &cgroups::Names,
    ) -> Result<Vec<String>> {
        let mut written = Vec::new();
        if end_ns >= self.border_ns {
            written.extend(self.turn(budget, groups)?);
        }
        self.border_ns = end_ns + 1; // every call that is left ended before
        self.minute.end_ns = end_ns.max(self.minute.start_ns);
        self.read_table()?;
        written.push(self.write(shift_ns(), budget, groups)?);
        Ok(written)
    }

    fn read_table(&mut self) -> Result<()> {
        self.tables.take(self.side, &mut self.sums)?;
        let (known, sums) = (&self.known, &mut self.sums);
        let is_lookup =
            |what| what == 0 || known.get(&what).is_some_and(|cause| cause & LOOKUP.0 != 0);
        self.tables
            .take_directories(self.side, |key: &DirectoryKey, of_cpus: &[Sum]| {
                if is_lookup(key.what) {
                    sums.add_directory(key, of_cpus);
                }
            })?;
        self.n_rows[self.side].store(0, Ordering::SeqCst);
        let border_ns = self.border_ns;
        let (over, rest) = std::mem::take(&mut self.unnamed)
            .into_iter()
            .partition::<Vec<_>, _>(|call| call.end_ns < border_ns);
        self.unnamed = rest;
        over.iter().for_each(|call| self.add_unnamed(call));
        Ok(())
    }

    fn add_unnamed(&mut self, call: &Unnamed) {
        let mut parts: Vec<(u8, u64)> = vec![
            (sum_rows::CPU, call.cpu_ns),
            (sum_rows::STEAL, call.steal_ns),
            (sum_rows::RUNQ, call.runq_ns),
            (sum_rows::PREEMPT, call.preempt_ns),
        ];
        for part in call.parts() {
            let cause = match u8::try_from(part.what) {
                Ok(cause) => cause,
                Err(_) => self.known.get(&part.what).map_or(UNEXPLAINED, |c| *c as u8),
            };
            match parts.iter_mut().find(|(known, _)| *known == cause) {
                Some((_, ns)) => *ns += part.ns,
                None => parts.push((cause, part.ns)),
            }
        }
        self.sums.add_part(&call.key, sum_rows::CALL, call.call_ns);
        for (cause, ns) in parts {
            self.sums.add_part(&call.key, cause, ns);
        }
    }

    /// Write the minute; return the name of its file.
    fn write(
        &mut self,
        shift_ns: i64,
        budget: &mut Budget<'_>,
        groups: &cgroups::Names,
    ) -> Result<String> {
        let sums = std::mem::take(&mut self.sums);
        let mut programs = Programs::default();
        let mut content = self.minute.times(shift_ns);
        content["calls"] = programs.calls(sums.calls.iter(), usize::from, groups);
        content["commits"] = programs.commits(sums.commits.iter(), groups);
        content["directories"] = self.costliest(&sums);
        content["programs"] = programs.into_json();
        content["causes"] = json!(self.names);
        content["call_names"] = minute_files::call_names();
        content["spools"] = self.spools.clone();
        let lost = self.lost()?;
        content["lost"] = (lost - std::mem::replace(&mut self.lost, lost)).into();
        let cpu_ns = host::cpu_time();
        let covered_ns = self.minute.end_ns - self.minute.start_ns;
        let in_kernel_ns = budget.bpf_share() * covered_ns as f64;
        let own_ns = cpu_ns - std::mem::replace(&mut self.cpu_ns, cpu_ns);
        content["recorder_ns"] = (own_ns + in_kernel_ns as i64).into();
        let name = format!("minute-{:09}.json", self.minute.seq);
        minute_files::write(&self.folder.join(&name), &content)?;
        Ok(name)
    }

    fn lost(&self) -> Result<u64> {
        LOST.iter().map(|at| counters::sum(self.counts, *at)).sum()
    }

    /// Return the directories with the longest waits, a list each: device, path, calls, time.
    fn costliest(&mut self, sums: &Sums) -> Value {
        let mut found: Vec<_> = sums.directories.iter().collect();
        found.sort_unstable_by_key(|(key, sum)| (std::cmp::Reverse(sum.ns), **key));
        let shown = found.iter().take(DIRECTORIES).map(|(key, sum)| {
            let path = self.directories.get(&(key.dev, key.ino)).cloned();
            let path = path.flatten().unwrap_or_default();
            json!([key.dev, String::from_utf8_lossy(&path), sum.n, sum.ns])
        });
        let shown = shown.collect();
        if self.directories.len() > MOST_NAMES {
            self.directories.clear();
            for key in self.reported.keys().collect::<Vec<_>>() {
                let _ = self.reported.delete(&key); // another was first: it is gone
            }
        }
        shown
    }
}

/// Return the facts on a spool that the tables have.
fn as_json(spool: &Spool) -> Value {
    let disk = |dev: &u32| format!("{}:{}", dev >> 20, dev & 0xf_ffff);
    json!({
        "mount": spool.mount, "fstype": spool.fstype, "options": spool.options, "dev": spool.dev,
        "source": spool.source, "root": spool.root,
        "disks": spool.disks().iter().map(disk).collect::<Vec<_>>(),
    })
}

/// Return CLOCK_REALTIME minus CLOCK_MONOTONIC.
fn shift_ns() -> i64 {
    let (mono_ns, real_ns) = host::clock_pair();
    real_ns - mono_ns
}
