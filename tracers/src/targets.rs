//! Targets of a recording: processes named by pid, control group, unit, program or name; one match
//! is enough.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use libbpf_rs::{MapCore, MapFlags, MapMut};
use spoolscope_traces::error_code::{Code, Failure};

use crate::cgroups::{self, Hierarchies};
use crate::cli::Options;
use crate::host;

/// The targets that were named, in the form that the kernel side compares.
#[derive(Debug)]
pub struct Targets {
    pids: Vec<u32>,
    /// Groups of cgroup v1: their processes, and the children of these.
    groups: Vec<PathBuf>,
    /// Groups of cgroup v2, by inode.
    pub cgroup_ids: Vec<u64>,
    /// Device (of the superblock) and inode of programs.
    pub exes: Vec<(u32, u64)>,
    pub comms: Vec<String>,
    /// True if any target was named: then nothing else is recorded.
    pub named: bool,
}

impl Targets {
    /// Look up the targets that the options name.
    pub fn of(options: &Options) -> Result<Self> {
        let mut targets = Self {
            pids: options.pids.clone(),
            groups: Vec::new(),
            cgroup_ids: Vec::new(),
            exes: options.exes.iter().map(|p| exe(p)).collect::<Result<_>>()?,
            comms: options.comms.clone(),
            named: !options.pids.is_empty()
                || !options.cgroups.is_empty()
                || !options.units.is_empty()
                || !options.exes.is_empty()
                || !options.comms.is_empty(),
        };
        for pid in &options.pids {
            if !fs::exists(format!("/proc/{pid}"))? {
                bail!(Failure::new(
                    Code::Failed,
                    format!("no process {pid}"),
                    "see 'pgrep -a' for the pid to give",
                ));
            }
        }
        for comm in &options.comms {
            if comm.is_empty() || comm.len() > 15 {
                bail!(Failure::new(
                    Code::Failed,
                    format!("--comm {comm}"),
                    "the kernel's names have 1 to 15 bytes",
                ));
            }
        }
        targets.add_groups(options)?;
        Ok(targets)
    }

    fn add_groups(&mut self, options: &Options) -> Result<()> {
        let hierarchies = Hierarchies::mounted()?;
        let mut groups = options.cgroups.clone();
        for unit in &options.units {
            groups.extend(hierarchies.of_unit(unit)?);
        }
        for group in groups {
            if !group.join("cgroup.procs").exists() {
                bail!(Failure::new(
                    Code::Usage,
                    format!("no such cgroup: {}", group.display()),
                    "see 'systemd-cgls'",
                ));
            }
            let id = fs::metadata(&group)?.ino();
            if hierarchies.is_unified(&group.canonicalize()?) {
                self.cgroup_ids.push(id);
            } else {
                self.groups.push(group);
            }
        }
        Ok(())
    }

    /// Enter the named processes, and `own`, with all their living descendants into the map.
    pub fn name(&self, map: &MapMut<'_>, own: Option<u32>) -> Result<()> {
        let mut roots = self.pids.clone();
        roots.extend(own);
        roots.extend(self.groups.iter().flat_map(|g| cgroups::members(g)));
        for pid in descendants(&roots)? {
            map.update(&pid.to_ne_bytes(), &[1], MapFlags::ANY)
                .context("Failed to name the target processes: more than 4096?")?;
        }
        Ok(())
    }
}

/// Return a program's device and inode. For btrfs subvolumes and layers of an overlay stat(2) gives
/// other devices; the mount's device is that of the superblock.
fn exe(path: &Path) -> Result<(u32, u64)> {
    let meta = fs::metadata(path).ok().filter(fs::Metadata::is_file);
    let Some(meta) = meta else {
        bail!(Failure::new(
            Code::Usage,
            format!("no such program: {}", path.display()),
            "give the path of the executable, see 'readlink /proc/PID/exe'",
        ));
    };
    Ok((host::mount_of(path)?.dev, meta.ino()))
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

/// Return the parent of every process that runs now.
fn parents() -> Result<BTreeMap<u32, u32>> {
    let mut parents = BTreeMap::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read(entry.path().join("stat")) else {
            continue; // it has ended
        };
        let stat = String::from_utf8_lossy(&stat); // names are bytes
        // "pid (any name) state ppid ..."
        let rest = stat.rsplit(") ").next().unwrap_or_default();
        if let Some(parent) = rest.split(' ').nth(1).and_then(|w| w.parse().ok()) {
            parents.insert(pid, parent);
        }
    }
    Ok(parents)
}
