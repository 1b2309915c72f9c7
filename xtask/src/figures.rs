// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of the code: lengths of files, lines of code, and the counts of the checks.
//!
//! Lengths count all lines of the files in `src` of the crates, including test code. A line of code has a token of
//! code: it is neither a comment nor empty, and it is not test code (`source.rs` defines test code).

use std::collections::BTreeMap;

use crate::kinds;
use crate::tree::Tree;

/// The statistics as text.
#[must_use]
pub fn figures(tree: &Tree) -> String {
    let in_crates = || tree.sources.values().filter(|s| s.crate_name().is_some());
    let mut lengths: Vec<usize> = in_crates().map(|s| s.text.lines().count()).collect();
    lengths.sort_unstable();
    let at = |percent: usize| lengths.get(lengths.len() * percent / 100).or(lengths.last());
    let mut code: BTreeMap<&str, usize> = BTreeMap::new();
    for source in in_crates() {
        *code.entry(source.crate_name().unwrap_or_default()).or_default() += source.code_lines();
    }
    let mut lines = vec![
        format!(
            "files: {}; lines: median {}, p90 {}, longest {}",
            lengths.len(),
            at(50).unwrap_or(&0),
            at(90).unwrap_or(&0),
            at(100).unwrap_or(&0)
        ),
        format!("lines of code: {}", code.values().sum::<usize>()),
    ];
    lines.extend(code.iter().map(|(name, count)| format!("  {name} {count}")));
    let places = kinds::places(tree);
    let sum: usize = places.iter().map(|(_, lines)| lines.len()).sum();
    lines.push(format!("conditions on kinds of caches: {sum} in {} files", places.len()));
    lines.extend(places.iter().map(|(file, at)| format!("  {file}: {at:?}")));
    lines.join("\n")
}
