//! Data and holes of a file at the start: the snapshot shows how many bytes there are, calls show
//! where some of them lie.

use crate::model::state::extents::Extents;

/// Most stretches that are remembered of a file: each look at it goes through all.
const MOST: usize = 1024;
/// Least length of data or of a hole on most filesystems.
pub const BLOCK: i64 = 4096;

/// Knowledge about the holes of a file.
#[derive(Clone, Debug, Default)]
pub struct Holes {
    bytes: i64,
    data: Extents,
    hollow: Extents,
}

impl Holes {
    /// Returns the holes of a file that has this many bytes in holes.
    pub fn of(bytes: i64) -> Self {
        Self {
            bytes,
            ..Self::default()
        }
    }

    /// Returns whether no more can be learnt.
    pub fn is_full(&self) -> bool {
        self.data.ranges().len() + self.hollow.ranges().len() >= MOST
    }

    /// Learns that SEEK_DATA from `from` on found data at `at`, or none before the end of the file.
    pub fn data_at(&mut self, from: i64, at: Option<i64>) {
        self.no_data(from, at.unwrap_or(i64::MAX));
        if let Some(at) = at {
            self.some_data(at, block_after(at));
        }
    }

    /// Learns that SEEK_HOLE from `from` on found a hole at `at`; the end of the file is one, too.
    pub fn hole_at(&mut self, from: i64, at: i64) {
        self.some_data(from, at);
        self.no_data(at, block_after(at));
    }

    fn some_data(&mut self, start: i64, end: i64) {
        self.hollow.punch(start, end);
        self.data.add(start, end);
    }

    fn no_data(&mut self, start: i64, end: i64) {
        self.data.punch(start, end);
        self.hollow.add(start, end);
    }

    /// Returns the data of a file of this size: what calls found, and the rest, whose place is not
    /// known, as near to the beginning as no call found a hole.
    pub fn data(&self, size: i64) -> Extents {
        let mut data = self.data.clone();
        data.cut(size);
        let mut rest = size - self.bytes - data.bytes();
        let mut known = self.hollow.clone();
        for (start, end) in data.ranges().iter().copied().chain([(size, i64::MAX)]) {
            known.add(start, end);
        }
        let mut at = 0;
        for (start, end) in known.ranges() {
            let more = (start.min(&size) - at).min(rest);
            if more > 0 {
                data.add(at, at + more);
                rest -= more;
            }
            at = *end;
        }
        data
    }
}

fn block_after(at: i64) -> i64 {
    at.saturating_add(BLOCK - at % BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: i64 = 1 << 40;

    #[test]
    fn what_nobody_found_lies_at_the_beginning() {
        let holes = Holes::of(FAR - 8192);
        assert_eq!(holes.data(FAR).ranges(), [(0, 8192)]);
        // The file has grown since it was seen, or was cut.
        assert_eq!(holes.data(FAR + 10).ranges(), [(0, 8202)]);
        assert_eq!(holes.data(100).ranges(), []);
    }

    #[test]
    fn found_data_stays_and_the_rest_keeps_out_of_found_holes() {
        let mut holes = Holes::of(FAR - 3 * 4096);
        holes.data_at(0, Some(8192));
        holes.hole_at(8192, 12_288);
        let data = [(8192, 12_288), (16_384, 24_576)];
        assert_eq!(holes.data(FAR).ranges(), data);
        holes.data_at(12_288, Some(FAR - 4096));
        holes.hole_at(FAR - 4096, FAR);
        let data = [(8192, 12_288), (FAR - 4096, FAR)];
        assert_eq!(holes.data(FAR).ranges(), data);
    }

    #[test]
    fn a_file_may_be_nothing_but_a_hole() {
        let mut holes = Holes::of(0);
        holes.data_at(0, None);
        assert_eq!(holes.data(1 << 20).ranges(), []);
    }

    #[test]
    fn a_file_without_holes_is_whole() {
        let mut holes = Holes::of(0);
        assert_eq!(holes.data(5000).ranges(), [(0, 5000)]);
        holes.hole_at(0, 5000);
        assert_eq!(holes.data(5000).ranges(), [(0, 5000)]);
        assert_eq!(holes.data(0).ranges(), []);
    }
}
