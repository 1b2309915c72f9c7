// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache to serve with its volumes, as flags or a file describe it, and errors that name the place of a setting.

use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, FromArgMatches};

use super::keys::{Given, MEMBER, MemberArgs, command};
use super::toml;
use crate::exit::{self, Coded};
use crate::serve::args::ServeArgs;
use crate::setting::BadSetting;
use crate::usage::reason;

/// An error in a configuration file, or in a flag beside it.
#[derive(Debug)]
pub(super) enum ConfigError {
    /// A line of the file.
    Line { path: PathBuf, line: usize, what: String },
    /// A volume as a whole: it lacks these keys.
    Missing { path: PathBuf, keys: String },
    /// A flag.
    Flag(BadSetting),
}

impl ConfigError {
    /// What is missing is missing in this table, which begins at a line.
    pub(super) fn of_table(self, table: &toml::Table) -> Self {
        match self {
            Self::Missing { path, keys } => {
                let what = format!("[{}.{}]: missing keys: {keys}", table.kind, table.name);
                Self::Line { path, line: table.line, what }
            }
            other => other,
        }
    }
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Line { path, line, what } => write!(f, "{}:{line}: {what}", path.display()),
            Self::Missing { path, keys } => {
                write!(f, "{}: missing keys: {keys}", path.display())
            }
            Self::Flag(bad) => bad.fmt(f),
        }
    }
}

impl std::error::Error for ConfigError {}

/// A cache to serve, with its volumes: one, whose settings are those of the cache, or several that share it.
pub struct Plan {
    /// Its settings.
    pub args: ServeArgs,
    /// Those of a volume that shares a cache.
    pub member: MemberArgs,
    /// The same with the source of each value.
    pub(super) matches: ArgMatches,
    /// The file, and what stands in which line.
    pub(super) origin: Option<(PathBuf, Vec<Given>)>,
    /// It is one of several.
    pub several: bool,
    /// The volumes that share the cache; empty if it has one.
    pub(super) sharers: Vec<Plan>,
}

/// A volume with a cache of its own has no keys of a shared one.
pub(super) fn not_shared(path: &Path, plan: &Plan) -> Result<(), ConfigError> {
    let given = plan.origin.as_ref().map(|(_, given)| given.as_slice()).unwrap_or_default();
    match given.iter().find(|given| MEMBER.contains(&given.key.as_str())) {
        None => Ok(()),
        Some(given) => Err(ConfigError::Line {
            path: path.to_owned(),
            line: given.line.unwrap_or_default(),
            what: format!("{}: needs `cache = \"NAME\"` in the same [volume.NAME]", given.key),
        }),
    }
}

/// `base`, with the keys of `more` replaced.
pub(super) fn over(base: &[Given], more: &[Given]) -> Vec<Given> {
    let untouched = |g: &&Given| !more.iter().any(|m| m.key == g.key);
    base.iter().filter(untouched).chain(more).cloned().collect()
}

pub(super) fn plan(path: &Path, given: Vec<Given>, several: bool) -> Result<Plan, ConfigError> {
    let words = given.iter().flat_map(|g| g.words.clone());
    let parsed = command().try_get_matches_from(words);
    let parsed = parsed
        .and_then(|m| Ok((ServeArgs::from_arg_matches(&m)?, MemberArgs::from_arg_matches(&m)?, m)));
    let (args, member, matches) = parsed.map_err(|e| explain(path, &given, &e))?;
    let origin = Some((path.to_owned(), given));
    Ok(Plan { args, member, matches, origin, several, sharers: Vec::new() })
}

/// clap's error in the words of the file: file, line, key, and what is accepted.
fn explain(path: &Path, given: &[Given], error: &clap::Error) -> ConfigError {
    let path = path.to_owned();
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    };
    let keys: Vec<String> = text(ContextKind::InvalidArg).split(", ").map(key_of).collect();
    if error.kind() == ErrorKind::MissingRequiredArgument {
        return ConfigError::Missing { path, keys: keys.join(", ") };
    }
    let key = keys.first().cloned().unwrap_or_default();
    let value = text(ContextKind::InvalidValue);
    let why = match (error.kind(), std::error::Error::source(error)) {
        (ErrorKind::InvalidValue, _) => {
            format!("got '{value}', accepted {}", text(ContextKind::ValidValue))
        }
        (_, Some(source)) => reason(&value, &source.to_string()),
        _ => error.to_string().lines().next().unwrap_or_default().to_owned(),
    };
    let hint = if why.contains("accepted") { "" } else { "; see larder serve --help-all" };
    let bad = BadSetting::new(key, format!("{why}{hint}"));
    match line_of(given, &bad) {
        Some(line) => ConfigError::Line { path, line, what: bad.as_key() },
        None => ConfigError::Flag(bad),
    }
}

/// The line of the file that has the setting.
fn line_of(given: &[Given], bad: &BadSetting) -> Option<usize> {
    given.iter().find(|g| g.key == bad.key).and_then(|g| g.line)
}

/// The key of a flag as clap prints it: `--flash-size <SIZE>`.
fn key_of(flag: &str) -> String {
    let long = flag.trim_start_matches("--");
    long.split([' ', '=']).next().unwrap_or(long).replace('-', "_")
}

impl Plan {
    /// A volume of flags alone.
    pub(super) fn alone(args: ServeArgs, matches: ArgMatches) -> Self {
        let member = MemberArgs { cache: None, least: 0.0, most: 1.0, may_be_missing: false };
        Self { args, member, matches, origin: None, several: false, sharers: Vec::new() }
    }

    /// Its volumes: those that share the cache, or the one whose settings are the cache's.
    pub fn volumes(&self) -> &[Self] {
        if self.sharers.is_empty() { std::slice::from_ref(self) } else { &self.sharers }
    }

    /// The file that describes it.
    pub fn file(&self) -> Option<&Path> {
        self.origin.as_ref().map(|(path, _)| path.as_path())
    }

    /// Whether several volumes may share the cache.
    pub fn is_shared(&self) -> bool {
        !self.sharers.is_empty()
    }

    /// An error about a setting, with the line of the file if the setting is from there; and
    /// with the volume's name where there are several.
    pub fn locate(&self, error: anyhow::Error) -> anyhow::Error {
        if let (Some((path, given)), Some(bad)) = (&self.origin, BadSetting::in_error(&error))
            && let Some(line) = line_of(given, &bad)
        {
            let message = format!("{}:{line}: {}", path.display(), bad.as_key());
            return Coded { code: exit::code(&error), message }.into();
        }
        if self.several { error.context(self.title()) } else { error }
    }

    /// How the volume, or the shared cache, is called in messages.
    pub fn title(&self) -> String {
        let what = if self.is_shared() { "cache" } else { "volume" };
        format!("{what} '{}'", self.args.name)
    }
}
