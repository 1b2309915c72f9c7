// SPDX-License-Identifier: MIT OR Apache-2.0
//! No document has the lines that an unfinished merge leaves behind. In Rust they do not compile.

use crate::documents::documents;
use crate::tree::Tree;

/// What such a line begins with.
const MARKERS: [&str; 2] = ["<<<<<<< ", ">>>>>>> "];

/// Adds a finding for each such line.
pub fn check(tree: &Tree, findings: &mut Vec<String>) {
    for document in documents(&tree.root) {
        let lines = markers(&document.text);
        findings.extend(lines.map(|line| format!("{}:{line}: a line of a merge", document.name)));
    }
}

fn markers(text: &str) -> impl Iterator<Item = usize> {
    let is_marker = |line: &str| MARKERS.iter().any(|marker| line.starts_with(marker));
    (1..).zip(text.lines()).filter(move |(_, line)| is_marker(line)).map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_merge_are_found() {
        let text = "| a |\n<<<<<<< HEAD\n| b |\n=======\n| c |\n>>>>>>> other\na <<<<<<< b\n";
        assert_eq!(markers(text).collect::<Vec<_>>(), [2, 6]);
    }
}
