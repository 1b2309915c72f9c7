// SPDX-License-Identifier: MIT OR Apache-2.0
//! The five choices and their settings; the third and second also know how to build the policy.

use larder_policy::admission::{OnMissSettings, PeriodicSettings, SelectiveSettings};
use larder_policy::replacement::{
    Arc, BucketOrder, Buckets, Clock, Fifo, GClock, Lirs, Lru, Replacement, S3Fifo, Sieve, TwoQ,
    WTinyLfu,
};

use crate::buf::PAGE;
use crate::pagelog::{BATCH_PAGES, LogPolicy, LogSettings};

/// Choice 4: what a write does to the flash copy of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePolicy {
    /// The flash copy is written after the origin's, from a bounded pool of buffers; the client
    /// does not wait for it (SCE 3.3). Falls back to write-around when the pool is empty.
    AsyncWriteThrough,
    /// The flash copy is written after the origin's, and the client waits for both.
    WriteThrough,
    /// The flash copy becomes invalid (SCE 4.5).
    WriteAround,
    /// What is cached is written to flash alone, and to the origin when it leaves; what is not is
    /// written to the origin alone (PRWC 2.2). Flash is the truth of what it holds.
    WriteBack,
    /// What is written enters a log of pages, and the origin at once, with a FLUSH, or when it leaves
    /// (FaCE 4.2).
    Logged(LogPolicy),
}

impl WritePolicy {
    /// Whether flash holds what the origin does not.
    #[must_use]
    pub fn flash_owns(self) -> bool {
        match self {
            Self::WriteBack => true,
            Self::Logged(policy) => policy.holds_dirty(),
            _ => false,
        }
    }

    /// Whether what flash alone has outlives a crash: then it and the origin belong together. Else it is lost
    /// with the process, as what is in a disk's write cache is lost with the power.
    #[must_use]
    pub fn flash_keeps(self) -> bool {
        match self {
            Self::WriteBack => true,
            Self::Logged(policy) => policy.outlives_crash(),
            _ => false,
        }
    }

    /// Where pages lie in a log: what it does with those that change.
    #[must_use]
    pub fn log(self) -> Option<LogPolicy> {
        match self {
            Self::Logged(policy) => Some(policy),
            _ => None,
        }
    }
}

/// Choice 5: what of the metadata outlives the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: the cache starts cold (the paper's SCE).
    Volatile,
    /// A journal on flash: the cache starts warm (the paper's future work).
    Journal,
    /// The page log's own segments and heads (FaCE 5).
    Log,
}

/// Choice 2: who enters.
#[derive(Clone, Debug, PartialEq)]
pub enum AdmissionChoice {
    /// The hottest of the most recent misses, by background workers.
    Selective(SelectiveSettings),
    /// Every miss, with the request that missed.
    OnMiss(OnMissSettings),
    /// What is hot when an update comes.
    Periodic(PeriodicSettings),
    /// Pages that leave the cache above, which are those that are written; and, by choice, those that are read.
    OnExit(OnExitSettings),
}

/// Who enters a page log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnExitSettings {
    /// Whether a page enters that was read from the origin.
    pub reads: bool,
    /// Pages of a batch.
    pub batch_pages: u32,
}

impl AdmissionChoice {
    /// Whether it needs an update now and then.
    #[must_use]
    pub fn is_periodic(&self) -> bool {
        matches!(self, Self::Periodic(_))
    }

    /// Bytes of memory per origin unit.
    #[must_use]
    pub fn bytes_per_unit(&self) -> u64 {
        // A reference factor.
        if self.is_periodic() { 2 } else { 0 }
    }
}

/// Where a unit may lie: part of choice 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In any slot.
    Anywhere,
    /// In the slots of one set.
    Sets {
        /// Slots of a set.
        ways: u32,
        /// Whether neighbouring units go to different sets; else a set takes `ways` neighbours.
        hashed: bool,
    },
}

impl Placement {
    /// Slots of a set, of `slots`.
    #[must_use]
    pub fn ways(self, slots: u32) -> u32 {
        match self {
            Self::Anywhere => slots,
            Self::Sets { ways, .. } => ways.clamp(1, slots.max(1)),
        }
    }

