// SPDX-License-Identifier: MIT OR Apache-2.0
//! A slow origin, served by several threads at a time: pages that are brought there, files that are flushed.
//!
//! A process writes one page after the other, and an origin of a millisecond is then never busy. So where writes are slow,
//! pages that leave together are written by threads that live as long as that takes, each a member of its own (`host.rs`): what
//! is said of the dead holds of each of them. They take no signals, and call nothing of the
//! program's but its origin.
//!
//! Why not asynchronous writes: they may come to the origin after their process's death, when others have its locks.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Builder, scope};
use std::time::{Duration, Instant};

/// Threads at a time.
const THREADS: usize = 16;
/// A write that takes so long waits for a device.
const SLOW: Duration = Duration::from_micros(200);
/// So few pages are not worth a thread.
const LEAST: usize = 4;

/// What is known of the origin's speed.
#[derive(Default)]
pub(crate) struct Slow {
    /// How long the last write took.
    last: Cell<Duration>,
    /// Threads are at it already, or this is one.
    busy: Cell<bool>,
}

impl Slow {
    /// Runs a write.
    pub fn watch<T>(&self, write: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let done = write();
        self.last.set(begin.elapsed());
        done
    }

    /// Brings pages to the origin, if that is better done by several threads; those that could not be. They go in order of
    /// place, neighbours together: those whose numbers are the same, divided by `neighbours`. `own` brings a run on this
    /// thread, and what `begin` returns begins another's: nothing if it has no room there.
    pub fn spread<B, F>(
        &self,
        pages: &[u64],
        neighbours: u64,
        own: impl Fn(&[u64]) -> Vec<u64>,
        begin: impl Fn() -> F,
    ) -> Option<Vec<u64>>
    where
        B: Fn(&[u64]) -> Vec<u64>,
        F: FnOnce() -> Option<B> + Send,
    {
        let parts = (pages.len() / LEAST).min(THREADS);
        if parts < 2 || self.last.get() < SLOW || self.busy.get() {
            return None;
        }
        let mut pages = pages.to_vec();
        pages.sort_unstable();
        let runs: Vec<&[u64]> = pages.chunk_by(|a, b| a / neighbours == b / neighbours).collect();
        let next = AtomicUsize::new(0);
        let next = || runs.get(next.fetch_add(1, Relaxed));
        let mut left = Vec::new();
        self.busy.set(true);
        let quiet = Quiet::new();
        scope(|scope| {
            let mut threads = Vec::new();
            for _ in 1..parts.min(runs.len()) {
                let begin = begin();
                // Where there is no room for one more, others do it.
                let run = move || begin().map_or_else(Vec::new, |bring| all(next, bring));
                let builder = Builder::new().name("larder-writer".to_owned());
                threads.extend(builder.spawn_scoped(scope, run));
            }
            // This one too, by which the speed is known the next time.
            left.extend(all(next, own));
            for thread in threads {
                // What one that panicked had begun is not known.
                left.extend(thread.join().unwrap_or_else(|_| pages.clone()));
            }
        });
        drop(quiet);
        self.busy.set(false);
        Some(left)
    }
}

/// Brings one run after the other; the pages that could not be brought.
fn all<'a>(
    next: impl Fn() -> Option<&'a &'a [u64]>,
    bring: impl Fn(&[u64]) -> Vec<u64>,
) -> Vec<u64> {
    std::iter::from_fn(next).flat_map(|run| bring(run)).collect()
}

/// Does something to each, several at a time; the results, in order.
pub fn together<T: Sync, R: Send>(items: &[T], each: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let part = items.len().div_ceil(THREADS).max(1);
    let quiet = Quiet::new();
    let results = scope(|scope| {
        let run = |chunk: &'_ [T]| chunk.iter().map(&each).collect::<Vec<R>>();
        let mut chunks = items.chunks(part);
        let own = chunks.next();
        let begin = |chunk| {
            let name = "larder-writer".to_owned();
            (Builder::new().name(name).spawn_scoped(scope, move || run(chunk)), chunk)
        };
        let threads: Vec<_> = chunks.map(begin).collect();
        let mut results: Vec<R> = own.map(run).unwrap_or_default();
        for (thread, chunk) in threads {
            match thread.map(|thread| thread.join()) {
                Ok(Ok(some)) => results.extend(some),
                // A thread that could not begin; one that panicked has said so.
                _ => results.extend(run(chunk)),
            }
        }
        results
    });
    drop(quiet);
    results
}

/// No signal comes to threads that begin while it lives.
struct Quiet(libc::sigset_t);

impl Quiet {
    fn new() -> Self {
        let (mut all, mut old) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: sets are written by `sigfillset` and `pthread_sigmask` before they are read.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), old.as_mut_ptr());
            Self(old.assume_init())
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: the set is the one that was in force.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}
