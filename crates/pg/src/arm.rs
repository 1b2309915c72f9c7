// SPDX-License-Identifier: MIT OR Apache-2.0
//! The postmaster starts the cache when its shared memory exists, and seals it when it exits.
//!
//! `earlier.rs` decides what is used of an earlier start. A server whose flash cannot be used runs without a cache, with a
//! warning. A server does not start if its settings cannot work, or if pages of the database are only on flash (`full`).

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use larder_core::pagelog::{Geometry, LogPolicy, LogSettings};
use larder_private::{Directory, Refuse};
use larder_shared::{MEMBERS, Pages, Shape, WRITERS, now};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags};

use crate::area::{Area, LAYOUT, Mark};
use crate::control::Control;
use crate::earlier;
use crate::error::{Failure, Unusable};
use crate::guard::{self, Guard};
use crate::here::{self, Armed};
use crate::instance::Instance;
use crate::kept::Kept;
use crate::memory::{self, Start};
use crate::place::Memories;
use crate::policy::{self, Begins};
use crate::server::{self, Level, report};
use crate::settings::{self, Refused, Settings};
use crate::spare::Spare;
use crate::switch::{self, Switch};
use crate::{got, hooks, imports, statistics};

/// How long a start waits for the lock of flash.
const LOCK: Duration = Duration::from_secs(5);
/// Where the log begins in its file.
const BASE: u64 = 4096;
/// Processes beside backends and workers: writers, launchers, and those that newer servers have.
const OTHER_PROCESSES: u64 = 48;

/// Runs when the server's shared memory exists: at its start, and when it restarts after a crash of a backend.
pub fn startup() {
    if server::is_child() || server::is_bootstrapping() {
        return;
    }
    let Some(server) = Instance::look() else {
        return uncached(Level::Warning, "this server is not known", "");
    };
    if let Some(armed) = here::disarm() {
        let is_part = armed.policy().is_part();
        return match begin_anew(armed, &server) {
            Ok(armed) => here::arm(armed),
            Err(error) => {
                let what = format!("flash cannot be used any more: {error}");
                match is_part {
                    true => refuse_without(&server, &what),
                    false => {
                        let hint = "The server recovers from its last checkpoint.";
                        uncached(Level::Warning, &what, hint);
                    }
                }
            }
        };
    }
    let settings = settings::read(server.frames as u64 * server.page_bytes)
        .and_then(|settings| check(&server, settings));
    let sized = settings.and_then(|settings| Ok((geometry(&server, &settings)?, settings)));
    let (geometry, settings) = match sized {
        Ok(sized) => sized,
        Err(Refused { what, hint }) => return report(Level::Fatal, &what, &hint),
    };
    let (data, directory) = (Path::new(&server.data), &settings.flash_directory);
    let needed = || earlier::is_needed(data, &data.join(directory));
    if directory.is_empty() && !needed() {
        let hint = "Set larder.flash_directory to a directory on flash.";
        return uncached(Level::Log, "larder.flash_directory is not set", hint);
    }
    let started = match directory.is_empty() {
        true => Err(Unusable::NotNamed),
        false => start(&server, &settings, geometry),
    };
    match started {
        Ok(()) => server::at_exit(at_exit),
        Err(error) => {
            let what = format!("flash in \"{directory}\" cannot be used: {error}");
            if needed() {
                return refuse_without(&server, &what);
            }
            let hint = "The server runs as it would without larder.";
            uncached(Level::Warning, &what, hint);
        }
    }
}

/// Reports that this server caches nothing, and records the reason for `larder_stat_cache`.
fn uncached(level: Level, why: &str, hint: &str) {
    here::set_reason(why);
    report(level, &format!("{why}; nothing is cached"), hint);
}

