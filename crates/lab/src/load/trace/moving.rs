// SPDX-License-Identifier: MIT OR Apache-2.0
//! A working set that moves: what was hot an hour ago is cold now, as with orders, sessions or a news site.
//!
//! The working set is an eighth of the data, in regions of 64 KiB. After every 64 requests it moves by a region: the
//! oldest leaves, and a new one enters, in place order and around the end. Requests are for single pages, all of the
//! working set alike, so each page is asked for four times before it leaves. One request in ten writes.
//!
//! A cache that keeps what was popular for long serves the past.

use larder_model::SplitMix64;
use larder_trace::Record;

use super::super::{PAGE_BYTES, RUN_BYTES, chance};
use super::record;

/// The working set is the data divided by this.
const WORKING_DIVISOR: u64 = 8;
/// Requests for each region that enters.
const REQUESTS_PER_REGION: u64 = 64;
const WRITE_RATIO: f64 = 0.1;

/// The generator, see the module.
pub struct MovingTrace {
    regions: u64,
    random: SplitMix64,
    count: u64,
}

impl MovingTrace {
    /// A trace without end over so many bytes.
    #[must_use]
    pub fn new(data_bytes: u64, seed: u64) -> Self {
        let regions = (data_bytes / RUN_BYTES).max(WORKING_DIVISOR);
        Self { regions, random: SplitMix64::new(seed), count: 0 }
    }
}

impl Iterator for MovingTrace {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let first = self.count / REQUESTS_PER_REGION;
        self.count += 1;
        let region =
            (first + self.random.below(self.regions / WORKING_DIVISOR)) % self.regions * RUN_BYTES;
        let page = self.random.below(RUN_BYTES / PAGE_BYTES) * PAGE_BYTES;
        record(0, chance(&mut self.random, WRITE_RATIO), region + page, PAGE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_asked_for_four_times_and_then_no_more() {
        let data = 32 << 20;
        let records: Vec<Record> = MovingTrace::new(data, 1).take(32 * 1024).collect();
        let working = data / WORKING_DIVISOR;
        for (count, record) in (0..).zip(&records) {
            let first = count / REQUESTS_PER_REGION * RUN_BYTES % data;
            assert!((record.offset_bytes + data - first) % data < working, "{count}: {record:?}");
        }
        // Half of the data was passed; what entered and left is in the middle of that.
        let middle = data / 4..data / 4 + RUN_BYTES;
        let asked = records.iter().filter(|r| middle.contains(&r.offset_bytes)).count();
        assert!((45..85).contains(&asked), "{asked}");
    }
}
