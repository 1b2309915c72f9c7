// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log as a queue: batches in memory, and where the rear may go.
//!
//! Batches are numbered in the order of being opened; one is in the buffer of its number modulo
//! [`BUFFERS`]. At most the last of them is open. All here is done under the host's lock, and every step's
//! last store is the one that makes it count.

use std::ops::{Deref, Range};
use std::sync::atomic::AtomicU64;

use super::error::Lack;
use super::geometry::{Geometry, HEADS};
use super::words::{BUFFERS, BatchMark, Kind, Mark, VALID, Words, slot_word};
use crate::mutant;

/// What becomes of a batch in memory.
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

    pub fn buffer_of(number: u64) -> usize {
        (number % BUFFERS as u64) as usize
    }

    /// The open batch's buffer.
    pub fn open(&self) -> Option<usize> {
        let last = self.get(Mark::Opened).checked_sub(1)?;
        Some(Self::buffer_of(last)).filter(|b| self.state(*b) == State::Open)
    }

    /// The buffer and the place in it of a position that is still in memory.
    pub fn in_memory(&self, position: u64) -> Option<(usize, usize)> {
        (self.get(Mark::Closed)..self.get(Mark::Opened)).map(Self::buffer_of).find_map(|buffer| {
            let first = self.batch(buffer, BatchMark::Start) + u64::from(HEADS);
            let end = match self.state(buffer) {
                State::Open => self.get(Mark::Rear),
                State::Free => return None,
                _ => self.batch(buffer, BatchMark::End),
            };
            (first..end).contains(&position).then(|| (buffer, (position - first) as usize))
        })
    }

    /// Blocks between the rear and what may not be written over.
    pub fn room(&self, log: &Geometry) -> u64 {
        // The mutant writes over what it is dequeuing, as the paper does (4.3; hole 1 of 4.5); the other
        // trusts a front that a crash may take back.
        let front = if mutant::is_active("page-log-no-gap") {
            Mark::Left
        } else if mutant::is_active("page-log-front-volatile") {
            Mark::Front
        } else {
            Mark::DurableFront
        };
        (self.get(front) + u64::from(log.blocks)).saturating_sub(self.get(Mark::Rear))
    }

    /// Opens a batch. Whoever is `urgent` makes room and may use what is kept for that.
    pub fn open_batch(&self, log: &Geometry, urgent: bool) -> Result<usize, Lack> {
        let (number, rear) = (self.get(Mark::Opened), self.get(Mark::Rear));
        if number - self.get(Mark::Closed) >= BUFFERS as u64 {
            return Err(Lack::Buffer);
        }
        let start = log.batch_start(rear);
        let range = log.batch_range(start);
        let keep = if urgent { empty_blocks(log) } else { empty_blocks(log) + reserve(log) };
        let lags = range.end > self.get(Mark::Segments) + 2 * log.segment();
        if range.end - rear + keep > self.room(log) || lags {
            return Err(Lack::Room);
        }
        self.set(Mark::Wanted, 0);
        for position in rear..start + u64::from(HEADS) {
            self.set_slot(log.slot(position), slot_word(Kind::Head, 0, 0));
        }
        let buffer = Self::buffer_of(number);
        self.set_batch(buffer, BatchMark::Start, start);
        self.set_batch(buffer, BatchMark::Failures, 0);
        self.set_batch(buffer, BatchMark::Writer, 0);
        self.set_state(buffer, State::Open);
        self.set(Mark::Opened, number + 1);
        self.set(Mark::Rear, start + u64::from(HEADS));
        Ok(buffer)
    }

    /// Pages that the open batch has room for.
    pub fn open_room(&self, log: &Geometry) -> u64 {
        let Some(buffer) = self.open() else { return 0 };
        log.batch_range(self.batch(buffer, BatchMark::Start)).end - self.get(Mark::Rear)
    }

    /// Positions of the pages of a batch.
    pub fn batch_pages(&self, buffer: usize) -> Range<u64> {
        self.batch(buffer, BatchMark::Start) + u64::from(HEADS)..self.batch(buffer, BatchMark::End)
    }

    /// Closes the open batch, if it has a page.
    pub fn close_batch(&self) {
        let Some(buffer) = self.open() else { return };
        let rear = self.get(Mark::Rear);
        if rear == self.batch(buffer, BatchMark::Start) + u64::from(HEADS) {
            return;
        }
        self.set_batch(buffer, BatchMark::End, rear);
        self.set_batch(buffer, BatchMark::Front, self.get(Mark::Front));
        self.set_state(buffer, State::Closed);
    }

    /// A batch was written: marks move over all that are, without a hole.
    pub fn batch_written(&self, buffer: usize) {
        self.set_state(buffer, State::Written);
        self.retire();
    }

    /// Gives back the buffers of the first batches that are written.
    pub fn retire(&self) {
        while self.get(Mark::Closed) < self.get(Mark::Opened) {
            let buffer = Self::buffer_of(self.get(Mark::Closed));
            if self.state(buffer) != State::Written {
                break;
            }
            self.raise(Mark::Written, self.batch(buffer, BatchMark::End));
            self.raise(Mark::WrittenFront, self.batch(buffer, BatchMark::Front));
            self.set_state(buffer, State::Free);
            self.add(Mark::Closed, 1);
        }
    }

    /// What a holder of the lock left half done when it died is done or undone.
    pub fn repair(&self, log: &Geometry) {
        // A batch counts from the moment when it was numbered.
        if let Some(buffer) = self.open() {
            let first = self.batch(buffer, BatchMark::Start) + u64::from(HEADS);
            self.raise(Mark::Rear, first);
            // A page counts from the moment when the rear moves; a FLUSH has to know of it.
            if self.get(Mark::Rear) > first {
                self.set(Mark::Last, self.get(Mark::Rear));
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
        // What is before `Left` has left, also what nobody came to drop.
        for position in self.get(Mark::Front)..self.get(Mark::Left) {
            let slot = log.slot(position);
            self.set_slot(slot, self.slot(slot) & !VALID);
        }
        self.rebuild(self.get(Mark::Front)..self.get(Mark::Rear));
    }
}

/// Blocks that stay empty between rear and front (hole 1 of paper-tables 4.5).
pub fn empty_blocks(log: &Geometry) -> u64 {
    u64::from(log.batch_blocks())
}

/// Blocks that are kept for pages that are entered once more.
pub fn reserve(log: &Geometry) -> u64 {
    3 * u64::from(log.batch_blocks())
}
