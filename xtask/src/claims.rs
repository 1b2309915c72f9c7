// SPDX-License-Identifier: MIT OR Apache-2.0
//! The papers' claims (S6, H11, P15, F9): the table of docs/papers.md, and every citation of an id.
//!
//! `crates/lab/src/paper/claims.toml` has the claims. The program `larder paper` reads the same file, and `scripts/papers`
//! writes the table, which takes a run of most of an hour. Tidy therefore checks of it what needs no run: rows in the file's
//! order and with the file's words; a verdict that its class can have; and the counts above the table, which show how many
//! claims have a row.
//! Tidy also looks up each id that a comment, a message or a document cites.

use std::collections::BTreeSet;

use toml::{Table, Value};

use crate::documents::documents;
use crate::idioms::texts;
use crate::rules;
use crate::tree::Tree;

const FILE: &str = "crates/lab/src/paper/claims.toml";
const PAGE: &str = "docs/papers.md";
/// The lines around the table.
const BEGIN: &str = "<!-- Written by: scripts/papers -->\n";
const END: &str = "<!-- End of the table. -->\n";
/// The cells of a row, and which of them have the file's words; then the verdict's.
const CELLS: usize = 7;
const STATED: usize = 3;
const VERDICT: usize = 5;
/// The verdicts of claims that a run decides, and of those that arithmetic does.
const MEASURED: [&str; 4] = ["holds", "differs", "not measured", "not reproducible"];
const ARITHMETIC: [&str; 2] = ["adds up", "does not add up"];
/// What an id begins with, the longer before the shorter.
const LETTERS: &[&str] = &["SM", "HT", "PT", "FE", "FM", "FT", "S", "H", "P", "F"];

/// Adds a finding for whatever the table of docs/papers.md has otherwise than the file, and for each citation of a claim
/// that does not exist.
///
/// Rules of docs/design.md have ids of the same form (S1, P2). These are accepted; `rules.rs` checks them.
pub fn check(tree: &Tree, findings: &mut Vec<String>) {
    let page = std::fs::read_to_string(tree.root.join(PAGE)).unwrap_or_default();
    match papers(tree) {
        Err(failed) => findings.push(failed),
        Ok(papers) => {
            let wrong = table(&page, &papers).into_iter();
            findings.extend(wrong.map(|wrong| format!("{PAGE}: {wrong}; run: scripts/papers")));
        }
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

/// What is wrong with the table of a page.
fn table(page: &str, papers: &[Value]) -> Vec<String> {
    let within = page.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
    let Some((table, _)) = within else {
        return vec![format!("needs the lines {BEGIN:?} and {END:?}")];
    };
    // A bar within a cell is escaped.
    let cells = |line: &str| -> Option<Vec<String>> {
        let line = line.strip_prefix("| ")?.strip_suffix(" |")?.replace("\\|", "\u{1}");
        Some(line.split(" | ").map(|cell| cell.replace('\u{1}', "|")).collect())
    };
    let rows: Vec<Vec<String>> = table
        .lines()
        .filter_map(cells)
        .filter(|row| !["claim", "---"].contains(&&*row[0]))
        .collect();
    let claims: Vec<&Value> = papers.iter().flat_map(claims).collect();
    let (mut wrong, mut left) = (Vec::new(), claims.iter());
    for row in &rows {
        // In the order of the file; a run of some claims leaves out the others.
        let Some(claim) = left.find(|claim| text(claim, "id") == row[0]) else {
            wrong.push(format!("{} is no claim, or not in the order of {FILE}", row[0]));
            break;
        };
        let stated = ["id", "section", "statement"].map(|key| text(claim, key));
        if row.len() != CELLS || row[..STATED] != stated {
            wrong.push(format!("the row of {} differs from {FILE}", row[0]));
        } else if !verdicts(claim).contains(&&*row[VERDICT]) {
            wrong.push(format!("{} has the verdict {:?}", row[0], row[VERDICT]));
        }
    }
    let counts = counts(&rows, &claims);
    if !table.lines().any(|line| line == counts) {
        wrong.push(format!("the table has other counts than {counts:?}"));
    }
    wrong
}

/// The verdicts that a claim can have.
fn verdicts(claim: &Value) -> &'static [&'static str] {
    if text(claim, "class") == "arithmetic" { &ARITHMETIC } else { &MEASURED }
}

/// The line above the table.
fn counts(rows: &[Vec<String>], claims: &[&Value]) -> String {
    let of = |verdicts: &[&str]| {
        let ids: BTreeSet<String> = claims
            .iter()
            .filter(|claim| self::verdicts(claim) == verdicts)
            .map(|claim| text(claim, "id"))
            .collect();
        let rows: Vec<&Vec<String>> = rows.iter().filter(|row| ids.contains(&row[0])).collect();
        let count = |verdict: &str| {
            rows.iter().filter(|row| row.get(VERDICT).is_some_and(|found| found == verdict)).count()
        };
        let words = verdicts.iter().map(|verdict| (count(verdict), *verdict));
        let words: String = words
            .filter(|(count, _)| *count > 0)
            .map(|(count, verdict)| format!(", {count} {verdict}"))
            .collect();
        format!("{} of {}{words}", rows.len(), ids.len())
    };
    format!("Claims: {}. Rows of arithmetic: {}.", of(&MEASURED), of(&ARITHMETIC))
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
    fn a_table_has_a_row_for_each_claim_with_the_words_of_the_file() {
        let file: Table = "[[paper]]\nname = 'a'\n[[paper.claim]]\nid = 'S1'\nsection = '2'\nstatement = 'x | y'\n\
                           [[paper.claim]]\nid = 'SM1'\nsection = '3'\nstatement = 'z'\nclass = 'arithmetic'"
            .parse()
            .unwrap();
        let papers = file["paper"].as_array().unwrap();
        let page = |counts: &str, rows: &str| {
            format!("# Page\n{BEGIN}{counts}\n\n| claim | s |\n| --- | --- |\n{rows}{END}")
        };
        let counts = "Claims: 1 of 1, 1 holds. Rows of arithmetic: 1 of 1, 1 adds up.";
        let (one, two) = (
            "| S1 | 2 | x \\| y | 4 | 4 | holds | It is. |\n",
            "| SM1 | 3 | z | 1 | 1 | adds up | So. |\n",
        );
        assert_eq!(table(&page(counts, &format!("{one}{two}")), papers), [""; 0]);
        let some = "Claims: 1 of 1, 1 holds. Rows of arithmetic: 0 of 1.";
        assert_eq!(table(&page(some, one), papers), [""; 0]);
        for (counts, rows) in [
            ("Claims: 2.", format!("{one}{two}")),
            (counts, one.to_owned()),
            (counts, format!("{one}{}", two.replace("SM1", "SM9"))),
            (counts, format!("{two}{one}")),
            (counts, format!("{}{two}", one.replace("holds", "differs"))),
            (counts, format!("{one}{}", two.replace("adds up", "holds"))),
            (counts, format!("{}{two}", one.replace("x \\| y", "x"))),
        ] {
            assert!(!table(&page(counts, &rows), papers).is_empty(), "{rows}");
        }
        assert_eq!(table("# Page", papers).len(), 1);
    }
}
