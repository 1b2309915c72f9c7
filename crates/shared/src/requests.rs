// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of members to the process that reads and writes flash for them (`serve.rs`).
//!
//! A request is some words and a buffer in the shared memory. One word has its state and the name of its owner, so each change
//! of either is one atomic operation:
//!
//! ```text
//! free -> claimed -> submitted -> taken -> done -> free
//!                        |          `-> abandoned -> free
//!                        `-> free
//! ```
//!
//! The owner fills and submits the request, and frees it when it is done. The server takes it and carries it out. The owner may
//! stop waiting at any time. A request that is taken then keeps its buffer until the server is done, so bytes that arrive late
//! meet no later request, and the owner's own memory is never the target of a device. A member that finds a request of a dead owner
//! frees or abandons it.
//!
//! Why not asynchronous I/O of the member (io_uring, POSIX AIO, threads): the kernel ends a process only when its I/O has ended,
//! so a member that waits for a hanging device could not be ended.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use larder_core::request::Errno;
use rustix::fs::Timespec;
use rustix::thread::futex;

use crate::members;
use crate::memory::{Control, Memory, REQUESTS, SMALL_REQUESTS};

const STATE: usize = 0;
const KIND: usize = 1;
const OFFSET: usize = 2;
const LENGTH: usize = 3;
const ORDER: usize = 4;
const RESULT: usize = 5;

/// States; the owner's name is in the bits above.
const FREE: u64 = 0;
const CLAIMED: u64 = 1;
const SUBMITTED: u64 = 2;
const TAKEN: u64 = 3;
const DONE: u64 = 4;
const ABANDONED: u64 = 5;
const STATE_BITS: u32 = 3;

fn state_of(word: u64) -> u64 {
    word & ((1 << STATE_BITS) - 1)
}

