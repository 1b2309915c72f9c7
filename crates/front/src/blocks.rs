// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of a block device, whatever its protocol: which of them a volume takes, and the buffers that they need.
//!
//! Invariants: a request that passes is whole blocks within the volume, and its clients may make it. A write's data is
//! copied once, into buffers as the volume cuts it.

use larder_core::buf::{Buf, SECTOR};
use larder_core::request::{Errno, Kind, pieces};
use larder_io::Geometry;
use larder_volume::Volume;
use larder_volume::session::What;

use crate::grant::Grant;

/// The longest trim or zeroing that a device announces.
pub const MOST_EMPTY_BYTES: u64 = 1 << 30;

/// What requests a device takes.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Its size.
    pub bytes: u64,
    /// Requests with data are whole blocks.
    pub block_bytes: u32,
    /// Writes are cut at multiples of it.
    pub stripe_bytes: u64,
    /// What its clients may do.
    pub grant: Grant,
}

/// A request, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// What is asked.
    pub what: What,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl Checked {
    /// Whether its answer has data.
    #[must_use]
    pub fn reads(&self) -> bool {
        matches!(self.what, What::Io(Kind::Read) | What::PassiveRead)
    }

    /// Whether it has data.
    #[must_use]
    pub fn writes(&self) -> bool {
        matches!(self.what, What::Io(Kind::Write { .. }))
    }

    /// Bytes of data, in either direction.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        if self.reads() || self.writes() { self.len } else { 0 }
    }
}

impl Rules {
    /// Those of a volume's device.
    #[must_use]
    pub fn of(volume: &Volume, grant: Grant) -> Self {
        let Geometry { bytes, block_bytes, .. } = volume.origin().geometry();
        Self { bytes, block_bytes, stripe_bytes: volume.cache().shape().stripe_bytes(), grant }
    }

    /// Whether the request may pass. `offset` is `None` if it is no number of bytes.
    ///
    /// # Errors
    /// EROFS if clients may only read; EINVAL for a range that is not in the volume or not whole blocks.
    pub fn check(&self, kind: Kind, offset: Option<u64>, len: u64) -> Result<Checked, Errno> {
        if kind == Kind::Flush {
            return Ok(Checked { what: What::Io(kind), offset: 0, len: 0 });
        }
        let what = match (kind, self.grant) {
            (Kind::Read, Grant::Backup) => What::PassiveRead,
            (Kind::Read, _) | (_, Grant::Full) => What::Io(kind),
            // EROFS: clients know that the device is read-only.
            _ => return Err(Errno(30)),
        };
        let offset = offset.ok_or(Errno::EINVAL)?;
        let end = offset.checked_add(len).filter(|end| *end <= self.bytes);
        let block = u64::from(self.block_bytes);
        let whole = offset.is_multiple_of(block) && len.is_multiple_of(block);
        if len == 0 || end.is_none() || !whole {
            return Err(Errno::EINVAL);
        }
        Ok(Checked { what, offset, len })
    }

    /// The memory that its buffers take.
    #[must_use]
    pub fn cost(&self, request: &Checked) -> u64 {
        let cut = pieces(request.offset, request.data_bytes(), self.stripe_bytes);
        cut.map(|piece| Buf::room(piece.len as usize)).sum::<usize>() as u64
    }

    /// The data of a write, in buffers as the volume cuts it; none for another request. `take` copies data from a byte of
    /// the request on.
    ///
    /// # Errors
    /// Those of `take`.
    pub fn data(
        &self,
        request: &Checked,
        mut take: impl FnMut(u64, &mut [u8]) -> Result<(), Errno>,
    ) -> Result<Vec<Buf>, Errno> {
        let bytes = if request.writes() { request.len } else { 0 };
        let part = |piece: larder_core::request::Piece| {
            let mut buf = Buf::with_len(piece.len as usize);
            take(piece.offset - request.offset, &mut buf)?;
            Ok(buf)
        };
        pieces(request.offset, bytes, self.stripe_bytes).map(part).collect()
    }
}

/// The blocks of a device, in bytes: those of requests, and those that a disk writes at once.
#[must_use]
pub fn block_sizes(geometry: &Geometry) -> (u32, u32) {
    let block = geometry.block_bytes.max(SECTOR as u32);
    (block, geometry.physical_block_bytes.max(block).next_power_of_two())
}

/// The longest trim and the longest zeroing of a device, in bytes; zero if it takes none.
#[must_use]
pub fn empty_bytes(geometry: &Geometry, grant: Grant) -> (u64, u64) {
    let most = if grant == Grant::Full { MOST_EMPTY_BYTES } else { 0 };
    (if geometry.can_trim { most } else { 0 }, most)
}
