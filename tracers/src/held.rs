//! Spool files that processes hold without a descriptor showing it: file locks and mappings.
//!
//! Both files of /proc name the superblock's device, as `Spool::dev` does; stat(2) gives other
//! devices for btrfs subvolumes.

use std::fs;
use std::sync::mpsc::SyncSender;

use anyhow::{Context, Result};
use rustc_hash::FxHashMap;
use spoolscope_traces::records::{
    HeldLock, LOCK_FLOCK, LOCK_LEASE, LOCK_OPEN_FILE, LOCK_POSIX, MAP_EXEC, MAP_READ, MAP_SHARED,
    MAP_WRITE, Mapping,
};

use crate::host::clock;
use crate::snapshot_items::Found;

/// Most readings of the list of locks.
const READINGS: usize = 9;

/// Send every lock on wanted files, held or waited for.
///
/// The kernel prints the list page by page and finds its place by counting. When any process takes
/// or releases a lock meanwhile, another lock may appear twice or not at all. So the list is read
/// until two readings in a row are the same; failing that, the locks in most readings are taken.
pub fn locks(wanted: impl Fn(u32, u64) -> bool, to: &SyncSender<Found>) -> Result<()> {
    let (mut ts_ns, first) = read_locks(&wanted)?;
    let mut readings = vec![first];
    while readings.len() < READINGS {
        let (at_ns, next) = read_locks(&wanted)?;
        ts_ns = at_ns;
        let last = &readings[readings.len() - 1];
        if bytemuck::cast_slice::<_, u8>(&next) == bytemuck::cast_slice::<_, u8>(last) {
            readings = vec![next];
            break;
        }
        readings.push(next);
    }
    for lock in of_most(&readings) {
        to.send(Found::HeldLock(HeldLock { ts_ns, ..lock }))?;
    }
    Ok(())
}

/// Return each lock as often as more than half of the readings contain it.
fn of_most(readings: &[Vec<HeldLock>]) -> Vec<HeldLock> {
    let mut found: Vec<(HeldLock, usize)> = Vec::new();
    let mut places: FxHashMap<(&[u8], usize), usize> = FxHashMap::default();
    for reading in readings {
        let mut times: FxHashMap<&[u8], usize> = FxHashMap::default();
        for lock in reading {
            let bytes = bytemuck::bytes_of(lock);
            let nth = times.entry(bytes).or_default();
            *nth += 1;
            let place = *places.entry((bytes, *nth)).or_insert(found.len());
            if place == found.len() {
                found.push((*lock, 0));
            }
            found[place].1 += 1;
        }
    }
    let most = found.iter().filter(|(_, n)| 2 * n > readings.len());
    most.map(|(lock, _)| *lock).collect()
}

/// Return the locks on wanted files, and when they were read.
pub fn read_locks(wanted: impl Fn(u32, u64) -> bool) -> Result<(u64, Vec<HeldLock>)> {
    let ts_ns = clock(libc::CLOCK_MONOTONIC) as u64;
    let text = fs::read_to_string("/proc/locks").context("Failed to read /proc/locks")?;
    let locks = text.lines().filter_map(parse_lock);
    Ok((
        ts_ns,
        locks.filter(|lock| wanted(lock.dev, lock.ino)).collect(),
    ))
}

/// Return every mapping that a process has of files of wanted devices, with its path.
pub fn mappings(pid: u32, wanted: impl Fn(u32) -> bool) -> Vec<(Mapping, Vec<u8>)> {
    let ts_ns = clock(libc::CLOCK_MONOTONIC) as u64;
    // A process that has ended meanwhile has no mappings.
    let text = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n').filter_map(parse_mapping);
    lines
        .filter(|(mapping, _)| wanted(mapping.dev))
        .map(|(mapping, path)| {
            (
                Mapping {
                    ts_ns,
                    pid,
                    ..mapping
                },
                path,
            )
        })
        .collect()
}

/// Parse a line of proc_locks(5): "1: POSIX  ADVISORY  WRITE 123 fe:00:456 0 EOF", with "->" before
/// the class of a lock that is waited for.
fn parse_lock(line: &str) -> Option<HeldLock> {
    let words: Vec<&str> = line.split_whitespace().skip(1).collect();
    let waiting = words.first() == Some(&"->");
    let [class, _, mode, pid, file, start, end] = words[usize::from(waiting)..] else {
        return None;
    };
    let (device, ino) = file.rsplit_once(':')?;
    let start: i64 = start.parse().ok()?;
    let end: Option<i64> = end.parse().ok(); // or "EOF"
    Some(HeldLock {
        ino: ino.parse().ok()?,
        start,
        length: end.map_or(0, |end| end - start + 1),
        dev: device_of(device)?,
        pid: pid.parse().unwrap_or(0), // -1 for a lock of an open file
        kind: match class {
            "POSIX" => LOCK_POSIX,
            "OFDLCK" => LOCK_OPEN_FILE,
            "FLOCK" => LOCK_FLOCK,
            "LEASE" | "DELEG" => LOCK_LEASE,
            _ => return None,
        },
        exclusive: (mode == "WRITE").into(),
        waiting: waiting.into(),
        ..HeldLock::default()
    })
}

