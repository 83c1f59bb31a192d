//! Other names of a spool: bind mounts, and symbolic links where they are usual.
//!
//! The kernel side compares path names, so every name that programs use must be known.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::host::{Spool, mounts};

/// Directories in which a symbolic link to a mail spool is usual.
const USUAL: [&str; 7] = ["/", "/var", "/var/spool", "/home", "/srv", "/mnt", "/data"];

/// Those of several spools.
pub fn of_all(spools: &[Spool]) -> Result<BTreeMap<PathBuf, PathBuf>> {
    let mut aliases = BTreeMap::new();
    for spool in spools {
        aliases.extend(of(spool)?);
    }
    Ok(aliases)
}

/// Alias -> what it stands for, a directory of the spool.
pub fn of(spool: &Spool) -> Result<BTreeMap<PathBuf, PathBuf>> {
    let mut aliases = links(spool);
    aliases.extend(mounted(spool, &mounts()?));
    aliases.remove(&spool.mount);
    Ok(aliases)
}

/// Where these mounts show the spool, also if that is its own mount point.
pub fn mounted(spool: &Spool, mounts: &[Spool]) -> BTreeMap<PathBuf, PathBuf> {
    let mut found = BTreeMap::new();
    for other in mounts.iter().filter(|m| m.dev == spool.dev) {
        if let Ok(below) = other.root.strip_prefix(&spool.root) {
            found.insert(other.mount.clone(), join(&spool.mount, below));
        } else if let Ok(above) = spool.root.strip_prefix(&other.root) {
            found.insert(join(&other.mount, above), spool.mount.clone());
        }
    }
    found
}

/// Symbolic links that lead to a spool.
pub fn links(spool: &Spool) -> BTreeMap<PathBuf, PathBuf> {
    let mut aliases = BTreeMap::new();
    let above = spool.mount.ancestors().skip(1);
    for dir in above.chain(USUAL.iter().map(Path::new)) {
        links_in(dir, &spool.mount, &mut aliases);
    }
    aliases
}

fn links_in(dir: &Path, mount: &Path, aliases: &mut BTreeMap<PathBuf, PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        if !entry.file_type().is_ok_and(|t| t.is_symlink()) {
            continue;
        }
        let Ok(target) = entry.path().canonicalize() else {
            continue;
        };
        if target.starts_with(mount) {
            aliases.insert(entry.path(), target);
        } else if target != Path::new("/") {
            if let Ok(rest) = mount.strip_prefix(&target) {
                aliases.insert(join(&entry.path(), rest), mount.to_owned());
            }
        }
    }
}

/// Without a trailing slash when there is nothing to add.
fn join(base: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() {
        base.to_owned()
    } else {
        base.join(rest)
    }
}
