// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine behaves as recorded: the digests of torture, by row.
//!
//! A digest covers everything that clients saw in 100 seeded histories. A commit that only moves code
//! leaves it as it is; a commit that changes it states why. `digests.txt` has what
//! `larder torture --profile ROW --seed 1 --runs 100 --json` prints as `digest`.

use std::fmt::Write as _;
use std::sync::atomic::AtomicBool;

use larder_sim::torture::profile::Profile;
use larder_sim::torture::rows::PROFILES;
use larder_sim::torture::runner::{Task, torture};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/digests.txt");
/// If this variable is set, the test writes the file instead of comparing with it.
const RENEW: &str = "LARDER_RENEW_DIGESTS";
const FIRST_SEED: u64 = 1;
const SEEDS: u64 = 100;

fn digest(row: &'static Profile) -> u64 {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let task = Task {
        first_seed: FIRST_SEED,
        runs: SEEDS,
        span: None,
        profile: Some(row),
        jobs,
        mutant: None,
    };
    let outcome = torture(&task, &AtomicBool::new(false), |_| {});
    assert!(outcome.violations.is_empty(), "{}: {:?}", row.name, outcome.violations);
    outcome.seen.digest
}

#[test]
fn torture_sees_what_it_saw_before() {
    let mut text = String::new();
    for row in PROFILES {
        writeln!(text, "{} {:016x}", row.name, digest(row)).expect("a string takes a line");
    }
    if std::env::var_os(RENEW).is_some() {
        std::fs::write(FILE, text).unwrap_or_else(|e| panic!("{FILE}: {e}"));
        return;
    }
    let recorded = std::fs::read_to_string(FILE).unwrap_or_else(|e| panic!("{FILE}: {e}"));
    let changed: Vec<&str> = text.lines().filter(|l| !recorded.lines().any(|r| r == *l)).collect();
    assert!(
        text == recorded,
        "the engine behaves otherwise than recorded in crates/sim/tests/digests.txt: {changed:?}\n\
         If that is meant, run `{RENEW}=1 cargo test -p larder-sim --test digests`, commit the file, and state \
         in the commit message what changed and why."
    );
}
