//! The process trees named with --pid: who is below them already.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail};
use libbpf_rs::{MapCore, MapFlags, MapMut};

/// Puts the roots and all their living descendants into the map.
pub fn name(map: &MapMut<'_>, roots: &[u32]) -> Result<()> {
    for root in roots {
        if !fs::exists(format!("/proc/{root}"))? {
            bail!("no process {root}: see 'pgrep -a' for the pid to give");
        }
    }
    for pid in descendants(roots)? {
        map.update(&pid.to_ne_bytes(), &[1], MapFlags::ANY)
            .context("Failed to name the target processes: more than 4096?")?;
    }
    Ok(())
}

fn descendants(roots: &[u32]) -> Result<BTreeSet<u32>> {
    let mut found: BTreeSet<u32> = roots.iter().copied().collect();
    if roots.is_empty() {
        return Ok(found);
    }
    let parents = parents()?;
    loop {
        let before = found.len();
        for (child, parent) in &parents {
            if found.contains(parent) {
                found.insert(*child);
            }
        }
        if found.len() == before {
            return Ok(found);
        }
    }
}

/// Parent of every process that runs now.
fn parents() -> Result<BTreeMap<u32, u32>> {
    let mut parents = BTreeMap::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue; // it has ended
        };
        // "pid (any name) state ppid ..."
        let rest = stat.rsplit(") ").next().unwrap_or_default();
        if let Some(parent) = rest.split(' ').nth(1).and_then(|w| w.parse().ok()) {
            parents.insert(pid, parent);
        }
    }
    Ok(parents)
}