/// Parse a line of proc_pid_maps(5), "7f00-7f01 rw-s 00001000 fe:00 456    /path"; return the path
/// too.
fn parse_mapping(line: &[u8]) -> Option<(Mapping, Vec<u8>)> {
    let mut words = line.splitn(6, |byte| *byte == b' ');
    let mut word = || std::str::from_utf8(words.next()?).ok();
    let (begin, end) = word()?.split_once('-')?;
    let (mode, offset, device, ino) = (word()?.as_bytes(), word()?, word()?, word()?);
    let begin = u64::from_str_radix(begin, 16).ok()?;
    let flag = |at: usize, letter: u8, flag: u32| match mode.get(at) {
        Some(found) if *found == letter => flag,
        _ => 0,
    };
    let mapping = Mapping {
        ino: ino.parse().ok()?,
        address: begin,
        length: u64::from_str_radix(end, 16).ok()? - begin,
        offset: u64::from_str_radix(offset, 16).ok()?,
        dev: device_of(device)?,
        flags: flag(0, b'r', MAP_READ)
            | flag(1, b'w', MAP_WRITE)
            | flag(2, b'x', MAP_EXEC)
            | flag(3, b's', MAP_SHARED),
        ..Mapping::default()
    };
    Some((mapping, words.next()?.trim_ascii_start().to_vec()))
}

/// Parse hexadecimal major:minor and pack it as the kernel does.
fn device_of(text: &str) -> Option<u32> {
    let (major, minor) = text.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    Some(number(major)? << 20 | number(minor)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_readings_show_twice_or_not_at_all_is_there_once() {
        let lock = |pid| HeldLock {
            pid,
            ..HeldLock::default()
        };
        let readings = [
            vec![lock(1), lock(1), lock(2)],
            vec![lock(1), lock(3), lock(3)],
            vec![lock(1), lock(2), lock(3), lock(3), lock(4)],
        ];
        let pids: Vec<u32> = of_most(&readings).iter().map(|lock| lock.pid).collect();
        assert_eq!(pids, [1, 2, 3, 3]);
    }

    #[test]
    fn locks_of_all_classes_are_read() {
        let read = |line| {
            let lock = parse_lock(line).unwrap_or_default();
            let what = (lock.kind, lock.exclusive, lock.waiting, lock.pid);
            (what, lock.dev, lock.ino, lock.start, lock.length)
        };
        assert_eq!(
            read("12: POSIX  ADVISORY  WRITE 9 fe:0a:77 10 19"),
            ((LOCK_POSIX, 1, 0, 9), 0xfe0_000a, 77, 10, 10)
        );
        assert_eq!(
            read("12:   -> POSIX  ADVISORY  READ 8 fe:0a:77 0 EOF"),
            ((LOCK_POSIX, 0, 1, 8), 0xfe0_000a, 77, 0, 0)
        );
        assert_eq!(
            read("3: OFDLCK ADVISORY  READ -1 00:2b:256 5 5"),
            ((LOCK_OPEN_FILE, 0, 0, 0), 0x2b, 256, 5, 1)
        );
        assert_eq!(
            read("4: FLOCK  ADVISORY  WRITE 7 00:2b:9 0 EOF").0.0,
            LOCK_FLOCK
        );
        assert_eq!(
            read("5: LEASE  BREAKING  READ 7 00:2b:9 0 EOF").0.0,
            LOCK_LEASE
        );
        assert!(parse_lock("5: LEASE  BREAKER   READ 7 <none>:0 0 EOF").is_none());
    }

    #[test]
    fn mappings_keep_bytes_and_blanks_of_their_names() {
        let line = b"7f0000001000-7f0000003000 r--s 00002000 08:10 42      /m/a  b \xff (deleted)";
        let (mapping, path) = parse_mapping(line).unwrap_or_default();
        assert_eq!(
            (mapping.address, mapping.length),
            (0x7f00_0000_1000, 0x2000)
        );
        assert_eq!(
            (mapping.offset, mapping.dev, mapping.ino),
            (0x2000, 0x80_0010, 42)
        );
        assert_eq!(mapping.flags, MAP_READ | MAP_SHARED);
        assert_eq!(path, b"/m/a  b \xff (deleted)");
        assert!(parse_mapping(b"").is_none());
    }
}
