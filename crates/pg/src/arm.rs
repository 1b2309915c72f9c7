// SPDX-License-Identifier: MIT OR Apache-2.0
//! The postmaster arms the cache when its shared memory is there, and leaves it behind at its end.
//!
//! What an earlier start left is used in two cases, and only if `pg_control` is as an armed process wrote it last:
//! - the shared memory is still there (the server died in this boot), and so is the end of the server's log (`wal.rs`):
//!   all of it, as it is;
//! - the server was stopped cleanly: the sealed log and the kept names.
//!
//! In any other case the log is formatted anew. Nothing is lost by that: the disk is never older than the last
//! checkpoint, from which the server recovers. A server that cannot have its cache for lack of flash runs without, with a
//! warning; one that would be in danger does not start.
//!
//! Before recovery the disk gets what flash alone has, durably, or flash is dropped: recovery flushes the files
//! that it writes itself, and then ends with a checkpoint, behind which the log of the earlier writes is gone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use larder_core::pagelog::{Geometry, LogPolicy, LogSettings};
use larder_core::request::Errno;
use larder_shared::{MEMBERS, Memory, Pages, Shape};
use rustix::fs::{FallocateFlags, FlockOperation};

use crate::area::{Area, Mark};
use crate::control::{self, Control};
use crate::here::{self, Armed};
use crate::kept::Kept;
use crate::mutant::{Mutant, is_active};
use crate::server::{self, Level, report};
use crate::settings::{self, Refused, Settings};
use crate::{got, hooks, wal};

/// Where the log begins in its file.
const BASE: u64 = 4096;
/// Processes beside backends and workers: writers, launchers, and those that newer servers have.
const OTHER_PROCESSES: u64 = 48;

/// What the server is like.
struct Server {
    version: u64,
    page_bytes: u64,
    segment_blocks: u64,
    buffers: usize,
    frames: usize,
    data: String,
    control: Control,
}

impl Server {
    fn look() -> Option<Self> {
        let (buffers, frames) = server::buffers()?;
        let data = server::data()?;
        let control = Control::read(Path::new(&data)).ok()?;
        Some(Self {
            version: server::version()?,
            page_bytes: server::number("block_size")?,
            segment_blocks: server::number("segment_size")?,
            buffers,
            frames,
            data,
            control,
        })
    }
}

/// The server's shared memory is there: at its start, and whenever it begins anew after a crash of a backend.
pub fn startup() {
    if server::is_child() || server::is_bootstrapping() {
        return;
    }
    let Some(server) = Server::look() else {
        return report(Level::Warning, "this server is not known; nothing is cached", "");
    };
    if let Some(armed) = here::disarm() {
        return match begin_anew(armed, &server) {
            Ok(armed) => here::arm(armed),
            Err(error) => {
                let what = format!("flash cannot be used any more: {error}; nothing is cached");
                report(Level::Warning, &what, "The server recovers from its last checkpoint.");
            }
        };
    }
    let settings = settings::read(server.frames as u64 * server.page_bytes).and_then(check);
    let settings = match settings {
        Ok(settings) => settings,
        Err(Refused { what, hint }) => return report(Level::Fatal, &what, &hint),
    };
    if settings.flash_directory.is_empty() {
        let hint = "Set larder.flash_directory to a directory on flash.";
        return report(Level::Log, "larder.flash_directory is not set; nothing is cached", hint);
    }
    match start(&server, &settings) {
        Ok(()) => server::at_exit(at_exit),
        Err(error) => {
            let directory = &settings.flash_directory;
            let what =
                format!("flash in \"{directory}\" cannot be used: {error}; nothing is cached");
            report(Level::Warning, &what, "The server runs as it would without larder.");
        }
    }
}

/// What cannot work is refused.
fn check(settings: Settings) -> Result<Settings, Refused> {
    if server::is_exec_backend() {
        let what = "this server starts its processes anew (EXEC_BACKEND)";
        return Err(Refused::new(what, "Use a server that was built for Linux."));
    }
    if server::setting("io_method").as_deref() == Some("io_uring") {
        let what = "io_method is io_uring, whose reads and writes larder cannot see";
        return Err(Refused::new(what, "Set io_method to worker or sync."));
    }
    if let Some(name) = got::imports(hooks::UNKNOWN) {
        let what = format!("this server calls {name}, which larder does not handle");
        return Err(Refused::new(what, "Take larder out of shared_preload_libraries."));
    }
    let names = [
        "max_connections",
        "autovacuum_max_workers",
        "max_worker_processes",
        "max_wal_senders",
        "io_max_workers",
    ];
    let processes: u64 =
        names.into_iter().filter_map(server::number).sum::<u64>() + OTHER_PROCESSES;
    if processes > MEMBERS as u64 {
        let what = format!("{processes} processes may run, and larder has room for {MEMBERS}");
        return Err(Refused::new(what, "Lower max_connections, or use a connection pooler."));
    }
    Ok(settings)
}

