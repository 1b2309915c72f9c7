// SPDX-License-Identifier: MIT OR Apache-2.0
//! Past seeds of interest, which the tests replay.
//!
//! `corpus/seeds.txt` has a line per seed: the seed, the row of the swarm (`-`: the seed picks),
//! the mutant that it catches (`-`: none), and why it is there. That a seed still catches its
//! mutant is tested too, so an entry that lost its meaning is noticed.

use super::plan::Plan;
use super::profile::Profile;
use super::rows::profile;

/// A line of the corpus.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The seed.
    pub seed: u64,
    /// The row of the swarm; else the seed picks.
    pub profile: Option<&'static Profile>,
    /// The mutant that it catches.
    pub mutant: Option<&'static str>,
    /// Why it is there.
    pub why: &'static str,
}

impl Entry {
    /// Its history.
    #[must_use]
    pub fn plan(&self) -> Plan {
        Plan::of(self.seed, self.profile)
    }
}

/// Every entry.
///
/// # Errors
/// The line that cannot be understood.
pub fn entries() -> Result<Vec<Entry>, String> {
    let text = include_str!("../../corpus/seeds.txt");
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines.map(|line| entry(line).ok_or_else(|| format!("corpus: {line}"))).collect()
}

fn entry(line: &'static str) -> Option<Entry> {
    let (words, why) = line.split_once('#')?;
    let mut words = words.split_whitespace();
    let seed = words.next()?.parse().ok()?;
    let row = words.next()?;
    let profile = if row == "-" { None } else { Some(profile(row)?) };
    let mutant = words.next().filter(|m| *m != "-");
    Some(Entry { seed, profile, mutant, why: why.trim() })
}
