// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lines of a sweep, as `larder sim --out` has them ([`larder_lab::scenario::Lines`]).
//!
//! A study in Python runs its points itself, on threads or on Ray, and adds each result here. So the file, how a study
//! continues and what is refused are those of the command.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_lab::scenario::{Key, Lines};
use pyo3::prelude::*;
use serde_json::{Map, Value as Json};

use crate::error::refused;

/// Points with their results.
#[pyclass(frozen, module = "larder._larder")]
pub(crate) struct Study(Mutex<Lines>);

impl Study {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Study {
    /// The points, each what the grid set and all settings, as JSON objects; with a file, the results that it has.
    #[new]
    #[pyo3(signature = (points, file=None))]
    fn new(points: Vec<(String, String)>, file: Option<PathBuf>) -> PyResult<Self> {
        let key = |(point, (at, settings)): (usize, (String, String))| -> serde_json::Result<Key> {
            let at: Map<String, Json> = serde_json::from_str(&at)?;
            Ok(Key { point, at, settings: serde_json::from_str(&settings)? })
        };
        let keys = points.into_iter().enumerate().map(key);
        let keys = keys.collect::<Result<_, _>>().map_err(refused)?;
        let lines = Lines::open("this sweep", keys, file.as_deref());
        let lines = lines.map_err(|error| refused(format!("{error:#}")))?;
        Ok(Self(Mutex::new(lines)))
    }

    /// The numbers of the points without a result.
    fn left(&self) -> Vec<usize> {
        self.lines().left()
    }

    /// Adds a result, a JSON object.
    fn add(&self, point: usize, result: &str) -> PyResult<()> {
        let result = serde_json::from_str(result).map_err(refused)?;
        self.lines().add(point, result).map_err(|error| refused(format!("{error:#}")))
    }

    /// The results that are there, as JSON objects, in the order of the points.
    fn results(&self) -> Vec<String> {
        self.lines().lines().map(|line| line.result.to_string()).collect()
    }
}
