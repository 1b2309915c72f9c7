// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many independent runs on every processor.
//!
//! Invariant: results come in the order of the jobs, whoever was done first.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;

/// Does all jobs, on every processor; results come in the order of the jobs.
pub fn run_jobs<J: Sync, T: Send>(
    name: &str,
    jobs: &[J],
    words: impl Fn(&J) -> String + Sync,
    run: impl Fn(&J) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<(usize, Result<T>)>> = Mutex::new(Vec::new());
    let work = || {
        while let number = next.fetch_add(1, Ordering::Relaxed)
            && let Some(job) = jobs.get(number)
        {
            let begin = std::time::Instant::now();
            let result = run(job);
            crate::tell!("{name}: {} in {:.0} s", words(job), begin.elapsed().as_secs_f64());
            found.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()) {
            scope.spawn(work);
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(number, _)| *number);
    found.into_iter().map(|(_, result)| result).collect()
}
