// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who runs a scenario's points.
//!
//! A kind has settings of its own, read from the point's table (`kind` aside), and gives a JSON
//! object whose keys name their units. What it gives follows from the settings alone.

use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use toml::{Table, Value};

use super::{database, desktop, hierarchy, volume};

/// A kind of scenario.
pub struct Kind {
    /// Its name in files.
    pub name: &'static str,
    /// What it simulates.
    pub about: &'static str,
    /// Whether it could run these settings.
    look: fn(Table) -> Result<(), String>,
    run: fn(Table) -> anyhow::Result<Json>,
}

/// All kinds.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "volume",
        about: "clients over one cache, or over none (SCE)",
        look: |settings| volume::look(&read(settings)?),
        run: |settings| volume::point(&read(settings).map_err(anyhow::Error::msg)?),
    },
    Kind {
        name: "hierarchy",
        about: "RAM over flash over a network over a filer, as in Holland et al.",
        look: |settings| read::<hierarchy::Settings>(settings)?.lawful(),
        run: |settings| hierarchy::run(&read(settings).map_err(anyhow::Error::msg)?),
    },
    Kind {
        name: "desktop",
        about: "ten days of a desktop user in front of one cache (PRWC)",
        look: |settings| desktop::look(&read(settings)?),
        run: |settings| desktop::point(&read(settings).map_err(anyhow::Error::msg)?),
    },
    Kind {
        name: "database",
        about: "TPC-C over a buffer pool with an extension on flash (FaCE)",
        look: |settings| database::look(&read(settings)?),
        run: |settings| database::point(&read(settings).map_err(anyhow::Error::msg)?),
    },
];

fn read<T: DeserializeOwned>(table: Table) -> Result<T, String> {
    // In full, as only then it names the key.
    Value::Table(table)
        .try_into()
        .map_err(|e: toml::de::Error| e.to_string().trim().replace('\n', " "))
}

fn kind(settings: &Table) -> Result<(&'static Kind, Table), String> {
    let mut settings = settings.clone();
    let names = || KINDS.iter().map(|k| k.name).collect::<Vec<_>>().join(", ");
    let name = match settings.remove("kind") {
        Some(Value::String(name)) => name,
        _ => return Err(format!("no 'kind'; accepted: kind = one of {}", names())),
    };
    let found = KINDS.iter().find(|k| k.name == name);
    let found =
        found.ok_or_else(|| format!("kind '{name}' is not known; accepted: {}", names()))?;
    Ok((found, settings))
}

/// Whether a point could be run.
pub(super) fn look(settings: &Table) -> Result<(), String> {
    let (kind, settings) = kind(settings)?;
    (kind.look)(settings)
}

/// Runs a point.
///
/// # Errors
/// If the settings are bad, or a device or trace that they name cannot be had.
pub fn run_point(settings: &Table) -> anyhow::Result<Json> {
    let (kind, settings) = kind(settings).map_err(anyhow::Error::msg)?;
    (kind.run)(settings)
}
