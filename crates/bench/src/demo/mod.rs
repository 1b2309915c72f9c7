// SPDX-License-Identifier: MIT OR Apache-2.0
//! The demo behind `larder demo` and `make demo`: the main job end to end, on files that it makes
//! itself.
//!
//! Purpose: three parts on one stack. [`replay`] needs no root: a trace over NBD against the same
//! data, served five ways. [`oltp`] is a database in a file system on a served volume; both together
//! take under three minutes. [`postgres`], by itself, is PostgreSQL with the library on a directory
//! of [`slow_dir`]. The stack is what parts share: a [`place`] for files, a [`served`] volume and its
//! [`server`], [`clients`] in a closed loop with their [`tally`] and the [`book`] of what they wrote,
//! a [`row`] and a [`report`].
//!
//! Invariants: every row of a part gets the same treatment. A write that a row lost is found, by a
//! read or when the slow device alone is checked after the row. Nothing is left behind but the JSON:
//! files go with their directory, servers and mounts with their guards.
//!
//! Why a modelled device: a demo must run where there is no SAN or cloud volume, and a figure
//! should not depend on the machine's disk.

pub mod book;
pub mod clients;
pub mod device_file;
pub mod oltp;
pub mod options;
pub mod outcome;
pub mod place;
pub mod postgres;
pub mod progress;
pub mod replay;
pub mod report;
pub mod row;
pub mod served;
pub mod server;
pub mod slow_dir;
pub mod system;
pub mod tally;
pub mod window;

use std::time::Instant;

use anyhow::Result;
use larder_lab::tell;

use self::options::{DemoOptions, Part};
use self::outcome::Skipped;
use self::progress::Progress;

/// Runs the demo: progress to standard error, tables or JSON to standard output, the rows of each
/// part to its file. Where the machine lacks what the database in a file system needs, a line states it.
///
/// # Errors
/// A row cannot be run, data is wrong or lost, a row without a cache is cached, or the machine lacks
/// what PostgreSQL needs.
pub fn run(options: &DemoOptions) -> Result<()> {
    let mut values = Vec::new();
    for &part in &options.parts {
        let path = options.dir.join(part.file());
        // Rows of an earlier demo could be mistaken for those of this one.
        let _ = std::fs::remove_file(&path);
        let (begin, mut progress) = (Instant::now(), Progress::new());
        let measured = match part {
            Part::Replay => replay::measure(options, &mut progress),
            Part::Oltp => oltp::measure(options, &mut progress),
            Part::Postgres => postgres::measure(options, &mut progress),
        };
        // An interruption is the cause of later failures.
        let report = match options.stopped().and(measured) {
            // The database in a file system is skipped if it cannot run. PostgreSQL runs only if asked for by name, so it fails.
            Err(error) if part == Part::Oltp && error.is::<Skipped>() => {
                tell!("demo: the second part (a database over FUSE) is skipped: {error:#}");
                continue;
            }
            result => result?,
        };
        progress.begin(&format!("done after {:.0} s", begin.elapsed().as_secs_f64()));
        report.write(&path)?;
        if !options.json {
            println!("{}\n", report.text);
        }
        tell!("demo: rows are in {}", path.display());
        values.extend(report.rows);
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&values)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::outcome::Interrupted;
    use super::*;

    #[test]
    fn an_interrupted_demo_says_so_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        // A read of one page, so that it fits where the tests of a small machine run.
        let record = [&[0; 16][..], &4096_u32.to_le_bytes(), &[0; 4]].concat();
        let trace = dir.path().join("small.btr.zst");
        std::fs::write(&trace, zstd::encode_all(&record[..], 1).unwrap()).unwrap();
        let mut options = DemoOptions {
            dir: dir.path().to_owned(),
            parts: vec![Part::Replay],
            ..DemoOptions::default()
        };
        options.replay.trace = Some(trace);
        options.interrupted.store(true, Ordering::SeqCst);
        let error = run(&options).unwrap_err();
        assert!(error.is::<Interrupted>(), "{error:#}");
        assert_eq!(std::fs::read_dir(dir.path().join("work")).unwrap().count(), 0);
    }
}
