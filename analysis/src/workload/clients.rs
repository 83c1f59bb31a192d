//! C2007: clients of a mail server, as fast as possible, with the parameters of postal and rabid.

use crate::mail::Mails;
use crate::processes::{self, Done, Worker};
use crate::random::Random;
use crate::report::Report;
use crate::usage::now_ns;
use anyhow::{Context, Result, bail, ensure};
use spoolscope_traces::text::complain;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

/// postal -t 5 -c 3 -m 5: parallel connections, mails of each, most kB of a mail.
const SENDERS: u64 = 5;
const MAILS_A_CONNECTION: u64 = 3;
const MOST_BYTES: u64 = 5 << 10;
/// rabid -p 5 -c 5: parallel sessions, mails that each fetches and removes.
const READERS: u64 = 5;
const MAILS_A_SESSION: u64 = 5;
const PATIENCE: Duration = Duration::from_secs(60);
const AFTER_ERROR: Duration = Duration::from_millis(100);

const KINDS: &[&str] = &[
    "smtp",
    "pop",
    "smtp_bytes",
    "pop_bytes",
    "pop_mails",
    "smtp_errors",
    "pop_errors",
    "busy_ticks",
    "iowait_ticks",
    "all_ticks",
];
const SMTP: u8 = 0;
const POP: u8 = 1;
const SMTP_BYTES: u8 = 2;
const POP_BYTES: u8 = 3;
const POP_MAILS: u8 = 4;
const SMTP_ERRORS: u8 = 5;
const POP_ERRORS: u8 = 6;
const BUSY: u8 = 7;
const IOWAIT: u8 = 8;
const ALL: u8 = 9;

/// Arguments of a load.
#[derive(Debug, clap::Args)]
pub struct Asked {
    #[arg(long)]
    smtp: u16,
    #[arg(long)]
    pop3: u16,
    #[arg(long)]
    users: u64,
    #[arg(long)]
    password: String,
    /// What comes before and after the number of a user's name, which has four digits.
    #[arg(long)]
    login: String,
    #[arg(long)]
    domain: String,
    /// Before anything is counted.
    #[arg(long)]
    warm_up: f64,
    #[arg(long)]
    seconds: f64,
    #[arg(long)]
    seed: u64,
    /// File for what became of it.
    #[arg(long)]
    pub report: PathBuf,
}

/// Send and read until the time is over.
pub fn run(asked: &Asked) -> Result<Report> {
    let mails = Mails::new(asked.seed);
    let mut workers = vec![Worker::new("vmstat", move |done: &mut Done| {
        watch(asked, done)
    })];
    for number in 0..SENDERS {
        let mails = &mails;
        workers.push(Worker::new("postal", move |done: &mut Done| {
            Client::new(asked, number).send(mails, done)
        }));
    }
    for number in 0..READERS {
        workers.push(Worker::new("rabid", move |done: &mut Done| {
            Client::new(asked, SENDERS + number).read(done)
        }));
    }
    processes::run(workers, KINDS)
}

/// Measure the CPU time of the machine between the warm-up and the end.
fn watch(asked: &Asked, done: &mut Done) -> Result<()> {
    std::thread::sleep(Duration::from_secs_f64(asked.warm_up));
    let before = ticks()?;
    std::thread::sleep(Duration::from_secs_f64(asked.seconds));
    let after = ticks()?;
    for kind in [BUSY, IOWAIT, ALL] {
        let at = usize::from(kind - BUSY);
        done.count(kind, after[at] - before[at]);
    }
    Ok(())
}

/// Return the ticks of user and system, of waiting for I/O, and of all.
fn ticks() -> Result<[u64; 3]> {
    let text = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
    let first = text.lines().next().unwrap_or_default();
    let all: Vec<u64> = first
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    ensure!(all.len() >= 8, "/proc/stat is not as it should be");
    let idle = all[3] + all[4];
    let sum: u64 = all[..8].iter().sum();
    Ok([sum - idle - all[7], all[4], sum])
}

/// One process, which runs one client session after the other.
struct Client<'a> {
    asked: &'a Asked,
    random: Random,
    number: u64,
    counts_from: u64,
    ends: u64,
    printed: Vec<u8>,
}

impl<'a> Client<'a> {
    fn new(asked: &'a Asked, number: u64) -> Self {
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        let counts_from = now_ns() + ns(asked.warm_up);
        Self {
            asked,
            random: Random::new(asked.seed, number + 1),
            number,
            counts_from,
            ends: counts_from + ns(asked.seconds),
            printed: Vec::new(),
        }
    }

    /// Return true within the measured time.
    fn counts(&self) -> bool {
        (self.counts_from..self.ends).contains(&now_ns())
    }

    fn user(&mut self) -> u64 {
        1 + self.random.below(self.asked.users)
    }

    fn send(mut self, mails: &Mails, done: &mut Done) -> Result<()> {
        let mut sent = 0;
        while now_ns() < self.ends {
            if let Err(error) = self.connection(mails, &mut sent, done) {
                self.failed(SMTP_ERRORS, &error, done);
            }
        }
        Ok(())
    }

