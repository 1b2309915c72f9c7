// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cached`, `warm`, `evict`, `scrub`, `pin`, `unpin` and `exclude`: commands for a whole volume, for ranges of it, or for files of a file
//! system on it.
//!
//! Ranges are sorted by their place, and those that touch are joined, so that the origin is read in its order.

mod places;

use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use larder_core::exec::Nanos;
use larder_core::ranges::merged;
use larder_front::control::wire::{Command, Extent};
use larder_io::rough_size;
use larder_volume::{MOST_PLACES, RangeRule};
use serde_json::Value;

use crate::control::ControlArgs;
use crate::exit::Coded;
use crate::operate::{answer, ask, number, print, volume_bytes, whole_seconds};
use crate::units::size;

/// Ranges that fit into one request.
pub const MOST_RANGES: usize = 50_000;

/// What a command is for.
#[derive(Args, Debug)]
pub struct RangesArgs {
    #[command(flatten)]
    pub control: ControlArgs,
    /// Ranges of bytes of the volume, each as OFFSET+LENGTH: 10GiB+512MiB
    #[arg(value_name = "RANGE", value_parser = range)]
    pub ranges: Vec<Range<u64>>,
    /// The whole volume
    #[arg(long, conflicts_with_all = ["ranges", "file"])]
    pub all: bool,
    /// A file on a file system (ext2 to ext4, XFS, F2FS) that lies on the volume's block device; may be given several times
    #[arg(long, value_name = "PATH")]
    pub file: Vec<PathBuf>,
}

/// `warm`.
#[derive(Args, Debug)]
pub struct WarmArgs {
    #[command(flatten)]
    pub of: RangesArgs,
    /// Bytes per second at most [default: as fast as population goes, which leaves most of the origin to clients]
    #[arg(long, value_parser = pace, value_name = "SIZE")]
    pub pace: Option<u64>,
    /// Time after which it ends, in whole seconds
    #[arg(long, value_parser = whole_seconds, value_name = "SPAN")]
    pub bound: Option<Nanos>,
}

/// `scrub`.
#[derive(Args, Debug)]
pub struct ScrubArgs {
    #[command(flatten)]
    pub of: RangesArgs,
    /// Bytes of the volume per second at most [default: one read of each worker at a time]
    #[arg(long, value_parser = pace, value_name = "SIZE")]
    pub pace: Option<u64>,
    /// Time after which it ends, in whole seconds
    #[arg(long, value_parser = whole_seconds, value_name = "SPAN")]
    pub bound: Option<Nanos>,
}

/// `exclude`.
#[derive(Args, Debug)]
pub struct ExcludeArgs {
    #[command(flatten)]
    pub of: RangesArgs,
    /// End the exclusion of these ranges: reads may cache them again
    #[arg(long)]
    pub undo: bool,
}

/// Parses OFFSET+LENGTH.
pub fn range(text: &str) -> Result<Range<u64>, String> {
    let accepted = || format!("got '{text}', accepted OFFSET+LENGTH, as 10GiB+512MiB");
    let (offset, length) = text.split_once('+').ok_or_else(accepted)?;
    let (offset, length) = (size(offset)?, size(length)?);
    let end = offset.checked_add(length).filter(|end| *end > offset);
    Ok(offset..end.ok_or_else(accepted)?)
}

/// Parses a pace, with or without `/s`.
pub fn pace(text: &str) -> Result<u64, String> {
    match size(text.strip_suffix("/s").unwrap_or(text))? {
        0 => Err(format!("got '{text}', accepted from 1 byte a second, as 100MiB")),
        bytes => Ok(bytes),
    }
}

/// `cached`.
pub fn cached(args: &RangesArgs) -> Result<()> {
    let ranges = extents(args)?;
    ask(&args.control, &Command::Cached { ranges }, |value| {
        let (all, cached) = (number(value, "range_bytes"), number(value, "cached_bytes"));
        let percent = 100.0 * cached as f64 / all.max(1) as f64;
        format!("{} of {} on flash ({percent:.1} %)", rough_size(cached), rough_size(all))
    })
}

/// `warm`.
pub fn warm(args: &WarmArgs) -> Result<()> {
    let (ranges, bound_seconds) =
        (extents(&args.of)?, args.bound.map(|bound| bound / 1_000_000_000));
    let command =
        Command::Warm { ranges, pace_bytes: args.pace, bound_seconds, beside_bytes: None };
    ask(&args.of.control, &command, |value| {
        let (all, passed) = (number(value, "range_bytes"), number(value, "passed_bytes"));
        let ended = match passed < all {
            true => format!("; the time was over after {}", rough_size(passed)),
            false => String::new(),
        };
        let cached = rough_size(number(value, "cached_bytes"));
        format!("warmed: {cached} of {} on flash{ended}", rough_size(all))
    })
}

/// `evict`.
pub fn evict(args: &RangesArgs) -> Result<()> {
    let ranges = extents(args)?;
    ask(&args.control, &Command::Evict { ranges }, |value| {
        let left = match number(value, "cached_bytes") {
            0 => String::new(),
            left => format!("; {} cached again", rough_size(left)),
        };
        format!("evicted: {}{left}", rough_size(number(value, "range_bytes")))
    })
}

