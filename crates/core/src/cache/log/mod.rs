// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache in a page log (`pagelog`): pages enter one after the other, and are evicted in the same order.
//!
//! | the ... | file |
//! | --- | --- |
//! | start, tasks, what the administrator asks for | this one |
//! | read, write, trim, zero, FLUSH | `paths.rs` |
//! | one change of a page at a time | `holds.rs` |
//! | what the log asks of a shard | `host.rs` |
//!
//! The shard opens the log itself, and requests wait until it is open. A log that cannot be used is refused where it may
//! hold dirty data, and otherwise given up: the volume goes on in pass-through.
//!
//! Invariants: what changes a page holds it; nothing reads the origin's bytes of a page that the log has, or whose
//! trim is under way.

mod holds;
mod host;
mod paths;

use std::cell::Cell;
use std::rc::{Rc, Weak};
use std::sync::atomic::AtomicU64;

use self::host::ShardHost;
use crate::config::LogSpec;
use crate::context::Context;
use crate::event::Event;
use crate::exec::{MILLISECOND, WaitList};
use crate::flash::{Attached, Flash};
use crate::mutant;
use crate::pagelog::{
    BUFFERS, Geometry, Host, LogStatus, OpenError, PageLog, ReleaseError, words_needed,
};
use crate::request::Errno;

/// A log that is in use.
pub(crate) struct OpenLog {
    cx: Rc<Context>,
    pub(crate) log: PageLog<ShardHost, Vec<AtomicU64>>,
    /// Whether pages enter that were read from the origin.
    admits_reads: bool,
    /// Writes that may yet make a page dirty.
    writers: Cell<u32>,
    /// The origin gets every write at once: the log is to be left.
    leaving: Cell<bool>,
    /// All is on the origin, and nobody changes anything until the log is left.
    empty: Cell<bool>,
    /// Changes of the origin of which the log says nothing, and how many of them a flush covers.
    unrecorded: Cell<u64>,
    covered: Cell<u64>,
    sealing: Cell<bool>,
}

/// How far a log is.
#[derive(Clone)]
pub(crate) enum LogState {
    /// It is being opened, on this device.
    Opening(Rc<Opening>),
    /// It is in use.
    Open(Rc<OpenLog>),
    /// It cannot be used, and may hold dirty data: nobody is served.
    Refused,
}

/// A log that is being opened.
pub(crate) struct Opening {
    pub(crate) device: Rc<Attached>,
    /// Requests that wait for it.
    pub(crate) waiting: WaitList,
}

/// How the opening of a log ended.
pub(crate) enum Opened {
    /// It is in use.
    Open(Rc<OpenLog>),
    /// It cannot be used, and may hold dirty data.
    Refused,
    /// It cannot be used; the origin has everything.
    GivenUp,
    /// The device was detached meanwhile.
    Left,
}

impl LogState {
    /// The device, while it is in use or about to be.
    pub(crate) fn device(&self) -> Option<&Rc<Attached>> {
        match self {
            Self::Opening(opening) => Some(&opening.device),
            Self::Open(open) => Some(open.device()),
            Self::Refused => None,
        }
    }

    /// Whether a start might take the log for valid.
    pub(crate) fn may_count(&self) -> bool {
        match self {
            Self::Opening(_) => true,
            Self::Open(open) => open.log.may_count(),
            Self::Refused => false,
        }
    }

    /// Goes on without the log. Tasks that wait to change something do so on the origin.
    pub(crate) fn leave(&self, cx: &Context) {
        match self {
            Self::Opening(opening) => {
                opening.device.close();
                opening.waiting.wake_all(&cx.exec);
            }
            Self::Open(open) => {
                open.device().close();
                open.log.fail(Errno::ESHUTDOWN);
            }
            Self::Refused => {}
        }
    }
}

