// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the memory and the log of an earlier start may be used.
//!
//! Under `through` and `bounded` in two cases, and only if `pg_control` is as an armed process wrote it last:
//! - the shared memory is still there (the server died in this boot), and so is the end of the server's log (`wal.rs`):
//!   all of it, as it is;
//! - the server was stopped cleanly: the sealed log and the kept names.
//!
//! In any other case the log is formatted. This loses nothing: the disk is never older than the last checkpoint, from
//! which the server recovers. Recovery after a crash begins with the dirty pages that flash has (`policy/recovery.rs`). Before
//! recovery from an archive, and before a server follows another one, all dirty pages are written from flash to the disk,
//! durably, or flash is dropped: recovery flushes only the files that it writes itself, and goes past the end of the log that
//! has the earlier writes.
//!
//! Under `full` the database needs the log (`part.rs`). A start under another policy first writes all of it to the disk,
//! and removes the guard.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use larder_private::{Directory, Refuse};
use larder_shared::{Memory, Shape, now};

use crate::area::{Area, Mark};
use crate::error::{Failure, Unusable};
use crate::guard::{self, Guard};
use crate::here::Armed;
use crate::kept::{Kept, SETTLED};
use crate::memory::{self, How, Start, is_same};
use crate::mutant::{Mutant, is_active};
use crate::policy::Begins;
use crate::pool::Pool;
use crate::server::{Level, report};
use crate::{part, wal};

/// Whether pages of the database may be only on flash.
#[must_use]
pub fn is_needed(data: &Path, directory: &Path) -> bool {
    !matches!(Guard::read(data), Ok(None))
        || Kept::read_refused(directory).is_some_and(|kept| kept.is_needed())
}

/// What an earlier start kept in a directory that may not exist.
fn kept_in(directory: &Path) -> io::Result<Option<Kept>> {
    match Directory::open(directory, Refuse::WRITE) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        directory => Kept::read(&directory?),
    }
}

/// Checks, before anything is created there, whether flash that the data directory needs is not mounted.
///
/// # Errors
/// If it is, or that cannot be told.
pub fn expect_log(data: &Path, directory: &Path) -> Result<(), Unusable> {
    match Guard::read(data)? {
        Some(guard) if kept_in(directory)?.is_none() => Err(Unusable::NoLog(guard.volume)),
        _ => Ok(()),
    }
}

/// The shared memory and the log: those of the last start, new memory over the log on flash, or both new. Returns which.
///
/// # Errors
/// If the memory cannot be created, or the database needs a log that does not exist.
pub fn memory(
    start: &Start<'_>,
    make: impl FnOnce(Arc<Memory>) -> Armed,
) -> Result<(Armed, How), Unusable> {
    let data = start.data();
    let kept = Kept::read(start.directory)?;
    let guard = Guard::read(data)?;
    let settled =
        |kept: &Kept, guard: &Guard| kept.stamp == SETTLED && kept.log.volume == guard.volume;
    match (kept, guard) {
        // Both are copies, as a base backup copies what lies below the data directory. The backup has all pages.
        (Some(kept), None)
            if kept.is_needed() && kept.file != start.flash && data.join(guard::NAME).exists() => {}
        (Some(kept), guard) if kept.is_needed() => {
            let (armed, how) = part::again(start, (kept, guard), make)?;
            if start.shape.settings.policy.survives_crash()
                && is_same(armed.memory.shape().log, start.shape.log)
            {
                part::own(&armed, start, false)?;
                return Ok((armed, how));
            }
            part::give_up(&armed, start)?;
            return new(start, memory::format(armed, &start.memories.create()?, start.shape)?);
        }
        (Some(kept), Some(guard)) if settled(&kept, &guard) => Guard::remove(data)?,
        (_, Some(guard)) => return Err(Unusable::NoLog(guard.volume)),
        _ => {}
    }
    let kept = Kept::read(start.directory)?.filter(|kept| kept.stamp == 0 && !kept.is_old);
    Kept::remove(start.directory)?;
    new(start, unneeded(start, kept, make)?)
}

