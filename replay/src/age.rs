//! Ageing: churn that leaves free space and directories in pieces, as years of use do.
//!
//! After Geriatrix (ATC'18): files of many sizes are made until the filesystem is nearly full, and
//! removed in random order, again and again. Those that stay at the end keep the free space in
//! pieces. They lie in `lost+found`, the one directory that no trace, replay or comparison looks
//! into.

use anyhow::{Context, Result, ensure};
use foldhash::{HashMap, HashMapExt};
use serde_json::{Value, json};
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::str::FromStr;

use crate::pieces::Pieces;
use crate::sandbox::Confinement;
use crate::target_files::{as_path, check, make_directory, make_file, make_node, statvfs};

/// The age that a filesystem gets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Age {
    pub seed: u64,
    /// Bytes of all files made, divided by the bytes that were free before.
    pub factor: f64,
}

impl FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (seed, factor) = text.split_once(':').unwrap_or((text, "2"));
        let seed = seed.parse().map_err(|_| format!("'{seed}' is no seed"))?;
        match factor.parse::<f64>() {
            Ok(factor) if (1.0..=MOST).contains(&factor) => Ok(Self { seed, factor }),
            _ => Err(format!("'{factor}' is not between 1 and {MOST}")),
        }
    }
}

const MOST: f64 = 100.0;
/// File sizes are multiples of the smallest; each doubling between these is equally likely.
const SMALLEST: u64 = 4 << 10;
const LARGEST: u64 = 256 << 10;
/// Shares of the free bytes in use when removal begins and when it ends; removal comes last.
const FULL: f64 = 0.98;
const LOW: f64 = 0.65;
/// Directories that the files are spread over: filesystems keep files of one directory together.
const DIRECTORIES: u64 = 64;
/// Size of a file whose pieces show in how many pieces the free space is.
const PROBE: u64 = 64 << 20;
const PLACE: &[u8] = b"lost+found";
const NO_ROOM_SHOWN: &str = "target has no statvfs";

/// One operation of the churn; files are numbered in the order they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Make {
        file: u64,
        size: u64,
    },
    Remove {
        file: u64,
    },
    /// Everything is written back: only then is the room of removed files free.
    Settle,
}

/// The operations, which follow from the age and the free bytes alone.
#[derive(Debug)]
pub struct Churn {
    dice: Dice,
    live: Vec<(u64, u64)>,
    live_bytes: u64,
    made: u64,
    made_bytes: u64,
    volume: u64,
    full: u64,
    low: u64,
    filling: bool,
}

impl Churn {
    pub fn new(age: Age, free_bytes: u64) -> Self {
        let share = |share: f64| (free_bytes as f64 * share) as u64;
        Self {
            dice: Dice::new(age.seed),
            live: Vec::new(),
            live_bytes: 0,
            made: 0,
            made_bytes: 0,
            volume: share(age.factor),
            full: share(FULL),
            low: share(LOW),
            filling: true,
        }
    }
}

impl Iterator for Churn {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.filling {
            let size = self.dice.size();
            if self.live_bytes + size <= self.full && self.made_bytes + size <= self.volume {
                let file = self.made;
                self.live.push((file, size));
                self.live_bytes += size;
                self.made += 1;
                self.made_bytes += size;
                return Some(Step::Make { file, size });
            }
            self.filling = false;
        }
        if self.live_bytes > self.low && !self.live.is_empty() {
            let at = self.dice.below(self.live.len() as u64) as usize;
            let (file, size) = self.live.swap_remove(at);
            self.live_bytes -= size;
            return Some(Step::Remove { file });
        }
        // Less than one file short of the volume is enough.
        self.filling = self.made_bytes + LARGEST < self.volume;
        self.filling.then_some(Step::Settle)
    }
}

/// Numbers that look random and follow from a seed (splitmix64).
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.throw() % limit.max(1)
    }

    fn size(&mut self) -> u64 {
        let doublings = u64::from((LARGEST / SMALLEST).ilog2());
        let least = SMALLEST << self.below(doublings);
        (least + self.below(least)) / SMALLEST * SMALLEST
    }
}

/// Ages an empty target; returns what was done, and in how many pieces free space was and is.
pub fn churn(age: Age, confinement: &Confinement) -> Result<Value> {
    let at = |name: &str| confinement.path(&[PLACE, name.as_bytes()].concat());
    for place in std::iter::once(String::new()).chain((0..DIRECTORIES).map(directory)) {
        let path = at(&place);
        make_directory(&path).with_context(|| format!("cannot make {path:?}"))?;
    }
    let free_bytes = free(&at(""))?;
    let fresh = probe(&at(""), &at("/probe"))?;
    let mut churn = Churn::new(age, free_bytes);
    let (mut removed, mut refused) = (0_u64, HashMap::<u64, u64>::new());
    for step in churn.by_ref() {
        match step {
            Step::Settle => settle(&at(""))?,
            Step::Remove { file } if refused.contains_key(&file) => {}
            Step::Remove { file } => {
                removed += 1;
                remove(&at(&name(file)))?;
            }
            // A full filesystem may refuse a file: the order of the other steps does not depend on
            // that.
            Step::Make { file, size } => {
                if !allocate(&at(&name(file)), size)? {
                    refused.insert(file, size);
                }
            }
        }
    }
    settle(&at(""))?;
    let kept = churn
        .live
        .iter()
        .filter(|(file, _)| !refused.contains_key(file));
    Ok(json!({
        "seed": age.seed,
        "factor": age.factor,
        "files_made": churn.made - refused.len() as u64,
        "files_removed": removed,
        "files_refused": refused.len(),
        "bytes_made": churn.made_bytes - refused.values().sum::<u64>(),
        "files_kept": kept.clone().count(),
        "bytes_kept": kept.map(|(_, size)| size).sum::<u64>(),
        "free_bytes_before": free_bytes,
        "free_bytes_after": free(&at(""))?,
        "probe_bytes": PROBE,
        "probe_before": fresh,
        "probe_after": probe(&at(""), &at("/probe"))?,
    }))
}

