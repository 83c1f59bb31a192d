//! Control groups: mounted hierarchies, groups of systemd units, names by id.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use spoolscope_traces::error_code::{Code, Failure};

use crate::io_limits::IoLimits;
use crate::mounts::Mounts;

/// How often the groups are listed again.
const REFRESH: Duration = Duration::from_secs(10);
/// Kinds of units that have a control group; a name without a kind is taken for a service.
const KINDS: [&str; 3] = [".service", ".slice", ".scope"];

/// Hierarchies and where they are mounted.
#[derive(Debug, Default)]
pub struct Hierarchies {
    /// cgroup v2: the kernel side knows its groups by inode.
    pub unified: Option<PathBuf>,
    /// v1 `name=systemd`: only its lists of processes are of use.
    pub systemd: Option<PathBuf>,
    /// v1 `blkio`, if it is mounted; it then has the limits on block I/O, else v2 has.
    pub blkio: Option<PathBuf>,
}

impl Hierarchies {
    /// Find the hierarchies that are mounted here.
    pub fn mounted() -> Result<Self> {
        let mut found = Self::default();
        for mount in Mounts::own().context("Failed to read mounts")?.all {
            let has = |option| mount.options.split(',').any(|o| o == option);
            match mount.fstype.as_str() {
                "cgroup2" if found.unified.is_none() => found.unified = Some(mount.mount),
                "cgroup" if found.systemd.is_none() && has("name=systemd") => {
                    found.systemd = Some(mount.mount);
                }
                "cgroup" if found.blkio.is_none() && has("blkio") => {
                    found.blkio = Some(mount.mount);
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// Return the groups of a unit; if several users have a unit of that name, the groups of all.
    ///
    /// The v2 hierarchy is searched first, then v1.
    pub fn of_unit(&self, unit: &str) -> Result<Vec<PathBuf>> {
        let name = match KINDS.iter().any(|kind| unit.ends_with(kind)) {
            true => unit.to_owned(),
            false => format!("{unit}.service"),
        };
        for root in [&self.unified, &self.systemd].into_iter().flatten() {
            let groups: Vec<PathBuf> = below(root).filter(|dir| dir.ends_with(&name)).collect();
            if !groups.is_empty() {
                return Ok(groups);
            }
        }
        bail!(Failure::new(
            Code::Failed,
            format!("no control group of a unit {name}"),
            format!("see 'systemctl status {name}', is it running?"),
        ))
    }

    pub fn is_unified(&self, group: &Path) -> bool {
        self.unified
            .as_ref()
            .is_some_and(|root| group.starts_with(root))
    }
}

/// Names of the v2 groups that were there at some time of the recording, and limits on block I/O.
#[derive(Debug)]
pub struct Names {
    mounted: Hierarchies,
    known: BTreeMap<u64, String>,
    limits: IoLimits,
    listed: Instant,
}

impl Names {
    /// List the groups that exist now.
    pub fn now() -> Result<Self> {
        let mut names = Self {
            mounted: Hierarchies::mounted()?,
            known: BTreeMap::new(),
            limits: IoLimits::default(),
            listed: Instant::now(),
        };
        names.list();
        Ok(names)
    }

    /// List the groups again if the last listing is old; a group that lives shorter may be missed.
    pub fn refresh(&mut self) {
        if self.listed.elapsed() > REFRESH {
            self.list();
        }
    }

    /// Return the path of a group below the root of the hierarchy.
    pub fn name(&self, id: u64) -> Option<&str> {
        self.known.get(&id).map(String::as_str)
    }

    fn list(&mut self) {
        self.listed = Instant::now();
        let io = self
            .mounted
            .blkio
            .as_ref()
            .or(self.mounted.unified.as_ref());
        if let Some(root) = io {
            self.limits.look(root);
        }
        let Some(root) = &self.mounted.unified else {
            return;
        };
        for dir in below(root) {
            if let (Ok(rest), Ok(meta)) = (dir.strip_prefix(root), fs::metadata(&dir)) {
                let name = || format!("/{}", rest.display());
                self.known.entry(meta.ino()).or_insert_with(name);
            }
        }
    }

    /// Add `cgroups` to the capture's meta: the path of every group below the root of the hierarchy
    /// ("/" is the root itself), by id; and the fields of `IoLimits::tell`.
    pub fn tell(&mut self, meta: &mut Value) {
        self.list();
        meta["cgroups"] = json!(self.known);
        self.limits.tell(meta);
    }
}

/// Return the id of the v2 group of a process, 0 if there is none. `cgroup` is the text of
/// /proc/PID/cgroup, with a line "0::/path".
pub fn id_of(root: &Path, cgroup: &str) -> u64 {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::/"));
    path.and_then(|path| fs::metadata(root.join(path)).ok())
        .map_or(0, |meta| meta.ino())
}

/// Return a group and all groups below it.
pub fn below(root: &Path) -> impl Iterator<Item = PathBuf> {
    let mut pending = vec![root.to_owned()];
    std::iter::from_fn(move || {
        let dir = pending.pop()?;
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        pending.extend(
            entries
                .filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir()))
                .map(|entry| entry.path()),
        );
        Some(dir)
    })
}

/// Return the processes in a group and in those below it.
pub fn members(group: &Path) -> Vec<u32> {
    below(group)
        .filter_map(|dir| fs::read_to_string(dir.join("cgroup.procs")).ok())
        .flat_map(|text| {
            text.lines()
                .filter_map(|line| line.parse().ok())
                .collect::<Vec<u32>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// Hierarchies as systemd lays them out, in an ordinary directory.
    fn hierarchies(v2: &[&str], v1: &[&str]) -> (TempDir, Hierarchies) {
        let dir = tempfile::tempdir().unwrap();
        let make = |root: &str, groups: &[&str]| {
            let root = dir.path().join(root);
            for group in groups {
                fs::create_dir_all(root.join(group)).unwrap();
            }
            (!groups.is_empty()).then_some(root)
        };
        let found = Hierarchies {
            unified: make("v2", v2),
            systemd: make("v1", v1),
            blkio: None,
        };
        (dir, found)
    }

    #[test]
    fn a_unit_is_found_by_its_name_with_or_without_its_kind() {
        let groups = [
            "system.slice/dovecot.service",
            "system.slice/system-postfix.slice/postfix@-.service",
            "user.slice/user-1000.slice/session-3.scope",
        ];
        let (_dir, found) = hierarchies(&groups, &[]);
        let root = found.unified.clone().unwrap();
        for (unit, group) in [
            ("dovecot", 0),
            ("dovecot.service", 0),
            ("postfix@-", 1),
            ("session-3.scope", 2),
        ] {
            assert_eq!(found.of_unit(unit).unwrap(), [root.join(groups[group])]);
        }
        let slice = found.of_unit("system.slice").unwrap();
        assert_eq!(slice, [root.join("system.slice")]);
    }

    #[test]
    fn units_of_one_name_are_all_taken() {
        let groups = [
            "user.slice/a.service/mpd.service",
            "user.slice/b.service/mpd.service",
        ];
        let (_dir, found) = hierarchies(&groups, &[]);
        assert_eq!(found.of_unit("mpd").unwrap().len(), 2);
    }

    #[test]
    fn v1_is_asked_only_where_v2_does_not_know_the_unit() {
        let (_dir, found) = hierarchies(&["init.scope"], &["system.slice/dovecot.service"]);
        let group = &found.of_unit("dovecot").unwrap()[0];
        assert!(group.starts_with(found.systemd.as_ref().unwrap()));
        assert!(!found.is_unified(group));
        let error = found.of_unit("exim4").unwrap_err().to_string();
        assert!(error.contains("systemctl status exim4.service"), "{error}");
    }
}
