// SPDX-License-Identifier: MIT OR Apache-2.0
//! Latency models of disks, arrays, SSDs, cloud volumes, RAM and file servers. Named ones are built by
//! [`profile`], others from a file's text by [`Description::parse`] and [`Description::build`].
//!
//! A model is told of requests and says when each one is done. It moves no data, reads no clock,
//! does no I/O and starts no thread, so the same code serves the simulator's virtual time and the
//! real-time `slow+` devices, whose real I/O is held back until the model says so.
//!
//! Invariants, kept by every model and tested for every profile:
//! - A request that was submitted comes back exactly once.
//! - Completion times never decrease and never lie after the `now` of the poll.
//! - What comes back, when and in which order follows from the submissions (and the seed) alone.
//!   How often the caller polls makes no difference: internal events happen at their own time,
//!   also when a late poll discovers them.
//! - Results are equal on every machine: integers, and of floating point only `+ - * /` and
//!   `sqrt`, which IEEE 754 defines to the last bit.
//! - Nothing starves: each wait is bounded in the number of requests served before it.
//!
//! Why not curves fitted to a distribution of latencies: a cache changes order, size, depth and
//! locality of what reaches a device, which is the very thing that such a curve leaves out.
//! Why not a trait with `async` methods: the model would then depend on how it is awaited.
#![forbid(unsafe_code)]

mod array;
mod bounds;
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
mod link;
mod profiles;
mod random;
mod ssd;
mod wire;

pub use array::{Array, ArraySpec};
pub use cloud::CloudSpec;
pub use description::{BadDescription, Description, DeviceSpec, Rated};
pub use disk::{Disk, DiskSpec, WriteCacheSpec};
pub use filer::{Filer, FilerSpec};
pub use fixed::{Fixed, FixedSpec};
pub use foreseen::{EndsAt, Foreseen};
pub use ftl::{FtlSpec, Wear};
pub use holland::Holland;
pub use jitter::Jitter;
pub use link::{Link, LinkSpec};
pub use profiles::{ProfileInfo, UnknownProfile, described, profile, profiles};
pub use random::SplitMix64;
pub use ssd::{Ssd, SsdSpec};

/// A point in time or a span of it, in nanoseconds. Where zero lies is the caller's choice.
pub type Nanos = u64;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Reads a range.
    Read,
    /// Writes a range.
    Write,
    /// Makes completed writes durable. Offset and length mean nothing.
    Flush,
    /// Discards or zeroes a range without sending data. Every model takes it as a command that
    /// moves no bytes, however long the range: thin volumes and SSDs only change a map, and a
    /// disk's cost of zeroing at media rate would make a discard of a whole disk last for hours.
    Trim,
}

/// One request as a device sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Op {
    /// What it does.
    pub kind: Kind,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// A write that is durable once complete (force unit access).
    pub fua: bool,
}

impl Op {
    /// A read.
    #[must_use]
    pub const fn read(offset: u64, len: u64) -> Self {
        Self { kind: Kind::Read, offset, len, fua: false }
    }

    /// A write.
    #[must_use]
    pub const fn write(offset: u64, len: u64) -> Self {
        Self { kind: Kind::Write, offset, len, fua: false }
    }

    /// A write that is durable once complete.
    #[must_use]
    pub const fn write_fua(offset: u64, len: u64) -> Self {
        Self { kind: Kind::Write, offset, len, fua: true }
    }

    /// A flush.
    #[must_use]
    pub const fn flush() -> Self {
        Self { kind: Kind::Flush, offset: 0, len: 0, fua: false }
    }

    /// A discard or a write of zeroes.
    #[must_use]
    pub const fn trim(offset: u64, len: u64) -> Self {
        Self { kind: Kind::Trim, offset, len, fua: false }
    }
}

/// A device's latency model. See the crate's invariants.
///
/// `now` should never step back between calls; if it does, it counts as the latest one seen.
pub trait Model: Send {
    /// Takes a request at `now` under the caller's `id`, which the model hands back unread.
    fn submit(&mut self, now: Nanos, id: u64, op: Op);

    /// When the model next wants to be polled, because of a completion or an internal event (a
    /// write cache that drains has those with nothing in flight). None means that nothing will
    /// happen without a further request. Polling late changes no completion; it only lets the
    /// events pile up for the next call. After a poll at `now` returned None, this lies after it.
    fn next(&self) -> Option<Nanos>;

    /// Advances to `now` and returns one request that is done, with the time at which it was.
    /// To be called until it returns None.
    fn poll(&mut self, now: Nanos) -> Option<(u64, Nanos)>;

    /// How many requests are inside: submitted and not yet returned by [`Model::poll`].
    fn in_flight(&self) -> usize;

    /// What its flash has done since it was built, of a drive with a flash translation layer.
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
