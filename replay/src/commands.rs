//! The verbs of the command line.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use spoolscope_traces::error_code::Code;
use spoolscope_traces::linux;
use spoolscope_traces::records::{
    self, Outcome, PlanOp, VERDICT_DIVERGED, VERDICT_PENDING, VERDICT_SAME, VERDICT_SKIPPED,
};
use spoolscope_traces::text::shown_json;
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::mem::ManuallyDrop;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::slice;

use crate::age::{self, Age};
use crate::cli::{self, Cli, Order, Verb};
use crate::derived;
use crate::engine::cpus::Meter;
use crate::engine::descendants::Descendants;
use crate::engine::outcomes::Outcomes;
use crate::engine::pace::Pace;
use crate::engine::schedule::Schedule;
use crate::engine::{self, Options, Summary};
use crate::explain;
use crate::fixture;
use crate::followed;
use crate::memory::{self, shared};
use crate::model::expect::listings::{Judged, Listings};
use crate::model::order::forks;
use crate::model::order::moments;
use crate::pattern::{self, Content, Pattern};
use crate::plan::Plan;
use crate::planned::{self, Edge, Planned, Start, Walked};
use crate::room;
use crate::sandbox::{self, Confinement};
use crate::semantics::{self, Kind};
use crate::verify;

/// Exit code of a replay that was interrupted.
const INTERRUPTED: u8 = 130;

pub fn run(cli: Cli) -> Result<u8> {
    let content = cli.content;
    match cli.verb {
        Verb::Layout => print(&layout()),
        Verb::Order { plan } => order(&plan),
        Verb::Explain {
            plan: file,
            order,
            ops,
        } => {
            let plan = open(&file)?;
            let mut planned = Planned::of(&plan, &file, true)?;
            print(&explain::explain(&plan, &mut planned, order, &ops)?)
        }
        Verb::Derive { plan, asked } => {
            near(&plan);
            print(&derived::replace(&plan, &asked)?)
        }
        Verb::Follow { plan, outcomes } => print(&followed::divergences(&open(&plan)?, &outcomes)?),
        Verb::Fixture {
            plan: file,
            target,
            age,
        } => {
            sandbox::require_empty(&target)?;
            let plan = open(&file)?;
            print(&prepare(
                &plan,
                &Planned::of(&plan, &file, false)?.start()?,
                &sandbox::enter(&target)?,
                &Pattern::new(1 << 20, content)?,
                age,
            )?)
        }
        Verb::Run(arguments) => execute(&arguments, content),
        Verb::Verify { plan: file, target } => {
            let plan = open(&file)?;
            let tree = Planned::of(&plan, &file, false)?.end()?;
            let confinement = sandbox::enter(&target)?;
            let pattern = Pattern::new(1 << 20, content)?;
            print(&verify::compare(&tree, &confinement, &pattern).json())
        }
    }
}

/// Opens a plan; allocations as long as the plan will lie in files beside it.
fn open(plan: &Path) -> Result<Plan> {
    near(plan);
    Plan::open(plan)
}

/// Makes allocations as long as the plan lie in files beside it.
fn near(plan: &Path) {
    if let Ok(file) = plan.canonicalize() {
        memory::lie_in(file.parent().unwrap_or(Path::new("/")));
    }
}

/// Walks over a plan, keeps its order beside it, and prints what it holds.
fn order(file: &Path) -> Result<u8> {
    let (plan, out) = (open(file)?, planned::beside(file));
    let written = planned::write(&plan, create(&out)?);
    let walked = written.with_context(|| format!("cannot write {}", out.display()))?;
    // The process ends after this: freeing memory piece by piece would only take time.
    print(&facts(&plan, &ManuallyDrop::new(walked)))
}

fn print(value: &Value) -> Result<u8> {
    println!("{}", shown_json(&value.to_string()));
    Ok(0)
}

fn layout() -> Value {
    let member = |(name, offset, size): &records::Member| json!({"name": name, "offset": offset, "size": size});
    let records = records::LAYOUTS.iter().map(|(name, size, members)| {
        let members: Vec<Value> = members.iter().map(member).collect();
        (name.to_string(), json!({"size": size, "members": members}))
    });
    let numbers = |all: &[(&str, u64)]| {
        Value::Object(
            all.iter()
                .map(|(name, n)| (name.to_string(), json!(n)))
                .collect(),
        )
    };
    let codes = Code::ALL.map(|(code, name)| (name, code as u64));
    json!({
        "records": Value::Object(records.collect()),
        "constants": numbers(records::CONSTANTS),
        "linux": numbers(linux::ALL),
        "failures": numbers(&codes),
        "paces": [cli::PACES.start(), cli::PACES.end()],
    })
}

