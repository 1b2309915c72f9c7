// SPDX-License-Identifier: MIT OR Apache-2.0
//! A shard over a page log: the second shape of a cache (`pagelog`), behind the same face.
//!
//! | the ... | file |
//! | --- | --- |
//! | start, tasks, what the administrator asks for | this one |
//! | read, write, trim, zero, FLUSH | `paths.rs` |
//! | one change of a page at a time | `holds.rs` |
//! | what the log asks of a shard | `host.rs` |
//!
//! The log is opened by the shard itself, and requests wait until it is. A log that cannot be used is refused
//! where it alone may have something, and otherwise given up: the volume goes on in pass-through.
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
use crate::attached::Attached;
use crate::event::Event;
use crate::exec::{DevId, MILLISECOND, Signal};
use crate::mutant;
use crate::pagelog::{BUFFERS, Geometry, Host, LogStatus, PageLog, words_needed};
use crate::request::Errno;
use crate::shard::Core;

/// A shard's log.
pub(crate) struct Logged {
    pub(crate) log: PageLog<ShardHost, Vec<AtomicU64>>,
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

/// Where a shard's log is.
#[derive(Default)]
pub(crate) enum Slot {
    /// There is none.
    #[default]
    None,
    /// It is being opened, on this device.
    Opening(Rc<Attached>, Vec<Rc<Signal>>),
    /// It is in use.
    Open(Rc<Logged>),
    /// It cannot be used, and may alone have something: nobody is served.
    Refused,
}

impl Logged {
    /// The log's state.
    pub(crate) fn status(&self) -> LogStatus {
        self.log.status()
    }

    /// It is not left: writes go on.
    pub(crate) fn go_on(&self) {
        self.empty.set(false);
    }

    /// The flash device.
    pub(crate) fn device(&self) -> &Rc<Attached> {
        &self.log.host().device
    }
}

impl Core {
    /// Starts to cache in a log on a flash device.
    pub(crate) fn attach_log(self: &Rc<Self>, dev: DevId, place: Geometry) {
        let host = ShardHost::new(self, dev, &place);
        self.hold_back.set(false);
        *self.log.borrow_mut() = Slot::Opening(Rc::clone(&host.device), Vec::new());
        self.exec.spawn(Rc::clone(self).open_log(host, place));
    }

    async fn open_log(self: Rc<Self>, host: ShardHost, place: Geometry) {
        let Some(settings) = self.choices.log() else { return };
        let device = Rc::clone(&host.device);
        let dev = device.dev;
        let memory = (0..words_needed(place.blocks)).map(|_| AtomicU64::new(0)).collect();
        let opened = PageLog::open(host, memory, place, settings).await;
        if device.closed() {
            return; // it was detached meanwhile
        }
        let now = match opened {
            Ok((log, found)) => {
                let logged = Rc::new(Logged {
                    log,
                    writers: Cell::new(0),
                    leaving: Cell::new(false),
                    empty: Cell::new(false),
                    // What came before counts as one.
                    unrecorded: Cell::new(1),
                    covered: Cell::new(0),
                    sealing: Cell::new(false),
                });
                for _ in 0..BUFFERS {
                    self.exec.spawn(write_batches(Rc::downgrade(&logged)));
                }
                self.exec.spawn(keep_room(Rc::downgrade(&logged)));
                device.tell(Event::LogOpened { dev, warm: found.warm });
                Slot::Open(logged)
            }
            Err((_, error)) => {
                let why = error.to_string();
                if error.may_lose(settings.policy) {
                    device.tell(Event::LogRefused { dev, why });
                    Slot::Refused
                } else {
                    // It may be sealed, and would count at the next start.
                    self.unfenced.set(true);
                    device.close();
                    device.tell(Event::FlashFailed { dev, why });
                    Slot::None
                }
            }
        };
        if let Slot::Opening(_, waiting) = self.log.replace(now) {
            waiting.iter().for_each(|signal| signal.set(&self.exec));
        }
    }

