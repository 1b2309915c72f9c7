// SPDX-License-Identifier: MIT OR Apache-2.0
//! Named mutants: bugs that the tests must catch, kept beside the code that avoids them.
//!
//! Each breaks one clause of a rule of docs/design.md. They exist only in builds with the feature `mutants`, and a test must
//! activate one; in other builds [`is_active`] is the constant `false`.

/// What only tests outside torture show: the death of a process (L10), several processes (S5), a process that serves flash
/// (S6), a guest that changes its memory (15).
pub const APART: [&str; 4] = ["L10", "S5", "S6", "15"];

mod kind;
mod list;
mod page_logs;

pub use self::kind::Mutant;

const ALL: [Mutant; list::MUTANTS.len() + page_logs::MUTANTS.len()] = {
    let (first, last) = (list::MUTANTS, page_logs::MUTANTS);
    let mut all = [first[0]; list::MUTANTS.len() + page_logs::MUTANTS.len()];
    let mut n = 0;
    while n < all.len() {
        all[n] = if n < first.len() { first[n] } else { last[n - first.len()] };
        n += 1;
    }
    all
};

/// Every mutant.
pub const MUTANTS: &[Mutant] = &ALL;

#[cfg(feature = "mutants")]
mod active;

#[cfg(feature = "mutants")]
pub use active::{activate, is_active};

/// Whether the mutant of this name is active.
#[cfg(not(feature = "mutants"))]
#[must_use]
pub const fn is_active(_: &str) -> bool {
    false
}
