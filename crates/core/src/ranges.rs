// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of ranges, in order and apart from each other.

use std::ops::Range;

/// Whether the list has the number.
#[must_use]
pub fn has(list: &[Range<u64>], number: u64) -> bool {
    let after = list.partition_point(|range| range.end <= number);
    list.get(after).is_some_and(|range| range.contains(&number))
}

/// Whether the list has a number of a range.
#[must_use]
pub fn has_any(list: &[Range<u64>], range: &Range<u64>) -> bool {
    let after = list.partition_point(|other| other.end <= range.start);
    list.get(after).is_some_and(|other| other.start < range.end)
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

/// The parts of a list that lie within a range.
#[must_use]
pub fn within(list: &[Range<u64>], bounds: &Range<u64>) -> Vec<Range<u64>> {
    let part = |range: &Range<u64>| range.start.max(bounds.start)..range.end.min(bounds.end);
    list.iter().map(part).filter(|part| !part.is_empty()).collect()
}

/// What a list has and another does not.
#[must_use]
pub fn without(list: &[Range<u64>], other: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut rest = Vec::new();
    let mut others = other.iter().peekable();
    for range in list {
        let mut start = range.start;
        while others.next_if(|gone| gone.end <= start).is_some() {}
        let mut within = others.clone();
        while let Some(gone) = within.next_if(|gone| gone.start < range.end) {
            rest.push(start..gone.start.max(start));
            start = gone.end;
        }
        rest.push(start..range.end);
    }
    rest.retain(|range| !range.is_empty());
    rest
}

/// The ranges in their order, cut at multiples of so many bytes.
pub fn windows(ranges: &[Range<u64>], bytes: u64) -> impl Iterator<Item = Range<u64>> + '_ {
    ranges.iter().flat_map(move |range| {
        let first = range.start / bytes;
        (first..range.end.div_ceil(bytes))
            .map(move |window| range.start.max(window * bytes)..range.end.min((window + 1) * bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_have_is_left_out() {
        let list = [0..10, 20..30, 40..50];
        assert_eq!(without(&list, &[]), list);
        assert_eq!(without(&list, &[5..25, 27..28, 30..40]), [0..5, 25..27, 28..30, 40..50]);
        assert_eq!(without(&list, &[0..3, 9..41, 50..60]), [3..9, 41..50]);
        assert_eq!(without(&list, std::slice::from_ref(&(0..100))), [0..0; 0]);
    }

    #[test]
    fn parts_within_bounds() {
        let list = [0..10, 20..30];
        let found = |range| has_any(&list, &range);
        assert!(found(9..10) && found(5..40) && !found(10..20) && !found(30..31));
        assert_eq!(within(&[0..10, 20..30, 40..50], &(5..40)), [5..10, 20..30]);
    }

    #[test]
    fn ranges_are_merged_and_found() {
        let single = |number| number..number + 1;
        let list = merged(vec![3..5, 9..10, single(5), single(1), 7..7, single(11), single(10)]);
        assert_eq!(list, [1..2, 3..6, 9..12]);
        assert_eq!(merged(vec![50..51, 10..100, 100..120, 130..131]), [10..120, 130..131]);
        let found: Vec<u64> = (0..13).filter(|number| has(&list, *number)).collect();
        assert_eq!(found, [1, 3, 4, 5, 9, 10, 11]);
    }

    #[test]
    fn windows_cover_each_range_once_in_order() {
        let ranges = [5..25, 100..110, 30..40];
        let found: Vec<_> = windows(&ranges, 10).collect();
        assert_eq!(found, [5..10, 10..20, 20..25, 100..110, 30..40]);
        assert_eq!(windows(&[], 10).count(), 0);
    }
}
