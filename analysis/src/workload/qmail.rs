//! qmail: mail delivered by link and unlink, fetched and removed by POP3.

use crate::boxes::{Boxes, Format};
use crate::mail::{MEAN_BYTES, Mails};
use crate::processes::{self, Done, Worker, forked};
use crate::random::Random;
use crate::report::Report;
use crate::{Needs, Place, scaled};
use anyhow::{Context, Result, bail};
use std::env::set_current_dir;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const BOXES: u64 = 1000;
const MAILS: u64 = 20_000;
/// Parallel deliveries (concurrencylocal), and POP3 sessions.
const DELIVERERS: u64 = 10;
const SESSIONS: u64 = 5;
/// Buffers of qmail-local and qmail-pop3d.
const CHUNK: usize = 1024;
/// Age of an abandoned mail in tmp, seconds.
const TOO_OLD: i64 = 36 * 3600;

const KINDS: &[&str] = &["deliver", "session", "written_bytes"];
const DELIVER: u8 = 0;
const SESSION: u8 = 1;
const WRITTEN_BYTES: u8 = 2;

/// The steps, in this order.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Step {
    /// Make the Maildirs.
    Setup,
    /// Deliver all mails.
    Deliver,
    /// Fetch and remove all of them.
    Pop3,
}

/// Return the space that the load needs.
pub fn needs(scale: f64) -> Needs {
    let mails = scaled(MAILS, scale);
    Needs {
        bytes: mails * MEAN_BYTES,
        names: mails + 4 * scaled(BOXES, scale),
        source_bytes: 0,
    }
}

/// Do a step.
pub fn run(step: Step, place: &Place) -> Result<Report> {
    let boxes = scaled(BOXES, place.size.scale);
    let mails = &Mails::new(place.size.seed);
    let workers = match step {
        Step::Setup => vec![Worker::new("setup", move |_| {
            Boxes::below(&place.root, Format::Maildir).make(boxes)
        })],
        Step::Deliver => (0..DELIVERERS)
            .map(|number| {
                Worker::new("qmail-lspawn", move |done: &mut Done| {
                    deliver_share(place, mails, number, done)
                })
            })
            .collect(),
        Step::Pop3 => (0..SESSIONS)
            .map(|number| {
                Worker::new("tcpserver", move |done: &mut Done| {
                    let at = Boxes::below(&place.root, Format::Maildir);
                    for one in (number..boxes).step_by(SESSIONS as usize) {
                        let maildir = at.place(one);
                        done.lap(SESSION, || forked(|| session(&maildir)))?;
                    }
                    Ok(())
                })
            })
            .collect(),
    };
    processes::run(workers, KINDS)
}

fn deliver_share(place: &Place, mails: &Mails, deliverer: u64, done: &mut Done) -> Result<()> {
    let boxes = Boxes::below(&place.root, Format::Maildir);
    let mut random = Random::new(place.size.seed, deliverer + 1);
    for number in (deliverer..scaled(MAILS, place.size.scale)).step_by(DELIVERERS as usize) {
        let to = boxes.place(random.below(scaled(BOXES, place.size.scale)));
        let mail = mails.mail(number);
        let name = format!("{}.{}.lab", 1_078_142_400 + number, 10_000 + number);
        done.lap(DELIVER, || forked(|| deliver(&to, &name, &mail)))?;
        done.count(WRITTEN_BYTES, mail.len() as u64);
    }
    Ok(())
}

/// Deliver as the child of qmail-local does.
fn deliver(maildir: &Path, name: &str, mail: &[u8]) -> Result<()> {
    set_current_dir(maildir).with_context(|| format!("enter {}", maildir.display()))?;
    let (draft, new) = (format!("tmp/{name}"), format!("new/{name}"));
    match fs::metadata(&draft) {
        Err(error) if error.kind() == ErrorKind::NotFound => (),
        _ => bail!("{draft} is there already"),
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)?;
    file.write_all(b"Return-Path: <sender@example.org>\nDelivered-To: user@example.com\n")?;
    for chunk in mail.chunks(CHUNK) {
        file.write_all(chunk)?;
    }
    file.sync_all()?;
    drop(file);
    fs::hard_link(&draft, &new)?;
    Ok(fs::remove_file(&draft)?)
}

/// Fetch and remove all mails as qmail-pop3d does.
fn session(maildir: &Path) -> Result<()> {
    set_current_dir(maildir).with_context(|| format!("enter {}", maildir.display()))?;
    let now = fs::metadata(".")?.ctime();
    for name in listed("tmp")? {
        if now > fs::metadata(&name)?.atime() + TOO_OLD {
            fs::remove_file(&name)?;
        }
    }
    let mut found = Vec::new();
    for directory in ["new", "cur"] {
        for name in listed(directory)? {
            fs::metadata(&name)?; // for its time
            found.push(name);
        }
    }
    found.sort(); // names begin with a time
    for name in &found {
        fs::metadata(name)?; // for its size
    }
    let mut buffer = [0; CHUNK];
    for name in &found {
        let mut file = File::open(name)?;
        while file.read(&mut buffer)? > 0 {}
    }
    for name in &found {
        fs::remove_file(name)?;
    }
    Ok(())
}

fn listed(directory: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        found.push(entry?.path());
    }
    Ok(found)
}
