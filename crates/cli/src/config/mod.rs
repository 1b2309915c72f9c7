// SPDX-License-Identifier: MIT OR Apache-2.0
//! What to serve, from flags and a configuration file.
//!
//! Purpose: one definition for both. A key of the file is looked up among the flags of
//! `larder serve` and becomes that flag; clap reads the values of either. So every flag is a key,
//! with the same values, bounds and defaults, from the day it exists.
//!
//! Rules: `[volume.NAME]` begins a volume with the export name NAME; keys before the first one hold
//! for all of them unless a volume says otherwise. What belongs to the process ([`PROCESS`]) stands
//! there alone. Flags beside a file count instead of its keys; beside several volumes only those
//! of the process are accepted, since no other says which volume it means.
//!
//! Why not `serde` on the same struct: defaults, values with units and what is required would be
//! said twice, and serde names neither line nor key in its errors.

mod print;
#[cfg(test)]
mod tests;
mod toml;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, FromArgMatches};

use crate::args::ServeArgs;
use crate::exit::{self, Coded};

pub use self::print::print;

/// Keys that belong to the process, not to a volume.
pub const PROCESS: &[&str] = &["drain", "metrics"];
/// What is said on the command line only.
const COMMAND_LINE: &[&str] = &["config", "print_config"];

/// A key and its value, as words of the command line.
#[derive(Clone, Debug)]
struct Given {
    key: String,
    /// `--key=value`, or `--key`.
    words: Vec<OsString>,
    /// The line in the file; none for a flag.
    line: Option<usize>,
}

/// A volume to serve.
pub struct Plan {
    /// All that is to be known of it.
    pub args: ServeArgs,
    /// The same with the source of each value.
    matches: ArgMatches,
    /// The file, and what stands in which line.
    origin: Option<(PathBuf, Vec<Given>)>,
    /// It is one of several.
    pub several: bool,
}

/// `serve` by itself, as each volume is read.
fn command() -> clap::Command {
    ServeArgs::augment_args(clap::Command::new("serve")).no_binary_name(true)
}

/// The volumes that the command line and its file ask for.
pub fn plans(given: &ArgMatches, args: ServeArgs) -> Result<Vec<Plan>> {
    let Some(path) = args.config.clone() else {
        return Ok(vec![Plan { args, matches: given.clone(), origin: None, several: false }]);
    };
    let file = toml::File::read(&path, &command())?;
    let flags = flags(given);
    if file.volumes.len() > 1
        && let Some(flag) = flags.iter().find(|f| !PROCESS.contains(&f.key.as_str()))
    {
        bail!(
            "--{}: {} has {} volumes, and this flag does not say which; accepted beside it: --print-config, --{}",
            flag.key.replace('_', "-"),
            path.display(),
            file.volumes.len(),
            PROCESS.join(", --")
        );
    }
    if file.volumes.is_empty() {
        return Ok(vec![plan(&path, over(&file.top, &flags), false)?]);
    }
    let several = file.volumes.len() > 1;
    let volume = |volume: &toml::Volume| {
        let name = OsString::from(format!("--name={}", volume.name));
        let name = Given { key: "name".to_owned(), words: vec![name], line: Some(volume.line) };
        let mut all = over(&over(&file.top, &volume.keys), &[name]);
        all = over(&all, &flags);
        let named = |e| at_volume(e, &path, volume);
        plan(&path, all, several).map_err(named)
    };
    file.volumes.iter().map(volume).collect()
}

/// An error that names no line is about the volume as a whole.
fn at_volume(error: anyhow::Error, path: &Path, volume: &toml::Volume) -> anyhow::Error {
    let text = error.to_string();
    match text.strip_prefix(&format!("{}: ", path.display())) {
        Some(rest) => {
            anyhow!("{}:{}: [volume.{}]: {rest}", path.display(), volume.line, volume.name)
        }
        None => error,
    }
}

