//! Disks side by side: one, or a RAID 5 that reads before it writes a part of a stripe.

use super::arm::{Arm, Ticket};
use super::spec::Rotating;
use crate::delays::Kind;
use anyhow::{Result, ensure};
use std::sync::Arc;

/// The members with their layout.
#[derive(Debug)]
pub struct Array {
    arms: Vec<Arc<Arm>>,
    stripe: u64,
}

/// A part of a request on one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    member: usize,
    offset: u64,
    bytes: u64,
}

impl Array {
    pub fn new(spec: &Rotating, bytes: u64) -> Result<Self> {
        ensure!(
            spec.members == 1 || spec.members >= 3,
            "members are 1, or 3 and more for a RAID 5"
        );
        let positive = [spec.rpm, spec.outer_mb_s, spec.inner_mb_s, spec.bus_mb_s];
        ensure!(
            positive.iter().all(|x| x.is_finite() && *x > 0.0),
            "rotations and rates are positive"
        );
        ensure!(
            spec.seek_ms.is_sorted() && spec.seek_ms[0] >= 0.0 && spec.command_us >= 0.0,
            "seek_ms rises from the next track to the whole disk"
        );
        ensure!(
            spec.queue_depth > 0 && spec.stripe_kib > 0,
            "queue_depth and stripe_kib are positive"
        );
        let data = (spec.members as u64 - 1).max(1);
        let member_bytes = bytes.div_ceil(data);
        let arms = (0..spec.members)
            .map(|i| Arm::start(spec, member_bytes, turn(spec.seed.wrapping_add(i as u64))))
            .collect::<std::io::Result<_>>()?;
        Ok(Self {
            arms,
            stripe: spec.stripe_kib << 10,
        })
    }

    /// Carry out a request; block until it is done.
    pub fn serve(&self, kind: Kind, offset: u64, bytes: u64) {
        match kind {
            Kind::Flush => self.arms.iter().for_each(|arm| arm.flush()),
            Kind::Read => self.all(false, &self.pieces(offset, bytes)),
            Kind::Write if self.arms.len() == 1 => self.all(true, &self.pieces(offset, bytes)),
            Kind::Write => self.write_stripes(offset, bytes),
        }
    }

    fn all(&self, write: bool, pieces: &[Piece]) {
        let given: Vec<(&Piece, Ticket)> = pieces
            .iter()
            .map(|piece| {
                (
                    piece,
                    self.arms[piece.member].submit(write, piece.offset, piece.bytes),
                )
            })
            .collect();
        for (piece, ticket) in given {
            self.arms[piece.member].wait(&ticket);
        }
    }

    /// Write rows: a part of one needs its old data and parity first.
    fn write_stripes(&self, offset: u64, bytes: u64) {
        let row_bytes = self.stripe * (self.arms.len() as u64 - 1);
        let (mut at, end) = (offset, offset + bytes);
        let (mut old, mut new) = (Vec::new(), Vec::new());
        while at < end {
            let until = end.min((at / row_bytes + 1) * row_bytes);
            let mut pieces = self.pieces(at, until - at);
            pieces.push(self.parity(&pieces, at / row_bytes));
            if until - at < row_bytes {
                old.extend_from_slice(&pieces);
            }
            new.append(&mut pieces);
            at = until;
        }
        self.all(false, &old);
        self.all(true, &new);
    }

    fn parity_member(&self, row: u64) -> usize {
        self.arms.len() - 1 - (row % self.arms.len() as u64) as usize
    }

    fn parity(&self, pieces: &[Piece], row: u64) -> Piece {
        let from = pieces.iter().map(|piece| piece.offset).min().unwrap_or(0);
        let to = pieces
            .iter()
            .map(|piece| piece.offset + piece.bytes)
            .max()
            .unwrap_or(0);
        Piece {
            member: self.parity_member(row),
            offset: from,
            bytes: to - from,
        }
    }

    /// Split a request at the borders of stripes (left-symmetric, as md has it).
    fn pieces(&self, offset: u64, bytes: u64) -> Vec<Piece> {
        if self.arms.len() == 1 {
            return vec![Piece {
                member: 0,
                offset,
                bytes,
            }];
        }
        let data = self.arms.len() as u64 - 1;
        let mut pieces = Vec::new();
        let (mut at, end) = (offset, offset + bytes);
        while at < end {
            let (chunk, within) = (at / self.stripe, at % self.stripe);
            let row = chunk / data;
            let after_parity = 1 + (chunk % data) as usize;
            let length = (self.stripe - within).min(end - at);
            pieces.push(Piece {
                member: (self.parity_member(row) + after_parity) % self.arms.len(),
                offset: row * self.stripe + within,
                bytes: length,
            });
            at += length;
        }
        pieces
    }
}

/// Return a place of the platter for a seed, 0 to 1.
fn turn(seed: u64) -> f64 {
    seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) as f64 / 2f64.powi(64)
}

#[cfg(test)]
mod tests {
    use super::super::geometry::tests::disk;
    use super::*;
    use std::time::Instant;

    const GIB: u64 = 1 << 30;

    fn raid() -> Array {
        let spec = Rotating {
            members: 3,
            ..disk()
        };
        Array::new(&spec, GIB).expect("valid")
    }

    #[test]
    fn a_row_has_each_member_once() {
        let array = raid();
        for row in 0..6 {
            let pieces = array.pieces(row * 32768, 32768);
            let mut members: Vec<usize> = pieces.iter().map(|piece| piece.member).collect();
            members.push(array.parity(&pieces, row).member);
            members.sort_unstable();
            assert_eq!(members, [0, 1, 2]);
        }
        let piece = array.pieces(40_000, 100)[0];
        assert_eq!((piece.offset, piece.bytes), (16384 + 7232, 100));
    }

    #[test]
    fn a_part_of_a_stripe_takes_a_turn_more_than_a_whole_one() {
        let array = raid();
        let took = |offset, bytes| {
            let began = Instant::now();
            array.serve(Kind::Write, offset, bytes);
            began.elapsed().as_secs_f64() * 1e3
        };
        let mean = |bytes| (1..9).map(|i| took(i * 64 * 32768, bytes)).sum::<f64>() / 8.0;
        let (part, whole) = (mean(4096), mean(32768));
        assert!(part > whole + 3.0, "{part} ms against {whole} ms");
    }

    #[test]
    fn writes_in_a_cache_are_answered_and_a_flush_waits_for_them() {
        let spec = Rotating {
            write_cache_kib: 8192,
            ..disk()
        };
        // A busy machine only adds to the time of answers, so the shortest of some is theirs.
        let times = [(); 5].map(|()| {
            let array = Array::new(&spec, GIB).expect("valid");
            let began = Instant::now();
            for i in 0..20 {
                array.serve(Kind::Write, i * 40_000_000, 4096);
            }
            let answered = began.elapsed().as_secs_f64();
            array.serve(Kind::Flush, 0, 0);
            let flushed = began.elapsed().as_secs_f64() - answered;
            (answered, flushed)
        });
        assert!(times.iter().any(|time| time.0 < 0.02), "{times:?}");
        assert!(times.iter().all(|time| time.1 > 0.02), "{times:?}");
    }

    #[test]
    fn nonsense_is_refused() {
        for spec in [
            Rotating {
                members: 2,
                ..disk()
            },
            Rotating { rpm: 0.0, ..disk() },
            Rotating {
                seek_ms: [5.0, 1.0, 9.0],
                ..disk()
            },
        ] {
            assert!(Array::new(&spec, GIB).is_err());
        }
    }
}