    /// Which of `sets` sets a unit belongs to.
    #[must_use]
    pub fn set_of(self, unit: u32, sets: u32) -> u32 {
        match self {
            Self::Anywhere => 0,
            Self::Sets { ways, hashed: false } => unit / ways % sets.max(1),
            Self::Sets { hashed: true, .. } => {
                let hash = u64::from(unit).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
                (hash % u64::from(sets.max(1))) as u32
            }
        }
    }
}

/// A replacement policy of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplacementChoice {
    /// Generalised CLOCK with this ceiling.
    GClock {
        /// The highest count of a unit.
        ceiling: u8,
    },
    /// Least recently used.
    Lru,
    /// First in, first out.
    Fifo,
    /// Second chance.
    Clock,
    /// SIEVE.
    Sieve,
    /// S3-FIFO.
    S3Fifo,
    /// ARC.
    Arc,
    /// 2Q.
    TwoQ,
    /// LIRS.
    Lirs,
    /// W-TinyLFU.
    WTinyLfu,
    /// Whole buckets, as bcache.
    Buckets {
        /// Bytes of a bucket.
        bytes: u64,
        /// Which bucket leaves.
        order: BucketOrder,
    },
}

/// Choice 3: what is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// What a replacement policy gives up, when a unit needs a slot.
    Replacement(ReplacementChoice),
    /// Cold units, by a periodic update alone (PRWC 2.6).
    Update,
    /// The tail of the log: first in, first out, whatever the version (FaCE 4.2.2).
    LogOrder {
        /// Whether a page that was asked for is appended once more instead (FaCE 4.3).
        second_chance: bool,
    },
}

impl Eviction {
    /// Bytes of memory per slot, rounded up.
    #[must_use]
    pub fn bytes_per_slot(self) -> u64 {
        match self {
            Self::Replacement(policy) => policy.bytes_per_slot(),
            Self::Update | Self::LogOrder { .. } => 0,
        }
    }
}

/// What is to be done with a policy of any type: for callers that make so many calls that they
/// must not be virtual.
pub trait WithPolicy {
    /// What comes of it.
    type Out;

    /// Does it.
    fn with<P: Replacement + 'static>(self, policy: P) -> Self::Out;
}

impl ReplacementChoice {
    /// The names that the command line takes, and what they mean.
    pub const NAMED: &[(&str, Self)] = &[
        ("gclock", Self::GClock { ceiling: larder_policy::replacement::DEFAULT_CEILING }),
        ("lru", Self::Lru),
        ("fifo", Self::Fifo),
        ("clock", Self::Clock),
        ("sieve", Self::Sieve),
        ("s3fifo", Self::S3Fifo),
        ("arc", Self::Arc),
        ("2q", Self::TwoQ),
        ("lirs", Self::Lirs),
        ("wtinylfu", Self::WTinyLfu),
    ];

    /// The policy over `slots` slots in sets of `ways`.
    #[must_use]
    pub fn build(self, slots: u32, ways: u32, unit_bytes: u64) -> Box<dyn Replacement> {
        struct Boxed;
        impl WithPolicy for Boxed {
            type Out = Box<dyn Replacement>;

            fn with<P: Replacement + 'static>(self, policy: P) -> Self::Out {
                Box::new(policy)
            }
        }
        self.with(slots, ways, unit_bytes, Boxed)
    }

    /// Does something with the policy, whose type is known there.
    pub fn with<W: WithPolicy>(self, slots: u32, ways: u32, unit_bytes: u64, then: W) -> W::Out {
        match self {
            Self::GClock { ceiling } => then.with(GClock::new(slots, ceiling)),
            Self::Lru => then.with(Lru::new(slots, ways)),
            Self::Fifo => then.with(Fifo::new(slots, ways)),
            Self::Clock => then.with(Clock::new(slots)),
            Self::Sieve => then.with(Sieve::new(slots)),
            Self::S3Fifo => then.with(S3Fifo::new(slots)),
            Self::Arc => then.with(Arc::new(slots)),
            Self::TwoQ => then.with(TwoQ::new(slots)),
            Self::Lirs => then.with(Lirs::new(slots)),
            Self::WTinyLfu => then.with(WTinyLfu::new(slots)),
            Self::Buckets { bytes, order } => {
                let per_bucket = (bytes / unit_bytes).clamp(1, u64::from(u32::MAX)) as u32;
                then.with(Buckets::new(slots, per_bucket, order))
            }
        }
    }

    /// Whether it can choose among the slots of one set.
    #[must_use]
    pub fn knows_sets(self) -> bool {
        matches!(self, Self::Lru | Self::Fifo)
    }

    /// Bytes of memory per slot, ghosts included, rounded up.
    #[must_use]
    pub fn bytes_per_slot(self) -> u64 {
        match self {
            // A count.
            Self::GClock { .. } | Self::Buckets { .. } => 1,
            // Two links.
            Self::Lru | Self::Fifo => 8,
            // Two links and a bit.
            Self::Clock | Self::Sieve => 9,
            // Links, state, unit, and 0.9 ghosts: a place in a table and in a queue.
            Self::S3Fifo => 8 + 1 + 8 + 44,
            // Links, list, unit, and a ghost.
            Self::Arc => 8 + 1 + 8 + 48,
            // Links, list, unit, and half a ghost.
            Self::TwoQ => 8 + 1 + 8 + 24,
            // Links in the queue, standing, and for the slot and 1.01 ghosts: links in the stack,
            // links by age, unit; and the ghosts' places in a table and in the list of free ones.
            Self::Lirs => 8 + 1 + 49 + 42,
            // Links, part, unit, and eight to sixteen counters.
            Self::WTinyLfu => 8 + 1 + 8 + 16,
        }
    }
}

