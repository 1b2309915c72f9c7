// SPDX-License-Identifier: MIT OR Apache-2.0
//! The five choices and their settings.

use larder_policy::admission::{
    BENEFIT_BYTES_PER_UNIT, OnMissSettings, PeriodicSettings, SelectiveSettings,
};
use larder_policy::balance::BalanceSettings;
use larder_policy::replacement::{
    Arc, BucketOrder, Buckets, Clock, Fifo, GClock, Lirs, Lru, Replacement, S3Fifo, Sieve, TwoQ,
    WTinyLfu,
};
use larder_policy::syncer::SyncerSettings;
use larder_policy::touched::TouchSettings;

use crate::buf::PAGE;
use crate::cache::units::mixed::directory_bytes_each;
use crate::pagelog::{BATCH_PAGES, LogPolicy, LogSettings};
use crate::shape::Shape;

/// Choice 4: the effect of a write on the flash copy of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePolicy {
    /// The origin is written, the client is answered, then flash is written from a bounded pool of buffers (SCE 3.3). When
    /// the pool is empty, the pages become invalid.
    AsyncWriteThrough,
    /// The origin is written, then flash; then the client is answered.
    WriteThrough,
    /// The origin is written; the flash copy becomes invalid (SCE 4.5).
    WriteAround,
    /// A cached unit is written to flash alone, and to the origin by the syncer or at its eviction. Other units are written to
    /// the origin alone (PRWC 2.2), unless the write admits them (SCE 4.4).
    WriteBack,
    /// A page is written to a log on flash, and to the origin at once, with a FLUSH, or at its eviction (FaCE 4.2).
    Logged(LogPolicy),
}

impl WritePolicy {
    /// The write policies of units whose flash holds copies, with their names. A cache may change from one to another while it serves.
    pub const COPIES: &[(&str, Self)] = &[
        ("async", Self::AsyncWriteThrough),
        ("through", Self::WriteThrough),
        ("around", Self::WriteAround),
    ];

    /// The name that the command line accepts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AsyncWriteThrough => "async",
            Self::WriteThrough | Self::Logged(LogPolicy::Through) => "through",
            Self::WriteAround => "around",
            Self::WriteBack => "write-back",
            Self::Logged(LogPolicy::Bounded) => "bounded",
            Self::Logged(LogPolicy::Full) => "full",
            Self::Logged(LogPolicy::Ordered) => "ordered",
        }
    }

    /// Whether flash may hold dirty data.
    #[must_use]
    pub fn flash_owns(self) -> bool {
        match self {
            Self::WriteBack => true,
            Self::Logged(policy) => policy.holds_dirty(),
            _ => false,
        }
    }

    /// Whether flash may hold dirty units, which a syncer writes back.
    #[must_use]
    pub fn owns_units(self) -> bool {
        matches!(self, Self::WriteBack)
    }

    /// Whether dirty data survives a crash: then flash and origin must be attached together. Else it is lost with the
    /// process, as the content of a disk's write cache is lost with the power.
    #[must_use]
    pub fn flash_keeps(self) -> bool {
        match self {
            Self::WriteBack => true,
            Self::Logged(policy) => policy.survives_crash(),
            _ => false,
        }
    }

    /// The write policy of the page log, if there is one.
    #[must_use]
    pub fn log(self) -> Option<LogPolicy> {
        match self {
            Self::Logged(policy) => Some(policy),
            _ => None,
        }
    }
}

/// Choice 5: which metadata survives a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// None: the cache starts cold (SCE as published).
    Volatile,
    /// A journal on flash: the cache starts warm (future work in SCE).
    Journal,
    /// The segments and batch headers of the page log (FaCE 5).
    Log,
}

/// Choice 2: which units or pages are admitted.
#[derive(Clone, Debug, PartialEq)]
pub enum AdmissionChoice {
    /// The hottest of the most recent misses, by background workers.
    Selective(SelectiveSettings),
    /// Every miss, with the request that misses.
    OnMiss(OnMissSettings),
    /// Units that are hot at a periodic update.
    Periodic(PeriodicSettings),
    /// Pages that the cache above evicts: those that are written and, optionally, those that are read.
    OnExit(OnExitSettings),
}

