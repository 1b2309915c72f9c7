// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenarios: a run, or a grid of runs, described by a TOML file.
//!
//! A scenario is a table of settings. `kind` names what runs it; the kind reads the rest and refuses
//! keys that it does not know. `[grid]` lists, by dotted path, the values that a setting takes; all
//! combinations are *points*, in the order of the paths' names, the last varying fastest:
//!
//! ```toml
//! kind = "hierarchy"
//! seed = 1
//! scale = "1/16"
//!
//! [cache]
//! architecture = "naive"
//! ram_mib = 8192
//! flash_gib = 64
//!
//! [grid]
//! "cache.flash_gib" = [0, 64]
//! "load.working_set_gib" = [60, 80]
//! ```
//!
//! Invariants: a point is a plain table of settings, so it can be run alone, anywhere, and gives the
//! same JSON value; points know nothing of each other; what a sweep writes is in the order of the
//! points, whatever the number of processors and however often it was interrupted.
//!
//! Why TOML paths and not a language of its own: who can write one run can write a thousand.

mod database;
pub mod desktop;
mod grid;
mod hierarchy;
mod kinds;
mod lines;
mod setting;
mod shard;
mod sweep;
#[cfg(test)]
mod tests;
pub mod volume;
pub mod writes;

use std::fmt;

use toml::{Table, Value};

pub use self::grid::Point;
pub use self::kinds::{KINDS, run_point};
pub use self::lines::{Key, Line, Lines};
pub use self::shard::{Shard, merge};
pub use self::sweep::{Sweep, sweep, sweeps};

/// A scenario that cannot be run: where, what is wrong, and what would be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadScenario {
    /// The file.
    pub name: String,
    /// Its line, where one is to blame.
    pub line: Option<usize>,
    /// What is wrong, and what would be accepted.
    pub what: String,
}

impl fmt::Display for BadScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}: line {line}: {}", self.name, self.what),
            None => write!(f, "{}: {}", self.name, self.what),
        }
    }
}

impl std::error::Error for BadScenario {}

/// A scenario, see the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The file that it is from, for messages.
    pub name: String,
    base: Table,
    grid: Vec<(String, Vec<Value>)>,
}

impl Scenario {
    /// Reads a scenario's text; `name` is for messages.
    ///
    /// # Errors
    /// If it is no TOML, or its grid is none. Settings are checked by [`Scenario::points`].
    pub fn parse(name: &str, text: &str) -> Result<Self, BadScenario> {
        let bad = |line, what: String| BadScenario { name: name.to_owned(), line, what };
        let mut base: Table = text.parse().map_err(|error: toml::de::Error| {
            let line =
                error.span().map(|span| text[..span.start.min(text.len())].lines().count().max(1));
            bad(line, error.message().replace('\n', " "))
        })?;
        let grid = grid::take(&mut base).map_err(|what| bad(None, what))?;
        Ok(Self { name: name.to_owned(), base, grid })
    }

    /// Changes a setting of every point, as a flag does; a grid over it gives way.
    ///
    /// # Errors
    /// If the path leads through something that is no table.
    pub fn set(&mut self, path: &str, value: Value) -> Result<(), BadScenario> {
        self.grid.retain(|(known, _)| known != path);
        grid::put(&mut self.base, path, value).map_err(|what| self.bad(what))
    }

    /// Lets a setting take all these values, as a grid over it does; behind those of the file.
    pub fn vary(&mut self, path: &str, values: Vec<Value>) {
        self.grid.retain(|(known, _)| known != path);
        self.grid.push((path.to_owned(), values));
    }

    /// A setting of all points.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Value> {
        let mut parts = path.split('.');
        let first = self.base.get(parts.next()?)?;
        parts.try_fold(first, |value, part| value.get(part))
    }

    /// All points; each was checked, so that a bad one is refused before the first is run.
    ///
    /// # Errors
    /// If settings are unknown, missing or out of range.
    pub fn points(&self) -> Result<Vec<Point>, BadScenario> {
        let points = grid::points(&self.base, &self.grid).map_err(|what| self.bad(what))?;
        for point in &points {
            kinds::look(&point.settings).map_err(|what| {
                let at = if point.at.is_empty() { String::new() } else { format!(" (at {point})") };
                self.bad(format!("{what}{at}"))
            })?;
        }
        Ok(points)
    }

    fn bad(&self, what: String) -> BadScenario {
        BadScenario { name: self.name.clone(), line: None, what }
    }
}
