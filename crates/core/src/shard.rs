// SPDX-License-Identifier: MIT OR Apache-2.0
//! A shard: the units it owns, and the engine that serves them.
//!
//! Purpose: the face of the engine. A volume is one or more shards; unit `u` belongs to shard
//! `u mod shards`, whose state no other thread touches, so the paths need no lock. A driver
//! gives requests in ([`Shard::submit`]), moves time and tasks on ([`Shard::run`]), carries out
//! operations ([`Shard::next_io`], [`Shard::complete`]) and takes replies and events out.
//!
//! The paths are one file each: `read.rs`, `write.rs` (with trim and zero), `flush.rs`,
//! `populate.rs`; operations on flash with their time limit are in `flash.rs`.

mod fence;
mod part;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use larder_policy::admission::Admission;

use crate::buf::Buf;
use crate::cache::{Cache, Flash};
use crate::claims::Claims;
use crate::event::Event;
use crate::exec::{DevId, Ended, Exec, Io, IoId, IoKind, Nanos, Signal};
use crate::flash::{Hold, WriteThroughPool};
use crate::gate::Gate;
use crate::journal::Journal;
use crate::journal::layout::Layout;
use crate::journal::recover::Recovered;
use crate::logged::Slot;
use crate::pace::Pace;
use crate::pagelog::Geometry;
use crate::pages::{self, Pages};
use crate::preset::{Choices, Limits};
use crate::request::{Errno, Kind, MAX_PIECE_BYTES, Reply, Request};
use crate::shape::Shape;
use crate::stats::{Counters, Stats};

/// The state of a shard's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStatus {
    /// The flash device.
    pub dev: DevId,
    /// Slots.
    pub units_total: u64,
    /// Slots in use.
    pub units_used: u64,
    /// Slots with something that flash alone has.
    pub units_dirty: u64,
    /// Slots whose unit the journal has logged, or is about to.
    pub units_logged: u64,
    /// How far the journal has come: its generation, and blocks of that log; 0 without one.
    pub reached: (u64, u64),
    /// Bytes of memory that bitmaps take at the moment.
    pub bitmap_bytes: u64,
    /// Whether it is bypassed because an operation is overdue.
    pub suspended: bool,
}

/// A request's place on the volume in all the forms that the paths need.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The shard's own number of the unit.
    pub unit: u32,
    /// First byte within the unit.
    pub within: u64,
    /// First byte on the volume.
    pub offset: u64,
    pub len: u64,
    pub pages: Pages,
}

/// The engine behind [`Shard`].
pub(crate) struct Core {
    /// Itself, for tasks that outlive the call that starts them.
    pub me: Weak<Core>,
    pub exec: Exec<Hold>,
    pub shape: Shape,
    pub choices: Choices,
    pub limits: Limits,
    pub origin: DevId,
    pub claims: Claims,
    pub admission: RefCell<Box<dyn Admission>>,
    pub workers: Vec<Signal>,
    pub populating: RefCell<Vec<u32>>,
    /// The slot from which units are looked for that a restart found in part only.
    pub mending: Cell<u32>,
    /// Writes of this shard that the origin has ended, and how many of them a flush covers. What an
    /// earlier run wrote counts as one.
    pub origin_writes: Cell<u64>,
    pub origin_durable: Cell<u64>,
    pub flushing: Cell<bool>,
    pub flush_waiters: RefCell<Vec<Rc<Signal>>>,
    pub origin_flushed: Signal,
    pub flush_result: Cell<Result<(), Errno>>,
    /// A journaled flash device was given up: writes wait until that is durable off the flash.
    pub unfenced: Cell<bool>,
    pub fence: RefCell<Vec<Rc<Signal>>>,
    /// The origin failed a flush.
    pub flush_failed: Cell<Option<Errno>>,
    pub pace: Pace,
    pub pool: WriteThroughPool,
    /// Where flash owns what it holds: keeps clients out of what is exchanged.
    pub gate: Gate,
    /// An update is under way, and what flash alone has is being copied to the origin: never both.
    pub updating: Cell<bool>,
    pub clearing: Cell<bool>,
    /// A clear that was asked for and not begun, and whether nothing is to stay cached.
    pub clear_asked: Cell<Option<bool>>,
    /// Whether whoever changes something waits for a page log to be left, once it is cleared.
    pub hold_back: Cell<bool>,
    /// How that ended last, and whether nothing is to be cached any more.
    pub cleared: Cell<Result<(), Errno>>,
    pub leaving: Cell<bool>,
    pub stats: Stats,
    pub events: Rc<RefCell<VecDeque<Event>>>,
    cache: RefCell<Option<Rc<Cache>>>,
    pub log: RefCell<crate::logged::Slot>,
    replies: RefCell<VecDeque<Reply>>,
    open: Cell<u64>,
}

