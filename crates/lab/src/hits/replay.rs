// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace through a cache of a capacity in units, bytes, or a share of the trace's units.
//!
//! The trace is streamed: once to count its units, where the capacity is a share of them, and once
//! to replay it. Belady's policy alone keeps it in memory.

use std::str::FromStr;

use larder_core::config::{ReplacementChoice, WithPolicy};
use larder_core::policy::replacement::Replacement;
use larder_core::size::parse_size;
use larder_trace::{LONG_BYTES, Records, Trace, TraceError, watch};

use super::belady::{self, Future};
use super::units::Units;
use super::{HitCache, Hits, MOST_UNITS};

/// How large a cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// In bytes; divided by the unit, rounded down.
    Bytes(u64),
    /// In millionths of the trace's different units, rounded down.
    Millionths(u32),
}

/// A text that is no share of a trace's units.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no share; accepted: above 0% to 100%, up to four decimals")]
pub struct NoShare(String);

/// A share as the user writes it, exactly: `5%`, `0.25%`.
impl FromStr for Capacity {
    type Err = NoShare;

    fn from_str(text: &str) -> Result<Self, NoShare> {
        millionths(text).map(Self::Millionths).ok_or_else(|| NoShare(text.to_owned()))
    }
}

impl Capacity {
    /// A capacity as the user writes it: bytes, as `512MiB`, or a share, as `5%`.
    ///
    /// # Errors
    /// The text is neither; the error states what is accepted.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains('%') {
            return text.parse().map_err(|e: NoShare| e.to_string());
        }
        parse_size(text).map(Self::Bytes).map_err(|e| e.to_string())
    }
}

/// A unit of caching as the user writes it.
///
/// # Errors
/// The text is no size, or no power of two from 512 to 1 GiB.
pub fn parse_unit(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|e| e.to_string())?;
    if bytes.is_power_of_two() && (512..=1 << 30).contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!("got '{text}', accepted a power of two from 512 to 1GiB"))
}

fn millionths(text: &str) -> Option<u32> {
    let number = text.strip_suffix('%')?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || part.len() > 4 || !digits(whole) || !digits(part) {
        return None;
    }
    let part: u32 = format!("{part:0<4}").parse().ok()?;
    let whole: u32 = whole.parse().ok()?;
    let millionths = whole.checked_mul(10_000)?.checked_add(part)?;
    (1..=1_000_000).contains(&millionths).then_some(millionths)
}

/// What decides which unit is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// A policy of the engine.
    Engine(ReplacementChoice),
    /// The unit whose next access is the farthest.
    Belady,
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "belady" {
            return Ok(Self::Belady);
        }
        let known = ReplacementChoice::NAMED;
        let found = known.iter().find(|(name, _)| *name == text);
        found.map(|(_, choice)| Self::Engine(*choice)).ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            format!("got '{text}', accepted {}, belady", names.join(", "))
        })
    }
}

/// What to replay.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The trace.
    pub trace: Trace,
    /// What decides which unit is evicted.
    pub policy: Policy,
    /// Bytes of a unit.
    pub unit_bytes: u64,
    /// Of the cache.
    pub capacity: Capacity,
}

/// Why a replay did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace has no requests.
    #[error("{0}: has no requests; accepted: at least one")]
    Empty(String),
    /// The capacity is no cache.
    #[error("a capacity of {0} units; accepted: 1 to {MOST_UNITS}")]
    Capacity(u64),
    /// Too many accesses for Belady's policy.
    #[error("belady: {0} accesses; accepted: up to {most}", most = Future::MOST)]
    TooLong(u64),
}

/// What a replay may report meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// So many accesses were counted or replayed so far.
    Accesses(u64),
    /// Belady's policy is going to take so much memory.
    Memory(u64),
}

