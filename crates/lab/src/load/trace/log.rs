// SPDX-License-Identifier: MIT OR Apache-2.0
//! A log that is mostly written: appends of 16 KiB, of which one request in twenty reads something recent.
//!
//! Appends go to all of the data in order and around its end. A read is of one of the last appends, as many as fill a
//! sixteenth of the data, all alike: a follower that lags, or a recovery that looks back. What was appended before
//! that is never read, so flash writes of it are for nothing.

use larder_model::SplitMix64;
use larder_trace::Record;

use super::super::chance;
use super::record;

/// Bytes of a request.
const ENTRY_BYTES: u64 = 16 << 10;
/// Recent entries are as many as fill the data divided by this.
const RECENT_DIVISOR: u64 = 16;
const READ_RATIO: f64 = 0.05;

/// The generator, see the module.
pub struct LogTrace {
    entries: u64,
    random: SplitMix64,
    appended: u64,
}

impl LogTrace {
    /// A trace without end over so many bytes.
    #[must_use]
    pub fn new(data_bytes: u64, seed: u64) -> Self {
        let entries = (data_bytes / ENTRY_BYTES).max(RECENT_DIVISOR);
        Self { entries, random: SplitMix64::new(seed), appended: 0 }
    }
}

impl Iterator for LogTrace {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let recent = (self.entries / RECENT_DIVISOR).min(self.appended);
        let reads = chance(&mut self.random, READ_RATIO) && recent > 0;
        let entry = if reads {
            self.appended - 1 - self.random.below(recent)
        } else {
            self.appended += 1;
            self.appended - 1
        };
        record(0, !reads, entry % self.entries * ENTRY_BYTES, ENTRY_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use larder_trace::Op;

    use super::*;

    #[test]
    fn appends_follow_each_other_and_reads_are_of_recent_ones() {
        let data = 4 << 20;
        let (mut next, mut reads) = (0, 0);
        for record in LogTrace::new(data, 1).take(10_000) {
            if record.op == Op::Write {
                assert_eq!(record.offset_bytes, next % data);
                next += ENTRY_BYTES;
                continue;
            }
            reads += 1;
            let behind = (next + data - record.offset_bytes) % data;
            assert!((ENTRY_BYTES..=data / RECENT_DIVISOR).contains(&behind), "{behind}");
        }
        assert!((400..600).contains(&reads), "{reads}");
    }
}
