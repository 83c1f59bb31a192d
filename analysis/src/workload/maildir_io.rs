//! C2004: unpack a directory of mails, make Maildirs, copy mails into them and read them.

use crate::boxes::{Boxes, Writing, read_file};
use crate::mail::{MEAN_BYTES, Mails};
use crate::processes::{self, Done, Worker};
use crate::program::{program, run as run_programs, source};
use crate::random::Random;
use crate::report::Report;
use crate::tar::Tar;
use crate::{Needs, Place, Size, scaled};
use anyhow::Result;
use std::io::Write;

/// Mails that are unpacked, and that writes copy.
const MAILS: u64 = 77_133;
const BOXES: u64 = 10_100;
const OPERATIONS: u64 = 10_000;
const WRITES: f64 = 0.8;

const KINDS: &[&str] = &["write", "read", "written_bytes", "read_bytes", "read_mails"];
const WRITE: u8 = 0;
const READ: u8 = 1;
const WRITTEN_BYTES: u8 = 2;
const READ_BYTES: u8 = 3;
const READ_MAILS: u8 = 4;

/// The steps, in this order.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Step {
    /// Unpack the directory of mails.
    Unpack,
    /// Make the mailboxes.
    Setup,
    /// Four writes to a read, at random; each line of a mail is written by itself.
    Io,
    /// The same with other random numbers; a mail is written at once.
    IoUnflushed,
    /// Read mailboxes at random.
    Reads,
}

/// Do a step.
pub fn run(step: Step, place: &Place) -> Result<Report> {
    match step {
        Step::Unpack => unpack(place),
        Step::Setup => setup(place),
        Step::Io => io(place, 1, true),
        Step::IoUnflushed => io(place, 2, false),
        Step::Reads => reads(place),
    }
}

/// Return the space that the load needs: two steps write, an operation delivers at most one mail.
pub fn needs(scale: f64) -> Needs {
    let mails = scaled(MAILS, scale) + 2 * scaled(OPERATIONS, scale);
    Needs {
        bytes: mails * MEAN_BYTES,
        names: mails + 4 * scaled(BOXES, scale),
        source_bytes: 0,
    }
}

fn name(number: u64) -> String {
    format!("write_src/{number:06}.eml")
}

/// Write the tar stream that is unpacked.
pub fn stream(size: Size, out: impl Write) -> Result<()> {
    let mails = Mails::new(size.seed);
    let mut tar = Tar::new(out);
    tar.directory("write_src/")?;
    for number in 0..scaled(MAILS, size.scale) {
        tar.file(&name(number), &mails.mail(number))?;
    }
    Ok(tar.end()?)
}

fn unpack(place: &Place) -> Result<Report> {
    let into = format!("--directory={}", place.root.display());
    let tar = program("tar", ["--extract", "--file=-", &into]);
    let commands = vec![source("maildir-io", place.size)?, tar];
    let (mut report, _) = run_programs(commands)?;
    report.count("files", scaled(MAILS, place.size.scale));
    Ok(report)
}

fn setup(place: &Place) -> Result<Report> {
    let boxes = Boxes::below(&place.root, place.format);
    let n = scaled(BOXES, place.size.scale);
    let maker = Worker::new("setup", move |_| boxes.make(n));
    let mut report = processes::run(vec![maker], KINDS)?;
    report.count("boxes", n);
    Ok(report)
}

fn io(place: &Place, turn: u64, by_line: bool) -> Result<Report> {
    let size = place.size;
    let mut boxes = Boxes::below(&place.root, place.format);
    let mut buffer = vec![0; 65_536];
    let how = Writing {
        by_line,
        synced: false,
    };
    let mails = Mails::new(size.seed);
    let worker = Worker::new("io", move |done: &mut Done| {
        let mut random = Random::new(size.seed, turn << 32);
        for number in 0..scaled(OPERATIONS, size.scale) {
            let to = random.below(scaled(BOXES, size.scale));
            if random.coin(WRITES) {
                let from = random.below(scaled(MAILS, size.scale));
                let mail = mails.mail(from);
                let called = format!("{}.M{turn}P1Q{number}.lab", 1_078_142_400 + number);
                done.lap(WRITE, || {
                    read_file(&place.root.join(name(from)), &mut buffer)?;
                    boxes.deliver(to, &called, &mail, how)
                })?;
                done.count(WRITTEN_BYTES, mail.len() as u64);
            } else {
                read(&mut boxes, to, done)?;
            }
        }
        Ok(())
    });
    processes::run(vec![worker], KINDS)
}

fn reads(place: &Place) -> Result<Report> {
    let size = place.size;
    let mut boxes = Boxes::below(&place.root, place.format);
    let worker = Worker::new("reads", move |done: &mut Done| {
        let mut random = Random::new(size.seed, 3 << 32);
        for _ in 0..scaled(OPERATIONS, size.scale) {
            let from = random.below(scaled(BOXES, size.scale));
            read(&mut boxes, from, done)?;
        }
        Ok(())
    });
    processes::run(vec![worker], KINDS)
}

fn read(boxes: &mut Boxes, number: u64, done: &mut Done) -> Result<()> {
    let found = done.lap(READ, || boxes.read_all(number))?;
    done.count(READ_BYTES, found.bytes);
    done.count(READ_MAILS, found.mails);
    Ok(())
}
