// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pool of page bitmaps for units that are partly valid.
//!
//! SCE keeps two 32-byte bitmaps per fragment. Here only a partly valid unit holds a bitmap, from this pool (design rule
//! 11).
//!
//! Invariants: a bitmap is either taken or on the free list. Memory grows in chunks with the most bitmaps ever taken at
//! once, at most one per slot. The bitmap returned last is taken first, so the pool stays compact.

/// Bitmaps per chunk; fewer in the last chunk if there are fewer slots.
const CHUNK: usize = 4096;

/// A pool of bitmaps of equal size.
#[derive(Debug)]
pub(crate) struct BitmapPool {
    words: usize,
    /// The most bitmaps that are taken at a time, one for each slot.
    most: usize,
    chunks: Vec<Vec<u64>>,
    /// First free bitmap, whose first word is the index of the next; `NONE` ends the list.
    free: u32,
    made: u32,
    out: u32,
}

const NONE: u32 = u32::MAX;

impl BitmapPool {
    /// A pool of bitmaps for so many slots of this many pages.
    pub(crate) fn new(pages: u32, slots: u32) -> Self {
        let words = pages.div_ceil(64) as usize;
        Self { words, most: slots as usize, chunks: Vec::new(), free: NONE, made: 0, out: 0 }
    }

    /// From now on there are so many slots, which are more.
    pub(crate) fn has_slots(&mut self, slots: u32) {
        self.most = slots as usize;
    }

    /// Bytes of one bitmap.
    pub(crate) fn bytes_each(pages: u32) -> u64 {
        u64::from(pages.div_ceil(64)) * 8
    }

    /// Bytes of memory that the pool uses: at most those of a bitmap for each slot.
    pub(crate) fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.len() as u64 * 8).sum()
    }

    /// Takes a bitmap with every bit set or every bit clear.
    pub(crate) fn take(&mut self, set: bool) -> u32 {
        let index = if self.free == NONE { self.make() } else { self.free };
        if index == self.free {
            self.free = self.get(index)[0] as u32;
        }
        self.out += 1;
        self.get_mut(index).fill(if set { u64::MAX } else { 0 });
        index
    }

    fn make(&mut self) -> u32 {
        let made = self.made as usize;
        debug_assert!(made < self.most, "a slot has one bitmap");
        let (chunk, within) = (made / CHUNK, made % CHUNK);
        if chunk == self.chunks.len() {
            self.chunks.push(Vec::new());
        }
        let held = &mut self.chunks[chunk];
        if within * self.words == held.len() {
            // The last one became too short when there were more slots.
            let bitmaps = self.most.saturating_sub(chunk * CHUNK).clamp(within + 1, CHUNK);
            held.reserve_exact(bitmaps * self.words - held.len());
            held.resize(bitmaps * self.words, 0);
        }
        self.made += 1;
        self.made - 1
    }

    /// Returns a bitmap to the pool.
    pub(crate) fn give_back(&mut self, index: u32) {
        let next = u64::from(self.free);
        self.get_mut(index)[0] = next;
        self.free = index;
        self.out -= 1;
    }

    /// A bitmap's words.
    pub(crate) fn get(&self, index: u32) -> &[u64] {
        let at = index as usize % CHUNK * self.words;
        &self.chunks[index as usize / CHUNK][at..at + self.words]
    }

    /// A bitmap's words, to change.
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut [u64] {
        let at = index as usize % CHUNK * self.words;
        &mut self.chunks[index as usize / CHUNK][at..at + self.words]
    }
}

/// Whether all bits of `words` in `range` are set.
pub(crate) fn all_set(words: &[u64], range: std::ops::Range<u32>) -> bool {
    masks(range).all(|(word, mask)| words[word] & mask == mask)
}

/// How many bits of `range` are set.
pub(crate) fn count(words: &[u64], range: std::ops::Range<u32>) -> u64 {
    masks(range).map(|(word, mask)| u64::from((words[word] & mask).count_ones())).sum()
}

/// Sets or clears the bits of `range`.
pub(crate) fn assign(words: &mut [u64], range: std::ops::Range<u32>, set: bool) {
    for (word, mask) in masks(range) {
        if set {
            words[word] |= mask;
        } else {
            words[word] &= !mask;
        }
    }
}

/// The words that `range` touches, each with the mask of its bits in the range.
fn masks(range: std::ops::Range<u32>) -> impl Iterator<Item = (usize, u64)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        let stop = range.end.min((at / 64 + 1) * 64);
        let ones = if stop - at == 64 { u64::MAX } else { (1u64 << (stop - at)) - 1 };
        let item = ((at / 64) as usize, ones << (at % 64));
        at = stop;
        Some(item)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assign_changes_the_bits_of_the_range_alone() {
        for (pages, range) in [(16, 3..9), (256, 60..200), (256, 0..256), (2048, 1000..1001)] {
            let mut words = vec![0u64; (pages as usize).div_ceil(64)];
            assign(&mut words, range.clone(), true);
            let ones: u32 = words.iter().map(|w| w.count_ones()).sum();
            assert_eq!(ones, range.len() as u32);
            assert!(all_set(&words, range.clone()));
            assert!(range.end == pages || !all_set(&words, range.start..range.end + 1));
            assign(&mut words, range, false);
            assert!(words.iter().all(|w| *w == 0));
        }
    }

    #[test]
    fn returned_bitmaps_are_taken_again() {
        let mut pool = BitmapPool::new(256, 10_000);
        let out: Vec<u32> = (0..10_000).map(|i| pool.take(i % 2 == 0)).collect();
        assert!(all_set(pool.get(out[4]), 0..256) && pool.get(out[5]).iter().all(|w| *w == 0));
        let bytes = pool.bytes();
        assert_eq!(bytes, 10_000 * BitmapPool::bytes_each(256), "as `Memory` computes");
        out.iter().for_each(|i| pool.give_back(*i));
        let again: std::collections::HashSet<u32> = (0..10_000).map(|_| pool.take(true)).collect();
        assert_eq!((again.len(), pool.bytes()), (10_000, bytes));
    }
}
