// SPDX-License-Identifier: MIT OR Apache-2.0
//! `recovery`: how long a volume takes to open, after a clean stop and after crashes.
//!
//! Method: an origin of 8 TiB and flash of 64 GiB, both sparse files, units of 1 MiB, one worker. A
//! server formats the flash; then its metadata is written again by the functions that the engine
//! writes it with: every slot in use, and a log of touched records, which cost the most to replay for
//! their bytes. What is measured is what a server does before its first answer: both devices and the
//! state file are opened, the metadata is recovered, the shard is built, and one page is read from
//! flash. Files are synced and dropped from the page cache before.
//! - *Clean*: a complete checkpoint and an empty log.
//! - *A log of 1/4, 1/2, all of its length*: a checkpoint is in progress and its header records it.
//! - *Worst*: the newest checkpoint is complete but its payload is damaged, so that the older one
//!   and the whole of both logs are replayed.
//!
//! The paper (P15) has 0.74 s clean and 7.15 s at the worst point, and its times grow with the
//! number of logs. So does ours; how far the four times are from a line is printed.
//!
//! Rounds in which other processes used less of the machine count, see `quiet`; the processor time stands
//! beside, since all of it is work of one thread.
//!
//! Why one worker: several divide units and log among them, and are recovered one after the other.

mod metadata;
mod page_log;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use larder_core::buf::PAGE;
use larder_core::config::{Choices, Durability, preset};
use larder_core::format::{StateRecord, Wishes};
use larder_core::request::Kind;
use larder_core::shape::Shape;
use larder_io::{Access, DevSpec, Device};
use larder_volume::{CacheConfig, FlashDevice, StateFile, Volume};
use tempfile::TempDir;

use self::metadata::{Crash, Metadata, NAME};
use super::common::{BenchOptions, progress};
use super::quiet::{Counted, Watch, process_ticks};
use super::row::{Goal, Row, median};

const ORIGIN_BYTES: u64 = 8 << 40;
const FLASH_BYTES: u64 = 64 << 30;
/// Both are divided by this with `--quick`.
const QUICK: u64 = 64;
/// How long a volume may take to stop.
const BOUND: Duration = Duration::from_secs(60);
/// Seconds after a clean stop, and after any crash.
const CLEAN_GOAL: f64 = 0.5;
const CRASH_GOAL: f64 = 2.0;

const CRASHES: [(&str, Crash); 5] = [
    ("clean", Crash::Log { quarters: 0 }),
    ("a quarter of the log", Crash::Log { quarters: 1 }),
    ("half of the log", Crash::Log { quarters: 2 }),
    ("all of the log", Crash::Log { quarters: 4 }),
    ("worst: newest payload lost, both logs full", Crash::Damaged),
];

pub(super) fn run(options: &BenchOptions) -> Result<Vec<Row>> {
    let (scale, rounds) = if options.quick { (QUICK, 1) } else { (1, 7) };
    let mut rows = Vec::new();
    for name in ["sce", "prwc"] {
        let rig = Rig::new(name, &options.dir, scale)?;
        let mut metadata = Metadata::of(&rig.flash)?;
        let mut found = vec![Vec::new(); CRASHES.len()];
        for _ in 0..rounds {
            for ((_, crash), found) in CRASHES.iter().zip(&mut found) {
                metadata.write(&rig.flash, *crash)?;
                found.push(rig.open(metadata.slots())?);
            }
        }
        progress(NAME, format!("{name}: {rounds} rounds"));
        rows.extend(preset_rows(name, &found, &metadata, scale == 1));
    }
    rows.extend(page_log::rows(FLASH_BYTES / scale, rounds, scale == 1)?);
    Ok(rows)
}

/// One start.
#[derive(Clone, Copy, Debug, Default)]
struct Opened {
    seconds: f64,
    /// Of this process.
    cpu_seconds: f64,
    /// The share of the machine that other processes used.
    others: f64,
}

