// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests and time, as every model sees them.

/// A point in time or a span, in nanoseconds. The caller chooses the zero.
pub type Nanos = u64;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Reads a range.
    Read,
    /// Writes a range.
    Write,
    /// Makes completed writes durable. The length is ignored; the offset selects the device of a [`ByOffset`](crate::ByOffset).
    Flush,
    /// Discards or zeroes a range without sending data. Every model treats it as a command that moves no data, whatever
    /// the range: thin volumes and SSDs only change a map, and zeroing at media rate would make the discard of a whole
    /// disk last for hours.
    Trim,
}

/// A request to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Op {
    /// The kind.
    pub kind: Kind,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Whether a write is durable on completion (force unit access).
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

    /// A write that is durable on completion.
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
