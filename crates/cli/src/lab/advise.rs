// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder advise`: whether a flash cache pays for a trace, how large, and in which mode.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use comfy_table::{Table, presets};
use larder_lab::advise::endurance::Endurance;
use larder_lab::advise::{
    Advice, Advised, Asked, Point, REQUESTS, advise as ask, other, page, size,
};
use larder_report::{About, number};

use crate::out;
use crate::trace::read::ReadArgs;
use crate::units::{self, jobs};

/// The trace and the devices.
#[derive(Args, Debug)]
pub struct AdviseArgs {
    /// The trace
    #[arg(long, value_name = "TRACE")]
    pub trace: PathBuf,
    #[command(flatten)]
    pub read: ReadArgs,
    /// Model of the slow device, as san-1g or hdd-7200 (docs/simulation.md lists all)
    #[arg(long, value_name = "PROFILE")]
    pub origin_profile: String,
    /// Model of the flash device, as ssd-s3500; models that end in -ftl include write amplification
    #[arg(long, value_name = "PROFILE")]
    pub flash_profile: String,
    /// Rated endurance: bytes written, as 600TB, or drive writes a day for five years [default: 1DWPD]
    #[arg(long, value_name = "TBW|DWPD", value_parser = endurance)]
    pub endurance: Option<Endurance>,
    /// Requests to replay at most for each point
    #[arg(
        long, value_name = "N", default_value_t = REQUESTS,
        value_parser = clap::value_parser!(i64).range(1..),
    )]
    pub requests: i64,
    /// Seed; equal seeds give equal advice on any machine
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: i64,
    /// Threads; results do not depend on them [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub jobs: Option<usize>,
    /// Print one JSON value
    #[arg(long)]
    pub json: bool,
    /// Also write one HTML file with both curves and all numbers
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

fn endurance(text: &str) -> Result<Endurance, String> {
    let wrong = || format!("got '{text}', accepted bytes, as 600TB, or as 0.3DWPD");
    let upper = text.to_ascii_uppercase();
    if let Some(times) = upper.strip_suffix("DWPD") {
        let times = times.trim().parse::<f64>().ok().filter(|n| (1e-3..=1e3).contains(n));
        return times.map(Endurance::DriveWritesPerDay).ok_or_else(wrong);
    }
    match units::size(text) {
        Ok(bytes) if bytes > 0 => Ok(Endurance::Written(bytes)),
        _ => Err(wrong()),
    }
}

/// Runs the command. Advice against a cache is an answer, not a failure.
pub fn advise(args: &AdviseArgs) -> Result<()> {
    let path = args.trace.to_str().context("--trace: is no UTF-8, as a scenario must be")?;
    let mut keys = toml::Table::from_iter([("path".to_owned(), path.into())]);
    keys.extend(
        super::sim::args::trace_keys(&args.read)
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value)),
    );
    let advice = ask(&Asked {
        name: path.to_owned(),
        trace: larder_trace::Trace::new(&args.trace, args.read.options()),
        trace_keys: keys,
        origin: args.origin_profile.clone(),
        flash: args.flash_profile.clone(),
        requests: args.requests,
        endurance: args.endurance,
        seed: args.seed,
        jobs: args.jobs,
    })?;
    if let Some(path) = &args.report {
        let about = About {
            title: format!("Larder: advice for {}", args.trace.display()),
            command: out::command_line(),
            seeds: args.seed.to_string(),
        };
        let html = page(&about, &advice);
        std::fs::write(path, html).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        return out::line(serde_json::to_string(&advice)?);
    }
    out::line(words(&advice))
}

fn words(advice: &Advice) -> String {
    let duration = match advice.duration_seconds {
        Some(seconds) => format!("{} s", number(seconds)),
        None => "without times".to_owned(),
    };
    let mut lines = vec![
        format!(
            "trace: {} requests, {} % writes, footprint {} (in units of 1 MiB {}), {duration}",
            advice.requests,
            number(advice.write_ratio * 100.0),
            size(advice.footprint_bytes),
            size(advice.touched_unit_bytes),
        ),
        String::new(),
        table(advice).to_string(),
        String::new(),
        advice.verdict.clone(),
    ];
    lines.extend(advice.advised.iter().flat_map(details));
    lines.extend(advice.others.iter().map(other));
    lines.push(String::new());
    lines.push("assumed:".to_owned());
    lines.extend(advice.assumptions.iter().map(|text| format!("- {text}")));
    if let Some(toml) = &advice.toml {
        lines.push(format!("\n{}", toml.trim_end()));
    }
    lines.join("\n")
}

fn details(advised: &Advised) -> Vec<String> {
    let wear = &advised.wear;
    let factor = |factor: Option<f64>| factor.map_or("-".to_owned(), number);
    let years = match wear.years {
        Some(years) => format!("lasts {} years", number(years)),
        None => "is not written".to_owned(),
    };
    let amplified = match wear.write_amplification {
        Some(times) => format!(", write amplification {}", number(times)),
        None => String::new(),
    };
    vec![
        format!(
            "saved: reads {} times as fast, writes {} times, {} % of the origin's operations",
            factor(advised.read_factor),
            factor(advised.write_factor),
            number(advised.origin_operations_saved_ratio * 100.0)
        ),
        format!(
            "flash: {} with its metadata; {} written a day, {} times a drive of {} GB{amplified}; it {years}",
            size(advised.device_bytes),
            size(wear.flash_write_bytes_per_day as u64),
            number(wear.drive_writes_per_day),
            number(wear.drive_bytes as f64 / 1e9)
        ),
        format!("memory: {}", size(advised.point.memory_bytes)),
    ]
}

fn table(advice: &Advice) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "system",
        "flash",
        "hits",
        "read us",
        "p99",
        "write us",
        "flash written",
        "",
    ]);
    let advised = advice.advised.as_ref().map(|advised| &advised.point);
    let dash = |value: Option<f64>| value.map_or("-".to_owned(), number);
    let mut row = |point: &Point| {
        let flash = point.flash_bytes > 0;
        table.add_row([
            point.system.clone(),
            if flash { size(point.flash_bytes) } else { "-".to_owned() },
            point.hit_ratio.map_or("-".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0)),
            dash(point.read_us_mean),
            dash(point.read_us_p99),
            dash(point.write_us_mean),
            if flash { size(point.flash_write_bytes) } else { "-".to_owned() },
            if advised == Some(point) { "<- advised" } else { "" }.to_owned(),
        ]);
    };
    row(&advice.alone);
    advice.points.iter().for_each(row);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endurance_is_bytes_or_drive_writes() {
        assert_eq!(endurance("600TB"), Ok(Endurance::Written(600_000_000_000_000)));
        assert_eq!(endurance("0.3DWPD"), Ok(Endurance::DriveWritesPerDay(0.3)));
        assert_eq!(endurance("3 dwpd"), Ok(Endurance::DriveWritesPerDay(3.0)));
        for bad in ["", "0", "0DWPD", "-1DWPD", "DWPD", "five", "nanDWPD"] {
            assert!(endurance(bad).unwrap_err().contains("accepted"), "{bad}");
        }
    }
}
