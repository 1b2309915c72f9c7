// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mutant that a test has activated on its thread.

use std::cell::Cell;

thread_local! {
    static ACTIVE: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Activates a mutant on this thread, or none.
pub fn activate(name: Option<&'static str>) {
    ACTIVE.set(name);
}

/// Whether the mutant of this name is active.
#[must_use]
pub fn is_active(name: &str) -> bool {
    debug_assert!(super::MUTANTS.iter().any(|m| m.name == name), "unknown mutant {name}");
    ACTIVE.get() == Some(name)
}
