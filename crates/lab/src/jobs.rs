// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many independent runs on every processor.
//!
//! Invariant: results come in the order of the jobs, whoever was done first.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_of_the_jobs_that_are_left() {
        let left = |seconds, done, all| time_left(Duration::from_secs(seconds), done, all);
        assert_eq!(left(10, 2, 8), "; about 30 s left");
        assert_eq!(left(600, 1, 4), "; about 30 min left");
        assert_eq!(left(3600, 1, 4), "; about 3.0 h left");
        assert_eq!((left(9, 0, 4), left(9, 4, 4)), (String::new(), String::new()));
    }
}
