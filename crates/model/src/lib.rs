// SPDX-License-Identifier: MIT OR Apache-2.0
//! Latency models of disks, arrays, SSDs, cloud volumes, RAM and file servers. [`profile`] builds named ones,
//! [`Description::parse`] and [`Description::build`] others from a file's text.
//!
//! A model accepts requests and computes when each one completes. It moves no data, reads no clock, does no I/O and
//! starts no thread. So the same code serves the simulator's virtual time and the real-time `slow+` devices, which
//! delay the completion of real I/O until the model's.
//!
//! Invariants, kept by every model and tested for every profile:
//! - A submitted request is returned exactly once.
//! - Completion times never decrease and are never after the `now` of the poll.
//! - The submissions and the seed alone determine which requests complete, when and in which order. The frequency of
//!   polls has no effect: internal events happen at their own time, also when a late poll discovers them.
//! - Results are equal on every machine: integers, and of floating point only `+ - * /` and `sqrt`, which IEEE 754
//!   defines to the last bit.
//! - No request starves: the number of requests served before it is bounded.
//!
//! Why not curves fitted to a distribution of latencies: a cache changes the order, size, depth and locality of what
//! reaches a device, which such a curve ignores.
//!
//! Why not a trait with `async` methods: the model would depend on how it is awaited.
#![forbid(unsafe_code)]

mod array;
mod bounds;
mod by_offset;
mod cloud;
mod completions;
mod description;
mod disk;
mod filer;
mod fixed;
mod foreseen;
mod ftl;
mod holland;
mod jitter;
mod joint;
mod link;
mod op;
mod profiles;
mod random;
mod ssd;
mod wire;

pub use array::{Array, ArraySpec};
pub use by_offset::ByOffset;
pub use cloud::CloudSpec;
pub use description::{BadDescription, Description, DeviceSpec, Rated};
pub use disk::{Disk, DiskSpec, WriteCacheSpec};
pub use filer::{Filer, FilerSpec};
pub use fixed::{Fixed, FixedSpec};
pub use foreseen::{EndsAt, Foreseen};
pub use ftl::{FtlSpec, Wear};
pub use holland::Holland;
pub use jitter::Jitter;
pub use joint::Joint;
pub use link::{Link, LinkSpec};
pub use op::{Kind, Nanos, Op};
pub use profiles::{ProfileInfo, UnknownProfile, described, is_path, profile, profiles};
pub use random::SplitMix64;
pub use ssd::{Ssd, SsdSpec};

/// A device's latency model. See the crate's invariants.
///
/// `now` should never decrease between calls; if it does, the latest one applies.
pub trait Model: Send {
    /// Accepts a request at `now` under the caller's `id`, which the model returns unchanged.
    fn submit(&mut self, now: Nanos, id: u64, op: Op);

    /// The time of the next completion or internal event (a write cache that drains has events without requests in
    /// flight). `None` if nothing happens without a further request. A late poll changes no completion. After a poll at
    /// `now` returned `None`, this time is after `now`.
    fn next(&self) -> Option<Nanos>;

    /// Advances to `now` and returns one completed request with its completion time. To be called until it returns
    /// `None`.
    fn poll(&mut self, now: Nanos) -> Option<(u64, Nanos)>;

    /// Number of requests submitted and not yet returned by [`Model::poll`].
    fn in_flight(&self) -> usize;

    /// The flash operations since the model was built, for a drive with a flash translation layer.
    fn wear(&self) -> Option<Wear> {
        None
    }
}

impl<M: Model + ?Sized> Model for Box<M> {
    fn submit(&mut self, now: Nanos, id: u64, op: Op) {
        (**self).submit(now, id, op);
    }

    fn next(&self) -> Option<Nanos> {
        (**self).next()
    }

    fn poll(&mut self, now: Nanos) -> Option<(u64, Nanos)> {
        (**self).poll(now)
    }

    fn in_flight(&self) -> usize {
        (**self).in_flight()
    }

    fn wear(&self) -> Option<Wear> {
        (**self).wear()
    }
}
