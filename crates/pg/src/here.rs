// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache in this process: whether it is armed, which files are open, and the membership in the shared log.
//!
//! The postmaster arms the cache. Its children inherit the mapping and the flash file, and each becomes a member at its
//! first use. A child must not release what its parent holds, so it forgets the inherited membership.
//!
//! Invariant: no code of the server runs inside of the cache. A handler that calls a hook (that of a new background worker,
//! which exits) would wait for a lock that its own process holds. So signals are blocked until the process leaves the
//! cache, unless its handlers only set flags ([`process::handlers_only_note`]); most backends are such, and blocking costs
//! two system calls each time. A handler that sets flags interrupts a system call of the cache at most: the handlers are
//! installed with `SA_RESTART`, and `EINTR` is repeated or handled like a wake-up. `SIGQUIT` is never blocked: its handler
//! ends the process, and the locks are robust.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use larder_core::request::Errno;
use larder_private::Directory;
use larder_shared::{Devices, Flash, Memory, Waits};

use crate::area::{Area, Mark};
use crate::disk::Disk;
use crate::error::Unusable;
use crate::extent::Extents;
use crate::file::{File, Fork};
use crate::flash::Flash as PoolFlash;
use crate::flash_process::{self, FlashProcess};
use crate::journal::Journal;
use crate::policy::{self, Policy};
use crate::pool::Pool;
use crate::process;
use crate::server;
use crate::spare::Spare;

/// How long the end of the process that serves flash is waited for, at most.
const END: Duration = Duration::from_secs(5);
/// Whether there is a cache at all.
static ARMED: AtomicBool = AtomicBool::new(false);
/// Why nothing is cached. The postmaster sets it at a start; its children inherit it.
static REASON: Mutex<String> = Mutex::new(String::new());

/// The cache that the postmaster has armed, see [`crate::arm`].
pub struct Armed {
    /// The shared memory.
    pub memory: Arc<Memory>,
    /// The log's file.
    pub flash: Arc<OwnedFd>,
    /// The process that reads and writes it, once there are others.
    pub process: Option<FlashProcess>,
    /// How long an operation of flash may take.
    pub timeout: Duration,
    /// The page cache has pages of flash.
    pub page_cache: bool,
    /// Used when the process has no descriptors left.
    pub spare: Arc<Spare>,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Blocks of a segment.
    pub segment_blocks: u64,
    /// The server opens relation files with O_DIRECT, so that the page cache has none of them.
    pub direct: bool,
    /// First byte of shared buffers in this address space.
    pub buffers: usize,
    /// Frames there.
    pub frames: usize,
    /// The data directory.
    pub data: Vec<u8>,
    /// The directory on flash.
    pub directory: Arc<Directory>,
    /// The server's directory in a tablespace.
    pub version: String,
}

#[derive(Default)]
struct Here {
    armed: Option<Armed>,
    pool: Option<Pool>,
}

thread_local! {
    static HERE: RefCell<Here> = RefCell::default();
    /// What is open, by descriptor.
    static FILES: RefCell<Vec<File>> = const { RefCell::new(Vec::new()) };
}

impl Armed {
    /// Joins the members of the log; `sync`: whether writes to the disk are flushed, see [`Disk`].
    ///
    /// # Errors
    /// If there is no room.
    pub fn join(&self, sync: bool) -> Result<Pool, Errno> {
        let (directory, spare) = (Arc::clone(&self.directory), Arc::clone(&self.spare));
        let journal = Journal { directory, spare };
        let extents = Extents::new(self.segment_blocks);
        let flash = PoolFlash::join(&self.memory, self.devices(sync), journal, extents)?;
        Ok(Pool::new(flash, self.memory.shape().settings.policy))
    }

