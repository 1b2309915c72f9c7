// SPDX-License-Identifier: MIT OR Apache-2.0
//! Manual pages and completions, made from the definition of the command line.
//!
//! Invariants: each visible command has a page; a page has the examples of `--help`, the files that its command uses, and
//! the exit codes.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::help;

/// The visible commands at all levels, with the whole name of each.
pub fn visible() -> Vec<Command> {
    let mut cli = help::command().disable_help_subcommand(true);
    cli.build();
    let mut all = vec![cli];
    let mut next = 0;
    while let Some(command) = all.get(next) {
        let below = command.get_subcommands().filter(|c| !c.is_hide_set());
        let below: Vec<Command> = below.cloned().collect();
        all.extend(below);
        next += 1;
    }
    all
}

/// The name of a command's page, without the section.
pub fn page(command: &Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).to_owned()
}

/// Exit codes, as in the contract.
const EXIT_STATUS: &[(&str, &str)] = &[
    ("0", "The command did what it was asked to do."),
    ("1", "The answer is no: a rule is violated, or damage was found."),
    (
        "2",
        "A flag, a key or an input is wrong. One line on standard error states what is accepted.",
    ),
    ("3", "A device or the system failed."),
    (
        "4",
        "Refused for safety: the device, port or socket is in use, holds foreign data, or may hold dirty data.",
    ),
    ("128+n", "Signal n ended the command."),
];

/// Files, and the commands that use them.
const FILES: &[(&str, &str, &[&str])] = &[
    ("/etc/larder/NAME.toml", "Configuration of the unit larder@NAME.service.", &["larder-serve"]),
    (
        "/run/larder/NAME.sock, $XDG_RUNTIME_DIR/larder/NAME.sock",
        "Control socket of a server, for root and for other users. NAME is default without --name.",
        &[
            "larder-serve",
            "larder-status",
            "larder-stats",
            "larder-top",
            "larder-flush",
            "larder-detach",
            "larder-attach",
            "larder-trace-record",
        ],
    ),
    (
        "/var/lib/larder/NAME.json, ~/.local/state/larder/NAME.json",
        "State file of a volume, for root and for other users: whether the data on its flash may be used. Without --name, \
         NAME is made from the origin.",
        &["larder-serve", "larder-check"],
    ),
];

/// `man --dir DIR`.
pub fn man(dir: &Path) -> Result<()> {
    for command in visible() {
        let name = page(&command);
        let path = dir.join(format!("{name}.1"));
        std::fs::write(&path, text(command)?)
            .with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    Ok(())
}

/// The page of a command.
fn text(command: Command) -> Result<Vec<u8>> {
    let (name, version) = (page(&command), command.get_version().is_some());
    // Examples have a section of their own; other words after the help stay.
    let more = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let more = more.split(help::EXAMPLES_HEADING).next().unwrap_or_default().trim().to_owned();
    let (arguments, below) =
        (command.get_arguments().next().is_some(), command.get_subcommands().next().is_some());
    let page = Man::new(command).manual(format!("larder {}", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    if arguments {
        page.render_options_section(&mut text)?;
    }
    if below {
        page.render_subcommands_section(&mut text)?;
    }
    let mut roff = Roff::new();
    if !more.is_empty() {
        section(&mut roff, "NOTES");
        literal(&mut roff, more.lines());
    }
    if !help::examples(&name).is_empty() {
        section(&mut roff, "EXAMPLES");
        literal(&mut roff, help::examples(&name).iter().copied());
    }
    let files = FILES.iter().filter(|(_, _, users)| users.contains(&name.as_str()));
    for (n, (path, what, _)) in files.enumerate() {
        if n == 0 {
            section(&mut roff, "FILES");
        }
        entry(&mut roff, path, what);
    }
    section(&mut roff, "EXIT STATUS");
    EXIT_STATUS.iter().for_each(|(code, what)| entry(&mut roff, code, what));
    roff.to_writer(&mut text)?;
    if version {
        page.render_version_section(&mut text)?;
    }
    Ok(text)
}

fn section(roff: &mut Roff, name: &str) {
    roff.control("SH", [name]);
}

/// Lines as they are.
fn literal<'a>(roff: &mut Roff, lines: impl Iterator<Item = &'a str>) {
    roff.control("nf", []);
    lines.for_each(|line| _ = roff.text([roman(line)]));
    roff.control("fi", []);
}

/// A term and what it means.
fn entry(roff: &mut Roff, term: &str, what: &str) {
    roff.control("TP", []).text([bold(term)]).text([roman(what)]);
}

/// `completions SHELL`.
pub fn completions(shell: Shell) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut help::command(), "larder", &mut text);
    // A reader that closed the pipe early is no error.
    let _ = std::io::stdout().write_all(&text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_and_flag_has_its_help() {
        for command in visible() {
            let name = page(&command);
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(about.len() > 10, "{name} has no help");
            for arg in command.get_arguments() {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!help.trim().is_empty(), "{name} {}: has no help", arg.get_id());
            }
        }
    }
}
