// SPDX-License-Identifier: MIT OR Apache-2.0
//! Manual pages and completions, made from the definition of the command line.
//!
//! Invariants: a page for every command that users see, and nothing in it that `--help` does not
//! say, so neither can fall behind.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

use crate::help;

/// The commands that users see, those of commands too, with the whole name of each.
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

/// `man --dir DIR`.
pub fn man(dir: &Path) -> Result<()> {
    for command in visible() {
        let name = page(&command);
        let path = dir.join(format!("{name}.1"));
        let manual = format!("larder {}", env!("CARGO_PKG_VERSION"));
        let page = clap_mangen::Man::new(command).manual(manual);
        let mut text = Vec::new();
        page.render(&mut text)?;
        std::fs::write(&path, text)
            .with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    Ok(())
}

/// `completions SHELL`.
pub fn completions(shell: Shell) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut help::command(), "larder", &mut text);
    // A reader that went away has what it wanted.
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
            assert!(about.len() > 10, "{name} says nothing of itself");
            for arg in command.get_arguments() {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!help.trim().is_empty(), "{name} {}: has no help", arg.get_id());
            }
        }
    }
}
