// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a history saw, what was wrong with it, and how a person reads it.

use std::fmt;

use larder_core::buf::SECTOR;
use larder_core::exec::Nanos;
use larder_core::request::Kind;

use super::step::Step;
use crate::oracle::{WriteId, Wrong};

/// Requests of a history, at least.
pub const REQUESTS: u32 = 1_000;
/// Recoveries checked in a history, at least.
pub const RECOVERIES: u32 = 30;
/// Crashes of a history, at least.
pub const CRASHES: u32 = 3;

/// What a history saw, to show that it tested something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Client requests answered.
    pub requests: u64,
    /// Those that failed as the origin did.
    pub errors: u64,
    /// Records of pages that were changed past a log.
    pub bypassed: u64,
    /// Crashes.
    pub crashes: u64,
    /// Power cuts that were recovered from and checked.
    pub recoveries: u64,
    /// Sectors on flash that recovery found valid and that were compared.
    pub pages: u64,
    /// Shards that were warm after a crash.
    pub warm: u64,
    /// Units of which only flash holds a part.
    pub dirty: u64,
    /// Reads that hit flash when everything was read back.
    pub warm_hits: u64,
    /// Shards that found their metadata damaged by rot.
    pub cold: u64,
    /// Times that all dirty data was written back.
    pub cleared: u64,
    /// Times that a volume left the cache it shares.
    pub departed: u64,
    /// Times that another part of flash was used.
    pub resized: u64,
    /// Starts after which the origin was larger than before.
    pub grown: u64,
    /// Recoveries of shards without a change in progress, compared with what they held.
    pub settled: u64,
    /// Times that flash failed.
    pub flash_failed: u64,
    /// Times that flash was attached under load.
    pub attached: u64,
    /// Wrong sectors that nothing detects, by contract.
    pub undetected: u64,
    /// Crashes left out, since nothing is promised of them.
    pub left_out: u64,
    /// A digest of everything that clients saw.
    pub digest: u64,
}

impl Seen {
    pub(super) fn mix(&mut self, word: u64) {
        self.digest = mix(self.digest, word);
    }

    /// Whether the history is long enough to count.
    #[must_use]
    pub fn counts(&self) -> bool {
        let crashes =
            self.crashes >= u64::from(CRASHES) && self.recoveries >= u64::from(RECOVERIES);
        self.requests >= u64::from(REQUESTS) && (crashes || self.left_out > 0)
    }
}

pub(super) fn mix(digest: u64, word: u64) -> u64 {
    let mixed = (digest ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed >> 29
}

impl std::ops::AddAssign for Seen {
    fn add_assign(&mut self, more: Self) {
        self.requests += more.requests;
        self.errors += more.errors;
        self.bypassed += more.bypassed;
        self.crashes += more.crashes;
        self.recoveries += more.recoveries;
        self.pages += more.pages;
        self.warm += more.warm;
        self.dirty += more.dirty;
        self.warm_hits += more.warm_hits;
        self.cold += more.cold;
        self.cleared += more.cleared;
        self.departed += more.departed;
        self.resized += more.resized;
        self.grown += more.grown;
        self.settled += more.settled;
        self.flash_failed += more.flash_failed;
        self.attached += more.attached;
        self.undetected += more.undetected;
        self.left_out += more.left_out;
        self.digest = self.digest.wrapping_add(more.digest);
    }
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The design rule, and what broke it.
    pub rule: &'static str,
    /// The sector of the volume, where it is about one.
    pub sector: Option<u64>,
    /// More.
    pub what: String,
    /// The step in which it was found.
    pub step: usize,
    /// The time.
    pub at: Nanos,
}

impl Violation {
    pub(super) fn new(rule: &'static str, sector: Option<u64>, what: String) -> Box<Self> {
        Box::new(Self { rule, sector, what, step: 0, at: 0 })
    }

    pub(super) fn of(rule: &'static str, wrong: Wrong) -> Box<Self> {
        Self::new(rule, Some(wrong.sector), wrong.what)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}", self.rule)?;
        if let Some(sector) = self.sector {
            write!(f, ": sector {sector}")?;
        }
        write!(f, ": {} (step {}, {} us into the life)", self.what, self.step, self.at / 1000)
    }
}

/// What happened, and what was wrong.
pub(super) type Judged<T> = Result<T, Box<Violation>>;

/// A rule that was broken, and nothing about one sector.
pub(super) fn wrong<T>(rule: &'static str, what: impl Into<String>) -> Judged<T> {
    Err(Violation::new(rule, None, what.into()))
}

/// A step as it happened.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its number among the steps of the plan.
    pub step: usize,
    /// When.
    pub now: Nanos,
    /// What.
    pub what: Step,
    /// The number of the write that it began.
    pub write: WriteId,
}

impl Line {
    pub(super) fn of(step: usize, now: Nanos, what: &Step) -> Self {
        Self { step, now, what: *what, write: 0 }
    }

    /// Whether it has to do with a sector.
    #[must_use]
    pub fn concerns(&self, sector: u64) -> bool {
        match self.what {
            Step::Ask(Kind::Flush, ..) | Step::Crash(..) => true,
            Step::Ask(_, offset, len) => {
                let (first, end) = (offset / SECTOR as u64, (offset + len) / SECTOR as u64);
                (first..end).contains(&sector)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>5} {:>8} us  {}", self.step, self.now / 1000, self.what)?;
        if self.write > 0 {
            write!(f, " (write {})", self.write)?;
        }
        Ok(())
    }
}
