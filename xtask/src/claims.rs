// SPDX-License-Identifier: MIT OR Apache-2.0
//! The papers' claims (S6, H11, P15, F9): the tables of docs/papers.md, and every citation of an id.
//!
//! `crates/lab/src/paper/claims.toml` has the claims. The program `larder paper` reads the same file. `claims` writes the
//! tables; tidy compares them, and looks up each id that a comment, a message or a document cites.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use toml::{Table, Value};

use crate::documents::documents;
use crate::idioms::texts;
use crate::rules;
use crate::tree::Tree;

const FILE: &str = "crates/lab/src/paper/claims.toml";
const PAGE: &str = "docs/papers.md";
/// The lines around the tables.
const BEGIN: &str = "<!-- Written by: cargo run -p xtask -- claims -->\n";
const END: &str = "<!-- End of the claims. -->\n";
/// What an id begins with, the longer before the shorter.
const LETTERS: &[&str] = &["SM", "HT", "PT", "FE", "FM", "FT", "S", "H", "P", "F"];

/// Adds a finding if docs/papers.md has other tables than the file, and for each citation of a claim that does not exist.
///
/// Rules of docs/design.md have ids of the same form (S1, P2). These are accepted; `rules.rs` checks them.
pub fn check(tree: &Tree, findings: &mut Vec<String>) {
    match page(tree) {
        Err(failed) => findings.push(failed),
        Ok((old, new)) if old != new => findings.push(format!(
            "{PAGE}: its tables differ from {FILE}; run: cargo run -p xtask -- claims"
        )),
        Ok(_) => {}
    }
    let Ok(papers) = papers(tree) else { return };
    let mut known = rules::ids(tree);
    for claim in papers.iter().flat_map(claims) {
        let id = text(claim, "id");
        if !known.insert(id.clone()) && cited(&id).is_empty() {
            findings.push(format!("{FILE}: {id:?} is no id of a claim"));
        }
    }
    let sources = tree.sources.values().filter(|s| s.name.starts_with("crates/"));
    let sources = sources.map(|s| (s.name.clone(), texts(s)));
    let documents = documents(&tree.root).into_iter().map(|d| (d.name.clone(), d.prose()));
    for (name, lines) in sources.chain(documents) {
        unknown(&name, &lines, &known, findings);
    }
}

/// Writes the tables of docs/papers.md.
///
/// # Errors
/// A file cannot be read or written, or the page has no place for the tables.
pub fn write(tree: &Tree) -> Result<(), String> {
    let (_, new) = page(tree)?;
    std::fs::write(tree.root.join(PAGE), new).map_err(|e| format!("{PAGE}: {e}"))
}

/// The page as it is, and as the file makes it.
fn page(tree: &Tree) -> Result<(String, String), String> {
    let old = std::fs::read_to_string(tree.root.join(PAGE)).map_err(|e| format!("{PAGE}: {e}"))?;
    let missing = || format!("{PAGE}: needs the lines {BEGIN:?} and {END:?}");
    let (before, rest) = old.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    let new = format!("{before}{BEGIN}{}{END}{after}", tables(&papers(tree)?));
    Ok((old, new))
}

fn papers(tree: &Tree) -> Result<Vec<Value>, String> {
    let file = std::fs::read_to_string(tree.root.join(FILE)).map_err(|e| format!("{FILE}: {e}"))?;
    let mut file: Table = file.parse().map_err(|e| format!("{FILE}: {e}"))?;
    match file.remove("paper") {
        Some(Value::Array(papers)) => Ok(papers),
        _ => Err(format!("{FILE}: has no [[paper]]")),
    }
}

fn claims(paper: &Value) -> impl Iterator<Item = &Value> {
    paper.get("claim").and_then(Value::as_array).into_iter().flatten()
}

/// A value in words; empty without one.
fn text(value: &Value, key: &str) -> String {
    match value.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Integer(number)) => number.to_string(),
        Some(Value::Float(number)) => number.to_string(),
        _ => String::new(),
    }
}

/// A table for each paper.
fn tables(papers: &[Value]) -> String {
    let mut out = String::new();
    for paper in papers {
        let (name, title) = (text(paper, "name"), text(paper, "title"));
        let _ = write!(out, "### `larder paper {name}`\n{title}.\n\n");
        out.push_str("| claim | section | statement | the paper's number | unit |\n");
        out.push_str("| --- | --- | --- | --- | --- |\n");
        for claim in claims(paper) {
            let cell = |key| text(claim, key).replace('|', "\\|");
            let [id, section, statement] = ["id", "section", "statement"].map(cell);
            let (number, unit) = (cell("number"), cell("unit"));
            let _ = writeln!(out, "| {id} | {section} | {statement} | {number} | {unit} |");
        }
        out.push('\n');
    }
    out
}

fn unknown(name: &str, lines: &[String], known: &BTreeSet<String>, findings: &mut Vec<String>) {
    for (number, line) in lines.iter().enumerate() {
        for id in cited(line).into_iter().filter(|id| !known.contains(*id)) {
            findings.push(format!("{name}:{}: {FILE} has no claim {id}", number + 1));
        }
    }
}

/// The words of a line that have the form of a claim's id: letters, and at most two digits. S3-FIFO and P3700 have another;
/// SM1-SM5 is two ids.
fn cited(line: &str) -> Vec<&str> {
    let is_id = |word: &&str| {
        let digits =
            LETTERS.iter().find_map(|letters| word.strip_prefix(letters)).unwrap_or_default();
        matches!(digits.len(), 1 | 2) && digits.bytes().all(|c| c.is_ascii_digit())
    };
    let words = line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-');
    words
        .filter(|word| word.split('-').all(|part| is_id(&part)))
        .flat_map(|word| word.split('-'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_and_other_names_are_not() {
        let line = "(S6, H11), SM1-SM5: P15; S3-FIFO on the P3700, F16_x, xF2, DS9, S123, Sx1";
        assert_eq!(cited(line), ["S6", "H11", "SM1", "SM5", "P15"]);
        let mut findings = Vec::new();
        let lines = [line.to_owned(), "H99".to_owned()];
        let known = cited(line).into_iter().map(str::to_owned).collect();
        unknown("x.rs", &lines, &known, &mut findings);
        assert_eq!(findings, [format!("x.rs:2: {FILE} has no claim H99")]);
    }

    #[test]
    fn a_table_has_a_row_for_each_claim() {
        let file: Table =
            "[[paper]]\nname = 'a'\ntitle = 'T'\n[[paper.claim]]\nid = 'S1'\nsection = '2'\n\
                           statement = 'x | y'\nnumber = 0.5"
                .parse()
                .unwrap();
        let made = tables(file["paper"].as_array().unwrap());
        assert!(made.ends_with("| S1 | 2 | x \\| y | 0.5 |  |\n\n"), "{made}");
    }
}
