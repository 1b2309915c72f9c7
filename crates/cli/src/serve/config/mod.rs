// SPDX-License-Identifier: MIT OR Apache-2.0
//! The volumes to serve, from flags and a configuration file.
//!
//! Purpose: one definition for both. A key of the file is looked up among the flags of
//! `larder serve` and becomes that flag; clap reads the values of either. So every flag is a key,
//! with the same values, bounds and defaults, from the day it exists.
//!
//! Rules: `[volume.NAME]` begins a volume with the export name NAME; keys before the first one are
//! defaults for all of them. What belongs to the process ([`PROCESS`]) stands
//! there alone. Flags override the keys of a file. With several volumes only flags
//! of the process are accepted, since another flag does not name its volume.
//!
//! `[cache.NAME]` begins a cache that the volumes with `cache = "NAME"` share. Each key belongs to either the cache or its
//! volumes ([`is_of_volume`](keys::is_of_volume)).
//!
//! Why not `serde` on the same struct: defaults, values with units and what is required would be
//! defined twice, and serde's errors name neither line nor key.

#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod keys;
mod plan;
pub mod print;
mod shared;
#[cfg(test)]
mod tests;
mod toml;

use std::ffi::OsString;

use anyhow::{Result, bail};
use clap::ArgMatches;
use clap::parser::ValueSource;

use self::keys::{COMMAND_LINE, Given, MEMBER, OF_START, PROCESS, command};
pub use self::plan::Plan;
use self::plan::{not_shared, over, plan};
use super::args::ServeArgs;

/// The caches of the command line and its file.
pub fn plans(given: &ArgMatches, args: ServeArgs) -> Result<Vec<Plan>> {
    let Some(path) = args.config.clone() else {
        return Ok(vec![Plan::alone(args, given.clone())]);
    };
    let file = toml::File::read(&path, &command())?;
    let flags = flags(given);
    let several = file.volumes.len() > 1;
    let names_one = |flag: &Given| {
        let of_start = file.is_one_cache() && OF_START.contains(&flag.key.as_str());
        of_start || PROCESS.contains(&flag.key.as_str())
    };
    if several && let Some(flag) = flags.iter().find(|flag| !names_one(flag)) {
        let of_start: &[&str] = if file.is_one_cache() { OF_START } else { &[] };
        let accepted = [&["print_config"], PROCESS, of_start].concat().join(", --");
        bail!(
            "--{}: {} has {} volumes, and this flag does not name one; accepted beside it: --{}",
            flag.key.replace('_', "-"),
            path.display(),
            file.volumes.len(),
            accepted.replace('_', "-")
        );
    }
    if file.volumes.is_empty() && file.caches.is_empty() {
        let alone = plan(&path, over(&file.top, &flags), false)?;
        not_shared(&path, &alone)?;
        return Ok(vec![alone]);
    }
    shared::group(&path, &file, &flags)
}

/// The flags of the command line.
fn flags(given: &ArgMatches) -> Vec<Given> {
    let command = command();
    let flag = |arg: &clap::Arg| {
        let (id, long) = (arg.get_id().as_str(), arg.get_long()?);
        if COMMAND_LINE.contains(&id) || MEMBER.contains(&id) {
            return None;
        }
        let said = given.value_source(id) == Some(ValueSource::CommandLine);
        if !said {
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
