// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a shard asks of a device, and what it learns of it: operations, their names, and time.

use crate::buf::Buf;
use crate::request::Errno;

/// A point in time or a span, in nanoseconds; the origin of the clock is the driver's.
pub type Nanos = u64;

/// One second.
pub const SECOND: Nanos = 1_000_000_000;
/// One millisecond.
pub const MILLISECOND: Nanos = 1_000_000;

/// A device as the driver numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DevId(pub u32);

/// The name of an operation between [`Exec::next_io`](super::Exec::next_io) and [`Exec::complete`](super::Exec::complete).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IoId(pub u32);

/// What a device is asked to do: the same as what a client may ask of a volume.
pub use crate::request::Kind as IoKind;

/// An operation on a device. Reads and writes use `buf[at .. at + len]`.
#[derive(Debug)]
pub struct Io {
    /// Its name for [`Exec::complete`](super::Exec::complete).
    pub id: IoId,
    /// The device.
    pub dev: DevId,
    /// What to do.
    pub kind: IoKind,
    /// First byte on the device.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// The memory, if the kind has any.
    pub buf: Option<Buf>,
    /// Where in the memory.
    pub at: usize,
}

/// What an operation holds until the device has really finished with it.
pub trait Guard: 'static {
    /// The operation finished after its task had given up waiting.
    fn late(&self, result: Result<(), Errno>);
}

impl Guard for () {
    fn late(&self, _: Result<(), Errno>) {}
}

/// How an operation ended for the task that waited.
#[derive(Debug)]
pub enum Ended {
    /// The device answered; the buffer is back.
    Done(Result<(), Errno>, Option<Buf>),
    /// The time allowed is over; buffer and guard stay with the operation.
    TimedOut,
}