/// `scrub`.
pub fn scrub(args: &ScrubArgs) -> Result<()> {
    let ranges = extents(&args.of)?;
    let bound_seconds = args.bound.map(|bound| bound / 1_000_000_000);
    let command = Command::Scrub { ranges, pace_bytes: args.pace, bound_seconds };
    let value = answer(&args.of.control, &command)?;
    print(&args.of.control, &value, scrubbed)?;
    match number(&value, "damaged_pages") {
        0 => Ok(()),
        damaged => {
            let message = format!("{damaged} pages on flash were damaged");
            bail!(Coded { code: 1, message })
        }
    }
}

fn scrubbed(value: &Value) -> String {
    let (all, passed) = (number(value, "range_bytes"), number(value, "passed_bytes"));
    let ended = match passed < all {
        true => format!("; the time was over after {}", rough_size(passed)),
        false => String::new(),
    };
    let (damaged, lost) = (number(value, "damaged_pages"), number(value, "lost_pages"));
    let cached = rough_size(number(value, "cached_bytes"));
    let mut text = format!(
        "scrubbed: {cached} on flash of {}; {damaged} pages damaged, {lost} of them lost{ended}",
        rough_size(all)
    );
    let places = value["places"].as_array().map_or(&[][..], Vec::as_slice);
    for place in places {
        let what = if place["lost"] == true { "lost" } else { "damaged" };
        text += &format!("\n{what}: {}+{}", place["offset"], place["length"]);
    }
    if places.len() == MOST_PLACES {
        text += "\nfurther ones are not listed";
    }
    text
}

/// `pin`.
pub fn pin(args: &RangesArgs) -> Result<()> {
    let ranges = extents(args)?;
    ask(&args.control, &Command::Rule { rule: RangeRule::Pin, ranges }, |value| {
        let (all, cached) = (number(value, "range_bytes"), number(value, "cached_bytes"));
        let rest = if cached < all { rest(value) } else { "" };
        format!("pinned: {} of {} on flash{rest}", rough_size(cached), rough_size(all))
    })
}

/// When what is left follows.
fn rest(value: &Value) -> &'static str {
    match value["rest"].as_str() {
        Some("needs_flash") => "; the rest follows once the volume has a flash device",
        Some("needs_population") => "; the rest follows once population is on",
        _ => "; the rest follows in the background",
    }
}

/// `unpin`.
pub fn unpin(args: &RangesArgs) -> Result<()> {
    let ranges = extents(args)?;
    ask(&args.control, &Command::Rule { rule: RangeRule::Unpin, ranges }, |value| {
        let (all, cached) = (number(value, "range_bytes"), number(value, "cached_bytes"));
        format!("unpinned: {}, of which {} stay on flash", rough_size(all), rough_size(cached))
    })
}

/// `exclude`.
pub fn exclude(args: &ExcludeArgs) -> Result<()> {
    let ranges = extents(&args.of)?;
    let rule = if args.undo { RangeRule::Include } else { RangeRule::Exclude };
    ask(&args.of.control, &Command::Rule { rule, ranges }, |value| {
        let all = rough_size(number(value, "range_bytes"));
        match (args.undo, number(value, "cached_bytes")) {
            (true, _) => format!("no longer excluded: {all}"),
            (false, 0) => format!("excluded: {all}"),
            (false, left) => format!("excluded: {all}, of which {} leave flash", rough_size(left)),
        }
    })
}

/// The ranges that the arguments name, in the order of their place.
fn extents(args: &RangesArgs) -> Result<Vec<Extent>> {
    let mut ranges = args.ranges.clone();
    if args.all || !args.file.is_empty() {
        let volume_bytes = volume_bytes(&args.control.socket()?)?;
        ranges.extend(args.all.then_some(0..volume_bytes));
        for file in &args.file {
            let places = places::of_file(file, volume_bytes);
            ranges.extend(places.with_context(|| format!("--file {}", file.display()))?);
        }
    }
    let ranges = merged(ranges);
    match ranges.len() {
        0 if args.file.is_empty() => {
            bail!("no range is given; accepted: OFFSET+LENGTH, --all, or --file PATH")
        }
        0 => bail!("--file: no bytes on the volume; accepted: files with data"),
        1..=MOST_RANGES => Ok(ranges
            .into_iter()
            .map(|range| Extent { offset: range.start, length: range.end - range.start })
            .collect()),
        n => bail!("{n} separate ranges; accepted: up to {MOST_RANGES} in one command"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_an_offset_and_a_length() {
        assert_eq!(range("1MiB+4KiB"), Ok(1 << 20..(1 << 20) + 4096));
        assert_eq!(range("0+512"), Ok(0..512));
        for bad in ["", "5", "5+", "+5", "5+0", "1+18446744073709551615", "a+b", "1-2"] {
            assert!(range(bad).is_err(), "{bad}");
        }
        assert_eq!(pace("1MiB/s"), Ok(1 << 20));
        assert!(pace("0").is_err() && pace("fast").is_err());
    }
}
