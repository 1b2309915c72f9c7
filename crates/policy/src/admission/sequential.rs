// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequential streams: those that do not return bypass the cache, and those that return are read ahead.
//!
//! A stream is *recognised* when it is longer than a bound. From then on each of its units is judged when the stream
//! enters it: a unit that was read before, in the recent past, *returns*; another is new. The caller decides what the
//! recent past is ([`Benefit::remembers`](super::Benefit)), before the reads of this pass count.
//!
//! Invariants: no table grows beyond its size; a long stream is not forgotten because other clients read anywhere, because
//! streams that are not yet long have a table of their own.
//!
//! Why not by length alone, as in bcache: a stream that is read again within an hour, and that flash can hold, is worth
//! its space. Why not by the first units of the stream: a scan of all data crosses units that are hot for other reasons.

use crate::streams::Streams;

/// Streams that are not yet long, and starts of streams.
const YOUNG: usize = 64;
/// Streams that are long.
const LONG: usize = 16;
/// A stream is long after this share of the bytes after which it is recognised.
const LONG_DIVISOR: u64 = 8;

/// Settings of sequential streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequentialSettings {
    /// A stream is recognised when it is longer than this.
    pub recognised_bytes: u64,
}

impl Default for SequentialSettings {
    fn default() -> Self {
        Self { recognised_bytes: 2 << 20 }
    }
}

/// What a read belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequence {
    /// No stream that is recognised.
    None,
    /// A unit of a stream that was not read in the recent past: the read bypasses the cache.
    New,
    /// A unit of a stream that was: it is read ahead.
    Returns,
}

/// A stream, up to now.
#[derive(Clone, Copy, Debug)]
struct Stream {
    bytes: u64,
    unit: u64,
    /// Whether that unit was read in the recent past, before this stream.
    returns: bool,
}

/// State of sequential streams.
#[derive(Debug)]
pub struct Sequential {
    unit_bytes: u64,
    recognised_bytes: u64,
    young: Streams<Stream>,
    long: Streams<Stream>,
}

impl Sequential {
    /// The policy for one of `shards` shards, each of which sees its own units only.
    #[must_use]
    pub fn new(settings: &SequentialSettings, unit_bytes: u64, shards: u32) -> Self {
        Self {
            unit_bytes,
            recognised_bytes: settings.recognised_bytes / u64::from(shards.max(1)),
            young: Streams::new(YOUNG),
            long: Streams::new(LONG),
        }
    }

    /// A client reads `len` bytes of a unit from byte `within` on. `remembers`: whether the unit was read in the recent
    /// past.
    pub fn requested(
        &mut self,
        (unit, within): (u64, u64),
        len: u64,
        remembers: impl FnOnce() -> bool,
    ) -> Sequence {
        let at = unit * self.unit_bytes + within;
        let before = self.long.take(at).or_else(|| self.young.take(at));
        let known = before.filter(|stream| stream.unit == unit).map(|stream| stream.returns);
        let returns = known.unwrap_or_else(remembers);
        let bytes = before.map_or(0, |stream| stream.bytes).saturating_add(len);
        let table = match bytes > self.recognised_bytes / LONG_DIVISOR {
            true => &mut self.long,
            false => &mut self.young,
        };
        table.put(at + len, Stream { bytes, unit, returns });
        match (bytes > self.recognised_bytes, returns) {
            (false, _) => Sequence::None,
            (true, false) => Sequence::New,
            (true, true) => Sequence::Returns,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const UNIT: u64 = 1 << 20;
    const LEN: u64 = 64 << 10;

    fn policy() -> Sequential {
        Sequential::new(&SequentialSettings::default(), UNIT, 1)
    }

    fn read(policy: &mut Sequential, at: u64, remembers: bool) -> Sequence {
        policy.requested((at / UNIT, at % UNIT), LEN, || remembers)
    }

    #[test]
    fn a_stream_is_recognised_after_two_mib_whatever_its_requests() {
        for len in [4 << 10, 64 << 10, 1 << 20] {
            let mut policy = policy();
            let mut none = 0;
            for at in (0..8 << 20).step_by(len) {
                let place = (at / UNIT, at % UNIT);
                match policy.requested(place, len as u64, || false) {
                    Sequence::None => none += len,
                    other => assert_eq!(other, Sequence::New),
                }
            }
            assert_eq!(none, 2 << 20);
        }
    }

    #[test]
    fn each_unit_decides_when_the_stream_enters_it() {
        let mut policy = policy();
        for at in (0..6 * UNIT).step_by(LEN as usize) {
            // Later reads of the pass find their unit remembered, because of this pass.
            let remembers = at / UNIT == 3 || !at.is_multiple_of(UNIT);
            let expected = match at / UNIT {
                0 | 1 => Sequence::None,
                3 => Sequence::Returns,
                _ => Sequence::New,
            };
            assert_eq!(read(&mut policy, at, remembers), expected, "{at}");
        }
    }

    #[test]
    fn a_long_stream_is_not_forgotten_among_reads_of_other_places() {
        let mut policy = policy();
        let mut seed = 1_u64;
        let mut found = Sequence::None;
        for at in (0..4 * UNIT).step_by(LEN as usize) {
            found = read(&mut policy, at, false);
            for _ in 0..if at < UNIT { YOUNG - 1 } else { 1000 } {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                assert_eq!(read(&mut policy, (100 << 20) + (seed >> 30), false), Sequence::None);
            }
        }
        assert_eq!(found, Sequence::New);
    }

    #[test]
    fn a_shard_recognises_its_share_of_a_stream() {
        let mut policy = Sequential::new(&SequentialSettings::default(), UNIT, 4);
        let found: Vec<_> =
            (0..2 * UNIT).step_by(LEN as usize).map(|at| read(&mut policy, at, false)).collect();
        assert_eq!(found.iter().filter(|s| **s == Sequence::None).count(), 8, "512 KiB");
    }

    #[test]
    fn tables_stay_bounded() {
        let mut policy = policy();
        let mut seed = 5_u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (at, len) = ((seed >> 20) % (1 << 40), (seed >> 8) % (4 << 20));
            let _ = policy.requested((at / UNIT, at % UNIT), len, || false);
            assert!(policy.young.len() <= YOUNG && policy.long.len() <= LONG);
        }
    }
}
