// SPDX-License-Identifier: MIT OR Apache-2.0
//! Members are killed at any instruction; the others go on with a log that has all that was acknowledged.
//! `LARDER_SHARED_ROUNDS` says how many die (60 unless set).

mod support;

use larder_core::pagelog::LogPolicy;
use support::deaths::{deaths, reopened};
use support::{member, rounds};

#[test]
#[ignore = "what a process of the other tests runs"]
fn member() {
    member::run();
}

#[test]
fn the_others_go_on_under_full() {
    deaths(LogPolicy::Full, rounds(60), None, "member").expect("goes on");
}

#[test]
fn the_others_go_on_under_bounded() {
    deaths(LogPolicy::Bounded, rounds(60), None, "member").expect("goes on");
}

#[test]
fn the_others_go_on_under_through() {
    deaths(LogPolicy::Through, rounds(60) / 4, None, "member").expect("goes on");
}

#[test]
fn what_was_flushed_is_in_the_files_when_all_are_dead() {
    for policy in [LogPolicy::Full, LogPolicy::Bounded, LogPolicy::Through] {
        reopened(policy, rounds(60) / 6, "member").expect("is there");
    }
}