/// Refuses the start: some pages of the database are only on flash.
fn refuse_without(server: &Instance, what: &str) {
    let hint = match Guard::read(Path::new(&server.data)) {
        Ok(Some(guard)) => format!(
            "Pages of this database are on flash in \"{}\" alone (larder.policy = full). The server starts when flash, \
             the data directory and all tablespaces are as it left them. If they are lost, restore a backup into an \
             empty data directory, with an empty directory on flash.",
            guard.directory.display()
        ),
        _ => "That directory has pages of a database under larder.policy = full, and this data directory does not say \
              that it needs them. Set larder.flash_directory to a directory of this server's own, and keep what is in \
              that one. If backup_label was deleted here, put a copy of it back."
            .to_owned(),
    };
    report(Level::Fatal, what, &hint);
}

/// Refuses settings that cannot work, and servers whose calls are not known.
fn check(server: &Instance, settings: Settings) -> Result<Settings, Refused> {
    if server::is_exec_backend() {
        let what = "this server starts its processes by exec (EXEC_BACKEND)";
        return Err(Refused::new(what, "Use a server that was built for Linux."));
    }
    if server::setting("io_method").as_deref() == Some("io_uring") {
        let what = "io_method is io_uring, whose reads and writes larder cannot see";
        return Err(Refused::new(what, "Set io_method to worker or sync."));
    }
    let functions = hooks::table();
    let redirected: Vec<&str> = functions.iter().map(|(name, _)| *name).collect();
    imports::check(server.version, &got::imports(), &redirected).map_err(|error| {
        let hint = "Use a build of the server that is accepted, or, if larder.policy is not full, take larder out of \
                    shared_preload_libraries.";
        Refused::new(error.to_string(), hint)
    })?;
    let names = [
        "max_connections",
        "autovacuum_max_workers",
        "max_worker_processes",
        "max_wal_senders",
        "io_max_workers",
    ];
    let processes: u64 =
        names.into_iter().filter_map(server::number).sum::<u64>() + OTHER_PROCESSES;
    // The others are threads, by which processes write several pages to the disk at a time.
    let room = (MEMBERS - WRITERS) as u64;
    if processes > room {
        let what = format!("{processes} processes may run, and larder has room for {room}");
        return Err(Refused::new(what, "Lower max_connections, or use a connection pooler."));
    }
    Ok(settings)
}

/// The log that the settings describe.
fn geometry(server: &Instance, settings: &Settings) -> Result<Geometry, Refused> {
    let empty = Geometry {
        base: BASE,
        blocks: 0,
        page_bytes: server.page_bytes as u32,
        batch_pages: settings.batch_pages,
        volume: 0,
    };
    empty.grown_to(settings.flash_bytes.saturating_sub(BASE)).ok_or_else(|| {
        let suffices = |mib: &u64| empty.grown_to((mib << 20) - BASE).is_some();
        let least = (1..).find(suffices).unwrap_or(u64::MAX);
        let pages = settings.batch_pages;
        let what =
            format!("larder.flash_size is {} kB, which is too small", settings.flash_bytes >> 10);
        Refused::new(what, format!("The minimum is {least}MB with larder.batch_pages = {pages}."))
    })
}

/// Attaches new shared buffers to the same log, if the log still works.
fn begin_anew(armed: Armed, server: &Instance) -> Result<Armed, Unusable> {
    let armed = Armed { buffers: server.buffers, frames: server.frames, ..armed };
    if Area::of(&armed.memory).get(Mark::Failed) != 0 {
        // It would fail again, and the server would restart without end.
        return Err(Unusable::Failed);
    }
    let armed = armed.served()?;
    let kept = [Mark::Switch, Mark::Admits].map(|mark| Area::of(&armed.memory).get(mark));
    let begins = begins(server).0;
    let armed = match armed.policy().is_part() || earlier::is_ready(&armed, begins) {
        true => armed,
        false => {
            let armed = armed.unserved()?;
            let memories = Memories::of(Path::new(&server.data), server.control.system)?;
            let shape = armed.memory.shape();
            memory::format(armed, &memories.create()?, shape)?.0.served()?
        }
    };
    // The background writer follows the setting.
    let policy = armed.memory.shape().settings.policy;
    begin(&armed, server, begins, policy)?;
    let area = Area::of(&armed.memory);
    area.set(Mark::Switch, switch::after_crash(kept[0]));
    area.set(Mark::Admits, kept[1]);
    Ok(armed)
}

