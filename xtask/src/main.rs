// SPDX-License-Identifier: MIT OR Apache-2.0
//! Style as a test: `cargo run -p xtask -- tidy`.
//!
//! Checks what the compiler and clippy do not check, one check a file:
//!
//! | check | file |
//! | --- | --- |
//! | licence, module document, length | `files.rs` |
//! | allowed dependencies between crates | `arrows.rs` |
//! | names that the pure crates must not use | `purity.rs` |
//! | conditions on the kind of a cache | `kinds.rs` |
//! | names of presets | `presets.rs` |
//! | files that import each other | `circles.rs`; resolution of names: `modules.rs`, `names.rs` |
//! | `impl` blocks of one type in several folders | `impls.rs` |
//! | rules of docs/design.md, their citations and mutants | `rules.rs` |
//! | claims of the papers: the table of docs/papers.md, citations | `claims.rs` |
//! | links and paths in documents | `links.rs`, over `documents.rs` |
//! | lines of a merge in documents | `markers.rs` |
//! | commands in documents | `commands.rs` |
//! | plain English, and no history in documents | `idioms.rs`; the phrases: `idioms.txt` |
//!
//! `tidy --figures` prints lengths of files, lines of code, and the places of the conditions.
//! `tidy --idioms` prints every phrase that is left.

mod arrows;
mod attributes;
mod circles;
mod claims;
mod commands;
mod documents;
mod figures;
mod files;
mod idioms;
mod impls;
mod kinds;
mod links;
mod markers;
mod modules;
mod names;
mod presets;
mod purity;
mod rules;
mod source;
mod tree;

use std::path::Path;
use std::process::ExitCode;

use self::tree::Tree;

const USAGE: &str = "usage: cargo run -p xtask -- tidy [--figures|--idioms]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let findings = match words.as_slice() {
        ["tidy"] => tidy(&root),
        ["tidy", "--figures"] => Tree::read(&root).map(|tree| {
            println!("{}", figures::figures(&tree));
            Vec::new()
        }),
        ["tidy", "--idioms"] => Tree::read(&root).map(|tree| {
            println!("{}", idioms::list(&tree));
            Vec::new()
        }),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let findings = findings.unwrap_or_else(|failed| vec![failed]);
    findings.iter().for_each(|f| eprintln!("tidy: {f}"));
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tidy(root: &Path) -> Result<Vec<String>, String> {
    let tree = Tree::read(root)?;
    let mut findings = Vec::new();
    for check in [
        files::check,
        arrows::check,
        purity::check,
        kinds::check,
        presets::check,
        circles::check,
        impls::check,
        rules::check,
        claims::check,
        links::check,
        markers::check,
        commands::check,
        idioms::check,
    ] {
        check(&tree, &mut findings);
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert_eq!(tidy(&root), Ok(Vec::new()));
    }
}
