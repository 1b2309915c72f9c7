// SPDX-License-Identifier: MIT OR Apache-2.0
//! Members are killed at any instruction; the others continue with a log that holds all acknowledged writes.
//! `LARDER_SHARED_ROUNDS` sets how many die (default 60).

mod support;

use larder_core::pagelog::LogPolicy;
use support::deaths::{deaths, reopened};
use support::{member, rounds};

#[test]
#[ignore = "run by the processes of the other tests"]
fn member() {
    member::run();
}

#[test]
fn the_others_continue_under_full() {
    deaths(LogPolicy::Full, rounds(60), None, "member").expect("continues");
}

#[test]
fn the_others_continue_under_bounded() {
    deaths(LogPolicy::Bounded, rounds(60), None, "member").expect("continues");
}

#[test]
fn the_others_continue_under_through() {
    deaths(LogPolicy::Through, rounds(60) / 4, None, "member").expect("continues");
}

#[test]
fn flushed_pages_survive_the_death_of_all_members() {
    for policy in [LogPolicy::Full, LogPolicy::Bounded, LogPolicy::Through] {
        reopened(policy, rounds(60) / 6, "member").expect("pages are durable");
    }
}
