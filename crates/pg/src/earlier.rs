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
//! Under `full` the database needs the log, and a guard in the data directory says so (`guard.rs`). It is used as it is in
//! memory, or recovered from flash, whoever died; or the start is refused. Recovery of the server reads its pages. A
//! start under another policy brings all of it to the disk first, and takes the guard away.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_core::pagelog::{Geometry, LogPolicy, now};
use larder_core::request::Errno;
use larder_shared::{Memory, Pages, Shape};
use rustix::fs::{AtFlags, StatxFlags};

use crate::area::{Area, Mark};
use crate::guard::Guard;
use crate::here::Armed;
use crate::instance::Instance;
use crate::kept::{Kept, SETTLED};
use crate::mutant::{Mutant, is_active};
use crate::names::Number;
use crate::pool::Pool;
use crate::server::{Level, report};
use crate::{control, guard, journal, wal};

/// What the log of a start is, for the server's log.
type How = &'static str;

const AS_LEFT: How = "as the last start left it";
const WARM: How = "warm after a stop";
const EMPTY: How = "empty";

/// As a number of the system.
pub fn number(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.0)
}

fn is_same(log: Geometry, wanted: Geometry) -> bool {
    Geometry { volume: 0, ..log } == Geometry { volume: 0, ..wanted }
}

/// Whether pages of the database may be on flash alone.
#[must_use]
pub fn is_needed(server: &Instance, directory: &Path) -> bool {
    !matches!(Guard::read(Path::new(&server.data)), Ok(None))
        || Kept::read(directory).is_ok_and(|kept| kept.is_some_and(|kept| kept.is_needed()))
}

fn has_no_log(guard: &Guard) -> io::Error {
    let volume = guard.volume;
    io::Error::other(format!("it has no log {volume:016x}, which the data directory needs"))
}

/// Before anything is made there: flash that the data directory needs may only be away.
///
/// # Errors
/// If it is, or that cannot be told.
pub fn expect_log(data: &Path, directory: &Path) -> io::Result<()> {
    match Guard::read(data)? {
        Some(guard) if Kept::read(directory)?.is_none() => Err(has_no_log(&guard)),
        _ => Ok(()),
    }
}

/// The shared memory over the log: that of the last start, a new one over what is on flash, or both new. What it was.
///
/// # Errors
/// If there can be none, or the database needs a log that is not there.
pub fn memory(
    server: &Instance,
    shape: Shape,
    directory: &Path,
    flash: u64,
    make: impl FnOnce(Arc<Memory>) -> Armed,
) -> io::Result<(Armed, How)> {
    let data = Path::new(&server.data);
    let kept = Kept::read(directory)?;
    let guard = Guard::read(data)?;
    let settled =
        |kept: &Kept, guard: &Guard| kept.stamp == SETTLED && kept.log.volume == guard.volume;
    let full = shape.settings.policy == LogPolicy::Full;
    match (kept, guard) {
        // A copy of both, as a base backup makes of what lies below the data directory: the backup has everything.
        (Some(kept), None)
            if kept.is_needed() && kept.file != flash && data.join(guard::NAME).exists() => {}
        (Some(kept), guard) if kept.is_needed() => {
            let (armed, how) = needed(server, shape, (kept, guard), flash, directory, make)?;
            if full && is_same(armed.memory.shape().log, shape.log) {
                own(&armed, server, false)?;
                return Ok((armed, how));
            }
            give_up(&armed, server)?;
            let (armed, how) = format(armed, &new_file(&memory_path_of(server))?, shape)?;
            if full {
                own(&armed, server, true)?;
            }
            return Ok((armed, how));
        }
        (Some(kept), Some(guard)) if settled(&kept, &guard) => Guard::remove(data)?,
        (_, Some(guard)) => return Err(has_no_log(&guard)),
        _ => {}
    }
    let kept = Kept::read(directory)?.filter(|kept| kept.stamp == 0);
    Kept::remove(directory)?;
    let (armed, how) = unneeded(server, shape, kept, flash, make)?;
    if full {
        own(&armed, server, true)?;
    }
    Ok((armed, how))
}

