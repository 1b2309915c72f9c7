// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a page log of 64 GiB takes until its directory is usable after a crash (FaCE 5.2; F18).
//!
//! Method: the engine itself fills the log once over and into a second lap, on a host that keeps log headers, segments
//! and batch headers, and takes every page as zero. At several moments between two segments the
//! power fails: the log is read by a second engine. What counts is the processor time of that, and what the reads
//! would take one after the other on flash of 400 MB/s that answers within 0.1 ms.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use larder_core::buf::{Buf, PAGE};
use larder_core::pagelog::{
    Geometry, Host, Inspection, LogPolicy, LogSettings, PAGES_MOST, PageLog, SEGMENT_MOST, now,
    words_needed,
};
use larder_core::request::Errno;

use super::super::common::progress;
use super::super::row::{Goal, Row, median};
use super::metadata::NAME;

const FLASH_BYTES_PER_SECOND: f64 = 400e6;
const READ_SECONDS: f64 = 1e-4;
const GOAL: f64 = 1.5;
/// Where between two segments the power fails, in quarters.
const QUARTERS: [u64; 4] = [0, 1, 2, 3];
const SETTINGS: LogSettings = LogSettings { policy: LogPolicy::Full, second_chance: true };

/// A flash device on which all pages are zero.
#[derive(Default)]
struct Flash {
    /// Bytes at an offset, without the zeroes behind them.
    parts: RefCell<HashMap<u64, Vec<u8>>>,
    reads: Cell<u64>,
    read_bytes: Cell<u64>,
}

impl Flash {
    fn store(&self, offset: u64, bytes: &[u8]) {
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        self.parts.borrow_mut().insert(offset, bytes[..end].to_vec());
    }

    fn read(&self, offset: u64, mut buf: Buf) -> Buf {
        self.reads.set(self.reads.get() + 1);
        self.read_bytes.set(self.read_bytes.get() + buf.len() as u64);
        buf.fill(0);
        if let Some(part) = self.parts.borrow().get(&offset) {
            buf[..part.len()].copy_from_slice(part);
        }
        buf
    }
}

/// A host without tasks over it; everything written is durable, and the origin accepts every write.
struct Engine {
    flash: Rc<Flash>,
    changes: Cell<u64>,
}

impl Engine {
    fn new(flash: &Rc<Flash>) -> Self {
        Self { flash: Rc::clone(flash), changes: Cell::new(0) }
    }
}

impl Host for Engine {
    type Guard<'a> = ();
    type Hold = ();
    fn lock(&self) -> ((), bool) {
        ((), false)
    }
    fn stage(&self, _: usize, _: usize, _: &[u8]) {}
    fn staged(&self, _: usize, _: usize, into: &mut [u8]) {
        into.fill(0);
    }
    async fn read_flash(&self, offset: u64, buf: Buf) -> Result<Buf, Errno> {
        Ok(self.flash.read(offset, buf))
    }
    async fn write_batch(&self, offset: u64, header: Buf, _: usize, _: usize) -> Result<(), Errno> {
        self.flash.store(offset, &header);
        Ok(())
    }
    async fn write_flash(&self, offset: u64, buf: Buf) -> Result<(), Errno> {
        self.flash.store(offset, &buf);
        Ok(())
    }
    async fn flush_flash(&self) -> Result<(), Errno> {
        Ok(())
    }
    async fn hold(&self, _: u64) {}
    async fn write_origin(&self, _: u64, _: Buf) -> Result<(), Errno> {
        Ok(())
    }
    async fn zero_origin(&self, _: Range<u64>) -> Result<(), Errno> {
        Ok(())
    }
    async fn flush_origin(&self) -> Result<(), Errno> {
        Ok(())
    }
    fn evicted(&self, _: u64) {}
    fn has_tasks(&self) -> bool {
        false
    }
    async fn changed(&self, _: u64) {}
    fn changes(&self) -> u64 {
        self.changes.get()
    }
    fn notify(&self) {
        self.changes.set(self.changes.get() + 1);
    }
    fn me(&self) -> u64 {
        1
    }
    fn is_gone(&self, _: u64) -> bool {
        false
    }
}

fn memory(log: &Geometry) -> Vec<AtomicU64> {
    (0..words_needed(log.blocks)).map(|_| AtomicU64::new(0)).collect()
}

/// A recovery.
#[derive(Clone, Copy, Debug)]
struct Recovered {
    cpu: f64,
    reads: u64,
    read_bytes: u64,
    pages: u64,
}

