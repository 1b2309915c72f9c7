// SPDX-License-Identifier: MIT OR Apache-2.0
//! `heat export`, `heat from-trace` and `heat import`: the list of what a cache holds, or of what a trace reads, from which a cache of
//! the same volume is warmed.
//!
//! The file is text: a first line with the format's name and the number of parts, then one part a line, as `OFFSET LENGTH READS` in
//! decimal bytes. Parts that are read most come first; parts that are read about as much (within a factor of two) are in the order of
//! their place, so that they are read from the origin in its order.
//!
//! Import warms the parts in this order, as many as fit on flash.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use larder_core::exec::Nanos;
use larder_front::control::client;
use larder_front::control::wire::{Answer, Command, Extent};
use larder_io::rough_size;
use larder_trace::{Op, PAGE_BYTES, Trace};
use serde_json::json;

use crate::control::ControlArgs;
use crate::exit::Coded;
use crate::operate::{number, volume_bytes, whole_seconds};
use crate::out;
use crate::ranges::{MOST_RANGES, pace};
use crate::trace::read::ReadArgs;

/// The first line of a file.
const HEAD: &str = "larder-heat 1 ";
/// The longest line.
const LONGEST: u64 = 80;

/// The commands.
#[derive(Subcommand, Debug)]
pub enum HeatCommand {
    /// Write what flash has of a volume, and how much it is read, to a file
    Export(ExportArgs),
    /// Write what a trace of the volume reads, and how often, to a file
    FromTrace(FromTraceArgs),
    /// Copy to flash what a file lists, the most read parts first
    Import(ImportArgs),
}

/// `heat export`.
#[derive(Args, Debug)]
pub struct ExportArgs {
    #[command(flatten)]
    pub control: ControlArgs,
    /// The file to write; one that exists is replaced
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// `heat from-trace`.
#[derive(Args, Debug)]
pub struct FromTraceArgs {
    /// The trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// The file to write; one that exists is replaced
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub read: ReadArgs,
    /// Print one JSON value
    #[arg(long)]
    pub json: bool,
}

/// `heat import`.
#[derive(Args, Debug)]
pub struct ImportArgs {
    #[command(flatten)]
    pub control: ControlArgs,
    /// A file of `heat export` or `heat from-trace`
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Bytes per second at most [default: as fast as population goes, which leaves most of the origin to clients]
    #[arg(long, value_parser = pace, value_name = "SIZE")]
    pub pace: Option<u64>,
    /// Time after which it ends, in whole seconds
    #[arg(long, value_parser = whole_seconds, value_name = "SPAN")]
    pub bound: Option<Nanos>,
}

/// A part of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    offset: u64,
    length: u64,
    reads: u64,
}

impl Part {
    /// Parts with the same are read about as much.
    fn class(&self) -> u32 {
        u64::BITS - self.reads.leading_zeros()
    }
}

/// Runs one of the commands.
pub fn heat(command: &HeatCommand) -> Result<()> {
    match command {
        HeatCommand::Export(args) => export(args),
        HeatCommand::FromTrace(args) => from_trace(args),
        HeatCommand::Import(args) => import(args),
    }
}

fn export(args: &ExportArgs) -> Result<()> {
    let mut parts = Vec::new();
    let answer = client::listen(&args.control.socket()?, &Command::Heat, |answer| {
        if let Answer::Heat(some) = answer {
            parts.extend(some.into_iter().map(|[offset, length, reads]| Part {
                offset,
                length,
                reads,
            }));
        }
    });
    answer.map_err(Coded::from)?;
    put(parts, &args.file, args.control.json, "cached_bytes")
}

