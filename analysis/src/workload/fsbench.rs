//! C2008: deliverers beside a reader, in stages with more and more deliverers.

use crate::boxes::{Boxes, Writing};
use crate::mail::{MEAN_BYTES, Mails};
use crate::processes::{self, Done, Worker};
use crate::random::Random;
use crate::report::Report;
use crate::shared::Counter;
use crate::{Needs, Place, scaled};
use anyhow::Result;

/// Number of deliverers of each stage.
pub const STAGES: [u64; 5] = [1, 2, 4, 8, 16];
const BOXES: u64 = 100_000;
/// Mails of each deliverer, and of the reader, in a stage.
const MAILS: u64 = 10_000;

const KINDS: &[&str] = &["deliver", "read", "written_bytes", "read_bytes"];
const DELIVER: u8 = 0;
const READ: u8 = 1;
const WRITTEN_BYTES: u8 = 2;
const READ_BYTES: u8 = 3;

/// The steps, in this order.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Step {
    /// Make the mailboxes, and deliver what the reader will read.
    Setup,
    /// Deliver and read at once.
    Stage,
}

/// Return the space that the load needs: delivered mails, and those for the reader.
pub fn needs(scale: f64) -> Needs {
    let mails = scaled(MAILS, scale) * (STAGES.iter().sum::<u64>() + STAGES.len() as u64);
    Needs {
        bytes: mails * MEAN_BYTES,
        names: mails + 4 * scaled(BOXES, scale),
        source_bytes: 0,
    }
}

/// Do a step; `deliverers` is their number in the stage.
pub fn run(step: Step, deliverers: u64, place: &Place) -> Result<Report> {
    match step {
        Step::Setup => setup(place),
        Step::Stage => stage(deliverers, place),
    }
}

/// Return box and name of the mail that the reader reads with this number in a stage.
fn awaited(place: &Place, stage: u64, number: u64) -> (u64, String) {
    let mut random = Random::new(place.size.seed, (stage << 48) | number);
    let to = random.below(scaled(BOXES, place.size.scale));
    (to, format!("1204372800.S{stage}R{number}.lab"))
}

fn setup(place: &Place) -> Result<Report> {
    let boxes = Boxes::below(&place.root, place.format);
    let mails = Mails::new(place.size.seed);
    let how = Writing {
        by_line: false,
        synced: false,
    };
    let worker = Worker::new("setup", move |done: &mut Done| {
        boxes.make(scaled(BOXES, place.size.scale))?;
        for stage in STAGES {
            for number in 0..scaled(MAILS, place.size.scale) {
                let (to, name) = awaited(place, stage, number);
                let mail = mails.mail((stage << 32) | number);
                boxes.deliver(to, &name, &mail, how)?;
                done.count(WRITTEN_BYTES, mail.len() as u64);
            }
        }
        Ok(())
    });
    processes::run(vec![worker], KINDS)
}

fn stage(deliverers: u64, place: &Place) -> Result<Report> {
    let delivered = Counter::new()?;
    let (delivered, mails) = (&delivered, &Mails::new(place.size.seed));
    let mut workers: Vec<Worker> = (0..deliverers)
        .map(|number| {
            Worker::new("deliver", move |done: &mut Done| {
                deliver(deliverers, number, place, mails, delivered, done)
            })
        })
        .collect();
    workers.push(Worker::new("read", move |done: &mut Done| {
        read(deliverers, place, delivered, done)
    }));
    processes::run(workers, KINDS)
}

fn deliver(
    stage: u64,
    deliverer: u64,
    place: &Place,
    mails: &Mails,
    delivered: &Counter,
    done: &mut Done,
) -> Result<()> {
    let boxes = Boxes::below(&place.root, place.format);
    let mut random = Random::new(place.size.seed, (1 << 63) | (stage << 32) | deliverer);
    let how = Writing {
        by_line: false,
        synced: true,
    };
    for number in 0..scaled(MAILS, place.size.scale) {
        let to = random.below(scaled(BOXES, place.size.scale));
        let name = format!("1204372800.S{stage}D{deliverer}Q{number}.lab");
        let mail = mails.mail((((stage << 16) | (deliverer + 1)) << 32) | number);
        done.lap(DELIVER, || boxes.deliver(to, &name, &mail, how))?;
        done.count(WRITTEN_BYTES, mail.len() as u64);
        delivered.add();
    }
    Ok(())
}

/// Read one mail after each mail of every deliverer, so that the reader keeps step with them.
fn read(stage: u64, place: &Place, delivered: &Counter, done: &mut Done) -> Result<()> {
    let mut boxes = Boxes::below(&place.root, place.format);
    for number in 0..scaled(MAILS, place.size.scale) {
        delivered.wait_for(number * stage)?;
        let (from, name) = awaited(place, stage, number);
        let bytes = done.lap(READ, || boxes.fetch(from, &name))?;
        done.count(READ_BYTES, bytes);
    }
    Ok(())
}
