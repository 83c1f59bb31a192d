//! One recording, from attach to the closed file.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapMut, OpenObject, RingBufferBuilder};
use serde_json::{Value, json};
use spoolscope_traces::error_code::{Code, Failure};
use spoolscope_traces::records::Task;
use spoolscope_traces::segment::Kind;

use crate::budget::Budget;
use crate::cli::{Options, Snapshot};
use crate::command::{Command, exit_code};
use crate::coverage::{self, Coverage};
use crate::drain::Sinks;
use crate::host::{self, Spool};
use crate::mounted::Watch;
use crate::mounts::{self, Mounts};
use crate::probes::Probes;
use crate::pump::{End, Pump};
use crate::rollup::{self, Rollup};
use crate::rotation::{Rotation, merged};
use crate::segments::Segments;
use crate::skel::{OpenRecorderSkel, RecorderSkel, RecorderSkelBuilder};
use crate::statistics::Switch;
use crate::targets::Targets;
use crate::tops::Tops;
use crate::touched::Touched;
use crate::views::{ViewMaps, Views};
use crate::ways::Ways;
use crate::{
    aliases, answer, directory, iterators, privileges, rings, sampling, settings, signals, workers,
};

/// Longer than most calls on names take.
const SETTLE: Duration = Duration::from_millis(50);

/// Record as the options ask; print one JSON line when ready and one at the end.
pub fn run(options: &Options) -> Result<()> {
    signals::end_with_parent(options)?;
    let spools: Vec<Spool> = options
        .spools
        .iter()
        .map(|p| Spool::at(p))
        .collect::<Result<_>>()?;
    refuse_output_on_spool(options, &spools)?;
    let targets = Targets::of(options)?;
    let mut coverage = coverage::placed()?;
    coverage::require(&coverage)?;
    if options.only_sums() {
        coverage.keep(rollup::PROGRAMS);
    }
    let mut command = match options.command.as_slice() {
        [] => None,
        words => Some(Command::fork(words)?),
    };
    signals::catch();
    let tops = Tops::open(&spools)?;
    let ways = Ways::own(&spools)?;
    let fit = |open: &mut OpenRecorderSkel<'_>| {
        let rodata = open.maps.rodata_data.as_deref_mut();
        let rodata = rodata.context("no constants in the object")?;
        settings::apply(rodata, &spools, &tops, &ways, &targets, options)?;
        open.maps.ways.set_max_entries(ways.room())?;
        open.maps.places.set_max_entries(ways.n_places())?;
        open.maps.rings.set_max_entries(rings::cpus()? + 1)?;
        if options.rollup.is_some() {
            let maps = &mut open.maps;
            rollup::sum_tables::make_room(
                [&mut maps.sums0, &mut maps.sums1],
                [&mut maps.commits0, &mut maps.commits1],
                [&mut maps.directories0, &mut maps.directories1],
                [&mut maps.stack_causes, &mut maps.directories_reported],
            )?;
        }
        anyhow::Ok(open.maps.turns.set_max_entries(rings::cpus()?)?)
    };
    let (mut storage, mut another) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let mut skel = match load(&mut storage, &coverage, fit) {
        Ok(skel) => skel,
        Err(_) => {
            coverage = coverage::survey()?;
            coverage::require(&coverage)?;
            if options.only_sums() {
                coverage.keep(rollup::PROGRAMS);
            }
            load(&mut another, &coverage, fit)?
        }
    };
    let own = command.as_ref().map(|c| c.pid as u32);
    targets.name(&skel.maps.target_pids, own)?;
    ways.enter(&skel.maps.ways, &skel.maps.places)?;
    let known = || {
        skel.maps
            .bss_data
            .as_ref()
            .map_or(Vec::new(), |data| data.tops.to_vec())
    };
    tops.find(&skel.progs.find_tops, known)?;
    workers::name(&skel.maps.work_functions, &spools)?;
    record(
        &mut skel,
        options,
        &spools,
        &targets,
        &ways,
        &mut coverage,
        command.as_mut(),
    )
}

/// Load those programs, once `fit` has adapted the object to this recording.
fn load<'o>(
    storage: &'o mut MaybeUninit<OpenObject>,
    coverage: &Coverage,
    fit: impl Fn(&mut OpenRecorderSkel<'_>) -> Result<()>,
) -> Result<RecorderSkel<'o>> {
    let mut open = RecorderSkelBuilder::default().open(storage)?;
    for mut program in open.open_object_mut().progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        program.set_autoload(coverage.attached.contains(&name));
    }
    fit(&mut open)?;
    open.load().context("Failed to load the BPF programs")
}

