//! Locked bytes of a file.

/// Locked ranges, half-open; true if exclusive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<(i64, i64, bool)>);

impl Ranges {
    /// Locks a range, or with `None` unlocks it, as fcntl does: parts with another lock are
    /// replaced.
    pub fn set(&mut self, (start, end): (i64, i64), exclusive: Option<bool>) {
        let rest = |(from, to, kind): &(i64, i64, bool)| {
            [
                (*from, (*to).min(start), *kind),
                ((*from).max(end), *to, *kind),
            ]
        };
        let rest = self.0.iter().flat_map(rest);
        self.0 = rest.filter(|(from, to, _)| from < to).collect();
        if let Some(exclusive) = exclusive.filter(|_| start < end) {
            self.0.push((start, end, exclusive));
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (i64, i64, bool)> + '_ {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::Ranges;

    #[test]
    fn a_lock_replaces_and_an_unlock_splits() {
        let mut ranges = Ranges::default();
        ranges.set((0, i64::MAX), Some(true));
        ranges.set((10, 20), Some(false));
        ranges.set((15, 30), None);
        let mut left: Vec<_> = ranges.iter().collect();
        left.sort_unstable();
        assert_eq!(left, [(0, 10, true), (10, 15, false), (30, i64::MAX, true)]);
    }
}
