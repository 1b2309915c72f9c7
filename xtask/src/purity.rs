// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names that crates must not use: in pure crates those of I/O, clocks, threads and runtimes; in libraries those of
//! output.
//!
//! The check covers complete files except for test code.

use syn::visit::Visit;

use crate::names::Reader;
use crate::source::Source;
use crate::tree::Tree;

/// Crates without I/O.
const PURE: &[&str] = &["policy", "core", "model"];
/// Names that they must not use.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::io",
    "std::os",
    "std::process",
    "std::thread",
    "std::time",
    "std::env",
    "io_uring",
    "rustix",
    "libc",
    "tokio",
    "SystemTime",
    "Instant::now",
    "unsafe {",
    "unsafe fn",
    "extern \"\"",
];
/// Crates that do not print: their process belongs to another program, or has a log.
const SILENT: &[&str] = &[
    "policy", "core", "model", "trace", "sim", "nbd", "io", "volume", "front", "shared", "report",
    "pg", "private",
];
/// Files that may print: the last message of a process before it aborts, and its format in PostgreSQL's log.
const MAY_PRINT: &[&str] =
    &["crates/pg/src/server.rs", "crates/shared/src/host.rs", "crates/shared/src/pages.rs"];
const OUTPUT: &[&str] = &["print!", "println!", "eprint!", "eprintln!", "dbg!"];

/// The check.
pub fn check(tree: &Tree, findings: &mut Vec<String>) {
    tree.code().for_each(|source| check_source(source, findings));
}

fn check_source(source: &Source, findings: &mut Vec<String>) {
    let is_in = |crates: &[&str]| source.crate_name().is_some_and(|name| crates.contains(&name));
    let impure = IMPURE.iter().filter(|_| is_in(PURE));
    let is_silent = is_in(SILENT) && !MAY_PRINT.contains(&source.name.as_str());
    let words: Vec<&str> = impure.chain(OUTPUT.iter().filter(|_| is_silent)).copied().collect();
    for (number, line) in source.code.iter().enumerate() {
        for word in words.iter().filter(|word| names(line, word)) {
            findings.push(format!("{}:{}: names {word}", source.name, number + 1));
        }
    }
    // `use std::{fs, io}` contains none of the names on a line.
    let mut reader = Reader::default();
    source.ast.items.iter().for_each(|item| reader.visit_item(item));
    for import in reader.names.imports {
        let path = import.path.join("::");
        let is_written = source.code.iter().any(|line| names(line, &path));
        for word in words.iter().filter(|word| !is_written && names(&path, word)) {
            findings.push(format!("{}: imports {path}: names {word}", source.name));
        }
    }
}

/// Whether a line contains a word that is not part of a longer one.
fn names(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(is_part)
            && (!word.ends_with(is_part) || !line[at + word.len()..].starts_with(is_part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check_source(&Source::parse(file, text).unwrap(), &mut findings);
        findings
    }

    #[test]
    fn io_in_a_pure_crate_is_found_after_tests_too() {
        let code = "use std::fs;\n// std::net in a comment is fine\n#[cfg(test)] mod tests { use std::env; }\n\
                    use std::{io, fmt};\nfn f() { unsafe { g() } }\n";
        assert_eq!(
            found("crates/core/src/x.rs", code),
            [
                "crates/core/src/x.rs:1: names std::fs",
                "crates/core/src/x.rs:5: names unsafe {",
                "crates/core/src/x.rs: imports std::io: names std::io",
            ]
        );
        assert!(found("crates/io/src/x.rs", code).is_empty());
    }

    #[test]
    fn a_library_does_not_print() {
        let code = "fn f() { eprintln!(\"x\"); libc::close(0); }\n#[cfg(feature = \"mutants\")] fn g() { print!(\"\") }";
        assert_eq!(found("crates/pg/src/x.rs", code), ["crates/pg/src/x.rs:1: names eprintln!"]);
        assert!(found("crates/cli/src/x.rs", code).is_empty());
    }
}