/// Accesses that are looked up at once.
const AT_ONCE: usize = 256;
/// Above so many units of a cache, those of the trace are counted first: a slot takes tens of bytes.
const COUNTED_UNITS: u64 = 1 << 24;
/// Accesses between two words of progress.
const TOLD_EVERY: u64 = 1 << 24;

impl Replay {
    /// Runs it.
    ///
    /// # Errors
    /// The trace is malformed or empty; the capacity is no cache.
    pub fn run(&self, mut tell: impl FnMut(Told)) -> Result<Hits, ReplayError> {
        let (capacity, counted) = self.capacity(&mut tell)?;
        match (self.policy, counted) {
            (Policy::Engine(choice), _) => {
                let replay =
                    Engine { records: self.trace.records()?, replay: self, capacity, tell };
                self.not_empty(choice.with(capacity, capacity, self.unit_bytes, replay)?)
            }
            (Policy::Belady, Some(counted)) if counted.accesses > Future::MOST => {
                Err(ReplayError::TooLong(counted.accesses))
            }
            (Policy::Belady, counted) => {
                let Hits { accesses, unique, .. } = counted.unwrap_or_default();
                tell(Told::Memory(belady::memory_bytes(accesses, unique)));
                let mut future = Future::default();
                self.each(self.trace.records()?, &mut tell, |unit| future.push(unit))?;
                self.not_empty(future.replay(capacity))
            }
        }
    }

    /// The units of the cache.
    ///
    /// # Errors
    /// As [`Replay::run`].
    pub fn units(&self) -> Result<u32, ReplayError> {
        Ok(self.capacity(&mut |_| ())?.0)
    }

    /// Runs it under a policy that is not the engine's, made for a cache of so many units.
    ///
    /// # Errors
    /// As [`Replay::run`].
    pub fn run_under<P: Replacement + 'static>(
        &self,
        make: impl FnOnce(u32) -> P,
        mut tell: impl FnMut(Told),
    ) -> Result<Hits, ReplayError> {
        let (capacity, _) = self.capacity(&mut tell)?;
        let replay = Engine { records: self.trace.records()?, replay: self, capacity, tell };
        self.not_empty(replay.with(make(capacity))?)
    }

    fn not_empty(&self, hits: Hits) -> Result<Hits, ReplayError> {
        match hits.accesses {
            0 => Err(ReplayError::Empty(self.trace.path().display().to_string())),
            _ => Ok(hits),
        }
    }

    /// The units of the cache; counts those of the trace where they are needed.
    fn capacity(&self, tell: &mut impl FnMut(Told)) -> Result<(u32, Option<Hits>), ReplayError> {
        let (capacity, counted) = match self.capacity {
            Capacity::Bytes(of) => {
                let units = of / self.unit_bytes;
                let large = units > COUNTED_UNITS || self.policy == Policy::Belady;
                let counted = large.then(|| self.count(tell)).transpose()?;
                match counted {
                    // A cache that holds all units evicts none, whatever its size: it needs memory for these units only.
                    Some(Hits { unique: unique @ 1.., .. }) => (units.min(unique), counted),
                    _ => (units, counted),
                }
            }
            Capacity::Millionths(share) => {
                let counted = self.not_empty(self.count(tell)?)?;
                let units = u128::from(counted.unique) * u128::from(share) / 1_000_000;
                (units as u64, Some(counted))
            }
        };
        match u32::try_from(capacity) {
            Ok(capacity) if (1..=MOST_UNITS).contains(&capacity) => Ok((capacity, counted)),
            _ => Err(ReplayError::Capacity(capacity)),
        }
    }

    /// Accesses and units of the trace.
    fn count(&self, tell: impl FnMut(Told)) -> Result<Hits, TraceError> {
        let (mut units, mut hits) = (Units::default(), Hits::default());
        self.each(self.trace.records()?, tell, |unit| {
            hits.accesses += 1;
            hits.unique += u64::from(units.first(unit));
        })?;
        Ok(hits)
    }

    /// Every unit that the trace asks for, in order.
    #[inline]
    fn each(
        &self,
        mut records: Records,
        mut tell: impl FnMut(Told),
        mut access: impl FnMut(u64),
    ) -> Result<(), TraceError> {
        let (mut seen, mut told) = (0, 0);
        let unit_bits = self.unit_bytes.trailing_zeros();
        while let Some(batch) = records.next_batch()? {
            for record in batch {
                let base = u64::from(record.dev) << 44;
                let first = (base + record.offset_bytes) >> unit_bits;
                let last = (base + record.end_bytes() - 1) >> unit_bits;
                seen += last - first + 1;
                (first..=last).for_each(&mut access);
                if record.len_bytes >= LONG_BYTES {
                    watch::check(self.trace.path())?;
                }
            }
            if seen / TOLD_EVERY > told {
                told = seen / TOLD_EVERY;
                tell(Told::Accesses(seen));
            }
        }
        Ok(())
    }
}

