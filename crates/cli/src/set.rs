// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder set`: shows and changes settings of a serving process.

use anyhow::Result;
use clap::Args;
use larder_core::exec::Nanos;
use larder_front::control::client;
use larder_front::control::wire::Command;
use larder_io::format_size;
use larder_volume::{Change, DailyWrites};
use serde_json::{Value, json};

use crate::control::ControlArgs;
use crate::exit::Coded;
use crate::operate::{ask, number};
use crate::out;
use crate::units::{daily_writes, format_daily_writes, format_span, on_or_off, ratio, size, span};

/// The keys of a configuration that may change while a server runs.
pub const SETTINGS: [&str; 6] =
    ["populate", "populate_share", "populate_io", "client_idle", "recorder", "flash_write_budget"];

/// The settings to change.
#[derive(Args, Debug)]
pub struct SetArgs {
    #[command(flatten)]
    pub control: ControlArgs,
    /// Whether reads admit what they miss: off leaves the cache as it is, except for writes
    #[arg(long, value_name = "on|off", value_parser = on_or_off, action = clap::ArgAction::Set)]
    pub populate: Option<bool>,
    /// Share of the time in which population may use the origin while clients use it
    #[arg(long, value_name = "SHARE", value_parser = ratio)]
    pub populate_share: Option<f64>,
    /// Largest read of population, 4KiB to 1MiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub populate_io: Option<u64>,
    /// A connection without progress is closed after this time; 0s: never
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub client_idle: Option<Nanos>,
    /// Memory of each volume for its last requests; 0: for neither these nor the miss-ratio curve
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub recorder: Option<u64>,
    /// Bound on what is written to flash in a day: 300GB/day, 1DWPD, or any
    #[arg(long, value_name = "BYTES", value_parser = daily_writes)]
    pub flash_write_budget: Option<DailyWrites>,
    /// Print the configuration that the server uses, as a configuration file
    #[arg(long, conflicts_with_all = SETTINGS)]
    pub print_config: bool,
}

/// Prints the configuration of a running server, with the settings in use.
fn print_config(args: &ControlArgs) -> Result<()> {
    let answer = client::ask(&args.socket()?, &Command::Config, |_| ()).map_err(Coded::from)?;
    let config = merged(answer["config"].as_str().unwrap_or_default(), &words(&answer["settings"]));
    match args.json {
        true => out::line(json!({ "config": config })),
        false => out::line(config),
    }
}

/// A configuration with the values that settings have, all in the table of the cache, which has the key `populate`.
fn merged(config: &str, settings: &str) -> String {
    let key = |line: &str| line.split_once(" = ").map(|(key, _)| key.to_owned());
    let mut lines = Vec::new();
    for line in config.lines() {
        match key(line) {
            Some(key) if key == "populate" => {
                lines.extend(settings.lines().filter(|line| !line.starts_with('#')));
            }
            Some(key) if SETTINGS.contains(&key.as_str()) => {}
            _ => lines.push(line),
        }
    }
    lines.join("\n")
}

impl SetArgs {
    fn change(&self) -> Change {
        Change {
            populate: self.populate,
            populate_share_ratio: self.populate_share,
            populate_io_bytes: self.populate_io,
            client_idle_ns: self.client_idle,
            recorder_bytes: self.recorder,
            flash_write_budget: self.flash_write_budget,
        }
    }
}

/// Runs the command.
pub fn set(args: &SetArgs) -> Result<()> {
    if args.print_config {
        return print_config(&args.control);
    }
    ask(&args.control, &Command::Set(args.change()), words)
}

/// The settings in use, as keys of a configuration.
fn words(settings: &Value) -> String {
    let populate = if settings["populate"].as_bool().unwrap_or(true) { "on" } else { "off" };
    let share = settings["populate_share_ratio"].as_f64().unwrap_or_default();
    let budget: DailyWrites =
        serde_json::from_value(settings["flash_write_budget"].clone()).unwrap_or_default();
    let idle = match number(settings, "client_idle_ns") {
        0 => "# client_idle: never".to_owned(),
        ns => format!("client_idle = \"{}\"", format_span(ns)),
    };
    [
        format!("populate = \"{populate}\""),
        format!("populate_share = \"{}%\"", (share * 1e8).round() / 1e6),
        format!("populate_io = \"{}\"", format_size(number(settings, "populate_io_bytes"))),
        idle,
        format!("recorder = \"{}\"", format_size(number(settings, "recorder_bytes"))),
        format!("flash_write_budget = \"{}\"", format_daily_writes(budget)),
    ]
    .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_printed_as_keys_of_a_configuration() {
        let settings = json!({ "populate": false, "populate_share_ratio": 0.8, "populate_io_bytes": 1 << 20,
            "client_idle_ns": 0, "recorder_bytes": 8 << 20, "flash_write_budget": { "drives": 1.5 } });
        let expected = "populate = \"off\"\npopulate_share = \"80%\"\npopulate_io = \"1MiB\"\n\
            # client_idle: never\nrecorder = \"8MiB\"\nflash_write_budget = \"1.5DWPD\"";
        assert_eq!(words(&settings), expected);
        let config =
            "origin = \"o\"\n\n[cache.x]\npopulate = \"on\"\nclient_idle = \"1s\"\nflash = \"f\"";
        let now = expected.replace("# client_idle: never\n", "");
        let now = format!("origin = \"o\"\n\n[cache.x]\n{now}\nflash = \"f\"");
        assert_eq!(merged(config, expected), now);
        assert!(
            words(&json!({ "client_idle_ns": 60_000_000_000_u64 }))
                .contains("client_idle = \"1m\"")
        );
    }
}