/// A stopped volume.
struct Rig {
    choices: Choices,
    dir: TempDir,
    origin: PathBuf,
    flash: PathBuf,
}

/// One that is served.
struct Served {
    volume: Arc<Volume>,
}

impl Rig {
    /// Files, formatted as a server does at its first start.
    fn new(name: &str, dir: &Path, scale: u64) -> Result<Self> {
        let mut choices = preset(name).with_context(|| format!("no preset {name}"))?.choices();
        choices.durability = Durability::Journal;
        let dir = TempDir::with_prefix_in("larder-bench-", dir)
            .with_context(|| format!("a directory in {}", dir.display()))?;
        let file = |name: &str, bytes: u64| -> Result<PathBuf> {
            let path = dir.path().join(name);
            let failed = || format!("{}: a sparse file of {bytes} bytes", path.display());
            File::create(&path).and_then(|f| f.set_len(bytes)).with_context(failed)?;
            Ok(path)
        };
        let origin = file("origin", ORIGIN_BYTES / scale)?;
        let flash = file("flash", FLASH_BYTES / scale)?;
        let rig = Self { choices, origin, flash, dir };
        rig.serve()?.stop()?;
        Ok(rig)
    }

    fn serve(&self) -> Result<Served> {
        let open = |path: &Path| Device::open(&DevSpec::Path(path.to_owned()), Access::ReadWrite);
        let (origin, flash) = (open(&self.origin)?, open(&self.flash)?);
        let shape = Shape::new(origin.geometry().bytes, self.choices.unit_bytes, 1);
        let flash =
            FlashDevice::prepare(flash, (None, None), shape, &self.choices, Wishes::default())?;
        let volume = Volume::start(CacheConfig {
            state: Some(self.state()),
            ..CacheConfig::of(origin, self.choices.clone(), 1).named(NAME)
        })?;
        let served = Served { volume };
        served.volume.cache().attach(flash)?;
        Ok(served)
    }

    fn state(&self) -> StateFile {
        StateFile::new(self.dir.path(), NAME, &self.origin.to_string_lossy())
    }

    /// Opens the volume and reads a page. All slots must be in use.
    fn open(&self, slots: u64) -> Result<Opened> {
        // The generated metadata may be older than that of the last run.
        if let Some(state) = self.state().load()? {
            self.state().store(&StateRecord { reached: Vec::new(), ..state })?;
        }
        let (watch, ticks) = (Watch::begin(None)?, process_ticks("self", false)?);
        let began = Instant::now();
        let served = self.serve()?;
        served.read()?;
        let opened = Opened {
            seconds: began.elapsed().as_secs_f64(),
            cpu_seconds: (process_ticks("self", false)? - ticks) as f64 / 100.0,
            others: watch.others()?,
        };
        let used = served.volume.stats()?.units_used;
        served.stop()?;
        ensure!(used == slots, "{used} of {slots} slots are in use after a recovery");
        Ok(opened)
    }
}

impl Served {
    fn read(&self) -> Result<()> {
        let (answer, answered) = channel();
        let done = move |result: Result<_, _>| drop(answer.send(result));
        self.volume.call(Kind::Read, 0, PAGE as u64, Vec::new(), done);
        let result = answered.recv_timeout(BOUND).context("a read is not answered")?;
        result.map(drop).map_err(|errno| anyhow::anyhow!("a read failed: {errno}"))
    }

