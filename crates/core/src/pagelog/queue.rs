// SPDX-License-Identifier: MIT OR Apache-2.0
//! The batches in memory, and the limit of the head.
//!
//! Batches are numbered in the order of their opening; a batch is in the buffer of its number modulo [`BUFFERS`]. At most
//! the last one is open. All functions run under the host's lock, and the last store of each step makes it effective.

use std::ops::{Deref, Range};
use std::sync::atomic::AtomicU64;

use super::error::Lack;
use super::geometry::{BATCH_HEADERS, Geometry};
use super::words::{BUFFERS, BatchMark, Kind, Mark, VALID, Words, page_of, slot_word};
use crate::mutant;

/// The state of a batch in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum State {
    Free,
    Open,
    Closed,
    Writing,
    Written,
}

impl<M: Deref<Target = [AtomicU64]>> Words<M> {
    pub fn state(&self, buffer: usize) -> State {
        match self.batch(buffer, BatchMark::State) {
            1 => State::Open,
            2 => State::Closed,
            3 => State::Writing,
            4 => State::Written,
            _ => State::Free,
        }
    }

    pub fn set_state(&self, buffer: usize, state: State) {
        self.set_batch(buffer, BatchMark::State, state as u64);
    }

    /// The buffer has no batch.
    pub fn free_buffer(&self, buffer: usize) {
        self.set_state(buffer, State::Free);
    }

    pub fn buffer_of(number: u64) -> usize {
        (number % BUFFERS as u64) as usize
    }

    /// The open batch's buffer.
    pub fn open(&self) -> Option<usize> {
        let last = self.get(Mark::Opened).checked_sub(1)?;
        Some(Self::buffer_of(last)).filter(|b| self.state(*b) == State::Open)
    }

    /// The buffer of a position that is in memory, and its place there.
    pub fn in_memory(&self, position: u64) -> Option<(usize, usize)> {
        (self.get(Mark::Closed)..self.get(Mark::Opened)).map(Self::buffer_of).find_map(|buffer| {
            let first = self.batch(buffer, BatchMark::Start) + u64::from(BATCH_HEADERS);
            let end = match self.state(buffer) {
                State::Open => self.get(Mark::Head),
                State::Free => return None,
                _ => self.batch(buffer, BatchMark::End),
            };
            (first..end).contains(&position).then(|| (buffer, (position - first) as usize))
        })
    }

    /// Free blocks between the head and the durable tail.
    pub fn room(&self, log: &Geometry) -> u64 {
        // One mutant overwrites the pages that it is evicting, as FaCE 4.3 does; the other uses a tail that is not durable.
        let tail = if mutant::is_active("page-log-no-gap") {
            Mark::Evicted
        } else if mutant::is_active("page-log-tail-volatile") {
            Mark::Tail
        } else {
            Mark::DurableTail
        };
        (self.get(tail) + u64::from(log.blocks)).saturating_sub(self.get(Mark::Head))
    }

    /// Opens a batch of this epoch. An `urgent` one is for making room and may use the reserve.
    pub fn open_batch(&self, log: &Geometry, urgent: bool, epoch: u64) -> Result<usize, Lack> {
        let (number, head) = (self.get(Mark::Opened), self.get(Mark::Head));
        if number - self.get(Mark::Closed) >= BUFFERS as u64 {
            return Err(Lack::Buffer);
        }
        let start = log.batch_start(head);
        let range = log.batch_range(start);
        let keep = if urgent { empty_blocks(log) } else { empty_blocks(log) + reserve(log) };
        let lags = range.end > self.get(Mark::Segments) + 2 * log.segment();
        if range.end - head + keep > self.room(log) || lags {
            return Err(Lack::Room);
        }
        self.set(Mark::Wanted, 0);
        for position in head..start + u64::from(BATCH_HEADERS) {
            self.set_slot(log.slot(position), slot_word(Kind::Header, epoch, 0));
        }
        let buffer = Self::buffer_of(number);
        self.set_batch(buffer, BatchMark::Start, start);
        self.set_batch(buffer, BatchMark::Failures, 0);
        self.set_batch(buffer, BatchMark::Writer, 0);
        self.set_state(buffer, State::Open);
        self.set(Mark::Opened, number + 1);
        self.set(Mark::Head, start + u64::from(BATCH_HEADERS));
        Ok(buffer)
    }

    /// The epoch of a batch.
    pub fn epoch(&self, log: &Geometry, buffer: usize) -> u64 {
        page_of(self.slot(log.slot(self.batch(buffer, BatchMark::Start))))
    }

    /// Free pages of the open batch.
    pub fn open_room(&self, log: &Geometry) -> u64 {
        let Some(buffer) = self.open() else { return 0 };
        log.batch_range(self.batch(buffer, BatchMark::Start)).end - self.get(Mark::Head)
    }

