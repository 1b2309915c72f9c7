// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kinds of caches. Dispatches each request once; each kind has its own state and paths.
//!
//! | the ... | file |
//! | --- | --- |
//! | no flash | `pass_through.rs` |
//! | units, clean: flash holds copies | `units/clean.rs` |
//! | units, write-back: flash holds dirty data | `units/write_back.rs` |
//! | pages in a log | `log/` |
//! | a FLUSH | `flush.rs` |
//! | origins that are overdue | `watch.rs` |
//! | ranges that are pinned and excluded | `keep.rs` |
//! | the part of flash in use, larger or smaller | `resize.rs` |
//! | ranges that are read back and compared with their checksums | `scrub.rs` |
//! | ranges that commands warm and evict; what flash has and how much it is read | `arrange.rs`; `heat.rs` |
//! | steps before a detach of the flash or of a volume | `clear.rs`, `detaching.rs` |
//!
//! Invariant: the specification decides the kind of a shard's cache; without a device the shard is in pass-through.

pub(crate) mod arrange;
mod clear;
pub(crate) mod detaching;
mod flush;
pub(crate) mod heat;
pub(crate) mod in_flight;
pub(crate) mod keep;
pub(crate) mod log;
mod pass_through;
mod resize;
pub(crate) mod scrub;
mod status;
pub(crate) mod units;
pub(crate) mod watch;

pub use self::status::CacheStatus;

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use self::detaching::Detaching;
use self::in_flight::Turn;
use self::log::{LogPlace, LogState, OpenLog, Opened, Opening};
use self::units::clean::Clean;
use self::units::exchanges::Exchanges;
use self::units::syncer;
use self::units::table::{Hold, Table};
use self::units::unit_cache::UnitCache;
use self::units::write_back::WriteBack;
use crate::config::{CacheSpec, Contents, KindSpec, LogSpec};
use crate::context::Context;
use crate::event::Event;
use crate::exec::{DevId, IoKind, MILLISECOND};
use crate::flash::{Attached, Flash, Owner};
use crate::format::FlashPlan;
use crate::journal::Journal;
use crate::journal::recover::Recovered;
use crate::mutant;
use crate::request::{Errno, Request};
use crate::runs::Tag;
use crate::volumes::VolumeSet;

/// A cache of one kind.
#[derive(Clone)]
pub(crate) enum Cache {
    /// No flash is attached.
    PassThrough,
    Clean(Rc<Clean>),
    WriteBack(Rc<WriteBack>),
    Log(LogState),
}

/// The current cache of a shard.
pub(crate) struct Current {
    me: Weak<Current>,
    pub(crate) cx: Rc<Context>,
    spec: RefCell<CacheSpec>,
    cache: RefCell<Cache>,
    pub(crate) detaching: Detaching,
}

