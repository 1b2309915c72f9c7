// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ten days of a desktop, for what PRWC was measured with (section 3.2): traces of five users that
//! cannot be had. Fixed before anything was measured with it.
//!
//! # What is the paper's (P1, Figure 10)
//! The *coverage* of each user, that is the segments of 1 MiB asked for at least once in ten days:
//! all of them, those written, those read; and the share of writes in the bytes. They are met
//! exactly (coverage) and in the mean (share). Figure 10 prints what is written and read for users
//! 1 and 4 only. For the others `written / (written + read)` is printed, and `written + read` is
//! taken as 1.39 times all, between the 1.34 and the 1.45 of those two.
//!
//! # What had to be chosen, and why
//! - **A GB is smaller here** ([`Scale`]; a quarter in the bench), and a day with it: nothing happens
//!   in most of it. Requests, units and latencies are as they are.
//! - **Places**: files of 1 to 15 MiB, each only read, only written or both, anywhere in the first
//!   500 of the disk's 2,000 GB, as large as desktop disks then were.
//! - **Coverage grows evenly**: each file has its first day, any of the ten. In the paper 32 GB
//!   were full on the fourth day, which is about a tenth of 100 GB a day.
//! - **A visit** is a run of requests in a row within a segment, of 4 KiB (half of the visits), 16 or 64 KiB
//!   (a quarter each). On its first day a file is gone through from its beginning, one visit a segment,
//!   written before it is read. How long runs are is not printed: 1 to [`RUN`], or 1 to
//!   [`FITTED_RUN`], which was fitted to the paper's figures of SLRU and PROC, see there.
//! - **One visit in six is a first one.** Half of the others follow popularity among what earlier
//!   days left (*daily*), half go to what was visited within the last hour of ten (*hourly*): the
//!   two patterns that the paper names (2.4). So a good quarter of the visits meets what is new this
//!   day and no update can have brought; of the rest, the most popular 32 of user 5's 112 GB get
//!   0.79: hits of 0.59, where the paper has 0.58 (Figure 19). That is what "one in six" was set by.
//! - **Popularity**: Zipf 0.9 over those segments, in an order that the seed draws, as in [`super`].
//! - **A backup** (3.4, P11) reads all that was touched so far in order of place, and copies it
//!   behind the data, a MiB at a time as a file copy does, in requests of 64 KiB.
//!
//! Invariants: equal users and seeds give equal days on every machine; every request lies in one
//! segment.
//!
//! Why a list of requests and no arrival times: the paper replays its traces as fast as devices
//! go, and its figures are bytes a second.

use larder_core::exec::{Nanos, SECOND};
use larder_model::SplitMix64;

use super::zipf::Zipf;
use super::{EXPONENT, chance, shuffle};

/// Days.
pub const DAYS: u32 = 10;
/// The unit in which the paper counts.
pub const SEGMENT_BYTES: u64 = 1 << 20;
/// The disk, in the paper's GB.
const DISK_GB: u64 = 2_000;
/// Where files are.
const PARTITION_GB: u64 = 500;
/// The paper's flash, in its GB.
pub const FLASH_GB: u64 = 32;
/// Files are at most so long.
const FILE_SEGMENTS: u64 = 15;
/// Visits for each first one.
const VISITS: u64 = 6;
/// Requests of a visit, at most.
pub const RUN: u64 = 16;
/// Requests of a visit, at most, as fitted to what PRWC prints of SLRU and PROC: PROC has 1.04 of SLRU_n's bandwidth, hits
/// 0.06 fewer of its reads, and SLRU has 0.59 of its bandwidth on the day after a reset (3.3, 3.5). The fit is the least sum of
/// the three squared differences, of `prwc-visits.toml` and `prwc-visits-reset.toml` (seed 1, means of five users); no figure of
/// PRWC is an input:
///
/// | requests, at most | bandwidth | fewer hits | after a reset | sum of squares |
/// | --- | --- | --- | --- | --- |
/// | 1 | 1.017 | 0.192 | 0.627 | 0.019 |
/// | 2 | 0.824 | 0.259 | 0.641 | 0.089 |
/// | 4 | 0.759 | 0.315 | 0.658 | 0.149 |
/// | 8 | 0.778 | 0.356 | 0.689 | 0.166 |
/// | 16 | 0.803 | 0.381 | 0.719 | 0.176 |
///
/// So a visit is one request. SLRU_n still hits 0.78 of its reads, as half of the visits return within an hour.
pub const FITTED_RUN: u64 = 1;
/// Bytes of the requests of a visit.
const SIZES: [u64; 4] = [4 << 10, 4 << 10, 16 << 10, 64 << 10];
/// Bytes of the requests of a backup.
const COPY_BYTES: u64 = 64 << 10;
/// Hours of a day, the last of which is what *hourly* looks back on.
const HOURS: u64 = 10;
/// Recent visits that are tried for one that suits.
const TRIES: u32 = 16;

