//! Facts about this host: spools, their disks, clocks.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use spoolscope_traces::error_code::{Code, Failure};

use crate::mounts::{Mount, Mounts, join};

/// A filesystem that is recorded, or a directory of one.
#[derive(Debug, Clone)]
pub struct Spool {
    /// Its directory: the mount point, or a directory below it.
    pub mount: PathBuf,
    pub fstype: String,
    pub options: String,
    pub source: String,
    /// `super_block.s_dev` as the kernel packs it: major << 20 | minor.
    pub dev: u32,
    /// The same directory as seen from the root of the filesystem; "/" if all of it is the spool.
    pub root: PathBuf,
    /// The mount that it lies on.
    pub id: u32,
}

impl Spool {
    /// Return the spool of a directory.
    pub fn at(path: &Path) -> Result<Spool> {
        let Some(path) = path.canonicalize().ok().filter(|path| path.is_dir()) else {
            bail!(Failure::new(
                Code::Usage,
                format!("no such directory: {}", path.display()),
                "name the mount point of the spool, or a directory below",
            ));
        };
        if path.to_str().is_none() {
            bail!(Failure::new(
                Code::Usage,
                format!("the name of {} is no UTF-8 text", path.display()),
                "rename the directory, or bind-mount it to one with another name",
            ));
        }
        let mount = mount_of(&path)?;
        Ok(Spool {
            root: join(&mount.root, path.strip_prefix(&mount.mount)?),
            mount: path,
            fstype: mount.fstype,
            options: mount.options,
            source: mount.source,
            dev: mount.dev,
            id: mount.id,
        })
    }

    /// Return true if the spool is only a part of its filesystem.
    pub fn is_part(&self) -> bool {
        self.root != Path::new("/")
    }

    /// Return true if a place in the filesystem `dev`, as seen from its root, belongs to the spool.
    pub fn holds(&self, dev: u32, place: &Path) -> bool {
        self.dev == dev && place.starts_with(&self.root)
    }

    /// Return the disks below it, kernel-packed; empty for filesystems without a disk.
    pub fn disks(&self) -> Vec<u32> {
        disks_of(&self.source)
    }

    /// Return the features that mkfs decided; None where they are not known.
    fn features(&self) -> Option<Vec<&'static str>> {
        let is_ext = matches!(self.fstype.as_str(), "ext2" | "ext3" | "ext4");
        is_ext.then(|| ext_features(Path::new(&self.source)))?
    }

    pub fn to_json(&self) -> Value {
        json!({
            "mount": self.mount, "fstype": self.fstype, "options": self.options,
            "source": self.source, "dev": self.dev, "size_bytes": size_bytes(&self.mount),
            "features": self.features(), "part": self.is_part(),
        })
    }
}

/// Return the mount that a path lies on.
pub fn mount_of(path: &Path) -> Result<Mount> {
    let Ok(path) = path.canonicalize() else {
        bail!(Failure::new(
            Code::Usage,
            format!("no such directory: {}", path.display()),
            "mkdir it",
        ));
    };
    let mounts = Mounts::own().context("Failed to read mounts")?;
    let found = mounts.holding(&path).cloned();
    found.context("Failed to find the mount of a path")
}

/// Return the disks that hold what was mounted from `source`.
fn disks_of(source: &str) -> Vec<u32> {
    let btrfs = btrfs_disks(source);
    if !btrfs.is_empty() {
        return btrfs;
    }
    fs::metadata(source)
        .ok()
        .filter(|m| m.mode() & libc::S_IFMT == libc::S_IFBLK)
        .map(|m| whole_disk(libc::major(m.rdev()), libc::minor(m.rdev())))
        .into_iter()
        .collect()
}