/// The five choices with their settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Choices {
    /// Choice 1: bytes of a unit.
    pub unit_bytes: u64,
    /// Choice 1: where it may lie.
    pub placement: Placement,
    /// Choice 2.
    pub admission: AdmissionChoice,
    /// Choice 3.
    pub eviction: Eviction,
    /// Choice 4.
    pub write: WritePolicy,
    /// Choice 5.
    pub durability: Durability,
}

impl Choices {
    /// The settings of selective admission, where that is the choice.
    pub fn selective_mut(&mut self) -> Option<&mut SelectiveSettings> {
        match &mut self.admission {
            AdmissionChoice::Selective(settings) => Some(settings),
            _ => None,
        }
    }

    /// The settings of periodic update, where that is the choice.
    pub fn periodic_mut(&mut self) -> Option<&mut PeriodicSettings> {
        match &mut self.admission {
            AdmissionChoice::Periodic(settings) => Some(settings),
            _ => None,
        }
    }

    /// Bytes of what is cached at once: a unit, or a page of a log.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        if self.write.log().is_some() { PAGE as u64 } else { self.unit_bytes }
    }

    /// How the page log behaves, where there is one.
    #[must_use]
    pub fn log(&self) -> Option<LogSettings> {
        let policy = self.write.log()?;
        let again = Eviction::LogOrder { second_chance: true };
        Some(LogSettings { policy, second_chance: self.eviction == again })
    }

    /// Who enters it.
    #[must_use]
    pub fn on_exit(&self) -> OnExitSettings {
        match &self.admission {
            AdmissionChoice::OnExit(settings) => *settings,
            _ => OnExitSettings { reads: true, batch_pages: BATCH_PAGES },
        }
    }

    /// The same choices with metadata of another durability.
    ///
    /// # Errors
    /// When dirty data would be lost with the metadata.
    pub fn with_durability(mut self, other: Durability) -> Result<Self, &'static str> {
        if other == Durability::Volatile && self.write.flash_owns() {
            return Err("flash holds dirty data; accepted: journal");
        }
        self.durability = other;
        Ok(self)
    }

    /// The same choices with the slots' replacement by another policy.
    ///
    /// # Errors
    /// When that policy cannot choose among the slots of a set.
    pub fn with_replacement(mut self, other: ReplacementChoice) -> Result<Self, &'static str> {
        match self.eviction {
            Eviction::LogOrder { .. } => {
                return Err("pages leave in the order of the log; accepted: none of them");
            }
            Eviction::Update => return Err("units leave by updates; accepted: none of them"),
            Eviction::Replacement(_) => {}
        }
        if self.placement != Placement::Anywhere && !other.knows_sets() {
            return Err("units are placed in sets; accepted: lru, fifo");
        }
        self.eviction = Eviction::Replacement(other);
        Ok(self)
    }
}