    /// Positions of the pages of a batch.
    pub fn batch_pages(&self, buffer: usize) -> Range<u64> {
        self.batch(buffer, BatchMark::Start) + u64::from(BATCH_HEADERS)
            ..self.batch(buffer, BatchMark::End)
    }

    /// The open batch takes no more pages of another epoch than this: it is closed, or takes this epoch if it has no page. Returns
    /// whether it was closed.
    pub fn end_epoch(&self, log: &Geometry, open: usize, epoch: u64) -> bool {
        if self.epoch(log, open) == epoch {
            return false;
        }
        let closed = self.close_batch();
        if !closed {
            for position in self.batch(open, BatchMark::Start)..self.get(Mark::Head) {
                self.set_slot(log.slot(position), slot_word(Kind::Header, epoch, 0));
            }
        }
        closed
    }

    /// Closes the open batch, if it has a page; returns whether it has.
    pub fn close_batch(&self) -> bool {
        let Some(buffer) = self.open() else { return false };
        let head = self.get(Mark::Head);
        if head == self.batch(buffer, BatchMark::Start) + u64::from(BATCH_HEADERS) {
            return false;
        }
        self.set_batch(buffer, BatchMark::End, head);
        self.set_batch(buffer, BatchMark::Tail, self.get(Mark::Tail));
        self.set_state(buffer, State::Closed);
        true
    }

    /// The end of the last batch that is closed.
    pub fn closed_end(&self) -> u64 {
        let buffers = (self.get(Mark::Closed)..self.get(Mark::Opened)).map(Self::buffer_of);
        let closed = buffers.filter(|b| !matches!(self.state(*b), State::Free | State::Open));
        closed.map(|b| self.batch(b, BatchMark::End)).fold(self.get(Mark::Written), u64::max)
    }

    /// Whether a closed batch is not written yet.
    pub fn has_batch_in_flight(&self) -> bool {
        self.closed_end() > self.get(Mark::Written)
    }

    /// Whether the last write of a batch failed.
    pub fn has_failed_batch(&self) -> bool {
        (self.get(Mark::Closed)..self.get(Mark::Opened)).map(Self::buffer_of).any(|buffer| {
            matches!(self.state(buffer), State::Closed | State::Writing)
                && self.batch(buffer, BatchMark::Failures) != 0
        })
    }

    /// A batch was written: advances the marks up to the first batch that is not.
    pub fn batch_written(&self, buffer: usize) {
        self.set_state(buffer, State::Written);
        self.retire();
    }

    /// Frees the buffers of the first batches that are written.
    pub fn retire(&self) {
        while self.get(Mark::Closed) < self.get(Mark::Opened) {
            let buffer = Self::buffer_of(self.get(Mark::Closed));
            if self.state(buffer) != State::Written {
                break;
            }
            self.raise(Mark::Written, self.batch(buffer, BatchMark::End));
            self.raise(Mark::WrittenTail, self.batch(buffer, BatchMark::Tail));
            self.set_state(buffer, State::Free);
            self.add(Mark::Closed, 1);
        }
    }

    /// Completes or reverts the step that a dead holder of the lock interrupted.
    pub fn repair(&self, log: &Geometry) {
        // A batch exists once it has a number.
        if let Some(buffer) = self.open() {
            let first = self.batch(buffer, BatchMark::Start) + u64::from(BATCH_HEADERS);
            self.raise(Mark::Head, first);
            // A page exists once the head has passed it; a FLUSH must cover it.
            if self.get(Mark::Head) > first {
                self.set(Mark::Last, self.get(Mark::Head));
            }
            if self.open_room(log) == 0 {
                self.close_batch();
            }
        }
        while self.get(Mark::Closed) < self.get(Mark::Opened)
            && self.state(Self::buffer_of(self.get(Mark::Closed))) == State::Free
        {
            self.add(Mark::Closed, 1);
        }
        self.retire();
        // Pages before `Evicted` are evicted, also those that the dead holder did not drop.
        for position in self.get(Mark::Tail)..self.get(Mark::Evicted) {
            let slot = log.slot(position);
            self.set_slot(slot, self.slot(slot) & !VALID);
        }
        self.rebuild(self.get(Mark::Tail)..self.get(Mark::Head));
    }
}

/// Blocks that stay empty between head and tail, so that no batch overwrites the pages that it evicts (rule L1).
pub fn empty_blocks(log: &Geometry) -> u64 {
    u64::from(log.batch_blocks())
}

/// Blocks that are reserved for pages that are appended again.
pub fn reserve(log: &Geometry) -> u64 {
    3 * u64::from(log.batch_blocks())
}
