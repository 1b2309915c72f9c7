// SPDX-License-Identifier: MIT OR Apache-2.0
//! Format, start and stop of a log.
//!
//! A start recovers the log (`recover.rs`), makes the pages of tombstones zero on the origin or records that they are, and writes a log header of a
//! new generation to both places before anything else, so that no batch header of an earlier start is valid at the positions
//! that it writes. A stop seals the log: the log header contains the head.

use std::ops::Deref;
use std::sync::atomic::AtomicU64;

use super::error::OpenError;
use super::format::{Header, Seal};
use super::geometry::Geometry;
use super::host::{Host, insist, until_ready};
use super::paths::PageLog;
use super::policy::LogSettings;
use super::recover::{Found, Reader};
use super::words::{Mark, Words};
use crate::buf::Buf;
use crate::mutant;
use crate::request::Errno;

impl Geometry {
    /// The writes of formatting: the headers of an empty log, with their places.
    #[must_use]
    pub fn blank(&self) -> [(u64, Buf); 2] {
        let header = |number| Header {
            number,
            generation: 0,
            begin: 0,
            tail: 0,
            segments: 0,
            sealed: Some(Seal { head: 0, stamp: 0 }),
            replayed: None,
        };
        [0, 1].map(|n| (self.header(n), header(n).encode(self)))
    }
}

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// Starts a log over memory that is all zero.
    ///
    /// # Errors
    /// If it cannot be used; a later start can still recover it.
    pub async fn open(
        host: H,
        memory: M,
        log: Geometry,
        settings: LogSettings,
    ) -> Result<(Self, Found), OpenError> {
        let (opened, found) = Self::inspect(host, memory, log, settings).await?;
        opened.begin(&found).await?;
        Ok((opened, found))
    }

    /// Recovers a log without changing it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn inspect(
        host: H,
        memory: M,
        log: Geometry,
        settings: LogSettings,
    ) -> Result<(Self, Found), OpenError> {
        let words = Words::new(memory, log.blocks);
        let ignored = host.ignores();
        let mut reader =
            Reader { host: &host, words: &words, log: &log, read_bytes: 0, torn: 0, ignored };
        let found = settings.policy.find(&mut reader).await?;
        let log = Self { host, words, log, settings };
        log.set_marks(&found);
        Ok((log, found))
    }

    /// A log whose memory another process has started.
    pub fn join(host: H, memory: M, log: Geometry, settings: LogSettings) -> Self {
        Self { host, words: Words::new(memory, log.blocks), log, settings }
    }

    async fn begin(&self, found: &Found) -> Result<(), OpenError> {
        self.redo(found).await.map_err(OpenError::Origin)?;
        self.take_over(found).await.map_err(OpenError::Origin)?;
        if !self.host.ignores().is_empty() {
            // What recovery ignored must not be found again.
            let lost = self.drain_or_lose().await.map_err(OpenError::Origin)?;
            let header = self.words.get(Mark::Headers);
            let begun = self.begin_again(&lost).await;
            self.resume_replay();
            return begun
                .map_err(|errno| OpenError::Header { offset: self.log.header(header), errno });
        }
        if mutant::is_active("page-log-generation-volatile") {
            return Ok(());
        }
        for _ in 0..2 {
            let header = self.words.get(Mark::Headers);
            let segments = self.words.get(Mark::Segments);
            insist(&self.host, async || self.write_header(segments, None).await)
                .await
                .map_err(|errno| OpenError::Header { offset: self.log.header(header), errno })?;
        }
        self.resume_replay();
        Ok(())
    }

    /// Sets the marks of a recovered log.
    fn set_marks(&self, found: &Found) {
        let segments = if found.warm { found.header.segments } else { found.head };
        let durable_tail = found.header.tail.max(if found.warm { 0 } else { found.tail });
        let _guard = self.lock();
        for (mark, value) in [
            (Mark::Tail, found.tail),
            (Mark::Evicted, found.tail),
            (Mark::Head, found.head),
            (Mark::Last, found.head),
            (Mark::Written, found.head),
            (Mark::WrittenTail, found.tail),
            (Mark::Durable, found.head),
            // A cold start moves it with its log header.
            (Mark::DurableTail, durable_tail),
            (Mark::Segments, segments),
            (Mark::Drained, found.tail),
            (Mark::Replayed, found.header.replayed.unwrap_or(0).clamp(found.tail, found.head)),
            (Mark::Generation, found.header.generation + 1),
            (Mark::Begin, found.head),
            (Mark::Headers, found.header.number + 1),
        ] {
            self.words.set(mark, value);
        }
    }

    /// Makes the log durable and seals it: the next start is warm under every policy. Returns false, without a seal, if a
    /// page changed meanwhile. A later put removes the seal first.
    ///
    /// # Errors
    /// If a device fails.
    pub(super) async fn seal(&self) -> Result<bool, Errno> {
        // Only the keeper moves the tail.
        until_ready(&self.host, || self.become_keeper()).await?;
        let sealed = self.seal_kept().await;
        self.resign();
        sealed
    }

    async fn seal_kept(&self) -> Result<bool, Errno> {
        self.flush().await?;
        while self.words.get(Mark::Evicted) > self.words.get(Mark::Tail) {
            self.settle_tail().await?;
        }
        // After this, clean pages are durable on the origin, except those that become clean meanwhile.
        let writes = self.words.get(Mark::OriginWrites);
        self.host.flush_origin().await?;
        // Segments contain durable positions only: a put meanwhile prevents the seal.
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
            let changed = seen != (self.words.get(Mark::Last), self.words.get(Mark::Turn));
            if changed || !flushed || self.host.passes() {
                return Ok(false);
            }
            self.words.set(Mark::Sealed, 1);
            (self.words.get(Mark::Segments), seen.0)
        };
        // If that fails, the content of flash is unknown, and the mark stays.
        let written = self.write_header(segments, Some(Seal { head: last, stamp })).await;
        if written.is_err() && mutant::is_active("page-log-failed-seal") {
            self.words.set(Mark::Sealed, 0);
        }
        written.map(|()| self.is_sealed())
    }
}