    /// The policy in force now.
    #[must_use]
    pub fn policy(&self) -> &'static dyn Policy {
        policy::in_force(self.memory.shape().settings.policy, &Area::of(&self.memory))
    }

    /// The devices, as a member needs them.
    #[must_use]
    pub fn devices(&self, sync: bool) -> Devices {
        let disk = Disk {
            area: Area::of(&self.memory),
            data: self.data_directory(),
            version: self.version.clone(),
            extents: Extents::new(self.segment_blocks),
            // Under that policy the server's checkpoints rely on flash.
            sync: sync || self.policy().is_part(),
            direct: self.direct,
            open: RefCell::default(),
            spare: Arc::clone(&self.spare),
        };
        let flash = match self.process {
            None => Flash::from(Arc::clone(&self.flash)),
            Some(_) => {
                let near = self.page_cache.then(|| Arc::clone(&self.flash));
                let (interrupted, overdue) =
                    (process::is_asked_to_stop, flash_process::tell_overdue);
                Flash::Served(Waits { timeout: self.timeout, interrupted, overdue }, near)
            }
        };
        Devices { flash, origin: Box::new(disk) }
    }

    /// With a process that reads and writes flash, the present one if it lives.
    ///
    /// # Errors
    /// If it does not start, or operations of a dead one still hang.
    pub fn served(self) -> Result<Self, Unusable> {
        if self.process.as_ref().is_some_and(FlashProcess::lives) && self.memory.is_served() {
            return Ok(self);
        }
        let mut armed = self.unserved()?;
        let process = FlashProcess::begin(&armed.memory, &armed.flash, armed.timeout)?;
        armed.process = Some(process);
        Ok(armed)
    }

    /// Without such a process.
    ///
    /// # Errors
    /// If operations of flash still hang.
    pub fn unserved(mut self) -> Result<Self, Unusable> {
        let ended = self.process.take().is_none_or(|process| process.end(self.timeout.min(END)));
        ended.then_some(self).ok_or(Unusable::Hangs)
    }

    /// Blocks that a segment has on the disk.
    ///
    /// # Errors
    /// If the file cannot be inspected.
    pub fn blocks_of(&self, fork: &Fork, segment: u32) -> io::Result<u64> {
        let path = self.data_directory().join(fork.path(u64::from(segment), &self.version));
        match std::fs::metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            other => Ok(other?.len().div_ceil(self.page_bytes as u64)),
        }
    }

    fn data_directory(&self) -> PathBuf {
        PathBuf::from(std::ffi::OsStr::from_bytes(&self.data))
    }

    /// Whether so many frames begin at an address.
    #[must_use]
    pub fn are_frames(&self, address: usize, count: usize) -> bool {
        self.frame(address).is_some_and(|first| first + count <= self.frames)
    }

    /// The frame that begins at an address.
    #[must_use]
    pub fn frame(&self, address: usize) -> Option<usize> {
        let offset = address.checked_sub(self.buffers)?;
        let frame = offset / self.page_bytes;
        (offset.is_multiple_of(self.page_bytes) && frame < self.frames).then_some(frame)
    }
}

extern "C" fn after_fork() {
    process::forget();
    let _ = HERE.try_with(|here| {
        if let Ok(mut here) = here.try_borrow_mut() {
            // The membership belongs to the parent.
            std::mem::forget(here.pool.take());
        }
    });
}

/// Arms the cache in the postmaster, also after a restart.
pub fn arm(armed: Armed) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler touches nothing but this process's own cell and atomics.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork)) };
    });
    HERE.with_borrow_mut(|here| *here = Here { armed: Some(armed), pool: None });
    ARMED.store(true, Ordering::Release);
}

/// Ends caching; returns what was armed.
pub fn disarm() -> Option<Armed> {
    ARMED.store(false, Ordering::Release);
    HERE.with_borrow_mut(|here| {
        here.pool = None;
        here.armed.take()
    })
}

/// Records why this server caches nothing.
pub fn set_reason(why: &str) {
    why.clone_into(&mut REASON.lock().unwrap_or_else(PoisonError::into_inner));
}

