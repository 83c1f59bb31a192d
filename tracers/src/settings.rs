//! Fills the BPF object's constants: calls, spools, tasks.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Result, bail};
use spoolscope_traces::calls::{self, Call, Effect};
use spoolscope_traces::error_code::{Code, Failure};

use crate::cli::{Options, UserCode};
use crate::host::{self, Spool};
use crate::kthreads;
use crate::mounts;
use crate::rings;
use crate::rollup::sum_tables;
use crate::skel::types;
use crate::targets::Targets;
use crate::tops::Tops;
use crate::ways::Ways;

const EXTRA_STAT: u8 = 1;
const EXTRA_STATX: u8 = 2;
const EXTRA_FLOCK: u8 = 3;
const EXTRA_IOV: u8 = 4;
const EXTRA_HOW: u8 = 5;
const EXTRA_CLONE: u8 = 6;
const EXTRA_ACL: u8 = 7;

const RETURNS_FD: u16 = 1;
const CLOSES: u16 = 2;
const TASK: u16 = 4;
const CHDIR: u16 = 8;
const ADDRESS: u16 = 16;
const EXEC: u16 = 32;
const NEVER_RETURNS: u16 = 64;
const ONLY_FD: u16 = 128;
const ONLY_PATH: u16 = 256;
const UMASK: u16 = 512;
const SOCKET: u16 = 1024;
const RANGE: u16 = 2048;
const ROOT: u16 = 4096;
const MOUNTS: u16 = 8192;

/// Write every constant.
pub fn apply(
    rodata: &mut types::rodata,
    spools: &[Spool],
    tops: &Tops,
    ways: &Ways,
    targets: &Targets,
    options: &Options,
) -> Result<()> {
    calls(rodata, options.user_stacks);
    spool_table(rodata, spools, tops)?;
    (rodata.own_heads.word, rodata.own_heads.mask) = (ways.heads.word, ways.heads.mask);
    rodata.own_heads.n = ways.heads.n;
    rodata.above = ways.bits();
    rodata.last_ring = rings::cpus()?;
    kthreads::apply(rodata, spools);
    rodata.jiffy_ns = host::jiffy_ns();
    rodata.sum_calls = options.rollup.is_some();
    rodata.no_records = options.only_sums();
    rodata.most_sums = sum_tables::CALLS.into();
    rodata.self_pid = std::process::id();
    let root = std::fs::metadata("/")?;
    (rodata.root_ino, rodata.root_dev) = (root.ino(), host::device(&root));
    rodata.root_mount = mounts::mount_id(Path::new("/"))?;
    rodata.stat_ino_at = std::mem::offset_of!(libc::stat, st_ino) as u32;
    rodata.stat_mode_at = std::mem::offset_of!(libc::stat, st_mode) as u32;
    rodata.stat_size_at = std::mem::offset_of!(libc::stat, st_size) as u32;
    rodata.filter_tasks = targets.named || !options.command.is_empty();
    filters(rodata, targets)
}

fn calls(rodata: &mut types::rodata, user: Option<UserCode>) {
    for call in calls::all() {
        let Some(nr) = calls::nr_of(call.name) else {
            continue;
        };
        let Some(slot) = rodata.call_of_nr.get_mut(nr as usize) else {
            continue;
        };
        *slot = call.id as u8 + 1;
        let asked = match user {
            None => false,
            Some(UserCode::Sync) => call.class == "sync",
            Some(UserCode::All) => true,
        };
        rodata.shapes[usize::from(call.id)] = types::call_shape {
            user_stack: asked.into(),
            ..shape(call)
        };
    }
}

