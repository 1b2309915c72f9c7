// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations on cached data under `--verify`: what is read is compared with its checksum, and what is written gets one.
//!
//! A read that does not match, and that no change overlapped, is *damage*: the device returned other bytes than it was given.
//! If a change overlapped it, the bytes prove nothing ([`Mismatch::Raced`]). The caller decides: clean data is read from the
//! origin, dirty data is an error.
//!
//! The blocks of sums that a change needs are loaded before it begins: afterwards nothing could undo it.

use super::device::{Flash, FlashError, FlashOp, Mismatch, Role};
use super::guards::{Guards, LateAnswer};
use super::sums::{Loading, Pinned, Reading, Room, Sums};
use crate::buf::{Buf, PAGE};
use crate::checksum::crc32c;
use crate::config::Contents;
use crate::event::Event;
use crate::exec::{IoKind, each};
use crate::format::sums::{NONE, SumsArea, sum_from, sum_of};
use crate::mutant;
use crate::request::Errno;

/// Blocks that a flush writes at the same time.
const TOGETHER: usize = 16;

impl Flash {
    /// An operation on cached data, or a flush, of a device with checksums.
    pub(super) async fn verified(
        &self,
        sums: &Sums,
        op: FlashOp,
        guards: Guards,
    ) -> Result<Option<Buf>, FlashError> {
        match op.kind {
            IoKind::Flush => {
                if !mutant::is_active("sums-after-flush") {
                    self.write_sums(sums).await?;
                }
                self.plain(op, guards).await
            }
            IoKind::Read => self.verified_read(sums, op, guards).await.map(Some),
            _ => self.verified_change(sums, op, guards).await,
        }
    }

    async fn verified_read(
        &self,
        sums: &Sums,
        op: FlashOp,
        guards: Guards,
    ) -> Result<Buf, FlashError> {
        let (pages, len, at) = (sums.area.pages(op.offset, op.len), op.len as usize, op.at);
        let of = op.of / PAGE as u64;
        debug_assert!(op.offset.is_multiple_of(PAGE as u64) && len.is_multiple_of(PAGE));
        let reading = sums.read_begins(pages.clone());
        let found = self.plain(op, guards).await?;
        let buf = found.ok_or(FlashError::Failed(Errno::EIO, None))?;
        let mut wrong = Vec::new();
        for (block, own) in SumsArea::blocks_of(pages.clone()) {
            if let Err(error) = self.bring(sums, block).await {
                return Err(FlashError::Failed(error.errno(), Some(buf)));
            }
            for page in own {
                let number = (page - pages.start) as u32;
                let from = at + number as usize * PAGE;
                let sum = sum_of(&buf[from..from + PAGE], of + u64::from(number));
                if !sums.matches(page, sum, &reading) {
                    wrong.push(number);
                }
            }
        }
        match self.mismatch(sums, (pages.start, of), wrong, &reading) {
            Some(why) => Err(FlashError::Mismatch(why, buf)),
            None => Ok(buf),
        }
    }

    fn mismatch(
        &self,
        sums: &Sums,
        (first, of): (u64, u64),
        wrong: Vec<u32>,
        reading: &Reading<'_>,
    ) -> Option<Mismatch> {
        let number = u64::from(*wrong.first()?);
        if reading.raced() && !mutant::is_active("race-counts-as-damage") {
            return Some(Mismatch::Raced);
        }
        sums.damaged(wrong.iter().map(|page| first + u64::from(*page)));
        self.stats.add(|c| c.damaged_pages += wrong.len() as u64);
        self.device().emit(Event::FlashDamaged { at: (of + number) * PAGE as u64 });
        Some(Mismatch::Damage(wrong))
    }

    async fn verified_change(
        &self,
        sums: &Sums,
        op: FlashOp,
        guards: Guards,
    ) -> Result<Option<Buf>, FlashError> {
        let FlashOp { offset, len, at, of, .. } = op;
        let whole = offset.is_multiple_of(PAGE as u64);
        let pages = sums.area.pages(offset, len);
        let pinned = match self.load_and_pin(sums, &pages).await {
            Ok(pinned) => pinned,
            Err(error) => return Err(FlashError::Failed(error.errno(), op.buf)),
        };
        // A page that is changed in part has no checksum that is known.
        let sum_of = |(page, number): (&[u8], u64)| match whole && page.len() == PAGE {
            true => sum_of(page, number),
            false => NONE,
        };
        let numbers = of / PAGE as u64..;
        let mut new: Vec<u32> = match &op.buf {
            Some(bytes) => {
                bytes[at..at + len as usize].chunks(PAGE).zip(numbers).map(sum_of).collect()
            }
            None => {
                let crc = crc32c(&[0; PAGE]);
                numbers
                    .take((len / PAGE as u64) as usize)
                    .map(|number| sum_from(crc, number))
                    .collect()
            }
        };
        new.resize((pages.end - pages.start) as usize, NONE);
        let changing = sums.change_begins(pages.clone());
        let ended = self.plain(op, guards).await;
        match &ended {
            Ok(_) if mutant::is_active("write-keeps-sum") => {}
            Ok(_) => sums.put(pages, &new),
            // No other device has the data: the page may have its old or its new content.
            Err(_) if self.device().contents == Contents::Dirty => sums.unsure(pages),
            Err(_) => {}
        }
        drop((changing, pinned));
        ended
    }

