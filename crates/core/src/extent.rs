// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the ranges of a device are, as far as it tells: advice for whoever copies a volume or
//! looks for its holes.
//!
//! Invariants: no extent is empty; "zero" is only said of what a read would have returned as zeroes
//! at some moment between the question and its answer; what is not known is data. A list speaks of
//! a range from its beginning on, and of no more than the range.
//!
//! Why the engine does not use it: a population reads the origin with the requests that it has
//! budgeted in any case, a hole is answered by the origin at once, and knowing one would be a second
//! truth beside the map, to be kept right under every write.

/// So many bytes, and what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How many bytes.
    pub len: u64,
    /// Nothing is allocated for them.
    pub hole: bool,
    /// They read as zeroes.
    pub zero: bool,
}

impl Extent {
    /// Bytes that are there, or of which nothing is known.
    #[must_use]
    pub const fn data(len: u64) -> Self {
        Self { len, hole: false, zero: false }
    }

    /// Bytes that nothing is allocated for, and that read as zeroes.
    #[must_use]
    pub const fn hole(len: u64) -> Self {
        Self { len, hole: true, zero: true }
    }

    fn is_like(&self, other: &Self) -> bool {
        (self.hole, self.zero) == (other.hole, other.zero)
    }
}

/// Appends an extent; one like the last makes that one longer, an empty one changes nothing.
pub fn push(list: &mut Vec<Extent>, extent: Extent) {
    match list.last_mut() {
        _ if extent.len == 0 => {}
        Some(last) if last.is_like(&extent) => last.len += extent.len,
        _ => list.push(extent),
    }
}

/// The same in whole blocks, for a range of `len` bytes that is whole blocks and not empty: a block
/// is a hole, or zero, if all of it is. What the list says beyond the range is dropped, and so is a
/// last block of which it says a part, unless nothing else is left: that one is data.
#[must_use]
pub fn in_blocks(list: &[Extent], block: u64, len: u64) -> Vec<Extent> {
    let mut found = Vec::with_capacity(list.len());
    // A block of which a part was seen: how much, and what all of it so far is.
    let (mut part, mut at) = (Extent { len: 0, hole: true, zero: true }, 0);
    for extent in list {
        let mut rest = extent.len.min(len - at);
        at += rest;
        if part.len > 0 {
            let more = rest.min(block - part.len);
            let (hole, zero) = (part.hole && extent.hole, part.zero && extent.zero);
            part = Extent { len: part.len + more, hole, zero };
            rest -= more;
            if part.len < block {
                continue;
            }
            push(&mut found, part);
        }
        push(&mut found, Extent { len: rest - rest % block, ..*extent });
        part = Extent { len: rest % block, ..*extent };
    }
    if found.is_empty() {
        found.push(Extent::data(block.min(len)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_that_are_alike_are_one() {
        let mut list = Vec::new();
        for extent in [Extent::data(1), Extent::data(0), Extent::data(2), Extent::hole(0)] {
            push(&mut list, extent);
        }
        push(&mut list, Extent::hole(4));
        push(&mut list, Extent { len: 4, hole: false, zero: true });
        let zero = Extent { len: 4, hole: false, zero: true };
        assert_eq!(list, [Extent::data(3), Extent::hole(4), zero]);
    }

    #[test]
    fn a_block_is_what_all_of_it_is() {
        let blocks = |list: &[Extent], len| in_blocks(list, 512, len);
        let (data, hole) = (Extent::data, Extent::hole);
        assert_eq!(blocks(&[data(1024), hole(512)], 1536), [data(1024), hole(512)]);
        assert_eq!(
            blocks(&[hole(700), data(100), hole(736)], 1536),
            [hole(512), data(512), hole(512)]
        );
        assert_eq!(blocks(&[hole(100), hole(412), data(512)], 1024), [hole(512), data(512)]);
        assert_eq!(blocks(&[hole(1000)], 1536), [hole(512)]);
        assert_eq!(blocks(&[hole(100)], 1536), [data(512)]);
        assert_eq!(blocks(&[], 1536), [data(512)]);
        assert_eq!(blocks(&[hole(u64::MAX), data(5)], 1536), [hole(1536)]);
        let unknown = Extent { len: 256, hole: true, zero: false };
        let both = Extent { len: 512, hole: true, zero: false };
        assert_eq!(blocks(&[unknown, hole(256)], 512), [both]);
        assert_eq!(blocks(&[data(1), hole(1), hole(510), hole(512)], 1024), [data(512), hole(512)]);
    }
}
