// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of a configuration file as caches: `[volume.NAME]` with a cache of its own, and `[cache.NAME]` with the volumes
//! that share it.
//!
//! Names become those of sockets and state files, so a cache and a volume must not have the same name.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Result, anyhow};

use super::keys::{FOR_CACHES_TOO, Given, OF_START, is_of_volume};
use super::plan::{ConfigError, Plan, not_shared, over, plan};
use super::toml::{File, Table};

/// The plans of a file with tables. A cache comes where its first volume is.
pub(super) fn group(path: &Path, file: &File, flags: &[Given]) -> Result<Vec<Plan>> {
    let line = |line: usize, what: String| anyhow!("{}:{line}: {what}", path.display());
    if let Some(cache) = file.caches.iter().find(|c| file.volumes.iter().any(|v| v.name == c.name))
    {
        let what =
            format!("cache '{0}': a volume is named '{0}' too; accepted: another name", cache.name);
        return Err(line(cache.line, what));
    }
    let several = file.volumes.len() > 1;
    let mut plans: Vec<Plan> = Vec::new();
    for table in &file.volumes {
        let volume = volume(path, file, (table, flags), several)?;
        let Some(name) = &volume.member.cache else {
            not_shared(path, &volume)?;
            plans.push(volume);
            continue;
        };
        let at = table.line_of("cache").unwrap_or(table.line);
        let Some(cache) = file.caches.iter().find(|cache| cache.name == *name) else {
            let names: Vec<&str> = file.caches.iter().map(|cache| cache.name.as_str()).collect();
            let accepted = match names.is_empty() {
                true => format!("a table [cache.{name}]"),
                false => names.join(", "),
            };
            return Err(line(at, format!("cache: got {name}; accepted: {accepted}")));
        };
        if let Some(other) = table.keys.iter().find(|given| !is_of_volume(&given.key)) {
            let what = format!("{}: belongs to the cache: write it into [cache.{name}]", other.key);
            return Err(line(other.line.unwrap_or(table.line), what));
        }
        volume.member.share().map_err(|bad| volume.locate(bad.into()))?;
        match plans.iter_mut().find(|plan| plan.is_shared() && plan.args.name == *name) {
            Some(known) => known.sharers.push(volume),
            None => {
                let mut cache = cache_of(path, file, (cache, flags), several)?;
                cache.sharers.push(volume);
                plans.push(cache);
            }
        }
    }
    let has_volumes = |cache: &&Table| plans.iter().any(|plan| plan.args.name == cache.name);
    if let Some(cache) = file.caches.iter().find(|cache| !has_volumes(cache)) {
        let what = format!("cache '{0}': no volume has cache = \"{0}\"", cache.name);
        return Err(line(cache.line, what));
    }
    plans.iter().try_for_each(|plan| shares(plan, &line))?;
    Ok(plans)
}

/// The sum of the slots that are reserved for volumes is not above all of them.
fn shares(plan: &Plan, line: &impl Fn(usize, String) -> anyhow::Error) -> Result<()> {
    let sum: f64 = plan.sharers.iter().map(|volume| volume.member.least).sum();
    if sum <= 1.0 + 1e-9 {
        return Ok(());
    }
    let at = |given: &[Given]| given.iter().find(|given| given.key == "name")?.line;
    let at = plan.origin.as_ref().and_then(|(_, given)| at(given));
    let what = format!(
        "{}: the sum of `least` is {}%; accepted: up to 100%",
        plan.title(),
        (sum * 1e4).round() / 100.0
    );
    Err(line(at.unwrap_or_default(), what))
}

fn named(table: &Table) -> [Given; 1] {
    let words = vec![OsString::from(format!("--name={}", table.name))];
    [Given { key: "name".to_owned(), words, line: Some(table.line) }]
}

/// A volume. The keys before the first table are defaults for it, and for its cache, if it shares one.
fn volume(
    path: &Path,
    file: &File,
    (table, flags): (&Table, &[Given]),
    several: bool,
) -> Result<Plan> {
    let given = |key: &str| file.top.iter().chain(&table.keys).any(|given| given.key == key);
    let shares = given("cache");
    let is_its = |given: &&Given| !shares || is_of_volume(&given.key);
    let top: Vec<Given> = file.top.iter().filter(is_its).cloned().collect();
    let for_cache = |given: &&Given| shares && OF_START.contains(&given.key.as_str());
    let flags: Vec<Given> = flags.iter().filter(|flag| !for_cache(flag)).cloned().collect();
    let all = over(&over(&over(&top, &table.keys), &named(table)), &flags);
    plan(path, all, several).map_err(|error| error.of_table(table).into())
}

/// A shared cache. It has no origin and no listener of its own.
fn cache_of(
    path: &Path,
    file: &File,
    (table, flags): (&Table, &[Given]),
    several: bool,
) -> Result<Plan> {
    let is_its = |given: &&Given| {
        let key = given.key.as_str();
        !is_of_volume(key) || FOR_CACHES_TOO.contains(&key)
    };
    let top: Vec<Given> = file.top.iter().filter(is_its).cloned().collect();
    let mut all = over(&over(&over(&top, &table.keys), &named(table)), flags);
    // As if a file were to name them.
    let words = vec![path.as_os_str().to_owned()];
    all.push(Given { key: "config".to_owned(), words, line: None });
    plan(path, all, several).map_err(|error: ConfigError| error.of_table(table).into())
}
