// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replacement: which unit is evicted. One trait, one file a policy.
//!
//! Slots are numbered from zero, and a policy keeps its own state per slot. The engine decides which slots are
//! evictable (a slot with an operation in flight is not, design rule 5) and passes a predicate. In a set-associative
//! cache the slots of a set are neighbours; FIFO and LRU keep one queue per set.

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

/// A replacement policy.
pub trait Replacement {
    /// A unit was put into `slot`.
    fn inserted(&mut self, slot: u32, unit: u64);

    /// The slot's unit was read or written.
    fn accessed(&mut self, slot: u32);

    /// The slot's unit was removed, evicted or not.
    fn removed(&mut self, slot: u32);

    /// A client made a request, whether or not it hit.
    fn requested(&mut self) {}

    /// Whether a search for a victim may succeed. A policy that lowers the counts of slots it passes needs some
    /// requests between two searches.
    fn may_search(&self) -> bool {
        true
    }

    /// How many consecutive victims form one group; the engine evicts a group at once.
    fn evicted_together(&self) -> u32 {
        1
    }

    /// The slot of `set` to evict so that `incoming` can be admitted, among the slots for which `may_evict` holds.
    /// `None` if every slot that the search may examine is worth keeping. The engine removes that unit, or keeps it and
    /// drops `incoming`.
    fn victim(&mut self, incoming: u64, set: u32, may_evict: &dyn Fn(u32) -> bool) -> Option<u32>;
}
