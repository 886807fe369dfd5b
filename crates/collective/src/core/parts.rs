//! How elements are divided among ranks.

use std::ops::Range;

/// Parts begin at multiples of this many elements: whole cache lines of `f32`.
const UNIT: usize = 16;

/// The elements of part `index` when `n` elements are divided among `ranks` ranks.
///
/// Parts are contiguous. Their lengths differ by at most one unit of 16 elements, the first parts are the longest, and
/// the last may be empty.
pub(crate) fn part(n: usize, ranks: usize, index: usize) -> Range<usize> {
    let units = n.div_ceil(UNIT);
    let (each, more) = (units / ranks, units % ranks);
    let start = |index: usize| n.min(UNIT * (each * index + more.min(index)));
    start(index)..start(index + 1)
}

#[cfg(test)]
mod tests {
    use super::{UNIT, part};

    #[test]
    fn parts_cover_all_and_differ_by_one_unit() {
        for ranks in 1..=9 {
            for n in [0, 1, 15, 16, 17, 31, 32, 33, 144, 145, 1000, 4096] {
                let parts: Vec<_> = (0..ranks).map(|index| part(n, ranks, index)).collect();
                assert_eq!(parts[0].start, 0);
                assert_eq!(parts[ranks - 1].end, n);
                for pair in parts.windows(2) {
                    assert_eq!(pair[0].end, pair[1].start);
                    assert!(pair[0].end % UNIT == 0 || pair[0].end == n);
                    assert!(pair[0].len() >= pair[1].len());
                }
                let units = |index: usize| parts[index].len().div_ceil(UNIT);
                assert!(units(0) - units(ranks - 1) <= 1, "{n} for {ranks}: {parts:?}");
            }
        }
    }
}
