// SPDX-License-Identifier: MIT OR Apache-2.0
//! The documents of the repository, and the parts of Markdown that the checks need.
//!
//! A full Markdown parser is not needed: the documents use only headings with `#`, fenced blocks and inline links.

use std::path::Path;

/// Folders with documents. Their subfolders are not searched.
const FOLDERS: &[&str] =
    &["", "docs", "postgres/kills", "postgres/suites", "postgres/tpcc", "tests/lab"];

/// A Markdown file.
pub struct Document {
    /// Its path from the root of the repository.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// A link of a document.
#[derive(Debug, PartialEq, Eq)]
pub struct Link {
    /// The line, from 1.
    pub line: usize,
    /// The text in the parentheses.
    pub target: String,
}

/// All documents, by name.
#[must_use]
pub fn documents(root: &Path) -> Vec<Document> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        let entries = std::fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
        for path in entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "md")) {
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            found.push(Document { name, text });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

impl Document {
    /// The lines without fenced blocks and without text between backticks.
    #[must_use]
    pub fn prose(&self) -> Vec<String> {
        self.lines()
            .map(|(fenced, line)| if fenced { String::new() } else { plain(line) })
            .collect()
    }

    /// The links outside code.
    #[must_use]
    pub fn links(&self) -> Vec<Link> {
        let mut links = Vec::new();
        for (number, line) in self.prose().iter().enumerate() {
            for rest in line.split("](").skip(1) {
                let target = rest.split(')').next().unwrap_or_default().to_owned();
                links.push(Link { line: number + 1, target });
            }
        }
        links
    }

    /// The anchors of the headings, as `GitHub` and mdBook make them.
    #[must_use]
    pub fn anchors(&self) -> Vec<String> {
        let mut anchors: Vec<String> = Vec::new();
        for (fenced, line) in self.lines() {
            let text = line.trim_start_matches('#');
            if fenced || text.len() == line.len() || !text.starts_with(' ') {
                continue;
            }
            let anchor = anchor(text.trim());
            let same = |a: &&String| a.as_str() == anchor || a.starts_with(&format!("{anchor}-"));
            let before = anchors.iter().filter(same).count();
            anchors.push(if before == 0 { anchor } else { format!("{anchor}-{before}") });
        }
        anchors
    }

    /// Each line, and whether it is part of a fenced block.
    fn lines(&self) -> impl Iterator<Item = (bool, &str)> {
        let mut fenced = false;
        self.text.lines().map(move |line| {
            let fence = line.trim_start().starts_with("```");
            let inside = fenced || fence;
            fenced ^= fence;
            (inside, line)
        })
    }
}

/// The line with the text between backticks replaced by spaces.
fn plain(line: &str) -> String {
    let pieces = line.split('`').enumerate();
    let blank = |(n, piece): (usize, &str)| match n % 2 {
        0 => piece.to_owned(),
        _ => " ".repeat(piece.chars().count()),
    };
    pieces.map(blank).collect::<Vec<_>>().join("`")
}

fn anchor(heading: &str) -> String {
    // A link contributes only its text.
    let mut text = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        text += before;
        rest = after.split_once(')').map_or("", |(_, behind)| behind);
    }
    text += rest;
    let keep = |c: &char| c.is_alphanumeric() || ['_', '-', ' '].contains(c);
    text.chars()
        .filter(keep)
        .map(|c| if c == ' ' { '-' } else { c })
        .collect::<String>()
        .to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str) -> Document {
        Document { name: "docs/x.md".into(), text: text.into() }
    }

    #[test]
    fn code_is_not_prose() {
        let text = "# A `b` c\n```sh\n# [x](y)\n```\nsee [`d`](e.md#f) and `[g](h)`\n";
        let document = document(text);
        assert_eq!(document.prose()[0], "# A ` ` c");
        assert_eq!(document.prose()[2], "");
        assert_eq!(document.links(), [Link { line: 5, target: "e.md#f".into() }]);
    }

    #[test]
    fn anchors_follow_from_headings() {
        let text = "# What is `x-y`, and [z](z.md)?\n## Same\n## Same\n#no heading\n";
        assert_eq!(document(text).anchors(), ["what-is-x-y-and-z", "same", "same-1"]);
    }
}