/// One shard of a volume, see the module.
pub struct Shard(Rc<Core>);

impl Shard {
    /// A shard in pass-through over the origin device.
    #[must_use]
    pub fn new(shape: Shape, choices: Choices, limits: Limits, origin: DevId) -> Self {
        assert!(shape.units() <= Shape::MOST_UNITS, "checked by whoever configures the volume");
        let admission = choices.admission.build(shape.shards, shape.units());
        let workers = admission.workers();
        let core = Rc::new_cyclic(|me| Core {
            me: Weak::clone(me),
            exec: Exec::default(),
            shape,
            pool: WriteThroughPool::new(
                // A share too small for any write would be none.
                (limits.write_through_bytes / u64::from(shape.shards))
                    .max(MAX_PIECE_BYTES.min(limits.write_through_bytes)),
            ),
            pace: Pace::new(&limits),
            gate: Gate::default(),
            updating: Cell::new(false),
            clearing: Cell::new(false),
            clear_asked: Cell::new(None),
            hold_back: Cell::new(false),
            cleared: Cell::new(Ok(())),
            leaving: Cell::new(false),
            choices,
            limits,
            origin,
            claims: Claims::default(),
            admission: RefCell::new(admission),
            workers: (0..workers).map(|_| Signal::default()).collect(),
            populating: RefCell::default(),
            mending: Cell::new(u32::MAX),
            origin_writes: Cell::new(1),
            origin_durable: Cell::new(0),
            flushing: Cell::new(false),
            flush_waiters: RefCell::default(),
            origin_flushed: Signal::default(),
            flush_result: Cell::new(Ok(())),
            unfenced: Cell::new(false),
            fence: RefCell::default(),
            flush_failed: Cell::new(None),
            stats: Stats::default(),
            events: Rc::default(),
            cache: RefCell::new(None),
            log: RefCell::default(),
            replies: RefCell::default(),
            open: Cell::new(0),
        });
        for worker in 0..workers {
            core.exec.spawn(Rc::clone(&core).population_worker(worker));
        }
        if core.choices.admission.is_periodic() {
            core.exec.spawn(Rc::clone(&core).updater());
        }
        Self(core)
    }

    /// Takes a request that lies in one of this shard's units and within the volume (flushes
    /// have no place). Its reply carries `tag`.
    pub fn submit(&self, tag: u64, request: Request) {
        let core = Rc::clone(&self.0);
        core.open.set(core.open.get() + 1);
        let exec = core.exec.clone();
        let logs = core.choices.write.log().is_some();
        match request.kind {
            Kind::Read if logs => exec.spawn(core.log_read(tag, request)),
            Kind::Write { fua } if logs => exec.spawn(core.log_write(tag, request, fua)),
            Kind::Flush if logs => exec.spawn(core.log_flush(tag)),
            Kind::Trim { .. } | Kind::Zero { .. } if logs => {
                let kind = request.kind;
                exec.spawn(core.log_discard(tag, request, kind));
            }
            Kind::Read => exec.spawn(core.read(tag, request)),
            Kind::Write { fua } => exec.spawn(core.write(tag, request, fua)),
            Kind::Flush => exec.spawn(core.flush(tag)),
            Kind::Trim { fua } => exec.spawn(core.discard(tag, request, IoKind::Trim { fua })),
            Kind::Zero { fua, may_unmap } => {
                exec.spawn(core.discard(tag, request, IoKind::Zero { fua, may_unmap }));
            }
        }
    }

    /// Moves the clock to `now` and runs what can run.
    pub fn run(&self, now: Nanos) {
        self.0.exec.run(now);
    }

    /// The next device operation to carry out.
    #[must_use]
    pub fn next_io(&self) -> Option<Io> {
        self.0.exec.next_io()
    }

    /// Reports the end of an operation; its buffer comes back.
    pub fn complete(&self, id: IoId, result: Result<(), Errno>, buf: Option<Buf>) {
        self.0.exec.complete(id, result, buf);
    }

