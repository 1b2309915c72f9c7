// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder.prewarm` and `larder.pin`: a relation of the server, read or kept.
//!
//! The server itself reads the pages, through a ring of frames, and each page is admitted when the next one takes its frame
//! (rule P2). So there is one way to flash, with its checks. The process announces each page before the read
//! ([`Pool::expect`]), since pages of a ring are not admitted otherwise. An announcement that an error leaves behind is of
//! one page.
//!
//! Invariant: no value that must be dropped exists while a function of the server runs: an error or a cancel jumps over the
//! frames of this file.
//!
//! Why not reads of the file by the library: it would read a page while another process writes it, and admit half of it. The
//! server's own locks exclude this.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};

use crate::admits;
use crate::area::Mark;
use crate::file::Fork;
use crate::here;
use crate::pool::Pool;
use crate::server::{self, Level};
use crate::settings::Refused;
use crate::status;
use crate::switch::Switch;

/// `AccessShareLock`.
const SHARE: c_int = 1;
/// `BAS_BULKREAD`.
const BULK_READ: c_int = 1;
/// The size of the ring: that of 15. Newer servers would use a larger one, whose pages are admitted late.
const RING_KB: c_int = 256;
const MAIN: c_int = 0;
const NORMAL: c_int = 0;

/// Names the latch of changes of pins.
const LATCH: u64 = u64::MAX - 2;

type Relation = *const u32;
type Strategy = *mut c_void;

/// The functions of the server, of these types from 15 to 18.
#[derive(Clone, Copy)]
struct Functions {
    open: unsafe extern "C-unwind" fn(u32, c_int) -> Relation,
    close: unsafe extern "C-unwind" fn(Relation, c_int),
    blocks: unsafe extern "C-unwind" fn(Relation, c_int) -> u32,
    strategy: unsafe extern "C-unwind" fn(c_int) -> Strategy,
    /// From 16 on.
    sized: Option<unsafe extern "C-unwind" fn(c_int, c_int) -> Strategy>,
    read: unsafe extern "C-unwind" fn(Relation, c_int, u32, c_int, Strategy) -> c_int,
    release: unsafe extern "C-unwind" fn(c_int),
    interrupts: unsafe extern "C-unwind" fn(),
    pending: *const c_int,
}

impl Functions {
    fn find() -> Option<Self> {
        /// # Safety
        /// As [`server::function`].
        unsafe fn of<F: Copy>(name: &CStr) -> Option<F> {
            // SAFETY: the caller guarantees it.
            unsafe { server::function(name) }
        }
        // SAFETY: functions of these types; `volatile sig_atomic_t InterruptPending`.
        unsafe {
            Some(Self {
                open: of(c"relation_open")?,
                close: of(c"relation_close")?,
                blocks: of(c"RelationGetNumberOfBlocksInFork")?,
                strategy: of(c"GetAccessStrategy")?,
                sized: of(c"GetAccessStrategyWithSize"),
                read: of(c"ReadBufferExtended")?,
                release: of(c"ReleaseBuffer")?,
                interrupts: of(c"ProcessInterrupts")?,
                pending: server::symbol(c"InterruptPending")?.cast_const().cast(),
            })
        }
    }

    /// Lets the server cancel the statement.
    fn check_for_interrupts(&self) {
        // SAFETY: see `find`; a handler of this thread may change it.
        unsafe {
            if self.pending.read_volatile() != 0 {
                (self.interrupts)();
            }
        }
    }
}

/// A relation that this statement has open.
struct Opened {
    functions: Functions,
    relation: Relation,
    fork: Fork,
    blocks: u32,
}

impl Opened {
    fn open(relation: u32) -> Option<Self> {
        let functions = Functions::find()?;
        // SAFETY: the server reports an unknown relation by itself. `RelationData` begins with the tablespace, the database
        // and the file.
        unsafe {
            let relation = (functions.open)(relation, SHARE);
            let [tablespace, database, file] = relation.cast::<[u32; 3]>().read();
            let fork = Fork { tablespace, database, relation: file, kind: 0 };
            // None of a relation without storage.
            let blocks = (functions.blocks)(relation, MAIN);
            Some(Self { functions, relation, fork, blocks })
        }
    }

    fn close(&self) {
        // SAFETY: it was opened with this lock, and is closed once.
        unsafe { (self.functions.close)(self.relation, SHARE) };
    }
}

/// What is done about a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The server reads it.
    Read,
    /// Flash has it, or it can have no number.
    Skip,
    /// There is no more room.
    Stop,
}

