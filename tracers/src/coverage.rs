//! The programs that load on this kernel, found by trying, never by version.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::mem::MaybeUninit;

use anyhow::{Context, Result, bail};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, Object, OpenObject};
use serde_json::{Value, json};
use spoolscope_traces::error_code::{Code, Failure};
use spoolscope_traces::text::shown_json;

use crate::refusal;
use crate::skel::{OpenRecorderSkel, RecorderSkelBuilder};

/// Programs without which nothing useful can be recorded.
const REQUIRED: &[&str] = &[
    "on_enter",
    "on_exit",
    "on_fork",
    "on_exec",
    "on_task_exit",
    "dump_open_files",
    "dump_tasks",
    "watch_kernel_threads",
];
/// Programs that replace one whose tracepoint some kernels lack; each is loaded only without the
/// original.
const INSTEAD: &[(&str, &str)] = &[
    ("on_uring_submit_sqe", "on_uring_submit"),
    ("in_fault_page", "on_fault_page"),
    ("in_fault_around", "on_fault_around"),
];
/// Programs of tier T1: the split of a call's time.
const SPLIT: &[&str] = &["on_switch", "on_waking"];
/// Programs of tier T2: the events of journals and disks meanwhile.
const EVIDENCE: &[&str] = &[
    "on_jbd2_start",
    "on_jbd2_locking",
    "on_jbd2_flushing",
    "on_jbd2_logging",
    "on_jbd2_end",
    "on_xfs_log_force",
    "on_xfs_iclog_sync",
    "on_xfs_iclog_done",
    "on_btrfs_sync_file",
    "on_rq_issue",
    "on_rq_complete",
];

/// The programs that load, and the reasons why the others do not.
#[derive(Debug, Default)]
pub struct Coverage {
    pub attached: Vec<String>,
    /// Program and reason.
    pub missing: BTreeMap<String, String>,
    /// Those of `missing` that belong to a filesystem that is not in the kernel now.
    pub unloaded: BTreeSet<String>,
}

impl Coverage {
    /// Return the tier: T0 calls only, T1 with the split of their time, T2 with journals and block
    /// requests. A filesystem that is not in the kernel has no journal that could be missing.
    pub fn tier(&self) -> &'static str {
        let lacks = |names: &[&str]| {
            let missing = |n: &&str| self.missing.contains_key(*n) && !self.unloaded.contains(*n);
            names.iter().any(missing)
        };
        if lacks(SPLIT) {
            "T0"
        } else if lacks(EVIDENCE) {
            "T1"
        } else {
            "T2"
        }
    }

    /// Return the form for the trace's meta data and doctor's answer.
    pub fn to_json(&self) -> Value {
        let instead: BTreeMap<_, _> = INSTEAD.iter().map(|(by, of)| (of, by)).collect();
        json!({
            "attached": self.attached, "missing": self.missing,
            "unloaded": self.unloaded, "instead": instead,
        })
    }

    /// Leave out all programs but these.
    pub fn keep(&mut self, programs: &[&str]) {
        self.attached
            .retain(|name| programs.contains(&name.as_str()));
    }

    /// Note that a program loaded but cannot run.
    pub fn cannot(&mut self, name: &str, why: &str) {
        self.attached.retain(|attached| attached != name);
        self.missing.insert(name.to_owned(), why.to_owned());
    }

    fn lacks(&mut self, program: &Program, why: String) {
        self.attached.retain(|name| *name != program.name);
        if refusal::unloaded(&program.hook).is_some() {
            self.unloaded.insert(program.name.clone());
        }
        self.missing.insert(program.name.clone(), why);
    }
}

/// A program of the object with its kind and hook, such as "tp_btf" and "sched_switch".
#[derive(Debug, Clone)]
struct Program {
    name: String,
    kind: String,
    hook: String,
}

impl Program {
    fn new(name: &OsStr, section: &OsStr) -> Program {
        let section = section.to_string_lossy();
        let (kind, hook) = section.split_once('/').unwrap_or((&section, ""));
        Program {
            name: name.to_string_lossy().into_owned(),
            kind: kind.to_owned(),
            hook: hook.to_owned(),
        }
    }

