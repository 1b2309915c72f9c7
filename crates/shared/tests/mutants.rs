// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bugs that killed members must reveal: the controls of `killed.rs`.
#![cfg(feature = "mutants")]

mod support;

use larder_core::pagelog::LogPolicy;
use support::deaths::deaths;
use support::member;

#[test]
#[ignore = "run by the processes of the other tests"]
fn member() {
    member::run();
}

#[test]
fn killed_members_reveal_every_mutant() {
    for mutant in ["page-log-no-repair", "page-log-drops-first"] {
        let shown = deaths(LogPolicy::Full, 2_000, Some(mutant), "member");
        let why = shown.expect_err(mutant);
        println!("{mutant}: {why}");
    }
}
