// SPDX-License-Identifier: MIT OR Apache-2.0
//! A party dies at each of its steps in turn; another continues with the log, and finds every acknowledged change.

use std::future::ready;

use super::*;

const PAGES: u64 = 40;

/// The versions of the pages.
struct Model {
    /// The newest version that was begun, acknowledged, and flushed.
    begun: Vec<u64>,
    done: Vec<u64>,
    durable: Vec<u64>,
    /// The version of the last burial that was begun: a page of zeroes has this version.
    buried: Vec<u64>,
}

impl Model {
    fn new() -> Self {
        let none = || vec![0; PAGES as usize];
        Self { begun: none(), done: none(), durable: none(), buried: none() }
    }

    fn put(&mut self, log: &Log, page: u64) {
        let at = page as usize;
        self.begun[at] += 1;
        put(log, page, self.begun[at]);
        self.done[at] = self.begun[at];
    }

    fn flush(&mut self, log: &Log) {
        // A burial flushes the origin itself.
        now(log.barrier(ready(Ok(())), ready(Ok(())))).expect("flushes");
        self.durable.clone_from(&self.done);
    }

    fn bury(&mut self, log: &Log, pages: Range<u64>) {
        for page in pages.clone() {
            self.begun[page as usize] += 1;
            self.buried[page as usize] = self.begun[page as usize];
        }
        let recorded = now(log.bury(pages.clone())).expect("is buried");
        now(log.host().zero_origin(pages.clone())).expect("is zero");
        if !recorded {
            now(log.host().flush_origin()).expect("is flushed");
        }
        for page in pages {
            self.done[page as usize] = self.begun[page as usize];
            self.durable[page as usize] = self.begun[page as usize];
        }
    }

    /// While no party runs: checks that no page is older than `least`, and returns the versions.
    fn check(&self, log: &Log, least: &[u64], what: &str) -> Vec<u64> {
        let one = |page: usize| {
            let found = match version(log, page as u64) {
                0 => self.buried[page],
                found => found,
            };
            let (least, most) = (least[page], self.begun[page]);
            assert!(
                (least..=most).contains(&found),
                "{what}: page {page}: {found}, {least}..={most}"
            );
            found
        };
        (0..PAGES as usize).map(one).collect()
    }
}

/// Fills several laps; references some pages.
fn history(log: &Log, model: &mut Model) {
    for i in 0..150 {
        model.put(log, i * 7 % PAGES);
        if i % 3 == 0 {
            version(log, i * 5 % PAGES);
        }
        if i == 40 {
            model.flush(log);
        }
    }
}

/// The acts of the victim.
fn last_acts(log: &Log, model: &mut Model) {
    for i in 0..18 {
        model.put(log, i * 11 % PAGES);
        version(log, i * 3 % PAGES);
        if i == 8 {
            // The origin has no older bytes of this page.
            model.bury(log, PAGES - 1..PAGES);
        }
        if i == 12 {
            model.flush(log);
        }
    }
}

/// One death, after `steps`; returns whether the party died before it finished.
fn death(policy: LogPolicy, second_chance: bool, steps: u64) -> bool {
    let mut rig = Rig::new(policy, second_chance);
    let mut model = Model::new();
    let first = rig.open(1);
    history(&first, &mut model);
    let died = rig.world.until_death(1, steps, || last_acts(&first, &mut model));
    let what = format!("{policy:?} {second_chance} {steps}");
    let other = rig.join(2);
    // After an interrupted burial the origin may have any older bytes of the page.
    let open_burial = (PAGES - 1) as usize;
    let mut least = model.done.clone();
    if model.buried[open_burial] > model.done[open_burial] {
        if now(other.bury_absent(PAGES - 1)).expect("has not failed") {
            now(other.host().zero_origin(PAGES - 1..PAGES)).expect("is zero");
            now(other.host().flush_origin()).expect("is flushed");
        }
        least[open_burial] = 0;
    }
    let seen = model.check(&other, &least, &what);
    let before = other.status();
    other.repair();
    assert_eq!(other.status(), before, "{what}");
    model.done = seen;
    if !steps.is_multiple_of(3) {
        (0..steps % 41).for_each(|i| model.put(&other, i * 13 % PAGES));
        model.check(&other, &model.done, &what);
    }
    if !steps.is_multiple_of(4) {
        // A FLUSH makes the versions that were read durable.
        model.flush(&other);
    }
    drop((first, other));
    let log = rig.cut(3);
    let mut durable = model.durable.clone();
    if model.begun[open_burial] > model.durable[open_burial] {
        durable[open_burial] = 0;
    }
    model.check(&log, &durable, &format!("{what}, after a power cut"));
    died
}

#[test]
fn a_death_at_any_step_loses_no_acknowledged_change() {
    for (policy, second_chance) in
        [(LogPolicy::Full, true), (LogPolicy::Full, false), (LogPolicy::Bounded, true)]
    {
        let steps = (0..).find(|steps| !death(policy, second_chance, *steps)).expect("an end");
        assert!(steps > 2_000, "only {steps} steps");
    }
}

#[cfg(feature = "mutants")]
#[test]
fn deaths_show_every_mutant_of_their_rule() {
    let mutants = crate::mutant::MUTANTS.iter().filter(|m| m.rule == "L10");
    for mutant in mutants {
        crate::mutant::activate(Some(mutant.name));
        let all = || (0..).find(|steps| !death(LogPolicy::Full, true, *steps));
        let shown = std::panic::catch_unwind(all).is_err();
        crate::mutant::activate(None);
        assert!(shown, "{}", mutant.name);
    }
}