impl Current {
    /// A cache in pass-through.
    pub(crate) fn new(cx: &Rc<Context>, spec: &CacheSpec) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            cx: Rc::clone(cx),
            spec: RefCell::new(spec.clone()),
            cache: RefCell::new(Cache::PassThrough),
            detaching: Detaching::of(cx.origins.volumes.count()),
        })
    }

    pub(crate) fn get(&self) -> Cache {
        self.cache.borrow().clone()
    }

    /// See [`Shard::choose`](crate::shard::Shard::choose).
    pub(crate) fn choose(&self, spec: &CacheSpec) -> bool {
        if !self.spec.borrow().may_become(spec) {
            return false;
        }
        self.spec.replace(spec.clone());
        if let (Some(clean), KindSpec::Clean(spec)) = (self.clean(), &spec.kind) {
            clean.flash_copy.set(spec.flash_copy);
        }
        if let (Some(table), Some(slots)) = (self.table(), spec.kind.slots()) {
            table.replace_by(slots.replacement);
        }
        true
    }

    /// The limits changed: tasks that wait for one look again.
    pub(crate) fn adjusted(&self) {
        if let Cache::Log(LogState::Open(open)) = self.get() {
            open.adjusted();
        }
    }

    /// The cache, if it is a clean one of units.
    pub(crate) fn clean(&self) -> Option<Rc<Clean>> {
        match &*self.cache.borrow() {
            Cache::Clean(clean) => Some(Rc::clone(clean)),
            _ => None,
        }
    }

    /// The table of slots, if the cache has one.
    pub(crate) fn table(&self) -> Option<Rc<Table>> {
        match &*self.cache.borrow() {
            Cache::Clean(clean) => Some(Rc::clone(&clean.units.table)),
            Cache::WriteBack(cache) => Some(Rc::clone(&cache.units.table)),
            Cache::PassThrough | Cache::Log(_) => None,
        }
    }

    /// The cache, if its units can be exchanged.
    pub(crate) fn exchanges(&self) -> Option<Rc<dyn Exchanges>> {
        match self.get() {
            Cache::Clean(clean) => Some(clean),
            Cache::WriteBack(cache) => Some(cache),
            Cache::PassThrough | Cache::Log(_) => None,
        }
    }

    fn owner(&self) -> Weak<dyn Owner> {
        let me: Weak<Self> = Weak::clone(&self.me);
        me
    }

    pub(crate) async fn read(self: Rc<Self>, tag: Tag, mut request: Request) {
        request.passive |= self.cx.excludes(request.offset);
        match self.get() {
            Cache::PassThrough => pass_through::read(Rc::clone(&self.cx), tag, request).await,
            Cache::Clean(clean) if request.passive => {
                Box::pin(clean.read_passively(tag, request)).await;
            }
            Cache::Clean(clean) => clean.read(tag, request).await,
            Cache::WriteBack(cache) => Box::pin(cache.read(tag, request)).await,
            Cache::Log(_) => Box::pin(self.read_log(tag, request)).await,
        }
    }

    pub(crate) async fn write(self: Rc<Self>, tag: Tag, mut request: Request, fua: bool) {
        let clean = self.clean().filter(|clean| clean.copies_writes());
        let takes_turn = clean.is_some();
        // It is not held while the write waits: a detach could not end.
        let stale = clean.filter(|_| mutant::is_active("turn-over-attach"));
        let mut turn = None;
        if takes_turn {
            let place = self.cx.shape.place(&request);
            match self.cx.in_flight.turn(&place, fua, request.buf.take()).await {
                Turn::Begins(writing, buf) => (turn, request.buf) = (Some(writing), buf),
                Turn::Joined(result) => {
                    self.cx.stats.add(|c| c.write_joins += 1);
                    return self.cx.reply(tag, result, None, true);
                }
            }
        }
        let cache = stale.map_or_else(|| self.get(), Cache::Clean);
        // Other caches order writes by themselves.
        let turn = turn.filter(|_| matches!(cache, Cache::Clean(_)));
        match cache {
            Cache::PassThrough => pass_through::write(Rc::clone(&self.cx), tag, request, fua).await,
            Cache::Clean(clean) => clean.write(tag, request, fua, turn).await,
            Cache::WriteBack(cache) => {
                let kind = IoKind::Write { fua: fua && !mutant::is_active("fua-ignored") };
                Box::pin(cache.change(tag, request, kind)).await;
            }
            Cache::Log(_) => Box::pin(self.write_log(tag, request, fua)).await,
        }
    }

    /// Trim and zero.
    pub(crate) async fn discard(self: Rc<Self>, tag: Tag, request: Request, kind: IoKind) {
        match self.get() {
            Cache::PassThrough => {
                pass_through::discard(Rc::clone(&self.cx), tag, request, kind).await;
            }
            Cache::Clean(clean) => clean.discard(tag, request, kind).await,
            Cache::WriteBack(cache) => Box::pin(cache.change(tag, request, kind)).await,
            Cache::Log(_) => Box::pin(self.discard_log(tag, request, kind)).await,
        }
    }

    /// Waits until the log is open; `None` if it was detached meanwhile.
    ///
    /// # Errors
    /// If the log cannot be used but may hold dirty data.
    async fn opened(&self) -> Result<Option<Rc<OpenLog>>, Errno> {
        loop {
            match self.get() {
                Cache::Log(LogState::Open(open)) => return Ok(Some(open)),
                Cache::Log(LogState::Refused) => return Err(Errno::EIO),
                Cache::Log(LogState::Opening(opening)) => {
                    opening.waiting.wait(&self.cx.exec).await;
                }
                _ => return Ok(None),
            }
        }
    }

    async fn read_log(self: Rc<Self>, tag: Tag, mut request: Request) {
        loop {
            match self.opened().await {
                Ok(Some(open)) => match open.read(tag, request).await {
                    Some(again) => request = again,
                    None => return,
                },
                Ok(None) => return pass_through::read(Rc::clone(&self.cx), tag, request).await,
                Err(errno) => return self.cx.reply(tag, Err(errno), None, false),
            }
        }
    }

    async fn write_log(self: Rc<Self>, tag: Tag, mut request: Request, fua: bool) {
        loop {
            match self.opened().await {
                Ok(Some(open)) => match open.write(tag, request, fua).await {
                    Some(again) => request = again,
                    None => return,
                },
                Ok(None) => {
                    return pass_through::write(Rc::clone(&self.cx), tag, request, fua).await;
                }
                Err(errno) => return self.cx.reply(tag, Err(errno), None, false),
            }
        }
    }

    async fn discard_log(self: Rc<Self>, tag: Tag, mut request: Request, kind: IoKind) {
        loop {
            match self.opened().await {
                Ok(Some(open)) => match open.discard(tag, request, kind).await {
                    Some(again) => request = again,
                    None => return,
                },
                Ok(None) => {
                    return pass_through::discard(Rc::clone(&self.cx), tag, request, kind).await;
                }
                Err(errno) => return self.cx.reply(tag, Err(errno), None, false),
            }
        }
    }

    /// Starts to cache units on a flash device with the recovered state; returns whether the cache is warm.
    pub(crate) fn attach_units(
        &self,
        plan: FlashPlan,
        recovered: Option<&Recovered>,
        stale: VolumeSet,
    ) -> bool {
        self.detach();
        let (cx, owner) = (&self.cx, self.owner());
        let (cache, warm) = match &self.spec.borrow().kind {
            KindSpec::Clean(spec) => {
                let (clean, warm) = Clean::attach(cx, spec, plan, recovered, owner);
                (Cache::Clean(clean), warm)
            }
            KindSpec::WriteBack(spec) => {
                match WriteBack::attach(cx, spec, plan, (recovered, stale), owner) {
                    Ok(cache) => {
                        for volume in 0..cx.origins.volumes.count() {
                            cx.exec.spawn(syncer::run(Rc::downgrade(&cache), volume));
                        }
                        (Cache::WriteBack(cache), recovered.is_some())
                    }
                    Err(_) => return false,
                }
            }
            KindSpec::Log(_) => return false,
        };
        self.detaching.stopped.set(false);
        self.cache.replace(cache);
        self.hold_overdue(self.cx.origins.overdue());
        self.cx.rules_changed.set(&self.cx.exec);
        warm
    }

    /// Starts to cache in a page log on a flash device. Requests wait until it is open.
    pub(crate) fn attach_log(&self, dev: DevId, place: LogPlace) {
        self.detach();
        let KindSpec::Log(spec) = self.spec.borrow().kind.clone() else { return };
        let Some(me) = self.me.upgrade() else { return };
        self.detaching.stopped.set(false);
        self.detaching.hold_back.set(false);
        let (device, limits) = (self.cx.device(), &self.cx.limits);
        let flash = Flash::new(dev, device, limits, spec.contents, self.owner());
        let flash = Rc::new(flash.patient(log::PATIENCE_WITH_COPIES));
        let opening = Opening::new(flash.device());
        self.cache.replace(Cache::Log(LogState::Opening(Rc::clone(&opening))));
        self.cx.exec.spawn(me.open_log(opening, flash, spec, place));
    }

    async fn open_log(
        self: Rc<Self>,
        opening: Rc<Opening>,
        flash: Rc<Flash>,
        spec: LogSpec,
        place: LogPlace,
    ) {
        // Earlier changes of the origin do not hold their pages in this log: one that ends after a newer write in the log
        // would undo that write on the origin.
        let over_writes = mutant::is_active("page-log-attach-over-writes");
        while !over_writes && self.cx.claims.count() > 0 && !opening.device.closed() {
            self.cx.exec.sleep(MILLISECOND).await;
        }
        let opened = OpenLog::open(Rc::clone(&self.cx), flash, spec, place).await;
        let cache = match opened {
            Opened::Open(open) if opening.wait_for_all(&self.cx).await => {
                Cache::Log(LogState::Open(open))
            }
            Opened::Open(open) => return open.log.fail(Errno::ESHUTDOWN),
            Opened::Refused => Cache::Log(LogState::Refused),
            Opened::Failed => {
                // It may be sealed: the next start would use it.
                self.cx.fence.raise();
                Cache::PassThrough
            }
            Opened::Detached => return,
        };
        self.cache.replace(cache);
        opening.waiting.wake_all(&self.cx.exec);
    }

    /// The logs of all shards are open: requests are served from this shard's log.
    pub(crate) fn all_logs_open(&self) {
        if let Cache::Log(LogState::Opening(opening)) = self.get() {
            opening.all_open.set(true);
            opening.waiting.wake_all(&self.cx.exec);
        }
    }

    /// A flush of the device failed, for this shard or another.
    pub(crate) fn flash_flush_failed(&self) {
        match self.get() {
            // A clean cache stops using the device, or needs no flush.
            Cache::PassThrough | Cache::Clean(_) => {}
            Cache::WriteBack(cache) => cache.slots.writes.doubt(),
            Cache::Log(LogState::Open(open)) => open.log.doubt(),
            Cache::Log(_) => {}
        }
    }

    /// Failed operations on flash that may hold dirty data are not repeated.
    pub(crate) fn stop_retrying(&self) {
        match self.get() {
            Cache::WriteBack(cache) => cache.units.flash.hurry(),
            Cache::Log(LogState::Open(open)) => open.stop_retrying(),
            Cache::PassThrough | Cache::Clean(_) | Cache::Log(_) => {}
        }
    }

    /// The pages that recovery ignores are recorded.
    pub(crate) fn ignores_recorded(&self, result: Result<(), Errno>) {
        if let Cache::Log(LogState::Open(open)) = self.get() {
            open.ignores_recorded(result);
        }
    }

    /// Switches to pass-through.
    pub(crate) fn detach(&self) {
        match self.cache.replace(Cache::PassThrough) {
            Cache::PassThrough => {}
            Cache::Clean(clean) => self.close_units(&clean.units),
            Cache::WriteBack(cache) => self.close_units(&cache.units),
            Cache::Log(state) => state.detach(&self.cx),
        }
    }

    /// Closes the device of a unit cache. Its metadata becomes stale with the next write, so writes wait for the fence.
    fn close_units<J: Journal>(&self, units: &UnitCache<J>) {
        units.flash.device().close();
        if let Some(log) = units.log() {
            if !mutant::is_active("detach-not-durable") {
                self.cx.fence.raise();
            }
            log.fail();
        }
    }

    /// Requests that all state of the cache be made durable; ends exchanges.
    pub(crate) fn settle(&self) {
        self.detaching.stop();
        match self.get() {
            Cache::PassThrough => {}
            Cache::Clean(clean) => clean.units.hurry(),
            Cache::WriteBack(cache) => cache.settle(),
            Cache::Log(LogState::Open(open)) if !self.detaching.is_clearing() => open.seal(),
            Cache::Log(_) => {}
        }
    }

    /// Whether all state of the cache that a restart uses is durable.
    pub(crate) fn is_settled(&self) -> bool {
        let is_behind = self.cx.origins.overdue.is_behind();
        if self.detaching.moves_units() || self.detaching.is_clearing() || is_behind {
            return false;
        }
        match self.get() {
            Cache::PassThrough => true,
            Cache::Clean(clean) => clean.units.is_settled(),
            Cache::WriteBack(cache) => cache.is_settled(),
            Cache::Log(LogState::Open(open)) => open.log.is_sealed() || open.log.needs_no_seal(),
            Cache::Log(_) => false,
        }
    }

    /// Holds the volumes whose origin is overdue at the slots that they have, and no others.
    pub(crate) fn hold_overdue(&self, overdue: VolumeSet) {
        let Some(table) = self.table() else { return };
        let grow = mutant::is_active("hung-volume-grows");
        for volume in 0..self.cx.origins.volumes.count() {
            table.hold(volume, Hold::Overdue, overdue.has(volume) && !grow);
        }
    }

    /// Whether acknowledged writes are lost on flash.
    pub(crate) fn has_losses(&self) -> bool {
        matches!(self.get(), Cache::WriteBack(cache) if cache.slots.writes.has_any_lost())
    }

    /// Cancels the detach that a clear prepared.
    pub(crate) fn cancel_detach(&self) {
        self.detaching.cancel();
        match self.get() {
            Cache::Log(LogState::Open(open)) => open.resume(),
            Cache::WriteBack(cache) => cache.admits.set(true),
            Cache::PassThrough | Cache::Clean(_) | Cache::Log(_) => {}
        }
    }

    /// The device that is attached or being opened.
    pub(crate) fn device(&self) -> Option<Rc<Attached>> {
        match &*self.cache.borrow() {
            Cache::PassThrough => None,
            Cache::Clean(clean) => Some(Rc::clone(clean.units.flash.device())),
            Cache::WriteBack(cache) => Some(Rc::clone(cache.units.flash.device())),
            Cache::Log(state) => state.device().cloned(),
        }
    }
}

impl Owner for Current {
    /// Closes a device that holds copies and switches to pass-through. A device that may hold dirty data stays in use. Both
    /// emit an event.
    fn failed(&self, device: &Rc<Attached>, why: String) {
        if device.closed() {
            return;
        }
        let dev = device.dev;
        if device.contents == Contents::Dirty {
            return device.emit(Event::FlashErrors { dev, why });
        }
        device.close();
        if self.device().is_some_and(|used| Rc::ptr_eq(&used, device)) {
            // The next start would use a sealed log.
            if let Cache::Log(state) = self.get()
                && state.may_count()
            {
                self.cx.fence.raise();
            }
            self.detach();
        }
        device.emit(Event::FlashFailed { dev, why });
    }
}