    fn stands_in_for(&self) -> Option<&'static str> {
        let found = INSTEAD.iter().find(|(name, _)| *name == self.name);
        found.map(|(_, original)| *original)
    }

    /// Return true if the hook is named in the kernel's types; it is looked up before loading.
    fn has_target(&self) -> bool {
        matches!(self.kind.as_str(), "tp_btf" | "fentry" | "fexit")
    }
}

fn open(storage: &mut MaybeUninit<OpenObject>) -> Result<OpenRecorderSkel<'_>> {
    RecorderSkelBuilder::default()
        .open(storage)
        .context("Failed to open the BPF object")
}

/// Return all programs, each with the reason if the kernel has no place for it.
fn programs() -> Result<Vec<(Program, Option<String>)>> {
    let mut storage = MaybeUninit::uninit();
    let mut skel = open(&mut storage)?;
    let mut found = Vec::new();
    for mut open in skel.open_object_mut().progs_mut() {
        let program = Program::new(open.name(), open.section());
        let absent = program.has_target()
            && open
                .set_attach_target(0, Some(program.hook.clone()))
                .is_err();
        let why = absent.then(|| refusal::absent(&program.kind, &program.hook));
        found.push((program, why));
    }
    Ok(found)
}

/// Load the object with only these programs; an error is libbpf's log and its message.
fn try_load(programs: &[&Program]) -> std::result::Result<(), (String, String)> {
    refusal::last_log();
    let mut storage = MaybeUninit::uninit();
    let mut skel = open(&mut storage).map_err(|e| (String::new(), format!("{e:#}")))?;
    for mut program in skel.open_object_mut().progs_mut() {
        let name = program.name().to_string_lossy();
        let wanted = programs.iter().any(|p| p.name == name);
        program.set_autoload(wanted);
    }
    let loaded = skel.load().map(|_| ());
    loaded.map_err(|e| (refusal::last_log(), e.to_string()))
}

/// The state of the search for programs that load.
struct Survey {
    coverage: Coverage,
    left: Vec<Program>,
    /// The original program's name, the stand-in, and the reason if the kernel has no place for it.
    stand_ins: Vec<(&'static str, Program, Option<String>)>,
}

impl Survey {
    fn new() -> Result<Survey> {
        refusal::quiet();
        check_host()?;
        let mut survey = Survey {
            coverage: Coverage::default(),
            left: Vec::new(),
            stand_ins: Vec::new(),
        };
        for (program, absent) in programs()? {
            match (program.stands_in_for(), absent) {
                (Some(original), absent) => survey.stand_ins.push((original, program, absent)),
                (None, Some(why)) => survey.coverage.lacks(&program, why),
                (None, None) => survey.left.push(program),
            }
        }
        survey.bring_in();
        Ok(survey)
    }

    /// Add the stand-ins for programs that are missing; return false if there are none to add.
    fn bring_in(&mut self) -> bool {
        let n_before = self.left.len();
        for (original, program, absent) in std::mem::take(&mut self.stand_ins) {
            match absent {
                _ if !self.coverage.missing.contains_key(original) => {
                    self.stand_ins.push((original, program, absent));
                }
                Some(why) => self.coverage.lacks(&program, why),
                None => self.left.push(program),
            }
        }
        self.left.len() > n_before
    }

    /// Drop the programs that the kernel refuses, with their reasons, until the rest loads
    /// together.
    fn drop_refused(&mut self) -> Result<()> {
        while let Err((log, error)) = try_load(&self.left.iter().collect::<Vec<_>>()) {
            let why = refusal::reason(&log, &error);
            let name = refusal::culprit(&log);
            let Some(at) = (self.left.iter()).position(|p| Some(&p.name) == name.as_ref()) else {
                bail!("this kernel refuses the recorder's object: {why}");
            };
            self.coverage.lacks(&self.left.remove(at), why);
        }
        Ok(())
    }