/// The pages of 4 KiB that the reads of a trace touch.
fn from_trace(args: &FromTraceArgs) -> Result<()> {
    let mut records = Trace::new(&args.trace, args.read.options()).records()?;
    let mut reads: HashMap<u64, u64> = HashMap::new();
    let mut device = None;
    while let Some(batch) = records.next_batch()? {
        for record in batch.iter().filter(|record| record.op != Op::Write) {
            if *device.get_or_insert(record.dev) != record.dev {
                let at = args.trace.display();
                bail!("{at}: has requests of several devices; accepted: one of them, with --dev N");
            }
            let pages = record.offset_bytes / PAGE_BYTES..record.end_bytes().div_ceil(PAGE_BYTES);
            pages.for_each(|page| *reads.entry(page).or_default() += 1);
        }
    }
    let part =
        |(page, reads): (u64, u64)| Part { offset: page * PAGE_BYTES, length: PAGE_BYTES, reads };
    put(reads.into_iter().map(part).collect(), &args.file, args.json, "listed_bytes")
}

/// Writes a list, and prints what it has.
fn put(parts: Vec<Part>, file: &Path, json: bool, key: &str) -> Result<()> {
    let parts = ordered(parts);
    let bytes = parts.iter().map(|part| part.length).sum();
    write(file, &parts).with_context(|| file.display().to_string())?;
    if json {
        return out::line(json!({ "parts": parts.len(), key: bytes }));
    }
    out::line(format!("{}: {} in {} parts", file.display(), rough_size(bytes), parts.len()))
}

/// In the order of the file; neighbours that are read about as much are one part.
fn ordered(mut parts: Vec<Part>) -> Vec<Part> {
    parts.sort_unstable_by_key(|part| (std::cmp::Reverse(part.class()), part.offset));
    let mut joined: Vec<Part> = Vec::with_capacity(parts.len());
    for part in parts {
        let adjoins = |last: &&mut Part| {
            last.class() == part.class() && part.offset <= last.offset + last.length
        };
        match joined.last_mut().filter(adjoins) {
            Some(last) => {
                let end = (part.offset + part.length).max(last.offset + last.length);
                (last.length, last.reads) = (end - last.offset, last.reads.max(part.reads));
            }
            None => joined.push(part),
        }
    }
    joined
}

/// Writes the file whole, or leaves what was there.
fn write(path: &Path, parts: &[Part]) -> Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().display();
    let new = dir.join(format!(".{name}.{}.new", std::process::id()));
    let done = write_new(&new, parts).and_then(|()| Ok(std::fs::rename(&new, path)?));
    if done.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    done
}

fn write_new(new: &Path, parts: &[Part]) -> Result<()> {
    // A link of this name is not followed.
    let file = std::fs::OpenOptions::new().write(true).create_new(true).open(new)?;
    let mut file = std::io::BufWriter::new(file);
    writeln!(file, "{HEAD}{}", parts.len())?;
    for Part { offset, length, reads } in parts {
        writeln!(file, "{offset} {length} {reads}")?;
    }
    Ok(file.into_inner().map_err(|e| e.into_error())?.sync_all()?)
}

/// Reads a file.
fn read(path: &Path) -> Result<Vec<Part>> {
    let mut lines = BufReader::new(std::fs::File::open(path)?);
    let (mut line, mut number, mut parts) = (Vec::new(), 0_u64, Vec::new());
    let mut listed = None;
    loop {
        line.clear();
        number += 1;
        if std::io::Read::take(&mut lines, LONGEST).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if number == 1 {
            listed = text.strip_prefix(HEAD).and_then(|count| count.parse::<usize>().ok());
            if listed.is_none() {
                bail!(
                    "line 1: not a list of heat; accepted: a file of larder heat export or from-trace"
                );
            }
            continue;
        }
        let part = part(text).with_context(|| {
            format!(
                "line {number}: got '{}', accepted OFFSET LENGTH READS in decimal",
                text.escape_debug()
            )
        })?;
        parts.push(part);
    }
    match listed {
        None => bail!("is empty; accepted: a file of larder heat export"),
        Some(listed) if listed != parts.len() => bail!(
            "has {} parts, its first line states {listed}; accepted: a whole file of larder heat export",
            parts.len()
        ),
        Some(_) => Ok(parts),
    }
}

/// Parses a line.
fn part(text: &str) -> Option<Part> {
    let mut words = text.split(' ').map(|word| word.parse().ok());
    let (offset, length, reads) = (words.next()??, words.next()??, words.next()??);
    let ends = words.next().is_none() && length > 0 && u64::checked_add(offset, length).is_some();
    ends.then_some(Part { offset, length, reads })
}