/// As above, where the disk has what matters.
fn unneeded(
    server: &Instance,
    shape: Shape,
    kept: Option<Kept>,
    flash: u64,
    make: impl FnOnce(Arc<Memory>) -> Armed,
) -> io::Result<(Armed, How)> {
    let path = memory_path_of(server);
    let usable = |memory: &Arc<Memory>| {
        let area = Area::of(memory);
        let same = Shape { log: shape.log, ..memory.shape() } == shape;
        same && is_same(memory.shape().log, shape.log)
            && area.get(Mark::Failed) == 0
            && is_unchanged(server, &area)
    };
    let left = left(&path, flash);
    let failed = |memory: &Arc<Memory>| Area::of(memory).get(Mark::Failed) != 0;
    if !server.control.shut_down && left.as_ref().is_some_and(failed) {
        // It may fail again in the middle of recovery, and the server would never come up.
        fs::remove_file(&path)?;
        return Err(io::Error::other(
            "it failed, and the server died; the next start tries it again",
        ));
    }
    if let Some(memory) = left.filter(usable) {
        let armed = make(memory);
        if drained(&armed) {
            return Ok((armed, AS_LEFT));
        }
        return format(armed, &new_file(&path)?, shape);
    }
    let file = new_file(&path)?;
    let ours = |kept: &Kept| {
        let control = kept.control == server.control.hash || is_active(Mutant::TrustsDirectory);
        kept.system == server.control.system && control && is_same(kept.log, shape.log)
    };
    if let Some(kept) = kept.filter(ours) {
        let armed = make(Memory::create(&file, Shape { log: kept.log, ..shape })?);
        let sound = kept.restore(Area::of(&armed.memory).names());
        if sound && open(&armed).is_ok() {
            return Ok((armed, WARM));
        }
        return format(armed, &file, shape);
    }
    let armed = make(Memory::create(&file, shape)?);
    format(armed, &file, shape)
}

/// As above, where pages may be on flash alone: under the policy and in the places that they were written in.
fn needed(
    server: &Instance,
    shape: Shape,
    (kept, guard): (Kept, Option<Guard>),
    flash: u64,
    directory: &Path,
    make: impl FnOnce(Arc<Memory>) -> Armed,
) -> io::Result<(Armed, How)> {
    let refuse = |what: &str| Err(io::Error::other(what.to_owned()));
    match guard {
        Some(guard) if guard.volume == kept.log.volume => {}
        Some(_) => return refuse("it has another log than the data directory needs"),
        None => {
            return refuse(
                "it has pages that a data directory needs, and this one does not say so",
            );
        }
    }
    let stopped = kept.control;
    let replayed = journal::replay(kept, directory)?;
    let known =
        replayed.controls.contains(&server.control.hash) || is_active(Mutant::TrustsDirectory);
    let kept = &replayed.kept;
    if kept.system != server.control.system || !known {
        return refuse(
            "pg_control is another than the server wrote last: the data directory was put back or changed",
        );
    }
    if let Some(place) = not_mounted(server, kept) {
        return refuse(&format!("the tablespace in {place}, whose pages it has, is not there"));
    }
    let path = memory_path_of(server);
    // Where flash is older than the memory says, it was put back, and with it the data directory, which it knows.
    let ours =
        |memory: &Arc<Memory>| memory.shape().log == kept.log && replayed.is_of(&Area::of(memory));
    if let Some(memory) = left(&path, flash).filter(ours) {
        let area = Area::of(&memory);
        let data = Path::new(&server.data);
        // A new relation's pages may come to flash before what they say of the log does.
        let lsn = area.get(Mark::Lsn).min(wal::end(&area, server.wal_segment_bytes));
        let reached =
            || lsn <= server.control.redo || wal::reaches(data, lsn, server.wal_segment_bytes);
        if !is_known(server, &area) || !reached() {
            return refuse("the data directory was put back or changed since the server died");
        }
        let same = memory.user_words().len() == shape.user_words
            && memory.shape().settings.policy == LogPolicy::Full;
        if same && area.get(Mark::Failed) == 0 {
            return Ok((make(memory), AS_LEFT));
        }
    }
    let settings = larder_core::pagelog::LogSettings { policy: LogPolicy::Full, ..shape.settings };
    let shape = Shape { log: kept.log, settings, ..shape };
    let armed = make(Memory::create(&new_file(&path)?, shape)?);
    if !kept.restore(Area::of(&armed.memory).names()) {
        return refuse("larder.names says what cannot be");
    }
    open(&armed)?;
    reconcile(&armed)?;
    let stopped = stopped == server.control.hash && server.control.shut_down;
    Ok((armed, if stopped { WARM } else { "recovered from flash" }))
}