/// Why this server caches nothing.
#[must_use]
pub fn reason() -> String {
    let why = REASON.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match why.is_empty() {
        true => "the library was not loaded at the start of the server".to_owned(),
        false => why,
    }
}

/// Whether there is a cache.
#[must_use]
pub fn is_armed() -> bool {
    ARMED.load(Ordering::Relaxed)
}

/// Blocks signals while it exists.
struct Quiet(libc::sigset_t);

impl Quiet {
    fn new() -> Self {
        let mut old = std::mem::MaybeUninit::uninit();
        // SAFETY: sets are written by `sigfillset` and `pthread_sigmask` before they are read.
        unsafe {
            let mut all = std::mem::MaybeUninit::uninit();
            libc::sigfillset(all.as_mut_ptr());
            let mut all = all.assume_init();
            for signal in [libc::SIGQUIT, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE] {
                libc::sigdelset(&mut all, signal);
            }
            libc::sigdelset(&mut all, libc::SIGABRT);
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, old.as_mut_ptr());
            Self(old.assume_init())
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: the set is the one that was in force.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// Runs something with the cache if it is armed, this process is not inside it, and there is room for one more member.
pub fn with<T>(run: impl FnOnce(&Armed, &Pool) -> T) -> Option<T> {
    if !is_armed() {
        return None;
    }
    let _quiet = (!process::handlers_only_note()).then(Quiet::new);
    let ran = HERE.try_with(|here| {
        let mut here = here.try_borrow_mut().ok()?;
        let here = &mut *here;
        let armed = here.armed.as_ref()?;
        if here.pool.is_none() {
            match armed.join(false) {
                Ok(pool) => here.pool = Some(pool),
                Err(errno) => return cannot_join(armed, errno),
            }
        }
        here.pool.as_ref().map(|pool| run(armed, pool))
    });
    // A process that ends may still close files.
    ran.ok().flatten()
}

/// The shared area if the cache is armed, without a membership of the log. Signals are not blocked, so only the writers of the
/// server's log may call this: they are in a critical section, where a handler that ends the process makes the server
/// restart, or they are the walreceiver, whose handlers only set flags.
#[must_use]
pub fn area() -> Option<Area> {
    let of = |here: &Here| here.armed.as_ref().map(|armed| Area::of(&armed.memory));
    if !is_armed() {
        return None;
    }
    HERE.try_with(|here| here.try_borrow().ok().and_then(|here| of(&here))).ok().flatten()
}

/// This process cannot join, so the log would miss its changes.
fn cannot_join<T>(armed: &Armed, errno: Errno) -> Option<T> {
    Area::of(&armed.memory).set(Mark::Failed, errno.0 as u64);
    server::say("WARNING", &format!("a process cannot join ({errno}); nothing is cached"));
    if !armed.policy().disk_suffices() {
        std::process::abort(); // it would read what is old on the disk
    }
    None
}

/// The file of a descriptor.
#[must_use]
pub fn file(fd: RawFd) -> File {
    let index = fd as usize;
    FILES
        .try_with(|files| files.try_borrow().ok()?.get(index).copied())
        .ok()
        .flatten()
        .unwrap_or_default()
}

/// Records the file of a descriptor.
pub fn set_file(fd: RawFd, file: File) {
    if fd < 0 {
        return;
    }
    let _ = FILES.try_with(|files| {
        let Ok(mut files) = files.try_borrow_mut() else { return };
        if files.len() <= fd as usize {
            if file == File::Other {
                return;
            }
            files.resize(fd as usize + 1, File::Other);
        }
        files[fd as usize] = file;
    });
}

/// The file that a path names.
#[must_use]
pub fn named(path: &[u8]) -> File {
    if !is_armed() {
        return File::Other;
    }
    let of = |here: &Here| here.armed.as_ref().map(|armed| File::of(path, &armed.data));
    HERE.try_with(|here| here.try_borrow().ok().and_then(|here| of(&here)))
        .ok()
        .flatten()
        .unwrap_or_default()
}