    /// Stops it, and returns when no process holds its devices.
    fn stop(self) -> Result<()> {
        self.volume.cache().stop(BOUND, |_| (), || false)?;
        let began = Instant::now();
        while Arc::strong_count(&self.volume) > 1 {
            ensure!(began.elapsed() < BOUND, "the volume does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

fn preset_rows(name: &str, found: &[Vec<Opened>], metadata: &Metadata, full: bool) -> Vec<Row> {
    let (mut rows, mut points) = (Vec::new(), Vec::new());
    for ((words, crash), found) in CRASHES.iter().zip(found) {
        let (goal, paper) = match crash {
            Crash::Log { quarters: 0 } => (Some(CLEAN_GOAL), "0.74 s"),
            Crash::Log { quarters: 1 } => (None, "2.41 s"),
            Crash::Log { quarters: 2 } => (None, "4.05 s"),
            _ => (Some(CRASH_GOAL), "7.15 s"),
        };
        let counted = Counted::quietest(&found.iter().map(|o| o.others).collect::<Vec<_>>());
        let ours = median(&counted.each(found, |o| o.seconds));
        if let Crash::Log { quarters } = crash {
            points.push((f64::from(*quarters) / 4.0, ours));
        }
        let row = Row::new(NAME, format!("{name}, {words}"), "s").note(format!(
            "processor time {:.2} s; {}; the paper: {paper}",
            median(&counted.each(found, |o| o.cpu_seconds)),
            counted.words()
        ));
        rows.push(match goal {
            Some(goal) if full => {
                row.against("the goal", ours, goal).goals(&[Goal::OursAtMost(goal)])
            }
            _ => row.alone(ours),
        });
    }
    let line = Line::through(&points);
    let case = format!("{name}, farthest of the first four from a line");
    rows.push(Row::new(NAME, case, "s").alone(line.farthest(&points)).note(format!(
        "{:.3} s and {:.3} s for a whole log of {}; {}",
        line.base,
        line.rise,
        larder_io::format_size(metadata.log_bytes()),
        metadata.words()
    )));
    rows
}

/// The line that is nearest to points (least squares).
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    base: f64,
    rise: f64,
}

impl Line {
    fn through(points: &[(f64, f64)]) -> Self {
        let count = points.len().max(1) as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|p| p.0), mean(|p| p.1));
        let both: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
        let square: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
        let rise = if square > 0.0 { both / square } else { 0.0 };
        Self { base: y - rise * x, rise }
    }

    fn farthest(self, points: &[(f64, f64)]) -> f64 {
        let off = |(x, y): &(f64, f64)| (y - self.base - self.rise * x).abs();
        points.iter().map(off).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_own_times_are_a_line() {
        let points = [(0.0, 0.74), (0.25, 2.41), (0.5, 4.05), (0.75, 5.62), (0.99, 7.15)];
        let line = Line::through(&points);
        assert!((line.base - 0.77).abs() < 0.02 && (line.rise - 6.46).abs() < 0.02, "{line:?}");
        assert!(line.farthest(&points) < 0.06);
        assert!(line.farthest(&[(0.5, 5.0)]) > 0.9);
    }

    #[test]
    fn a_volume_opens_warm_from_each_of_the_crashes() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["sce", "prwc"] {
            let rig = Rig::new(name, dir.path(), 1024).unwrap();
            let mut metadata = Metadata::of(&rig.flash).unwrap();
            for (_, crash) in CRASHES {
                metadata.write(&rig.flash, crash).unwrap();
                assert!(rig.open(metadata.slots()).unwrap().seconds > 0.0);
            }
        }
    }

    #[test]
    fn a_time_over_its_goal_is_missed() {
        let dir = tempfile::tempdir().unwrap();
        let rig = Rig::new("prwc", dir.path(), 1024).unwrap();
        let metadata = Metadata::of(&rig.flash).unwrap();
        let times = [[0.6; 3], [0.7; 3], [0.8; 3], [1.0; 3], [2.1; 3]];
        let opened = |seconds: &f64| Opened { seconds: *seconds, ..Opened::default() };
        let found = times.map(|times| times.iter().map(opened).collect::<Vec<_>>());
        let rows = preset_rows("prwc", &found, &metadata, true);
        let reached: Vec<Option<bool>> = rows.iter().map(|row| row.reached).collect();
        assert_eq!(reached, [Some(false), None, None, Some(true), Some(false), None]);
        assert!(rows[5].ours.unwrap() < 1e-9 && rows[0].ratio == Some(1.2));
    }
}