fn shape(call: &Call) -> types::call_shape {
    let at = |word: &str| {
        call.args
            .iter()
            .position(|arg| *arg == word)
            .map_or(-1, |i| i as i8)
    };
    let (extra, extra_arg) = [
        ("stat", EXTRA_STAT),
        ("statx", EXTRA_STATX),
        ("flock", EXTRA_FLOCK),
        ("iov", EXTRA_IOV),
        ("how", EXTRA_HOW),
        ("clone", EXTRA_CLONE),
        ("acl", EXTRA_ACL),
    ]
    .iter()
    .find_map(|(word, extra)| (at(word) >= 0).then(|| (*extra, at(word))))
    .unwrap_or((0, -1));
    let mut shape = types::call_shape {
        fd: at("fd"),
        fd2: at("fd2"),
        dirfd: at("dirfd"),
        dirfd2: at("dirfd2"),
        path: at("path"),
        path2: at("path2"),
        text: at("target").max(at("name")),
        extra_arg,
        extra,
        at: at("at"),
        at2: at("at2"),
        flags: flags(call),
        size: if call.class == "data" { at("size") } else { -1 },
        // A budget may leave these out: they carry no name and change no name.
        is_data: u8::from(matches!(call.family, "read" | "write")),
        by_fd: by_descriptor(call).map_or(0, |other| other.id as u8 + 1),
        ..Default::default()
    };
    if shape.flags & (TASK | CHDIR | ADDRESS) == 0 {
        shape.flags |= match (shape.fd, shape.fd2, shape.dirfd, shape.path, shape.path2) {
            (0 | 4, -1, -1, -1, -1) => ONLY_FD,
            (-1, -1, -1, 0, -1) | (-1, -1, 0, 1, -1) => ONLY_PATH,
            _ => 0,
        };
    }
    shape
}

/// Return the call that changes by a descriptor what this one changes by a name: chmod and fchmod.
/// linkat does so itself.
fn by_descriptor(call: &Call) -> Option<&'static Call> {
    if call.name == "linkat" {
        return calls::all().iter().find(|other| other.name == call.name);
    }
    let changes = matches!(call.effect, Effect::Sets | Effect::Writes);
    let (first, rest) = call.args.split_first()?;
    let other = calls::all()
        .iter()
        .find(|other| other.name == format!("f{}", call.name))?;
    let (other_first, other_rest) = other.args.split_first()?;
    (changes && *first == "path" && *other_first == "fd" && rest == other_rest).then_some(other)
}

fn flags(call: &Call) -> u16 {
    let own = match call.effect {
        Effect::Closes if call.kind == "close_range" => CLOSES | RANGE,
        Effect::Closes => CLOSES,
        Effect::Enters => CHDIR,
        Effect::Roots => CHDIR | ROOT,
        Effect::Execs => TASK | EXEC,
        Effect::Exits => NEVER_RETURNS,
        Effect::Masks => TASK | UMASK,
        Effect::Mounts => MOUNTS,
        Effect::Makes if call.name == "bind" => SOCKET,
        _ if call.class == "map" && !call.args.contains(&"fd") => ADDRESS,
        _ if call.class == "task" || names_nothing(call) => TASK,
        _ => 0,
    };
    own | if call.returns_fd { RETURNS_FD } else { 0 }
}

/// True if no argument tells whether the call concerns the spool, as of sync.
fn names_nothing(call: &Call) -> bool {
    !["fd", "dirfd", "path"]
        .iter()
        .any(|word| call.args.contains(word))
}

/// List the spools' own disks first, then the devices that these are made of.
fn disk_table(rodata: &mut types::rodata, spools: &[Spool]) {
    let mut disks: Vec<u32> = spools.iter().flat_map(Spool::disks).collect();
    disks.sort_unstable();
    disks.dedup();
    disks.truncate(rodata.disks.len());
    rodata.n_own_disks = disks.len() as u32;
    for (slot, disk) in rodata.bdi_names.iter_mut().zip(&disks) {
        let mut name = [0u8; 16];
        let text = format!("{}:{}", disk >> 20, disk & 0xf_ffff);
        name[..text.len()].copy_from_slice(text.as_bytes());
        *slot = bytemuck::cast(name);
    }
    host::add_disks_below(&mut disks, rodata.disks.len());
    rodata.disks[..disks.len()].copy_from_slice(&disks);
    rodata.n_disks = disks.len() as u32;
}

fn spool_table(rodata: &mut types::rodata, spools: &[Spool], tops: &Tops) -> Result<()> {
    if spools.len() > rodata.spools.len() {
        bail!(Failure::new(
            Code::Failed,
            format!("at most {} spools in one recording", rodata.spools.len()),
            "name a directory above them, or record twice",
        ));
    }
    disk_table(rodata, spools);
    rodata.n_spools = spools.len() as u32;
    for ((slot, spool), top) in rodata.spools.iter_mut().zip(spools).zip(tops.descriptors()) {
        slot.dev = spool.dev;
        slot.part = top.is_some().into();
        slot.top_fd = top.unwrap_or(0);
        rodata.n_parts += slot.part;
    }
    Ok(())
}

