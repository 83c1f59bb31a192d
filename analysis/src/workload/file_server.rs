//! C2006: the tasks of a file server, by the usual programs.

use crate::program::{program, run as run_programs, run_to_file};
use crate::random::Random;
use crate::report::Report;
use crate::usage::now_ns;
use crate::{Needs, Place, Size, scaled};
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

const ISO_BYTES: u64 = 700_000_000;
const FILES: u64 = 7500;
const DIRECTORIES: u64 = 900;
/// Files are from 10 kB to 5 MB; the exponent makes them 1.9 GB together.
const LEAST: f64 = 10e3;
const MOST: f64 = 5e6;
const TREE_BYTES: u64 = 1_900_000_000;
const EXPONENT: f64 = 3.83;
const POOL_BYTES: usize = 8 << 20;
/// One of so many directories has subdirectories.
const A_DIRECTORY: u64 = 30;

/// The steps, in this order.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Step {
    /// Make the large file and the tree on the other disk; it is no task.
    Source,
    /// Copy the large file from there.
    IsoCopy,
    /// Copy it on the disk.
    IsoRecopy,
    /// Remove both.
    IsoRemove,
    /// Copy the tree from there.
    TreeCopy,
    /// Copy it on the disk.
    TreeRecopy,
    /// List it into a file on the disk.
    List,
    /// Find files by a wildcard.
    Find,
    /// Remove both trees.
    TreeRemove,
}

/// Return the space that the load needs: everything twice, and once elsewhere.
pub fn needs(scale: f64) -> Needs {
    let (iso, tree) = (scaled(ISO_BYTES, scale), scaled(TREE_BYTES, scale));
    Needs {
        bytes: 2 * iso.max(tree),
        names: 2 * (scaled(FILES, scale) + scaled(DIRECTORIES, scale)),
        source_bytes: iso + tree,
    }
}

/// Do a step; `source` is a directory on another disk.
pub fn run(step: Step, source: &Path, place: &Place) -> Result<Report> {
    let root = &place.root;
    let at = |name: &str| root.join(name);
    match step {
        Step::Source => make_source(source, place.size),
        Step::IsoCopy => copied(&source.join("large.iso"), &at("large.iso")),
        Step::IsoRecopy => copied(&at("large.iso"), &at("copy.iso")),
        Step::IsoRemove => removed(&[at("large.iso"), at("copy.iso")]),
        Step::TreeCopy => copied(&source.join("tree"), &at("tree")),
        Step::TreeRecopy => copied(&at("tree"), &at("copy")),
        Step::List => {
            let list = File::create_new(at("list")).context("make the list")?;
            let mut ls = program("ls", ["-lR"]);
            ls.arg(at("tree")).arg(at("copy")).stdout(list);
            run_to_file(ls)
        }
        Step::Find => {
            let mut find = program("find", [root]);
            find.args(["-name", "*7*.dat"]);
            let (mut report, said) = run_programs(vec![find])?;
            report.count("found", said.lines().count() as u64);
            Ok(report)
        }
        Step::TreeRemove => removed(&[at("tree"), at("copy"), at("list")]),
    }
}

fn copied(from: &Path, to: &Path) -> Result<Report> {
    let words = ["--recursive", "--reflink=never"];
    let mut cp = program("cp", words);
    cp.arg(from).arg(to);
    Ok(run_programs(vec![cp])?.0)
}

fn removed(places: &[PathBuf]) -> Result<Report> {
    let mut rm = program("rm", ["--recursive"]);
    rm.args(places);
    Ok(run_programs(vec![rm])?.0)
}

fn make_source(source: &Path, size: Size) -> Result<Report> {
    let begin = now_ns();
    let mut random = Random::new(size.seed, 0);
    let pool: Vec<u8> = (0..POOL_BYTES / 8)
        .flat_map(|_| random.next().to_le_bytes())
        .collect();
    let mut report = Report::default();
    let iso = scaled(ISO_BYTES, size.scale);
    fill(&source.join("large.iso"), iso, 0, &pool)?;
    report.count("iso_bytes", iso);
    let directories = scaled(DIRECTORIES, size.scale);
    for number in 0..directories {
        fs::create_dir_all(directory(source, number))?;
    }
    for number in 0..scaled(FILES, size.scale) {
        let bytes = (LEAST * (MOST / LEAST).powf(random.unit().powf(EXPONENT))) as u64;
        let name = format!("file{number:05}.dat");
        let path = directory(source, number % directories).join(name);
        fill(&path, bytes, random.below(POOL_BYTES as u64), &pool)?;
        report.count("files", 1);
        report.count("tree_bytes", bytes);
    }
    report.count("directories", directories);
    report.wall_ns = now_ns() - begin;
    Ok(report)
}

/// Return the path of a directory; some lie in others.
fn directory(source: &Path, number: u64) -> PathBuf {
    let group = source
        .join("tree")
        .join(format!("group{:02}", number / A_DIRECTORY));
    if number % A_DIRECTORY == 0 {
        group
    } else {
        group.join(format!("dir{number:03}"))
    }
}

fn fill(path: &Path, bytes: u64, from: u64, pool: &[u8]) -> Result<()> {
    let mut file = File::create_new(path).with_context(|| format!("make {}", path.display()))?;
    let mut left = bytes;
    let mut at = from as usize % pool.len();
    while left > 0 {
        let piece = left.min((pool.len() - at) as u64) as usize;
        file.write_all(&pool[at..at + piece])?;
        left -= piece as u64;
        at = 0;
    }
    Ok(())
}