    /// The next answer to a client.
    #[must_use]
    pub fn next_reply(&self) -> Option<Reply> {
        self.0.replies.borrow_mut().pop_front()
    }

    /// How a flush of the origin failed, if one ever did.
    #[must_use]
    pub fn flush_failed(&self) -> Option<Errno> {
        self.0.flush_failed.get()
    }

    /// The next event.
    #[must_use]
    pub fn next_event(&self) -> Option<Event> {
        self.0.events.borrow_mut().pop_front()
    }

    /// When [`run`](Self::run) must be called at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.0.exec.next_deadline()
    }

    /// Starts to cache on a flash device; what was attached before is detached. With what was
    /// recovered from the device's metadata the cache is warm at once; whether that was usable
    /// is the answer, and if not the cache starts cold.
    ///
    /// Whoever recovered flushed the device after it read. Where flash owns what it holds, what
    /// contradicts itself is not attached at all.
    pub fn attach(&self, flash: Flash, recovered: Option<&Recovered>) -> bool {
        self.detach();
        let core = &self.0;
        let layout = Layout::of(&core.shape, &flash);
        let volume = flash.journal.map_or(0, |j| j.volume);
        let build = |recovered: Option<&Recovered>| {
            let journal = layout.map(|layout| Journal::new(layout, volume, recovered));
            let events = Rc::clone(&core.events);
            Cache::new(flash, core.shape, &core.choices, events, journal)
        };
        let mut cache = build(recovered);
        let mut warm = false;
        if let (Some(recovered), Some(layout)) = (recovered, &layout) {
            warm = cache.restore(recovered, layout);
            if !warm {
                cache.forget();
                if layout.dirty {
                    return false;
                }
                cache = build(None);
            }
            if let Some(periodic) = core.admission.borrow_mut().periodic() {
                periodic.restore(recovered.factors(layout));
            }
        }
        if layout.is_some() {
            core.exec.spawn(Rc::clone(core).journal_committer(Rc::downgrade(&cache)));
            core.exec.spawn(Rc::clone(core).journal_checkpointer(Rc::downgrade(&cache)));
        }
        core.leaving.set(false);
        *core.cache.borrow_mut() = Some(cache);
        let mends = warm && !core.choices.write.flash_owns();
        core.mending.set(if mends { 0 } else { u32::MAX });
        if mends {
            core.workers.iter().for_each(|worker| worker.set(&core.exec));
        }
        warm
    }

    /// Starts to cache in a page log on a flash device, where that is the choice: its place is this shard's own. Whether
    /// that works is told with an event; requests wait until then.
    pub fn attach_log(&self, dev: DevId, place: Geometry) {
        self.detach();
        self.0.leaving.set(false);
        self.0.attach_log(dev, place);
    }

    /// It is durable off the flash that the flash is not to be used any more: writes go on.
    pub fn fenced(&self) {
        self.0.unfenced.set(false);
        self.0.fence.take().iter().for_each(|waiter| waiter.set(&self.0.exec));
    }

    /// Asks that all of the cache's state be made durable soon, and that nothing be exchanged any
    /// more: the volume stops.
    pub fn settle_journal(&self) {
        self.0.leaving.set(true);
        if !self.0.clearing.get() {
            self.0.seal_log();
        }
        if let Some(cache) = self.0.cache() {
            cache.journal().into_iter().for_each(Journal::hurry);
        }
    }

    /// Whether all of the cache's state is durable, or there is none to be kept. Nothing is written
    /// to the origin by then but what clients still ask for: a volume that stops notes its time.
    #[must_use]
    pub fn journal_settled(&self) -> bool {
        if self.0.updating.get() || self.0.clearing.get() {
            return false;
        }
        match &*self.0.log.borrow() {
            Slot::Open(logged) => return logged.log.is_sealed(),
            Slot::Opening(..) | Slot::Refused => return false,
            Slot::None => {}
        }
        self.0.cache().is_none_or(|c| c.journal().is_none_or(Journal::is_settled))
    }

    /// Flushes the origin, for another shard that asked with [`Event::NeedsOriginFlush`]; replies with `tag`.
    pub fn flush_origin(&self, tag: u64) {
        let core = Rc::clone(&self.0);
        core.open.set(core.open.get() + 1);
        self.0.exec.spawn(async move {
            let result = core.flush_here().await;
            core.reply(tag, result, None, false);
        });
    }

    /// The origin was flushed, as asked for by [`Event::NeedsOriginFlush`].
    pub fn origin_flushed(&self, result: Result<(), Errno>) {
        self.0.flush_result.set(result);
        self.0.origin_flushed.set(&self.0.exec);
    }

    /// Goes on in pass-through. The device is released with an event, once everything under way
    /// on it has ended.
    pub fn detach(&self) {
        self.0.detach_log();
        let cache = self.0.cache.borrow_mut().take();
        if let Some(cache) = cache {
            cache.close();
            self.0.end_journal(&cache);
        }
    }

    /// Whether it caches on this device, or is about to.
    #[must_use]
    pub fn uses(&self, dev: DevId) -> bool {
        let opening = matches!(&*self.0.log.borrow(), Slot::Opening(on, _) if on.dev == dev);
        opening || self.cache_status().is_some_and(|cache| cache.dev == dev)
    }

    /// The cache's state, if a flash device is attached.
    #[must_use]
    pub fn cache_status(&self) -> Option<CacheStatus> {
        if let Some(logged) = self.0.open_logged() {
            let (log, device) = (logged.status(), logged.device());
            return Some(CacheStatus {
                dev: device.dev,
                units_total: log.blocks,
                units_used: log.valid,
                units_dirty: log.dirty,
                units_logged: log.valid,
                reached: log.reached,
                bitmap_bytes: 0,
                suspended: !device.health.usable(),
            });
        }
        let cache = self.0.cache.borrow();
        cache.as_ref().map(|cache| CacheStatus {
            dev: cache.flash.dev,
            units_total: u64::from(cache.slots()),
            units_used: u64::from(cache.used()),
            units_dirty: cache.units_dirty(),
            units_logged: cache.journal().map_or(0, Journal::logged_count),
            reached: cache.journal().map_or((0, 0), Journal::reached),
            bitmap_bytes: cache.bitmap_bytes(),
            suspended: !cache.device.health.usable(),
        })
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.stats.get()
    }

    /// Client requests not answered yet.
    #[must_use]
    pub fn requests_open(&self) -> u64 {
        self.0.open.get()
    }

    /// Whether nothing is under way: no request, no device operation, no claim.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let core = &self.0;
        core.open.get() == 0 && core.exec.ios_open() == 0 && core.claims.count() == 0
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        // Tasks hold the core, and the core holds the tasks.
        self.0.exec.stop();
    }
}

