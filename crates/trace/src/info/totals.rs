// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics that need no memory per page: operation mix, sizes, times and sequentiality.

use std::collections::BTreeMap;

use crate::record::{Op, Record};

/// How many earlier ends of a device's requests count as continued by a sequential request.
const RECENT: usize = 32;

/// Requests of a trace or of one of its devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests of all kinds.
    pub requests: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes requested.
    pub bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Pages of 4 KiB accessed.
    pub accesses: u64,
    /// Requests that begin where the previous request of their device ended.
    pub follows: u64,
    /// Requests that begin where one of the previous 32 requests of their device ended.
    pub follows_recent: u64,
}

/// The counters of a trace.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// All requests.
    pub all: Traffic,
    /// Requests of each device, in the order of their numbers.
    pub devices: BTreeMap<u8, Traffic>,
    /// Sizes of the requests.
    pub sizes: Sizes,
    ends: BTreeMap<u8, Ends>,
    times_us: Option<(u64, u64)>,
}

impl Totals {
    pub(super) fn add(&mut self, record: &Record) {
        self.sizes.add(record.len_bytes);
        let (first, last) = self.times_us.unwrap_or((record.ts_us, record.ts_us));
        self.times_us = Some((first.min(record.ts_us), last.max(record.ts_us)));
        let (follows, follows_recent) = self.ends.entry(record.dev).or_default().add(record);
        for traffic in [&mut self.all, self.devices.entry(record.dev).or_default()] {
            let pages = record.pages();
            traffic.requests += 1;
            traffic.reads += u64::from(record.op == Op::Read);
            traffic.bytes += u64::from(record.len_bytes);
            if record.op == Op::Write {
                traffic.writes += 1;
                traffic.write_bytes += u64::from(record.len_bytes);
            }
            traffic.accesses += pages.end - pages.start;
            traffic.follows += u64::from(follows);
            traffic.follows_recent += u64::from(follows_recent);
        }
    }

    /// The time of the earliest request.
    #[must_use]
    pub fn begin_us(&self) -> Option<u64> {
        self.times_us.map(|(first, _)| first)
    }

    /// From the earliest to the latest request; 0 for a trace without times.
    #[must_use]
    pub fn duration_us(&self) -> u64 {
        self.times_us.map_or(0, |(first, last)| last - first)
    }
}

/// The ends of a device's recent requests.
#[derive(Clone, Debug, Default)]
struct Ends {
    ring: Vec<u64>,
    last: usize,
}

impl Ends {
    /// Whether the request continues the previous one, and whether it continues a recent one.
    fn add(&mut self, record: &Record) -> (bool, bool) {
        let begin = record.offset_bytes;
        let follows = self.ring.get(self.last) == Some(&begin);
        let recent = follows || self.ring.contains(&begin);
        if self.ring.len() < RECENT {
            self.last = self.ring.len();
            self.ring.push(record.end_bytes());
        } else {
            self.last = (self.last + 1) % RECENT;
            self.ring[self.last] = record.end_bytes();
        }
        (follows, recent)
    }
}

/// Sizes of requests with a precision of 1/256: exact for multiples of 512 bytes up to 128 KiB.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    counts: Vec<u64>,
    total: u64,
    most: u32,
}

/// Bits of a size that are kept.
const BITS: u32 = 8;

impl Sizes {
    fn add(&mut self, bytes: u32) {
        let shift = (32 - bytes.leading_zeros()).saturating_sub(BITS + 1);
        let bucket = ((shift as usize) << BITS) + (bytes >> shift) as usize;
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
        self.most = self.most.max(bytes);
    }

    /// The size that this share of the requests does not exceed.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        let mut sum = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            sum += count;
            if sum as f64 >= share * self.total as f64 && sum > 0 {
                // The first range uses both halves of the buckets, every later one only its upper half.
                let shift = (bucket >> BITS).saturating_sub(1);
                return ((bucket - (shift << BITS)) as u64) << shift;
            }
        }
        0
    }

    /// The largest size.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_sizes() {
        let mut sizes = Sizes::default();
        let each = [1, 255, 256, 511, 512, 4096, 12288, 65536, 131_072, 1 << 20, u32::MAX];
        each.iter().for_each(|bytes| sizes.add(*bytes));
        for (n, bytes) in each.iter().enumerate() {
            let found = sizes.quantile((n + 1) as f64 / each.len() as f64);
            assert!(
                found <= u64::from(*bytes) && u64::from(*bytes) - found <= found / 256,
                "{found}"
            );
        }
        assert_eq!((sizes.quantile(0.0), sizes.most()), (1, u32::MAX));
    }

    #[test]
    fn sequentiality_is_per_device_and_recent_ends_count_separately() {
        let mut totals = Totals::default();
        let mut add = |dev, offset, len| {
            totals.add(&Record::new(5, dev, Op::Write, offset, len).unwrap());
        };
        // Device 0 has two interleaved streams; device 1 has one, interleaved with them.
        for n in 0..10 {
            add(0, n * 4096, 4096);
            add(1, n * 512, 512);
            add(0, (1 << 30) + n * 8192, 8192);
        }
        let follows = |t: &Traffic| (t.requests, t.follows, t.follows_recent);
        assert_eq!(follows(&totals.devices[&0]), (20, 0, 18));
        assert_eq!(follows(&totals.devices[&1]), (10, 9, 9));
        assert_eq!((totals.all.writes, totals.all.accesses, totals.duration_us()), (30, 40, 0));
    }
}