fn facts(plan: &Plan, walked: &Walked) -> Value {
    let (rules, start) = (walked.rules(), ManuallyDrop::new(walked.start()));
    json!({
        "ops": plan.ops().len(),
        "threads": plan.threads().len(),
        "entries": plan.entries().len(),
        "open_files": plan.fds().len(),
        "strings": plan.n_strings(),
        "duration_ns": plan.duration_ns(),
        "edges": rules.edges.len(),
        "descriptors_passed": rules.passes.len(),
        "unexplained": rules.unexplained.len(),
        "unexplained_examples": examples(plan, &rules.unexplained),
        "unsupported": plan.unsupported().into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        "fixture_names": start.tree.names.len(),
        "fixture_bytes": start.tree.bytes(),
        "peak_bytes": peak_bytes(plan, &start),
    })
}

fn examples(plan: &Plan, unexplained: &[u32]) -> Vec<Value> {
    let describe = |at: &u32| {
        let op: &PlanOp = &plan.ops()[*at as usize];
        json!({
            "op": at,
            "call": semantics::name(op),
            "path": String::from_utf8_lossy(plan.string(op.path)),
            "ret": op.ret,
        })
    };
    unexplained.iter().take(20).map(describe).collect()
}

/// Returns the most bytes that the files may have at once: those at the start, and what calls add.
fn peak_bytes(plan: &Plan, start: &Start) -> i64 {
    let writes = |kind| semantics::is_copy(kind) || matches!(kind, Kind::Fallocate | Kind::Write);
    let beyond = plan.of_kind(writes).map(|(_, op)| beyond_record(op));
    let known = start.tree.bytes().saturating_add(start.grows);
    beyond.fold(known, i64::saturating_add)
}

/// Returns bytes that a call may write here, but that no recorded file size includes.
fn beyond_record(op: &PlanOp) -> i64 {
    match semantics::kind(op) {
        // The recorded call failed, or wrote less: here it may succeed.
        Kind::Fallocate if semantics::may_preallocate(op) => op.size.max(0),
        Kind::Write if op.ret < 0 && is_left_out(op) => 0,
        Kind::Write => (op.size.min(pattern::LONGEST) - op.ret.max(0)).max(0),
        Kind::Sendfile | Kind::Splice if semantics::is_outside(op) => op.ret.max(0),
        _ => 0,
    }
}

fn is_left_out(op: &PlanOp) -> bool {
    semantics::machine_lacked(op).is_some() || semantics::had_bad_address(op)
}

fn prepare(
    plan: &Plan,
    start: &Start,
    confinement: &Confinement,
    pattern: &Pattern,
    age: Option<Age>,
) -> Result<Value> {
    let tree = &start.tree;
    let mut aged = age.map(|age| age::churn(age, confinement)).transpose()?;
    room::check(
        confinement,
        peak_bytes(plan, start).saturating_add(tree.xattr_bytes()),
        tree.names.len(),
    )?;
    let built = fixture::build(tree, confinement, pattern, age)?;
    if let Some(aged) = &mut aged {
        aged["names"] = json!(built.names_aged);
        aged["fixture"] = json!(fixture::pieces(tree, confinement)?);
    }
    let mut made = json!(built);
    made["age"] = json!(aged);
    made["chrooted"] = json!(confinement.chrooted);
    made["owners"] = json!(confinement.owners);
    Ok(made)
}

fn execute(arguments: &cli::Run, content: Content) -> Result<u8> {
    engine::end_with_parent();
    if !arguments.prepared {
        sandbox::require_empty(&arguments.target)?;
    }
    let plan: &'static Plan = Box::leak(Box::new(open(&arguments.plan)?.shared()?));
    let mut planned = Planned::of(plan, &arguments.plan, false)?;
    let rules = planned.take_rules()?;
    let waits = waits(plan, &rules.edges, arguments.order, arguments.pace);
    let rivals = match arguments.order {
        Order::None => &[][..],
        Order::Resource | Order::Recorded => &rules.rivals,
    };
    let mut schedule = Schedule::new(plan, &waits, rivals, arguments.pace, arguments.noop)?;
    schedule.unordered = matches!(arguments.order, Order::None);
    schedule.realtime = arguments.realtime;
    let edges = schedule.n_edges();
    let sink = engine::open_sink();
    // Opened now: inside the target these paths do not exist.
    let output = arguments.outcomes.as_deref().map(create).transpose()?;
    let progress = arguments.progress.as_deref().map(create).transpose()?;
    let summary_file = arguments.summary.as_deref().map(create).transpose()?;
    let (cpus, tasks) = (Meter::open(), Descendants::open());
    let confinement = sandbox::enter(&arguments.target)?;
    if !arguments.prepared {
        prepare(
            plan,
            &planned.start()?,
            &confinement,
            &Pattern::new(1 << 20, content)?,
            None,
        )?;
    }
    let (passes, listings) = (rules.passes, rules.listings);
    let listings: &'static Listings = Box::leak(Box::new(shared(listings)?));
    // A fork copies the page tables of what is left in memory, and tasks that allocate would copy
    // the pages through which the allocator finds room.
    drop((planned, waits, rules.edges, rules.rivals));
    memory::stay_in_memory();
    shared::populate();
    let mut how = json!({
        "descriptors_passed": passes.len(),
        "edges": edges,
        "owners": confinement.owners,
        "chrooted": confinement.chrooted,
    });
    let options = Options {
        stall_ns: (arguments.stall * 1e9) as i64,
        progress,
        cpus,
        tasks,
        content,
        listings,
        passes,
    };
    let (summary, outcomes) = engine::run(schedule, confinement, sink, options)?;
    let tally = write_outcomes(plan, outcomes, listings, output)?;
    how["listings"] = compared_listings(listings, &tally);
    let mut text = summed(&summary, &tally);
    if let (Some(text), Value::Object(how)) = (text.as_object_mut(), how) {
        text.extend(how);
    }
    match summary_file {
        Some(mut file) => writeln!(file, "{text}").context("cannot write the summary")?,
        None => println!("{}", shown_json(&text.to_string())),
    }
    if let Some(failed) = summary.failed {
        bail!(failed);
    }
    Ok(match () {
        () if summary.interrupted => INTERRUPTED,
        () if summary.crashed > 0 => 1,
        () => 0,
    })
}

