// SPDX-License-Identifier: MIT OR Apache-2.0
//! All points of a scenario on all processors. Their lines, and how a sweep continues: [`super::lines`].

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::Result;
use larder_trace::watch::{current, watched};

use super::lines::{Line, Lines};
use super::shard::{self, Shard};
use super::{Point, Scenario, run_point};
use crate::jobs::time_left;

/// How to go about it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sweep<'a> {
    /// Where lines go, and come from.
    pub file: Option<&'a Path>,
    /// Threads; one for every processor without.
    pub jobs: Option<usize>,
    /// Whether to tell of every point on standard error.
    pub progress: bool,
    /// Runs the points of this shard alone, and uses its part of the file.
    pub shard: Option<Shard>,
}

/// Runs all points of a scenario, or of a shard, that its file does not have; all lines of them, in order.
///
/// # Errors
/// If the scenario is bad, a point cannot be run, or the file cannot be read or written.
pub fn sweep(scenario: &Scenario, how: Sweep<'_>) -> Result<Vec<Line>> {
    let file = how.file.map(|file| match how.shard {
        Some(shard) => shard.file(file),
        None => file.to_owned(),
    });
    let part = Part::begin(scenario, how.shard, file.as_deref(), how.progress)?;
    Ok(run(vec![part], how.jobs, how.progress)?.into_iter().flatten().collect())
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
    let parts = all.iter().map(|(scenario, file)| Part::begin(scenario, None, *file, progress));
    run(parts.collect::<Result<_>>()?, jobs, progress)
}

/// One of several sweeps that share the processors.
struct Part {
    name: String,
    points: Vec<Point>,
    left: Vec<usize>,
    done: Mutex<Done>,
}

/// The lines, and the first error.
struct Done {
    lines: Lines,
    failed: Option<anyhow::Error>,
}

impl Part {
    /// The points of a scenario or a shard; those without a line in the file are left.
    fn begin(
        scenario: &Scenario,
        shard: Option<Shard>,
        file: Option<&Path>,
        progress: bool,
    ) -> Result<Self> {
        let all = scenario.points()?;
        let keys = shard::keys(&all, shard);
        let points: Vec<_> = keys.iter().filter_map(|key| all.get(key.point).cloned()).collect();
        let name = shard::name(scenario, shard);
        let lines = Lines::open(&name, keys, file)?;
        let left = lines.left();
        if progress && left.len() < points.len() {
            let there = points.len() - left.len();
            crate::tell!("{name}: {there} of {} points are there", points.len());
        }
        Ok(Self { name, points, left, done: Mutex::new(Done { lines, failed: None }) })
    }

    /// Runs the point at a place; words for its progress, or nothing after an error.
    fn run(&self, place: usize) -> Option<String> {
        let point = self.points.get(place)?;
        let result = run_point(&point.settings);
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let added = match result {
            Ok(result) => done.lines.add(place, result),
            Err(error) if point.at.is_empty() => Err(error),
            Err(error) => Err(error.context(format!("at {point}"))),
        };
        if let Err(error) = added {
            done.failed.get_or_insert(error);
        }
        let at = if point.at.is_empty() { String::new() } else { format!("{point} ") };
        done.failed.is_none().then_some(at)
    }

    fn finish(self) -> Result<Vec<Line>> {
        let done = self.done.into_inner().unwrap_or_else(PoisonError::into_inner);
        match done.failed {
            Some(error) => Err(error),
            None => Ok(done.lines.into_lines().collect()),
        }
    }
}

/// Runs what is left of all parts on the same threads.
fn run(parts: Vec<Part>, jobs: Option<usize>, progress: bool) -> Result<Vec<Vec<Line>>> {
    let left = parts.iter().flat_map(|part| part.left.iter().map(move |place| (part, *place)));
    let todo: Vec<(&Part, usize)> = left.collect();
    let start = Instant::now();
    let (next, count) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some((part, place)) = todo.get(next.fetch_add(1, Ordering::Relaxed)) {
            let begin = Instant::now();
            let Some(at) = part.run(*place) else {
                next.store(todo.len(), Ordering::Relaxed);
                return;
            };
            let n = count.fetch_add(1, Ordering::Relaxed) + 1;
            if progress {
                let seconds = begin.elapsed().as_secs_f64();
                let left = time_left(start.elapsed(), n, todo.len());
                let (name, all) = (&part.name, todo.len());
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
    parts.into_iter().map(Part::finish).collect()
}
