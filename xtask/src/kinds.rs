// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conditions on the kind of a cache or on a write policy, outside the files of the kinds, in the crates of the engine.
//!
//! A path asks for the kind once, at its door. What is left elsewhere is counted by these words, a line at a time, and the
//! count may only fall: whoever removes some lowers the number here.

use std::path::{Path, PathBuf};

/// Words by which a line asks for a kind or a policy.
const WORDS: &[&str] = &[
    "flash_owns",
    "flash_keeps",
    "holds_dirty",
    "outlives_crash",
    "is_periodic",
    "keeps.dirty",
    "keeps.factors",
    "WritePolicy::",
    "LogPolicy::",
    "Durability::",
    "write.log()",
    "choices.log()",
];

/// Files of the kinds and policies themselves.
const OWN: &[&str] = &[
    "crates/core/src/cache/",
    "crates/core/src/config/",
    "crates/core/src/format/",
    "crates/core/src/pagelog/ops.rs",
    "crates/core/src/pagelog/policy.rs",
    "crates/pg/src/policy/",
];

/// What is left, by crate of the engine.
const LEFT: &[(&str, usize)] =
    &[("core", 13), ("front", 0), ("io", 0), ("pg", 5), ("shared", 2), ("volume", 27)];

/// Counts the conditions of each crate.
pub fn check(root: &Path, sources: &[PathBuf], findings: &mut Vec<String>) {
    for (name, left) in LEFT {
        let mut count = 0;
        for path in sources {
            let file = path.strip_prefix(root).unwrap_or(path).display().to_string();
            let tests =
                file.contains("/tests") || file.contains("_tests") || file.contains("/several/");
            let own = OWN.iter().any(|own| file.starts_with(own));
            if !file.starts_with(&format!("crates/{name}/src/")) || own || tests {
                continue;
            }
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or(&text);
            let lines = code.lines().map(|line| line.split("//").next().unwrap_or(""));
            count += lines.filter(|line| WORDS.iter().any(|word| line.contains(word))).count();
        }
        match count.cmp(left) {
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Less => {
                findings.push(format!(
                    "crates/{name}: {count} conditions on kinds; lower {left} in xtask/src/kinds.rs"
                ));
            }
            std::cmp::Ordering::Greater => {
                findings
                    .push(format!("crates/{name}: {count} conditions on kinds; at most {left}"));
            }
        }
    }
}
