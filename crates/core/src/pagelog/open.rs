// SPDX-License-Identifier: MIT OR Apache-2.0
//! A log is formatted, started, and stopped.
//!
//! A start reads what there is (`recover.rs`), makes zero on the origin what tombstones name, and writes a header
//! of a new generation to both places before anything else, so that no head of an earlier start counts where
//! this one writes. A stop seals the log: the header says where the rear is.

use std::ops::Deref;
use std::sync::atomic::AtomicU64;

use super::error::OpenError;
use super::format::{Header, Seal};
use super::geometry::Geometry;
use super::host::Host;
use super::paths::PageLog;
use super::policy::LogSettings;
use super::recover::{Found, Reader};
use super::words::{Mark, Words};
use crate::buf::Buf;
use crate::mutant;
use crate::request::Errno;

impl Geometry {
    /// What formatting writes: headers of an empty log, and where.
    #[must_use]
    pub fn blank(&self) -> [(u64, Buf); 2] {
        let header = |number| Header {
            number,
            generation: 0,
            begin: 0,
            front: 0,
            segments: 0,
            sealed: Some(Seal { rear: 0, stamp: 0 }),
        };
        [0, 1].map(|n| (self.header(n), header(n).encode(self)))
    }
}

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// Starts a log over memory that is all zero.
    ///
    /// # Errors
    /// If it cannot be used; then nothing was changed that a later try needs.
    pub async fn open(
        host: H,
        memory: M,
        log: Geometry,
        settings: LogSettings,
    ) -> Result<(Self, Found), OpenError> {
        let (opened, found) = Self::look(host, memory, log, settings).await?;
        opened.begin(&found).await?;
        Ok((opened, found))
    }

    /// Reads a log without changing anything: for looking at it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn look(
        host: H,
        memory: M,
        log: Geometry,
        settings: LogSettings,
    ) -> Result<(Self, Found), OpenError> {
        let words = Words::new(memory, log.blocks);
        let mut reader = Reader { host: &host, words: &words, log: &log, read_bytes: 0, torn: 0 };
        let found = settings.policy.find(&mut reader).await?;
        let log = Self { host, words, log, settings };
        log.set_marks(&found);
        Ok((log, found))
    }

    /// Over memory that another process has started.
    pub fn join(host: H, memory: M, log: Geometry, settings: LogSettings) -> Self {
        Self { host, words: Words::new(memory, log.blocks), log, settings }
    }

    async fn begin(&self, found: &Found) -> Result<(), OpenError> {
        for pages in &found.redo {
            self.host.zero_origin(pages.clone()).await.map_err(OpenError::Origin)?;
        }
        if !found.redo.is_empty() {
            self.host.flush_origin().await.map_err(OpenError::Origin)?;
        }
        self.take_over(found).await.map_err(OpenError::Origin)?;
        if mutant::is_active("page-log-generation-volatile") {
            return Ok(());
        }
        for _ in 0..2 {
            let header = self.words.get(Mark::Headers);
            let written = self.write_header(self.words.get(Mark::Segments), None).await;
            written
                .map_err(|errno| OpenError::Header { offset: self.log.header(header), errno })?;
        }
        Ok(())
    }

    /// Marks as a start finds them.
    fn set_marks(&self, found: &Found) {
        let segments = if found.warm { found.header.segments } else { found.rear };
        let durable_front = found.header.front.max(if found.warm { 0 } else { found.front });
        let _guard = self.lock();
        for (mark, value) in [
            (Mark::Front, found.front),
            (Mark::Left, found.front),
            (Mark::Rear, found.rear),
            (Mark::Last, found.rear),
            (Mark::Written, found.rear),
            (Mark::WrittenFront, found.front),
            (Mark::Durable, found.rear),
            // Not before the header says so.
            (Mark::DurableFront, durable_front),
            (Mark::Segments, segments),
            (Mark::Drained, found.front),
            (Mark::Generation, found.header.generation + 1),
            (Mark::Begin, found.rear),
            (Mark::Headers, found.header.number + 1),
        ] {
            self.words.set(mark, value);
        }
    }

    /// Makes all of it durable and says so: a start needs no checks, and finds it warm under every policy.
    /// Whether nothing was changed meanwhile; what is put afterwards says first that it is sealed no more.
    ///
    /// # Errors
    /// If it cannot be.
    pub(super) async fn seal(&self) -> Result<bool, Errno> {
        // The front moves for one at a time.
        loop {
            let seen = self.host.changes();
            if self.become_keeper() {
                break;
            }
            self.host.changed(seen).await;
        }
        let sealed = self.seal_kept().await;
        self.resign();
        sealed
    }

    async fn seal_kept(&self) -> Result<bool, Errno> {
        self.flush().await?;
        while self.words.get(Mark::Left) > self.words.get(Mark::Front) {
            self.settle_front().await?;
        }
        // What counts as clean is durable on the origin, or becomes clean while this runs.
        let writes = self.words.get(Mark::OriginWrites);
        self.host.flush_origin().await?;
        // Segments say what is durable: not what is put while this runs.
        let seen = {
            let _guard = self.lock();
            let seen = (self.words.get(Mark::Last), self.words.get(Mark::Turn));
            if self.words.get(Mark::Durable) < seen.0 {
                return Ok(false);
            }
            seen
        };
        self.words.add(Mark::Seals, 1);
        let stamp = self.words.get(Mark::Generation) << 32 | self.words.get(Mark::Seals);
        self.put_all_segments(stamp).await?;
        let (segments, last) = {
            let _guard = self.lock();
            let flushed = writes == self.words.get(Mark::OriginWrites)
                || mutant::is_active("page-log-seal-unflushed");
            if seen != (self.words.get(Mark::Last), self.words.get(Mark::Turn)) || !flushed {
                return Ok(false);
            }
            self.words.set(Mark::Sealed, 1);
            (self.words.get(Mark::Segments), seen.0)
        };
        // Where that fails nobody knows what is on flash, and the mark stays.
        let written = self.write_header(segments, Some(Seal { rear: last, stamp })).await;
        if written.is_err() && mutant::is_active("page-log-failed-seal") {
            self.words.set(Mark::Sealed, 0);
        }
        written.map(|()| self.is_sealed())
    }
}
