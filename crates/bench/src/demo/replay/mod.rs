// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace over NBD: the same requests against the same data, served five ways.
//!
//! Purpose: the slow device alone (`no-cache`), behind Larder (`larder`), behind the same engine with
//! the choices of two caches that the paper compares with (`flashcache`, `bcache`), and flash alone
//! (`all-flash`). Each is a fresh `larder serve` process, driven by [`connection`].
//!
//! Invariants: each row continues from the previous one on one origin file, and the book knows what every page
//! of it must hold, so a write that one of them lost is found, by a read or when the whole file is
//! read back after the row.

pub mod connection;
pub mod content;
pub mod report;
pub mod setup;
pub mod verify;
pub mod workload;

use anyhow::{Context, Result};
use larder_io::format_size;
use larder_trace::{Records, Trace};

use self::report::{ReplayRow, WAYS};
use self::setup::Setup;
use self::verify::verify;
use self::workload::Workload;
use super::book::Book;
use super::device_file;
use super::options::DemoOptions;
use super::place::Place;
use super::progress::Progress;
use super::report::Report;
use super::served::Served;
use super::served::way::{Medium, Way};

const TRACE_NAME: &str = "a PostgreSQL 15 trace below 8 MB of shared buffers, zipf updates";

/// Makes the files and runs every row.
///
/// # Errors
/// A row cannot be run, what was read or is on the origin is wrong, or the row without a cache is
/// cached.
pub fn measure(options: &DemoOptions, progress: &mut Progress) -> Result<Report> {
    let (workload, trace) = load(options)?;
    let setup = setup(options, &workload, trace);
    let place = Place::new(options, setup.volume_bytes + setup.flash_bytes)?;
    progress.begin(&format!(
        "making an origin of {} and a flash of {} in {}",
        format_size(setup.volume_bytes),
        format_size(setup.flash_bytes),
        options.dir.display()
    ));
    let stopped = || options.stopped();
    let initial = |page, into: &mut [u8]| content::fill(page, 0, into);
    device_file::make(&place.origin(), setup.volume_bytes, initial, stopped)?;
    device_file::make(&place.flash(), setup.flash_bytes, |_, _| {}, stopped)?;
    let book = Book::new(workload.pages());
    let replay = Replay { options, place, book, workload };
    let run = |way: Way| replay.row(way, progress).with_context(|| format!("row {}", way.name));
    let rows = WAYS.into_iter().map(run).collect::<Result<Vec<_>>>()?;
    report::report(&rows, &setup)
}

/// The workload and the name of its trace.
fn load(options: &DemoOptions) -> Result<(Workload, String)> {
    let path = options.replay.trace.as_ref();
    let name = path.map_or(TRACE_NAME.to_owned(), |p| p.display().to_string());
    let records = match path {
        Some(path) => Trace::new(path, larder_trace::Options::default()).records(),
        None => Records::shipped(),
    };
    let workload = records.map_err(Into::into).and_then(Workload::from_trace);
    Ok((workload.with_context(|| format!("trace {name}"))?, name))
}

fn setup(options: &DemoOptions, workload: &Workload, trace: String) -> Setup {
    // Larger than the volume by an eighth.
    let flash_bytes = workload.volume_bytes / 8 * 9;
    Setup {
        trace,
        trace_requests: workload.steps.len(),
        trace_writes: workload.writes,
        volume_bytes: workload.volume_bytes,
        touched_bytes: workload.touched_bytes,
        flash_bytes: flash_bytes.next_multiple_of(workload::EXTENT_BYTES),
        profile: options.profile.clone(),
        seed: options.seed,
        larder_flags: options.larder_flags.join(" "),
        scale: options.replay.clone(),
    }
}

/// What the rows share.
struct Replay<'a> {
    options: &'a DemoOptions,
    place: Place,
    book: Book,
    workload: Workload,
}

impl Replay<'_> {
    /// Runs a row from a fresh server to the file read back.
    fn row(&self, way: Way, progress: &mut Progress) -> Result<ReplayRow> {
        if way.medium == Medium::Flash {
            // The same data, served without the model.
            std::fs::rename(self.place.origin(), self.place.all_flash())?;
        }
        let scale = &self.options.replay;
        let mut served = Served::start(self.options, &self.place, way, None, progress)?;
        let measured = served.load(scale.window, "IOPS", progress, |server, second| {
            let connect = |_| Ok(server.connect()?);
            let clients = (0..scale.connections).map(connect).collect::<Result<Vec<_>>>()?;
            connection::replay(clients, &self.workload.steps, &self.book, scale, second)
        })?;
        served.stop()?;
        let row = report::row(&measured)?;
        progress.update(|| "reading the whole origin back".to_owned());
        verify(&way.truth(&self.place), &self.book, || self.options.stopped())?;
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_trace_is_as_described() {
        let (workload, _) = load(&DemoOptions::default()).unwrap();
        assert_eq!((workload.steps.len(), workload.writes), (238_118, 95_213));
        assert_eq!(workload.touched_bytes, 99_084 * 4096);
        assert_eq!(workload.volume_bytes, (689 + 51) << 20);
    }

    #[test]
    fn a_trace_that_cannot_be_read_is_named() {
        let mut options = DemoOptions::default();
        options.replay.trace = Some("/nowhere".into());
        let error = format!("{:#}", load(&options).unwrap_err());
        assert!(error.contains("trace /nowhere"), "{error}");
    }
}