/// Which pages a page log admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnExitSettings {
    /// Whether pages read from the origin are admitted.
    pub reads: bool,
    /// Pages of a batch.
    pub batch_pages: u32,
}

impl AdmissionChoice {
    /// Whether it admits by periodic updates.
    #[must_use]
    pub fn is_periodic(&self) -> bool {
        matches!(self, Self::Periodic(_))
    }

    /// Whether single pages of units are admitted.
    #[must_use]
    pub fn has_singles(&self) -> bool {
        matches!(self, Self::Selective(SelectiveSettings { singles: Some(_), .. }))
    }

    /// Bytes of memory that the directories of mixed slots may take, in a cache of so many slots.
    #[must_use]
    pub fn directories_most(&self, slots: u64, unit_bytes: u64) -> u64 {
        let Self::Selective(SelectiveSettings { singles: Some(singles), .. }) = self else {
            return 0;
        };
        let pages = (unit_bytes / PAGE as u64) as u32;
        (slots * directory_bytes_each(pages)).min(singles.memory_bytes)
    }

    /// Bytes of memory per origin unit.
    #[must_use]
    pub fn bytes_per_unit(&self) -> u64 {
        match self {
            // A reference factor.
            Self::Periodic(_) => 2,
            Self::Selective(settings) if settings.by_benefit => BENEFIT_BYTES_PER_UNIT,
            Self::Selective(_) | Self::OnMiss(_) | Self::OnExit(_) => 0,
        }
    }
}

/// Which slots a unit may use: part of choice 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In any slot.
    Anywhere,
    /// In the slots of one set.
    Sets {
        /// Slots of a set.
        ways: u32,
        /// Whether neighbouring units belong to different sets; else `ways` neighbours belong to one.
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

    /// Slots of whole sets, of `slots`: those beyond the last one are unused.
    #[must_use]
    pub fn usable(self, slots: u32) -> u32 {
        let ways = self.ways(slots);
        slots.checked_div(ways).unwrap_or(0) * ways
    }

    /// Whether the number of slots may change while they hold units: in sets another number would give units other sets.
    #[must_use]
    pub fn may_grow(self) -> bool {
        self == Self::Anywhere
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
    /// Whole buckets, as in bcache.
    Buckets {
        /// Bytes of a bucket.
        bytes: u64,
        /// Which bucket is evicted.
        order: BucketOrder,
    },
}

/// Choice 3: what is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The victim of a replacement policy, when a unit needs a slot.
    Replacement(ReplacementChoice),
    /// Cold units, by a periodic update only (PRWC 2.6).
    Update,
    /// The tail of the log: first in, first out, current versions or not (FaCE 4.2.2).
    LogOrder {
        /// Whether a referenced page is appended again instead (FaCE 4.3).
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

/// An action on a policy of any type, without virtual calls: for callers on a hot path.
pub trait WithPolicy {
    /// Its result.
    type Out;

    /// Acts on the policy.
    fn with<P: Replacement + 'static>(self, policy: P) -> Self::Out;
}

impl ReplacementChoice {
    /// The policies that the command line accepts, with their names.
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

    /// The name in `NAMED`, whatever the settings of the policy are; `None` if it is not there.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        let same = |other: &Self| std::mem::discriminant(other) == std::mem::discriminant(&self);
        Self::NAMED.iter().find(|(_, choice)| same(choice)).map(|(name, _)| *name)
    }

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

    /// Builds the policy and passes it to `then`.
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

    /// Whether it can choose a victim within one set.
    #[must_use]
    pub fn knows_sets(self) -> bool {
        matches!(self, Self::Lru | Self::Fifo)
    }

    /// Bytes of memory per slot, ghosts included, rounded up.
    #[must_use]
    pub fn bytes_per_slot(self) -> u64 {
        match self {
            // A counter.
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
            // Links in the queue, state, and for the slot and 1.01 ghosts: links in the stack,
            // links by age, unit; and the ghosts' places in a table and in the free list.
            Self::Lirs => 8 + 1 + 49 + 42,
            // Links, segment, unit, and eight to sixteen counters.
            Self::WTinyLfu => 8 + 1 + 8 + 16,
        }
    }
}

/// The five choices with their settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Choices {
    /// Choice 1: bytes of a unit.
    pub unit_bytes: u64,
    /// Choice 1: which slots it may use.
    pub placement: Placement,
    /// Choice 2.
    pub admission: AdmissionChoice,
    /// Choice 3.
    pub eviction: Eviction,
    /// Choice 4.
    pub write: WritePolicy,
    /// Choice 5.
    pub durability: Durability,
    /// Whether the origin also serves clean data that hits, while flash is the busier or the slower device. Not of a
    /// paper.
    pub balance: Option<BalanceSettings>,
    /// How long a journal of a clean cache keeps regions under write touched; `None`: until the next checkpoint.
    pub touch: Option<TouchSettings>,
    /// Whether a journal under write-back records which regions are dirty (PRWC 2.8.4).
    pub dirty_log: bool,
    /// When write-back of units copies dirty ones to the origin, beside their eviction.
    pub sync: SyncerSettings,
    /// Whether every page of a cache of units has a checksum on flash, which its reads are compared with. Page logs always
    /// have them.
    pub verify: bool,
}

