//! Mailboxes: Maildirs, or mbox files with locks.

use crate::mail::lines;
use anyhow::{Context, Result};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Mailboxes in one directory, below ext3's limit of subdirectories.
const A_DIRECTORY: u64 = 10_100;
const BUFFER: usize = 65_536;

/// Formats of mailboxes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Format {
    /// A directory, with a file for each mail.
    Maildir,
    /// A file with all mails, locked while it is used.
    Mbox,
}

/// Ways of writing a mail.
#[derive(Clone, Copy, Debug)]
pub struct Writing {
    /// One write per line, as by Perl with unbuffered output.
    pub by_line: bool,
    /// The file is synced before it gets its name, and the directory of that name afterwards.
    pub synced: bool,
}

/// All mailboxes of a load.
#[derive(Debug)]
pub struct Boxes {
    root: PathBuf,
    format: Format,
    buffer: Vec<u8>,
}

/// Result of reading a mailbox.
#[derive(Debug, Default)]
pub struct Fetched {
    /// Mails; those of an mbox are not counted one by one.
    pub mails: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Boxes {
    /// The mailboxes below a directory.
    pub fn below(root: &Path, format: Format) -> Self {
        Self {
            root: root.join("boxes"),
            format,
            buffer: vec![0; BUFFER],
        }
    }

    /// Return the path of a mailbox.
    pub fn place(&self, number: u64) -> PathBuf {
        let directory = self.root.join(format!("{:03}", number / A_DIRECTORY));
        directory.join(format!("u{number:06}"))
    }

    /// Make mailboxes, all of them empty.
    pub fn make(&self, n: u64) -> Result<()> {
        fs::create_dir(&self.root).context("make a directory for mailboxes")?;
        for number in 0..n {
            let place = self.place(number);
            if number % A_DIRECTORY == 0 {
                fs::create_dir(place.parent().unwrap_or(&place))?;
            }
            self.make_one(&place)
                .with_context(|| format!("make mailbox {}", place.display()))?;
        }
        Ok(())
    }

    fn make_one(&self, place: &Path) -> Result<()> {
        if self.format == Format::Mbox {
            File::create_new(place)?;
            return Ok(());
        }
        fs::create_dir(place)?;
        for name in ["cur", "new", "tmp"] {
            fs::create_dir(place.join(name))?;
        }
        Ok(())
    }

    /// Deliver a mail under a unique name.
    pub fn deliver(&self, number: u64, name: &str, mail: &[u8], how: Writing) -> Result<()> {
        let place = self.place(number);
        match self.format {
            Format::Maildir => deliver_file(&place, name, mail, how),
            Format::Mbox => append(&place, mail, how),
        }
        .with_context(|| format!("deliver to {}", place.display()))
    }

    /// List a mailbox and read all that is new in it.
    pub fn read_all(&mut self, number: u64) -> Result<Fetched> {
        let place = self.place(number);
        if self.format == Format::Mbox {
            let bytes = self.read_mbox(&place, false)?;
            return Ok(Fetched { mails: 0, bytes });
        }
        let mut found = Fetched::default();
        for name in listed(&place.join("new"))? {
            found.bytes += read_file(&name, &mut self.buffer)?;
            found.mails += 1;
        }
        Ok(found)
    }

    /// Fetch a mail as POP3 does, and remove it; an mbox is fetched as a whole.
    pub fn fetch(&mut self, number: u64, name: &str) -> Result<u64> {
        let place = self.place(number);
        if self.format == Format::Mbox {
            return self.read_mbox(&place, true);
        }
        let new = place.join("new");
        listed(&new)?;
        let mail = new.join(name);
        let bytes = read_file(&mail, &mut self.buffer)?;
        fs::remove_file(&mail).with_context(|| format!("remove {}", mail.display()))?;
        Ok(bytes)
    }

    fn read_mbox(&mut self, place: &Path, empty: bool) -> Result<u64> {
        let mut file = OpenOptions::new().read(true).write(empty).open(place)?;
        lock(&file, if empty { libc::F_WRLCK } else { libc::F_RDLCK })?;
        let bytes = read_open(&mut file, &mut self.buffer)?;
        if empty {
            file.set_len(0)?;
        }
        Ok(bytes)
    }
}

fn deliver_file(place: &Path, name: &str, mail: &[u8], how: Writing) -> Result<()> {
    let draft = place.join("tmp").join(name);
    let new = place.join("new");
    let mut file = File::create_new(&draft)?;
    write(&mut file, mail, how)?;
    drop(file);
    fs::rename(&draft, new.join(name))?;
    if how.synced {
        File::open(&new)?.sync_all().context("sync new")?;
    }
    Ok(())
}

fn append(place: &Path, mail: &[u8], how: Writing) -> Result<()> {
    let mut file = OpenOptions::new().read(true).write(true).open(place)?;
    lock(&file, libc::F_WRLCK)?;
    file.seek(SeekFrom::End(0))?;
    file.write_all(b"From sender@example.org Mon Mar  1 12:00:00 2004\n")?;
    write(&mut file, mail, how)
    // Closing the file releases the lock.
}

fn write(file: &mut File, mail: &[u8], how: Writing) -> Result<()> {
    if how.by_line {
        for line in lines(mail) {
            file.write_all(line)?;
        }
    } else {
        file.write_all(mail)?;
    }
    if how.synced {
        file.sync_all()?;
    }
    Ok(())
}

/// Names in a directory, in the order in which it lists them.
fn listed(place: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(place).with_context(|| format!("list {}", place.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

/// Read a file to its end; return its number of bytes.
pub fn read_file(path: &Path, buffer: &mut [u8]) -> Result<u64> {
    let mut file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    read_open(&mut file, buffer)
}

fn read_open(file: &mut File, buffer: &mut [u8]) -> Result<u64> {
    let mut bytes = 0;
    loop {
        match file.read(buffer)? {
            0 => return Ok(bytes),
            n => bytes += n as u64,
        }
    }
}

/// Wait for a POSIX lock on a whole file; closing the file releases it.
fn lock(file: &File, kind: libc::c_int) -> Result<()> {
    // SAFETY: a flock of zeros is one: the whole file.
    let mut asked: libc::flock = unsafe { std::mem::zeroed() };
    asked.l_type = kind as libc::c_short;
    asked.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the pointer is to a local.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLKW, &raw const asked) } != 0 {
        return Err(std::io::Error::last_os_error()).context("lock");
    }
    Ok(())
}