/// A log that the database did not need until now.
fn new(start: &Start<'_>, (armed, how): (Armed, How)) -> Result<(Armed, How), Unusable> {
    if armed.policy().is_part() {
        part::own(&armed, start, true)?;
    }
    Ok((armed, how))
}

/// As [`memory`], if the database does not need the log.
fn unneeded(
    start: &Start<'_>,
    kept: Option<Kept>,
    make: impl FnOnce(Arc<Memory>) -> Armed,
) -> Result<(Armed, How), Unusable> {
    let (server, shape) = (start.server, start.shape);
    let usable = |memory: &Arc<Memory>| {
        let area = Area::of(memory);
        let same = Shape { log: shape.log, ..memory.shape() } == shape;
        same && is_same(memory.shape().log, shape.log)
            && area.get(Mark::Failed) == 0
            && is_unchanged(start, &area)
    };
    let left = start.left()?;
    let failed = |memory: &Arc<Memory>| Area::of(memory).get(Mark::Failed) != 0;
    if !server.control.is_stopped() && left.as_ref().is_some_and(failed) {
        // It may fail again in the middle of recovery, and the server would never come up.
        start.memories.remove()?;
        return Err(Unusable::FailedBefore);
    }
    if let Some(memory) = left.filter(usable) {
        let armed = make(memory);
        if is_ready(&armed, start.begins) {
            return Ok((armed, How::AsLeft));
        }
        return memory::format(armed, &start.memories.create()?, shape);
    }
    let file = start.memories.create()?;
    let ours = |kept: &Kept| {
        let control = kept.control == server.control.hash || is_active(Mutant::TrustsDirectory);
        kept.system == server.control.system && control && is_same(kept.log, shape.log)
    };
    if let Some(kept) = kept.filter(ours) {
        let armed = make(Memory::create(&file, Shape { log: kept.log, ..shape })?);
        let sound = kept.restore(Area::of(&armed.memory).names());
        if sound && memory::open(&armed).is_ok() {
            return Ok((armed, How::Warm));
        }
        return memory::format(armed, &file, shape);
    }
    let armed = make(Memory::create(&file, shape)?);
    memory::format(armed, &file, shape)
}

/// Writes dirty pages from flash to the disk, as many as must be there before the server begins: all, or before recovery
/// after a crash the first few, to learn whether flash answers. Returns whether this succeeded.
#[must_use]
pub fn is_ready(armed: &Armed, begins: Begins) -> bool {
    let done = armed.join(true).map_err(Unusable::Join).and_then(|pool| {
        // If flash hangs, the server recovers without it.
        pool.flash().hurry(true);
        match begins {
            Begins::Crash => {
                // A process may have died between a change and its note of it.
                pool.area().made_all_dirty(pool.pages().status().head);
                Ok(write_some(&pool)?)
            }
            Begins::Stopped | Begins::Archive => Ok(pool.drain()?),
        }
    });
    if let Err(error) = &done {
        let what = format!(
            "dirty pages cannot be written from flash to the disk ({error}); they are dropped"
        );
        report(Level::Warning, &what, "The server recovers from its last checkpoint.");
    }
    done.is_ok()
}

/// Writes the first dirty pages.
fn write_some(pool: &Pool) -> Result<(), Failure> {
    let (log, dirty) = (pool.flash().log(), || pool.pages().status().dirty);
    let (before, mut left) = (dirty(), log.undrained());
    while dirty() == before && before > 0 && !left.is_empty() {
        left.start = now(log.drain_ahead(left.clone())).map_err(Failure::Disk)?;
    }
    Ok(())
}

/// Whether no program has changed the data directory since.
fn is_unchanged(start: &Start<'_>, area: &Area) -> bool {
    start.knows_control(area) && wal::is_there(start.data(), area)
        || is_active(Mutant::TrustsDirectory)
}
