// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns a TOML file into words of the command line, each with its line.
//!
//! Invariants: each key of the file becomes words or an error; no key is skipped. Volumes and caches keep the order of the file.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use clap::{Arg, ArgAction, Command};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{COMMAND_LINE, FOR_CACHES_TOO, Given, PROCESS, is_of_volume};
use crate::usage::nearest;

/// The longest file. It bounds the read where the path names a device by mistake.
const MOST_BYTES: u64 = 1 << 20;

/// `[volume.NAME]` or `[cache.NAME]`.
pub(super) struct Table {
    /// `volume` or `cache`.
    pub kind: &'static str,
    pub name: String,
    pub line: usize,
    pub keys: Vec<Given>,
}

impl Table {
    /// The line of one of its keys.
    pub fn line_of(&self, key: &str) -> Option<usize> {
        self.keys.iter().find(|given| given.key == key)?.line
    }
}

/// A configuration file.
pub(super) struct File {
    /// Keys before the first table.
    pub top: Vec<Given>,
    pub volumes: Vec<Table>,
    /// Caches that volumes share.
    pub caches: Vec<Table>,
}

/// The file as errors need it.
struct Source<'a> {
    name: String,
    text: &'a str,
    command: &'a Command,
}

impl File {
    /// Whether all volumes share one cache.
    pub(super) fn is_one_cache(&self) -> bool {
        let shares = |volume: &Table| volume.line_of("cache").is_some();
        self.caches.len() == 1 && self.volumes.iter().all(shares)
    }

    /// Reads a file whose keys are the flags of `command`.
    pub fn read(path: &Path, command: &Command) -> Result<Self> {
        let name = path.display().to_string();
        let text = read_text(path).map_err(|e| {
            anyhow!("{name}: cannot be read: {e}; accepted a configuration in TOML")
        })?;
        let source = Source { name, text: &text, command };
        let table = DeTable::parse(&text).map_err(|e| {
            let at = e.span().map_or(0, |s| s.start);
            source.error(at, &e.message().replace('\n', ", "))
        })?;
        let (mut top, mut volumes, mut caches) = (Vec::new(), Vec::new(), Vec::new());
        for (key, value) in table.get_ref() {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("volume", DeValue::Table(tables)) => volumes = source.tables("volume", tables)?,
                ("cache", DeValue::Table(tables)) => caches = source.tables("cache", tables)?,
                (name, _) => top.push(source.given(name, key.span().start, value)?),
            }
        }
        if let Some(name) = top.iter().find(|g| g.key == "name" && !volumes.is_empty()) {
            let line = name.line.unwrap_or_default();
            bail!("{}:{line}: name: [volume.NAME] gives each volume its name", source.name);
        }
        Ok(Self { top, volumes, caches })
    }
}

/// Reads up to the bound: the path may name a pipe or a device.
fn read_text(path: &Path) -> std::io::Result<String> {
    use std::io::{Error, Read as _};
    let mut text = String::new();
    std::fs::File::open(path)?.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(Error::other("it is longer than 1 MiB"));
    }
    Ok(text)
}

