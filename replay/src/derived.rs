//! A plan derived from another one: a part in time, chosen calls, more users; any of these, in this
//! order.

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use crate::assemble::Draft;
use crate::cut;
use crate::only::{self, by_words};
use crate::plan::Plan;
use crate::scale;

/// The part of a recording that is asked for, and how many users it has.
#[derive(Debug, clap::Args)]
pub struct Asked {
    /// Keep what takes effect from this moment of the plan on.
    #[arg(long)]
    pub from_ns: Option<i64>,
    /// Keep what takes effect before this moment of the plan.
    #[arg(long)]
    pub to_ns: Option<i64>,
    /// Keep calls of a process id or name, or in a directory, and those they depend on.
    #[arg(long)]
    pub only: Vec<String>,
    /// A file with the directories that belong to one user each, separated by NUL.
    #[arg(long)]
    pub users: Option<PathBuf>,
    /// How long after the recording a copy of all users begins; one for each copy.
    #[arg(long = "phase-ns")]
    pub phases_ns: Vec<i64>,
}

/// Replaces a plan by the one that is asked for; returns facts of each step.
pub fn replace(file: &Path, asked: &Asked) -> Result<Value> {
    let mut steps = Steps {
        plan: Plan::open(file)?,
        file,
        facts: Map::new(),
    };
    if asked.from_ns.is_some() || asked.to_ns.is_some() {
        let (from_ns, to_ns) = (asked.from_ns.unwrap_or(0), asked.to_ns);
        let made = cut::cut(&steps.plan, from_ns.max(0), to_ns.unwrap_or(i64::MAX));
        steps.take("cut", made)?;
    }
    if !asked.only.is_empty() {
        match by_words::chosen(&steps.plan, &asked.only) {
            Ok(flags) => {
                let made = only::only(&steps.plan, &flags);
                steps.take("only", made)?;
            }
            Err(word) => {
                let known = by_words::processes(&steps.plan);
                return Ok(json!({"nothing_of": word, "processes": known}));
            }
        }
    }
    if let Some(users) = &asked.users {
        let users = fs::read(users)?;
        let users = users.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        let made = scale::scale(&steps.plan, &users, &asked.phases_ns)?;
        steps.take("scale", made)?;
    }
    Ok(Value::Object(steps.facts))
}

/// The plan so far, and what was said of it.
struct Steps<'a> {
    plan: Plan,
    file: &'a Path,
    facts: Map<String, Value>,
}

impl Steps<'_> {
    /// Writes the next plan in place of the one before.
    fn take(&mut self, name: &str, (draft, facts): (Draft, Value)) -> Result<()> {
        let mut new = self.file.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        let shown = || format!("cannot write {}", self.file.display());
        let _left = fs::remove_file(&new); // by a run that was killed
        let written = File::create_new(&new)
            .and_then(|file| draft.write(&mut BufWriter::new(file)))
            .and_then(|()| fs::rename(&new, self.file));
        if written.is_err() {
            let _gone = fs::remove_file(&new);
        }
        written.with_context(shown)?;
        self.plan = Plan::open(self.file)?;
        self.facts.insert(name.to_owned(), facts);
        Ok(())
    }
}
