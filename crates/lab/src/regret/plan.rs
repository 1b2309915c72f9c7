// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plan of a table: rows, loads, origins and sizes, all of them or those that were selected.
//!
//! Invariant: the plan follows from [`Asked`] and the names of the files in the directory of traces alone.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use toml::{Table, Value};

use super::rows::{Contract, Row, rows};
use crate::load::trace::named::Named;
use crate::scenario::volume::OUTSTANDING;

/// Origins, by device profile.
pub const ORIGINS: [&str; 4] = ["cloud", "san-1g", "array-16", "hdd-7200"];
/// Flash in per cent of the footprint.
pub const PERCENTS: [u32; 4] = [2, 5, 20, 100];

/// How large the table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Its name, part of the names of files.
    pub name: &'static str,
    /// Data of each load that is made.
    pub data_mib: u64,
    /// Requests of a point, at most.
    pub most_requests: u64,
}

impl Size {
    /// The table of the documents.
    pub const FULL: Self = Self { name: "full", data_mib: 4096, most_requests: 4_194_304 };
    /// Small data and short runs: within ten minutes on two cores.
    pub const QUICK: Self = Self { name: "quick", data_mib: 256, most_requests: 262_144 };
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// How large.
    pub size: Size,
    /// Of loads and devices.
    pub seed: i64,
    /// Rows, loads, origins and sizes (`5%`) by name; all of what none is named of.
    pub only: Vec<String>,
    /// A directory whose traces are loads too.
    pub traces: Option<PathBuf>,
    /// A directory that keeps points; what was interrupted continues.
    pub points: Option<PathBuf>,
    /// Threads; one for every processor without.
    pub jobs: Option<usize>,
}

/// A load.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Its name.
    pub name: String,
    /// What it asks for.
    pub about: String,
    /// The `[trace]` of a scenario, without a size of flash.
    pub keys: Table,
}

/// The plan, see the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// No cache first, which is always there.
    pub rows: Vec<Row>,
    /// In the order of the table.
    pub loads: Vec<Load>,
    /// Device profiles.
    pub origins: Vec<&'static str>,
    /// Of the footprint.
    pub percents: Vec<u32>,
}

impl Plan {
    /// The plan of what was asked for.
    ///
    /// # Errors
    /// A name is not known, or the directory of traces cannot be read.
    pub fn of(asked: &Asked) -> Result<Self> {
        let mut plan = Self {
            rows: rows(),
            loads: made_loads(asked.size),
            origins: ORIGINS.to_vec(),
            percents: PERCENTS.to_vec(),
        };
        if let Some(dir) = &asked.traces {
            for path in files(dir)? {
                let load = file_load(&path, asked.size, &plan.loads)?;
                plan.loads.push(load);
            }
        }
        plan.select(&asked.only)?;
        Ok(plan)
    }

    fn select(&mut self, only: &[String]) -> Result<()> {
        let percent = |percent: u32| format!("{percent}%");
        let row_names = self.rows.iter().map(|row| row.name.clone());
        let names: [Vec<String>; 4] = [
            row_names.collect(),
            self.loads.iter().map(|load| load.name.clone()).collect(),
            self.origins.iter().map(|origin| (*origin).to_owned()).collect(),
            self.percents.iter().map(|share| percent(*share)).collect(),
        ];
        if let Some(word) = only.iter().find(|word| !names.iter().flatten().any(|n| n == *word)) {
            bail!("--only: got '{word}', accepted {}", names.concat().join(", "));
        }
        let [rows, loads, origins, percents] = names.map(|names| {
            let chosen: Vec<String> = names.iter().filter(|n| only.contains(n)).cloned().collect();
            if chosen.is_empty() { names } else { chosen }
        });
        // Every row is compared with no cache.
        self.rows.retain(|row| row.contract == Contract::NoCache || rows.contains(&row.name));
        self.loads.retain(|load| loads.contains(&load.name));
        self.origins.retain(|origin| origins.iter().any(|chosen| chosen == origin));
        self.percents.retain(|share| percents.contains(&percent(*share)));
        Ok(())
    }
}

fn made_loads(size: Size) -> Vec<Load> {
    let load = |named: &Named| {
        let requests = (named.requests_per_mib * size.data_mib).min(size.most_requests);
        let keys = [
            ("made", Value::from(named.name)),
            ("made_mib", (size.data_mib as i64).into()),
            ("requests", (requests as i64).into()),
            ("outstanding", i64::from(named.outstanding).into()),
        ];
        let keys = keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        Load { name: named.name.to_owned(), about: named.about.to_owned(), keys }
    };
    Named::ALL.iter().map(load).collect()
}

/// The files of a directory, by name.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let read = || -> std::io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes()[0] == b'.');
            if path.is_file() && !hidden {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    };
    read().with_context(|| format!("--traces: cannot read {}", dir.display()))
}

fn file_load(path: &Path, size: Size, others: &[Load]) -> Result<Load> {
    let text = path.to_str();
    let text =
        text.with_context(|| format!("{}: is no UTF-8, as a scenario must be", path.display()))?;
    let file = path.file_name().and_then(|name| name.to_str()).unwrap_or(text);
    let stem = file.split('.').next().unwrap_or(file);
    let taken = others.iter().any(|load| load.name == stem);
    let keys = [
        ("path", Value::from(text)),
        ("requests", (size.most_requests as i64).into()),
        ("outstanding", i64::from(OUTSTANDING).into()),
    ];
    Ok(Load {
        name: if taken { file } else { stem }.to_owned(),
        about: format!("the trace {file}"),
        keys: keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(only: &[&str]) -> Result<Plan> {
        let only = only.iter().map(|word| (*word).to_owned()).collect();
        Plan::of(&Asked {
            size: Size::QUICK,
            seed: 1,
            only,
            traces: None,
            points: None,
            jobs: None,
        })
    }

    #[test]
    fn names_select_and_what_is_not_named_stays() {
        let all = plan(&[]).unwrap();
        assert_eq!((all.origins.len(), all.percents.len()), (4, 4));
        let some = plan(&["sce", "bcache+journal", "oltp", "5%", "100%"]).unwrap();
        let rows: Vec<&str> = some.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(rows, ["no-cache", "sce", "bcache+journal"]);
        assert_eq!((some.loads.len(), some.percents), (1, vec![5, 100]));
        assert_eq!(some.origins, all.origins);
        let error = plan(&["oltp", "5"]).unwrap_err().to_string();
        assert!(error.starts_with("--only: got '5', accepted no-cache, sce"), "{error}");
    }

    #[test]
    fn files_of_a_directory_are_loads() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["oltp.csv", "b.btr.zst", ".hidden"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let traces = Some(dir.path().to_owned());
        let asked =
            Asked { size: Size::FULL, seed: 1, only: Vec::new(), traces, points: None, jobs: None };
        let loads = Plan::of(&asked).unwrap().loads;
        let names: Vec<&str> = loads.iter().map(|load| load.name.as_str()).collect();
        // A name that is taken is given in full.
        assert!(names.ends_with(&["pg15_zipf_update", "b", "oltp.csv"]), "{names:?}");
    }
}
