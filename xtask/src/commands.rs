// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that commands in documents exist: subcommands and flags of `larder`, targets of `make`, tests of `cargo test`.
//!
//! The check reads the help in `docs/commands.md`; `make test` compares that file with the program. A command is a line
//! of a block of shell code, or a text between backticks.

use std::collections::BTreeMap;
use std::path::Path;

use crate::documents::{Document, documents};
use crate::tree::Tree;

const HELP: &str = "docs/commands.md";
/// Words at which a shell ends a command.
const ENDS: &[&str] = &["|", "||", "&", "&&", ";", "#", ">", "2>"];

/// The help of each command, by its words: `serve`, `trace info`.
type Help = BTreeMap<String, String>;

/// Unchecked documents: the help, the history, and documents with commands of PostgreSQL's own build.
const SKIPPED: &[&str] = &[HELP, "CHANGELOG.md", "postgres/"];

/// Adds a finding for each command that does not exist.
pub fn check(tree: &Tree, findings: &mut Vec<String>) {
    let documents = documents(&tree.root);
    let Some(help) = documents.iter().find(|d| d.name == HELP) else {
        return findings.push(format!("{HELP}: does not exist; scripts/commands makes it"));
    };
    let help = sections(&help.text);
    let makefile = std::fs::read_to_string(tree.root.join("Makefile")).unwrap_or_default();
    let checked = |d: &&Document| !SKIPPED.iter().any(|skipped| d.name.starts_with(skipped));
    for document in documents.iter().filter(checked) {
        for (line, command) in commands(document) {
            let words: Vec<&str> = command.split_whitespace().collect();
            let failed = match words.as_slice() {
                [program, rest @ ..] if *program == "larder" || program.ends_with("/larder") => {
                    larder(rest, &help)
                }
                ["make", rest @ ..] => make(rest, &makefile),
                ["cargo", "test", rest @ ..] => cargo_test(rest, &tree.root),
                _ => None,
            };
            findings.extend(failed.map(|failed| format!("{}:{line}: {failed}", document.name)));
        }
    }
}

fn sections(text: &str) -> Help {
    let mut help = Help::new();
    for section in text.split("\n#").skip(1) {
        let (heading, body) = section.split_once('\n').unwrap_or((section, ""));
        let name = heading.trim_start_matches('#').trim().trim_start_matches("larder ");
        help.insert(name.to_owned(), body.to_owned());
    }
    help
}

/// The commands in blocks of shell code and between backticks, each with its line.
fn commands(document: &Document) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let (mut shell, mut fenced, mut open) = (false, false, None);
    for (number, line) in document.text.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fenced = !fenced;
            shell = fenced && language == "sh";
        } else if shell {
            // A line that ends in a backslash continues in the next one.
            let (from, mut text): (usize, String) =
                open.take().unwrap_or((number + 1, String::new()));
            text.push_str(line.trim_end_matches('\\'));
            if line.ends_with('\\') {
                open = Some((from, text));
            } else {
                found.extend(simple(&text).into_iter().map(|command| (from, command)));
            }
        } else if !fenced {
            let quoted = line.split('`').skip(1).step_by(2);
            found.extend(quoted.flat_map(simple).map(|command| (number + 1, command)));
        }
    }
    found
}

/// The simple commands of a line of shell code.
fn simple(line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let parts = words.split(|word| ENDS.contains(word));
    parts
        .map(|words| {
            words.iter().copied().skip_while(|w| *w == "sudo").collect::<Vec<_>>().join(" ")
        })
        .collect()
}

fn larder(words: &[&str], help: &Help) -> Option<String> {
    let mut name = String::new();
    let mut rest = words;
    while let [word, after @ ..] = rest {
        let longer = format!("{name} {word}").trim().to_owned();
        if !help.contains_key(&longer) {
            break;
        }
        (name, rest) = (longer, after);
    }
    // A group of commands accepts the flags of each of its commands.
    let below = format!("{name} ");
    let all = help.iter().filter(|(n, _)| **n == name || n.starts_with(&below));
    let known: String = all.map(|(_, text)| text.as_str()).collect();
    if name.is_empty() {
        let word = words.first()?;
        let is_name =
            word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-');
        return is_name.then(|| format!("larder has no command {word}"));
    }
    // What comes after `--` is another command's.
    let flags = rest
        .iter()
        .take_while(|w| **w != "--")
        .map(|w| w.trim_start_matches('[').trim_end_matches([']', ',', ';']));
    let flags = flags.filter(|w| w.starts_with("--")).filter_map(|w| w.split('=').next());
    let mut unknown = flags.filter(|flag| *flag != "--help" && !has_flag(&known, flag));
    unknown.next().map(|flag| format!("larder {name} has no flag {flag}"))
}

fn has_flag(help: &str, flag: &str) -> bool {
    let ends = |after: &str| !after.starts_with(|c: char| c.is_alphanumeric() || c == '-');
    help.match_indices(flag).any(|(at, _)| ends(&help[at + flag.len()..]))
}

fn make(words: &[&str], makefile: &str) -> Option<String> {
    let target = words.iter().find(|word| {
        !word.contains(['=', '-', '[', '$']) || word.starts_with(char::is_lowercase)
    })?;
    let is_there = makefile.lines().any(|line| line.starts_with(&format!("{target}:")));
    (!is_there).then(|| format!("Makefile has no target {target}"))
}

fn cargo_test(words: &[&str], root: &Path) -> Option<String> {
    let after = |flag: &str| words.iter().skip_while(|w| **w != flag).nth(1);
    let package = after("-p")?;
    let folder =
        format!("crates/{}", package.trim_start_matches("larder-").replace("larder", "cli"));
    if !root.join(&folder).exists() {
        return Some(format!("there is no crate {package}"));
    }
    let test = after("--test")?;
    let files = [format!("{folder}/tests/{test}.rs"), format!("{folder}/tests/{test}/main.rs")];
    let is_there = files.iter().any(|file| root.join(file).exists());
    (!is_there).then(|| format!("{package} has no test {test}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, String)> {
        commands(&Document { name: "docs/x.md".into(), text: text.into() })
    }

    #[test]
    fn commands_are_found_in_blocks_and_in_text() {
        let text = "Run `larder top`.\n```sh\nsudo make x && larder a \\\n  --b # c\n```\n```text\nlarder no\n```\n";
        let pairs: Vec<(usize, String)> = found(text);
        let words: Vec<&str> = pairs.iter().map(|(_, command)| command.as_str()).collect();
        assert_eq!(words, ["larder top", "make x", "larder a --b", "c"]);
        assert_eq!(pairs[2].0, 3);
    }

    #[test]
    fn unknown_commands_and_flags_are_found() {
        let help = sections(
            "# Commands\n\n## larder serve\n--state <DIR>\n## larder trace\n### larder trace info\n--exact\n",
        );
        let run = |words: &str| larder(&words.split(' ').collect::<Vec<_>>(), &help);
        assert_eq!(run("serve db.toml --state=x"), None);
        assert_eq!(run("serve -- other --flag"), None);
        assert_eq!(run("serve --stat"), Some("larder serve has no flag --stat".into()));
        assert_eq!(run("trace info x --exact"), None);
        assert_eq!(run("trace KIND --exact"), None);
        assert_eq!(run("halt"), Some("larder has no command halt".into()));
        assert_eq!(make(&["-j2", "docs"], "docs: x\n"), None);
        assert_eq!(make(&["X=y", "docs"], "doc:\n"), Some("Makefile has no target docs".into()));
    }
}
