// SPDX-License-Identifier: MIT OR Apache-2.0
//! The grid of a scenario: settings by dotted path, and all combinations of their values.
//!
//! Invariant: points come in the order of the paths' names, the last fastest; there are at most
//! [`MOST_POINTS`].

use std::fmt;

use serde_json::{Map, Value as Json};
use toml::{Table, Value};

/// More would be a slip of the pen.
const MOST_POINTS: usize = 100_000;

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// What the grid set, by path, in the grid's order.
    pub at: Vec<(String, Value)>,
    /// All settings.
    pub settings: Table,
}

impl Point {
    /// What the grid set, as JSON.
    #[must_use]
    pub fn at_json(&self) -> Map<String, Json> {
        let json = |v: &Value| serde_json::to_value(v).unwrap_or(Json::Null);
        self.at.iter().map(|(path, value)| (path.clone(), json(value))).collect()
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (path, value)) in self.at.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            match value {
                Value::String(text) => write!(f, "{comma}{path} {text}")?,
                other => write!(f, "{comma}{path} {other}")?,
            }
        }
        Ok(())
    }
}

/// Takes `[grid]` out of a table.
pub(super) fn take(base: &mut Table) -> Result<Vec<(String, Vec<Value>)>, String> {
    let Some(grid) = base.remove("grid") else { return Ok(Vec::new()) };
    let Value::Table(grid) = grid else {
        return Err(
            "'grid' is no table; accepted: [grid] with \"path.of.setting\" = [values]".to_owned()
        );
    };
    let axis = |(path, values): (String, Value)| match values {
        Value::Array(values) if !values.is_empty() => Ok((path, values)),
        _ => Err(format!("grid: '{path}' is no list; accepted: a list of at least one value")),
    };
    let grid: Vec<_> = grid.into_iter().map(axis).collect::<Result<_, _>>()?;
    let points = grid.iter().try_fold(1usize, |n, (_, values)| n.checked_mul(values.len()));
    match points {
        Some(n) if n <= MOST_POINTS => Ok(grid),
        _ => Err(format!("grid: more than {MOST_POINTS} points")),
    }
}

/// Sets what a dotted path names, making tables on the way.
pub(super) fn put(table: &mut Table, path: &str, value: Value) -> Result<(), String> {
    let mut parts: Vec<&str> = path.split('.').collect();
    if parts.iter().any(|part| part.is_empty()) {
        return Err(format!(
            "'{path}' is no path; accepted: names, with a dot between two of them"
        ));
    }
    let last = parts.pop().unwrap_or_default();
    let mut at = table;
    for part in parts {
        let next = at.entry(part).or_insert_with(|| Value::Table(Table::new()));
        at = next.as_table_mut().ok_or_else(|| {
            format!("'{path}': '{part}' is no table; accepted: a path of tables and a setting")
        })?;
    }
    at.insert(last.to_owned(), value);
    Ok(())
}

/// All combinations.
pub(super) fn points(base: &Table, grid: &[(String, Vec<Value>)]) -> Result<Vec<Point>, String> {
    let mut all = vec![Point { at: Vec::new(), settings: base.clone() }];
    for (path, values) in grid {
        let mut next = Vec::with_capacity(all.len() * values.len());
        for point in &all {
            for value in values {
                let mut one = point.clone();
                put(&mut one.settings, path, value.clone())?;
                one.at.push((path.clone(), value.clone()));
                next.push(one);
            }
        }
        all = next;
    }
    Ok(all)
}
