// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading ahead: who reads a file from front to back is sent for more than it asked, as an operating system does.
//!
//! Purpose: without it, a process that reads small pieces in order (replays a log, scans a table) waits for
//! the disk once a piece, which no real system does.
//!
//! Invariants: only a read that begins where the last one of the file ended (except those of `wanted.rs`) is answered
//! from what was read ahead, so nothing is ever answered twice from there: this is no cache. Bytes come from the file below
//! when they are asked for. What was read ahead counts as read from the disk.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// A file that was read in order for so long is read ahead.
const RUN_BYTES: u64 = 32 << 10;

type Waiter = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    done: bool,
    waiters: Vec<Waiter>,
}

/// One read of the disk, and who waits for it.
#[derive(Default)]
pub(super) struct Fetch(Mutex<State>);

impl Fetch {
    /// Calls when it is done; at once if it is.
    pub fn wait(&self, waiter: impl FnOnce() + Send + 'static) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.done {
            return state.waiters.push(Box::new(waiter));
        }
        drop(state);
        waiter();
    }

    /// It is done.
    pub fn finish(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.done = true;
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        waiters.into_iter().for_each(|waiter| waiter());
    }
}

/// How a file is read.
#[derive(Default)]
pub(super) struct Stream {
    /// Where the last read ended.
    next: u64,
    /// Bytes that were read in order up to there.
    run: u64,
    /// Up to where the disk was read, and the operation that did.
    fetched: Option<(u64, Arc<Fetch>)>,
}

/// What a read waits for.
pub(super) enum Plan {
    /// For so many bytes from the disk, which others may wait for too.
    Read(u64, Arc<Fetch>),
    /// For a read that is in flight or done.
    Ahead(Arc<Fetch>),
    /// For one that a process announced; the kernel keeps this part, which it read.
    Wanted(Arc<Fetch>, Range<u64>),
}

impl Stream {
    /// A read of so many bytes; `most` are read ahead, up to `end`.
    pub fn plan(&mut self, offset: u64, bytes: u64, most: u64, end: impl FnOnce() -> u64) -> Plan {
        let in_order = offset == self.next && offset > 0;
        self.run = if in_order { self.run.saturating_add(bytes) } else { bytes };
        self.next = offset.saturating_add(bytes);
        if let Some((until, fetch)) = &self.fetched
            && in_order
            && self.next <= *until
        {
            return Plan::Ahead(Arc::clone(fetch));
        }
        let mut len = bytes;
        if self.run > RUN_BYTES && most > bytes {
            len = bytes.max(most.min(end().saturating_sub(offset)));
        }
        let fetch = Arc::new(Fetch::default());
        self.fetched = (len > bytes).then(|| (offset.saturating_add(len), Arc::clone(&fetch)));
        Plan::Read(len, fetch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that are read from the disk by each of these reads of 8 KiB; 0: none.
    fn disk(stream: &mut Stream, pages: impl Iterator<Item = u64>) -> Vec<u64> {
        let read = |page| match stream.plan(page << 13, 8192, 128 << 10, || 1 << 20) {
            Plan::Read(len, fetch) => {
                fetch.finish();
                len >> 13
            }
            Plan::Ahead(_) | Plan::Wanted(..) => 0,
        };
        pages.map(read).collect()
    }

    #[test]
    fn only_reads_in_order_are_read_ahead_and_each_once() {
        let stream = &mut Stream::default();
        let all = disk(stream, 0..128);
        assert_eq!(all[..6], [1, 1, 1, 1, 16, 0]);
        assert_eq!(all.iter().sum::<u64>(), 128, "not beyond the end");
        assert_eq!(disk(stream, [3, 3, 4, 9, 8, 6].into_iter()), [1; 6]);
        assert_eq!(disk(stream, [8, 9, 10, 11, 12, 13].into_iter()), [1, 1, 1, 1, 16, 0]);
        assert_eq!(disk(stream, [13, 14, 15].into_iter()), [1, 1, 1], "not a second time");
    }

    #[test]
    fn whoever_waits_is_called_when_it_is_done() {
        let fetch = Fetch::default();
        let (answer, answers) = std::sync::mpsc::channel();
        let tell = |word: &'static str| {
            let answer = answer.clone();
            move || answer.send(word).unwrap()
        };
        fetch.wait(tell("before"));
        assert!(answers.try_recv().is_err());
        fetch.finish();
        fetch.wait(tell("after"));
        assert_eq!((answers.recv().unwrap(), answers.recv().unwrap()), ("before", "after"));
    }
}
