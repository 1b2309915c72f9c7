// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder sim`: scenarios in virtual time, a trace under a preset, or hits and misses over a trace.

pub mod args;
mod hits;
mod page;
mod replay;

use std::path::Path;

use anyhow::{Context, Result, bail};
use larder_lab::scenario::{Line, Scenario, Sweep, merge, sweep};
use serde_json::{Value as Json, json};

use self::args::SimArgs;
use crate::out;

/// Runs the command.
pub fn sim(args: &SimArgs) -> Result<()> {
    let mut scenario = match (&args.scenario, &args.replay.preset) {
        (Some(path), _) => from_file(args, path)?,
        (None, Some(preset)) => replay::replayed(args, preset)?.scenario()?,
        (None, None) => return hits::hits(args),
    };
    for setting in &args.set {
        let (path, value) = assignment(setting)?;
        scenario.set(path, value)?;
    }
    if let Some(seed) = args.seed {
        scenario.set("seed", toml::Value::Integer(seed))?;
    }
    let file = args.out.as_deref();
    let how = Sweep { file, jobs: args.jobs, progress: true, shard: args.shard };
    let lines = match file.filter(|_| args.merge) {
        Some(file) => merge(&scenario, file)?,
        None => sweep(&scenario, how)?,
    };
    if let Some(path) = &args.report {
        let html = page::html(&scenario, &lines);
        std::fs::write(path, html).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        let single = lines.len() == 1 && lines.iter().all(|line| line.at.is_empty());
        let all = || lines.iter().map(|line| json!({"at": line.at, "result": line.result}));
        return match lines.first() {
            Some(line) if single => out::line(&line.result),
            _ => out::line(Json::Array(all().collect())),
        };
    }
    lines.iter().try_for_each(|line| out::line(words(line)))
}

/// A scenario from its file. The file states how its trace is read.
fn from_file(args: &SimArgs, path: &Path) -> Result<Scenario> {
    if args.read.is_given() {
        bail!("--format, --dev, --columns and --event are for --trace; accepted: --set");
    }
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Scenario::parse(&path.display().to_string(), &text)?)
}

/// `path=value`; a value that is no TOML is a string.
fn assignment(text: &str) -> Result<(&str, toml::Value)> {
    let Some((path, value)) = text.split_once('=').filter(|(path, _)| !path.is_empty()) else {
        bail!("--set got '{text}', accepted path=value, as load.working_set_gib=80");
    };
    let parsed: Result<toml::Table, _> = format!("value = {value}").parse();
    let parsed = parsed.ok().and_then(|mut table| table.remove("value"));
    Ok((path.trim(), parsed.unwrap_or_else(|| toml::Value::String(value.trim().to_owned()))))
}

/// A point as text: the settings of the grid, and below them the figures.
fn words(line: &Line) -> String {
    let at: Vec<String> = line.at.iter().map(|(path, value)| format!("{path}={value}")).collect();
    let mut text = if at.is_empty() { String::new() } else { format!("{}\n", at.join(" ")) };
    figures(&line.result, "", &mut text);
    text.trim_end().to_owned()
}

fn figures(value: &Json, path: &str, text: &mut String) {
    use std::fmt::Write as _;
    match value {
        Json::Object(fields) => {
            for (key, value) in fields {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                figures(value, &path, text);
            }
        }
        Json::Array(items) if items.len() > 8 => {
            let _ = writeln!(text, "  {path:<28} {} values, see --json", items.len());
        }
        other => _ = writeln!(text, "  {path:<28} {other}"),
    }
}
