// SPDX-License-Identifier: MIT OR Apache-2.0
//! All points of a scenario on all processors, as JSON lines, continuing where it stopped.
//!
//! A line is `{"point": N, "at": {..}, "settings": {..}, "result": {..}}`. Lines come in the order of
//! the points. A sweep that finds such lines in its file takes those with the settings of a point for
//! that point's, wherever the grid has it now, and runs the others.
//!
//! Invariants: a line is written when all before it were, in one piece; a torn last line is run
//! again; with any number of processors and interruptions the file ends up with the same bytes; a file
//! that has anything else, as points of another sweep, is refused and stays as it is.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use larder_trace::watch::{current, watched};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::{Point, Scenario, run_point};
use crate::jobs::time_left;

/// A point and what it came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Its number.
    pub point: usize,
    /// What the grid set.
    pub at: Map<String, Json>,
    /// All settings.
    pub settings: Json,
    /// What it came to.
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

/// How to go about it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sweep<'a> {
    /// Where lines go, and come from.
    pub file: Option<&'a Path>,
    /// Threads; one for every processor without.
    pub jobs: Option<usize>,
    /// Whether to tell of every point on standard error.
    pub progress: bool,
}

/// What a file has, by settings.
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

/// Lines that are done, and those that wait for one before them.
struct Done {
    out: Option<fs::File>,
    lines: BTreeMap<usize, Line>,
    written: usize,
    failed: Option<anyhow::Error>,
}

impl Done {
    fn add(&mut self, line: Line) {
        self.lines.insert(line.point, line);
        while let Some(line) = self.lines.get(&self.written) {
            self.written += 1;
            let Some(out) = &mut self.out else { continue };
            let text = serde_json::to_string(line).map_err(anyhow::Error::from);
            let wrote = text.and_then(|t| Ok(out.write_all(format!("{t}\n").as_bytes())?));
            if let Err(error) = wrote {
                self.failed.get_or_insert(error);
            }
        }
    }
}

/// The file with the lines that need not be run again and have nothing missing before them, open for
/// more; until it is whole the old one stays.
fn kept(file: &Path, done: &Done) -> Result<fs::File> {
    let mut name = file.as_os_str().to_owned();
    name.push(".new");
    let mut out = fs::File::create(&name)?;
    for line in done.lines.values().take(done.written) {
        out.write_all(format!("{}\n", serde_json::to_string(line)?).as_bytes())?;
    }
    fs::rename(&name, file)?;
    Ok(out)
}

/// What the file has of the points, open for more, and the numbers of the others.
fn begin(scenario: &Scenario, points: &[Point], file: Option<&Path>) -> Result<(Done, Vec<usize>)> {
    let mut old = file.map(before).transpose()?.unwrap_or_default();
    let mut done = Done { out: None, lines: BTreeMap::new(), written: 0, failed: None };
    let mut todo = Vec::new();
    for (number, point) in points.iter().enumerate() {
        match old.remove(&settings(point).to_string()) {
            Some((_, line)) => done.add(Line { point: number, at: point.at_json(), ..line }),
            None => todo.push(number),
        }
    }
    let Some(file) = file else { return Ok((done, todo)) };
    if let Some((line, _)) = old.values().min_by_key(|(line, _)| *line) {
        bail!(
            "{}: line {line}: is a point that {} does not have with these settings; accepted: a new file, or what \
             this sweep wrote",
            file.display(),
            scenario.name
        );
    }
    done.out = Some(kept(file, &done).with_context(|| format!("cannot write {}", file.display()))?);
    Ok((done, todo))
}

fn settings(point: &Point) -> Json {
    serde_json::to_value(&point.settings).unwrap_or(Json::Null)
}

/// Runs all points of a scenario that its file does not have yet; all lines, in order.
///
/// # Errors
/// If the scenario is bad, a point cannot be run, or the file cannot be read or written.
pub fn sweep(scenario: &Scenario, how: Sweep<'_>) -> Result<Vec<Line>> {
    let lines = sweeps(&[(scenario, how.file)], how.jobs, how.progress)?;
    Ok(lines.into_iter().flatten().collect())
}

/// One of several sweeps that share the processors.
struct Part<'a> {
    scenario: &'a Scenario,
    points: Vec<Point>,
    done: Mutex<Done>,
}

impl Part<'_> {
    /// Runs a point; words for its progress, or nothing after an error.
    fn run(&self, number: usize) -> Option<String> {
        let point = self.points.get(number)?;
        let result = run_point(&point.settings);
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(result) => done.add(Line {
                point: number,
                at: point.at_json(),
                settings: settings(point),
                result,
            }),
            Err(error) if point.at.is_empty() => _ = done.failed.get_or_insert(error),
            Err(error) => _ = done.failed.get_or_insert(error.context(format!("at {point}"))),
        }
        let at = if point.at.is_empty() { String::new() } else { format!("{point} ") };
        done.failed.is_none().then_some(at)
    }
}

/// The same of several scenarios, each with its file, whose points share the processors; the lines of each.
///
/// # Errors
/// As [`sweep`]; after an error no further point begins.
pub fn sweeps(
    all: &[(&Scenario, Option<&Path>)],
    jobs: Option<usize>,
    progress: bool,
) -> Result<Vec<Vec<Line>>> {
    let (mut parts, mut todo) = (Vec::new(), Vec::new());
    for (scenario, file) in all {
        let points = scenario.points()?;
        let (done, left) = begin(scenario, &points, *file)?;
        if progress && left.len() < points.len() {
            let there = points.len() - left.len();
            crate::tell!("{}: {there} of {} points are there", scenario.name, points.len());
        }
        todo.extend(left.into_iter().map(|number| (parts.len(), number)));
        parts.push(Part { scenario, points, done: Mutex::new(done) });
    }
    let start = Instant::now();
    let (next, count) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some((part, number)) = todo.get(next.fetch_add(1, Ordering::Relaxed))
            && let Some(part) = parts.get(*part)
        {
            let begin = Instant::now();
            let Some(at) = part.run(*number) else {
                next.store(todo.len(), Ordering::Relaxed);
                return;
            };
            let n = count.fetch_add(1, Ordering::Relaxed) + 1;
            if progress {
                let seconds = begin.elapsed().as_secs_f64();
                let left = time_left(start.elapsed(), n, todo.len());
                let (name, all) = (&part.scenario.name, todo.len());
                crate::tell!("{name}: {n} of {all}: {at}in {seconds:.1} s{left}");
            }
        }
    };
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let watch = current();
    std::thread::scope(|scope| {
        for _ in 0..jobs.unwrap_or(processors).clamp(1, todo.len().max(1)) {
            scope.spawn(|| watched(watch.clone(), work));
        }
    });
    let finished = |part: Part<'_>| {
        let done = part.done.into_inner().unwrap_or_else(PoisonError::into_inner);
        match done.failed {
            Some(error) => Err(error),
            None => Ok(done.lines.into_values().collect()),
        }
    };
    parts.into_iter().map(finished).collect()
}