/// Fail if the output lies on the spool: the recorder would record its own writes without end.
fn refuse_output_on_spool(options: &Options, spools: &[Spool]) -> Result<()> {
    let parent = match options.output.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => std::path::Path::new("."),
    };
    let parent = parent.canonicalize()?;
    let mount = host::mount_of(&parent)?;
    let place = mounts::join(&mount.root, parent.strip_prefix(&mount.mount)?);
    if spools.iter().any(|spool| spool.holds(mount.dev, &place)) {
        bail!(Failure::new(
            Code::Failed,
            format!("{} lies on the spool itself", options.output.display()),
            "choose another -o",
        ));
    }
    Ok(())
}

fn record(
    skel: &mut RecorderSkel<'_>,
    options: &Options,
    spools: &[Spool],
    targets: &Targets,
    ways: &Ways,
    coverage: &mut Coverage,
    command: Option<&mut Command>,
) -> Result<()> {
    let statistics = Switch::fork()?;
    let mut first = first_meta(options, spools, coverage)?;
    answer::open(options)?;
    let segments = RefCell::new(first_segment(options, spools)?);
    let failure: RefCell<Option<anyhow::Error>> = RefCell::new(None);
    say_first(&segments, &first)?;
    let made = rings::make(&skel.maps.rings, options.ring_mib)?;
    store_tasks(&segments, &watched(skel, spools)?)?;
    let mut links = coverage::attach(skel.object_mut(), coverage)?;
    links.extend(sampled(skel, options, coverage));
    let maps = ViewMaps::of(&skel.maps.views, &skel.maps.views_asked, &skel.maps.ways);
    let views = RefCell::new(Views::of_now(&maps, spools, ways)?);
    first["mounted_below"] = views.borrow().below.as_json();
    // Again, for processes forked since; the children of those already named inherit.
    targets.name(&skel.maps.target_pids, None)?;
    let variables = skel
        .maps
        .bss_data
        .take()
        .context("no variables in the object")?;
    let (border, rows) = (&mut variables.border, &mut variables.n_sums);
    let rollup = RefCell::new(Rollup::begin(options, &skel.maps, border, rows, spools)?);
    arm(&skel.maps.irq_depth, &mut variables.armed, &rollup)?;
    let probes = Probes::attach(&skel.progs, &skel.maps)?;
    let sinks = Sinks(&segments, &views, &rollup);

    let mut builder = RingBufferBuilder::new();
    for ring in &made {
        builder.add(ring, |bytes| {
            let stored = sinks.store(bytes);
            stored.map_or_else(|error| failed(&failure, error), |()| 0)
        })?;
    }
    let ring = builder.build()?;
    let budget = Budget::new(
        skel.object().progs(),
        statistics,
        &mut variables.shed,
        options.max_overhead,
    )?;
    let watch = Watch::new(spools)?;
    let mut pump = Pump::new(&ring, &segments, &rollup, budget, watch, options)?;
    answer::say(options, &json!({"event": "begun"}))?;
    take_snapshot(&mut pump, &probes, spools, &mut first)?;
    first["tier"] = coverage.tier().into();
    first["programs"] = coverage.to_json();
    say_first(&segments, &first)?;
    let mut rotation = Rotation::new(options, spools, &segments, &probes, first.clone());
    let (end, status) = if pump.is_over() {
        (pump.asked(), None) // the command, too, has not begun
    } else {
        privileges::drop(options)?;
        segments.borrow_mut().begin_listing();
        until_end(options, &mut pump, &mut rotation, command)?
    };

    drop(links); // detach: from here on no call is counted any more
    let clocks = host::clock_pair();
    let under_way = probes.listed_under_way();
    pump.drain()?;
    pump.end_rollup(clocks.0 as u64)?;
    store_tasks(&segments, &probes.living()?)?;
    store_tasks(&segments, &probes.unreported_exits()?)?;
    rotation.end(&mut pump.cgroups)?;
    if let Some(error) = failure.borrow_mut().take() {
        return Err(error);
    }
    let known = json!({"ended": end.name(), "command_status": status.map(exit_code)});
    let mut meta = merged(&merged(&first, &probes.end_meta(clocks)?), &known);
    meta["under_way"] = under_way;
    pump.tell(&mut meta);
    rotation.finish(&meta)
}

/// Let the command begin, and continue until the end; return the reason of the end, and the wait
/// status of the command.
fn until_end(
    options: &Options,
    pump: &mut Pump<'_, '_>,
    rotation: &mut Rotation<'_>,
    mut command: Option<&mut Command>,
) -> Result<(End, Option<i32>)> {
    answer::say(options, &json!({"event": "ready"}))?;
    if let Some(command) = command.as_deref_mut() {
        command.release();
    }
    let (end, status) = pump.until_stopped(rotation, command)?;
    pump.until_listed(end)?;
    Ok((end, status))
}

