//! Limits of control groups on block I/O: the rate that a group may use on a disk.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::host::parse_dev;

/// Files of v1 with a line "major:minor number" for each disk, and what the number limits.
const V1: [(&str, &str); 4] = [
    ("blkio.throttle.read_bps_device", "read_bps"),
    ("blkio.throttle.write_bps_device", "write_bps"),
    ("blkio.throttle.read_iops_device", "read_iops"),
    ("blkio.throttle.write_iops_device", "write_iops"),
];
/// Words of a line of v2's `io.max`: "major:minor rbps=max wbps=max riops=max wiops=40".
const V2: [(&str, &str); 4] = [
    ("rbps", "read_bps"),
    ("wbps", "write_bps"),
    ("riops", "read_iops"),
    ("wiops", "write_iops"),
];

/// By disk, then by the name of the limit.
type Limits = BTreeMap<u32, BTreeMap<&'static str, u64>>;

/// The limits seen at some time of the recording, and the groups that they are for.
#[derive(Debug, Default)]
pub struct IoLimits {
    /// By group; if a limit was changed, the last one seen.
    limits: BTreeMap<String, Limits>,
    /// Paths of the groups with a limit and of those below them, by id.
    groups: BTreeMap<u64, String>,
}

impl IoLimits {
    /// Read the present limits; `root` is where the hierarchy of block I/O is mounted.
    pub fn look(&mut self, root: &Path) {
        self.below(root, root, false);
    }

    fn below(&mut self, root: &Path, group: &Path, limited: bool) {
        let (Ok(rest), Ok(entries)) = (group.strip_prefix(root), fs::read_dir(group)) else {
            return;
        };
        let path = format!("/{}", rest.display());
        let found = limits_of(group);
        let limited = limited || !found.is_empty();
        match fs::metadata(group) {
            Ok(meta) if limited => self.groups.insert(meta.ino(), path.clone()),
            _ => None,
        };
        if !found.is_empty() {
            self.limits.insert(path, found);
        }
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                self.below(root, &entry.path(), limited);
            }
        }
    }

    /// Add `io_limits` and `io_cgroups` to the capture's meta.
    pub fn tell(&self, meta: &mut Value) {
        let rows = self.limits.iter().flat_map(|(group, disks)| {
            disks.iter().map(move |(dev, limits)| {
                let mut row = json!(limits);
                row["cgroup"] = group.as_str().into();
                row["dev"] = (*dev).into();
                row
            })
        });
        meta["io_limits"] = rows.collect();
        meta["io_cgroups"] = json!(self.groups);
    }
}

fn limits_of(group: &Path) -> Limits {
    let mut found = Limits::new();
    let read = |file: &str| fs::read_to_string(group.join(file)).unwrap_or_default();
    for (file, what) in V1 {
        for (dev, number) in read(file).lines().filter_map(of_disk) {
            if let Ok(n) = number.parse() {
                found.entry(dev).or_default().insert(what, n);
            }
        }
    }
    for (dev, words) in read("io.max").lines().filter_map(of_disk) {
        for (name, number) in words.split(' ').filter_map(|word| word.split_once('=')) {
            let what = V2.iter().find(|(word, _)| *word == name);
            // "max" means no limit.
            if let (Some((_, what)), Ok(n)) = (what, number.parse()) {
                found.entry(dev).or_default().insert(what, n);
            }
        }
    }
    found
}

/// Split a line "major:minor rest".
fn of_disk(line: &str) -> Option<(u32, &str)> {
    let (dev, rest) = line.split_once(' ')?;
    Some((parse_dev(dev)?, rest.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(files: &[(&str, &str)]) -> (Value, usize) {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let file = dir.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let mut found = IoLimits::default();
        found.look(dir.path());
        let mut meta = json!({});
        found.tell(&mut meta);
        (meta["io_limits"].take(), found.groups.len())
    }

    #[test]
    fn limits_of_v1_are_read_and_hold_for_the_groups_below() {
        let (found, groups) = limits(&[
            ("mail/blkio.throttle.write_iops_device", "7:1 40\n8:0 100\n"),
            ("mail/imap/blkio.throttle.read_bps_device", "7:1 1048576\n"),
            ("mail/smtp/cgroup.procs", ""),
            ("web/blkio.throttle.write_iops_device", ""),
        ]);
        let expected = json!([
            {"cgroup": "/mail", "dev": 7 << 20 | 1, "write_iops": 40},
            {"cgroup": "/mail", "dev": 8 << 20, "write_iops": 100},
            {"cgroup": "/mail/imap", "dev": 7 << 20 | 1, "read_bps": 1_048_576},
        ]);
        assert_eq!(found, expected);
        assert_eq!(groups, 3);
    }

    #[test]
    fn limits_of_v2_are_read() {
        let line = "8:16 rbps=max wbps=4096 riops=max wiops=40\n";
        let (found, groups) = limits(&[("mail/io.max", line), ("cgroup.procs", "")]);
        let dev = 8 << 20 | 16;
        let expected =
            json!([{"cgroup": "/mail", "dev": dev, "write_bps": 4096, "write_iops": 40}]);
        assert_eq!(found, expected);
        assert_eq!(groups, 1);
    }
}
