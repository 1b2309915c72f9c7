// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many seeds on many threads.
//!
//! Seeds are handed out in order, and every seed that was begun is ended, so what was done is a
//! run of seeds without gaps, and the first that broke a rule is the first that does. The digest
//! is a sum over seeds: the order in which threads finish makes no difference.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::history::{Seen, Violation, mix};
use super::plan::Plan;
use super::profile::Profile;
use super::run;

/// What to torture.
#[derive(Clone, Debug)]
pub struct Task {
    /// The first seed.
    pub first_seed: u64,
    /// How many seeds, at most.
    pub runs: u64,
    /// How long, at most.
    pub span: Option<Duration>,
    /// A row of the swarm; else each seed picks one.
    pub profile: Option<&'static Profile>,
    /// Threads.
    pub jobs: usize,
    /// The mutant that is active.
    pub mutant: Option<&'static str>,
}

/// The result.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Seeds that count.
    pub seeds: u64,
    /// Seeds whose histories were too short to count.
    pub short: u64,
    /// What they saw.
    pub seen: Seen,
    /// Seeds that broke a rule, lowest first, and how.
    pub violations: Vec<(u64, Violation)>,
    /// Seconds on the clock.
    pub seconds: f64,
}

/// What the threads share.
struct Shared<'a> {
    task: &'a Task,
    next: AtomicU64,
    stop: &'a AtomicBool,
    /// A rule was broken.
    broken: AtomicBool,
    began: Instant,
    outcome: Mutex<Outcome>,
}

/// Activates a mutant on this thread; nothing in builds without them.
pub fn activate(name: Option<&'static str>) {
    #[cfg(feature = "mutants")]
    larder_core::mutant::activate(name);
    #[cfg(not(feature = "mutants"))]
    let _ = name;
}

/// Tortures until all is done, `stop` is set, or a rule is broken; `progress` is called about once
/// a second.
pub fn torture(task: &Task, stop: &AtomicBool, progress: impl Fn(&Outcome)) -> Outcome {
    let shared = Shared {
        task,
        next: AtomicU64::new(0),
        stop,
        broken: AtomicBool::new(false),
        began: Instant::now(),
        outcome: Mutex::default(),
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..task.jobs.max(1)).map(|_| scope.spawn(|| shared.work())).collect();
        let mut told = Instant::now();
        while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            std::thread::sleep(Duration::from_millis(10));
            if told.elapsed() >= Duration::from_secs(1) {
                told = Instant::now();
                progress(&shared.outcome());
            }
        }
    });
    let mut outcome = shared.outcome();
    outcome.violations.sort_by_key(|(seed, _)| *seed);
    outcome
}

impl Shared<'_> {
    fn outcome(&self) -> Outcome {
        let mut outcome = match self.outcome.lock() {
            Ok(outcome) => outcome.clone(),
            Err(poisoned) => poisoned.into_inner().clone(),
        };
        outcome.seconds = self.began.elapsed().as_secs_f64();
        outcome
    }

    fn is_over(&self) -> bool {
        let late = self.task.span.is_some_and(|span| self.began.elapsed() >= span);
        late || self.stop.load(Ordering::Relaxed) || self.broken.load(Ordering::Relaxed)
    }

    fn work(&self) {
        activate(self.task.mutant);
        while !self.is_over() {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.task.runs {
                break;
            }
            let seed = self.task.first_seed.wrapping_add(number);
            let result = run(&Plan::of(seed, self.task.profile));
            let Ok(mut outcome) = self.outcome.lock() else { break };
            match result {
                Ok(seen) => {
                    let digest = mix(mix(seed, seen.digest), seen.requests);
                    outcome.seen += Seen { digest, ..seen };
                    outcome.seeds += u64::from(seen.counts());
                    outcome.short += u64::from(!seen.counts());
                }
                Err(violation) => {
                    outcome.violations.push((seed, *violation));
                    self.broken.store(true, Ordering::Relaxed);
                }
            }
        }
        activate(None);
    }
}
