// SPDX-License-Identifier: MIT OR Apache-2.0
//! What describes a mutant.

/// A mutant.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// Its name.
    pub name: &'static str,
    /// The rule it breaks, by its id in docs/design.md.
    pub rule: &'static str,
    /// The wrong behaviour.
    pub what: &'static str,
}

pub(super) const fn mutant(name: &'static str, rule: &'static str, what: &'static str) -> Mutant {
    Mutant { name, rule, what }
}
