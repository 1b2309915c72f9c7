// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of `docs/papers.md`: a row a claim, in the order of `claims.toml`, and above it how many there are of each
//! verdict.
//!
//! Invariants: every cell comes from a row or from its claim; rows of arithmetic are counted apart, so that sums of a
//! paper's own numbers are no success of a run.
//!
//! Why a command writes the table: a verdict that is typed by hand stays when the next run gives another.

use anyhow::Result;

use super::claims::{Claim, Class, claims};
use super::row::{Row, Verdict};

const HEAD: &str = "\
| claim | section | statement | the paper | ours | verdict | why |
| --- | --- | --- | --- | --- | --- | --- |
";

/// The table of these rows, in Markdown.
///
/// # Errors
/// If `claims.toml` cannot be parsed.
pub fn page(rows: &[Row]) -> Result<String> {
    let claims: Vec<&Claim> = claims()?.iter().flat_map(|paper| &paper.claims).collect();
    let found = |claim: &&Claim| rows.iter().find(|row| row.id == claim.id);
    let lines: String = claims.iter().filter_map(found).map(line).collect();
    let (measured, sums) =
        (counts(Class::Measured, rows, &claims), counts(Class::Arithmetic, rows, &claims));
    Ok(format!("Claims: {measured}. Rows of arithmetic: {sums}.\n\n{HEAD}{lines}"))
}

/// How many rows of a class there are, of how many claims, and of each verdict.
fn counts(class: Class, rows: &[Row], claims: &[&Claim]) -> String {
    let of = |verdict: Verdict| {
        rows.iter().filter(|row| (row.class, row.verdict) == (class, verdict)).count()
    };
    let all = claims.iter().filter(|claim| claim.class == class).count();
    let here = rows.iter().filter(|row| row.class == class).count();
    let words = Verdict::ALL.map(|verdict| (of(verdict), verdict.name(class)));
    let words = words.iter().filter(|(count, _)| *count > 0);
    let words: String = words.map(|(count, verdict)| format!(", {count} {verdict}")).collect();
    format!("{here} of {all}{words}")
}

fn line(row: &Row) -> String {
    let paper = match row.unit {
        "" => row.paper_text(),
        unit => format!("{} ({unit})", row.paper_text()),
    };
    let mut why = row.why.clone();
    if !row.changed.is_empty() {
        why.push_str(&format!(" Changed after a first run: {}.", row.changed));
    }
    let cells =
        [row.id, row.section, row.claim, &paper, &row.ours_text(), row.verdict_text(), &why];
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Whether a text is one sentence.
#[cfg(test)]
pub(super) fn is_a_sentence(text: &str) -> bool {
    text.ends_with('.') && !text.contains(". ") && !text.contains('\n')
}

#[cfg(test)]
mod tests {
    use super::super::{Asked, Kind, run};
    use super::*;

    #[test]
    fn rows_come_in_the_order_of_the_claims_and_arithmetic_is_counted_apart() {
        let row = |id, holds| Row::new(id, Kind::Exact).unwrap().judged(holds, "Equal.", "It is.");
        let rows = [
            row("SM1", true),
            row("S4", false).ours("a | b").changed("the load"),
            Row::not_measured("P14", "Not yet.").unwrap(),
            row("S1", true),
        ];
        let page = page(&rows).unwrap();
        let (counts, rest) = page.split_once('\n').unwrap();
        assert_eq!(
            counts,
            "Claims: 3 of 76, 1 holds, 1 differs, 1 not measured. \
             Rows of arithmetic: 1 of 11, 1 adds up."
        );
        let ids: Vec<&str> = rest
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.split_once(" | ").map(|(id, _)| id))
            .filter(|id| !["claim", "---"].contains(id))
            .collect();
        assert_eq!(ids, ["S1", "S4", "SM1", "P14"]);
        let cells = "| 0.94 (of all-flash's transactions) | a \\| b | differs | \
                     It is. Changed after a first run: the load. |\n";
        assert!(page.contains(cells), "{page}");
    }

    #[test]
    fn a_sentence_is_one() {
        assert!(is_a_sentence("It is 1.5 times as much.") && !is_a_sentence("It is"));
        assert!(!is_a_sentence("It is. It was."));
    }

    /// Rows without a long run, as the page has them: whatever changes them changes the page.
    #[test]
    fn the_page_has_the_rows_of_this_program() {
        let only = ["S21", "SM1", "SM2", "SM3", "SM4", "SM5", "H0", "H1", "HT1"];
        let only = only.into_iter().chain(["P16", "PT1", "FE1", "FM1"]).map(str::to_owned);
        let asked = Asked { scale: None, seed: 1, only: only.collect(), ..Asked::default() };
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/papers.md");
        let written = std::fs::read_to_string(file).unwrap();
        for row in &run("all", &asked).unwrap() {
            let line = line(row);
            assert!(written.contains(&line), "docs/papers.md has another row; ours: {line}");
        }
        let whys = written.lines().filter_map(|line| line.strip_suffix(" |")?.rsplit_once(" | "));
        let whys: Vec<&str> = whys.map(|(_, why)| why).filter(|why| why.ends_with('.')).collect();
        assert!(whys.len() > 20, "{}", whys.len());
        for why in whys {
            let (why, _) = why.split_once(" Changed after a first run: ").unwrap_or((why, ""));
            assert!(is_a_sentence(why), "{why}");
        }
    }
}
