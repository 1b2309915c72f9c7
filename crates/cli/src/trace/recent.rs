// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder trace recent`: the last requests of a served volume, from its flight recorder, in figures and as a trace.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use clap::Args;
use larder_core::exec::Nanos;
use larder_front::control::client;
use larder_front::control::wire::{Answer, Command};
use larder_io::format_size;
use larder_trace::{Format, Op, Record};
use larder_volume::Answered;
use serde_json::{Value, json};

use super::output::Output;
use crate::control::ControlArgs;
use crate::exit::Coded;
use crate::out;
use crate::units::span;

/// How many of the slowest requests are listed.
const SLOWEST: usize = 10;

/// The volume, and which of its requests.
#[derive(Args, Debug)]
pub struct RecentArgs {
    #[command(flatten)]
    pub control: ControlArgs,
    /// Only the requests of the last part of the recording, as 60s
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub last: Option<Nanos>,
    /// The requests before the last alarm, instead of those until now
    #[arg(long)]
    pub alarm: bool,
    /// Also write them as a trace, which `larder sim` and `larder advise` replay; a name that ends in .zst is compressed
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// btr, csv, fio or oracleGeneral [default: by the name of FILE]
    #[arg(long, value_name = "FORMAT", value_parser = Format::by_name, requires = "out")]
    pub format: Option<Format>,
}

/// What a flight recorder has.
pub struct Recent {
    /// In the order of their arrival.
    pub requests: Vec<Answered>,
    /// The alarm before which they came.
    pub alarm: Option<String>,
}

impl Recent {
    /// Asks a server.
    pub fn of(control: &Path, at_alarm: bool, last: Option<Nanos>) -> Result<Self, Coded> {
        let command = Command::Recent { at_alarm, last_us: last.map(|span| span / 1000) };
        let mut requests = Vec::new();
        let answer = client::listen(control, &command, |answer| {
            if let Answer::Answered(some) = answer {
                requests.extend(some);
            }
        });
        let answer = answer.map_err(Coded::from)?;
        Ok(Self { requests, alarm: answer["alarm"].as_str().map(str::to_owned) })
    }

    /// Writes them as a trace, which begins at time 0.
    pub fn write(&self, path: &Path, format: Option<Format>) -> Result<()> {
        let mut output = Output::create(path, format)?;
        let began = self.requests.first().map_or(0, |request| request.at_us);
        for request in &self.requests {
            let op = if request.writes { Op::Write } else { Op::Read };
            let (at, len) = (request.at_us - began, u64::from(request.len_bytes));
            let record = Record::new(at, 0, op, request.offset_bytes, len);
            output.write(&[record.map_err(|e| anyhow!(e))?])?;
        }
        output.finish()
    }

    /// From the first arrival to the last.
    pub fn seconds(&self) -> f64 {
        let ends = self.requests.first().zip(self.requests.last());
        ends.map_or(0.0, |(first, last)| (last.at_us - first.at_us) as f64 / 1e6)
    }

    fn slowest(&self) -> Vec<&Answered> {
        let mut slowest: Vec<&Answered> = self.requests.iter().collect();
        slowest.sort_by_key(|request| std::cmp::Reverse(request.took_us));
        slowest.truncate(SLOWEST);
        slowest
    }
}

/// Figures of reads or of writes.
struct Figures {
    count: usize,
    hits: usize,
    failed: usize,
    /// Sorted latencies of those that succeeded.
    took_us: Vec<u32>,
}

impl Figures {
    fn of<'a>(requests: impl Iterator<Item = &'a Answered>) -> Self {
        let mut figures = Self { count: 0, hits: 0, failed: 0, took_us: Vec::new() };
        for request in requests {
            figures.count += 1;
            figures.hits += usize::from(request.hit);
            figures.failed += usize::from(!request.ok);
            if request.ok {
                figures.took_us.push(request.took_us);
            }
        }
        figures.took_us.sort_unstable();
        figures
    }

    /// A quantile of the latencies.
    fn at(&self, quantile: f64) -> Option<u32> {
        let last = self.took_us.len().checked_sub(1)?;
        Some(self.took_us[(last as f64 * quantile).round() as usize])
    }

    fn json(&self) -> Value {
        json!({
            "requests": self.count,
            "hits": self.hits,
            "failed": self.failed,
            "p50_us": self.at(0.5),
            "p99_us": self.at(0.99),
            "most_us": self.at(1.0),
        })
    }

    fn line(&self, what: &str) -> String {
        let us = |quantile| self.at(quantile).map_or_else(|| "-".to_owned(), |us| us.to_string());
        let hits = match self.count {
            0 => "-".to_owned(),
            count => format!("{:.1} %", self.hits as f64 * 100.0 / count as f64),
        };
        format!(
            "{what:8} {:>9}   hits {hits:>7}   p50 {:>8} us   p99 {:>8} us   most {:>9} us   failed {}",
            self.count,
            us(0.5),
            us(0.99),
            us(1.0),
            self.failed
        )
    }
}

