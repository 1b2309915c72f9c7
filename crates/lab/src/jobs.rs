// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many independent runs on every processor.
//!
//! Invariant: results come in the order of the jobs, not of their completion.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use larder_trace::watch::{current, watched};

/// An estimate of the time that is left, from the jobs that are done: `; about 3 min left`. Empty where no job is done,
/// or none is left.
#[must_use]
pub fn time_left(spent: Duration, done: usize, all: usize) -> String {
    if done == 0 || done >= all {
        return String::new();
    }
    let seconds = spent.as_secs_f64() / done as f64 * (all - done) as f64;
    match seconds {
        s if s < 60.0 => format!("; about {s:.0} s left"),
        s if s < 5400.0 => format!("; about {:.0} min left", s / 60.0),
        s => format!("; about {:.1} h left", s / 3600.0),
    }
}

/// Does all jobs, on every processor; results come in the order of the jobs.
///
/// # Errors
/// The first that a job had.
pub fn run_jobs<J: Sync, T: Send>(
    name: &str,
    jobs: &[J],
    words: impl Fn(&J) -> String + Sync,
    run: impl Fn(&J) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    run_jobs_on(None, name, jobs, words, run)
}

/// The same on so many threads; on every processor without. After an error no further job begins.
///
/// # Errors
/// The first that a job had.
pub fn run_jobs_on<J: Sync, T: Send>(
    threads: Option<usize>,
    name: &str,
    jobs: &[J],
    words: impl Fn(&J) -> String + Sync,
    run: impl Fn(&J) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let processors = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = threads.unwrap_or_else(processors).clamp(1, jobs.len().max(1));
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<(usize, Result<T>)>> = Mutex::new(Vec::new());
    let all = Instant::now();
    let work = || {
        while let number = next.fetch_add(1, Ordering::Relaxed)
            && let Some(job) = jobs.get(number)
        {
            let begin = Instant::now();
            let result = run(job);
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            if result.is_err() {
                next.store(jobs.len(), Ordering::Relaxed);
            }
            found.push((number, result));
            let left = time_left(all.elapsed(), found.len(), jobs.len());
            let (done, seconds) = (found.len(), begin.elapsed().as_secs_f64());
            crate::tell!(
                "{name}: {done} of {}: {} in {seconds:.1} s{left}",
                jobs.len(),
                words(job)
            );
        }
    };
    let watch = current();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| watched(watch.clone(), work));
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(number, _)| *number);
    found.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_an_error_ends_the_work() {
        let jobs: Vec<u32> = (0..50).collect();
        let words = ToString::to_string;
        let doubled = run_jobs_on(Some(3), "t", &jobs, words, |job| Ok(job * 2)).unwrap();
        assert_eq!(doubled, (0..50).map(|job| job * 2).collect::<Vec<_>>());
        let begun = AtomicUsize::new(0);
        let fails = |job: &u32| {
            begun.fetch_add(1, Ordering::Relaxed);
            if *job == 5 { anyhow::bail!("no") } else { Ok(()) }
        };
        assert!(run_jobs_on(Some(1), "t", &jobs, words, fails).is_err());
        assert_eq!(begun.into_inner(), 6);
    }

    #[test]
    fn time_left_is_of_the_jobs_that_are_left() {
        let left = |seconds, done, all| time_left(Duration::from_secs(seconds), done, all);
        assert_eq!(left(10, 2, 8), "; about 30 s left");
        assert_eq!(left(600, 1, 4), "; about 30 min left");
        assert_eq!(left(3600, 1, 4), "; about 3.0 h left");
        assert_eq!((left(9, 0, 4), left(9, 4, 4)), (String::new(), String::new()));
    }
}