fn directory(number: u64) -> String {
    format!("/aged-{number}")
}

fn name(file: u64) -> String {
    format!("{}/{file}", directory(file % DIRECTORIES))
}

fn remove(path: &CStr) -> Result<()> {
    fs::remove_file(as_path(path)).with_context(|| format!("cannot remove {path:?}"))
}

/// Returns the free bytes, with those reserved for root: left out, they would stay in one piece.
fn free(place: &CStr) -> Result<u64> {
    let stat = statvfs(place).context(NO_ROOM_SHOWN)?;
    Ok(stat.f_bfree * stat.f_frsize)
}

/// Writes back everything that was done to the filesystem.
pub fn settle(place: &CStr) -> Result<()> {
    let root = File::open(as_path(place))?;
    // SAFETY: plain system call on an open file.
    check(unsafe { libc::syncfs(root.as_raw_fd()) }).context("cannot write the filesystem back")?;
    Ok(())
}

/// Makes a file that takes room on the disk; `false`, and no file, if there is none.
fn allocate(path: &CStr, size: u64) -> Result<bool> {
    match try_allocate(path, size) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => {
            let _gone = fs::remove_file(as_path(path)); // it may not be there
            Ok(false)
        }
        Err(error) => Err(error).with_context(|| format!("cannot make {path:?}")),
    }
}

fn try_allocate(path: &CStr, size: u64) -> io::Result<()> {
    let mut file = make_file(path, 0o600)?;
    // SAFETY: plain system call on an open file.
    match check(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, size as i64) }) {
        // ext2 and ext3 cannot allocate without writing.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            let zeros = vec![0_u8; LARGEST as usize];
            let mut pieces = (0..size).step_by(zeros.len());
            pieces.try_for_each(|at| file.write_all(&zeros[..LARGEST.min(size - at) as usize]))
        }
        done => done.map(drop),
    }
}

/// Returns in how many pieces a new file is, and removes it.
fn probe(place: &CStr, path: &CStr) -> Result<Pieces> {
    ensure!(
        allocate(path, PROBE)?,
        "target has no {PROBE} bytes free to probe"
    );
    settle(place)?;
    let mut pieces = Pieces::default();
    pieces.add(path)?;
    remove(path)?;
    settle(place)?;
    Ok(pieces)
}

/// Names that exist before those of the fixture, and are removed once these are made: they leave
/// holes in the directories, and blocks that lie apart.
#[derive(Debug)]
pub struct Crowd(Vec<CString>);

impl Crowd {
    /// Gives each directory as many names as it will have, up to a limit.
    pub fn gather(
        age: Age,
        directories: &[(&[u8], usize)],
        confinement: &Confinement,
    ) -> Result<Self> {
        const MOST: usize = 256;
        let stat = statvfs(&confinement.path(b"")).context(NO_ROOM_SHOWN)?;
        let unlimited = stat.f_files == 0;
        let mut inodes = if unlimited {
            u64::MAX
        } else {
            stat.f_favail / 4
        };
        let mut dice = Dice::new(age.seed);
        let mut crowd = Self(Vec::new());
        for (directory, names) in directories {
            let names = (*names).min(MOST) as u64;
            for _ in 0..names.min(inodes) {
                let name = format!("/.spoolscope-aged.{:016x}", dice.throw());
                let path = confinement.path(&[directory, name.as_bytes()].concat());
                make_node(&path, libc::S_IFREG | 0o600)
                    .with_context(|| format!("cannot make {path:?}"))?;
                crowd.0.push(path);
            }
            inodes -= names.min(inodes);
        }
        Ok(crowd)
    }

    /// Removes the names; returns how many there were.
    pub fn leave(self) -> Result<u64> {
        for path in &self.0 {
            remove(path)?;
        }
        Ok(self.0.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: u64 = 1 << 30;

    fn steps(text: &str) -> Vec<Step> {
        Churn::new(text.parse().expect("an age"), FREE).collect()
    }

    #[test]
    fn the_seed_alone_makes_the_sequence() {
        assert_eq!(steps("7"), steps("7:2"));
        assert_ne!(steps("7"), steps("8"));
        for wrong in ["", "x", "7:", "7:0.5", "7:nan", "7:1000", "-1"] {
            assert!(wrong.parse::<Age>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn volume_and_room_stay_within_their_bounds() {
        for factor in [1.0, 2.0, 3.5] {
            let mut sizes = std::collections::HashMap::new();
            let (mut live, mut most, mut made) = (0, 0, 0);
            for step in steps(&format!("1:{factor}")) {
                match step {
                    Step::Make { file, size } => {
                        assert!((SMALLEST..LARGEST).contains(&size) && size % SMALLEST == 0);
                        assert_eq!(sizes.insert(file, size), None);
                        (live, made) = (live + size, made + size);
                    }
                    Step::Remove { file } => live -= sizes.remove(&file).expect("made before"),
                    Step::Settle => {}
                }
                most = most.max(live);
            }
            let share = |bytes: u64| bytes as f64 / FREE as f64;
            assert!(share(made) <= factor && share(made) > factor - 0.01);
            assert!(share(most) <= FULL && share(most) > FULL - 0.01);
            assert!(share(live) <= LOW && share(live) > LOW - 0.01);
            assert_eq!(sizes.values().sum::<u64>(), live);
        }
    }
}