impl Choices {
    /// The settings of selective admission, if that is the choice.
    pub fn selective_mut(&mut self) -> Option<&mut SelectiveSettings> {
        match &mut self.admission {
            AdmissionChoice::Selective(settings) => Some(settings),
            _ => None,
        }
    }

    /// The settings of periodic update, if that is the choice.
    pub fn periodic_mut(&mut self) -> Option<&mut PeriodicSettings> {
        match &mut self.admission {
            AdmissionChoice::Periodic(settings) => Some(settings),
            _ => None,
        }
    }

    /// The shape of a volume with this cache. Metadata on flash contains the shards' own numbers of units, which depend on the
    /// stripes if there are several shards: such a cache keeps the stripes of one unit that every earlier one has.
    #[must_use]
    pub fn shape(&self, origin_bytes: u64, shards: u32) -> Shape {
        let shape = Shape::new(origin_bytes, self.unit_bytes, shards);
        match self.durability {
            Durability::Volatile => shape.wide(),
            Durability::Journal if shards == 1 => shape.wide(),
            Durability::Journal | Durability::Log => shape,
        }
    }

    /// Bytes that are admitted and evicted together: a unit, or a page of a log.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        if self.write.log().is_some() { PAGE as u64 } else { self.unit_bytes }
    }

    /// Flash that a part of a unit takes, of `len` bytes, when a command warms it.
    #[must_use]
    pub fn warmed_bytes(&self, len: u64) -> u64 {
        if self.admission.has_singles() && 2 * len < self.unit_bytes {
            return len.next_multiple_of(PAGE as u64);
        }
        len.next_multiple_of(self.cached_bytes())
    }

    /// The settings of the page log, if there is one.
    #[must_use]
    pub fn log(&self) -> Option<LogSettings> {
        let policy = self.write.log()?;
        let again = Eviction::LogOrder { second_chance: true };
        Some(LogSettings { policy, second_chance: self.eviction == again })
    }

    /// Which pages a page log admits.
    #[must_use]
    pub fn on_exit(&self) -> OnExitSettings {
        match &self.admission {
            AdmissionChoice::OnExit(settings) => *settings,
            _ => OnExitSettings { reads: true, batch_pages: BATCH_PAGES },
        }
    }

    /// The same choices with the slots' replacement by another policy.
    ///
    /// # Errors
    /// When that policy cannot choose among the slots of a set.
    pub fn with_replacement(mut self, other: ReplacementChoice) -> Result<Self, &'static str> {
        match self.eviction {
            Eviction::LogOrder { .. } => {
                return Err("pages are evicted in the order of the log; accepted: no replacement");
            }
            Eviction::Update => {
                return Err("units are evicted by updates; accepted: no replacement");
            }
            Eviction::Replacement(_) => {}
        }
        if self.placement != Placement::Anywhere && !other.knows_sets() {
            return Err("units are placed in sets; accepted: lru, fifo");
        }
        self.eviction = Eviction::Replacement(other);
        Ok(self)
    }
}
