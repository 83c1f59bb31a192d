//! Other names of a spool: bind mounts, and symbolic links where they are usual.
//!
//! The kernel side compares path names, so every name that programs use must be known.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::host::Spool;
use crate::mounts::{Mounts, join};

/// Directories in which a symbolic link to a mail spool is usual.
const USUAL: [&str; 7] = ["/", "/var", "/var/spool", "/home", "/srv", "/mnt", "/data"];

/// Return the aliases of several spools.
pub fn of_all(spools: &[Spool]) -> Result<BTreeMap<PathBuf, PathBuf>> {
    let mut aliases = BTreeMap::new();
    for spool in spools {
        aliases.extend(of(spool)?);
    }
    Ok(aliases)
}

/// Return a map from each alias to the directory of the spool that it stands for.
pub fn of(spool: &Spool) -> Result<BTreeMap<PathBuf, PathBuf>> {
    let mut aliases = links(spool);
    let mounts = Mounts::own().context("Failed to read mounts")?;
    aliases.extend(mounted(spool, &mounts));
    aliases.remove(&spool.mount);
    Ok(aliases)
}

/// Return the directories above these names, by device and inode: only by these does the kernel
/// side recognise the working directory of a process that reaches a spool by a relative name for
/// the first time.
pub fn above<'a>(names: impl Iterator<Item = &'a PathBuf>, mounts: &Mounts) -> Vec<Value> {
    let mut directories: Vec<&Path> = names.flat_map(|name| name.ancestors().skip(1)).collect();
    directories.sort_unstable();
    directories.dedup();
    let known = directories.into_iter().filter_map(|path| {
        let dev = mounts.holding(path)?.dev;
        let ino = fs::metadata(path).ok()?.ino();
        Some(json!({"path": path, "dev": dev, "ino": ino}))
    });
    known.collect()
}

/// Return the places where these mounts show the spool, its own mount point included.
pub fn mounted(spool: &Spool, mounts: &Mounts) -> BTreeMap<PathBuf, PathBuf> {
    let mut found = BTreeMap::new();
    for other in mounts.all.iter().filter(|other| other.dev == spool.dev) {
        let shown = if let Ok(below) = other.root.strip_prefix(&spool.root) {
            (other.mount.clone(), join(&spool.mount, below))
        } else if let Ok(above) = spool.root.strip_prefix(&other.root) {
            (join(&other.mount, above), spool.mount.clone())
        } else {
            continue;
        };
        if mounts.is_reachable(other) {
            found.insert(shown.0, shown.1);
        }
    }
    found
}

/// Find symbolic links that lead to a spool.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Return the names of the filesystem 7:0, mounted at /home/mail, for these lines of mountinfo.
    fn names(lines: &str) -> Vec<String> {
        let spool = Spool {
            mount: PathBuf::from("/home/mail"),
            root: PathBuf::from("/"),
            dev: 7 << 20,
            fstype: String::new(),
            options: String::new(),
            source: String::new(),
            id: 2,
        };
        let found = mounted(&spool, &Mounts::parse(lines)).into_keys();
        found.map(|name| name.display().to_string()).collect()
    }

    const ROOT: &str = "1 1 8:1 / / rw - ext4 d rw\n";
    const SPOOL: &str = "2 1 7:0 / /home/mail rw - ext4 d rw\n";

    #[test]
    fn a_mount_that_later_ones_hide_has_no_name() {
        let there = format!("{ROOT}{SPOOL}");
        assert_eq!(names(&there), ["/home/mail"]);
        let above = format!("{there}3 1 0:9 / /home rw - tmpfs t rw\n");
        assert!(names(&above).is_empty());
        let on_it = format!("{there}3 2 0:9 / /home/mail rw - tmpfs t rw\n");
        assert!(names(&on_it).is_empty());
        let within = format!("{there}3 2 0:9 / /home/mail/tmp rw - tmpfs t rw\n");
        assert_eq!(names(&within), ["/home/mail"]);
        let beside = format!("{there}3 1 0:9 / /home/mailman rw - tmpfs t rw\n");
        assert_eq!(names(&beside), ["/home/mail"]);
    }

    #[test]
    fn what_hides_a_mount_hides_those_on_it() {
        let nested =
            format!("{ROOT}3 1 8:2 / /srv rw - ext4 d rw\n4 3 7:0 / /srv/m rw - ext4 d rw\n");
        assert_eq!(names(&nested), ["/srv/m"]);
        let hidden = format!("{nested}5 3 0:9 / /srv rw - tmpfs t rw\n");
        assert!(names(&hidden).is_empty());
        let mounted_again = format!("{hidden}6 5 7:0 /box /srv/box rw - ext4 d rw\n");
        assert_eq!(names(&mounted_again), ["/srv/box"]);
    }
}
