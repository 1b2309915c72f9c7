// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recovery of metadata from the flash of a shard in memory.

use larder_core::journal::layout::Layout;
use larder_core::journal::recover::{Recovered, Unusable, recover};
use larder_core::request::Errno;

/// Bytes of a log, the minimum.
pub const LOG_BYTES: u64 = 16 << 10;

/// Recovers the metadata in these bytes of a flash; reads nothing outside of `bytes`.
pub fn recover_from(bytes: &[u8], layout: &Layout, volume: u64) -> Result<Recovered, Unusable> {
    let read = |at: u64, len: u64| bytes.get(at as usize..(at + len) as usize);
    recover(layout, volume, &mut |at, len| read(at, len).map(<[u8]>::to_vec).ok_or(Errno::EIO))
}