/// A tablespace that is known and not there: a file system that is not mounted. Its pages would count as dropped.
fn not_mounted(server: &Instance, kept: &Kept) -> Option<String> {
    let spaces: BTreeSet<u32> = kept.names.iter().map(|row| (row[1] >> 32) as u32).collect();
    let link = |space: &u32| Path::new(&server.data).join(format!("pg_tblspc/{space}"));
    let is_away = |link: &PathBuf| {
        let linked = fs::symlink_metadata(link).is_ok();
        linked && !link.join(server.tablespace_version()).is_dir()
    };
    spaces.iter().map(link).find(is_away).map(|link| link.display().to_string())
}

/// The log becomes a part of the database, or goes on to be one.
fn own(armed: &Armed, server: &Instance, is_new: bool) -> io::Result<()> {
    journal::reserve(&armed.directory)?;
    Kept::reserve(&armed.directory)?;
    let file = identity(&armed.flash)?;
    let area = Area::of(&armed.memory);
    let log = armed.memory.shape().log;
    let names: Vec<[u64; 4]> = area.names().save().collect();
    let kept = Kept {
        system: server.control.system,
        control: server.control.hash,
        log,
        stamp: Kept::new_stamp(),
        file,
        names,
    };
    if is_new {
        Kept { stamp: SETTLED, names: Vec::new(), ..kept }.save(&armed.directory)?;
        let guard = Guard { volume: log.volume, directory: armed.directory.clone() };
        guard.put(Path::new(&server.data))?;
    }
    kept.save(&armed.directory)?;
    journal::begin(&area, kept.stamp, &kept.names);
    Ok(())
}

/// The disk gets all that the log has, and needs it no more.
fn give_up(armed: &Armed, server: &Instance) -> io::Result<()> {
    let pages = armed.join(true).map_err(number)?;
    let dirty = pages.pages().status().dirty;
    report(
        Level::Log,
        &format!("bringing up to {dirty} pages from flash to the data directory"),
        "",
    );
    now(pages.pages().log().empty()).map_err(number)?;
    let log = armed.memory.shape().log;
    let (system, control) = (server.control.system, server.control.hash);
    let (file, names) = (0, Vec::new());
    Kept { system, control, log, stamp: SETTLED, file, names }.save(&armed.directory)?;
    Guard::remove(Path::new(&server.data))?;
    Kept::remove(&armed.directory)
}

