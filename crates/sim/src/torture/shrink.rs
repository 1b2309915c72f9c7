// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a history that breaks a rule to a short one that breaks the same.
//!
//! Delta debugging: steps are left out, in large pieces and then one by one, as long as the rule
//! is still broken. Leaving one out shifts every latency after it, so a shorter history is tried
//! under a few other salts before it is abandoned.
//!
//! Invariants: deterministic; the work is bounded by a number of steps carried out.

use super::history::{Line, Violation};
use super::plan::Plan;
use super::step::{Step, Stop};
use super::{run, run_traced};

/// Steps carried out at most: some seconds.
const BUDGET: u64 = 1_500_000;

/// A short history.
#[derive(Clone, Debug)]
pub struct Short {
    /// Its plan.
    pub plan: Plan,
    /// The rule that it breaks.
    pub violation: Violation,
    /// What happens in it.
    pub lines: Vec<Line>,
}

struct Shrinker {
    best: Plan,
    rule: &'static str,
    spent: u64,
}

/// Shortens the plan; nothing if it breaks no rule.
#[must_use]
pub fn shrink(plan: &Plan) -> Option<Short> {
    let found = *run(plan).err()?;
    let mut best = plan.clone();
    best.steps.truncate(found.step + 1);
    let mut shrinker = Shrinker { best, rule: found.rule, spent: 0 };
    shrinker.simplify();
    while shrinker.pass() {}
    shrinker.calm();
    while shrinker.pass() {}
    let (result, lines) = run_traced(&shrinker.best);
    Some(Short { violation: *result.err()?, plan: shrinker.best, lines })
}

impl Shrinker {
    /// Whether the steps break the rule under some salt; then they are the best.
    fn take(&mut self, steps: Vec<Step>, salts: u64) -> bool {
        let mut plan = Plan { steps, ..self.best.clone() };
        for salt in 0..salts {
            plan.salt = self.best.salt.wrapping_add(salt);
            self.spent += plan.steps.len() as u64;
            if let Err(found) = run(&plan)
                && found.rule == self.rule
            {
                plan.steps.truncate(found.step + 1);
                self.best = plan;
                return true;
            }
            if self.spent > BUDGET {
                return false;
            }
        }
        false
    }

    /// Leaves out pieces of every size; whether any could be.
    fn pass(&mut self) -> bool {
        let before = self.best.steps.len();
        let mut size = before / 2;
        while size > 0 && self.spent <= BUDGET {
            let mut at = self.best.steps.len().saturating_sub(size);
            loop {
                let mut steps = self.best.steps.clone();
                let end = (at + size).min(steps.len());
                steps.drain(at.min(end)..end);
                let salts = (2_000 / (steps.len() as u64 + 1)).clamp(1, 40);
                self.take(steps, salts);
                if at == 0 || self.spent > BUDGET {
                    break;
                }
                at = at.min(self.best.steps.len()).saturating_sub(size);
            }
            size /= 2;
        }
        self.best.steps.len() < before && self.spent <= BUDGET
    }

    /// Plain crashes, and one outcome of a power cut instead of several.
    fn simplify(&mut self) {
        let plain = |step: &Step| match *step {
            Step::Crash(salt, _, _) => Step::Crash(salt, Stop::Power, true),
            other => other,
        };
        let steps = self.best.steps.iter().map(plain).collect();
        self.take(steps, 4);
    }

    /// Waits instead of counted events, and nothing beside each other, where that is enough.
    fn calm(&mut self) {
        let in_flight = std::mem::replace(&mut self.best.setup.in_flight, 1);
        let steps = self.best.steps.clone();
        if !self.take(steps, 60) {
            self.best.setup.in_flight = in_flight;
        }
    }
}