fn with(word: u64, state: u64) -> u64 {
    word >> STATE_BITS << STATE_BITS | state
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Kind {
    Read = 0,
    Write = 1,
    Flush = 2,
}

impl Kind {
    /// The word that counts requests of this kind.
    fn asked(self) -> Control {
        match self {
            Self::Read => Control::AskedRead,
            Self::Write | Self::Flush => Control::AskedWrite,
        }
    }
}

/// A request, for its owner or for the server that has taken it.
#[derive(Clone)]
pub(crate) struct Request {
    memory: Arc<Memory>,
    index: usize,
}

/// How a request ended.
pub(crate) type Answer = Result<(), Errno>;

impl Request {
    fn words(&self) -> &[AtomicU64] {
        self.memory.request(self.index)
    }

    fn get(&self, word: usize) -> u64 {
        self.words()[word].load(Acquire)
    }

    fn change(&self, from: u64, to: u64) -> bool {
        self.words()[STATE].compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }

    fn state_futex(&self) -> &AtomicU32 {
        let word: *const AtomicU64 = &raw const self.words()[STATE];
        // SAFETY: the lower half of the word, which is at its aligned address; futexes only compare it.
        unsafe { &*word.cast::<AtomicU32>() }
    }

    /// Claims a free request with room for so many bytes, if there is one.
    pub fn claim(memory: &Arc<Memory>, me: u64, bytes: usize) -> Option<Self> {
        let small = memory.request_bytes(0);
        let mut indexes = if bytes <= small { 0..SMALL_REQUESTS } else { SMALL_REQUESTS..REQUESTS };
        let claim = |index| {
            let request = Self { memory: Arc::clone(memory), index };
            request.change(FREE, me << STATE_BITS | CLAIMED).then_some(request)
        };
        let (first, count) = (indexes.start, indexes.len());
        // From different places on, so that members seldom meet.
        let spread = |i: usize| first + (i + me as usize) % count;
        if let Some(request) = (0..count).map(spread).find_map(claim) {
            return Some(request);
        }
        indexes.clone().for_each(|index| {
            Self { memory: Arc::clone(memory), index }.free_if_dead(me);
        });
        indexes.find_map(claim)
    }

    /// Frees the request of an owner that died, or abandons it.
    fn free_if_dead(&self, me: u64) {
        let word = self.get(STATE);
        let owner = word >> STATE_BITS;
        if word == FREE || owner == me || !members::is_gone(&self.memory, owner) {
            return;
        }
        match state_of(word) {
            TAKEN => self.change(word, with(word, ABANDONED)),
            ABANDONED => false,
            _ => self.change(word, FREE),
        };
    }

    /// Room for bytes.
    pub fn room(&self) -> usize {
        self.memory.request_bytes(self.index)
    }

    /// Submits the request; `bytes` are those of a write.
    pub fn submit(&self, kind: Kind, offset: u64, length: usize, bytes: &[u8]) {
        assert!(length <= self.room() && bytes.len() <= length);
        // SAFETY: this member owns the buffer of its claimed request, and the bytes fit.
        unsafe {
            self.memory
                .request_buffer(self.index)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        let order = self.memory.control(Control::Order).fetch_add(1, AcqRel);
        for (word, value) in
            [(KIND, kind as u64), (OFFSET, offset), (LENGTH, length as u64), (ORDER, order)]
        {
            self.words()[word].store(value, Relaxed);
        }
        self.words()[STATE].store(with(self.get(STATE), SUBMITTED), Release);
        let asked = self.memory.futex(kind.asked());
        asked.fetch_add(1, SeqCst);
        let _ = futex::wake(asked, futex::Flags::empty(), 1);
    }

    /// Waits for the end of the request, at most for this time.
    pub fn wait(&self, most: Duration) -> Option<Answer> {
        let word = self.get(STATE);
        if state_of(word) != DONE {
            let time = Timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().into() };
            // Any result is handled like a change.
            let _ =
                futex::wait(self.state_futex(), futex::Flags::empty(), word as u32, Some(&time));
        }
        (state_of(self.get(STATE)) == DONE).then(|| match self.get(RESULT) {
            0 => Ok(()),
            errno => Err(Errno(errno as i32)),
        })
    }

    /// Copies what was read, and frees the request.
    pub fn finish(self, into: &mut [u8]) {
        assert!(into.len() <= self.room());
        // SAFETY: the request is done, so this member owns its buffer again.
        unsafe {
            self.memory
                .request_buffer(self.index)
                .copy_to_nonoverlapping(into.as_mut_ptr(), into.len());
        }
        self.words()[STATE].store(FREE, Release);
    }

    /// The owner no longer waits for it.
    pub fn abandon(self) {
        loop {
            let word = self.get(STATE);
            let next = if state_of(word) == TAKEN { with(word, ABANDONED) } else { FREE };
            if self.change(word, next) {
                return;
            }
        }
    }

    /// Takes a submitted request of these kinds: the first one in order, or any one.
    pub fn take(memory: &Arc<Memory>, kinds: &[Kind], in_order: bool) -> Option<(Kind, Self)> {
        loop {
            let submitted = |index: &usize| {
                let words = memory.request(*index);
                state_of(words[STATE].load(Acquire)) == SUBMITTED
                    && kinds.iter().any(|kind| *kind as u64 == words[KIND].load(Relaxed))
            };
            let order = |index: &usize| memory.request(*index)[ORDER].load(Relaxed);
            let mut indexes = (0..REQUESTS).filter(submitted);
            let index = if in_order { indexes.min_by_key(order) } else { indexes.next() }?;
            let request = Self { memory: Arc::clone(memory), index };
            let word = request.get(STATE);
            if state_of(word) == SUBMITTED && request.change(word, with(word, TAKEN)) {
                let kind = kinds.iter().find(|kind| **kind as u64 == request.get(KIND));
                return kind.map(|kind| (*kind, request));
            }
        }
    }

    /// Its place on flash.
    pub fn offset(&self) -> u64 {
        self.get(OFFSET)
    }

    /// The bytes of a request that the server has taken.
    pub fn bytes(&mut self) -> &mut [u8] {
        let length = (self.get(LENGTH) as usize).min(self.room());
        // SAFETY: inside the buffer, which the server owns while the request is taken or abandoned; no other request has it.
        unsafe { std::slice::from_raw_parts_mut(self.memory.request_buffer(self.index), length) }
    }

    /// The server has carried it out.
    pub fn done(self, answer: Answer) {
        self.words()[RESULT].store(answer.err().map_or(0, |errno| errno.0 as u64), Relaxed);
        let word = self.get(STATE);
        if state_of(word) == TAKEN && self.change(word, with(word, DONE)) {
            let _ = futex::wake(self.state_futex(), futex::Flags::empty(), i32::MAX as u32);
        } else {
            self.words()[STATE].store(FREE, Release);
        }
    }

    /// Frees all requests. No server runs, and no member but this one.
    pub fn free_all(memory: &Memory) {
        (0..REQUESTS).for_each(|index| memory.request(index)[STATE].store(FREE, Release));
    }
}
