// SPDX-License-Identifier: MIT OR Apache-2.0
//! Device operations, devices and time.

use crate::buf::Buf;
use crate::request::Errno;

/// A point in time or a duration, in nanoseconds; the driver chooses the zero of the clock.
pub type Nanos = u64;

/// One second.
pub const SECOND: Nanos = 1_000_000_000;
/// One millisecond.
pub const MILLISECOND: Nanos = 1_000_000;

/// The driver's number of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DevId(pub u32);

/// The number of an operation between [`Exec::next_io`](super::Exec::next_io) and [`Exec::complete`](super::Exec::complete).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IoId(pub u32);

/// The kind of a device operation: the same kinds as of client requests.
pub use crate::request::Kind as IoKind;

/// An operation on a device. Reads and writes use `buf[at .. at + len]`.
#[derive(Debug)]
pub struct Io {
    /// Its number for [`Exec::complete`](super::Exec::complete).
    pub id: IoId,
    /// The device.
    pub dev: DevId,
    /// Its kind.
    pub kind: IoKind,
    /// First byte on the device.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// The buffer, for reads and writes.
    pub buf: Option<Buf>,
    /// First byte within the buffer.
    pub at: usize,
}

/// A value that an operation holds until the device has answered.
pub trait Guard: 'static {
    /// The device answered after the time limit, or after the waiting task was dropped.
    fn late(&self, result: Result<(), Errno>);
}

impl Guard for () {
    fn late(&self, _: Result<(), Errno>) {}
}

/// The end of an operation for the task that waits.
#[derive(Debug)]
pub enum Ended {
    /// The device answered; with the buffer.
    Done(Result<(), Errno>, Option<Buf>),
    /// The time limit expired; buffer and guard stay with the operation.
    TimedOut,
}
