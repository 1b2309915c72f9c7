// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that are no more: tombstones, for whoever holds no page (`held.rs` has the other way).

use std::ops::{Deref, Range};
use std::sync::atomic::AtomicU64;

use super::host::Host;
use super::paths::{PageLog, Put, ZEROES};
use crate::request::Errno;

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// Puts a tombstone of pages that a crash could bring back; its position.
    pub(super) async fn entomb(&self, pages: &Range<u64>) -> Result<Option<u64>, Errno> {
        let may = {
            let _guard = self.lock();
            self.may_come_back(pages)
        };
        match may {
            true => self.enter(&self.tombstone(pages)).await?.ok_or(Errno::EIO).map(Some),
            false => Ok(None),
        }
    }

    /// The origin could not be made zero: the log says that the pages are.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn zero(&self, pages: Range<u64>) -> Result<(), Errno> {
        let zero = &ZEROES[..self.log.page() as usize];
        for page in pages {
            // The tombstone cannot leave before this is put, so it takes what is kept for making room.
            let put = Put { urgent: true, ..Self::page(page, zero, true) };
            self.enter(&put).await?;
        }
        Ok(())
    }
}
