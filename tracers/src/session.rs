//! One recording, from attach to the closed file.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, RingBuffer, RingBufferBuilder};
use serde_json::{Value, json};
use spoolscope_traces::records::Task;
use spoolscope_traces::segment::{Capture, Kind};

use crate::budget::Budget;
use crate::cli::Options;
use crate::command::{Command, exit_code};
use crate::coverage::{self, Coverage};
use crate::host::{self, Spool};
use crate::skel::{RecorderSkel, RecorderSkelBuilder};
use crate::snapshot::{self, Found};
use crate::targets::Targets;
use crate::{aliases, answer, cgroups, counters, drain, rings, settings, symbols};

/// How often the ring is emptied; full rings hold many such intervals.
const TICK: Duration = Duration::from_millis(5);
/// How old buffered records get before they are written.
const FLUSH: Duration = Duration::from_secs(1);
/// Time a terminated command gets before the recording ends without it.
const GRACE: Duration = Duration::from_secs(5);

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// With an answers file somebody waits for us; should they be killed, end in order.
fn end_with_parent(options: &Options) {
    if options.answers.is_some() {
        // SAFETY: plain flags; a parent that is already gone is noticed by nobody anyway.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
    }
}

fn catch_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::signal(signal, on_signal as *const () as libc::sighandler_t) };
    }
}

/// Records as the options say and prints one JSON line when ready and one at the end.
pub fn run(options: &Options) -> Result<()> {
    let spools: Vec<Spool> = options
        .spools
        .iter()
        .map(|p| Spool::at(p))
        .collect::<Result<_>>()?;
    refuse_output_on_spool(options, &spools)?;
    let targets = Targets::of(options)?;
    let mut coverage = coverage::survey()?;
    coverage::require(&coverage)?;
    let mut command = match options.command.as_slice() {
        [] => None,
        words => Some(Command::fork(words)?),
    };
    catch_signals();
    end_with_parent(options);
    let mut storage = MaybeUninit::uninit();
    let mut open = RecorderSkelBuilder::default().open(&mut storage)?;
    for mut program in open.open_object_mut().progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        program.set_autoload(coverage.attached.contains(&name));
    }
    let rodata = open
        .maps
        .rodata_data
        .as_deref_mut()
        .context("no constants in the object")?;
    settings::apply(rodata, &spools, &targets, command.is_some())?;
    open.maps.rings.set_max_entries(rings::cpus()? + 1)?;
    let mut skel = open.load().context("Failed to load the BPF programs")?;
    let own = command.as_ref().map(|c| c.pid as u32);
    targets.name(&skel.maps.target_pids, own)?;
    record(
        &mut skel,
        options,
        &spools,
        &targets,
        &mut coverage,
        command.as_mut(),
    )
}

/// A recorder that writes to the spool it records would record itself for ever.
fn refuse_output_on_spool(options: &Options, spools: &[Spool]) -> Result<()> {
    let parent = match options.output.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => std::path::Path::new("."),
    };
    let holder = Spool::holding(parent)?;
    if spools.iter().any(|s| s.dev == holder.dev) {
        bail!(
            "{} lies on the spool itself: choose another -o",
            options.output.display()
        );
    }
    Ok(())
}

/// Opens a BPF iterator for reading.
fn iterator(program: &libbpf_rs::ProgramMut<'_>) -> Result<(Link, OwnedFd)> {
    use std::os::fd::{AsFd, AsRawFd};
    let link = program.attach().context("Failed to attach an iterator")?;
    // SAFETY: a live link of an iterator program.
    let fd = unsafe { libbpf_rs::libbpf_sys::bpf_iter_create(link.as_fd().as_raw_fd()) };
    if fd < 0 {
        bail!(
            "Failed to open an iterator: {}",
            std::io::Error::from_raw_os_error(-fd)
        );
    }
    // SAFETY: just created, owned by nobody else.
    Ok((link, unsafe { OwnedFd::from_raw_fd(fd) }))
}

