// SPDX-License-Identifier: MIT OR Apache-2.0
//! The check of the fuzz target `configuration`: arbitrary bytes as a configuration file.
//!
//! Required: no panic, no endless loop. The configuration that `--print-config` prints for an accepted file is a
//! configuration file that prints the same again, with the same volumes.

use std::cell::OnceCell;

use clap::FromArgMatches;
use tempfile::TempDir;

use super::keys::command;
use super::{Plan, plans, print};
use crate::serve::args::ServeArgs;

thread_local! {
    static DIR: OnceCell<TempDir> = const { OnceCell::new() };
}

/// In memory where possible: a file for each input.
fn scratch() -> TempDir {
    let made = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    made.expect("a directory for temporary files")
}

/// The volumes of a file with this content.
fn read(text: &[u8]) -> anyhow::Result<Vec<Plan>> {
    DIR.with(|dir| {
        let path = dir.get_or_init(scratch).path().join("larder.toml");
        std::fs::write(&path, text)?;
        let given = command().try_get_matches_from([path])?;
        plans(&given, ServeArgs::from_arg_matches(&given)?)
    })
}

/// Checks one input.
pub fn check(data: &[u8]) {
    let Ok(plans) = read(data) else { return };
    assert!(!plans.is_empty());
    let Ok(text) = print::print(&plans) else { return };
    let again = read(text.as_bytes()).expect("a printed configuration is one");
    let names = |plans: &[Plan]| plans.iter().map(|p| p.args.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&plans), names(&again));
    assert_eq!(print::print(&again).expect("it was printed once"), text);
}
