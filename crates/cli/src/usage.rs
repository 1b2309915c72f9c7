// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of the command line in one line: what is wrong, the nearest word, and which help lists the accepted words.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// The line for an error in these words, of which the first is the program.
pub fn line(error: &Error, cli: &Command, words: &[OsString]) -> String {
    let help = match error.kind() {
        ErrorKind::UnknownArgument => "--help-all",
        _ => "--help",
    };
    let nearest = nearest(error).map(|word| format!("; did you mean '{word}'?"));
    let nearest = nearest.unwrap_or_default();
    format!("{}{nearest}; see {} {help}", what(error), given_command(cli, words))
}

/// What is wrong.
fn what(error: &Error) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    };
    let argument = text(ContextKind::InvalidArg);
    let argument = argument.split([' ', '=']).next().unwrap_or_default();
    let value = text(ContextKind::InvalidValue);
    match (error.kind(), std::error::Error::source(error)) {
        (ErrorKind::InvalidValue, _) if !value.is_empty() => {
            format!("{argument}: got '{value}', accepted {}", text(ContextKind::ValidValue))
        }
        (ErrorKind::ValueValidation, Some(source)) => {
            format!("{argument}: {}", reason(&value, &source.to_string()))
        }
        _ => {
            let text = error.to_string();
            let lines = text.lines().take_while(|l| !l.is_empty()).map(str::trim);
            let line = lines.collect::<Vec<_>>().join(" ");
            line.strip_prefix("error: ").unwrap_or(&line).to_owned()
        }
    }
}

/// Why a value is rejected, with the value.
pub fn reason(value: &str, why: &str) -> String {
    if why.contains(value) { why.to_owned() } else { format!("got '{value}': {why}") }
}

/// The accepted word that is nearest to an unknown one, or two of them.
pub fn nearest(error: &Error) -> Option<String> {
    let kinds =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    kinds.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(word) => Some(word.clone()),
        // The nearest of several is the last.
        ContextValue::Strings(words) if !words.is_empty() => {
            Some(words.iter().rev().take(2).cloned().collect::<Vec<_>>().join("' or '"))
        }
        _ => None,
    })
}

/// The command that the words name, with the commands that it stands below.
fn given_command(cli: &Command, words: &[OsString]) -> String {
    let (mut command, mut name) = (cli, "larder".to_owned());
    for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
        let Some(below) = command.find_subcommand(word) else { break };
        (command, name) = (below, format!("{name} {word}"));
    }
    name
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test stops at the first failure

    use super::*;

    fn said(words: &str) -> String {
        let words: Vec<_> = format!("larder {words}").split(' ').map(OsString::from).collect();
        let mut cli = crate::help::command();
        let error = cli.try_get_matches_from_mut(&words).unwrap_err();
        line(&error.format(&mut cli), &cli, &words)
    }

    #[test]
    fn unknown_words_suggest_the_nearest_one() {
        for (words, has) in [
            ("serve --orgin x", "'--origin'?; see larder serve --help-all"),
            ("srve", "'serve'?; see larder --help"),
            ("stauts", "did you mean 'stats' or 'status'?; see larder --help"),
            ("serve --write-policy throgh", "'through'?; see larder serve --help"),
            ("trace recrod", "'record'?; see larder trace --help"),
            ("trace info --exat x", "'--exact'?; see larder trace info --help-all"),
            ("serve --flash-timout 1s", "'--flash-timeout'?"),
        ] {
            let line = said(words);
            assert!(line.contains(has) && !line.contains('\n'), "{words}: {line}");
        }
        assert!(!said("serve --zzz").contains("did you mean"));
    }

    #[test]
    fn a_bad_value_names_the_flag_and_what_is_accepted() {
        let line = said("serve --write-policy back");
        assert!(line.starts_with("--write-policy: got 'back', accepted async, through"), "{line}");
        let line = said("serve --unit abc");
        assert!(line.starts_with("--unit: 'abc' is not a size; accepted"), "{line}");
    }
}