/// Other shared buffers, and the same log, if it is still good.
fn begin_anew(armed: Armed, server: &Server) -> io::Result<Armed> {
    let armed = Armed { buffers: server.buffers, frames: server.frames, ..armed };
    let works = Area::of(&armed.memory).get(Mark::Failed) == 0;
    let armed = match works && drained(&armed) {
        true => armed,
        false => {
            let shape = armed.memory.shape();
            let log = Geometry { volume: 0, ..shape.log };
            let path = memory_path(Path::new(&server.data), server.control.system);
            format(armed, &new_file(&path)?, Shape { log, ..shape })?.0
        }
    };
    begin(&armed, server)?;
    Ok(armed)
}

/// What a start notes: by this it is known again.
fn begin(armed: &Armed, server: &Server) -> io::Result<()> {
    let area = Area::of(&armed.memory);
    area.forget_frames();
    area.raise_all();
    area.set(Mark::Starts, area.get(Mark::Starts) + 1);
    area.set(Mark::Control, server.control.hash);
    area.set(Mark::FlashFile, rustix::fs::fstat(&armed.flash)?.st_ino);
    area.set(Mark::Boot, boot());
    Ok(())
}

/// Brings to the disk what flash alone has; whether that could be done.
fn drained(armed: &Armed) -> bool {
    if is_active(Mutant::NoDrain) {
        return true;
    }
    let done = armed.join(true).and_then(|pool| pool.drain());
    if let Err(errno) = done {
        let what = format!("what flash has cannot be brought to the disk ({errno}); it is dropped");
        report(Level::Warning, &what, "The server recovers from its last checkpoint.");
    }
    done.is_ok()
}

fn start(server: &Server, settings: &Settings) -> io::Result<()> {
    let directory = Path::new(&server.data).join(&settings.flash_directory);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    let flash = open_flash(&directory.join("larder.flash"))?;
    let wanted = Geometry {
        base: BASE,
        blocks: 0,
        page_bytes: server.page_bytes as u32,
        batch_pages: settings.batch_pages,
        volume: 0,
    };
    let wanted = wanted.grown_to(settings.flash_bytes.saturating_sub(BASE));
    let too_small = || io::Error::other("larder.flash_size is too small for a log");
    let wanted = wanted.ok_or_else(too_small)?;
    let end = BASE + wanted.bytes();
    rustix::fs::fallocate(&flash, FallocateFlags::empty(), 0, end)?;
    let policy = policy(server, settings);
    let log_settings = LogSettings { policy, second_chance: settings.second_chance };
    let user_words = Area::words(server.frames);
    let shape = Shape { log: wanted, settings: log_settings, user_words };
    let kept = Kept::take(&directory)?;
    let file_number = rustix::fs::fstat(&flash)?.st_ino;
    let make = |memory| Armed {
        memory,
        flash,
        page_bytes: server.page_bytes as usize,
        segment_blocks: server.segment_blocks,
        buffers: server.buffers,
        frames: server.frames,
        data: server.data.clone().into_bytes(),
        directory: directory.clone(),
        version: format!("PG_{}_{}", server.version, server.control.catalogs),
    };
    let (armed, how) = memory(server, shape, kept, file_number, make)?;
    begin(&armed, server)?;
    let pages = armed.join(false).map_err(number)?.pages().status().valid;
    here::arm(armed);
    let redirected = got::redirect(&hooks::table()).inspect_err(|_| drop(here::disarm()))?;
    let what = format!("{} MiB of flash, {pages} pages in it ({how})", end >> 20);
    report(Level::Log, &format!("caching: {what}, {redirected} functions redirected"), "");
    Ok(())
}

fn number(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.0)
}

/// The policy of this start. A standby's pages are whole in its log only if they are in its primary's, which it cannot
/// ask.
fn policy(server: &Server, settings: &Settings) -> LogPolicy {
    let signal = ["standby.signal", "recovery.signal"]
        .into_iter()
        .find(|name| Path::new(&server.data).join(name).exists());
    match signal {
        Some(name) if settings.policy.holds_dirty() => {
            let what = format!("{name} is there: larder.policy is through until the next start");
            report(Level::Log, &what, "");
            LogPolicy::Through
        }
        _ => settings.policy,
    }
}

/// The log's file, which one server has at a time. Directly, where the file system can: the server's pages need no
/// second place in memory.
fn open_flash(path: &Path) -> io::Result<OwnedFd> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let direct = options.clone().custom_flags(libc::O_DIRECT | libc::O_NOFOLLOW).open(path);
    let file = match direct {
        Err(error) if error.kind() == ErrorKind::InvalidInput => {
            options.custom_flags(libc::O_NOFOLLOW).open(path)?
        }
        other => other?,
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::AGAIN) => Err(io::Error::other("another server uses it")),
        other => Ok(other.map(|()| OwnedFd::from(file))?),
    }
}