/// Reads the pages of a relation that flash lacks, until `most` were admitted; returns how many.
///
/// # Errors
/// If nothing is cached.
pub fn prewarm(relation: u32) -> Result<u64, Refused> {
    let most = usable(|pool| Ok(pool.begin_prewarm()))?;
    let Some(opened) = Opened::open(relation) else { return Err(unknown()) };
    let Opened { functions, fork, blocks, .. } = opened;
    // SAFETY: the strategy lives until the end of the statement.
    let strategy = unsafe {
        match functions.sized {
            Some(sized) => sized(BULK_READ, RING_KB),
            None => (functions.strategy)(BULK_READ),
        }
    };
    let mut next = 0;
    while next < blocks {
        functions.check_for_interrupts();
        let step = here::with(|_, pool| pool.expect(&fork, u64::from(next), most));
        match step.unwrap_or(Step::Stop) {
            // SAFETY: a block of the open relation.
            Step::Read => unsafe {
                let buffer = (functions.read)(opened.relation, MAIN, next, NORMAL, strategy);
                (functions.release)(buffer);
            },
            Step::Skip => {}
            Step::Stop => break,
        }
        next += 1;
    }
    opened.close();
    let read = here::with(|_, pool| pool.end_prewarm()).unwrap_or(0);
    if next < blocks {
        let left = blocks - next;
        let what =
            format!("flash admits no more for the moment; {left} of {blocks} pages were left out");
        server::report(Level::Notice, &what, "");
    }
    Ok(read)
}

/// Pins the pages that a relation has now; returns how many.
///
/// # Errors
/// If they are too many.
pub fn pin(relation: u32) -> Result<u64, Refused> {
    usable(|_| Ok(()))?;
    let Some(opened) = Opened::open(relation) else { return Err(unknown()) };
    let (fork, blocks) = (opened.fork, u64::from(opened.blocks));
    opened.close();
    usable(|pool| {
        let hint = "Pin fewer or smaller relations, or set a larger larder.flash_size.";
        pool.pin(&fork, blocks).map_err(|error| Refused::new(error.to_string(), hint))
    })?;
    Ok(blocks)
}

/// Ends the pin of a relation; returns whether it was pinned.
///
/// # Errors
/// If nothing is cached.
pub fn unpin(relation: u32) -> Result<bool, Refused> {
    let Some(opened) = Opened::open(relation) else { return Err(unknown()) };
    let fork = opened.fork;
    opened.close();
    here::with(|_, pool| pool.unpin(&fork)).ok_or_else(status::nothing_cached)
}

/// Runs something with the cache, if it is in use.
fn usable<T>(run: impl FnOnce(&Pool) -> Result<T, Refused>) -> Result<T, Refused> {
    let ran = here::with(|_, pool| match status::why_not(pool) {
        Some(why) => Err(Refused::new(format!("nothing is cached: {why}"), "")),
        None if !admits::clean(pool.area()) => {
            let hint = "Set larder.admit to all or clean, and restart the server.";
            Err(Refused::new("larder.admit is dirty: flash takes no clean page", hint))
        }
        None => run(pool),
    });
    ran.unwrap_or_else(|| Err(status::nothing_cached()))
}

fn unknown() -> Refused {
    Refused::new("this server lacks a function by which larder reads relations", "")
}

impl Pool {
    /// Begins to read a relation in advance; returns how many pages it may admit: those that flash has room for beside its
    /// valid pages, or a quarter of flash.
    #[must_use]
    pub fn begin_prewarm(&self) -> u64 {
        let log = self.pages().status();
        self.expected.set((0, 0));
        (log.blocks - log.valid.min(log.blocks)).max(log.blocks / 4)
    }

    /// This process is about to read a block, which is admitted although it comes through a ring. `most` pages may be.
    #[must_use]
    pub fn expect(&self, fork: &Fork, block: u64, most: u64) -> Step {
        let (_, read) = self.expected.get();
        let log = self.flash().log();
        let Some(page) = self.page(fork, block).filter(|page| !log.has(*page)) else {
            return Step::Skip;
        };
        // The server may read faster than room is made.
        if read >= most
            || !Switch::flash(self.area()).is_on()
            || larder_shared::now(log.room()).is_err()
        {
            return Step::Stop;
        }
        self.expected.set((page + 1, read));
        Step::Read
    }

    /// Whether a read is the expected one, which is counted.
    pub fn is_expected(&self, page: Option<u64>) -> bool {
        let (expected, read) = self.expected.get();
        let is = page.is_some_and(|page| page + 1 == expected);
        if is {
            self.expected.set((0, read + 1));
        }
        is
    }

    /// Ends it; returns how many pages were read.
    #[must_use]
    pub fn end_prewarm(&self) -> u64 {
        self.expected.replace((0, 0)).1
    }

    /// Pins the pages of a fork.
    ///
    /// # Errors
    /// If they are too many.
    pub fn pin(&self, fork: &Fork, pages: u64) -> Result<(), crate::pins::NotPinned> {
        let blocks = u64::from(self.flash().log().geometry().blocks);
        let _one = self.flash().log().host().latch(LATCH);
        let pins = self.area().pins();
        let done = pins.pin(fork, pages, blocks);
        self.area().set(Mark::Pinned, u64::from(pins.all() > 0));
        done
    }

    /// Ends the pin of a fork; returns whether there was one.
    pub fn unpin(&self, fork: &Fork) -> bool {
        if self.area().get(Mark::Pinned) == 0 {
            return false;
        }
        let _one = self.flash().log().host().latch(LATCH);
        let pins = self.area().pins();
        let was = pins.unpin(fork);
        self.area().set(Mark::Pinned, u64::from(pins.all() > 0));
        was
    }
}
