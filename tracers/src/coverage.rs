//! Which programs load here? Found out by trying, never by version.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{OpenObject, PrintLevel};
use serde_json::json;

use crate::skel::{OpenRecorderSkel, RecorderSkelBuilder};

/// Programs without which a recording makes no sense.
const REQUIRED: &[&str] = &[
    "on_enter",
    "on_exit",
    "on_fork",
    "on_exec",
    "on_task_exit",
    "dump_tasks",
];
/// Programs of tier T1: the split of a call's time.
const SPLIT: &[&str] = &["on_switch", "on_waking"];

static LOG: Mutex<String> = Mutex::new(String::new());

fn keep_warning(_: PrintLevel, text: String) {
    if let Ok(mut log) = LOG.lock() {
        log.push_str(&text);
    }
}

/// What loads, and why the rest does not.
#[derive(Debug, Default)]
pub struct Coverage {
    pub missing: BTreeMap<String, String>,
    pub attached: Vec<String>,
}

impl Coverage {
    /// T0 calls only, T1 with the split of their time, T2 with journals and block requests.
    pub fn tier(&self) -> &'static str {
        let lacks = |names: &[&str]| names.iter().any(|n| self.missing.contains_key(*n));
        if lacks(SPLIT) {
            "T0"
        } else if lacks(&["on_rq_issue", "on_rq_complete"]) {
            "T1"
        } else {
            "T2"
        }
    }
}

/// Keeps libbpf's own messages for `reason` instead of stderr.
pub fn quiet() {
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep_warning)));
}

/// The line of libbpf's log that says why the last load failed.
fn reason(error: &dyn std::fmt::Display) -> String {
    let log = LOG
        .lock()
        .map(|mut log| std::mem::take(&mut *log))
        .unwrap_or_default();
    let line = log
        .lines()
        .filter(|l| !l.contains("failed to load") && !l.contains("PROG LOAD LOG"))
        .rfind(|l| !l.starts_with("processed "))
        .map(|l| l.trim_start_matches("libbpf: ").to_owned());
    line.unwrap_or_else(|| error.to_string())
}

fn open(storage: &mut MaybeUninit<OpenObject>) -> Result<OpenRecorderSkel<'_>> {
    RecorderSkelBuilder::default()
        .open(storage)
        .context("Failed to open the BPF object")
}

/// Names of all programs.
fn programs() -> Result<Vec<String>> {
    let mut storage = MaybeUninit::uninit();
    let skel = open(&mut storage)?;
    Ok(skel
        .open_object()
        .progs()
        .map(|p| p.name().to_string_lossy().into_owned())
        .collect())
}

/// Loads the object with only these programs; the error is libbpf's reason.
fn try_load(names: &[String]) -> std::result::Result<(), String> {
    let mut storage = MaybeUninit::uninit();
    let mut skel = open(&mut storage).map_err(|e| format!("{e:#}"))?;
    for mut program in skel.open_object_mut().progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        program.set_autoload(names.contains(&name));
    }
    let loaded = skel.load().map(|_| ());
    loaded.map_err(|e| reason(&e))
}

/// Tries all together and, only if that fails, each alone.
pub fn survey() -> Result<Coverage> {
    quiet();
    check_host()?;
    let all = programs()?;
    let mut coverage = Coverage::default();
    if try_load(&all).is_err() {
        for name in &all {
            if let Err(why) = try_load(std::slice::from_ref(name)) {
                coverage.missing.insert(name.clone(), why);
            }
        }
    }
    coverage.attached = all
        .into_iter()
        .filter(|n| !coverage.missing.contains_key(n))
        .collect();
    Ok(coverage)
}

/// Fails if a program is missing that no recording can do without.
pub fn require(coverage: &Coverage) -> Result<()> {
    for name in REQUIRED {
        if let Some(why) = coverage.missing.get(*name) {
            bail!("this kernel refuses the program {name}: {why}; run `spoolscope doctor`");
        }
    }
    Ok(())
}

fn check_host() -> Result<()> {
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        bail!("recording needs root (CAP_BPF, CAP_PERFMON): run it with sudo");
    }
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        bail!(
            "this kernel has no BTF (/sys/kernel/btf/vmlinux): boot a kernel with \
             CONFIG_DEBUG_INFO_BTF=y, as Debian's and Ubuntu's are"
        );
    }
    Ok(())
}

/// Prints the survey as JSON.
pub fn doctor() -> Result<()> {
    let coverage = survey()?;
    let usable = require(&coverage).is_ok();
    let answer = json!({
        "usable": usable, "tier": coverage.tier(),
        "attached": coverage.attached, "missing": coverage.missing,
    });
    println!("{answer}");
    Ok(())
}