impl OpenLog {
    /// Opens a log, and starts its tasks.
    pub(crate) async fn open(
        cx: Rc<Context>,
        flash: Rc<Flash>,
        spec: LogSpec,
        place: Geometry,
    ) -> Opened {
        let device = Rc::clone(flash.device());
        let dev = device.dev;
        let host = ShardHost::new(&cx, flash, &place);
        let memory = (0..words_needed(place.blocks)).map(|_| AtomicU64::new(0)).collect();
        let opened = PageLog::open(host, memory, place, spec.settings).await;
        if device.closed() {
            return Opened::Left;
        }
        match opened {
            Ok((log, found)) => {
                let open = Rc::new(Self::new(&cx, log, &spec));
                for _ in 0..BUFFERS {
                    cx.exec.spawn(write_batches(Rc::downgrade(&open)));
                }
                cx.exec.spawn(keep_room(Rc::downgrade(&open)));
                device.emit(Event::LogOpened { dev, warm: found.warm });
                Opened::Open(open)
            }
            Err(error) => refused(&device, &spec, &error),
        }
    }

    fn new(cx: &Rc<Context>, log: PageLog<ShardHost, Vec<AtomicU64>>, spec: &LogSpec) -> Self {
        Self {
            cx: Rc::clone(cx),
            log,
            admits_reads: spec.admits_reads,
            writers: Cell::new(0),
            leaving: Cell::new(false),
            empty: Cell::new(false),
            // What came before counts as one.
            unrecorded: Cell::new(1),
            covered: Cell::new(0),
            sealing: Cell::new(false),
        }
    }

    /// The log's state.
    pub(crate) fn status(&self) -> LogStatus {
        self.log.status()
    }

    /// The log is not left: writes go on.
    pub(crate) fn go_on(&self) {
        self.empty.set(false);
    }

    /// The flash device.
    pub(crate) fn device(&self) -> &Rc<Attached> {
        self.log.host().flash.device()
    }

    /// Makes the log as a start should find it.
    pub(crate) fn seal(self: &Rc<Self>) {
        if self.log.is_sealed() || self.sealing.replace(true) {
            return;
        }
        let open = Rc::clone(self);
        self.cx.exec.spawn(async move {
            // While clients go on there may be no moment to seal it; whoever asked asks again.
            if let Err(error @ ReleaseError::Dirty(_)) = open.log.release().await {
                let why = error.to_string();
                open.device().emit(Event::FlashErrors { dev: open.device().dev, why });
            }
            open.sealing.set(false);
        });
    }

    /// Brings dirty pages to the origin; with `leave` none are dirty any more afterwards. `hold_back`: changes wait from
    /// then on for the log to be left.
    pub(crate) async fn clear(&self, leave: bool, hold_back: &Cell<bool>) -> Result<(), Errno> {
        self.leaving.set(leave);
        let mut result = self.log.empty().await;
        if leave && result.is_ok() {
            // A write that comes later, and that the origin refuses, would be seen and be gone with the log.
            let left_with_writers = mutant::is_active("page-log-left-with-writers");
            self.empty.set(hold_back.get() && !left_with_writers);
            while self.writers.get() > 0 {
                self.cx.exec.sleep(MILLISECOND).await;
            }
            result = self.log.empty().await;
        }
        if result.is_err() {
            self.leaving.set(false);
            self.empty.set(false);
        }
        result
    }
}

/// A log that cannot be used.
fn refused(device: &Attached, spec: &LogSpec, error: &OpenError) -> Opened {
    let (dev, why) = (device.dev, error.to_string());
    if spec.settings.policy.may_lose(error) {
        device.emit(Event::LogRefused { dev, why });
        return Opened::Refused;
    }
    device.close();
    device.emit(Event::FlashFailed { dev, why });
    Opened::GivenUp
}

async fn write_batches(open: Weak<OpenLog>) {
    while let Some(strong) = open.upgrade().filter(|l| !l.device().closed()) {
        let seen = strong.log.host().changes();
        if !strong.log.write_next().await {
            wait(strong, seen).await;
        }
    }
}

async fn keep_room(open: Weak<OpenLog>) {
    while let Some(strong) = open.upgrade().filter(|l| !l.device().closed()) {
        let seen = strong.log.host().changes();
        if !strong.log.keep().await {
            wait(strong, seen).await;
        }
    }
}

async fn wait(open: Rc<OpenLog>, seen: u64) {
    // The host is the log's: this keeps the log until something changes, which a detach does too.
    open.log.host().changed(seen).await;
}