    fn end(mut self) -> Coverage {
        self.coverage.attached = self.left.into_iter().map(|p| p.name).collect();
        self.coverage
    }
}

/// Return the programs that the kernel has a place for. Loading takes the verifier a tenth of a
/// second, so a recording first tries all of these, and makes a survey only if one is refused.
pub fn placed() -> Result<Coverage> {
    Ok(Survey::new()?.end())
}

/// Try all programs together; while that fails, without the program that was refused.
pub fn survey() -> Result<Coverage> {
    let mut survey = Survey::new()?;
    survey.drop_refused()?;
    while survey.bring_in() {
        survey.drop_refused()?;
    }
    Ok(survey.end())
}

/// Attach each program that loaded; one that cannot be attached is missing from then on. Iterators
/// and programs run by a clock are left to the caller.
pub fn attach(object: &mut Object, coverage: &mut Coverage) -> Result<Vec<Link>> {
    let mut links = Vec::new();
    for program in object.progs_mut() {
        let known = Program::new(program.name(), program.section());
        if matches!(known.kind.as_str(), "iter" | "perf_event")
            || !coverage.attached.contains(&known.name)
        {
            continue;
        }
        refusal::last_log();
        match program.attach() {
            Ok(link) => links.push(link),
            Err(error) => coverage.lacks(&known, format!("does not attach: {error}")),
        }
    }
    require(coverage)?;
    Ok(links)
}

/// Fail if a program is missing that every recording needs.
pub fn require(coverage: &Coverage) -> Result<()> {
    for name in REQUIRED {
        if let Some(why) = coverage.missing.get(*name) {
            bail!(Failure::new(
                Code::NoKernel,
                format!("this kernel refuses the program {name}: {why}"),
                "run `spoolscope doctor`",
            ));
        }
    }
    Ok(())
}

fn check_host() -> Result<()> {
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        bail!(Failure::new(
            Code::NotPermitted,
            "recording needs root (CAP_BPF, CAP_PERFMON)",
            "run it with sudo",
        ));
    }
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        bail!(Failure::new(
            Code::NoKernel,
            "this kernel has no BTF (/sys/kernel/btf/vmlinux)",
            "boot a kernel with CONFIG_DEBUG_INFO_BTF=y, as Debian's and Ubuntu's are",
        ));
    }
    Ok(())
}

/// Print the survey as JSON.
pub fn doctor() -> Result<()> {
    let coverage = survey()?;
    let usable = require(&coverage).is_ok();
    let mut answer = coverage.to_json();
    answer["usable"] = usable.into();
    answer["required"] = json!(REQUIRED);
    answer["tier"] = coverage.tier().into();
    println!("{}", shown_json(&answer.to_string()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without(names: &[(&str, &str, &str)]) -> Coverage {
        let mut coverage = Coverage::default();
        for (name, kind, hook) in names {
            let program = Program {
                name: (*name).to_owned(),
                kind: (*kind).to_owned(),
                hook: (*hook).to_owned(),
            };
            coverage.lacks(&program, "refused".to_owned());
        }
        coverage
    }

    #[test]
    fn the_tier_says_what_is_there() {
        assert_eq!(without(&[]).tier(), "T2");
        let start = ("on_io_start", "tp_btf", "block_io_start");
        assert_eq!(without(&[start]).tier(), "T2");
        let issue = ("on_rq_issue", "tp_btf", "block_rq_issue");
        assert_eq!(without(&[issue]).tier(), "T1");
        let switch = ("on_switch", "tp_btf", "sched_switch");
        assert_eq!(without(&[issue, switch]).tier(), "T0");
    }

    #[test]
    fn a_required_program_s_absence_is_an_error_that_names_it() {
        let exit = ("on_exit", "tp_btf", "sys_exit");
        let said = require(&without(&[exit])).map_err(|e| e.to_string());
        assert!(said.is_err_and(|e| e.contains("on_exit: refused")));
    }
}
