// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shards of a sweep: each runs its points on a machine of its own, and a merge makes the file of the whole sweep.
//!
//! Shard `i/n` has every n-th point, beginning with the i-th. It writes `FILE.i-of-n` by the rules of
//! [`Lines`](super::lines::Lines), so it continues after an interruption. A merge runs no point.
//!
//! Invariants: the points of n shards are those of the sweep, each in one shard; the merged file is byte by byte what one
//! machine writes; a merge writes nothing unless all parts are complete and of this sweep.
//!
//! Why every n-th point and not n ranges: neighbours of a grid take similar time, so shards end at about the same time. Why
//! the name of a part has i and n: a merge names a part that is missing, and refuses parts of another division.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use serde_json::Value as Json;

use super::lines::{Key, Line, Lines};
use super::{Point, Scenario};

/// More shards than a sweep has points are of no use.
const MOST_SHARDS: usize = 100_000;
/// So many bad parts are named.
const NAMED: usize = 8;

/// A shard of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shard {
    of: usize,
    number: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad =
            || format!("got '{text}', accepted i/n, from 1/n to n/n, n at most {MOST_SHARDS}");
        let (number, of) = text.split_once('/').ok_or_else(bad)?;
        Self::of(number, of).ok_or_else(bad)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl Shard {
    /// From two numbers in digits.
    fn of(number: &str, of: &str) -> Option<Self> {
        let digits =
            |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok());
        let (number, of) = (digits(number)??, digits(of)??);
        ((1..=MOST_SHARDS).contains(&of) && (1..=of).contains(&number))
            .then_some(Self { of, number })
    }

    /// Whether the shard runs this point.
    pub(super) fn has(self, point: usize) -> bool {
        point % self.of + 1 == self.number
    }

    /// The part of a result file that this shard writes.
    #[must_use]
    pub fn file(self, file: &Path) -> PathBuf {
        let mut name = file.as_os_str().to_owned();
        name.push(format!(".{}-of-{}", self.number, self.of));
        name.into()
    }

    /// The shard that writes a part with this name.
    fn of_file(name: &OsStr, file: &OsStr) -> Option<Self> {
        let rest = name.as_encoded_bytes().strip_prefix(file.as_encoded_bytes())?;
        let (number, of) = std::str::from_utf8(rest).ok()?.strip_prefix('.')?.split_once("-of-")?;
        Self::of(number, of).filter(|shard| shard.file(Path::new(file)).as_os_str() == name)
    }
}

/// The points of a shard, or all, as lines name them.
pub(super) fn keys(points: &[Point], shard: Option<Shard>) -> Vec<Key> {
    let all = points.iter().enumerate();
    let own = all.filter(|(number, _)| shard.is_none_or(|shard| shard.has(*number)));
    let settings = |point: &Point| serde_json::to_value(&point.settings).unwrap_or(Json::Null);
    own.map(|(point, one)| Key { point, at: one.at_json(), settings: settings(one) }).collect()
}

/// What messages call a sweep.
pub(super) fn name(scenario: &Scenario, shard: Option<Shard>) -> String {
    let name = &scenario.name;
    shard.map_or_else(|| name.clone(), |shard| format!("shard {shard} of {name}"))
}

/// Makes the result file of a sweep from its parts; its lines.
///
/// # Errors
/// If a part is missing, incomplete or of another sweep, or the file cannot be written.
pub fn merge(scenario: &Scenario, file: &Path) -> Result<Vec<Line>> {
    let points = scenario.points()?;
    let (mut found, mut bad) = (Vec::new(), Vec::new());
    let of = division(file)?;
    for number in 1..=of {
        let shard = Shard { of, number };
        let path = shard.file(file);
        if !path.exists() {
            bad.push(format!("{shard} (no file {})", path.display()));
            continue;
        }
        let part =
            Lines::read(&name(scenario, Some(shard)), keys(&points, Some(shard)), Some(&path))?;
        match part.left().len() {
            0 => found.extend(part.into_lines()),
            left => bad.push(format!("{shard} ({left} of {} points are missing)", part.points())),
        }
    }
    if !bad.is_empty() {
        let others = bad.len().saturating_sub(NAMED);
        let others = if others == 0 { String::new() } else { format!(" and {others} others") };
        bail!(
            "{}: of {of} parts, {} incomplete: {}{others}; accepted: complete parts, as --shard i/{of} with the same \
             scenario, settings and --out writes them",
            file.display(),
            bad.len(),
            bad.get(..NAMED).unwrap_or(&bad).join(", "),
        );
    }
    let mut whole = Lines::open(&scenario.name, keys(&points, None), Some(file))?;
    for line in found {
        whole.add(line.point, line.result)?;
    }
    Ok(whole.into_lines().collect())
}

/// Into how many parts the sweep was divided, by the names of the parts.
fn division(file: &Path) -> Result<usize> {
    let name = file.file_name().with_context(|| format!("{}: is no file name", file.display()))?;
    let dir = match file.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let cannot = || format!("cannot read {}", dir.display());
    let mut divisions = BTreeSet::new();
    for entry in std::fs::read_dir(dir).with_context(cannot)? {
        let shard = Shard::of_file(&entry.with_context(cannot)?.file_name(), name);
        divisions.extend(shard.map(|shard| shard.of));
    }
    let mut divisions = divisions.into_iter();
    match (divisions.next(), divisions.next()) {
        (Some(of), None) => Ok(of),
        (None, _) => bail!(
            "{}: has no parts, as {}.1-of-4; accepted: the --out of larder sim --shard i/n",
            file.display(),
            file.display()
        ),
        (Some(few), Some(many)) => bail!(
            "{}: has parts of {few} and of {many} shards; accepted: parts of one division",
            file.display()
        ),
    }
}