/// What stands for a GB of the paper, and so for a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Segments that stand for a GB.
    pub segments_per_gb: u64,
}

impl Scale {
    /// A quarter of the paper's sizes.
    pub const QUARTER: Self = Self { segments_per_gb: 256 };

    /// So many of the paper's GB, in bytes.
    #[must_use]
    pub fn bytes(self, gb: u64) -> u64 {
        gb * self.segments_per_gb * SEGMENT_BYTES
    }

    /// Bytes of the disk.
    #[must_use]
    pub fn disk_bytes(self) -> u64 {
        self.bytes(DISK_GB)
    }

    /// A day: 24 hours at full size.
    #[must_use]
    pub fn day(self) -> Nanos {
        24 * 3600 * SECOND * self.segments_per_gb / 1024
    }

    fn partition_segments(self) -> u64 {
        PARTITION_GB * self.segments_per_gb
    }
}

/// Coverages in GB, and the share of writes in the bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct User {
    /// The user's number in the paper.
    pub number: u32,
    /// All coverage.
    pub all: u64,
    /// What is written of it.
    pub written: u64,
    /// What is read of it.
    pub read: u64,
    /// Of the bytes.
    pub write_share: f64,
}

const fn user(number: u32, all: u64, written: u64, read: u64, write_share: f64) -> User {
    User { number, all, written, read, write_share }
}

/// The paper's five.
pub const USERS: [User; 5] = [
    user(1, 73, 33, 65, 0.24),
    user(2, 111, 62, 93, 0.36),
    user(3, 59, 37, 45, 0.29),
    user(4, 148, 113, 101, 0.34),
    user(5, 112, 61, 95, 0.46),
];

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Else it reads.
    pub writes: bool,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// What is done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Read,
    Written,
    Both,
}

impl Use {
    fn allows(self, writes: bool) -> bool {
        self == Self::Both || (self == Self::Written) == writes
    }
}

/// Neighbouring segments.
#[derive(Clone, Copy, Debug)]
struct File {
    first: u64,
    segments: u64,
    used: Use,
    /// Its first day.
    day: u32,
}

/// A segment.
#[derive(Clone, Copy, Debug)]
struct Segment {
    number: u64,
    used: Use,
    day: u32,
}

/// The generator, see the module.
#[derive(Clone, Debug)]
pub struct Desktop {
    scale: Scale,
    files: Vec<File>,
    /// The most popular first.
    segments: Vec<Segment>,
    /// The chance that a visit which is no first one writes.
    writes: f64,
    /// Requests of a visit, at most.
    run: u64,
    random: SplitMix64,
}

impl Desktop {
    /// A user's desktop with visits of up to [`RUN`] requests.
    #[must_use]
    pub fn new(user: &User, scale: Scale, seed: u64) -> Self {
        Self::with_run(user, scale, RUN, seed)
    }

