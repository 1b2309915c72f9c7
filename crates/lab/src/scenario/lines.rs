// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of a sweep: JSON lines, from which an interrupted sweep continues and parts are merged.
//!
//! A line is `{"point": N, "at": {..}, "settings": {..}, "result": {..}}`. A sweep uses a line for the point with the line's
//! settings, at any place of the grid, and runs the points without one.
//!
//! Invariants: a line is written in one piece as soon as its point ends, so an interruption costs the points that run; a
//! torn last line is run again; a complete file has its lines in the order of the points, so it has the same bytes with
//! any number of processors, machines and interruptions; a file with anything else, as points of another sweep, is refused
//! and unchanged. Only the process that owns the file writes it: machines return results to that process, or have a part each
//! ([`super::shard`]).
//!
//! Why not a file for each point: a sweep of 100,000 points would be as many files, and a merge would read them all.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// A point and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Its number.
    pub point: usize,
    /// What the grid set.
    pub at: Map<String, Json>,
    /// All settings.
    pub settings: Json,
    /// The result.
    pub result: Json,
}

impl Line {
    /// A number of the result by dotted path.
    #[must_use]
    pub fn number(&self, path: &str) -> Option<f64> {
        path.split('.').try_fold(&self.result, |value, part| value.get(part))?.as_f64()
    }

    /// Whether the grid set this here.
    #[must_use]
    pub fn is_at(&self, path: &str, value: &str) -> bool {
        match self.at.get(path) {
            Some(Json::String(text)) => text == value,
            Some(other) => format!("{other}") == value,
            None => false,
        }
    }
}

/// A point without its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Its number.
    pub point: usize,
    /// What the grid set.
    pub at: Map<String, Json>,
    /// All settings.
    pub settings: Json,
}

/// The lines of points, complete or not. A point is named by its *place* among these points.
pub struct Lines {
    keys: Vec<Key>,
    done: BTreeMap<usize, Line>,
    out: Option<Out>,
}

/// The file of lines.
struct Out {
    path: PathBuf,
    file: fs::File,
    /// The place of the last line.
    last: Option<usize>,
    /// Whether the lines are in the order of the points.
    ordered: bool,
}

impl Lines {
    /// These points, with the lines that a file has of them. The file gets the others as they are added; without a file
    /// there are none before. `name` is that of the sweep, for errors.
    ///
    /// # Errors
    /// If the file cannot be read or written, or has anything but lines of these points.
    pub fn open(name: &str, keys: Vec<Key>, file: Option<&Path>) -> Result<Self> {
        let mut lines = Self::read(name, keys, file)?;
        if let Some(file) = file {
            lines.write_to(file)?;
        }
        Ok(lines)
    }

    /// The same, and the file stays as it is.
    pub(super) fn read(name: &str, keys: Vec<Key>, file: Option<&Path>) -> Result<Self> {
        let old = file.map(before).transpose()?.unwrap_or_default();
        let (mut done, mut used) = (BTreeMap::new(), HashSet::new());
        for (place, key) in keys.iter().enumerate() {
            let settings = key.settings.to_string();
            if let Some((number, line)) = old.get(&settings) {
                let line = Line { point: key.point, at: key.at.clone(), ..line.clone() };
                done.insert(place, line);
                used.insert(*number);
            }
        }
        let numbers = old.values().map(|(number, _)| number);
        if let Some(line) = numbers.filter(|number| !used.contains(number)).min() {
            bail!(
                "{}: line {line}: is a point that {name} does not have with these settings; accepted: a new file, or \
                 what this sweep wrote",
                file.unwrap_or(Path::new("")).display()
            );
        }
        Ok(Self { keys, done, out: None })
    }

    /// Writes the lines to a new file, in order, which then replaces the old one; further lines follow.
    fn write_to(&mut self, path: &Path) -> Result<()> {
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let create = || -> Result<fs::File> {
            let mut file = fs::File::create(&name)?;
            for line in self.done.values() {
                write(&mut file, line)?;
            }
            fs::rename(&name, path)?;
            Ok(file)
        };
        let file = create().with_context(|| format!("cannot write {}", path.display()))?;
        let last = self.done.keys().last().copied();
        self.out = Some(Out { path: path.to_owned(), file, last, ordered: true });
        Ok(())
    }

    /// How many points there are.
    #[must_use]
    pub fn points(&self) -> usize {
        self.keys.len()
    }

    /// The places of the points without a line.
    #[must_use]
    pub fn left(&self) -> Vec<usize> {
        (0..self.keys.len()).filter(|place| !self.done.contains_key(place)).collect()
    }

