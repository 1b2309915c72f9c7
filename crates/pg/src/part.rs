// SPDX-License-Identifier: MIT OR Apache-2.0
//! A start where flash is, or was, a part of the database (`full`).
//!
//! A guard in the data directory records that it needs the log (`guard.rs`). `larder.kept` and the journal of names on
//! flash record for which `pg_control` (`kept.rs`, `journal.rs`). The start uses the log in shared memory, or recovers it
//! from flash, or is refused. The server's recovery reads pages from the log.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use larder_core::pagelog::{LogPolicy, LogSettings, now};
use larder_shared::{Memory, Shape};

use crate::area::{Area, Mark};
use crate::error::{Failure, Unusable};
use crate::guard::Guard;
use crate::here::Armed;
use crate::kept::{Kept, SETTLED};
use crate::memory::{self, How, Start};
use crate::mutant::{Mutant, is_active};
use crate::names::Number;
use crate::server::{Level, report};
use crate::{journal, wal};

/// The log that the data directory needs, with the policy and the geometry of its pages.
///
/// # Errors
/// If it does not exist, or does not belong to the present state of the data directory.
pub fn again(
    start: &Start<'_>,
    (kept, guard): (Kept, Option<Guard>),
    make: impl FnOnce(Arc<Memory>) -> Armed,
) -> Result<(Armed, How), Unusable> {
    let server = start.server;
    match guard {
        Some(guard) if guard.volume == kept.log.volume => {}
        Some(_) => return Err(Unusable::OtherLog),
        None => return Err(Unusable::NoGuard),
    }
    if kept.is_old {
        return Err(Unusable::OldLog);
    }
    // The memory is made for the log that the file describes, so that must be one that flash can have, with the server's
    // pages.
    let log = kept.log;
    let is_possible = log.is_possible() && log.page_bytes == start.shape.log.page_bytes;
    if !is_possible || log.base + log.bytes() > start.flash_bytes {
        return Err(Unusable::DamagedKept);
    }
    let stopped = kept.control;
    let replayed = journal::replay(kept, start.directory)?;
    let known =
        replayed.controls.contains(&server.control.hash) || is_active(Mutant::TrustsDirectory);
    let kept = &replayed.kept;
    if kept.system != server.control.system || !known {
        return Err(Unusable::OtherControl);
    }
    if let Some(place) = not_mounted(start, kept) {
        return Err(Unusable::NotMounted(place));
    }
    // Flash that is older than the memory records was restored from a copy, together with the data directory.
    let settings = LogSettings { policy: LogPolicy::Full, ..start.shape.settings };
    let ours =
        |memory: &Arc<Memory>| memory.shape().log == kept.log && replayed.is_of(&Area::of(memory));
    if let Some(memory) = start.left()?.filter(ours) {
        let area = Area::of(&memory);
        // Pages of a new relation may be on flash before their log records are in the server's log.
        let lsn = area.get(Mark::Lsn).min(wal::end(&area, server.wal_segment_bytes));
        let reached = || {
            let segment_bytes = server.wal_segment_bytes;
            lsn <= server.control.redo || wal::reaches(start.data(), lsn, segment_bytes)
        };
        if !start.knows_control(&area) || !reached() {
            return Err(Unusable::PutBack);
        }
        let same = memory.user_words().len() == start.shape.user_words
            && memory.shape().settings.policy == settings.policy;
        if same && area.get(Mark::Failed) == 0 {
            return Ok((make(memory), How::AsLeft));
        }
    }
    let shape = Shape { log: kept.log, settings, ..start.shape };
    let armed = make(Memory::create(&start.memories.create()?, shape)?);
    if !kept.restore(Area::of(&armed.memory).names()) {
        return Err(Unusable::WrongNames);
    }
    memory::open(&armed)?;
    reconcile(&armed)?;
    let stopped = stopped == server.control.hash && server.control.is_stopped();
    Ok((armed, if stopped { How::Warm } else { How::Recovered }))
}