/// The shared memory: that of the last start, a new one over a sealed log, or both new. What it was.
fn memory(
    server: &Server,
    shape: Shape,
    kept: Option<Kept>,
    flash: u64,
    make: impl FnOnce(Rc<Memory>) -> Armed,
) -> io::Result<(Armed, &'static str)> {
    let path = memory_path(Path::new(&server.data), server.control.system);
    let same = |log: Geometry| Geometry { volume: 0, ..log } == shape.log;
    if let Some(memory) = left(&path, server, flash)
        && same(memory.shape().log)
        && (Shape { log: shape.log, ..memory.shape() }) == shape
    {
        let armed = make(memory);
        if drained(&armed) {
            return Ok((armed, "as the last start left it"));
        }
        return format(armed, &new_file(&path)?, shape);
    }
    let file = new_file(&path)?;
    let ours = |kept: &Kept| {
        let control = kept.control == server.control.hash || is_active(Mutant::TrustsDirectory);
        kept.system == server.control.system && control && same(kept.log)
    };
    if let Some(kept) = kept.filter(ours) {
        let armed = make(Memory::create(&file, Shape { log: kept.log, ..shape })?);
        let sound = kept.restore(Area::of(&armed.memory).names());
        if sound && open(&armed).is_ok() {
            return Ok((armed, "warm after a stop"));
        }
        return format(armed, &file, shape);
    }
    let armed = make(Memory::create(&file, shape)?);
    format(armed, &file, shape)
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
    let devices = armed.devices(true).map_err(number)?;
    Pages::start(&armed.memory, devices).map(drop)
}

/// An empty log, and memory for it.
fn format(armed: Armed, file: &OwnedFd, shape: Shape) -> io::Result<(Armed, &'static str)> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let time = since.map_or(0, |since| since.as_nanos() as u64);
    let volume = time ^ u64::from(std::process::id()) << 40 | 1;
    let log = Geometry { volume, ..shape.log };
    let flash = File::from(rustix::io::dup(&armed.flash)?);
    for (at, bytes) in log.blank() {
        flash.write_all_at(&bytes, at)?;
    }
    flash.sync_data()?;
    let memory = Memory::create(file, Shape { log, ..shape })?;
    let armed = Armed { memory, ..armed };
    open(&armed)?;
    Ok((armed, "empty"))
}

fn boot() -> u64 {
    control::hash(&fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default())
}

/// Where the memory of this server lies: a file system in memory, so that it is gone with the boot.
fn memory_path(data: &Path, system: u64) -> PathBuf {
    let data = fs::canonicalize(data).unwrap_or_else(|_| data.to_owned());
    let hash = control::hash(data.as_os_str().as_encoded_bytes());
    PathBuf::from(format!("/dev/shm/larder-{system:016x}-{hash:016x}"))
}

/// The memory that a server left that died, if nobody has changed the data directory since.
fn left(path: &Path, server: &Server, flash: u64) -> Option<Rc<Memory>> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path).ok()?;
    if file.metadata().ok()?.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    let memory = Memory::join(&OwnedFd::from(file)).ok()?;
    let area = Area::of(&memory);
    if memory.user_words().len() != Area::words(server.frames) {
        return None;
    }
    let known = [Mark::Control, Mark::ControlNext].map(|mark| area.get(mark));
    let unchanged = known.contains(&server.control.hash)
        && wal::is_there(Path::new(&server.data), &area)
        || is_active(Mutant::TrustsDirectory);
    let here = area.get(Mark::Boot) == boot() && area.get(Mark::FlashFile) == flash;
    (unchanged && here && area.get(Mark::Failed) == 0).then_some(memory)
}

/// The postmaster ends, the last of its processes.
extern "C" fn at_exit(_: i32, _: usize) {
    let Some(armed) = here::disarm() else { return };
    let Some(data) = std::str::from_utf8(&armed.data).ok().map(PathBuf::from) else { return };
    let Ok(control) = Control::read(&data) else { return };
    let area = Area::of(&armed.memory);
    let known = area.get(Mark::Control) == control.hash && area.get(Mark::Failed) == 0;
    if !control.shut_down || !known {
        return; // the memory stays, for whoever starts next in this boot
    }
    if let Err(error) = stop(&armed, &control) {
        eprintln!("larder: the log cannot be closed: {error}; the next start is cold");
    }
    let _ = fs::remove_file(memory_path(&data, control.system));
}

fn stop(armed: &Armed, control: &Control) -> io::Result<()> {
    let pages = Pages::join(&armed.memory, armed.devices(true).map_err(number)?).map_err(number)?;
    pages.stop().map_err(number)?;
    let area = Area::of(&armed.memory);
    let names = area.names().save().collect();
    let log = armed.memory.shape().log;
    Kept { system: control.system, control: control.hash, log, names }.save(&armed.directory)
}
