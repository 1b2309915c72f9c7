// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache in a page log (`pagelog`): pages are appended, and evicted in the same order.
//!
//! | the ... | file |
//! | --- | --- |
//! | start, tasks, clear, seal | this one |
//! | read, write, trim, zero, FLUSH | `paths.rs` |
//! | pages that a command warms | `by_command.rs` |
//! | one change of a page at a time | `holds.rs` |
//! | changes past a log whose flash fails | `bypass.rs`, `ignored.rs` |
//! | the shard as host of the log | `host.rs` |
//!
//! The shard opens the log itself, and requests wait until it is open. A log that cannot be used is refused if it may hold
//! dirty data; else it has failed, and the volume is in pass-through.
//!
//! Invariants: a task that changes a page holds it; no task uses the origin's bytes of a page that the log has, or whose
//! trim is in progress.

mod by_command;
mod bypass;
mod holds;
mod host;
mod ignored;
mod paths;

use std::cell::Cell;
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::sync::atomic::AtomicU64;

pub(crate) use self::host::PATIENCE_WITH_COPIES;
use self::host::ShardHost;
use crate::config::LogSpec;
use crate::context::Context;
use crate::event::Event;
use crate::exec::{MILLISECOND, Nanos, SECOND, WaitList};
use crate::flash::{Attached, Flash};
use crate::mutant;
use crate::pagelog::{
    BUFFERS, Geometry, Host, LogStatus, OpenError, Order, PageLog, ReleaseError, Seat, words_needed,
};
use crate::request::Errno;

/// How often a log looks whether the other logs of the volume let it replay its oldest epoch, or have ended it.
const TURN: Nanos = 2 * MILLISECOND;

/// Where a log is, and what its start needs to know.
pub(crate) struct LogPlace {
    pub(crate) place: Geometry,
    /// The pages that recovery ignores.
    pub(crate) ignored: Vec<Range<u64>>,
    /// Its place among the logs of the volume.
    pub(crate) seat: Seat,
}

/// A log that is in use.
pub(crate) struct OpenLog {
    cx: Rc<Context>,
    pub(crate) log: PageLog<ShardHost, Vec<AtomicU64>>,
    /// Whether pages read from the origin are admitted.
    admits_reads: bool,
    /// Writes in flight that may make a page dirty.
    writers: Cell<u32>,
    /// A detach is prepared: every write goes to the origin too, before the answer.
    detaching: Cell<bool>,
    /// The origin has all data, and changes wait for the detach.
    changes_wait: Cell<bool>,
    /// Changes of the origin that the log does not record, and how many of them a flush covers.
    unrecorded: Cell<u64>,
    covered: Cell<u64>,
    sealing: Cell<bool>,
}

/// The state of a log.
#[derive(Clone)]
pub(crate) enum LogState {
    /// It is being opened, on this device.
    Opening(Rc<Opening>),
    /// It is in use.
    Open(Rc<OpenLog>),
    /// It cannot be used, and may hold dirty data: every request gets EIO.
    Refused,
}

/// A log that is being opened.
///
/// An open log serves requests once the logs of all shards are open: if one of them cannot be used, the volume stops
/// using the device, and no other log may hold a write that was answered.
pub(crate) struct Opening {
    pub(crate) device: Rc<Attached>,
    /// Whether the logs of all shards are open.
    pub(crate) all_open: Cell<bool>,
    /// Requests, and the task that opens the log.
    pub(crate) waiting: WaitList,
}

impl Opening {
    pub(crate) fn new(device: &Rc<Attached>) -> Rc<Self> {
        let (all_open, waiting) = (Cell::new(false), WaitList::default());
        Rc::new(Self { device: Rc::clone(device), all_open, waiting })
    }

    /// Waits until the logs of all shards are open; returns whether the device is still attached.
    pub(crate) async fn wait_for_all(&self, cx: &Context) -> bool {
        let alone = cx.shape.shards == 1 || mutant::is_active("page-log-serves-alone");
        while !alone && !self.all_open.get() && !self.device.closed() {
            self.waiting.wait(&cx.exec).await;
        }
        !self.device.closed()
    }
}

/// The result of opening a log.
pub(crate) enum Opened {
    /// It is in use.
    Open(Rc<OpenLog>),
    /// It cannot be used, and may hold dirty data.
    Refused,
    /// It cannot be used, and holds no dirty data.
    Failed,
    /// The device was detached meanwhile.
    Detached,
}

impl LogState {
    /// The device that is in use or being opened.
    pub(crate) fn device(&self) -> Option<&Rc<Attached>> {
        match self {
            Self::Opening(opening) => Some(&opening.device),
            Self::Open(open) => Some(open.device()),
            Self::Refused => None,
        }
    }

    /// Whether the next start may use the log.
    pub(crate) fn may_count(&self) -> bool {
        match self {
            Self::Opening(_) => true,
            Self::Open(open) => open.log.may_count(),
            Self::Refused => false,
        }
    }