/// Records what a later start compares, and the policy.
fn begin(armed: &Armed, server: &Instance, begins: Begins, setting: LogPolicy) -> io::Result<()> {
    let area = Area::of(&armed.memory);
    policy::begin(&area, begins, &server.control, setting);
    area.forget_frames();
    area.raise_all();
    area.count(Mark::Starts);
    // A process that died may have changed a name without a note.
    area.count(Mark::NamesChanged);
    area.set(Mark::Control, server.control.hash);
    area.set(Mark::FlashFile, memory::identity(&armed.flash)?);
    area.set(Mark::Boot, memory::boot());
    area.set(Mark::Layout, LAYOUT);
    if area.get(Mark::ResetAt) == 0 {
        area.set(Mark::ResetAt, statistics::now_ms());
    }
    Ok(())
}

fn start(server: &Instance, settings: &Settings, wanted: Geometry) -> Result<(), Unusable> {
    let directory = Path::new(&server.data).join(&settings.flash_directory);
    earlier::expect_log(Path::new(&server.data), &directory)?;
    let directory = Arc::new(make_directory(&directory)?);
    let flash = Arc::new(open_flash(&directory, settings.flash_page_cache)?);
    let spare = Arc::new(Spare::new(Arc::clone(&flash)));
    let end = BASE + wanted.bytes();
    allot(&flash, end).map_err(|error| Unusable::NoRoom { mib: end >> 20, error })?;
    let (begins, policy) = policy_now(server, settings);
    let log_settings =
        LogSettings { policy: policy::of_log(policy), second_chance: settings.second_chance };
    let user_words = Area::words(server.frames);
    let shape = Shape { log: wanted, settings: log_settings, user_words };
    let identity = memory::identity(&flash)?;
    let flash_bytes = rustix::fs::fstat(&flash).map_err(io::Error::from)?.st_size as u64;
    let make = |memory| Armed {
        memory,
        flash,
        process: None,
        timeout: settings.flash_timeout,
        page_cache: settings.flash_page_cache,
        spare,
        page_bytes: server.page_bytes as usize,
        segment_blocks: server.segment_blocks,
        direct: server::setting("debug_io_direct").is_some_and(|files| files.contains("data")),
        buffers: server.buffers,
        frames: server.frames,
        data: server.data.clone().into_bytes(),
        directory: Arc::clone(&directory),
        version: server.tablespace_version(),
    };
    let memories = &Memories::of(Path::new(&server.data), server.control.system)?;
    let start = Start {
        server,
        begins,
        shape,
        directory: &directory,
        memories,
        flash: identity,
        flash_bytes,
    };
    let (armed, how) = earlier::memory(&start, make)?;
    // For the stop; without it the next start is cold.
    let _ = Kept::reserve(&directory);
    begin(&armed, server, begins, policy)?;
    settings.admits.set(&Area::of(&armed.memory));
    Switch::flash(&Area::of(&armed.memory)).on();
    let pages = {
        let pool = armed.join(false).map_err(Unusable::Join)?;
        // Removes the seal of the stop: no write of the server has to wait for flash later.
        now(pool.pages().log().drop_pages(0..0)).map_err(Failure::Flash)?;
        pool.pages().status().valid
    };
    here::arm(armed.served()?);
    let redirected = got::redirect(&hooks::table()).inspect_err(|_| drop(here::disarm()))?;
    let (mib, how) = (end >> 20, how.text());
    let what = format!("{mib} MiB of flash, {pages} pages in it ({how})");
    report(Level::Log, &format!("caching: {what}, {redirected} functions redirected"), "");
    Ok(())
}

/// Opens the directory on flash, and makes it unless it is there.
fn make_directory(directory: &Path) -> Result<Directory, Unusable> {
    let made = Directory::create(directory, Refuse::WRITE, 0o700);
    made.map_err(|error| match directory.exists() {
        true => Unusable::File(error),
        false => Unusable::NoDirectory(error),
    })
}