    async fn load_and_pin<'a>(
        &self,
        sums: &'a Sums,
        pages: &std::ops::Range<u64>,
    ) -> Result<Pinned<'a>, FlashError> {
        let mut pinned = sums.pinned();
        for (block, _) in SumsArea::blocks_of(pages.clone()) {
            self.bring(sums, block).await?;
            sums.pin(block, &mut pinned);
        }
        Ok(pinned)
    }

    /// Makes sure that a block is in memory; no other task runs before the caller uses it.
    async fn bring(&self, sums: &Sums, block: u32) -> Result<(), FlashError> {
        loop {
            if sums.has(block) {
                return Ok(());
            }
            if sums.load_begins(block) {
                break;
            }
            sums.busy.wait(&self.exec).await;
        }
        let result = self.load_block(sums, block).await;
        sums.load_ended(block);
        sums.busy.wake_all(&self.exec);
        result
    }

    async fn load_block(&self, sums: &Sums, block: u32) -> Result<(), FlashError> {
        while let Room::Write(victim) = sums.make_room() {
            self.write_block(sums, victim).await?;
        }
        let mut loading = sums.loading(block);
        if !sums.is_blank(block) {
            self.read_block(sums, block, &mut loading).await?;
        }
        sums.loaded(block, loading);
        Ok(())
    }

    /// Reads the copies of a block until all of its newest version is found, or there are no more.
    async fn read_block(
        &self,
        sums: &Sums,
        block: u32,
        loading: &mut Loading,
    ) -> Result<(), FlashError> {
        let mut failures = 0;
        loop {
            let mut failed = None;
            for at in sums.area.places_of(block) {
                let op = FlashOp::whole(Role::Metadata, IoKind::Read, at, Buf::with_len(PAGE));
                match self.plain(op, Guards::default()).await {
                    Ok(Some(bytes)) if loading.take(&sums.area, at, &bytes) => return Ok(()),
                    Ok(_) => {}
                    Err(error) => failed = Some(error),
                }
            }
            failures += 1;
            match failed {
                None => return Ok(()),
                Some(_) if loading.has_any() => return Ok(()),
                Some(error) if self.closed() || self.gives_up(failures) => return Err(error),
                Some(_) => self.rest(failures).await,
            }
        }
    }

    /// Writes all blocks that differ from flash.
    async fn write_sums(&self, sums: &Sums) -> Result<(), FlashError> {
        for blocks in sums.changed().chunks(TOGETHER) {
            let written = blocks.iter().map(|block| self.write_block(sums, *block));
            each(written.collect()).await.into_iter().collect::<Result<(), _>>()?;
        }
        Ok(())
    }

    /// Writes the copies of a block one after the other, so that a crash leaves one of them intact.
    async fn write_block(&self, sums: &Sums, block: u32) -> Result<(), FlashError> {
        while sums.is_writing(block) {
            sums.busy.wait(&self.exec).await;
        }
        if sums.is_overdue(block) {
            return Err(FlashError::Overdue);
        }
        let Some(mut writing) = sums.write_begins(block) else { return Ok(()) };
        let (mut result, mut overdue) = (Ok(()), None);
        for (at, bytes) in std::mem::take(&mut writing.copies) {
            let answer = LateAnswer::default();
            let guards = || Guards { answer: Some(answer.clone()), ..Guards::default() };
            let op = FlashOp::whole(Role::Metadata, IoKind::Write { fua: false }, at, bytes);
            if let Err(error) = self.insist(op, guards).await {
                overdue = matches!(error, FlashError::Overdue).then_some(answer);
                result = Err(error);
                break;
            }
        }
        sums.write_ended(block, &writing, (result.is_ok(), overdue));
        sums.busy.wake_all(&self.exec);
        result
    }
}