fn record(
    skel: &mut RecorderSkel<'_>,
    options: &Options,
    spools: &[Spool],
    targets: &Targets,
    coverage: &mut Coverage,
    mut command: Option<&mut Command>,
) -> Result<()> {
    let start = host::clock_pair();
    let capture = RefCell::new(Capture::create(&options.output, start.0, start.1)?);
    let failure: RefCell<Option<anyhow::Error>> = RefCell::new(None);
    let mut meta = first_meta(options, spools, coverage)?;
    capture.borrow_mut().text(Kind::Meta, &meta.to_string())?;
    let made = rings::make(&skel.maps.rings, options.ring_mib)?;
    let (_watch, watched) = iterator(&skel.progs.watch_kernel_threads)?;
    store_tasks(&mut capture.borrow_mut(), &snapshot::read_all(watched)?)?;
    let links = coverage::attach(skel.object_mut(), coverage)?;
    arm(skel, targets)?;
    let (_files, open_files) = iterator(&skel.progs.dump_open_files)?;
    let (_last, last_words) = iterator(&skel.progs.dump_tasks)?;
    let attached_ns = host::clock(libc::CLOCK_MONOTONIC);

    let mut builder = RingBufferBuilder::new();
    for ring in &made {
        builder.add(ring, |bytes| {
            match drain::store(&mut capture.borrow_mut(), bytes) {
                Ok(()) => 0,
                Err(error) => {
                    *failure.borrow_mut() = Some(error);
                    -libc::EIO
                }
            }
        })?;
    }
    let ring = builder.build()?;
    let (send, found) = sync_channel(4096);
    let (walked, tree) = (spools.to_vec(), !options.no_tree);
    let snapshot = std::thread::spawn(move || snapshot::take(open_files, &walked, tree, &send));

    let variables = skel.maps.bss_data.take();
    let mut pump = Pump {
        ring: &ring,
        capture: &capture,
        budget: Budget::new(
            skel.object().progs(),
            variables.context("no variables in the object")?,
            options.max_overhead,
        )?,
        flushed: Instant::now(),
        cgroups: cgroups::Names::now()?,
    };
    pump.until_snapshot(&found)?;
    match snapshot.join() {
        Ok(taken) => taken.context("Failed to take the snapshot")?,
        Err(_) => bail!("the snapshot thread died"),
    }
    answer::say(options, &json!({"event": "ready"}))?;
    if let Some(command) = command.as_deref_mut() {
        command.release();
    }
    let status = pump.until_stopped(options, command)?;

    drop(links); // detach: from here on no call is counted any more
    let end = host::clock_pair();
    store_tasks(&mut capture.borrow_mut(), &snapshot::read_all(last_words)?)?;
    pump.drain()?;
    meta["cgroups"] = json!(pump.cgroups.by_id());
    if let Some(error) = failure.borrow_mut().take() {
        return Err(error);
    }
    pump.budget.tell(&mut meta);
    drop(ring);
    meta["tier"] = coverage.tier().into();
    meta["programs"] = coverage.to_json();
    meta["attached_mono_ns"] = attached_ns.into();
    meta["end_mono_ns"] = end.0.into();
    meta["end_real_ns"] = end.1.into();
    counters::tell(&skel.maps.counts, &mut meta)?;
    meta["recorder_cpu_ns"] = host::cpu_time().into();
    meta["command_status"] = json!(status.map(exit_code));
    finish(options, capture.into_inner(), &meta)
}

/// What is known before the first record; a killed recorder leaves at least this.
fn first_meta(options: &Options, spools: &[Spool], coverage: &Coverage) -> Result<Value> {
    let mut other_names = BTreeMap::new();
    for spool in spools {
        other_names.extend(aliases::of(spool)?);
    }
    let (kernel, arch) = host::kernel();
    Ok(json!({
        "kernel": kernel,
        "arch": arch,
        "aliases": other_names,
        "spools": spools.iter().map(Spool::to_json).collect::<Vec<_>>(),
        "cpus": std::thread::available_parallelism().map_or(0, |n| n.get()),
        "tier": coverage.tier(),
        "programs": coverage.to_json(),
        "tree": !options.no_tree,
        "filter": {"pids": options.pids, "cgroups": options.cgroups, "units": options.units,
                   "exes": options.exes, "comms": options.comms,
                   "command": !options.command.is_empty()},
    }))
}