    /// Detaches the log. Waiting changes continue on the origin.
    pub(crate) fn detach(&self, cx: &Context) {
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
        LogPlace { place, ignored, seat }: LogPlace,
    ) -> Opened {
        let device = Rc::clone(flash.device());
        let dev = device.dev;
        let replays = spec.settings.policy.is_ordered();
        let order = replays.then(|| Order::new(seat.clone(), &cx.limits));
        let host = ShardHost::new(&cx, flash, &place, (ignored, order));
        let memory = (0..words_needed(place.blocks)).map(|_| AtomicU64::new(0)).collect();
        let opened = PageLog::open(host, memory, place, spec.settings).await;
        if device.closed() {
            return Opened::Detached;
        }
        match opened {
            Ok((log, found)) => {
                // It began again, and the driver records that before it serves requests.
                log.host().bypass.clear();
                let open = Rc::new(Self::new(&cx, log, &spec));
                for _ in 0..BUFFERS {
                    cx.exec.spawn(write_batches(Rc::downgrade(&open)));
                }
                cx.exec.spawn(keep_room(Rc::downgrade(&open)));
                if replays {
                    cx.exec.spawn(replay(Rc::downgrade(&open)));
                }
                device.emit(Event::LogOpened { dev, warm: found.warm });
                Opened::Open(open)
            }
            Err(error) => {
                // No other log of the volume can replay what is behind its changes.
                seat.fail();
                refused(&device, &spec, &error)
            }
        }
    }

    fn new(cx: &Rc<Context>, log: PageLog<ShardHost, Vec<AtomicU64>>, spec: &LogSpec) -> Self {
        Self {
            cx: Rc::clone(cx),
            log,
            admits_reads: spec.admits_reads,
            writers: Cell::new(0),
            detaching: Cell::new(false),
            changes_wait: Cell::new(false),
            // All earlier changes count as one.
            unrecorded: Cell::new(1),
            covered: Cell::new(0),
            sealing: Cell::new(false),
        }
    }

    /// The log's state.
    pub(crate) fn status(&self) -> LogStatus {
        self.log.status()
    }

    /// For how long the oldest change has waited for its replay.
    pub(crate) fn behind(&self) -> Nanos {
        let order = self.log.host().order();
        order.and_then(|order| order.waits_for(self.cx.exec.now())).unwrap_or(0)
    }

    /// Waits while the origin is too far behind for further changes.
    async fn until_origin_follows(&self) {
        while self.log.is_behind() && !self.device().closed() {
            let seen = self.log.host().changes();
            if !self.log.may_count() {
                self.log.host().changed(seen).await;
                continue;
            }
            // Nothing is replayed while it is sealed, but a stop that sealed it must not wait for this.
            self.cx.exec.sleep(SECOND).await;
            if self.log.may_count() {
                let _ = self.log.unseal().await;
            }
        }
    }

    /// The limits changed: tasks that wait for one look again.
    pub(crate) fn adjusted(&self) {
        self.log.host().notify();
    }

    /// Flash that fails gets no more retries: the volume stops.
    pub(crate) fn stop_retrying(&self) {
        self.log.host().flash.hurry();
        self.log.stop_retrying();
    }

    /// Cancels a detach: changes no longer wait.
    pub(crate) fn resume(&self) {
        self.changes_wait.set(false);
    }

    /// The flash device.
    pub(crate) fn device(&self) -> &Rc<Attached> {
        self.log.host().flash.device()
    }

    /// Seals the log in the background.
    pub(crate) fn seal(self: &Rc<Self>) {
        if self.log.is_sealed() || self.sealing.replace(true) {
            return;
        }
        let open = Rc::clone(self);
        self.cx.exec.spawn(async move {
            // A change by a client prevents the seal; then the caller asks again.
            if let Err(error @ ReleaseError::Dirty(_)) = open.log.release().await {
                let why = error.to_string();
                open.device().emit(Event::FlashErrors { dev: open.device().dev, why });
            }
            open.sealing.set(false);
        });
    }

    /// Writes dirty pages to the origin; with `evict`, none become dirty afterwards. `hold_back`: changes then wait for the
    /// detach.
    pub(crate) async fn clear(&self, evict: bool, hold_back: &Cell<bool>) -> Result<(), Errno> {
        // Under `ordered` changes wait for the detach at the end alone.
        self.detaching.set(evict && self.log.may_write_early());
        let mut result = self.log.empty().await;
        if evict && result.is_ok() {
            // A later write that the origin failed would be visible to readers, and then lost with the log.
            let left_with_writers = mutant::is_active("page-log-left-with-writers");
            self.changes_wait.set(hold_back.get() && !left_with_writers);
            while self.writers.get() > 0 {
                self.cx.exec.sleep(MILLISECOND).await;
            }
            result = self.log.empty().await;
        }
        if result.is_err() {
            self.detaching.set(false);
            self.changes_wait.set(false);
        }
        result
    }
}

/// Handles a log that cannot be used.
fn refused(device: &Attached, spec: &LogSpec, error: &OpenError) -> Opened {
    let (dev, why) = (device.dev, error.to_string());
    if spec.settings.policy.may_lose(error) {
        device.emit(Event::LogRefused { dev, why });
        return Opened::Refused;
    }
    device.close();
    device.emit(Event::FlashFailed { dev, why });
    Opened::Failed
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

async fn replay(open: Weak<OpenLog>) {
    while let Some(strong) = open.upgrade().filter(|l| !l.device().closed()) {
        let seen = strong.log.host().changes();
        if strong.log.replay_next().await {
            continue;
        }
        match strong.log.has_unreplayed() {
            true => strong.log.host().changed_within(seen, TURN).await,
            false => wait(strong, seen).await,
        }
    }
}

async fn wait(open: Rc<OpenLog>, seen: u64) {
    // Keeps the log alive until a change; a detach is one.
    open.log.host().changed(seen).await;
}