impl Core {
    /// The cache, if one is attached.
    pub fn cache(&self) -> Option<Rc<Cache>> {
        self.cache.borrow().clone()
    }

    pub fn place(&self, request: &Request) -> Place {
        let (shards, unit_bytes) = (u64::from(self.shape.shards), self.shape.unit_bytes);
        let unit = request.offset / unit_bytes;
        let within = request.offset % unit_bytes;
        debug_assert!(within + request.len <= unit_bytes && request.len > 0);
        debug_assert_eq!(unit % shards, u64::from(self.shape.shard));
        Place {
            unit: (unit / shards) as u32,
            within,
            offset: request.offset,
            len: request.len,
            pages: pages::touched(within, request.len),
        }
    }

    /// Answers a client.
    pub fn reply(&self, tag: u64, result: Result<(), Errno>, buf: Option<Buf>, hit: bool) {
        self.open.set(self.open.get() - 1);
        self.replies.borrow_mut().push_back(Reply { tag, result, buf, hit });
    }

    /// An operation on the origin: no time limit, errors as they are.
    pub async fn origin_io(
        &self,
        kind: IoKind,
        offset: u64,
        len: u64,
        buf: Option<Buf>,
    ) -> (Result<(), Errno>, Option<Buf>) {
        self.stats.add(|c| match kind {
            IoKind::Read => {
                c.origin_reads += 1;
                c.origin_read_bytes += len;
            }
            IoKind::Write { .. } => c.origin_write_bytes += len,
            _ => {}
        });
        let ended = self.exec.io(self.origin, kind, offset, len, buf, 0, None, None).await;
        // Only now: a flush that began before this write ended does not cover it.
        if !matches!(kind, IoKind::Read | IoKind::Flush) {
            self.origin_writes.set(self.origin_writes.get() + 1);
        }
        match ended {
            Ended::Done(result, buf) => {
                if result.is_err() {
                    self.stats.add(|c| c.origin_errors += 1);
                }
                (result, buf)
            }
            // Without a bound nothing is ever overdue.
            Ended::TimedOut => (Err(Errno::ETIMEDOUT), None),
        }
    }
}
