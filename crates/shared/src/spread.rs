// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several threads for a slow origin, which write pages or flush files in parallel.
//!
//! A process that writes one page after the other leaves an origin with a latency of a millisecond mostly idle. So
//! where writes are slow, threads write the pages that are evicted together. Each thread lives for that task and is a
//! member of its own (`host.rs`), so rules S1 and S2 cover its death too. The threads receive no signals, and the only
//! code of the program that they call is its origin.
//!
//! Why not asynchronous writes: they may reach the origin after their process has died, when other members hold its
//! locks.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Builder, scope};
use std::time::{Duration, Instant};

/// Threads at a time.
const THREADS: usize = 16;
/// A write that takes at least this long waited for a device.
const SLOW: Duration = Duration::from_micros(200);
/// Fewer pages than this are not worth a thread.
const LEAST: usize = 4;

/// The observed speed of the origin.
#[derive(Default)]
pub(crate) struct Slow {
    /// Duration of the last write.
    last: Cell<Duration>,
    /// Threads are already running, or this is one of them.
    busy: Cell<bool>,
}

impl Slow {
    /// Runs and times a write.
    pub fn watch<T>(&self, write: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let done = write();
        self.last.set(begin.elapsed());
        done
    }

    /// Writes pages to the origin in parallel, in order of their numbers and neighbours together (numbers that are
    /// equal when divided by `neighbours`). `own` writes a run on this thread, and `begin` creates the function for
    /// another thread, which returns `None` if there is no room for a member. Returns the pages that could not be
    /// written, or `None` if parallel writes are not worth it.
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
                // A thread that cannot join leaves its runs to the others.
                let run = move || begin().map_or_else(Vec::new, |bring| all(next, bring));
                let builder = Builder::new().name("larder-writer".to_owned());
                threads.extend(builder.spawn_scoped(scope, run));
            }
            // This thread takes part, which measures the speed for the next time.
            left.extend(all(next, own));
            for thread in threads {
                // The progress of a thread that panicked is unknown.
                left.extend(thread.join().unwrap_or_else(|_| pages.clone()));
            }
        });
        drop(quiet);
        self.busy.set(false);
        Some(left)
    }
}

/// Writes one run after the other; returns the pages that could not be written.
fn all<'a>(
    next: impl Fn() -> Option<&'a &'a [u64]>,
    bring: impl Fn(&[u64]) -> Vec<u64>,
) -> Vec<u64> {
    std::iter::from_fn(next).flat_map(|run| bring(run)).collect()
}

/// Applies `each` to the items, several at a time; returns the results in order.
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
                // The thread did not start, or it panicked, which is reported already.
                _ => results.extend(run(chunk)),
            }
        }
        results
    });
    drop(quiet);
    results
}

/// Blocks all signals for threads that start while it lives.
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
        // SAFETY: the set is the mask that was in force before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}
