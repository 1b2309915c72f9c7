// SPDX-License-Identifier: MIT OR Apache-2.0
//! The samples of a volume in `larder top`: its last two answers, and their differences.
//!
//! Invariants: a counter that went back is another process's, and then there is no rate rather
//! than a wrong one.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Instant;

use larder_front::control::client;
use larder_front::control::wire::Command;
use serde_json::{Value, json};

use crate::curve::Curve;

/// Points of the hit ratio that are kept.
const HISTORY: usize = 512;

/// One answer of a volume.
#[derive(Clone, Debug)]
pub struct Sample {
    pub at: Instant,
    pub status: Value,
    pub stats: Value,
}

impl Sample {
    /// Asks the server at a control socket; the text of the error is one line.
    pub fn take(control: &Path) -> Result<Self, String> {
        let ask = |command| client::ask(control, &command, |_| ()).map_err(|failed| failed.message);
        let (status, stats) = (ask(Command::Status)?, ask(Command::Stats)?);
        Ok(Self { at: Instant::now(), status, stats })
    }

    fn counter(&self, key: &str) -> u64 {
        self.stats.get(key).and_then(Value::as_u64).unwrap_or(0)
    }
}

/// A volume as it is watched.
#[derive(Debug)]
pub struct Watched {
    pub control: PathBuf,
    pub last: Option<Sample>,
    before: Option<Sample>,
    /// Why it does not answer.
    pub error: Option<String>,
    /// Hit ratio of each interval with reads, in tenths of a per cent; the newest is the last.
    pub hits: VecDeque<u64>,
}

impl Watched {
    pub fn new(control: PathBuf) -> Self {
        Self { control, last: None, before: None, error: None, hits: VecDeque::new() }
    }

    /// Takes an answer.
    pub fn update(&mut self, answer: Result<Sample, String>) {
        match answer {
            Err(why) => self.error = Some(why),
            Ok(sample) => {
                self.error = None;
                self.before = self.last.replace(sample);
                if self.before.is_some() {
                    // An interval without reads has no ratio, but its time passes all the same.
                    let ratio = self.hit_ratio().or(self.hits.back().map(|h| *h as f64 / 1000.0));
                    self.hits.push_back((ratio.unwrap_or(0.0) * 1000.0).round() as u64);
                    if self.hits.len() > HISTORY {
                        self.hits.pop_front();
                    }
                }
            }
        }
    }

    /// The export name, or the socket's where that is empty or not known yet.
    pub fn name(&self) -> String {
        let name = self.text("name");
        if !name.is_empty() {
            return name;
        }
        self.control.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// A word of its status.
    pub fn text(&self, key: &str) -> String {
        let value = self.last.as_ref().and_then(|l| l.status.get(key)?.as_str());
        value.unwrap_or_default().to_owned()
    }

    /// A figure of its status.
    pub fn figure(&self, key: &str) -> u64 {
        self.last.as_ref().and_then(|l| l.status.get(key)?.as_u64()).unwrap_or(0)
    }

    /// The hit ratio by the size of flash.
    pub fn curve(&self) -> Option<Curve> {
        Curve::of(&self.last.as_ref()?.status)
    }

    /// How many a list of its status has.
    pub fn length(&self, key: &str) -> usize {
        let list = self.last.as_ref().and_then(|l| l.status.get(key)?.as_array());
        list.map_or(0, Vec::len)
    }

    /// A counter's growth and the seconds that it took.
    fn growth(&self, key: &str) -> Option<(u64, f64)> {
        let (last, before) = (self.last.as_ref()?, self.before.as_ref()?);
        let grown = last.counter(key).checked_sub(before.counter(key))?;
        let seconds = last.at.duration_since(before.at).as_secs_f64();
        (seconds > 0.0).then_some((grown, seconds))
    }

    /// A counter by the second.
    pub fn rate(&self, key: &str) -> f64 {
        self.growth(key).map_or(0.0, |(grown, seconds)| grown as f64 / seconds)
    }

    /// Hits by reads of the last interval, if there were reads.
    pub fn hit_ratio(&self) -> Option<f64> {
        let ((hits, _), (reads, _)) = (self.growth("read_hits")?, self.growth("reads")?);
        (reads > 0).then(|| hits as f64 / reads as f64)
    }

    /// All of it as one value.
    pub fn json(&self) -> Value {
        let mut value = json!({ "control": self.control, "name": self.name() });
        if let Some(error) = &self.error {
            value["error"] = json!(error);
            return value;
        }
        for key in ["state", "alarm"] {
            value[key] = self.last.as_ref().map_or(Value::Null, |l| l.status[key].clone());
        }
        value["hit_ratio"] = json!(self.hit_ratio());
        for (key, counter) in RATES {
            value[*key] = json!(self.rate(counter));
        }
        value["stats"] = self.last.as_ref().map_or(Value::Null, |l| l.stats.clone());
        value
    }
}

/// Rates and the counters that they are of.
const RATES: &[(&str, &str)] = &[
    ("reads_per_second", "reads"),
    ("writes_per_second", "writes"),
    ("read_bytes_per_second", "read_bytes"),
    ("write_bytes_per_second", "write_bytes"),
    ("origin_read_bytes_per_second", "origin_read_bytes"),
    ("origin_write_bytes_per_second", "origin_write_bytes"),
    ("flash_read_bytes_per_second", "flash_read_bytes"),
    ("flash_write_bytes_per_second", "flash_write_bytes"),
    ("populations_per_second", "populations"),
    ("evictions_per_second", "evictions"),
];
