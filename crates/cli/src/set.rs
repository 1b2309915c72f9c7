// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder set`: shows and changes settings of a serving process.

use anyhow::Result;
use clap::Args;
use larder_core::config::{ReplacementChoice, WritePolicy};
use larder_core::exec::Nanos;
use larder_front::control::client;
use larder_front::control::wire::Command;
use larder_io::{format_size, format_span};
use larder_volume::{ByName, Change, DailyWrites};
use serde_json::{Value, json};

use crate::control::ControlArgs;
use crate::exit::Coded;
use crate::operate::{ask, number};
use crate::out;
use crate::units::{daily_writes, format_daily_writes, on_or_off, ratio, size, span};

/// The keys of a configuration that may change while a server runs.
pub const SETTINGS: [&str; 13] = [
    "populate",
    "populate_share",
    "populate_io",
    "client_idle",
    "recorder",
    "flash_write_budget",
    "write_policy",
    "replacement",
    "write_buffer",
    "flash_timeout",
    "flash_dead_after",
    "flash_errors_per_minute",
    "ordered_lag",
];

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
    /// When a write is copied to flash: async, through or around, in a cache of units whose flash holds copies only
    #[arg(long, value_name = "POLICY", value_parser = ByName::<WritePolicy>::parse)]
    pub write_policy: Option<ByName<WritePolicy>>,
    /// What is evicted, in a cache of units that has a replacement policy; it begins again, as after a restart
    #[arg(long, value_name = "POLICY", value_parser = ByName::<ReplacementChoice>::parse)]
    pub replacement: Option<ByName<ReplacementChoice>>,
    /// Memory for acknowledged client data that is still to be written to flash
    #[arg(long, value_name = "SIZE", value_parser = size, hide_short_help = true)]
    pub write_buffer: Option<u64>,
    /// After this time a request that waits for flash is answered from the origin
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub flash_timeout: Option<Nanos>,
    /// A flash device with an operation that is unanswered for longer counts as failed
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub flash_dead_after: Option<Nanos>,
    /// Flash errors within a minute after which the device counts as failed
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub flash_errors_per_minute: Option<u32>,
    /// With --write-policy ordered: writes wait while the origin lacks older ones; at least 100ms
    #[arg(long, value_name = "SPAN", value_parser = span, hide_short_help = true)]
    pub ordered_lag: Option<Nanos>,
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
    let shown: Vec<String> = settings.lines().filter_map(key).collect();
    // Of another policy than that of the configuration.
    let has_ceiling = settings.lines().any(|line| line == "replacement = \"gclock\"");
    let mut lines = Vec::new();
    for line in config.lines() {
        match key(line) {
            Some(key) if key == "populate" => {
                lines.extend(settings.lines().filter(|line| !line.starts_with('#')));
            }
            Some(key) if key == "client_idle" || shown.contains(&key) => {}
            Some(key) if key == "clock_ceiling_count" && !has_ceiling => {}
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
            flash_timeout_ns: self.flash_timeout,
            flash_dead_after_ns: self.flash_dead_after,
            flash_errors_per_minute: self.flash_errors_per_minute,
            write_buffer_bytes: self.write_buffer,
            ordered_lag_ns: self.ordered_lag,
            write_policy: self.write_policy.map(Some),
            replacement: self.replacement.map(Some),
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
    let bytes = |key: &str| format_size(number(settings, &format!("{key}_bytes")));
    let time = |key: &str| format_span(number(settings, &format!("{key}_ns")));
    let idle = match number(settings, "client_idle_ns") {
        0 => "# client_idle: never".to_owned(),
        _ => format!("client_idle = \"{}\"", time("client_idle")),
    };
    let mut lines = vec![
        format!("populate = \"{populate}\""),
        format!("populate_share = \"{}%\"", (share * 1e8).round() / 1e6),
        format!("populate_io = \"{}\"", bytes("populate_io")),
        idle,
        format!("recorder = \"{}\"", bytes("recorder")),
        format!("flash_write_budget = \"{}\"", format_daily_writes(budget)),
        format!("write_buffer = \"{}\"", bytes("write_buffer")),
        format!("flash_timeout = \"{}\"", time("flash_timeout")),
        format!("flash_dead_after = \"{}\"", time("flash_dead_after")),
        format!("flash_errors_per_minute = {}", number(settings, "flash_errors_per_minute")),
        format!("ordered_lag = \"{}\"", time("ordered_lag")),
    ];
    // An older server does not have all of them.
    lines.retain(|line| {
        let key = line.trim_start_matches("# ").split([' ', ':']).next().unwrap_or_default();
        ["", "_ratio", "_bytes", "_ns"]
            .iter()
            .any(|unit| !settings[format!("{key}{unit}")].is_null())
    });
    for key in ["write_policy", "replacement"] {
        lines.extend(settings[key].as_str().map(|name| format!("{key} = \"{name}\"")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_printed_as_keys_of_a_configuration() {
        let settings = json!({ "populate": false, "populate_share_ratio": 0.8, "populate_io_bytes": 1 << 20,
            "client_idle_ns": 0, "recorder_bytes": 8 << 20, "flash_write_budget": { "drives": 1.5 },
            "flash_timeout_ns": 2_000_000_000_u64, "flash_dead_after_ns": 30_000_000_000_u64,
            "flash_errors_per_minute": 16, "write_buffer_bytes": 8 << 20, "ordered_lag_ns": 100_000_000,
            "write_policy": null, "replacement": "lru" });
        let expected = "populate = \"off\"\npopulate_share = \"80%\"\npopulate_io = \"1MiB\"\n\
            # client_idle: never\nrecorder = \"8MiB\"\nflash_write_budget = \"1.5DWPD\"\nwrite_buffer = \"8MiB\"\n\
            flash_timeout = \"2s\"\nflash_dead_after = \"30s\"\nflash_errors_per_minute = 16\n\
            ordered_lag = \"100ms\"\nreplacement = \"lru\"";
        assert_eq!(words(&settings), expected);
        let config = "origin = \"o\"\n\n[cache.x]\nwrite_policy = \"full\"\nreplacement = \"gclock\"\n\
            clock_ceiling_count = 4\npopulate = \"on\"\nclient_idle = \"1s\"\nflash = \"f\"";
        let now = expected.replace("# client_idle: never\n", "");
        let now =
            format!("origin = \"o\"\n\n[cache.x]\nwrite_policy = \"full\"\n{now}\nflash = \"f\"");
        assert_eq!(merged(config, expected), now);
        assert!(words(&json!({ "client_idle_ns": 60_000_000_000_u64 })) == "client_idle = \"1m\"");
    }
}
