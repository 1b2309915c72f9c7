// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bugs that the deaths of members must show: the controls of `killed.rs`.
#![cfg(feature = "mutants")]

mod support;

use larder_core::pagelog::LogPolicy;
use support::deaths::deaths;
use support::member;

#[test]
#[ignore = "what a process of the other tests runs"]
fn member() {
    member::run();
}

#[test]
fn deaths_show_every_mutant_of_a_death() {
    for mutant in ["log-no-repair", "log-drops-first"] {
        let shown = deaths(LogPolicy::Full, 2_000, Some(mutant), "member");
        let why = shown.expect_err(mutant);
        println!("{mutant}: {why}");
    }
}
