// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many random inputs for the check of a fuzz target, without a fuzzer: inputs of its corpus, changed, and random pieces.
//! The inputs are the same in every run.
//!
//! Required beside what the check requires: each input ends within [`PATIENCE`], and the memory of the process is
//! bounded, because the inputs are small.

use std::panic::catch_unwind;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::corpus;

/// The longest time for one input, on a machine that also does other work.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The most memory of the process, in KiB.
const MEMORY_KIB: u64 = 400 << 10;

/// How many inputs.
pub struct Campaign {
    /// The environment variable with the count.
    pub variable: &'static str,
    /// The count without the variable.
    pub few: u64,
}

impl Campaign {
    /// The count.
    #[must_use]
    pub fn count(&self) -> u64 {
        let count = |text: String| text.parse().expect("a count");
        std::env::var(self.variable).map_or(self.few, count)
    }

    /// Checks inputs like those of the target's corpus.
    pub fn run(&self, target: &str, check: fn(&[u8])) {
        self.run_as(target, check, |input| input);
    }

    /// Checks inputs like those of the target's corpus, each changed by `shape`.
    pub fn run_as(&self, target: &str, check: fn(&[u8]), shape: fn(Vec<u8>) -> Vec<u8>) {
        let corpus = corpus(target);
        for number in 0..self.count() {
            let input = shape(damaged(&corpus, &mut Pcg64Mcg::seed_from_u64(number)));
            let watched = Watched::begin(format!("{target}, input {number}"));
            let judged = catch_unwind(|| check(&input));
            drop(watched);
            assert!(judged.is_ok(), "{target}, input {number}: {input:?}");
        }
        let most = most_memory_kib();
        assert!(most < MEMORY_KIB, "{most} KiB of memory");
        println!("{target}: {} inputs, at most {most} KiB of memory", self.count());
    }
}

/// An input of the corpus with some bytes changed, or a random one of up to a dozen pieces.
pub fn damaged(corpus: &[(PathBuf, Vec<u8>)], numbers: &mut Pcg64Mcg) -> Vec<u8> {
    let mut input = match numbers.random_ratio(2, 3) {
        true => corpus[numbers.random_range(0..corpus.len())].1.clone(),
        false => {
            let mut input = vec![0; numbers.random_range(2..400)];
            numbers.fill_bytes(&mut input);
            input
        }
    };
    for _ in 0..numbers.random_range(0..8) {
        let at = numbers.random_range(0..=input.len());
        match numbers.random_range(0..4) {
            0 => input.truncate(at.max(2)),
            1 => input.insert(at, numbers.random()),
            _ if at < input.len() => input[at] = numbers.random(),
            _ => input.push(0xff),
        }
    }
    input
}

fn most_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the state of this process");
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    most.and_then(|most| most.trim().trim_end_matches(" kB").parse().ok()).expect("a number")
}

/// The inputs in progress, with the time of their begin.
static IN_PROGRESS: Mutex<Vec<(Instant, String)>> = Mutex::new(Vec::new());

fn in_progress() -> std::sync::MutexGuard<'static, Vec<(Instant, String)>> {
    IN_PROGRESS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// An input in progress; the process aborts if it takes too long.
struct Watched(Instant);

impl Watched {
    fn begin(what: String) -> Self {
        static WATCH: std::sync::Once = std::sync::Once::new();
        WATCH.call_once(|| drop(std::thread::spawn(watch)));
        let begun = Instant::now();
        in_progress().push((begun, what));
        Self(begun)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        in_progress().retain(|(begun, _)| *begun != self.0);
    }
}

fn watch() {
    loop {
        std::thread::sleep(PATIENCE / 30);
        if let Some((_, what)) = in_progress().iter().find(|(begun, _)| begun.elapsed() > PATIENCE)
        {
            eprintln!("does not end within {} s: {what}", PATIENCE.as_secs());
            std::process::abort();
        }
    }
}