    fn connection(&mut self, mails: &Mails, sent: &mut u64, done: &mut Done) -> Result<()> {
        let domain = &self.asked.domain.clone();
        let mut line = Line::to(self.asked.smtp)?;
        line.smtp(b'2')?;
        line.say("EHLO client.example.com")?;
        line.smtp(b'2')?;
        for _ in 0..MAILS_A_CONNECTION {
            if now_ns() >= self.ends {
                break;
            }
            let (from, to) = (self.user(), self.user());
            let size = self.random.below(MOST_BYTES) as usize;
            let mail = mails.of_size((self.number << 32) | *sent, size.max(200));
            *sent += 1;
            let begin = now_ns();
            for (words, wanted) in [
                (format!("MAIL FROM:<user{from:04}@{domain}>"), b'2'),
                (format!("RCPT TO:<user{to:04}@{domain}>"), b'2'),
                ("DATA".to_owned(), b'3'),
            ] {
                line.say(&words)?;
                line.smtp(wanted)?;
            }
            line.data(&mail)?;
            line.smtp(b'2')?;
            if self.counts() {
                done.add_lap(SMTP, now_ns() - begin);
                done.count(SMTP_BYTES, mail.len() as u64);
            }
        }
        line.say("QUIT")?;
        line.smtp(b'2')
    }

    fn read(mut self, done: &mut Done) -> Result<()> {
        while now_ns() < self.ends {
            let begin = now_ns();
            match self.session() {
                Ok((mails, bytes)) if self.counts() => {
                    done.add_lap(POP, now_ns() - begin);
                    done.count(POP_MAILS, mails);
                    done.count(POP_BYTES, bytes);
                }
                Ok(_) => (),
                Err(error) => self.failed(POP_ERRORS, &error, done),
            }
        }
        Ok(())
    }

    fn session(&mut self) -> Result<(u64, u64)> {
        let user = format!("user{:04}", self.user());
        let mut line = Line::to(self.asked.pop3)?;
        line.pop()?;
        line.say(&format!("USER {}", self.asked.login.replace("{}", &user)))?;
        line.pop()?;
        line.say(&format!("PASS {}", self.asked.password))?;
        line.pop()?;
        line.say("STAT")?;
        let there: u64 = line.pop()?.split(' ').nth(1).context("STAT")?.parse()?;
        let (mut mails, mut bytes) = (0, 0);
        for number in 1..=there.min(MAILS_A_SESSION) {
            line.say(&format!("RETR {number}"))?;
            line.pop()?;
            bytes += line.rest()?;
            line.say(&format!("DELE {number}"))?;
            line.pop()?;
            mails += 1;
        }
        line.say("QUIT")?;
        line.pop()?;
        Ok((mails, bytes))
    }

    /// Count a failure; it does not end the load, as two sessions of a user may conflict. Each
    /// client prints its first one of a kind.
    fn failed(&mut self, kind: u8, error: &anyhow::Error, done: &mut Done) {
        if self.counts() {
            done.count(kind, 1);
            if !self.printed.contains(&kind) {
                self.printed.push(kind);
                let kind = KINDS[usize::from(kind)];
                complain(&format!(
                    "spoolscope-workload: the first of {kind}: {error:#}"
                ));
            }
        }
        std::thread::sleep(AFTER_ERROR);
    }
}

/// A connection for sending and reading lines.
struct Line(BufReader<TcpStream>);

impl Line {
    fn to(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("connect")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn say(&mut self, words: &str) -> Result<()> {
        Ok(self
            .0
            .get_mut()
            .write_all(format!("{words}\r\n").as_bytes())?)
    }

    fn data(&mut self, mail: &[u8]) -> Result<()> {
        let mut sent = Vec::with_capacity(mail.len() + 200);
        for line in crate::mail::lines(mail) {
            if line.starts_with(b".") {
                sent.push(b'.');
            }
            sent.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
            sent.extend_from_slice(b"\r\n");
        }
        sent.extend_from_slice(b".\r\n");
        Ok(self.0.get_mut().write_all(&sent)?)
    }

    fn heard(&mut self) -> Result<String> {
        let mut said = Vec::new();
        self.0.read_until(b'\n', &mut said)?;
        ensure!(said.ends_with(b"\n"), "the server hung up");
        Ok(String::from_utf8_lossy(&said).trim_end().to_owned())
    }

    /// Read a reply of SMTP, perhaps of several lines.
    fn smtp(&mut self, wanted: u8) -> Result<()> {
        loop {
            let said = self.heard()?;
            if said.as_bytes().get(3) == Some(&b'-') {
                continue;
            }
            if said.as_bytes().first() != Some(&wanted) {
                bail!("{said}");
            }
            return Ok(());
        }
    }

    /// Read the first line of an answer of POP3.
    fn pop(&mut self) -> Result<String> {
        let said = self.heard()?;
        ensure!(said.starts_with("+OK"), "{said}");
        Ok(said)
    }

    /// Read the rest of an answer; return its number of bytes.
    fn rest(&mut self) -> Result<u64> {
        let mut bytes = 0;
        loop {
            let said = self.heard()?;
            if said == "." {
                return Ok(bytes);
            }
            bytes += said.len() as u64 + 2;
        }
    }
}
