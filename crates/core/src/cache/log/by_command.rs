// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that a command warms (`cache/arrange.rs`): as after a read that missed them, by the pace of population.
//!
//! Pages that the log has stay as they are; a page that is written while it is read from the origin is not admitted (design
//! rule 4).

use super::OpenLog;
use super::paths::{RequestSpan, SIZE, whole};
use crate::buf::Buf;
use crate::origin::Use;
use crate::pagelog::Got;
use crate::pages::Pages;
use crate::request::Errno;

/// Pages that are read from the origin together.
const RUN: u32 = 16;

impl OpenLog {
    /// Copies pages of a unit to the log.
    ///
    /// # Errors
    /// The log admits nothing that is read (`EOPNOTSUPP`); its origin or flash fails.
    pub(crate) async fn warm(&self, unit: u32, pages: Pages) -> Result<(), Errno> {
        if !self.admits_reads {
            return Err(Errno::EOPNOTSUPP);
        }
        for first in pages.clone().step_by(RUN as usize) {
            if self.detaching.get() {
                break;
            }
            self.warm_run(unit, first..pages.end.min(first + RUN)).await?;
        }
        Ok(())
    }

    async fn warm_run(&self, unit: u32, run: Pages) -> Result<(), Errno> {
        let cx = &self.cx;
        let offset = cx.shape.unit_offset(unit) + u64::from(run.start) * SIZE;
        let end = (offset + run.len() as u64 * SIZE).min(cx.shape.origin_bytes);
        let span = RequestSpan::of(offset, end - offset);
        let mut missed = Vec::new();
        for page in span.pages.clone().filter(|page| !self.log.has(*page)) {
            if let Got::Miss = self.get(page, true).await? {
                missed.push(page);
            }
        }
        if missed.is_empty() {
            return Ok(());
        }
        let pace = &cx.origins.of_unit(unit).pace;
        pace.begin_step(&cx.exec).await;
        let began = cx.exec.now();
        let claim = cx.claims.claim(u64::from(unit), run);
        // A page that was put since is newer than the origin's version, and may be evicted before the admission.
        missed.retain(|page| !self.log.has(*page));
        let buf = Buf::with_len((end - offset) as usize);
        let read = cx.origins.read(Use::Population, offset, end - offset, buf).await;
        let copies =
            |buf: Buf| missed.iter().map(|page| (*page, whole(&span, *page, &buf))).collect();
        let entered = match read {
            Ok(buf) => Ok(self.admit_clean(&claim, &span, copies(buf)).await),
            Err(errno) => Err(errno),
        };
        pace.end_step(&cx.exec, began, None);
        self.count_populated(entered?);
        Ok(())
    }
}
