// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sequential scan beside a hot set: what a backup or a table scan does to the cache of a busy database.
//!
//! One request in four is the scan's next 64 KiB, of all data and then again. The others read single pages of the hot
//! set, the first sixteenth of the data, by Zipf's law in an order that the seed draws. A cache that admits the scan
//! evicts the hot set for data that returns only after all the rest.
//!
//! Why a fixed mix: a scanner with a client of its own would slow down with the hot set, and two systems would not be
//! asked for the same.

use larder_model::SplitMix64;
use larder_trace::Record;

use super::super::zipf::Zipf;
use super::super::{EXPONENT, PAGE_BYTES, shuffle};
use super::record;

/// Bytes of a request of the scan.
const SCAN_BYTES: u64 = 64 << 10;
/// One request in so many is the scan's.
const SCAN_EVERY: u64 = 4;
/// The hot set is the data divided by this.
const HOT_DIVISOR: u64 = 16;

/// The generator, see the module.
pub struct ScanTrace {
    data_bytes: u64,
    zipf: Zipf,
    places: Vec<u32>,
    random: SplitMix64,
    count: u64,
}

impl ScanTrace {
    /// A trace without end over so many bytes, at least a request of the scan.
    #[must_use]
    pub fn new(data_bytes: u64, seed: u64) -> Self {
        let data_bytes = data_bytes.max(SCAN_BYTES) / SCAN_BYTES * SCAN_BYTES;
        let pages = (data_bytes / HOT_DIVISOR / PAGE_BYTES).clamp(1, u64::from(u32::MAX)) as u32;
        let mut random = SplitMix64::new(seed);
        let mut places: Vec<u32> = (0..pages).collect();
        shuffle(&mut places, &mut random);
        Self { data_bytes, zipf: Zipf::new(pages, EXPONENT), places, random, count: 0 }
    }
}

impl Iterator for ScanTrace {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let count = self.count;
        self.count += 1;
        if count.is_multiple_of(SCAN_EVERY) {
            let at = count / SCAN_EVERY * SCAN_BYTES % self.data_bytes;
            return record(0, false, at, SCAN_BYTES);
        }
        let rank = self.zipf.draw(&mut self.random) as usize;
        let page = self.places.get(rank).copied().unwrap_or(0);
        record(0, false, u64::from(page) * PAGE_BYTES, PAGE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_scans_all_data_in_order_and_the_rest_stays_in_the_hot_set() {
        let data = 16 << 20;
        let records: Vec<Record> = ScanTrace::new(data, 1).take(1024).collect();
        let (scan, hot): (Vec<&Record>, Vec<&Record>) =
            records.iter().partition(|r| u64::from(r.len_bytes) == SCAN_BYTES);
        let offsets: Vec<u64> = scan.iter().map(|r| r.offset_bytes).collect();
        assert_eq!(offsets, (0..256).map(|n| n * SCAN_BYTES).collect::<Vec<_>>());
        assert!(hot.len() == 768 && hot.iter().all(|r| r.end_bytes() <= data / HOT_DIVISOR));
    }
}
