// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replacement: who leaves the cache. One file per policy behind one trait.
//!
//! Slots are numbered from zero; the policy keeps its own memory per slot. The engine decides
//! which slots may leave at all (a slot with an operation under way may not, design rule 5) and
//! passes that as a predicate. Where a cache is set-associative, the slots of a set are
//! neighbours, and FIFO and LRU keep one queue per set.

mod arc;
mod buckets;
mod clock;
mod fifo;
mod gclock;
mod ghost;
mod lirs;
mod list;
mod lru;
mod lru2;
mod s3fifo;
mod sieve;
mod twoq;
mod update;
mod wtinylfu;

pub use arc::Arc;
pub use buckets::{BucketOrder, Buckets};
pub use clock::Clock;
pub use fifo::Fifo;
pub use gclock::{DEFAULT_CEILING, GClock};
pub use lirs::Lirs;
pub use lru::Lru;
pub use lru2::Lru2;
pub use s3fifo::S3Fifo;
pub use sieve::Sieve;
pub use twoq::TwoQ;
pub use update::Update;
pub use wtinylfu::WTinyLfu;

/// Who leaves, see the module.
pub trait Replacement {
    /// A unit entered this slot.
    fn inserted(&mut self, slot: u32, unit: u64);

    /// The slot's unit was read or written.
    fn accessed(&mut self, slot: u32);

    /// The slot's unit left, for whatever reason.
    fn removed(&mut self, slot: u32);

    /// A client asked for something, resident or not.
    fn requested(&mut self) {}

    /// Whether a search for a victim has a chance. Between searches policies that take standing
    /// from whom they pass want to see some requests.
    fn may_search(&self) -> bool {
        true
    }

    /// How many victims in a row belong together: the engine has all of them leave at once.
    fn leaves_together(&self) -> u32 {
        1
    }

    /// The slot of `set` whose unit is to leave so that `incoming` can enter, among those of which
    /// `may_leave` holds; `None` when all that could be looked at in bounded time are worth
    /// keeping. The engine removes that unit (or, if it changes its mind, does not).
    fn victim(&mut self, incoming: u64, set: u32, may_leave: &dyn Fn(u32) -> bool) -> Option<u32>;
}
