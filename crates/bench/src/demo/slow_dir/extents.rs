// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where on the modelled disk the bytes of files lie.
//!
//! Purpose: seeks mean something only if files have places. A file gets extents as it is touched: the first of 64
//! KiB, each next one as long as all before it, 64 MiB at most. What a file gives back is taken again.
//!
//! Invariants: two files share no place while there is room; beyond that places come again, from the disk's start (the
//! model moves no data, so nothing but distances suffers). Memory is taken by what is touched, not by sizes.
//!
//! Why not the places that the file system below has: they say where on another disk the file lies, and need a
//! privilege and a system call each.

use std::collections::HashMap;
use std::ops::Range;

/// The first extent of a file, and its longest.
const FIRST_BYTES: u64 = 64 << 10;
const MOST_BYTES: u64 = 64 << 20;
/// Sizes of extents: doubled from the first to the longest.
const CLASSES: usize = 11;

/// Identifies a file below.
pub(super) type Key = (u64, u64);

/// See the module.
pub(super) struct Extents {
    bytes: u64,
    next: u64,
    /// Extents by file and number.
    places: HashMap<(Key, u64), u64>,
    /// The highest number that a file was given, so that it can be taken back.
    highest: HashMap<Key, u64>,
    /// What was given back, by size.
    free: [Vec<u64>; CLASSES],
}

/// Which extent an offset lies in: its number, and the part of the file that it is.
fn extent(offset: u64) -> (u64, Range<u64>) {
    if offset < FIRST_BYTES {
        return (0, 0..FIRST_BYTES);
    }
    if offset < MOST_BYTES {
        let start = 1 << offset.ilog2();
        return (u64::from(offset.ilog2() - FIRST_BYTES.ilog2()) + 1, start..start * 2);
    }
    let (whole, doubled) = (offset / MOST_BYTES, CLASSES as u64);
    (doubled + whole - 1, whole * MOST_BYTES..(whole + 1).saturating_mul(MOST_BYTES))
}

/// The size class of an extent of this number.
fn class(number: u64) -> usize {
    (number.saturating_sub(1) as usize).min(CLASSES - 1)
}

impl Extents {
    /// On a disk of so many bytes.
    pub fn new(bytes: u64) -> Self {
        let (places, highest) = (HashMap::new(), HashMap::new());
        Self { bytes: bytes.max(MOST_BYTES), next: 0, places, highest, free: Default::default() }
    }

    /// Gives a file that was there already its places, in their order.
    pub fn whole(&mut self, file: Key, size: u64) {
        if self.highest.contains_key(&file) {
            return;
        }
        let mut at = 0;
        // A sparse file may be said to be of any size; the rest of it gets its places as it is touched.
        while at < size.min(self.bytes) {
            let (number, part) = extent(at);
            self.place(file, number);
            at = part.end;
        }
    }

    /// The parts of the disk that a part of a file is.
    pub fn of(&mut self, file: Key, offset: u64, len: u64) -> Vec<(u64, u64)> {
        let mut parts: Vec<(u64, u64)> = Vec::new();
        let (mut at, end) = (offset, offset.saturating_add(len));
        while at < end {
            let (number, part) = extent(at);
            let bytes = part.end.min(end) - at;
            let place = self.place(file, number) + (at - part.start);
            match parts.last_mut() {
                Some((last, long)) if *last + *long == place => *long += bytes,
                _ => parts.push((place, bytes)),
            }
            at += bytes;
        }
        parts
    }

    /// The file is gone.
    pub fn forget(&mut self, file: Key) {
        let Some(highest) = self.highest.remove(&file) else { return };
        // Numbers of a sparse file may be far apart; those that it has are few.
        if highest > self.places.len() as u64 {
            self.places.retain(|(key, _), _| *key != file);
            return;
        }
        for number in 0..=highest {
            if let Some(place) = self.places.remove(&(file, number)) {
                self.free[class(number)].push(place);
            }
        }
    }

    fn place(&mut self, file: Key, number: u64) -> u64 {
        if let Some(place) = self.places.get(&(file, number)) {
            return *place;
        }
        let class = class(number);
        let place = self.free[class].pop().unwrap_or_else(|| {
            let bytes = FIRST_BYTES << class;
            if self.next + bytes > self.bytes {
                self.next = 0;
            }
            self.next += bytes;
            self.next - bytes
        });
        self.places.insert((file, number), place);
        let highest = self.highest.entry(file).or_default();
        *highest = number.max(*highest);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_follow_one_another() {
        let (mut at, mut number) = (0, 0);
        while at < 1 << 30 {
            let (found, part) = extent(at);
            assert_eq!((found, part.start), (number, at));
            assert_eq!(extent(part.end - 1), (found, part.clone()));
            let bytes = part.end - part.start;
            assert_eq!(bytes, FIRST_BYTES << class(number), "extent {number}");
            assert!(bytes <= MOST_BYTES);
            (at, number) = (part.end, number + 1);
        }
        assert!(extent(u64::MAX).1.contains(&(u64::MAX - 1)));
    }

    #[test]
    fn places_are_of_one_file_each_and_taken_again() {
        let mut extents = Extents::new(10 << 30);
        let (one, other) = ((1, 1), (1, 2));
        extents.whole(one, 300 << 20);
        let mut used: Vec<(u64, u64)> = extents.of(one, 0, 300 << 20);
        assert_eq!(used.iter().map(|(_, bytes)| bytes).sum::<u64>(), 300 << 20);
        used.extend(extents.of(other, 0, 200 << 20));
        used.sort_unstable();
        assert!(used.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{used:?}");
        let next = extents.next;
        extents.forget(one);
        extents.of((1, 3), 0, 300 << 20);
        assert_eq!(extents.next, next, "what was given back is used");
    }

    #[test]
    fn a_full_disk_begins_again_and_a_sparse_file_costs_little() {
        let mut extents = Extents::new(128 << 20);
        for file in 0..100 {
            let parts = extents.of((1, file), 0, 40 << 20);
            assert!(parts.iter().all(|(at, bytes)| at + bytes <= 128 << 20), "{parts:?}");
        }
        let before = extents.places.len();
        extents.of((2, 1), u64::MAX - 10, 20);
        extents.whole((2, 2), u64::MAX);
        assert!(extents.places.len() < before + 20);
        extents.forget((2, 1));
        extents.forget((2, 2));
        assert_eq!(extents.places.len(), before);
    }
}