/// After a crash of the machine: pages whose forks nobody knows, or that lie behind the end of their files, were never
/// promised, or were cut off. They must not come back.
fn reconcile(armed: &Armed) -> io::Result<()> {
    let pool = armed.join(true).map_err(number)?;
    let log = pool.pages().log();
    let mut ends: HashMap<(u64, u64), u64> = HashMap::new();
    let mut gone = Vec::new();
    for (page, ..) in log.valid_pages() {
        let (number, block) = Number::of_page(page);
        let segment = block / armed.segment_blocks;
        let end = match ends.entry((number.bits(), segment)) {
            Entry::Occupied(end) => *end.get(),
            Entry::Vacant(end) => {
                let fork = pool.area().names().fork_of(number);
                let blocks = fork.map(|fork| armed.blocks_of(&fork, segment as u32));
                *end.insert(blocks.transpose()?.unwrap_or(0))
            }
        };
        if block % armed.segment_blocks >= end {
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
    now(log.bury_all(ranges)).map_err(number)?;
    pool.area().made_all_dirty(pool.pages().status().rear);
    Ok(())
}

/// Brings to the disk what flash alone has; whether that could be done.
#[must_use]
pub fn drained(armed: &Armed) -> bool {
    if is_active(Mutant::NoDrain) {
        return true;
    }
    let done = armed.join(true).and_then(|pool: Pool| pool.drain());
    if let Err(errno) = done {
        let what = format!("what flash has cannot be brought to the disk ({errno}); it is dropped");
        report(Level::Warning, &what, "The server recovers from its last checkpoint.");
    }
    done.is_ok()
}

/// The same log, empty.
///
/// # Errors
/// If it cannot be.
pub fn anew(armed: Armed, server: &Instance) -> io::Result<Armed> {
    let shape = armed.memory.shape();
    Ok(format(armed, &new_file(&memory_path_of(server))?, shape)?.0)
}

fn new_file(path: &Path) -> io::Result<OwnedFd> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    Ok(OwnedFd::from(options.open(path)?))
}

fn open(armed: &Armed) -> io::Result<()> {
    Pages::start(&armed.memory, armed.devices(true)).map(drop).map_err(io::Error::other)
}

/// An empty log, and memory for it.
fn format(armed: Armed, file: &OwnedFd, shape: Shape) -> io::Result<(Armed, How)> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let time = since.map_or(0, |since| since.as_nanos() as u64);
    let volume = time ^ u64::from(std::process::id()) << 40 | 1;
    let log = Geometry { volume, ..shape.log };
    let flash = File::from(armed.flash.try_clone()?);
    for (at, bytes) in log.blank() {
        flash.write_all_at(&bytes, at)?;
    }
    flash.sync_data()?;
    let memory = Memory::create(file, Shape { log, ..shape })?;
    let armed = Armed { memory, ..armed };
    open(&armed)?;
    Ok((armed, EMPTY))
}

/// Hash of the boot.
#[must_use]
pub fn boot() -> u64 {
    control::hash(&fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default())
}

/// A number by which a file is known again, and a copy of it is not: that of its inode, with the time at which it was
/// made, where the file system keeps that, since inodes are used again.
///
/// # Errors
/// If it cannot be told.
pub fn identity(file: &OwnedFd) -> io::Result<u64> {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted)?;
    let birth = (stat.stx_btime.tv_sec as u64, u64::from(stat.stx_btime.tv_nsec));
    let words = [stat.stx_ino, birth.0, birth.1];
    Ok(control::hash(&words.map(u64::to_le_bytes).concat()))
}

fn memory_path_of(server: &Instance) -> PathBuf {
    memory_path(Path::new(&server.data), server.control.system)
}

/// Where the memory of this server lies: a file system in memory, so that it is gone with the boot.
#[must_use]
pub fn memory_path(data: &Path, system: u64) -> PathBuf {
    let data = fs::canonicalize(data).unwrap_or_else(|_| data.to_owned());
    let hash = control::hash(data.as_os_str().as_encoded_bytes());
    PathBuf::from(format!("/dev/shm/larder-{system:016x}-{hash:016x}"))
}

/// The memory that a server of this user left that died in this boot, over this flash file.
fn left(path: &Path, flash: u64) -> Option<Arc<Memory>> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path).ok()?;
    if file.metadata().ok()?.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    let memory = Memory::join(&OwnedFd::from(file)).ok()?;
    if memory.user_words().len() < Area::words(0) {
        return None;
    }
    let area = Area::of(&memory);
    let here = area.get(Mark::Boot) == boot() && area.get(Mark::FlashFile) == flash;
    here.then_some(memory)
}

/// Whether nobody has changed the data directory since.
fn is_unchanged(server: &Instance, area: &Area) -> bool {
    is_known(server, area) && wal::is_there(Path::new(&server.data), area)
        || is_active(Mutant::TrustsDirectory)
}

/// Whether `pg_control` is what was written last, or was about to be.
fn is_known(server: &Instance, area: &Area) -> bool {
    let known = [Mark::Control, Mark::ControlNext].map(|mark| area.get(mark));
    known.contains(&server.control.hash) || is_active(Mutant::TrustsDirectory)
}