/// A known tablespace that does not exist: its file system is not mounted. Its pages would count as dropped.
fn not_mounted(start: &Start<'_>, kept: &Kept) -> Option<String> {
    let spaces: BTreeSet<u32> = kept.names.iter().map(|row| (row[1] >> 32) as u32).collect();
    let link = |space: &u32| start.data().join(format!("pg_tblspc/{space}"));
    let is_away = |link: &PathBuf| {
        let linked = fs::symlink_metadata(link).is_ok();
        linked && !link.join(start.server.tablespace_version()).is_dir()
    };
    spaces.iter().map(link).find(is_away).map(|link| link.display().to_string())
}

/// Makes the log a part of the database, or leaves it one.
///
/// # Errors
/// If that cannot be made durable.
pub fn own(armed: &Armed, start: &Start<'_>, is_new: bool) -> Result<(), Unusable> {
    journal::reserve(&armed.directory)?;
    Kept::reserve(&armed.directory)?;
    let file = memory::identity(&armed.flash)?;
    let area = Area::of(&armed.memory);
    let log = armed.memory.shape().log;
    let names: Vec<[u64; 4]> = area.names().save().collect();
    let control = &start.server.control;
    let (system, control) = (control.system, control.hash);
    let stamp = Kept::new_stamp();
    let kept = Kept { system, control, log, stamp, file, names, is_old: false };
    if is_new {
        Kept { stamp: SETTLED, names: Vec::new(), ..kept }.save(&armed.directory)?;
        let guard = Guard { volume: log.volume, directory: armed.directory.path().to_owned() };
        guard.put(start.data())?;
    }
    kept.save(&armed.directory)?;
    journal::begin(&area, kept.stamp, &kept.names);
    Ok(())
}

/// Writes all dirty pages of the log to the disk, which then does not need the log.
///
/// # Errors
/// If that fails; the disk then needs the log as before.
pub fn give_up(armed: &Armed, start: &Start<'_>) -> Result<(), Unusable> {
    let pool = armed.join(true).map_err(Unusable::Join)?;
    let dirty = pool.pages().status().dirty;
    let what = format!("bringing up to {dirty} pages from flash to the data directory");
    report(Level::Log, &what, "");
    now(pool.flash().log().empty()).map_err(Failure::Disk)?;
    let log = armed.memory.shape().log;
    let control = &start.server.control;
    let (system, control) = (control.system, control.hash);
    let (file, names) = (0, Vec::new());
    let kept = Kept { system, control, log, stamp: SETTLED, file, names, is_old: false };
    kept.save(&armed.directory)?;
    Guard::remove(start.data())?;
    Ok(Kept::remove(&armed.directory)?)
}

/// Drops, after a crash of the machine, pages whose forks are unknown or that lie behind the end of their files. They were
/// never flushed for the server, or their files were truncated.
fn reconcile(armed: &Armed) -> Result<(), Unusable> {
    let pool = armed.join(true).map_err(Unusable::Join)?;
    let log = pool.flash().log();
    let extents = pool.flash().extents();
    let mut ends: HashMap<Number, u64> = HashMap::new();
    let mut gone = Vec::new();
    for (page, ..) in log.valid_pages() {
        let (number, block) = Number::of_page(page);
        let end = match ends.entry(number) {
            Entry::Occupied(end) => *end.get(),
            Entry::Vacant(vacant) => {
                let mut end = 0;
                if let Some(extent) = pool.area().names().extent_of(number) {
                    let (segment, first) = extents.place(&extent);
                    let blocks = armed.blocks_of(&extent.fork, segment as u32)?;
                    end = blocks.saturating_sub(first);
                }
                *vacant.insert(end)
            }
        };
        if block >= end {
            gone.push(page);
        }
    }
    gone.sort_unstable();
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for page in gone {
        match ranges.last_mut() {
            Some(last) if last.end == page => last.end += 1,
            _ => ranges.push(page..page + 1),
        }
    }
    now(log.bury_all(ranges)).map_err(Failure::Flash)?;
    pool.area().made_all_dirty(pool.pages().status().head);
    Ok(())
}
