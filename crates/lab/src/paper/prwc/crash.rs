// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nothing that was acknowledged is lost, wherever it crashes: PRWC and PROC under torture.
//!
//! Why the swarm's seeds and not crashes in a desktop's days: a history of torture has some thousand
//! requests to a volume of a few units, several crashes and some dozen power cuts that are
//! checked, all read back; of a desktop's two million requests hardly any is in flight at a crash.

use anyhow::Result;
use larder_sim::torture::history::Seen;
use larder_sim::torture::plan::Plan;
use larder_sim::torture::run;

use super::super::{Asked, At, Kind, Row};
use crate::jobs::run_jobs;

/// Histories of each preset.
const HISTORIES: usize = 150;
/// Histories of a job.
const TOGETHER: usize = 25;
/// Seeds tried to find that many; PRWC has one in four.
const TRIED: u64 = 1 << 16;
const PRESETS: [&str; 2] = ["prwc", "proc"];

/// What came of some histories.
#[derive(Default)]
struct Outcome {
    seen: Seen,
    histories: usize,
    violations: Vec<String>,
}

fn torture(plans: &[Plan]) -> Outcome {
    let mut outcome = Outcome::default();
    for plan in plans {
        match run(plan) {
            Ok(seen) => {
                outcome.seen += seen;
                outcome.histories += usize::from(seen.counts());
            }
            Err(violation) => outcome.violations.push(format!("seed {}: {violation}", plan.seed)),
        }
    }
    outcome
}

/// P17.
pub(super) fn rows(asked: &Asked) -> Result<Vec<Row>> {
    // Seeds of one call are not among those of the next.
    let first = asked.seed.wrapping_mul(TRIED);
    let (mut points, mut jobs) = (Vec::new(), Vec::new());
    for preset in PRESETS {
        let plans = (0..TRIED).map(|number| Plan::of(first.wrapping_add(number), None));
        let plans: Vec<Plan> =
            plans.filter(|plan| plan.setup.preset == preset).take(HISTORIES).collect();
        jobs.extend(plans.chunks(TOGETHER).map(<[Plan]>::to_vec));
    }
    let words = |plans: &Vec<Plan>| {
        let preset = plans.first().map_or("", |plan| plan.setup.preset);
        format!("{} histories of {preset}", plans.len())
    };
    let outcomes = run_jobs("torture", &jobs, words, |plans| Ok(torture(plans)))?;
    let mut all = Outcome::default();
    for outcome in outcomes {
        all.seen += outcome.seen;
        all.histories += outcome.histories;
        all.violations.extend(outcome.violations);
    }
    let mut point = |at: &str, paper: Option<f64>, ours: f64| {
        points.push(At { at: at.to_owned(), paper, ours: Some(ours) });
    };
    point("violations", Some(0.0), all.violations.len() as f64);
    point("histories", None, all.histories as f64);
    point("crashes", None, all.seen.crashes as f64);
    point("power cuts recovered from and checked", None, all.seen.recoveries as f64);
    let holds = all.violations.is_empty() && all.histories > 0;
    let asked = format!(
        "No violation in {} histories of torture from {HISTORIES} seeds of each of prwc and proc (a history counts with \
         1,000 requests, 3 crashes and 30 recoveries): after each stop, in a recovery too, every sector holds what a \
         FLUSH or FUA promised or something written since, and reads find that.",
        all.histories
    );
    let found = all.violations.first().map(|first| format!("The first violation: {first}."));
    let why = found.unwrap_or_else(|| {
        "The holes of the paper's crash argument are closed (ARCHITECTURE.md, where we differ)."
            .to_owned()
    });
    let row = Row::new("P17", Kind::Exact)?
        .ours(all.violations.len())
        .points(points)
        .at_scale("volumes of a few units")
        .judged(holds, asked, why);
    Ok(vec![row])
}