/// Superblock of ext2, ext3 and ext4: its place, and the feature bits in it, from fs/ext4/ext4.h.
/// Only features that change how names are found or how the journal works are listed.
const EXT_SUPERBLOCK: u64 = 1024;
const EXT_MAGIC: (usize, u16) = (0x38, 0xef53);
const EXT_FEATURES: [(usize, u32, &str); 6] = [
    (0x5c, 0x4, "has_journal"),
    (0x5c, 0x20, "dir_index"),
    (0x5c, 0x400, "fast_commit"),
    (0x60, 0x8, "journal_dev"),
    (0x60, 0x4000, "large_dir"),
    (0x64, 0x400, "metadata_csum"),
];

/// Return the features in the superblock of an ext2, ext3 or ext4; None for anything else.
fn ext_features(device: &Path) -> Option<Vec<&'static str>> {
    let mut block = [0u8; 1024];
    fs::File::open(device)
        .ok()?
        .read_exact_at(&mut block, EXT_SUPERBLOCK)
        .ok()?;
    let (at, magic) = EXT_MAGIC;
    if u16::from_le_bytes(block[at..at + 2].try_into().ok()?) != magic {
        return None;
    }
    let has = |&(at, bit, name): &(usize, u32, &'static str)| {
        let word = u32::from_le_bytes(block[at..at + 4].try_into().ok()?);
        (word & bit != 0).then_some(name)
    };
    Some(EXT_FEATURES.iter().filter_map(has).collect())
}

/// Print the disks below some mount points.
pub fn print_disks(mounts: &[PathBuf]) -> Result<()> {
    for mount in mounts {
        for disk in Spool::at(mount)?.disks() {
            println!("{}:{}", disk >> 20, disk & 0xf_ffff);
        }
    }
    Ok(())
}

/// Append the devices that the disks are made of, recursively, while there is room.
pub fn add_disks_below(disks: &mut Vec<u32>, room: usize) {
    let mut at = 0;
    while at < disks.len() {
        for below in disks_below(disks[at]) {
            if !disks.contains(&below) && disks.len() < room {
                disks.push(below);
            }
        }
        at += 1;
    }
}

/// Return the devices that a disk is made of: for a loop device the disks that hold its file, for
/// dm and md the members.
fn disks_below(disk: u32) -> Vec<u32> {
    let sys = format!("/sys/dev/block/{}:{}", disk >> 20, disk & 0xf_ffff);
    let sys = Path::new(&sys);
    if let Ok(file) = fs::read(sys.join("loop/backing_file")) {
        let holder = Path::new(OsStr::from_bytes(file.trim_ascii_end()))
            .parent()
            .map(mount_of)
            .and_then(Result::ok);
        return holder.map(|h| disks_of(&h.source)).unwrap_or_default();
    }
    let Ok(members) = fs::read_dir(sys.join("slaves")) else {
        return Vec::new();
    };
    members
        .flatten()
        .filter_map(|member| {
            let text = fs::read_to_string(member.path().join("dev")).ok()?;
            let dev = parse_dev(&text)?;
            Some(whole_disk(dev >> 20, dev & 0xf_ffff))
        })
        .collect()
}

/// Return every process that runs now.
pub fn running() -> Result<Vec<u32>> {
    let entries = fs::read_dir("/proc").context("Failed to list /proc")?;
    let names = entries.flatten().map(|entry| entry.file_name());
    Ok(names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect())
}

/// Return the device of a superblock, as the kernel packs it; 0 where stat(2) gives another device:
/// that of a btrfs subvolume is anonymous.
pub fn device(meta: &fs::Metadata) -> u32 {
    match libc::major(meta.dev()) {
        0 => 0,
        major => pack(major, libc::minor(meta.dev())),
    }
}

fn pack(major: u32, minor: u32) -> u32 {
    major << 20 | minor
}

/// Return the whole disk of a partition, because requests carry that.
fn whole_disk(major: u32, minor: u32) -> u32 {
    let sys = format!("/sys/dev/block/{major}:{minor}");
    let parent = Path::new(&sys)
        .join("partition")
        .exists()
        .then(|| format!("{sys}/../dev"));
    parent
        .and_then(|file| fs::read_to_string(file).ok())
        .and_then(|text| parse_dev(&text))
        .unwrap_or_else(|| pack(major, minor))
}