/// What was said on the command line itself.
fn flags(given: &ArgMatches) -> Vec<Given> {
    let command = command();
    let flag = |arg: &clap::Arg| {
        let (id, long) = (arg.get_id().as_str(), arg.get_long()?);
        let said = given.value_source(id) == Some(ValueSource::CommandLine);
        if !said || COMMAND_LINE.contains(&id) {
            return None;
        }
        let word = |value: &std::ffi::OsStr| {
            let mut word = OsString::from(format!("--{long}="));
            word.push(value);
            word
        };
        let words = match arg.get_action().takes_values() {
            true => given.get_raw(id)?.map(word).collect(),
            false => vec![OsString::from(format!("--{long}"))],
        };
        Some(Given { key: id.to_owned(), words, line: None })
    };
    command.get_arguments().filter_map(flag).collect()
}

/// `base`, except where `more` says something else.
fn over(base: &[Given], more: &[Given]) -> Vec<Given> {
    let untouched = |g: &&Given| !more.iter().any(|m| m.key == g.key);
    base.iter().filter(untouched).chain(more).cloned().collect()
}

fn plan(path: &Path, given: Vec<Given>, several: bool) -> Result<Plan> {
    let words = given.iter().flat_map(|g| g.words.clone());
    let parsed = command().try_get_matches_from(words);
    let parsed = parsed.and_then(|m| Ok((ServeArgs::from_arg_matches(&m)?, m)));
    let (args, matches) = parsed.map_err(|e| explain(path, &given, &e))?;
    Ok(Plan { args, matches, origin: Some((path.to_owned(), given)), several })
}

/// clap's error in the words of the file: file, line, key, and what is accepted.
fn explain(path: &Path, given: &[Given], error: &clap::Error) -> anyhow::Error {
    let at = path.display();
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    };
    let keys: Vec<String> = text(ContextKind::InvalidArg).split(", ").map(key_of).collect();
    if error.kind() == ErrorKind::MissingRequiredArgument {
        return anyhow!("{at}: the keys that are missing: {}", keys.join(", "));
    }
    let key = keys.first().cloned().unwrap_or_default();
    let value = text(ContextKind::InvalidValue);
    let why = match (error.kind(), std::error::Error::source(error)) {
        (ErrorKind::InvalidValue, _) => {
            format!("'{value}' is not known; accepted: {}", text(ContextKind::ValidValue))
        }
        (_, Some(source)) => format!("'{value}': {source}"),
        _ => error.to_string().lines().next().unwrap_or_default().to_owned(),
    };
    let hint = if why.contains("accepted") { "" } else { "; accepted: see larder serve --help" };
    match given.iter().find(|g| g.key == key).and_then(|g| g.line) {
        Some(line) => anyhow!("{at}:{line}: {key}: {why}{hint}"),
        None => anyhow!("--{}: {why}{hint}", key.replace('_', "-")),
    }
}

/// The key of a flag as clap prints it: `--flash-size <SIZE>`.
fn key_of(flag: &str) -> String {
    let long = flag.trim_start_matches("--");
    long.split([' ', '=']).next().unwrap_or(long).replace('-', "_")
}

impl Plan {
    /// An error about a flag, said of the line in the file if that is where it comes from; and
    /// with the volume's name where there are several.
    pub fn locate(&self, error: anyhow::Error) -> anyhow::Error {
        let text = error.to_string();
        let flag = text.strip_prefix("--").map(key_of);
        if let (Some((path, given)), Some(key)) = (&self.origin, flag) {
            let key = key.trim_end_matches(':');
            let rest = text.get(2 + key.len()..).unwrap_or_default();
            if let Some(line) = given.iter().find(|g| g.key == key).and_then(|g| g.line) {
                let message = format!("{}:{line}: {key}{rest}", path.display());
                return Coded { code: exit::code(&error), message }.into();
            }
        }
        if self.several { error.context(self.title()) } else { error }
    }

    /// How the volume is called in messages.
    pub fn title(&self) -> String {
        format!("volume '{}'", self.args.name)
    }
}