fn import(args: &ImportArgs) -> Result<()> {
    let parts = read(&args.file).with_context(|| args.file.display().to_string())?;
    let socket = args.control.socket()?;
    let listed = parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.length));
    let began = std::time::Instant::now();
    let (mut passed, mut cached, mut beside) = (0, 0, 0);
    for some in extents(&parts, volume_bytes(&socket)?).chunks(MOST_RANGES) {
        let bound = args
            .bound
            .map(|bound| (bound / 1_000_000_000).saturating_sub(began.elapsed().as_secs()));
        let command = Command::Warm {
            ranges: some.to_vec(),
            pace_bytes: args.pace,
            bound_seconds: bound,
            beside_bytes: Some(beside),
        };
        let done = client::ask(&socket, &command, |text| out::tell!("{text}"));
        let done = done.map_err(Coded::from)?;
        beside = number(&done, "flash_bytes");
        passed += number(&done, "passed_bytes");
        cached += number(&done, "cached_bytes");
        if number(&done, "passed_bytes") < some.iter().map(|extent| extent.length).sum() {
            break;
        }
    }
    if args.control.json {
        return out::line(json!({
            "listed_bytes": listed, "passed_bytes": passed, "cached_bytes": cached,
        }));
    }
    out::line(format!("warmed: {} of {} on flash", rough_size(cached), rough_size(listed)))
}

/// The parts that lie on the volume, in their order; those that follow each other in both are one.
fn extents(parts: &[Part], volume_bytes: u64) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    for Part { offset, length, .. } in parts {
        let length = (offset + length).min(volume_bytes).saturating_sub(*offset);
        match extents.last_mut().filter(|last| last.offset + last.length == *offset) {
            Some(last) => last.length += length,
            None if length > 0 => extents.push(Extent { offset: *offset, length }),
            None => {}
        }
    }
    extents
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(offset: u64, length: u64, reads: u64) -> Part {
        Part { offset, length, reads }
    }

    #[test]
    fn the_most_read_parts_come_first_and_neighbours_are_joined() {
        let parts = vec![
            part(0, 10, 1),
            part(10, 10, 1),
            part(50, 10, 9),
            part(30, 10, 8),
            part(40, 10, 15),
        ];
        assert_eq!(ordered(parts), [part(30, 30, 15), part(0, 20, 1)]);
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("heat");
        let parts = [part(30, 30, 15), part(0, 20, 0)];
        write(&path, &parts).unwrap();
        assert_eq!(read(&path).unwrap(), parts);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        for (text, why) in [
            ("", "is empty"),
            ("something\n", "line 1: not a list"),
            ("larder-heat 1\n1 2 3\n", "line 1: not a list"),
            ("larder-heat 1 1\n1 2\n", "line 2: got '1 2'"),
            ("larder-heat 1 1\n1 0 2\n", "line 2"),
            ("larder-heat 1 1\n1 2 3 4\n", "line 2"),
            ("larder-heat 1 1\n-1 2 3\n", "line 2"),
            ("larder-heat 1 1\n18446744073709551615 2 3\n", "line 2"),
            ("larder-heat 1 1\n\u{7}1 2 3\n", "line 2: got '\\u{7}1 2 3'"),
            ("larder-heat 1 2\n1 2 3\n", "has 1 parts, its first line states 2"),
        ] {
            std::fs::write(&path, text).unwrap();
            let refused = read(&path).unwrap_err().to_string();
            assert!(refused.contains(why), "{text:?}: {refused}");
        }
    }

    #[test]
    fn parts_that_follow_each_other_are_one_range() {
        let parts =
            [part(0, 10, 9), part(10, 10, 9), part(95, 10, 5), part(20, 10, 1), part(100, 5, 1)];
        let extent = |offset, length| Extent { offset, length };
        assert_eq!(extents(&parts, 100), [extent(0, 20), extent(95, 5), extent(20, 10)]);
    }
}