    /// Adds a result.
    ///
    /// # Errors
    /// If there is no such point, or the file cannot be written.
    pub fn add(&mut self, place: usize, result: Json) -> Result<()> {
        let key = self.keys.get(place).with_context(|| format!("no point at place {place}"))?;
        let Key { point, at, settings } = key.clone();
        let line = Line { point, at, settings, result };
        if let Some(out) = &mut self.out {
            out.ordered &= out.last.is_none_or(|last| last < place);
            out.last = Some(place);
            if let Err(error) = write(&mut out.file, &line) {
                let path = out.path.clone();
                // No line may follow a torn one.
                self.out = None;
                return Err(error.context(format!("cannot write {}", path.display())));
            }
        }
        self.done.insert(place, line);
        match &self.out {
            Some(out) if !out.ordered && self.done.len() == self.keys.len() => {
                let path = out.path.clone();
                self.write_to(&path)
            }
            _ => Ok(()),
        }
    }

    /// The lines, in order.
    pub fn into_lines(self) -> impl Iterator<Item = Line> {
        self.done.into_values()
    }

    /// The lines that are there, in order.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.done.values()
    }
}

fn write(file: &mut fs::File, line: &Line) -> Result<()> {
    Ok(file.write_all(format!("{}\n", serde_json::to_string(line)?).as_bytes())?)
}

/// The lines of a file with their numbers, by settings.
fn before(file: &Path) -> Result<HashMap<String, (usize, Line)>> {
    // A new file is written and renamed to this name, which would remove a device or a pipe.
    if fs::symlink_metadata(file).is_ok_and(|found| !found.is_file()) {
        bail!(
            "{}: is no regular file; accepted: a new file, or what this sweep wrote",
            file.display()
        );
    }
    let text = match fs::read(file) {
        // A line may be torn within a letter.
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(e).with_context(|| format!("cannot read {}", file.display())),
    };
    let mut found = HashMap::new();
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        let torn = || !line.ends_with('\n') && is_beginning(line);
        match serde_json::from_str::<Line>(line) {
            Ok(line) => _ = found.insert(line.settings.to_string(), (number, line)),
            Err(_) if torn() => {}
            Err(_) => {
                return Err(anyhow!(
                    "{}: line {number}: is no line of a sweep; accepted: a new file, or what this sweep wrote",
                    file.display(),
                ));
            }
        }
    }
    Ok(found)
}

/// Whether a line without an end is the beginning of one of ours.
fn is_beginning(line: &str) -> bool {
    const BEGINNING: &str = "{\"point\":";
    line.starts_with(BEGINNING) || BEGINNING.starts_with(line)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test stops at the first failure

    use serde_json::json;

    use super::*;

    fn keys(count: usize) -> Vec<Key> {
        let key = |point| Key { point, at: Map::new(), settings: json!({ "seed": point % 3 }) };
        (0..count).map(key).collect()
    }

    #[test]
    fn lines_are_written_at_once_and_end_in_order() {
        let dir = tempfile::TempDir::new().unwrap();
        let [file, other] = ["a", "b"].map(|name| dir.path().join(name));
        let mut lines = Lines::open("a", keys(4), Some(&file)).unwrap();
        let written = || fs::read_to_string(&file).unwrap();
        for (place, first) in [(2, 2), (0, 2), (3, 2), (1, 0)] {
            lines.add(place, json!({ "hits": place })).unwrap();
            assert!(written().starts_with(&format!("{{\"point\":{first},")), "{}", written());
        }
        assert_eq!(written().lines().count(), 4);
        let mut ordered = Lines::open("b", keys(4), Some(&other)).unwrap();
        (0..4).for_each(|place| ordered.add(place, json!({ "hits": place })).unwrap());
        assert_eq!(written(), fs::read_to_string(&other).unwrap());
        assert!(lines.left().is_empty() && lines.add(4, json!({})).is_err());
    }

    #[test]
    fn points_with_equal_settings_share_a_line() {
        let dir = tempfile::TempDir::new().unwrap();
        let file = dir.path().join("a");
        let mut lines = Lines::open("a", keys(3), Some(&file)).unwrap();
        lines.add(0, json!({ "hits": 7 })).unwrap();
        let again = Lines::open("a", keys(4), Some(&file)).unwrap();
        assert_eq!(again.left(), [1, 2]);
        assert_eq!(again.into_lines().map(|line| line.point).collect::<Vec<_>>(), [0, 3]);
    }
}