/// The time of day in UTC.
fn time_of_day(at_us: u64) -> String {
    let (seconds, us) = (at_us / 1_000_000 % 86_400, at_us % 1_000_000);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{us:06}", seconds % 60)
}

/// Runs the command.
pub fn recent(args: &RecentArgs) -> Result<()> {
    let recent = Recent::of(&args.control.socket()?, args.alarm, args.last)?;
    if let Some(path) = &args.out {
        recent.write(path, args.format)?;
    }
    let of = |writes| Figures::of(recent.requests.iter().filter(|r| r.writes == writes));
    let (reads, writes) = (of(false), of(true));
    if args.control.json {
        return out::line(json!({
            "alarm": recent.alarm,
            "began_unix_us": recent.requests.first().map(|request| request.at_us),
            "duration_seconds": recent.seconds(),
            "reads": reads.json(),
            "writes": writes.json(),
            "slowest": recent.slowest().into_iter().map(slow_json).collect::<Vec<_>>(),
        }));
    }
    for line in words(&recent, &reads, &writes) {
        out::line(line)?;
    }
    Ok(())
}

fn slow_json(request: &Answered) -> Value {
    json!({
        "at_unix_us": request.at_us,
        "writes": request.writes,
        "offset_bytes": request.offset_bytes,
        "length_bytes": request.len_bytes,
        "took_us": request.took_us,
        "hit": request.hit,
        "ok": request.ok,
    })
}

fn words(recent: &Recent, reads: &Figures, writes: &Figures) -> Vec<String> {
    let mut lines: Vec<String> =
        recent.alarm.iter().map(|alarm| format!("before the alarm: {alarm}")).collect();
    let (Some(first), Some(last)) = (recent.requests.first(), recent.requests.last()) else {
        lines.push("no requests".to_owned());
        return lines;
    };
    lines.push(format!(
        "{} requests in {:.1} s, from {} to {} UTC",
        recent.requests.len(),
        recent.seconds(),
        time_of_day(first.at_us),
        time_of_day(last.at_us)
    ));
    lines.extend([reads.line("reads"), writes.line("writes")]);
    lines.push("the slowest:".to_owned());
    lines.extend(recent.slowest().into_iter().map(|request| {
        format!(
            "  {}  {:5} {:>9} at {:>15}  {:>9} us  {}{}",
            time_of_day(request.at_us),
            if request.writes { "write" } else { "read" },
            format_size(u64::from(request.len_bytes)),
            request.offset_bytes,
            request.took_us,
            if request.hit { "hit" } else { "miss" },
            if request.ok { "" } else { ", failed" }
        )
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(at_us: u64, took_us: u32, writes: bool, hit: bool) -> Answered {
        let (offset_bytes, len_bytes, ok) = (at_us * 4096, 4096, true);
        Answered { at_us, offset_bytes, len_bytes, took_us, writes, hit, ok }
    }

    #[test]
    fn figures_are_of_reads_and_writes_apart_and_the_slowest_come_first() {
        let mut requests: Vec<Answered> =
            (0..100).map(|n| request(1_000_000 + n, n as u32, n % 4 == 0, n < 50)).collect();
        requests[99].ok = false;
        let recent = Recent { requests, alarm: Some("flash".to_owned()) };
        let of = |writes| Figures::of(recent.requests.iter().filter(|r| r.writes == writes));
        let (reads, writes) = (of(false), of(true));
        assert_eq!((reads.count, reads.failed, writes.count, writes.hits), (75, 1, 25, 13));
        assert_eq!((writes.at(0.5), writes.at(1.0), reads.at(1.0)), (Some(48), Some(96), Some(98)));
        let lines = words(&recent, &reads, &writes);
        assert_eq!(lines[0], "before the alarm: flash");
        assert_eq!(lines[1], "100 requests in 0.0 s, from 00:00:01.000000 to 00:00:01.000099 UTC");
        assert!(lines[5].ends_with("99 us  miss, failed"), "{}", lines[5]);
        assert_eq!(lines.len(), 5 + SLOWEST);
        let none = Recent { requests: Vec::new(), alarm: None };
        assert_eq!(words(&none, &of(false), &of(true)), ["no requests"]);
        assert_eq!(none.seconds(), 0.0);
    }

    #[test]
    fn times_of_day_are_of_utc() {
        assert_eq!(time_of_day(86_400_000_000 * 20_000 + 3_723_000_004), "01:02:03.000004");
    }
}
