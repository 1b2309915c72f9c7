// SPDX-License-Identifier: MIT OR Apache-2.0
//! Client requests, and their pieces for the shards.
//!
//! Every front-end uses these types. It cuts a request into [`Piece`]s with [`pieces`]; a piece lies in one stripe, so one
//! shard serves it. Cutting keeps the guarantees, which hold per 512-byte sector (design rule 3).
//!
//! Invariants: a piece crosses no border of a stripe; a read or write has a buffer of exactly the piece's length, at most
//! [`MAX_PIECE_BYTES`].

use crate::buf::Buf;

/// The longest piece, and so the largest buffer.
pub const MAX_PIECE_BYTES: u64 = 1 << 20;

/// A Linux error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// Input/output error.
    pub const EIO: Self = Self(5);
    /// No such device or address.
    pub const ENXIO: Self = Self(6);
    /// No such device.
    pub const ENODEV: Self = Self(19);
    /// Out of memory.
    pub const ENOMEM: Self = Self(12);
    /// Invalid argument.
    pub const EINVAL: Self = Self(22);
    /// No space left on device.
    pub const ENOSPC: Self = Self(28);
    /// Operation not supported.
    pub const EOPNOTSUPP: Self = Self(95);
    /// The server is shutting down.
    pub const ESHUTDOWN: Self = Self(108);
    /// An operation exceeded its time limit.
    pub const ETIMEDOUT: Self = Self(110);
    /// An operation was abandoned, because the process that requested it must stop.
    pub const ECANCELED: Self = Self(125);
    /// The process that served the operation died.
    pub const EOWNERDEAD: Self = Self(130);
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match *self {
            Self::EIO => "EIO, input/output error",
            Self::ENXIO => "ENXIO, no such device",
            Self::ENODEV => "ENODEV, no such device",
            Self::ENOMEM => "ENOMEM, out of memory",
            Self::EINVAL => "EINVAL, invalid argument",
            Self::ENOSPC => "ENOSPC, no space left",
            Self::EOPNOTSUPP => "EOPNOTSUPP, not supported",
            Self::ESHUTDOWN => "ESHUTDOWN, shutting down",
            Self::ETIMEDOUT => "ETIMEDOUT, timed out",
            Self::ECANCELED => "ECANCELED, canceled",
            Self::EOWNERDEAD => "EOWNERDEAD, the process that served it died",
            Self(n) => return write!(f, "errno {n}"),
        };
        f.write_str(name)
    }
}

impl std::error::Error for Errno {}

/// The kind of a client's request to a volume, and of an operation on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Read into the buffer.
    Read,
    /// Write the buffer; with `fua`, durable before the answer.
    Write {
        /// Force unit access: the data is on stable storage before the answer.
        fua: bool,
    },
    /// Make every acknowledged write durable. Has no range.
    Flush,
    /// The content of the range is no longer needed; later reads return any stable content.
    Trim {
        /// As for writes.
        fua: bool,
    },
    /// Make the range read as zeroes.
    Zero {
        /// As for writes.
        fua: bool,
        /// Whether the origin may deallocate the range (a hole) to do so.
        may_unmap: bool,
    },
}

impl Kind {
    /// Whether the answer includes that the change is durable.
    #[must_use]
    pub fn is_fua(self) -> bool {
        match self {
            Self::Write { fua } | Self::Trim { fua } | Self::Zero { fua, .. } => fua,
            Self::Read | Self::Flush => false,
        }
    }
}

/// A part of a client's request that lies in one stripe of units.
#[derive(Debug)]
pub struct Request {
    /// The operation.
    pub kind: Kind,
    /// First byte on the volume.
    pub offset: u64,
    /// Bytes; equals the buffer's length for reads and writes.
    pub len: u64,
    /// Data to write, or memory to read into; `None` for the other kinds.
    pub buf: Option<Buf>,
    /// A read that leaves the cache as it is: it admits nothing and counts as no access. For copies of the whole volume.
    pub passive: bool,
}

/// The reply to a [`Request`]. A read returns its buffer; a write does not, since the engine may still write it to flash.
#[derive(Debug)]
pub struct Reply {
    /// The request's tag.
    pub tag: u64,
    /// The result.
    pub result: Result<(), Errno>,
    /// The data of a successful read.
    pub buf: Option<Buf>,
    /// Whether a read was served wholly from flash, or a write's unit is cached.
    pub hit: bool,
}

/// The range of a piece: it lies in one stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First byte on the volume.
    pub offset: u64,
    /// Bytes, never zero.
    pub len: u64,
}

/// Cuts a range at multiples of `border` (the bytes of a stripe) and of [`MAX_PIECE_BYTES`], so that a piece touches at
/// most 256 pages.
pub fn pieces(offset: u64, len: u64, border: u64) -> impl Iterator<Item = Piece> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let window_end = (at / MAX_PIECE_BYTES + 1) * MAX_PIECE_BYTES;
        let stop = end.min((at / border + 1) * border).min(window_end);
        let piece = Piece { offset: at, len: stop - at };
        at = stop;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_range_once_and_cross_no_border() {
        for unit in [64 << 10, 1 << 20, 8 << 20] {
            for (offset, len) in [(0, 512), (4096, 10 << 20), (unit - 512, 1024), (unit, unit)] {
                let mut at = offset;
                for p in pieces(offset, len, unit) {
                    assert_eq!(p.offset, at);
                    assert!(p.len > 0 && p.len <= MAX_PIECE_BYTES);
                    assert_eq!(p.offset / unit, (p.offset + p.len - 1) / unit);
                    at += p.len;
                }
                assert_eq!(at, offset + len);
            }
        }
    }
}