    /// The log, once it is open, or that there is none.
    ///
    /// # Errors
    /// If it cannot be used, and may alone have something.
    pub(crate) async fn logged(&self) -> Result<Option<Rc<Logged>>, Errno> {
        loop {
            let signal = match &mut *self.log.borrow_mut() {
                Slot::None => return Ok(None),
                Slot::Refused => return Err(Errno::EIO),
                Slot::Open(logged) => return Ok(Some(Rc::clone(logged))),
                Slot::Opening(_, waiting) => {
                    waiting.push(Rc::default());
                    waiting.last().map(Rc::clone)
                }
            };
            if let Some(signal) = signal {
                signal.wait(&self.exec).await;
            }
        }
    }

    /// The log, if it is open.
    pub(crate) fn open_logged(&self) -> Option<Rc<Logged>> {
        match &*self.log.borrow() {
            Slot::Open(logged) => Some(Rc::clone(logged)),
            _ => None,
        }
    }

    /// The log on this device is no longer used: one that is sealed would count at the next start.
    pub(crate) fn end_log(&self, device: &Rc<Attached>) {
        let counts = match &*self.log.borrow() {
            Slot::Open(logged) if Rc::ptr_eq(logged.device(), device) => logged.log.may_count(),
            Slot::Opening(opened, _) if Rc::ptr_eq(opened, device) => true,
            _ => return,
        };
        self.unfenced.set(counts);
        // It shows what the origin has, and nothing else.
        self.detach_log();
    }

    /// Goes on without the log. Whoever waits to change something does so on the origin.
    pub(crate) fn detach_log(&self) {
        match self.log.take() {
            Slot::Open(logged) => {
                logged.device().close();
                logged.log.fail(Errno::ESHUTDOWN);
            }
            Slot::Opening(device, waiting) => {
                device.close();
                waiting.iter().for_each(|signal| signal.set(&self.exec));
            }
            Slot::None | Slot::Refused => {}
        }
    }

    /// Makes the log as a start should find it.
    pub(crate) fn seal_log(self: &Rc<Self>) {
        let Some(logged) = self.open_logged() else { return };
        if logged.log.is_sealed() || logged.sealing.replace(true) {
            return;
        }
        let core = Rc::clone(self);
        self.exec.spawn(async move {
            let policy = logged.log.policy();
            if policy.holds_dirty() && !policy.outlives_crash() {
                // The origin has everything after a stop. What it does not take stays, and counts as dirty.
                let _ = core.drain_log(&logged, false).await;
            }
            // While clients go on there may be no moment to seal it; whoever asked asks again.
            if let Err(errno) = logged.log.seal().await
                && policy.holds_dirty()
            {
                let why = format!("the page log cannot be closed: {errno}");
                logged.device().tell(Event::FlashErrs { dev: logged.device().dev, why });
            }
            logged.sealing.set(false);
        });
    }

    /// Brings to the origin what the log alone has; with `leave` nothing is dirty any more afterwards.
    pub(crate) async fn clear_log(&self, logged: &Rc<Logged>, leave: bool) -> Result<(), Errno> {
        logged.leaving.set(leave);
        let mut result = self.drain_log(logged, true).await;
        if leave && result.is_ok() {
            // A write that comes later, and that the origin refuses, would be seen and be gone with the log.
            logged
                .empty
                .set(self.hold_back.get() && !mutant::is_active("page-log-left-with-writers"));
            while logged.writers.get() > 0 {
                self.exec.sleep(MILLISECOND).await;
            }
            result = self.drain_log(logged, true).await;
        }
        if result.is_err() {
            logged.leaving.set(false);
            logged.empty.set(false);
        }
        result
    }
}

async fn write_batches(logged: Weak<Logged>) {
    while let Some(strong) = logged.upgrade().filter(|l| !l.device().closed()) {
        let seen = strong.log.host().changes();
        if !strong.log.write_next().await {
            wait(strong, seen).await;
        }
    }
}

async fn keep_room(logged: Weak<Logged>) {
    while let Some(strong) = logged.upgrade().filter(|l| !l.device().closed()) {
        let seen = strong.log.host().changes();
        if !strong.log.keep().await {
            wait(strong, seen).await;
        }
    }
}

async fn wait(logged: Rc<Logged>, seen: u64) {
    // The host is the log's: this keeps the log until something changes, which a detach does too.
    logged.log.host().changed(seen).await;
}
