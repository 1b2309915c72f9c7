// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tombstones, for callers that hold no page (`held.rs` has those for callers that do).

use std::ops::{Deref, Range};
use std::sync::atomic::AtomicU64;

use super::host::Host;
use super::paths::{PageLog, Put, ZEROES};
use crate::request::Errno;

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// Puts a tombstone of pages that a crash could restore; returns the position after it.
    pub(super) async fn entomb(&self, pages: &Range<u64>) -> Result<Option<u64>, Errno> {
        let may = {
            let _guard = self.lock();
            self.may_come_back(pages)
        };
        match may {
            true => self.append(&self.tombstone(pages)).await?.ok_or(Errno::EIO).map(Some),
            false => Ok(None),
        }
    }

    /// Puts zero pages, after the origin failed to become zero there.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn zero(&self, pages: Range<u64>) -> Result<(), Errno> {
        let zero = &ZEROES[..self.log.page() as usize];
        for page in pages {
            // The eviction of the tombstone waits for this put, so it uses the reserve.
            let put = Put { urgent: true, ..Self::page(page, zero, true) };
            self.append(&put).await?;
        }
        Ok(())
    }
}