impl Source<'_> {
    /// The line of a place in the text, counted from 1.
    fn line(&self, at: usize) -> usize {
        1 + self.text.bytes().take(at).filter(|b| *b == b'\n').count()
    }

    fn error(&self, at: usize, what: &str) -> anyhow::Error {
        anyhow!("{}:{}: {what}", self.name, self.line(at))
    }

    fn tables(&self, kind: &'static str, tables: &DeTable<'_>) -> Result<Vec<Table>> {
        let mut found = Vec::new();
        for (name, table) in tables {
            let at = name.span().start;
            let DeValue::Table(keys) = table.get_ref() else {
                let what = format!("{kind}: accepted tables, as [{kind}.NAME] and its keys below");
                return Err(self.error(at, &what));
            };
            let name = name.get_ref().to_string();
            let keys = keys.iter().map(|(key, value)| {
                let (key, at) = (key.get_ref().as_ref(), key.span().start);
                let why = match key {
                    "name" => format!("[{kind}.NAME] gives the {kind} its name"),
                    _ if PROCESS.contains(&key) => {
                        "belongs to the process: write it before the first table".to_owned()
                    }
                    _ if kind == "cache"
                        && is_of_volume(key)
                        && !FOR_CACHES_TOO.contains(&key) =>
                    {
                        "belongs to a volume: write it into [volume.NAME], or before the first table"
                            .to_owned()
                    }
                    _ => return self.given(key, at, value),
                };
                Err(self.error(at, &format!("{key}: {why}")))
            });
            let keys = keys.collect::<Result<Vec<_>>>()?;
            found.push((at, Table { kind, name, line: self.line(at), keys }));
        }
        found.sort_by_key(|(at, _)| *at);
        Ok(found.into_iter().map(|(_, table)| table).collect())
    }

    /// A key with its value, as the flag of that name.
    fn given(&self, key: &str, at: usize, value: &Spanned<DeValue<'_>>) -> Result<Given> {
        let arg = self.arg(key, at)?;
        let long = arg.get_long().unwrap_or_default();
        let wrong = |at: usize, accepted: &str| self.error(at, &format!("{key}: {accepted}"));
        let at = value.span().start;
        let words = match (arg.get_action(), value.get_ref()) {
            (ArgAction::SetTrue, DeValue::Boolean(true)) => vec![format!("--{long}")],
            (ArgAction::SetTrue, DeValue::Boolean(false)) => vec![],
            (ArgAction::SetTrue, _) => return Err(wrong(at, "accepted true or false")),
            (ArgAction::Append, DeValue::Array(values)) => {
                let word = |v: &Spanned<DeValue<'_>>| {
                    let scalar = scalar(v.get_ref());
                    let scalar = scalar.ok_or_else(|| {
                        wrong(v.span().start, "accepted in the list: strings and numbers")
                    })?;
                    Ok(format!("--{long}={scalar}"))
                };
                values.iter().map(word).collect::<Result<Vec<_>>>()?
            }
            (action, value) => match scalar(value) {
                Some(scalar) => vec![format!("--{long}={scalar}")],
                None if matches!(action, ArgAction::Append) => {
                    return Err(wrong(at, "accepted a list of strings or numbers"));
                }
                None => return Err(wrong(at, "accepted one string or number")),
            },
        };
        let words = words.into_iter().map(OsString::from).collect();
        Ok(Given { key: arg.get_id().to_string(), words, line: Some(self.line(at)) })
    }

    /// The flag that a key stands for, by its present or its earlier name.
    fn arg(&self, key: &str, at: usize) -> Result<&Arg> {
        let known = |arg: &&Arg| !COMMAND_LINE.contains(&arg.get_id().as_str());
        let named = |name: &str| {
            let is = |arg: &&Arg| {
                let earlier = arg.get_all_aliases().unwrap_or_default();
                arg.get_id().as_str() == name || earlier.contains(&&*name.replace('_', "-"))
            };
            self.command.get_arguments().filter(known).find(is)
        };
        if let Some(arg) = named(key).filter(|_| !key.contains('-')) {
            return Ok(arg);
        }
        let accepted = match named(&key.replace('-', "_")).or_else(|| self.nearest(key)) {
            Some(arg) => format!("did you mean '{}'?", arg.get_id()),
            None => {
                let all = self.command.get_arguments().filter(known);
                let mut all: Vec<_> = all.map(|a| a.get_id().as_str()).collect();
                all.extend(["[volume.NAME]", "[cache.NAME]"]);
                format!("accepted {}", all.join(", "))
            }
        };
        Err(self.error(at, &format!("unknown key '{key}'; {accepted}")))
    }

    /// The flag that is nearest to an unknown key.
    fn nearest(&self, key: &str) -> Option<&Arg> {
        let flag = format!("--{}", key.replace('_', "-"));
        let error = self.command.clone().try_get_matches_from([flag]).err()?;
        let nearest = nearest(&error)?;
        let nearest = nearest.strip_prefix("--")?;
        let mut args = self.command.get_arguments();
        args.find(|arg| arg.get_long() == Some(nearest))
            .filter(|arg| !COMMAND_LINE.contains(&arg.get_id().as_str()))
    }
}

/// A value as a word.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            i128::from_str_radix(number.as_str(), number.radix()).ok().map(|n| n.to_string())
        }
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}