    /// A user's desktop with visits of up to `run` requests, at most [`RUN`].
    #[must_use]
    pub fn with_run(user: &User, scale: Scale, run: u64, seed: u64) -> Self {
        let run = run.clamp(1, RUN);
        let mut random = SplitMix64::new(seed << 8 | u64::from(user.number));
        let files = files(user, scale, &mut random);
        let of = |file: &File| {
            let File { first, segments, used, day } = *file;
            (first..first + segments).map(move |number| Segment { number, used, day })
        };
        let mut segments: Vec<Segment> = files.iter().flat_map(of).collect();
        shuffle(&mut segments, &mut random);
        let first = user.written as f64 / (user.written + user.read) as f64;
        let writes = (VISITS as f64 * user.write_share - first) / (VISITS - 1) as f64;
        Self { scale, files, segments, writes, run, random }
    }

    /// The requests of a day (from 0 on), in order. Days must be asked for in order.
    pub fn day(&mut self, day: u32) -> Vec<Ask> {
        let mut new: Vec<File> = self.files.iter().filter(|f| f.day == day).copied().collect();
        shuffle(&mut new, &mut self.random);
        let passes = |f: &File| f.segments * if f.used == Use::Both { 2 } else { 1 };
        let visits = VISITS * new.iter().map(passes).sum::<u64>();
        let again = (visits - visits / VISITS) as usize;
        // Where a file is opened for the first time, and where something is visited again.
        let mut order: Vec<bool> = vec![true; new.len()];
        order.resize(new.len() + again, false);
        shuffle(&mut order, &mut self.random);
        let popular = [false, true].map(|writes| self.popular(day, writes));
        let (mut asks, mut recent) = (Vec::new(), Recent::of(visits / HOURS));
        for opens in order {
            if opens && let Some(file) = new.pop() {
                for writes in [true, false].into_iter().filter(|w| file.used.allows(*w)) {
                    for number in file.first..file.first + file.segments {
                        let segment = Segment { number, used: file.used, day };
                        self.visit(segment, writes, &mut asks);
                        recent.push(segment);
                    }
                }
                continue;
            }
            let writes = chance(&mut self.random, self.writes);
            let hourly = chance(&mut self.random, 0.5);
            let found = recent.pick(writes, &mut self.random).filter(|_| hourly);
            let (zipf, segments) = &popular[usize::from(writes)];
            let rank = zipf.draw(&mut self.random) as usize;
            if let Some(segment) = found.or_else(|| segments.get(rank).copied()) {
                self.visit(segment, writes, &mut asks);
                recent.push(segment);
            }
        }
        asks
    }

    /// A backup at the end of a day: reads and writes.
    #[must_use]
    pub fn backup(&self, day: u32) -> Vec<Ask> {
        let mut touched: Vec<u64> =
            self.segments.iter().filter(|s| s.day <= day).map(|s| s.number).collect();
        touched.sort_unstable();
        let copies = touched.into_iter().zip(self.scale.partition_segments()..);
        let pass = |number: u64, writes| {
            let parts = (0..SEGMENT_BYTES).step_by(COPY_BYTES as usize);
            let base = number * SEGMENT_BYTES;
            parts.map(move |at| Ask { writes, offset: base + at, len: COPY_BYTES })
        };
        copies.flat_map(|(from, to)| pass(from, false).chain(pass(to, true))).collect()
    }

    /// What earlier days left to read or write, the most popular first, with the law; on the first
    /// day what there is.
    fn popular(&self, day: u32, writes: bool) -> (Zipf, Vec<Segment>) {
        let there = |s: &&Segment| s.day < day.max(1) && s.used.allows(writes);
        let segments: Vec<Segment> = self.segments.iter().filter(there).copied().collect();
        (Zipf::new(segments.len() as u32, EXPONENT), segments)
    }

