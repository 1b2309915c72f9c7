// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIGHUP: reads the files of TLS again, and the configuration.
//!
//! Of the configuration, settings that may change take effect (`larder set` has the same ones), and the log names the others that
//! changed, which need a restart.
//!
//! Invariants: if the file cannot be read, or a key is wrong, nothing changes. A setting that `larder set` changed has the value of the
//! file afterwards.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};
use clap::{ArgMatches, FromArgMatches as _};
use larder_volume::Change;

use super::args::ServeArgs;
use super::config::{self, Plan};
use super::served::Served;
use crate::choices::choices;
use crate::set::SETTINGS;

/// Reads again what may change. `given` is the source of the settings.
pub(super) fn reload(served: &[Served], given: &ArgMatches) {
    certificates(served);
    match plans(given) {
        Ok(plans) if plans.is_empty() => {
            tracing::info!("SIGHUP: there is no configuration file to read");
        }
        Ok(plans) => settings(served, &plans),
        Err(e) => tracing::warn!("SIGHUP: {e:#}; the settings that were read before stay in use"),
    }
}

/// The configuration, without a file none.
fn plans(given: &ArgMatches) -> Result<Vec<Plan>> {
    let args = ServeArgs::from_arg_matches(given)?;
    let Some(path) = &args.config else { return Ok(Vec::new()) };
    // A pipe would be waited for.
    if !path.metadata().with_context(|| path.display().to_string())?.is_file() {
        bail!("{}: is no file; accepted: a file", path.display());
    }
    config::plans(given, args)
}

/// Certificates, for clients that connect from now on.
fn certificates(served: &[Served]) {
    let ways = served.iter().flat_map(|s| &s.ways);
    let read = ways.filter_map(|way| way.secure.as_ref()).map(|secure| secure.tls.reload());
    let read: Vec<_> = read.collect();
    // Volumes may share files.
    let failed: BTreeSet<_> =
        read.iter().filter_map(|r| Some(r.as_ref().err()?.to_string())).collect();
    for why in &failed {
        tracing::warn!("{why}; the certificates and lists that were read before stay in use");
    }
    if failed.is_empty() && !read.is_empty() {
        tracing::info!("SIGHUP: read the files of TLS of {} volumes", read.len());
    }
}

/// Keys of ranges, which are taken too.
const RANGES: [&str; 2] = ["pin", "exclude"];

/// Takes the settings of all caches, or of none.
fn settings(served: &[Served], plans: &[Plan]) {
    let pair = |old| -> Option<(&Served, &Plan)> {
        let old: &Served = old;
        Some((old, plans.iter().find(|plan| plan.args.name == old.plan.args.name)?))
    };
    let pairs: Vec<(&Served, &Plan)> = served.iter().filter_map(pair).collect();
    let checked: Result<Vec<(Change, Vec<String>)>> =
        pairs.iter().map(|(old, new)| check(old, new)).collect();
    let checked = match checked {
        Ok(checked) => checked,
        Err(e) => {
            return tracing::warn!("SIGHUP: {e:#}; the settings that were read before stay in use");
        }
    };
    for ((old, new), (change, rest)) in pairs.iter().zip(checked) {
        let title = old.plan.title();
        let mut failed = Vec::new();
        if let Err(e) = old.cache.set(&change) {
            failed.push(format!("{title}: {e:#}"));
        }
        for volume in new.volumes() {
            if let Err(e) = old.cache.configure_ranges(&volume.args.name, &volume.args.ranges()) {
                failed.push(format!("{}: {e:#}; its ranges stay as they were", volume.title()));
            }
        }
        failed.iter().for_each(|why| tracing::warn!("SIGHUP: {why}"));
        match rest.is_empty() {
            true if !failed.is_empty() => {}
            true => tracing::info!("SIGHUP: {title}: the settings of the configuration are in use"),
            false => {
                let rest = rest.join(", ");
                tracing::warn!("SIGHUP: {title}: changed, and in use after a restart: {rest}");
            }
        }
    }
    let gone =
        |old: &&Served| !pairs.iter().any(|(kept, _)| kept.plan.args.name == old.plan.args.name);
    for old in served.iter().filter(gone) {
        let title = old.plan.title();
        tracing::warn!("SIGHUP: {title} is no longer configured; it is served until a restart");
    }
    let known = |plan: &&Plan| served.iter().any(|old| old.plan.args.name == plan.args.name);
    for new in plans.iter().filter(|plan| !known(plan)) {
        tracing::warn!("SIGHUP: {} is served after a restart", new.title());
    }
}

/// Checks the settings of a cache. Returns those to take, and the other keys that changed.
fn check(old: &Served, new: &Plan) -> Result<(Change, Vec<String>)> {
    let check = || {
        new.args.limits.limits()?;
        let (change, differ) =
            (new.args.limits.change(), config::print::differences(&old.plan, new)?);
        // The choices of another preset need a restart together.
        let change = match differ.iter().any(|key| key == "preset") {
            true => change,
            false => change
                .with_choices(&choices(&old.preset, &new.args.choices)?, &old.cache.settings()),
        };
        old.cache.check(&change)?;
        Ok((change, differ))
    };
    let (change, mut differ) = check().map_err(|e| new.locate(e))?;
    differ.retain(|key| match key.as_str() {
        "write_policy" => change.write_policy.is_none(),
        "replacement" => change.replacement.is_none(),
        key => !SETTINGS.contains(&key) && !RANGES.contains(&key),
    });
    Ok((change, differ))
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;

    #[test]
    fn the_settings_in_use_are_keys() {
        let command = ServeArgs::augment_args(clap::Command::new("serve"));
        let keys: BTreeSet<String> =
            command.get_arguments().map(|arg| arg.get_id().to_string()).collect();
        assert!(SETTINGS.iter().all(|key| keys.contains(*key)), "{keys:?}");
    }
}
