//! Values by a number, all in one array.

/// Returns the first place of each number below `n`, one more than there are numbers, and the values
/// of the pairs (number, value): those of one number follow each other in the order of the pairs.
pub fn grouped<T: Copy + Default>(
    n: usize,
    pairs: impl Iterator<Item = (u32, T)> + Clone,
) -> (Vec<u32>, Vec<T>) {
    let mut first = vec![0_u32; n + 1];
    for (number, _) in pairs.clone() {
        first[number as usize + 1] += 1;
    }
    for at in 0..n {
        first[at + 1] += first[at];
    }
    let mut next = first.clone();
    let mut values = vec![T::default(); first[n] as usize];
    for (number, value) in pairs {
        let place = &mut next[number as usize];
        values[*place as usize] = value;
        *place += 1;
    }
    (first, values)
}
