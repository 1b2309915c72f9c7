// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plain technical English: finds phrases that a reader has to translate, and words of history in documents.
//!
//! `idioms.txt` lists the phrases with their plain forms. Documents contain none of them, except those in [`LEFT`].
//! [`LEFT`] limits the number in these documents, and in comments and messages of the crates. The limits may only fall.
//!
//! Documents describe a state. Only the documents of [`DATED`] use words that date it.

use crate::documents::documents;
use crate::source::Source;
use crate::tree::Tree;

const PHRASES: &str = include_str!("idioms.txt");
/// The most phrases in a document or folder. A change that removes phrases lowers the number.
const LEFT: &[(&str, usize)] = &[("crates/", 4)];
/// Words that date a text.
const HISTORY: &[&str] = &[
    "today",
    "now",
    "yet",
    "at first",
    "since then",
    "so far",
    "any more",
    "formerly",
    "previously",
    "recently",
];
/// Documents whose subject is time.
const DATED: &[&str] = &["CHANGELOG.md", "docs/roadmap.md"];

/// A phrase in a text: line, phrase, plain form.
type Hit<'a> = (usize, &'a str, &'a str);

/// Adds a finding for each phrase in a document, each number above its limit, and each word of history.
pub fn check(tree: &Tree, findings: &mut Vec<String>) {
    judge(&all(tree), LEFT, findings);
    for document in documents(&tree.root).iter().filter(|d| !DATED.contains(&d.name.as_str())) {
        for (line, word, _) in hits(&document.prose(), HISTORY.iter().map(|word| (*word, ""))) {
            findings.push(format!("{}:{line}: {word:?} dates the text", document.name));
        }
    }
}

/// All phrases of the repository, one a line, with their plain forms.
#[must_use]
pub fn list(tree: &Tree) -> String {
    let line = |(name, (line, phrase, plain)): (String, Hit<'_>)| {
        format!("{name}:{line}: {phrase:?}; write: {plain}")
    };
    all(tree).into_iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The phrases in documents, and in comments and messages of crates.
fn all(tree: &Tree) -> Vec<(String, Hit<'static>)> {
    let documents = documents(&tree.root).into_iter().map(|d| (d.prose(), d.name));
    let sources = tree.sources.values().filter(|s| s.name.starts_with("crates/"));
    let texts = documents.chain(sources.map(|s| (texts(s), s.name.clone())));
    texts
        .flat_map(|(lines, name)| {
            hits(&lines, phrases()).into_iter().map(move |hit| (name.clone(), hit))
        })
        .collect()
}

/// The phrases with their plain forms.
fn phrases() -> impl Iterator<Item = (&'static str, &'static str)> {
    let rows = PHRASES.lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|line| line.split_once('|'))
        .map(|(phrase, plain)| (phrase.trim(), plain.trim()))
}

fn judge(found: &[(String, Hit<'_>)], left: &[(&str, usize)], findings: &mut Vec<String>) {
    let budget = |name: &str| left.iter().position(|(prefix, _)| name.starts_with(prefix));
    for (name, (line, phrase, plain)) in found.iter().filter(|(name, _)| budget(name).is_none()) {
        findings.push(format!("{name}:{line}: {phrase:?}; write: {plain}"));
    }
    for (n, (prefix, most)) in left.iter().enumerate() {
        let count = found.iter().filter(|(name, _)| budget(name) == Some(n)).count();
        if count > *most {
            findings.push(format!(
                "{prefix}: {count} phrases of xtask/src/idioms.txt, at most {most}; `tidy --idioms` lists them"
            ));
        }
    }
}

/// Comments and messages of a source, line by line.
pub fn texts(source: &Source) -> Vec<String> {
    let comment = |line: &str| {
        line.trim().strip_prefix("//").map(|l| l.trim_start_matches(['/', '!']).to_owned())
    };
    let mut texts: Vec<String> =
        source.text.lines().map(|line| comment(line).unwrap_or_default()).collect();
    for (line, value) in &source.strings {
        let text = &mut texts[line - 1];
        text.push(' ');
        text.push_str(value);
    }
    texts
}

/// The phrases in the lines, also those that continue on the next line.
fn hits<'a>(lines: &[String], phrases: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<Hit<'a>> {
    let mut text = String::new();
    let mut starts = Vec::new();
    for line in lines {
        starts.push(text.len());
        for word in line.split_whitespace() {
            text.push_str(&word.to_ascii_lowercase());
            text.push(' ');
        }
    }
    let part = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let mut hits = Vec::new();
    for (phrase, plain) in phrases {
        for (at, _) in text.match_indices(phrase) {
            if !text[..at].ends_with(part) && !text[at + phrase.len()..].starts_with(part) {
                hits.push((starts.partition_point(|start| *start <= at), phrase, plain));
            }
        }
    }
    hits.sort_unstable();
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_are_found_across_lines() {
        let lines = ["It stays under".to_owned(), "Way; sayso, front-says".to_owned()];
        let found = hits(&lines, [("under way", "in flight"), ("says", "")].into_iter());
        assert_eq!(found, [(1, "under way", "in flight")]);
    }

    #[test]
    fn a_count_may_only_fall() {
        let found = ["crates/a.rs", "README.md"].map(|name| (name.to_owned(), (2, "x", "y")));
        let judged = |most| {
            let mut findings = Vec::new();
            judge(&found, &[("crates/", most)], &mut findings);
            findings
        };
        assert_eq!(judged(1), ["README.md:2: \"x\"; write: y"]);
        assert_eq!(judged(0).len(), 2);
    }

    #[test]
    fn comments_and_messages_are_texts_and_tests_are_not() {
        let text =
            "//! A module.\nfn f() {\n    g(\"b\"); // c\n}\n#[cfg(test)]\nfn t() { \"d\" }\n";
        let source = Source::parse("crates/x/src/lib.rs", text).unwrap();
        assert_eq!(texts(&source)[..3], [" A module.", "", " b"]);
        assert!(texts(&source)[5].is_empty());
    }
}