/// Return the kernel threads whose switches are recorded. The iterator also learns the spools'
/// superblocks; for that their root directories are held open.
fn watched(skel: &RecorderSkel<'_>, spools: &[Spool]) -> Result<Vec<Task>> {
    let held: Vec<_> = spools.iter().map(|s| directory::hold(&s.mount)).collect();
    let watched = iterators::tasks(&iterators::attach(&skel.progs.watch_kernel_threads)?);
    drop(held);
    watched
}

fn say_first(segments: &RefCell<Segments>, meta: &Value) -> Result<()> {
    let mut segments = segments.borrow_mut();
    segments.current().text(Kind::Meta, &meta.to_string())
}

fn first_segment(options: &Options, spools: &[Spool]) -> Result<Segments> {
    let mut segments = Segments::create(options)?;
    if options.snapshot == Snapshot::Touched {
        let rate = options.snapshot_rate;
        segments.touched = Some(Touched::new(spools, &aliases::of_all(spools)?, rate));
    }
    Ok(segments)
}

/// Take the snapshot; note in `first` if it is complete, and how many bytes were read for it.
fn take_snapshot(
    pump: &mut Pump<'_, '_>,
    probes: &Probes<'_>,
    spools: &[Spool],
    first: &mut Value,
) -> Result<()> {
    let before = host::bytes_read();
    first["snapshot_whole"] = pump.until_snapshot(probes, spools)?.into();
    let read = host::bytes_read().zip(before);
    first["snapshot_read_bytes"] = json!(read.map(|(now, then)| now - then));
    Ok(())
}

/// Return the meta data known before the first record; a killed recorder leaves at least these.
fn first_meta(options: &Options, spools: &[Spool], coverage: &Coverage) -> Result<Value> {
    let (kernel, arch) = host::kernel();
    let mut aliases = aliases::of_all(spools)?;
    // JSON has no other names.
    aliases.retain(|name, place| name.to_str().and(place.to_str()).is_some());
    let above = aliases::above(
        spools
            .iter()
            .map(|spool| &spool.mount)
            .chain(aliases.keys()),
        &Mounts::own().context("Failed to read mounts")?,
    );
    Ok(json!({
        "kernel": kernel,
        "arch": arch,
        "aliases": aliases,
        "above": above,
        "spools": spools.iter().map(Spool::to_json).collect::<Vec<_>>(),
        "cpus": std::thread::available_parallelism().map_or(0, |n| n.get()),
        "tier": coverage.tier(),
        "programs": coverage.to_json(),
        "sample_hz": options.sample_hz,
        "tree": options.snapshot != Snapshot::None,
        "snapshot": options.snapshot.name(),
        "snapshot_whole": false, // until it is
        "filter": {"pids": options.pids, "cgroups": options.cgroups, "units": options.units,
                   "exes": options.exes, "comms": options.comms,
                   "command": !options.command.is_empty()},
    }))
}

/// Attach the sampling program; if that fails, the recording goes on without samples.
fn sampled(
    skel: &RecorderSkel<'_>,
    options: &Options,
    coverage: &mut Coverage,
) -> Vec<libbpf_rs::Link> {
    if options.sample_hz == 0 || coverage.missing.contains_key("on_sample") {
        return Vec::new();
    }
    sampling::attach(&skel.progs.on_sample, options.sample_hz).unwrap_or_else(|error| {
        coverage.cannot("on_sample", &format!("{error:#}"));
        Vec::new()
    })
}

/// End the reading of rings; the error is returned when the recording has ended.
fn failed(failure: &RefCell<Option<anyhow::Error>>, error: anyhow::Error) -> i32 {
    *failure.borrow_mut() = Some(error);
    -libc::EIO
}

/// Begin to note calls; see `armed` in state.bpf.h.
fn arm(
    irq_depth: &MapMut<'_>,
    armed: &mut bool,
    rollup: &RefCell<Option<Rollup<'_>>>,
) -> Result<()> {
    // An interrupt that began between the attachments of the two programs would stay counted for
    // ever. So begin at zero; the programs never count below.
    let zeros = vec![vec![0; 8]; libbpf_rs::num_possible_cpus()?];
    irq_depth.update_percpu(&0u32.to_ne_bytes(), &zeros, MapFlags::ANY)?;
    *armed = true;
    if let Some(rollup) = rollup.borrow_mut().as_mut() {
        rollup.armed();
    }
    // A call under way at this moment is not seen: it should end before the snapshot begins.
    std::thread::sleep(SETTLE);
    Ok(())
}

fn store_tasks(segments: &RefCell<Segments>, tasks: &[Task]) -> Result<()> {
    let mut segments = segments.borrow_mut();
    tasks
        .iter()
        .try_for_each(|task| segments.push_task(*task, &[]))
}