/// How the server begins, and the file for which it recovers from an archive.
fn begins(server: &Instance) -> (Begins, Option<&'static str>) {
    let data = Path::new(&server.data);
    let label = data.join(guard::NAME).exists() && !Guard::is_at(&data.join(guard::NAME));
    let signal = ["standby.signal", "recovery.signal"]
        .into_iter()
        .find(|name| data.join(name).exists())
        .or(label.then_some(guard::NAME));
    let begins = match server.control.is_stopped() {
        _ if signal.is_some() => Begins::Archive,
        true => Begins::Stopped,
        false => Begins::Crash,
    };
    (begins, signal)
}

/// How the server begins, and the policy of this start. The log of a standby has a page only if the log of its primary has it,
/// which the standby cannot check.
fn policy_now(server: &Instance, settings: &Settings) -> (Begins, LogPolicy) {
    let (begins, signal) = begins(server);
    let (policy, until) = policy::at_start(settings.policy, begins);
    if let (Some(name), Some(until)) = (signal, until) {
        report(Level::Log, &format!("{name} is there: larder.policy is through until {until}"), "");
    }
    (begins, policy)
}

/// Opens and locks the file of the log. It uses direct I/O where the file system supports it, unless the settings say otherwise:
/// the page cache would hold the server's pages a second time. Waits for the process that served a server that died.
fn open_flash(directory: &Directory, page_cache: bool) -> Result<OwnedFd, Unusable> {
    let flags = OFlags::RDWR | OFlags::CREATE;
    let open = |more| directory.file("larder.flash", flags | more, 0o600, Refuse::ANY);
    let wanted = if page_cache { OFlags::empty() } else { OFlags::DIRECT };
    let file = match open(wanted) {
        Err(error) if error.kind() == ErrorKind::InvalidInput => open(OFlags::empty())?,
        other => other?,
    };
    let until = Instant::now() + LOCK;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::AGAIN) if Instant::now() < until => sleep(LOCK / 100),
            Err(rustix::io::Errno::AGAIN) => return Err(Unusable::InUse),
            other => return Ok(other.map(|()| file).map_err(io::Error::from)?),
        }
    }
}

/// Allocates the bytes of a file, or leaves the file unchanged.
fn allot(file: &OwnedFd, end: u64) -> io::Result<()> {
    let before = rustix::fs::fstat(file)?.st_size as u64;
    let done = rustix::fs::fallocate(file, FallocateFlags::empty(), 0, end);
    if done.is_err() {
        // Some file systems keep what they allocated before they ran out of space.
        rustix::fs::ftruncate(file, before)?;
    }
    Ok(done?)
}

/// The postmaster ends, the last of its processes.
extern "C" fn at_exit(_: i32, _: usize) {
    let Some(armed) = here::disarm() else { return };
    let Some(data) = std::str::from_utf8(&armed.data).ok().map(PathBuf::from) else { return };
    let Ok(control) = Control::read(&data) else { return };
    let area = Area::of(&armed.memory);
    let known = area.get(Mark::Control) == control.hash && area.get(Mark::Failed) == 0;
    if !control.is_stopped() || !known {
        return; // the memory stays for the next start in this boot
    }
    if let Err(error) = stop(&armed, &control) {
        let what = format!("the log cannot be closed: {error}; the next start is cold");
        server::say("WARNING", &what);
    }
    let _ = Memories::of(&data, control.system).and_then(|memories| memories.remove());
    // So that the next server finds flash unlocked. If flash hangs, it does not.
    let _ = armed.unserved();
}

fn stop(armed: &Armed, control: &Control) -> Result<(), Unusable> {
    let pages = Pages::join(&armed.memory, armed.devices(true)).map_err(Unusable::Join)?;
    // The disk or the durable part of the log has everything since the last checkpoint. A seal makes the next start warm.
    larder_core::pagelog::Host::hurry(pages.log().host(), true);
    pages.stop()?;
    let names = Area::of(&armed.memory).names().save().collect();
    let log = armed.memory.shape().log;
    let stamp = if armed.policy().is_part() { Kept::new_stamp() } else { 0 };
    let (system, control) = (control.system, control.hash);
    let file = memory::identity(&armed.flash)?;
    let kept = Kept { system, control, log, stamp, file, names, is_old: false };
    Ok(kept.save(&armed.directory)?)
}