/// A replay through a policy of the engine.
struct Engine<'a, F> {
    records: Records,
    replay: &'a Replay,
    capacity: u32,
    tell: F,
}

impl<F: FnMut(Told)> WithPolicy for Engine<'_, F> {
    type Out = Result<Hits, TraceError>;

    fn with<P: Replacement + 'static>(self, policy: P) -> Self::Out {
        let mut cache = HitCache::new(policy, self.capacity);
        let mut units = Vec::with_capacity(AT_ONCE);
        self.replay.each(self.records, self.tell, |unit| {
            units.push(unit);
            if units.len() == AT_ONCE {
                cache.access_all(&units);
                units.clear();
            }
        })?;
        cache.access_all(&units);
        Ok(cache.hits())
    }
}

#[cfg(test)]
mod tests {
    use larder_trace::{Op, Options, Record};

    use super::*;

    #[test]
    fn units_and_policies_are_parsed_and_others_are_refused() {
        assert_eq!(parse_unit("4KiB"), Ok(4096));
        for bad in ["0", "100", "3KiB", "2GiB", "-4096", "x"] {
            assert!(parse_unit(bad).unwrap_err().contains("accepted"), "{bad}");
        }
        assert_eq!("belady".parse(), Ok(Policy::Belady));
        let error = "mru".parse::<Policy>().unwrap_err();
        assert!(error.starts_with("got 'mru', accepted gclock, lru"), "{error}");
        assert_eq!(Capacity::parse("512MiB"), Ok(Capacity::Bytes(512 << 20)));
        assert!(Capacity::parse("0%").is_err() && Capacity::parse("nan").is_err());
    }

    #[test]
    fn a_cache_far_larger_than_the_trace_takes_no_memory_for_it() {
        let record = |page: u64| Record::new(0, 0, Op::Read, page * 4096, 4096).unwrap();
        let records: Vec<Record> = [1, 2, 3, 1].into_iter().map(record).collect();
        let trace = Trace::held("t", records.into(), Options::default());
        for policy in ["lru", "s3fifo", "belady"] {
            let capacity = Capacity::Bytes(u64::MAX);
            let policy = policy.parse().unwrap();
            let replay = Replay { trace: trace.clone(), policy, unit_bytes: 4096, capacity };
            assert_eq!(replay.run(|_| ()).unwrap(), Hits { accesses: 4, unique: 3, misses: 3 });
        }
    }

    #[test]
    fn shares_are_exact() {
        let share = |text: &str| text.parse::<Capacity>();
        assert_eq!(share("5%"), Ok(Capacity::Millionths(50_000)));
        assert_eq!(share("0.25%"), Ok(Capacity::Millionths(2500)));
        assert_eq!(share("100%"), Ok(Capacity::Millionths(1_000_000)));
        for bad in ["", "%", "5", "0%", "101%", "-1%", "1e1%", "0.00001%", ".5%", "5.x%"] {
            assert_eq!(share(bad), Err(NoShare(bad.to_owned())), "{bad}");
        }
    }
}
