// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that every target of a document exists: files, headings, and paths between backticks.
//!
//! Pages of the book (`docs/`) link to pages of the book only, because the book is published without the repository.
//! `docs/SUMMARY.md` lists every page.

use std::path::{Component, Path, PathBuf};

use crate::documents::{Document, documents};
use crate::tree::Tree;

const SUMMARY: &str = "docs/SUMMARY.md";
const BOOK: &str = "docs/";
/// Folders of the repository. A path between backticks that begins with one of them must exist.
const FOLDERS: &[&str] =
    &["crates/", "docs/", "dist/", "postgres/", "scripts/", "tests/", "xtask/", "fuzz/"];

/// Adds a finding for each target that does not exist and each page missing in the summary.
pub fn check(tree: &Tree, findings: &mut Vec<String>) {
    let documents = documents(&tree.root);
    for document in &documents {
        check_links(document, &documents, &tree.root, findings);
        check_paths(document, &tree.root, findings);
    }
    let pages = |d: &&Document| d.name.starts_with(BOOK) && d.name != SUMMARY;
    let summary = documents.iter().find(|d| d.name == SUMMARY).map(Document::links);
    let listed: Vec<String> =
        summary.into_iter().flatten().map(|l| format!("{BOOK}{}", l.target)).collect();
    for page in documents.iter().filter(pages).filter(|page| !listed.contains(&page.name)) {
        findings.push(format!("{}: {SUMMARY} does not list it", page.name));
    }
}

fn check_links(document: &Document, all: &[Document], root: &Path, findings: &mut Vec<String>) {
    for link in document.links() {
        let target = link.target.as_str();
        if ["http://", "https://", "mailto:"].iter().any(|scheme| target.starts_with(scheme)) {
            continue;
        }
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let from = Path::new(&document.name);
        let name = match path {
            "" => document.name.clone(),
            path => normal(&from.parent().unwrap_or(from).join(path)),
        };
        let at = format!("{}:{}", document.name, link.line);
        if document.name.starts_with(BOOK) && !name.starts_with(BOOK) {
            findings.push(format!("{at}: {target} is not a page of the book"));
            continue;
        }
        let page = all.iter().find(|d| d.name == name);
        if page.is_none() && !root.join(&name).exists() {
            findings.push(format!("{at}: {target} does not exist"));
        } else if !anchor.is_empty()
            && !page.is_some_and(|d| d.anchors().iter().any(|a| a == anchor))
        {
            findings.push(format!("{at}: {name} has no heading #{anchor}"));
        }
    }
}

/// Checks paths between backticks. A path ends at a space or a colon. `a/{b,c}.rs` is two paths.
fn check_paths(document: &Document, root: &Path, findings: &mut Vec<String>) {
    for (number, line) in document.text.lines().enumerate() {
        for quoted in line.split('`').skip(1).step_by(2) {
            let word = quoted.split([' ', ':']).next().unwrap_or_default();
            if !FOLDERS.iter().any(|folder| word.starts_with(folder)) || word.contains(['*', '<']) {
                continue;
            }
            for path in alternatives(word).iter().filter(|path| !root.join(path).exists()) {
                findings.push(format!("{}:{}: {path} does not exist", document.name, number + 1));
            }
        }
    }
}

fn alternatives(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let Some((choices, after)) = rest.split_once('}') else { return vec![path.to_owned()] };
    choices.split(',').flat_map(|c| alternatives(&format!("{before}{c}{after}"))).collect()
}

/// The path with `..` and `.` resolved.
fn normal(path: &Path) -> String {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(name: &str, text: &str) -> Document {
        Document { name: name.into(), text: text.into() }
    }

    #[test]
    fn broken_links_are_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = "# Here\n[a](design.md#design-rules) [b](#here) [c](https://x.y/z)\n\
                    [d](nowhere.md) [e](#there) [f](../README.md)\n";
        let all = [document("docs/x.md", text), document("docs/design.md", "# Design rules\n")];
        let mut findings = Vec::new();
        check_links(&all[0], &all, &root, &mut findings);
        assert_eq!(
            findings,
            [
                "docs/x.md:3: nowhere.md does not exist",
                "docs/x.md:3: docs/x.md has no heading #there",
                "docs/x.md:3: ../README.md is not a page of the book",
            ]
        );
    }

    #[test]
    fn paths_between_backticks_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = "`xtask/src/{main,none}.rs --x` `xtask/src/links.rs:3` xtask/none `xtask/*/x`\n";
        let mut findings = Vec::new();
        check_paths(&document("docs/x.md", text), &root, &mut findings);
        assert_eq!(findings, ["docs/x.md:1: xtask/src/none.rs does not exist"]);
    }
}
