// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an earlier start left, and whether it may be used.
//!
//! Under `through` and `bounded` in two cases, and only if `pg_control` is as an armed process wrote it last:
//! - the shared memory is still there (the server died in this boot), and so is the end of the server's log (`wal.rs`):
//!   all of it, as it is;
//! - the server was stopped cleanly: the sealed log and the kept names.
//!
//! In any other case the log is formatted anew. Nothing is lost by that: the disk is never older than the last
//! checkpoint, from which the server recovers. Before recovery the disk gets what flash alone has, durably, or flash is
//! dropped: recovery flushes the files that it writes itself, and then ends with a checkpoint, behind which the log of the
//! earlier writes is gone.
//!
//! Under `full` the database needs the log (`part.rs`). A start under another policy brings all of it to the disk first,
//! and takes the guard away.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use larder_shared::{Memory, Shape};

use crate::area::{Area, Mark};
use crate::error::Unusable;
use crate::guard::{self, Guard};
use crate::here::Armed;
use crate::kept::{Kept, SETTLED};
use crate::memory::{self, How, Start, is_same};
use crate::mutant::{Mutant, is_active};
use crate::server::{Level, report};
use crate::{part, policy, wal};

/// Whether pages of the database may be on flash alone.
#[must_use]
pub fn is_needed(data: &Path, directory: &Path) -> bool {
    !matches!(Guard::read(data), Ok(None))
        || Kept::read(directory).is_ok_and(|kept| kept.is_some_and(|kept| kept.is_needed()))
}

/// Before anything is made there: flash that the data directory needs may only be away.
///
/// # Errors
/// If it is, or that cannot be told.
pub fn expect_log(data: &Path, directory: &Path) -> Result<(), Unusable> {
    match Guard::read(data)? {
        Some(guard) if Kept::read(directory)?.is_none() => Err(Unusable::NoLog(guard.volume)),
        _ => Ok(()),
    }
}

/// The shared memory over the log: that of the last start, a new one over what is on flash, or both new. What it was.
///
/// # Errors
/// If there can be none, or the database needs a log that is not there.
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
        // A copy of both, as a base backup makes of what lies below the data directory: the backup has everything.
        (Some(kept), None)
            if kept.is_needed() && kept.file != start.flash && data.join(guard::NAME).exists() => {}
        (Some(kept), guard) if kept.is_needed() => {
            let (armed, how) = part::again(start, (kept, guard), make)?;
            let wanted = policy::choose(start.shape.settings.policy);
            if wanted.is_part() && is_same(armed.memory.shape().log, start.shape.log) {
                part::own(&armed, start, false)?;
                return Ok((armed, how));
            }
            part::give_up(&armed, start)?;
            return new(
                start,
                memory::format(armed, &memory::new_file(&start.memory_path())?, start.shape)?,
            );
        }
        (Some(kept), Some(guard)) if settled(&kept, &guard) => Guard::remove(data)?,
        (_, Some(guard)) => return Err(Unusable::NoLog(guard.volume)),
        _ => {}
    }
    let kept = Kept::read(start.directory)?.filter(|kept| kept.stamp == 0);
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

/// As [`memory`], where the disk has what matters.
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
    let left = start.left();
    let failed = |memory: &Arc<Memory>| Area::of(memory).get(Mark::Failed) != 0;
    if !server.control.shut_down && left.as_ref().is_some_and(failed) {
        // It may fail again in the middle of recovery, and the server would never come up.
        fs::remove_file(start.memory_path())?;
        return Err(Unusable::FailedBefore);
    }
    if let Some(memory) = left.filter(usable) {
        let armed = make(memory);
        if drained(&armed) {
            return Ok((armed, How::AsLeft));
        }
        return memory::format(armed, &memory::new_file(&start.memory_path())?, shape);
    }
    let file = memory::new_file(&start.memory_path())?;
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

/// Brings to the disk what flash alone has, before recovery; whether that could be done.
#[must_use]
pub fn drained(armed: &Armed) -> bool {
    if is_active(Mutant::NoDrain) {
        return true;
    }
    let done = armed.join(true).map_err(Unusable::Join);
    let done = done.and_then(|pool| Ok(pool.drain()?));
    if let Err(error) = &done {
        let what = format!("what flash has cannot be brought to the disk ({error}); it is dropped");
        report(Level::Warning, &what, "The server recovers from its last checkpoint.");
    }
    done.is_ok()
}

/// Whether nobody has changed the data directory since.
fn is_unchanged(start: &Start<'_>, area: &Area) -> bool {
    start.knows_control(area) && wal::is_there(start.data(), area)
        || is_active(Mutant::TrustsDirectory)
}
