// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extents of a device, as block status reports them: data, holes, zeroes.
//!
//! Invariants: no extent is empty; a zero extent would have read as zeroes at some moment between the query and its answer;
//! an unknown range is data. A list starts at the beginning of the queried range and does not exceed it.
//!
//! Why the engine does not use extents: the origin answers reads of a hole quickly, and a map of holes would have to follow
//! every write.

/// A run of bytes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its bytes.
    pub len: u64,
    /// The device has allocated nothing for them.
    pub hole: bool,
    /// They read as zeroes.
    pub zero: bool,
}

impl Extent {
    /// Allocated bytes, or bytes of unknown kind.
    #[must_use]
    pub const fn data(len: u64) -> Self {
        Self { len, hole: false, zero: false }
    }

    /// Unallocated bytes that read as zeroes.
    #[must_use]
    pub const fn hole(len: u64) -> Self {
        Self { len, hole: true, zero: true }
    }

    fn is_like(&self, other: &Self) -> bool {
        (self.hole, self.zero) == (other.hole, other.zero)
    }
}

/// Appends an extent: merges it with a last one of the same kind, ignores an empty one.
pub fn push(list: &mut Vec<Extent>, extent: Extent) {
    match list.last_mut() {
        _ if extent.len == 0 => {}
        Some(last) if last.is_like(&extent) => last.len += extent.len,
        _ => list.push(extent),
    }
}

/// Converts a list to whole blocks, for a range of `len` bytes, which is at least one block and whole blocks. A block is a
/// hole, or zero, if all of it is. Extents beyond the range are dropped. So is a last block that the list covers in part,
/// unless it is the only one: that one is data.
#[must_use]
pub fn in_blocks(list: &[Extent], block: u64, len: u64) -> Vec<Extent> {
    let mut found = Vec::with_capacity(list.len());
    // The covered part of a block: its length, and the kind of all of it.
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
    fn neighbours_of_one_kind_are_merged() {
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
    fn a_block_is_a_hole_only_if_all_of_it_is() {
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
