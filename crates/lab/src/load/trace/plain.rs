// SPDX-License-Identifier: MIT OR Apache-2.0
//! The laws that caches are taught with: Zipf, uniform, one pass, and a loop, each over blocks of
//! one size, at even times.
//!
//! Under Zipf the order of popularity is drawn by the seed, so that popular blocks lie anywhere.
//! A loop over more than the cache is the case in which LRU and FIFO never hit.

use larder_core::exec::{Nanos, SECOND};
use larder_model::SplitMix64;
use larder_trace::Record;

use super::super::zipf::Zipf;
use super::super::{chance, shuffle};
use super::record;

/// Which block comes next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// By popularity, in proportion to `rank^-exponent`.
    Zipf {
        /// The exponent.
        exponent: f64,
    },
    /// Any, all alike.
    Uniform,
    /// One after the other, once.
    Sequential,
    /// One after the other, again and again.
    Loop,
}

impl Law {
    /// Memory that a generator over so many blocks takes: a popularity and a place each.
    #[must_use]
    pub fn memory_bytes(self, blocks: u64) -> u64 {
        match self {
            Self::Zipf { .. } => blocks.saturating_mul(12),
            _ => 0,
        }
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Which block comes next.
    pub law: Law,
    /// Bytes of data, rounded down to blocks; at least one, and under Zipf fewer than 2^32.
    pub data_bytes: u64,
    /// Bytes of a request.
    pub block_bytes: u64,
    /// The share of requests that write.
    pub write_ratio: f64,
    /// Requests a second.
    pub rate: f64,
}

/// The generator, see the module.
pub struct PlainTrace {
    spec: Spec,
    blocks: u64,
    popular: Option<(Zipf, Vec<u32>)>,
    random: SplitMix64,
    count: u64,
}

impl PlainTrace {
    /// A trace without end, except a single pass.
    #[must_use]
    pub fn new(spec: Spec, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let blocks = (spec.data_bytes / spec.block_bytes.max(1)).max(1);
        let popular = match spec.law {
            Law::Zipf { exponent } => {
                let count = u32::try_from(blocks).unwrap_or(u32::MAX);
                let mut places: Vec<u32> = (0..count).collect();
                shuffle(&mut places, &mut random);
                Some((Zipf::new(count, exponent), places))
            }
            _ => None,
        };
        Self { spec, blocks, popular, random, count: 0 }
    }

    fn block(&mut self) -> Option<u64> {
        match (self.spec.law, &self.popular) {
            (Law::Sequential, _) => Some(self.count).filter(|block| *block < self.blocks),
            (Law::Loop, _) => Some(self.count % self.blocks),
            (_, Some((zipf, places))) => {
                places.get(zipf.draw(&mut self.random) as usize).copied().map(u64::from)
            }
            (_, None) => Some(self.random.below(self.blocks)),
        }
    }
}

impl Iterator for PlainTrace {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let block = self.block()?;
        let at = (self.count as f64 / self.spec.rate * SECOND as f64) as Nanos;
        let writes = chance(&mut self.random, self.spec.write_ratio);
        self.count += 1;
        record(at, writes, block * self.spec.block_bytes, self.spec.block_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use larder_trace::Op;

    use super::*;

    const BLOCKS: u64 = 1000;

    fn trace(law: Law, count: usize) -> Vec<Record> {
        let (block_bytes, write_ratio) = (8192, 0.25);
        let spec =
            Spec { law, data_bytes: BLOCKS * 8192 + 1, block_bytes, write_ratio, rate: 500.0 };
        PlainTrace::new(spec, 4).take(count).collect()
    }

    /// How often each block comes, the most popular first.
    fn counts(records: &[Record]) -> Vec<u64> {
        let mut counts = HashMap::<u64, u64>::new();
        records.iter().for_each(|r| *counts.entry(r.offset_bytes / 8192).or_default() += 1);
        assert!(counts.keys().all(|block| *block < BLOCKS));
        let mut counts: Vec<u64> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts
    }

    #[test]
    fn blocks_come_by_their_law() {
        let zipf = counts(&trace(Law::Zipf { exponent: 1.0 }, 100_000));
        assert!((zipf[0] as f64 / zipf[9] as f64 / 10.0 - 1.0).abs() < 0.1, "{zipf:?}");
        let uniform = counts(&trace(Law::Uniform, 100_000));
        assert!(uniform.len() == 1000 && uniform[0] < 150 && uniform[999] > 60, "{uniform:?}");
        let places = |records: Vec<Record>| -> Vec<u64> {
            records.iter().map(|r| r.offset_bytes / 8192).collect()
        };
        assert_eq!(places(trace(Law::Sequential, 5_000)), (0..BLOCKS).collect::<Vec<_>>());
        let twice: Vec<u64> = (0..BLOCKS).chain(0..BLOCKS).collect();
        assert_eq!(places(trace(Law::Loop, 2_000)), twice);
    }

    #[test]
    fn times_sizes_and_the_mix_are_as_asked_for() {
        let records = trace(Law::Uniform, 50_001);
        assert!(records.iter().all(|r| r.len_bytes == 8192));
        assert_eq!(records[50_000].ts_us, 100_000_000);
        let writes = records.iter().filter(|r| r.op == Op::Write).count();
        assert!((writes as f64 / 50_001.0 - 0.25).abs() < 0.01, "{writes}");
    }
}