/// Parse "major:minor" and pack it as the kernel does.
pub fn parse_dev(text: &str) -> Option<u32> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(pack(major.parse().ok()?, minor.parse().ok()?))
}

/// Return all members of the btrfs that `source` belongs to.
fn btrfs_disks(source: &str) -> Vec<u32> {
    // LVM and LUKS have links in /dev; the kernel lists dm-0.
    let device = fs::canonicalize(source).unwrap_or_else(|_| source.into());
    let Some(name) = device.file_name() else {
        return Vec::new();
    };
    let Ok(all) = fs::read_dir("/sys/fs/btrfs") else {
        return Vec::new();
    };
    for fs_dir in all.flatten() {
        let devices = fs_dir.path().join("devices");
        if !devices.join(name).exists() {
            continue;
        }
        let Ok(members) = fs::read_dir(devices) else {
            continue;
        };
        return members
            .flatten()
            .filter_map(|m| fs::read_to_string(m.path().join("dev")).ok())
            .filter_map(|text| parse_dev(&text))
            .map(|member| whole_disk(member >> 20, member & 0xf_ffff))
            .collect();
    }
    Vec::new()
}

fn size_bytes(path: &Path) -> u64 {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
        return 0;
    };
    // SAFETY: plain out-parameter; an all-zero statfs is valid.
    let mut buffer: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: path is NUL-terminated, buffer is ours.
    if unsafe { libc::statfs(path.as_ptr(), &raw mut buffer) } != 0 {
        return 0;
    }
    buffer.f_blocks * buffer.f_bsize as u64
}

/// Return release and machine of the running kernel, as `uname -rm` prints them.
pub fn kernel() -> (String, String) {
    // SAFETY: plain out-parameter; an all-zero utsname is valid.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: names is ours; there is no other way to fail.
    unsafe { libc::uname(&raw mut names) };
    let text = |field: &[libc::c_char]| {
        let bytes: Vec<u8> = field.iter().map(|c| *c as u8).collect();
        let length = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    (text(&names.release), text(&names.machine))
}

/// Read a clock, in nanoseconds.
pub fn clock(id: libc::clockid_t) -> i64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: t is ours; the clocks in use exist on every Linux.
    unsafe { libc::clock_gettime(id, &raw mut t) };
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

/// Return the length of a jiffy, the step of the coarse clocks.
pub fn jiffy_ns() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: t is ours; the clock exists on every Linux.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut t) };
    t.tv_nsec as u64
}

/// Return CLOCK_MONOTONIC and CLOCK_REALTIME of the same moment, to within the read itself.
pub fn clock_pair() -> (i64, i64) {
    let before = clock(libc::CLOCK_MONOTONIC);
    let real = clock(libc::CLOCK_REALTIME);
    let after = clock(libc::CLOCK_MONOTONIC);
    (before + (after - before) / 2, real)
}

/// Give this thread priority over others: on a machine with ten ready tasks per CPU the rings would
/// fill while it waits for its turn. It works some milliseconds a second. Without CAP_SYS_NICE
/// nothing changes.
pub fn come_first() {
    // SAFETY: plain numbers; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -10) };
}

/// Undo `come_first` for a thread that inherited the priority.
pub fn come_as_others() {
    // SAFETY: plain numbers. A lower priority that the operator gave us stays.
    unsafe {
        if libc::getpriority(libc::PRIO_PROCESS, 0) < 0 {
            libc::setpriority(libc::PRIO_PROCESS, 0, 0);
        }
    }
}

/// Return the bytes that disks read for this process so far, metadata included; `None` where they
/// are not counted.
pub fn bytes_read() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes: "))?;
    line.parse().ok()
}

/// Return the CPU time that this process has used, in nanoseconds.
pub fn cpu_time() -> i64 {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}