/// Moves listings to memory that a fork does not copy.
fn shared(listings: Listings) -> Result<Listings> {
    Ok(Listings {
        known: Cow::Borrowed(shared::copy(&listings.known)?),
        calls: Cow::Borrowed(shared::copy(&listings.calls)?),
        ..listings
    })
}

/// Writes the outcomes in the order of the plan, and counts them.
fn write_outcomes(
    plan: &Plan,
    outcomes: &Outcomes,
    listings: &Listings,
    output: Option<File>,
) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut output = output.map(BufWriter::new);
    let failure = "cannot write the outcomes";
    outcomes.in_order(plan, |op, outcome| {
        tally.add(outcome, listings.judged(op, outcome));
        match &mut output {
            Some(file) => file.write_all(records::as_bytes(slice::from_ref(outcome))),
            None => Ok(()),
        }
        .context(failure)
    })?;
    output
        .map_or(Ok(()), |mut file| file.flush())
        .context(failure)?;
    Ok(tally)
}

/// Counts of outcomes and listings.
#[derive(Default)]
struct Tally {
    verdicts: [usize; 4],
    makespan_ns: i64,
    same_names: usize,
    other_names: usize,
    not_ended: usize,
}

impl Tally {
    fn add(&mut self, outcome: &Outcome, listing: Option<Judged>) {
        self.verdicts[usize::from(outcome.verdict).min(3)] += 1;
        self.makespan_ns = self.makespan_ns.max(outcome.end_ns);
        match listing {
            Some(Judged::Same) => self.same_names += 1,
            Some(Judged::OtherNames) => self.other_names += 1,
            Some(Judged::NotEnded) => self.not_ended += 1,
            None => {}
        }
    }
}

fn summed(summary: &Summary, tally: &Tally) -> Value {
    let counts = tally.verdicts;
    json!({
        "ops": counts.iter().sum::<usize>(),
        "same": counts[usize::from(VERDICT_SAME)],
        "diverged": counts[usize::from(VERDICT_DIVERGED)],
        "skipped": counts[usize::from(VERDICT_SKIPPED)],
        "pending": counts[usize::from(VERDICT_PENDING)],
        "start_epoch_ns": summary.start_epoch_ns,
        "makespan_ns": tally.makespan_ns,
        "cpu_idle": summary.cpus.map(|shares| shares.idle),
        "cpu_steal": summary.cpus.map(|shares| shares.steal),
        "orders_given_up": summary.given_up,
        "locks_given_back": summary.given_back,
        "tasks_crashed": summary.crashed,
        "interrupted": summary.interrupted,
        "failed": summary.failed,
    })
}

/// Counts listings that were compared, that showed other names, and that were not, by reason.
fn compared_listings(listings: &Listings, tally: &Tally) -> Value {
    json!({
        "compared": tally.same_names + tally.other_names,
        "other_names": tally.other_names,
        "not_compared": {
            "ended elsewhere": tally.not_ended,
            "names came or went meanwhile": listings.overlapping,
            "read in part": listings.partial,
            "directory not known": listings.unknown,
        },
    })
}

/// Returns the edges of all operations: (operation, thread, operations it must have finished).
fn waits(plan: &Plan, edges: &[Edge], order: Order, pace: Pace) -> Vec<Edge> {
    match (order, pace) {
        (Order::None, _) => Vec::new(),
        (Order::Resource, Pace::AsFastAsPossible) => [edges, &forks::edges(plan)].concat(),
        (Order::Resource, _) => edges.to_vec(),
        (Order::Recorded, _) => [edges, &moments::edges(plan)].concat(),
    }
}

/// Creates or empties a file; never follows a symbolic link, nor waits for a pipe.
fn create(path: &Path) -> Result<File> {
    let mut how = File::options();
    how.write(true).create(true).truncate(true);
    how.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    how.open(path)
        .with_context(|| format!("cannot create {}", path.display()))
}
