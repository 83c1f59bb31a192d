//! filebench's varmail: each process removes, makes, appends to and reads files in one directory.

use crate::boxes::read_file;
use crate::processes::{self, Done, Worker};
use crate::random::Random;
use crate::report::Report;
use crate::{Needs, Place, Size, scaled};
use anyhow::{Context, Result};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::PathBuf;

const FILES: u64 = 1000;
const PROCESSES: u64 = 16;
/// Loops of all processes together.
const LOOPS: u64 = 16_000;
/// Mean size of a new file, and the largest append.
const MEAN: f64 = 16_384.0;
const MOST_APPENDED: u64 = 16_384;
const BUFFER: usize = 1 << 20;

const KINDS: &[&str] = &["remove", "create", "append", "read", "written_bytes"];
const REMOVE: u8 = 0;
const CREATE: u8 = 1;
const APPEND: u8 = 2;
const READ: u8 = 3;
const WRITTEN_BYTES: u8 = 4;

/// The steps, in this order.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Step {
    /// Make the files.
    Setup,
    /// All processes at once.
    Load,
}

/// Return the space that the load needs; a file that is not removed grows with each append.
pub fn needs(scale: f64) -> Needs {
    let appended = scaled(LOOPS, scale) * MOST_APPENDED / 2;
    Needs {
        bytes: files(scale) * MEAN as u64 + appended,
        names: files(scale) + 1,
        source_bytes: 0,
    }
}

/// Return the number of files, at least one for each process.
fn files(scale: f64) -> u64 {
    scaled(FILES, scale).max(PROCESSES)
}

/// Do a step.
pub fn run(step: Step, place: &Place) -> Result<Report> {
    match step {
        Step::Setup => setup(place),
        Step::Load => {
            let each = |number| {
                Worker::new("varmail", move |done: &mut Done| {
                    Mailer::new(place, number).work(done)
                })
            };
            processes::run((0..PROCESSES).map(each).collect(), KINDS)
        }
    }
}

fn directory(place: &Place) -> PathBuf {
    place.root.join("bigfileset")
}

fn setup(place: &Place) -> Result<Report> {
    let worker = Worker::new("setup", move |done: &mut Done| {
        fs::create_dir(directory(place))?;
        let mut random = Random::new(place.size.seed, 0);
        let content = vec![b'm'; BUFFER];
        for number in 0..files(place.size.scale) {
            let size = (random.gamma_1_5(MEAN) as usize).clamp(1, BUFFER);
            let path = directory(place).join(format!("{number:06}"));
            File::create_new(path)?.write_all(&content[..size])?;
            done.count(WRITTEN_BYTES, size as u64);
        }
        Ok(())
    });
    processes::run(vec![worker], KINDS)
}

/// One process with its own files among those of the others.
struct Mailer {
    directory: PathBuf,
    size: Size,
    number: u64,
    random: Random,
    buffer: Vec<u8>,
}

impl Mailer {
    fn new(place: &Place, number: u64) -> Self {
        Self {
            directory: directory(place),
            size: place.size,
            number,
            random: Random::new(place.size.seed, number + 1),
            buffer: vec![b'm'; BUFFER],
        }
    }

    fn work(mut self, done: &mut Done) -> Result<()> {
        let loops = (scaled(LOOPS, self.size.scale) / PROCESSES).max(1);
        for _ in 0..loops {
            let old = self.any();
            done.lap(REMOVE, || fs::remove_file(&old).context("remove"))?;
            let size = (self.random.gamma_1_5(MEAN) as usize).clamp(1, BUFFER);
            done.lap(CREATE, || {
                let mut file = File::create_new(&old).context("make")?;
                file.write_all(&self.buffer[..size])?;
                Ok(file.sync_all()?)
            })?;
            let (other, more) = (self.any(), 1 + self.random.below(MOST_APPENDED) as usize);
            done.lap(APPEND, || {
                let mut file = OpenOptions::new().read(true).append(true).open(&other)?;
                while file.read(&mut self.buffer)? > 0 {}
                file.write_all(&self.buffer[..more])?;
                Ok(file.sync_all()?)
            })?;
            done.count(WRITTEN_BYTES, (size + more) as u64);
            let other = self.any();
            done.lap(READ, || read_file(&other, &mut self.buffer))?;
        }
        Ok(())
    }

    /// Return one of its files: every sixteenth, beginning with its own number.
    fn any(&mut self) -> PathBuf {
        let own = (files(self.size.scale) - self.number).div_ceil(PROCESSES);
        let number = self.number + PROCESSES * self.random.below(own);
        self.directory.join(format!("{number:06}"))
    }
}
