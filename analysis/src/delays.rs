//! Delays of requests, by kind and place.

use anyhow::{Context, Result, bail};
use std::ops::Range;
use std::time::Duration;

/// Kind of a request to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Read of data.
    Read,
    /// Write of data.
    Write,
    /// Everything written so far must become durable.
    Flush,
}

impl Kind {
    /// Return the word for it in the log and in commands.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
        }
    }
}

/// Delays in force.
#[derive(Debug, Default)]
pub struct Delays {
    /// Delays by kind and place, latest last.
    set: Vec<(Kind, Range<u64>, Duration)>,
    modelled: bool,
    path: Duration,
}

impl Delays {
    /// Carry out one command: `clear`, `model on`, `model off`, `path NS`, or
    /// `KIND FROM TO DELAY_NS`.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["clear"] => self.set.clear(),
            ["model", "on"] => self.modelled = true,
            ["model", "off"] => self.modelled = false,
            ["path", path] => {
                self.path = Duration::from_nanos(path.parse().context(path.to_owned())?);
            }
            [kind, from, to, delay] => {
                let kind = [Kind::Read, Kind::Write, Kind::Flush]
                    .into_iter()
                    .find(|known| known.word() == kind)
                    .with_context(|| format!("{kind} is none of read, write, flush"))?;
                let place =
                    from.parse().context(from.to_owned())?..to.parse().context(to.to_owned())?;
                let delay = Duration::from_nanos(delay.parse().context(delay.to_owned())?);
                self.set.push((kind, place, delay));
            }
            _ => bail!("not KIND FROM TO DELAY_NS, nor clear, path NS, model on or model off"),
        }
        Ok(())
    }

    /// Return the time of a request without a delay if the device model is on, else `None`.
    pub fn modelled(&self) -> Option<Duration> {
        self.modelled.then_some(self.path)
    }

    /// Return the delay of a request for `bytes` at `offset`.
    pub fn of(&self, kind: Kind, offset: u64, bytes: u64) -> Duration {
        let touches = |place: &Range<u64>| offset < place.end && offset + bytes > place.start;
        self.set
            .iter()
            .rev()
            .find(|(k, place, _)| *k == kind && (kind == Kind::Flush || touches(place)))
            .map_or(Duration::ZERO, |(_, _, delay)| *delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(lines: &[&str]) -> Delays {
        let mut delays = Delays::default();
        for line in lines {
            delays.tell(line).expect("valid");
        }
        delays
    }

    #[test]
    fn a_request_waits_for_its_kind_and_place() {
        let delays = parsed(&["write 4096 8192 7", "flush 0 0 9"]);
        let of = |kind, offset, bytes| delays.of(kind, offset, bytes).as_nanos();
        assert_eq!(of(Kind::Write, 4096, 1), 7);
        assert_eq!(of(Kind::Write, 0, 4097), 7);
        assert_eq!(of(Kind::Write, 0, 4096), 0);
        assert_eq!(of(Kind::Write, 8192, 4096), 0);
        assert_eq!(of(Kind::Read, 4096, 1), 0);
        assert_eq!(of(Kind::Flush, 0, 0), 9);
    }

    #[test]
    fn the_latest_command_counts() {
        let mut delays = parsed(&["read 0 100 5", "read 50 60 0"]);
        assert_eq!(delays.of(Kind::Read, 50, 1).as_nanos(), 0);
        assert_eq!(delays.of(Kind::Read, 0, 1).as_nanos(), 5);
        delays.tell("clear").expect("valid");
        assert_eq!(delays.of(Kind::Read, 0, 1).as_nanos(), 0);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "",
            "erase 0 1 1",
            "read 0 1",
            "read 0 1 soon",
            "read -1 1 1",
        ] {
            assert!(Delays::default().tell(line).is_err(), "{line}");
        }
    }
}
