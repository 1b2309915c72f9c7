// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requirements of a file: it has the licence line, opens with a module document, and is short.

use crate::source::Source;
use crate::tree::Tree;

/// The longest source file, in lines.
const MOST_LINES: usize = 500;
const LICENCE: &str = "// SPDX-License-Identifier: MIT OR Apache-2.0";

/// The check.
pub fn check(tree: &Tree, findings: &mut Vec<String>) {
    tree.sources.values().for_each(|source| check_source(source, findings));
}

fn check_source(source: &Source, findings: &mut Vec<String>) {
    let (name, text) = (&source.name, &source.text);
    if text.lines().next() != Some(LICENCE) {
        findings.push(format!("{name}: the first line is not the licence line"));
    }
    if !text.lines().take(3).any(|l| l.starts_with("//!")) {
        findings.push(format!("{name}: does not open with a module document"));
    }
    let count = text.lines().count();
    if count > MOST_LINES {
        findings.push(format!("{name}: {count} lines; at most {MOST_LINES}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_licence_or_document_or_too_long_is_found() {
        let mut findings = Vec::new();
        let long = format!("fn f() {{}}\n{}", "\n".repeat(MOST_LINES));
        check_source(&Source::parse("x.rs", &long).unwrap(), &mut findings);
        assert_eq!(findings.len(), 3, "{findings:?}");
        findings.clear();
        let good = format!("{LICENCE}\n//! A module.\nfn f() {{}}\n");
        check_source(&Source::parse("x.rs", &good).unwrap(), &mut findings);
        assert!(findings.is_empty());
    }
}
