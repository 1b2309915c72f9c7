// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that are no more: tombstones, for whoever holds no page (`held.rs` has the other way).

use std::ops::{Deref, Range};
use std::sync::atomic::AtomicU64;

use super::host::Host;
use super::paths::{PageLog, Put, ZEROES};
use crate::mutant;
use crate::request::Errno;

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// The pages are gone, durably (rule L5), and the origin is about to become zero there: a restart makes it so.
    /// Until it is the host lets nobody read the origin's older bytes. Whether it was recorded; if not, the log never
    /// had these pages, and the next FLUSH is the origin's business.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn bury(&self, pages: Range<u64>) -> Result<bool, Errno> {
        self.bury_all([pages]).await
    }

    /// As above, of several ranges that become durable together.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn bury_all(
        &self,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) -> Result<bool, Errno> {
        let plain =
            !self.settings.policy.outlives_crash() || mutant::is_active("page-log-no-tombstone");
        let mut last = None;
        for pages in ranges {
            if plain {
                self.drop_pages(pages).await?;
                continue;
            }
            let may = {
                let _guard = self.lock();
                self.may_come_back(&pages)
            };
            if may {
                last = Some(self.enter(&self.tombstone(&pages)).await?.ok_or(Errno::EIO)?);
            }
        }
        let Some(last) = last else { return Ok(false) };
        if !mutant::is_active("page-log-tombstone-late") {
            self.settle(last).await?;
        }
        Ok(true)
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
