// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of ranges, in order and apart from each other.

use std::ops::Range;

/// Whether the list has the number.
#[must_use]
pub fn has(list: &[Range<u64>], number: u64) -> bool {
    let after = list.partition_point(|range| range.end <= number);
    list.get(after).is_some_and(|range| range.contains(&number))
}

/// The list of the numbers that any ranges have.
#[must_use]
pub fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let meets = next.start <= last.end;
        if meets {
            last.end = last.end.max(next.end);
        }
        meets
    });
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_merged_and_found() {
        let single = |number| number..number + 1;
        let list = merged(vec![3..5, 9..10, single(5), single(1), 7..7, single(11), single(10)]);
        assert_eq!(list, [1..2, 3..6, 9..12]);
        assert_eq!(merged(vec![50..51, 10..100, 100..120, 130..131]), [10..120, 130..131]);
        let found: Vec<u64> = (0..13).filter(|number| has(&list, *number)).collect();
        assert_eq!(found, [1, 3, 4, 5, 9, 10, 11]);
    }
}
