// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules are in docs/design.md: every one that code or a document cites, and every mutant under its rule.

use std::path::{Path, PathBuf};

const DESIGN: &str = "docs/design.md";

/// Checks citations in sources and documents, and the mutants.
pub fn check(root: &Path, sources: &[PathBuf], findings: &mut Vec<String>) {
    let design = std::fs::read_to_string(root.join(DESIGN)).unwrap_or_default();
    let known: Vec<&str> = headings(&design).map(|(id, _)| id).collect();
    if known.is_empty() {
        findings.push(format!("{DESIGN}: has no rules"));
    }
    let documents = std::fs::read_dir(root.join("docs")).into_iter().flatten().flatten();
    let documents =
        documents.map(|d| d.path()).filter(|p| p.extension().is_some_and(|e| e == "md"));
    for path in sources.iter().cloned().chain(documents) {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        if name.starts_with("xtask") {
            continue;
        }
        for id in cited(&text).into_iter().filter(|id| !known.contains(&id.as_str())) {
            findings.push(format!("{name}: cites rule {id}, which is not in {DESIGN}"));
        }
        for (mutant, rule) in mutants(&text) {
            let section = headings(&design).find(|(id, _)| *id == rule).map(|(_, text)| text);
            if !section.is_some_and(|text| text.contains(&format!("`{mutant}`"))) {
                findings.push(format!("{DESIGN}: rule {rule} does not name its mutant {mutant}"));
            }
        }
    }
}

/// Rules of the document: each id, and the text up to the next.
fn headings(design: &str) -> impl Iterator<Item = (&str, &str)> {
    design.split("\n### Rule ").skip(1).filter_map(|section| {
        let (id, _) = section.split_once(':')?;
        Some((id.trim(), section))
    })
}

/// Ids that follow "design rule" or "design rules" in a text.
fn cited(text: &str) -> Vec<String> {
    let flat = text.replace("\n//!", " ").replace("\n    ///", " ").replace('\n', " ");
    let mut found = Vec::new();
    for (at, _) in flat.match_indices("design rule") {
        let rest = flat[at + "design rule".len()..].trim_start_matches('s');
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || " ,-".contains(c)));
        for word in rest[..end.unwrap_or(rest.len())].split([' ', ',', '-']) {
            let digits = word.trim_start_matches(['L', 'S', 'P']);
            match word {
                "" | "and" | "to" => {}
                _ if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
                    found.push(word.to_owned());
                }
                _ => break,
            }
        }
    }
    found
}

/// Mutants that a source declares: `mutant("name", "rule", ...)`.
fn mutants(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for part in text.split("mutant(").skip(1) {
        let mut strings = part.split('"');
        let (Some(before), Some(name), Some(comma), Some(rule)) =
            (strings.next(), strings.next(), strings.next(), strings.next())
        else {
            continue;
        };
        if before.trim().is_empty() && comma.trim() == "," {
            found.push((name.to_owned(), rule.to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn citations_and_mutants_are_read() {
        assert_eq!(cited("(design rules 5, L2 and 12): text"), ["5", "L2", "12"]);
        assert_eq!(cited("design rule 10) and 3"), ["10"]);
        assert_eq!(
            mutants("mutant(\"a-b\", \"L2\", \"what\"),\nmutant(\n \"c\",\n \"3\","),
            [("a-b".to_owned(), "L2".to_owned()), ("c".to_owned(), "3".to_owned())]
        );
        assert_eq!(headings("x\n### Rule 1: a\nb\n### Rule L2: c\n").count(), 2);
    }
}
