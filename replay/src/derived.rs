//! A plan derived from another one: without some calls, a part in time, chosen calls, more users; any
//! of these, in this order.

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use spoolscope_traces::calls;
use spoolscope_traces::records::{PLAN_FAULT, PLAN_LEFT_OUT};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::assemble::Draft;
use crate::cut;
use crate::only::{self, by_words};
use crate::plan::Plan;
use crate::scale;
use crate::semantics::{self, Kind};
use crate::skip::LeftOut;

/// The part of a recording that is asked for, and how many users it has.
#[derive(Debug, clap::Args)]
pub struct Asked {
    #[command(flatten)]
    left_out: LeftOut,
    /// Keep what takes effect from this moment of the plan on.
    #[arg(long)]
    from_ns: Option<i64>,
    /// Keep what takes effect before this moment of the plan.
    #[arg(long)]
    to_ns: Option<i64>,
    /// Keep calls of a process id or name, or in a directory, and those they depend on.
    #[arg(long)]
    only: Vec<String>,
    #[command(flatten)]
    copies: scale::Copies,
}

/// Replaces a plan by the one that is asked for; returns facts of each step, and what it holds.
pub fn replace(file: &Path, asked: &Asked) -> Result<Value> {
    let mut steps = Steps {
        plan: Plan::open(file)?,
        file,
        facts: Map::new(),
    };
    if !asked.left_out.is_nothing() {
        steps.write(|plan, file| asked.left_out.write_rest(plan, file))?;
    }
    if asked.from_ns.is_some() || asked.to_ns.is_some() {
        let (from_ns, to_ns) = (asked.from_ns.unwrap_or(0), asked.to_ns);
        let made = cut::cut(&steps.plan, from_ns.max(0), to_ns.unwrap_or(i64::MAX));
        steps.take("cut", made)?;
    }
    if !asked.only.is_empty() {
        let made = only::only(&steps.plan, &by_words::chosen(&steps.plan, &asked.only)?);
        steps.take("only", made)?;
    }
    if let Some(made) = asked.copies.of(&steps.plan)? {
        steps.take("scale", made)?;
    }
    let counts = counts(&steps.plan);
    steps.facts.insert("counts".to_owned(), counts);
    Ok(Value::Object(steps.facts))
}

/// The plan so far, and what was said of it.
struct Steps<'a> {
    plan: Plan,
    file: &'a Path,
    facts: Map<String, Value>,
}

impl Steps<'_> {
    fn take(&mut self, name: &str, (draft, facts): (Draft, Value)) -> Result<()> {
        self.facts.insert(name.to_owned(), facts);
        self.write(|_, file| Ok(draft.write(file)?))
    }

    /// Writes the next plan in place of the one before.
    fn write(
        &mut self,
        next: impl FnOnce(&Plan, &mut BufWriter<File>) -> Result<()>,
    ) -> Result<()> {
        let mut new = self.file.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        let _left = fs::remove_file(&new); // by a run that was killed
        let write = || {
            let mut file = BufWriter::new(File::create_new(&new)?);
            next(&self.plan, &mut file)?;
            file.flush()?;
            Ok(fs::rename(&new, self.file)?)
        };
        let written: Result<()> = write();
        if written.is_err() {
            let _gone = fs::remove_file(&new);
        }
        written.with_context(|| format!("cannot write {}", self.file.display()))?;
        self.plan = Plan::open(self.file)?;
        Ok(())
    }
}

/// Counts recorded calls, operations, threads, page faults, bytes written, and calls left out by
/// name, the most frequent first.
fn counts(plan: &Plan) -> Value {
    let mut left_out = BTreeMap::new();
    for op in plan.ops().iter().filter(|op| op.op == PLAN_LEFT_OUT) {
        let call = u16::try_from(op.arg).ok().and_then(calls::by_id);
        if let Some(call) = call {
            *left_out.entry(call.id).or_insert(0_u64) += 1;
        }
    }
    let mut left_out: Vec<(u16, u64)> = left_out.into_iter().collect();
    left_out.sort_by_key(|(_, count)| Reverse(*count));
    let left_out = left_out.into_iter();
    let named = left_out.filter_map(|(id, n)| Some((calls::by_id(id)?.name, n)));
    let ops = plan.ops().iter();
    json!({
        "calls": ops.clone().filter(|op| op.call != u64::MAX).count(),
        "ops": plan.ops().len(),
        "threads": plan.threads().len(),
        "faults": ops.filter(|op| op.op == PLAN_FAULT).count(),
        "written_bytes": written_bytes(plan),
        "left_out": named.collect::<Vec<_>>(),
    })
}

/// Returns how many bytes calls wrote: copies within the spool move data that was there.
fn written_bytes(plan: &Plan) -> i64 {
    let writes = plan.of_kind(|kind| kind == Kind::Write || semantics::is_copy(kind));
    let writes =
        writes.filter(|(_, op)| semantics::kind(op) == Kind::Write || semantics::is_outside(op));
    writes.fold(0, |sum, (_, op)| i64::saturating_add(sum, op.ret.max(0)))
}