    fn visit(&mut self, segment: Segment, writes: bool, asks: &mut Vec<Ask>) {
        let len = SIZES[self.random.below(SIZES.len() as u64) as usize];
        let run = 1 + self.random.below(self.run);
        let start = self.random.below(SEGMENT_BYTES / len - run + 1);
        let base = segment.number * SEGMENT_BYTES;
        asks.extend((start..start + run).map(|i| Ask { writes, offset: base + i * len, len }));
    }
}

/// The last visits.
struct Recent {
    most: usize,
    next: usize,
    visits: Vec<Segment>,
}

impl Recent {
    fn of(most: u64) -> Self {
        Self { most: (most as usize).max(1), next: 0, visits: Vec::new() }
    }

    fn push(&mut self, segment: Segment) {
        if self.visits.len() < self.most {
            return self.visits.push(segment);
        }
        self.visits[self.next] = segment;
        self.next = (self.next + 1) % self.most;
    }

    fn pick(&self, writes: bool, random: &mut SplitMix64) -> Option<Segment> {
        let mut draw = || self.visits.get(random.below(self.visits.len() as u64) as usize);
        (0..TRIES).filter_map(|_| draw()).find(|s| s.used.allows(writes)).copied()
    }
}

/// Files that make up the user's coverages, in order of place.
fn files(user: &User, scale: Scale, random: &mut SplitMix64) -> Vec<File> {
    let per_gb = scale.segments_per_gb;
    let both = user.written + user.read - user.all;
    let mut left = [
        (Use::Read, (user.read - both) * per_gb),
        (Use::Written, (user.written - both) * per_gb),
        (Use::Both, both * per_gb),
    ];
    let mut files = Vec::new();
    loop {
        let all: u64 = left.iter().map(|(_, segments)| segments).sum();
        let mut point = random.below(all);
        let Some((used, rest)) = left.iter_mut().find(|(_, segments)| {
            let here = point < *segments;
            point = point.saturating_sub(*segments);
            here
        }) else {
            break;
        };
        let segments = (1 + random.below(FILE_SEGMENTS)).min(*rest);
        *rest -= segments;
        let day = random.below(u64::from(DAYS)) as u32;
        files.push(File { first: 0, segments, used: *used, day });
    }
    let free = scale.partition_segments() - user.all * per_gb;
    let (gap, mut at, mut left) = (free / files.len() as u64, 0, free);
    for file in &mut files {
        let here = random.below(2 * gap).min(left);
        (file.first, left) = (at + here, left - here);
        at = file.first + file.segments;
    }
    files
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};

    use super::*;

    const SCALE: Scale = Scale::QUARTER;
    const PER_GB: f64 = SCALE.segments_per_gb as f64;

    fn week(user: &User, seed: u64) -> Vec<Vec<Ask>> {
        let mut desktop = Desktop::new(user, SCALE, seed);
        (0..DAYS).map(|day| desktop.day(day)).collect()
    }

    fn covered<'a>(asks: impl Iterator<Item = &'a Ask>) -> BTreeSet<u64> {
        asks.map(|ask| ask.offset / SEGMENT_BYTES).collect()
    }

    #[test]
    fn coverages_are_the_papers_to_the_segment() {
        for user in &USERS {
            let asks = week(user, 1).concat();
            let gb = |segments: BTreeSet<u64>| segments.len() as f64 / PER_GB;
            assert_eq!(gb(covered(asks.iter())), user.all as f64);
            assert_eq!(gb(covered(asks.iter().filter(|a| a.writes))), user.written as f64);
            assert_eq!(gb(covered(asks.iter().filter(|a| !a.writes))), user.read as f64);
            assert!(asks.iter().all(|a| a.offset + a.len <= SCALE.bytes(PARTITION_GB)));
            let first = |a: &Ask| a.offset / SEGMENT_BYTES;
            let last = |a: &Ask| (a.offset + a.len - 1) / SEGMENT_BYTES;
            assert!(asks.iter().all(|a| first(a) == last(a)));
        }
    }

    #[test]
    fn a_smaller_scale_has_the_same_coverages() {
        let scale = Scale { segments_per_gb: 8 };
        for user in &USERS {
            let mut desktop = Desktop::new(user, scale, 1);
            let asks: Vec<Ask> = (0..DAYS).flat_map(|day| desktop.day(day)).collect();
            assert_eq!(covered(asks.iter()).len() as u64, user.all * 8);
            let written = covered(asks.iter().filter(|a| a.writes)).len() as u64;
            assert_eq!(written, user.written * 8);
        }
        assert_eq!(Scale::QUARTER.day(), 6 * 3600 * SECOND);
    }

    #[test]
    fn shares_of_bytes_and_of_coverage_are_the_papers() {
        let printed = [0.34, 0.40, 0.45, 0.53, 0.39];
        for (user, share) in USERS.iter().zip(printed) {
            let covers = user.written as f64 / (user.written + user.read) as f64;
            assert!((covers - share).abs() < 0.005, "{user:?}: {covers}");
            let asks = week(user, 2).concat();
            let bytes = |asks: &mut dyn Iterator<Item = &Ask>| asks.map(|a| a.len).sum::<u64>();
            let writes = bytes(&mut asks.iter().filter(|a| a.writes)) as f64;
            let found = writes / bytes(&mut asks.iter()) as f64;
            assert!((found - user.write_share).abs() < 0.01, "{user:?}: {found}");
        }
    }

    #[test]
    fn coverage_grows_evenly_and_some_visits_are_to_what_is_new() {
        let user = &USERS[4];
        let (mut seen, mut hits, mut all) = (HashSet::new(), 0.0, 0.0);
        for asks in week(user, 3) {
            let before = seen.clone();
            seen.extend(covered(asks.iter()));
            let grown = (seen.len() - before.len()) as f64 / PER_GB;
            assert!((grown / (user.all as f64 / 10.0) - 1.0).abs() < 0.15, "{grown}");
            if !before.is_empty() {
                all += asks.len() as f64;
                let old = |a: &&Ask| before.contains(&(a.offset / SEGMENT_BYTES));
                hits += asks.iter().filter(old).count() as f64;
            }
        }
        // 1 - 1/6 / (1 - 5/6 * 1/2); what suits neither a read nor a write is drawn again.
        assert!((hits / all - 0.714).abs() < 0.03, "{}", hits / all);
        let zipf = Zipf::new((user.all as f64 * PER_GB) as u32, EXPONENT);
        let best = zipf.share_of_top((FLASH_GB as f64 * PER_GB) as u32) * hits / all;
        assert!((best - 0.58).abs() < 0.02, "{best}");
    }

    #[test]
    fn a_backup_reads_all_there_is_and_copies_it_elsewhere() {
        let mut desktop = Desktop::new(&USERS[2], SCALE, 1);
        let asks: Vec<Ask> = (0..5).flat_map(|day| desktop.day(day)).collect();
        let backup = desktop.backup(4);
        let (writes, reads): (Vec<Ask>, Vec<Ask>) = backup.iter().partition(|a| a.writes);
        assert_eq!(covered(reads.iter()), covered(asks.iter()));
        assert!(reads.is_sorted_by_key(|a| a.offset) && writes.is_sorted_by_key(|a| a.offset));
        assert_eq!(reads.len(), writes.len());
        assert!(covered(writes.iter()).is_disjoint(&covered(asks.iter())));
        assert!(backup.iter().all(|a| a.offset + a.len <= SCALE.disk_bytes()));
    }

    #[test]
    fn equal_seeds_give_equal_days() {
        let day = |seed| Desktop::new(&USERS[0], SCALE, seed).day(0);
        assert_eq!(day(1), day(1));
        assert_ne!(day(1), day(2));
    }
}