fn filters(rodata: &mut types::rodata, targets: &Targets) -> Result<()> {
    if targets.cgroup_ids.len() > rodata.cgroup_ids.len()
        || targets.comms.len() > rodata.comms.len()
        || targets.exes.len() > rodata.exes.len()
    {
        bail!(Failure::new(
            Code::Usage,
            "at most 8 cgroups (--cgroup, --unit), 8 --comm and 8 --exe filters",
            "give fewer",
        ));
    }
    rodata.cgroup_ids[..targets.cgroup_ids.len()].copy_from_slice(&targets.cgroup_ids);
    rodata.n_cgroups = targets.cgroup_ids.len() as u32;
    for (slot, (dev, ino)) in rodata.exes.iter_mut().zip(&targets.exes) {
        (slot.dev, slot.ino) = (*dev, *ino);
    }
    rodata.n_exes = targets.exes.len() as u32;
    for (slot, comm) in rodata.comms.iter_mut().zip(&targets.comms) {
        for (to, from) in slot.iter_mut().zip(comm.bytes()) {
            *to = from as _;
        }
    }
    rodata.n_comms = targets.comms.len() as u32;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = include_str!("bpf/state.bpf.h");

    /// Return the value of an enumerator in the header.
    fn in_c(name: &str) -> u32 {
        let mut next = 0;
        for line in HEADER.lines().map(str::trim) {
            if line.starts_with("enum ") {
                next = 0;
                continue;
            }
            let word = line.split(['=', ',', ' ']).next().unwrap_or_default();
            let enumerator =
                line.contains(',') && word.chars().all(|c| c == '_' || c.is_ascii_uppercase());
            if word.is_empty() || !enumerator {
                continue;
            }
            let given = line
                .split_once('=')
                .and_then(|(_, rest)| rest.split(',').next());
            next = given.map_or(next, |number| number.trim().parse().expect("a number"));
            if word == name {
                return next;
            }
            next += 1;
        }
        panic!("no enumerator {name} in state.bpf.h");
    }

    #[test]
    fn calls_by_name_know_those_by_descriptor() {
        let found: Vec<(&str, &str)> = calls::all()
            .iter()
            .filter_map(|call| Some((call.name, by_descriptor(call)?.name)))
            .collect();
        let expected = [
            ("truncate", "ftruncate"),
            ("linkat", "linkat"),
            ("chmod", "fchmod"),
            ("chown", "fchown"),
            ("setxattr", "fsetxattr"),
            ("removexattr", "fremovexattr"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn numbers_are_those_of_the_kernel_side() {
        let extras = [
            ("EXTRA_STAT", EXTRA_STAT),
            ("EXTRA_STATX", EXTRA_STATX),
            ("EXTRA_FLOCK", EXTRA_FLOCK),
            ("EXTRA_IOV", EXTRA_IOV),
            ("EXTRA_HOW", EXTRA_HOW),
            ("EXTRA_CLONE", EXTRA_CLONE),
            ("EXTRA_ACL", EXTRA_ACL),
        ];
        for (name, number) in extras {
            assert_eq!(u32::from(number), in_c(name), "{name}");
        }
        let shapes = [
            ("SHAPE_RETURNS_FD", RETURNS_FD),
            ("SHAPE_CLOSES", CLOSES),
            ("SHAPE_TASK", TASK),
            ("SHAPE_CHDIR", CHDIR),
            ("SHAPE_ADDRESS", ADDRESS),
            ("SHAPE_EXEC", EXEC),
            ("SHAPE_NEVER_RETURNS", NEVER_RETURNS),
            ("SHAPE_ONLY_FD", ONLY_FD),
            ("SHAPE_ONLY_PATH", ONLY_PATH),
            ("SHAPE_UMASK", UMASK),
            ("SHAPE_SOCKET", SOCKET),
            ("SHAPE_RANGE", RANGE),
            ("SHAPE_ROOT", ROOT),
            ("SHAPE_MOUNTS", MOUNTS),
        ];
        for (name, number) in shapes {
            assert_eq!(u32::from(number), in_c(name), "{name}");
        }
        let all = HEADER.lines().map(str::trim);
        let defined = all
            .filter(|l| l.starts_with("SHAPE_") || l.starts_with("EXTRA_"))
            .count();
        assert_eq!(
            defined,
            extras.len() + shapes.len() + 1,
            "but for EXTRA_NONE"
        );
    }
}
