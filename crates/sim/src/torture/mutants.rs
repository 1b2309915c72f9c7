// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine's named mutants, each to be caught by some seed.
//!
//! A scenario of its own catches a mutant that random histories show rarely or never. All others are caught by the seeds
//! that everything is tortured with: those that break rule 8 in the row of metadata rot, those of the page log in its
//! rows.

use std::sync::atomic::AtomicBool;

use larder_core::mutant::{APART, MUTANTS};

use super::corpus;
use super::rows::profile;
use super::runner::{Outcome, Task, activate, torture};
use crate::{budgeted, hung, scenario, shared, synced};

/// A fixed history.
type Scenario = fn() -> Result<(), String>;

/// What an origin that hangs must not do.
const HUNG: &str = "14: an origin that hangs holds up another volume";

/// The mutants that a scenario catches, and the rules that they break.
const SCENARIOS: &[(&str, &str, Scenario)] = &[
    ("displace-anything", "6: a hotter unit is displaced", scenario::hot_units_stay),
    (
        "syncer-starves-eviction",
        "11: a full cache admits nothing",
        synced::a_cache_full_of_dirty_pages_admits_again,
    ),
    (
        "flush-waits-for-syncer",
        "7: an answered FLUSH did not cover a write",
        synced::a_flush_without_a_journal_writes_back,
    ),
    (
        "admitted-beyond-the-log",
        "11: a full log is never written again",
        synced::a_flush_logs_more_than_the_log_holds,
    ),
    (
        "state-apart-from-dirty",
        "9: a crash makes a dirty unit clean",
        synced::a_dirty_unit_is_logged_in_one_block,
    ),
    (
        "failed-origin-ends-cache",
        "14: a failed origin takes the cache of others",
        shared::a_failed_origin_leaves_the_others_their_cache,
    ),
    (
        "share-not-kept",
        "14: a volume takes more than its share",
        shared::a_volume_keeps_to_its_share,
    ),
    (
        "refusing-origin-grows",
        "14: dirty data of one volume displaces others",
        shared::refused_data_displaces_nothing_of_others,
    ),
    ("budget-not-kept", "17: flash is written beyond its budget", budgeted::a_day_keeps_its_budget),
    ("journal-waits-for-hung", HUNG, hung::the_journal_continues),
    ("checkpoint-waits-for-hung", HUNG, hung::a_checkpoint_continues),
    ("population-waits-for-hung", HUNG, hung::population_continues),
    ("exchange-waits-for-hung", HUNG, hung::exchanges_continue),
    ("clear-waits-for-hung", HUNG, hung::clears_end),
    ("hung-volume-grows", HUNG, hung::it_takes_no_slot),
    ("hung-counts-as-busy", HUNG, hung::idle_write_back_continues),
    (
        "flush-beside-failed-flush",
        "7: an answered FLUSH did not cover a write",
        shared::a_flush_beside_a_failed_one_fails,
    ),
    (
        "page-log-serves-alone",
        "7: an answered write is lost",
        scenario::an_unusable_log_loses_nothing_of_the_others,
    ),
    (
        "page-log-trim-refused",
        "3: a read returns bytes from before a write",
        scenario::a_refused_trim_returns_no_older_bytes,
    ),
    (
        "page-log-flush-before-replacement",
        "7: an answered FLUSH did not cover a write",
        scenario::a_flush_does_not_count_on_a_replacement,
    ),
    (
        "page-log-fua-ignores-losses",
        "7: an answered write with FUA is lost",
        scenario::a_fua_write_is_durable_or_fails,
    ),
];

/// The mutant that needs two crashes at the same block. Random histories rarely show that state, so a test of the page log
/// makes it.
const CRAFTED: &str = "page-log-older-batch-header";

/// Whether and how a mutant was caught.
#[derive(Clone, Debug)]
pub struct Fate {
    /// Its name.
    pub name: &'static str,
    /// The seed that caught it.
    pub seed: Option<u64>,
    /// Client requests until then.
    pub ops: u64,
    /// Seconds until then.
    pub seconds: f64,
    /// The rule that it broke.
    pub why: String,
}

/// Whether this build has mutants.
#[must_use]
pub fn are_built() -> bool {
    cfg!(feature = "mutants")
}

/// The name, if a mutant has it.
#[must_use]
pub fn named(name: &str) -> Option<&'static str> {
    MUTANTS.iter().find(|m| m.name == name).map(|m| m.name)
}

/// The names of all that one process can show.
pub fn names() -> impl Iterator<Item = &'static str> {
    let shown = MUTANTS.iter().filter(|m| !APART.contains(&m.rule) && m.name != CRAFTED);
    shown.map(|m| m.name)
}

/// The task with this mutant, in the row of the swarm that shows it.
#[must_use]
pub fn with(name: &'static str, task: &Task) -> Task {
    let row = match past(name) {
        Some(entry) => entry.profile,
        None if name.starts_with("page-log-") => profile("page-log"),
        None => {
            let rots = MUTANTS.iter().any(|m| m.name == name && m.rule == "8");
            profile("metadata-rot").filter(|_| rots)
        }
    };
    Task { mutant: Some(name), profile: task.profile.or(row), ..task.clone() }
}

/// The seed that caught it before.
fn past(name: &str) -> Option<corpus::Entry> {
    corpus::entries().unwrap_or_default().into_iter().find(|e| e.mutant == Some(name))
}

/// Tortures with the mutant of the task.
pub fn torture_mutant(task: &Task, stop: &AtomicBool, progress: impl Fn(&Outcome)) -> Outcome {
    let scenario = SCENARIOS.iter().find(|(name, ..)| task.mutant == Some(name));
    let Some((_, rule, scenario)) = scenario else { return torture(task, stop, progress) };
    let began = std::time::Instant::now();
    activate(task.mutant);
    let result = scenario();
    activate(None);
    let violation = result.err().map(|what| {
        let violation = super::Violation::new(rule, None, what);
        (task.first_seed, *violation)
    });
    let seconds = began.elapsed().as_secs_f64();
    Outcome { seeds: 1, violations: violation.into_iter().collect(), seconds, ..Outcome::default() }
}

/// Looks for a seed that catches a mutant: past ones first, then those of the task.
#[must_use]
pub fn fate(name: &'static str, task: &Task, stop: &AtomicBool) -> Fate {
    let task = with(name, task);
    let first = past(name).map(|e| Task { first_seed: e.seed, runs: 1, ..task.clone() });
    let first = first.map(|task| torture_mutant(&task, stop, |_| {}));
    let outcome = first
        .filter(|o| !o.violations.is_empty())
        .unwrap_or_else(|| torture_mutant(&task, stop, |_| {}));
    let found = outcome.violations.first();
    Fate {
        name,
        seed: found.map(|(seed, _)| *seed),
        ops: outcome.seen.requests,
        seconds: outcome.seconds,
        why: found.map(|(_, violation)| violation.to_string()).unwrap_or_default(),
    }
}
