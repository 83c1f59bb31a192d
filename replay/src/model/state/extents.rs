//! Written bytes of a file; the rest are holes.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Sorted, disjoint half-open ranges of bytes; most files have one, which is kept in place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extents(SmallVec<[(i64, i64); 1]>);

impl Extents {
    /// Adds a range, joining those it touches; returns how many bytes are new.
    pub fn add(&mut self, start: i64, end: i64) -> i64 {
        if end <= start {
            return 0;
        }
        if let Some(last) = self
            .0
            .last_mut()
            .filter(|last| last.0 <= start && start <= last.1)
        {
            let grown = end.saturating_sub(last.1).max(0);
            last.1 = last.1.max(end);
            return grown;
        }
        let first = self.0.partition_point(|range| range.1 < start);
        let past = self.0.partition_point(|range| range.0 <= end);
        let joined = match self.0.get(first..past) {
            Some([from, .., to]) => (start.min(from.0), end.max(to.1)),
            Some([only]) => (start.min(only.0), end.max(only.1)),
            _ => (start, end),
        };
        let before = bytes_of(self.0.drain(first..past.max(first)));
        self.0.insert(first, joined);
        bytes_of([joined]).saturating_sub(before)
    }

    /// Forgets everything from `end` on.
    pub fn cut(&mut self, end: i64) {
        self.0.retain(|range| range.0 < end);
        if let Some(last) = self.0.last_mut() {
            last.1 = last.1.min(end);
        }
    }

    /// Makes a hole.
    pub fn punch(&mut self, start: i64, end: i64) {
        if end <= start {
            return;
        }
        let cut = |range: &(i64, i64)| [(range.0, range.1.min(start)), (range.0.max(end), range.1)];
        self.0 = self
            .0
            .iter()
            .flat_map(cut)
            .filter(|range| range.0 < range.1)
            .collect();
    }

    /// How many bytes there are in all.
    pub fn bytes(&self) -> i64 {
        bytes_of(self.0.iter().copied())
    }

    pub fn ranges(&self) -> &[(i64, i64)] {
        &self.0
    }
}

/// Returns the sum of lengths; ranges of a hostile plan may add up to more than an i64 holds.
fn bytes_of(ranges: impl IntoIterator<Item = (i64, i64)>) -> i64 {
    let ranges = ranges.into_iter();
    let lengths = ranges.map(|(start, end)| end.saturating_sub(start));
    lengths.fold(0, i64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::Extents;

    #[test]
    fn ranges_join_and_are_cut() {
        let mut extents = Extents::default();
        let ranges = [(10, 20), (30, 40), (0, 5), (18, 31), (7, 8), (1, 4)];
        let new = ranges.map(|(start, end)| extents.add(start, end));
        assert_eq!(new, [10, 10, 5, 10, 1, 0]);
        assert_eq!(extents.ranges(), [(0, 5), (7, 8), (10, 40)]);
        extents.add(5, 7);
        assert_eq!(extents.ranges(), [(0, 8), (10, 40)]);
        extents.cut(12);
        assert_eq!(extents.ranges(), [(0, 8), (10, 12)]);
        extents.punch(2, 11);
        assert_eq!(extents.ranges(), [(0, 2), (11, 12)]);
        extents.punch(0, 0);
        assert_eq!(extents.ranges(), [(0, 2), (11, 12)]);
    }
}
