// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places the devices of a trace on one volume: each has its own extent, in the order of their numbers.
//!
//! Invariants: an extent is the range that the device's requests span, extended to multiples of the alignment. Extents
//! do not overlap. Adjacent bytes of a device stay adjacent on the volume.
//!
//! Why not pack page by page: a cache with large units depends on adjacency.

use crate::record::Record;

/// The range that the requests of each device span.
#[derive(Clone, Debug)]
pub struct Extents {
    align_bytes: u64,
    /// First byte and end of each device's requests.
    spans: [Option<(u64, u64)>; 256],
}

impl Extents {
    /// Without requests; extents begin and end at multiples of `align_bytes`.
    #[must_use]
    pub fn new(align_bytes: u64) -> Self {
        Self { align_bytes: align_bytes.max(1), spans: [None; 256] }
    }

    /// Adds a request.
    pub fn add(&mut self, record: &Record) {
        let (first, end) = (record.offset_bytes, record.end_bytes());
        let span = self.spans[usize::from(record.dev)].get_or_insert((first, end));
        *span = (span.0.min(first), span.1.max(end));
    }

    /// Assigns each device its place on the volume.
    #[must_use]
    pub fn pack(&self) -> Packed {
        let mut packed = Packed { shifts: [0; 256], bytes: 0 };
        for (shift, span) in packed.shifts.iter_mut().zip(&self.spans) {
            let Some((first, end)) = span else { continue };
            let first = first / self.align_bytes * self.align_bytes;
            *shift = packed.bytes.wrapping_sub(first);
            packed.bytes += end.next_multiple_of(self.align_bytes) - first;
        }
        packed
    }
}

/// The place of each device on the volume.
#[derive(Clone, Debug)]
pub struct Packed {
    /// Added, modulo 2^64, to an offset on the device.
    shifts: [u64; 256],
    bytes: u64,
}

impl Packed {
    /// The volume's size; 0 without requests.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The range of a request on the volume; the request must be one of those that were added.
    #[must_use]
    pub fn place(&self, record: &Record) -> std::ops::Range<u64> {
        let shift = self.shifts[usize::from(record.dev)];
        record.offset_bytes.wrapping_add(shift)..record.end_bytes().wrapping_add(shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Op;

    const MIB: u64 = 1 << 20;

    #[test]
    fn devices_are_adjacent_and_only_their_used_ranges_are_placed() {
        let record = |dev, offset, len| Record::new(0, dev, Op::Read, offset, len).unwrap();
        let records = [
            record(4, 100 * MIB + 4096, 8192),
            record(1, 5 * MIB, 4096),
            record(1, 7 * MIB + 4095, 2),
        ];
        let mut extents = Extents::new(MIB);
        assert_eq!(extents.pack().bytes(), 0);
        records.iter().for_each(|record| extents.add(record));
        let packed = extents.pack();
        assert_eq!(packed.bytes(), 4 * MIB);
        let places = records.each_ref().map(|record| packed.place(record));
        let at = |first, len| first..first + len;
        assert_eq!(places, [at(3 * MIB + 4096, 8192), at(0, 4096), at(2 * MIB + 4095, 2)]);
    }
}