impl Recovered {
    fn seconds(&self) -> f64 {
        let flash = self.read_bytes as f64 / FLASH_BYTES_PER_SECOND;
        self.cpu + flash + self.reads as f64 * READ_SECONDS
    }
}

fn recover(flash: &Flash, log: Geometry) -> Result<Recovered> {
    flash.reads.set(0);
    flash.read_bytes.set(0);
    let began = Instant::now();
    let found =
        Inspection::new(log, SETTINGS, PAGES_MOST, |offset, buf| Ok(flash.read(offset, buf)));
    let found = found.context("the log that was filled")?;
    Ok(Recovered {
        cpu: began.elapsed().as_secs_f64(),
        reads: flash.reads.get(),
        read_bytes: flash.read_bytes.get(),
        pages: found.pages().count() as u64,
    })
}

/// A log of so many bytes, filled.
struct Rig {
    flash: Rc<Flash>,
    log: PageLog<Engine, Vec<AtomicU64>>,
    next: u64,
}

impl Rig {
    fn new(bytes: u64) -> Result<Self> {
        let place = Geometry::fit(0, bytes, larder_core::pagelog::BATCH_PAGES, 1)
            .with_context(|| format!("{bytes} bytes have no room for a log"))?;
        let flash = Rc::new(Flash::default());
        place.blank().iter().for_each(|(at, bytes)| flash.store(*at, bytes));
        let opened = now(PageLog::open(Engine::new(&flash), memory(&place), place, SETTINGS));
        let (log, _) = opened?;
        Ok(Self { flash, log, next: 0 })
    }

    /// Puts pages until the head of the log has reached this position.
    fn fill(&mut self, head: u64) -> Result<()> {
        let zero = [0; PAGE];
        while self.log.status().head < head {
            now(self.log.put(self.next, &zero, false))?;
            self.next += 1;
        }
        Ok(())
    }

    fn segment(&self) -> u64 {
        SEGMENT_MOST.min(u64::from(self.log.geometry().blocks) / 8)
    }
}

/// The rows, of a log of so many bytes; `full` if that is the whole of its size.
pub(super) fn rows(bytes: u64, rounds: usize, full: bool) -> Result<Vec<Row>> {
    let mut rig = Rig::new(bytes)?;
    let blocks = u64::from(rig.log.geometry().blocks);
    let first = (blocks + blocks / 16).next_multiple_of(rig.segment());
    let mut rows = Vec::new();
    for quarters in QUARTERS {
        rig.fill(first + rig.segment() * quarters / 4)?;
        let found: Result<Vec<Recovered>> =
            (0..rounds).map(|_| recover(&rig.flash, *rig.log.geometry())).collect();
        let found = found?;
        rows.push(row(quarters, &found, blocks, full)?);
    }
    progress(NAME, format!("face: {rounds} rounds"));
    Ok(rows)
}

fn row(quarters: u64, found: &[Recovered], blocks: u64, full: bool) -> Result<Row> {
    let last = found.last().context("no rounds")?;
    // All except batch headers and the empty blocks between head and tail.
    ensure!(last.pages > blocks * 3 / 4, "{} of {blocks} pages came back", last.pages);
    let ours = median(&found.iter().map(Recovered::seconds).collect::<Vec<_>>());
    let cpu = median(&found.iter().map(|r| r.cpu).collect::<Vec<_>>());
    let case = format!("face, directory usable, {quarters}/4 of a segment behind the last");
    let row = Row::new(NAME, case, "s").note(format!(
        "processor time {cpu:.2} s, {} reads of {} in all, {} pages",
        last.reads,
        larder_io::format_size(last.read_bytes / 1024 * 1024),
        last.pages
    ));
    Ok(match full {
        true => row.against("the goal", ours, GOAL).goals(&[Goal::OursAtMost(GOAL)]),
        false => row.alone(ours),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_was_filled_comes_back_wherever_the_power_fails() {
        let rows = rows(32 << 20, 1, false).unwrap();
        assert_eq!(rows.len(), 4);
        assert!(rows.iter().all(|row| row.ours.unwrap() > 0.0));
    }

    #[test]
    fn reads_take_what_the_model_says() {
        let found = Recovered { cpu: 0.5, reads: 1000, read_bytes: 200_000_000, pages: 1 };
        assert!((found.seconds() - 1.1).abs() < 1e-9);
    }
}