/// From here on calls are noted; see `armed` in state.bpf.h.
fn arm(skel: &mut RecorderSkel<'_>, targets: &Targets) -> Result<()> {
    // Interrupts that began between the attaching of their two programs are counted for
    // ever: begin at zero, the programs never go below.
    let zeros = vec![vec![0; 8]; libbpf_rs::num_possible_cpus()?];
    skel.maps
        .irq_depth
        .update_percpu(&0u32.to_ne_bytes(), &zeros, MapFlags::ANY)?;
    // Again, for those forked since; their own children inherit.
    targets.name(&skel.maps.target_pids, None)?;
    let state = skel.maps.bss_data.as_deref_mut();
    state.context("no variables in the object")?.armed = true;
    Ok(())
}

fn finish(options: &Options, mut capture: Capture, meta: &Value) -> Result<()> {
    capture.flush()?;
    let names = symbols::resolve(capture.addresses())?;
    capture.text(Kind::Symbols, &names)?;
    capture.text(Kind::Meta, &meta.to_string())?;
    let bytes = capture.finish()?;
    answer::say(
        options,
        &json!({"event": "done", "bytes": bytes, "meta": meta}),
    )
}

fn store_tasks(capture: &mut Capture, bytes: &[u8]) -> Result<()> {
    for record in bytes.chunks_exact(size_of::<Task>()) {
        let task: Task = bytemuck::pod_read_unaligned(record);
        capture.push(Kind::Task, &task)?;
    }
    Ok(())
}

/// Moves records from the ring and the snapshot into the capture.
struct Pump<'a> {
    ring: &'a RingBuffer<'a>,
    capture: &'a RefCell<Capture>,
    budget: Budget<'a>,
    flushed: Instant,
    cgroups: cgroups::Names,
}

impl Pump<'_> {
    fn drain(&mut self) -> Result<()> {
        self.ring.consume().context("Failed to store records")?;
        self.budget.tick(&mut self.capture.borrow_mut())?;
        if self.flushed.elapsed() > FLUSH {
            self.flushed = Instant::now();
            self.cgroups.refresh();
            self.capture.borrow_mut().flush()?;
        }
        Ok(())
    }

    fn until_snapshot(&mut self, found: &Receiver<Found>) -> Result<()> {
        use std::sync::mpsc::RecvTimeoutError;
        host::come_first(); // not the thread that takes the snapshot
        loop {
            match found.recv_timeout(TICK) {
                Ok(item) => {
                    self.store_found(item)?;
                    for item in found.try_iter().take(4096) {
                        self.store_found(item)?;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            self.drain()?;
        }
    }

    fn store_found(&mut self, item: Found) -> Result<()> {
        let mut capture = self.capture.borrow_mut();
        match item {
            Found::Task(mut task, cwd, root, exe) => {
                task.exe = capture.string(&exe);
                task.path = capture.string(&cwd);
                task.root = capture.string(&root);
                capture.push(Kind::Task, &task)
            }
            Found::OpenFile(mut file, path) => {
                file.path = capture.string(&path);
                capture.push(Kind::OpenFile, &file)
            }
            Found::Name(mut name, path, target) => {
                name.path = capture.string(&path);
                name.target = capture.string(&target);
                capture.push(Kind::Tree, &name)
            }
        }
    }

    /// Wait status of the command, if there is one.
    fn until_stopped(
        &mut self,
        options: &Options,
        command: Option<&mut Command>,
    ) -> Result<Option<i32>> {
        let began = Instant::now();
        let deadline = options.duration.map(|s| began + Duration::from_secs_f64(s));
        let mut asked: Option<Instant> = None;
        loop {
            self.drain()?;
            if let Some(status) = command.as_ref().and_then(|c| c.ended()) {
                return Ok(Some(status));
            }
            let stop =
                STOP.load(Ordering::Relaxed) || deadline.is_some_and(|d| Instant::now() >= d);
            match (&command, asked) {
                (None, _) if stop => return Ok(None),
                (Some(command), None) if stop => {
                    command.terminate();
                    asked = Some(Instant::now());
                }
                (Some(_), Some(since)) if since.elapsed() > GRACE => return Ok(None),
                _ => {}
            }
            std::thread::sleep(TICK);
        }
    }
}
