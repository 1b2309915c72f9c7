// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIGHUP: reads the files of TLS again, and the configuration.
//!
//! Of the configuration, settings that may change take effect (`larder set` has the same ones), and the log names the others that
//! changed, which need a restart.
//!
//! Invariants: if the file cannot be read, or a key is wrong, nothing changes. A setting that `larder set` changed has the value of the
//! file afterwards.

use std::collections::BTreeSet;

use anyhow::Result;
use clap::{ArgMatches, FromArgMatches as _};

use super::args::ServeArgs;
use super::config::{self, Plan};
use super::served::Served;
use crate::set::SETTINGS;

/// Reads again what may change. `given` is the source of the settings.
pub(super) fn reload(served: &[Served], given: &ArgMatches) {
    certificates(served);
    let plans =
        ServeArgs::from_arg_matches(given).map_err(anyhow::Error::from).and_then(
            |args| match &args.config {
                Some(_) => config::plans(given, args),
                None => Ok(Vec::new()),
            },
        );
    match plans {
        Ok(plans) => settings(served, &plans),
        Err(e) => tracing::warn!("SIGHUP: {e:#}; the settings that were read before stay in use"),
    }
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

fn settings(served: &[Served], plans: &[Plan]) {
    let of = |name: &str| plans.iter().find(|plan| plan.args.name == name);
    for old in served.iter().filter(|_| !plans.is_empty()) {
        let title = old.plan.title();
        match of(&old.plan.args.name) {
            None => tracing::warn!(
                "SIGHUP: {title} is no longer configured; it is served until a restart"
            ),
            Some(new) => match take(old, new) {
                Ok(rest) if rest.is_empty() => {
                    tracing::info!("SIGHUP: {title}: the settings of the configuration are in use");
                }
                Ok(rest) => tracing::warn!(
                    "SIGHUP: {title}: changed, and in use after a restart: {}",
                    rest.join(", ")
                ),
                Err(e) => {
                    let e = new.locate(e);
                    tracing::warn!("SIGHUP: {title}: {e:#}; its settings stay in use");
                }
            },
        }
    }
    let known = |plan: &&Plan| served.iter().any(|old| old.plan.args.name == plan.args.name);
    for new in plans.iter().filter(|plan| !known(plan)) {
        tracing::warn!("SIGHUP: {} is served after a restart", new.title());
    }
}

/// Takes the settings of a cache. Returns the other keys that changed.
fn take(old: &Served, new: &Plan) -> Result<Vec<String>> {
    new.args.limits.limits()?;
    let mut differ = config::print::differences(&old.plan, new)?;
    old.cache.set(&new.args.limits.change())?;
    differ.retain(|key| !SETTINGS.contains(&key.as_str()));
    Ok(differ)
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
