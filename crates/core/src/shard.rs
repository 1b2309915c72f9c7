// SPDX-License-Identifier: MIT OR Apache-2.0
//! A shard: the public interface of the engine.
//!
//! A volume is one or more shards; each owns stripes of units (`shape.rs`). No other thread touches a shard's state, so
//! the paths need no lock. A driver submits requests ([`Shard::submit`]), advances the clock and runs tasks
//! ([`Shard::run`]), executes operations ([`Shard::next_io`], [`Shard::complete`]), and takes replies and events. The kind
//! of cache decides the path of a request (`cache/mod.rs`).

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use crate::buf::Buf;
pub use crate::cache::CacheStatus;
pub use crate::cache::arrange::Arrangement;
pub use crate::cache::detaching::Clear;
use crate::cache::log::LogPlace;
pub use crate::cache::scrub::Damaged;
pub use crate::cache::units::warmth::Warmth;
use crate::cache::watch;
use crate::cache::{Current, keep};
use crate::config::{CacheSpec, Limits};
use crate::context::Context;
use crate::event::Event;
use crate::exec::{DevId, Io, IoId, Nanos};
use crate::format::FlashPlan;
use crate::journal::recover::Recovered;
use crate::pagelog::{Geometry, Seat};
use crate::population::demand::Population;
use crate::population::{exchange, workers};
use crate::range_rules::RangeRules;
use crate::request::{Errno, Kind, Reply, Request};
use crate::runs::{Tag, parts};
use crate::shape::Shape;
use crate::stats::Counters;
use crate::volumes::{VolumeSet, Volumes};

/// One shard of a volume.
pub struct Shard {
    cx: Rc<Context>,
    current: Rc<Current>,
}

impl Shard {
    /// A shard of a volume that has its cache to itself, in pass-through over the origin device.
    #[must_use]
    pub fn new(shape: Shape, spec: &CacheSpec, limits: Limits, origin: DevId) -> Self {
        Self::shared(shape, Volumes::one(shape.origin_bytes), spec, limits, origin)
    }

    /// A shard of a cache that these volumes share, in pass-through over their origins. The shape has the bytes of the whole
    /// space. `origins` stands for all of them: the offset of an operation lies in the volume that it concerns, and a flush has
    /// the range of its volume.
    #[must_use]
    pub fn shared(
        shape: Shape,
        volumes: Volumes,
        spec: &CacheSpec,
        limits: Limits,
        origins: DevId,
    ) -> Self {
        assert_eq!(shape.origin_bytes, volumes.bytes(), "the shape is that of the volumes");
        assert!(volumes.count() == 1 || spec.has_units(), "the configuration checks this");
        assert!(shape.units() <= Shape::MOST_UNITS, "the configuration of the volume checks this");
        let volumes_share = volumes.count() > 1;
        let cx = Context::new(shape, volumes, limits, &spec.admission, origins);
        cx.begin_budget();
        let current = Current::new(&cx, spec);
        if volumes_share {
            cx.exec.spawn(watch::run(Rc::clone(&cx), Rc::clone(&current)));
        }
        cx.exec.spawn(keep::run(Rc::clone(&cx), Rc::clone(&current)));
        match &cx.population {
            Population::Workers(policy) => (0..policy.wake.len() as u32).for_each(|number| {
                cx.exec.spawn(workers::run(Rc::clone(&cx), Rc::clone(&current), number));
            }),
            Population::Exchange(_) => {
                cx.exec.spawn(exchange::run(Rc::clone(&cx), Rc::clone(&current)));
            }
            Population::None | Population::Inline(_) => {}
        }
        Self { cx, current }
    }

    /// Takes a request that lies in one of this shard's stripes and within a volume. A flush has no length, and an offset
    /// within its volume. The reply carries `tag`.
    pub fn submit(&self, tag: u64, request: Request) {
        self.cx.opened();
        let unit_bytes = self.cx.shape.unit_bytes;
        if request.offset % unit_bytes + request.len <= unit_bytes {
            return self.start(Tag::Whole(tag), request);
        }
        let first = request.offset;
        let (parts, whole) = parts(request, unit_bytes);
        let run = self.cx.runs.open(tag, parts.len() as u32, whole);
        for part in parts {
            let at = (part.offset - first) as u32;
            self.start(Tag::Part { run, at }, part);
        }
    }

    /// The parts of a run are a group: the origin merges their operations (`merge.rs`).
    fn start(&self, tag: Tag, request: Request) {
        let (exec, current) = (&self.cx.exec, Rc::clone(&self.current));
        let group = match tag {
            Tag::Whole(_) => None,
            Tag::Part { run, .. } => Some(run),
        };
        match request.kind {
            Kind::Read => exec.spawn_in(group, current.read(tag, request)),
            Kind::Write { fua } => exec.spawn_in(group, current.write(tag, request, fua)),
            Kind::Flush => exec.spawn(current.flush(tag, request.offset)),
            kind @ (Kind::Trim { .. } | Kind::Zero { .. }) => {
                exec.spawn_in(group, current.discard(tag, request, kind));
            }
        }
    }

    /// Bytes of the budget of flash writes that are left to this shard, or owed if negative; none without a budget.
    #[must_use]
    pub fn budget_left(&self) -> Option<i64> {
        self.cx.budget_left()
    }

    /// Takes those of the limits that may change while the shard runs: population, the write buffer, time limits and errors of flash,
    /// the budget of flash writes. An operation in flight keeps its time limit.
    pub fn adjust(&self, to: &Limits) {
        self.cx.adjust(to);
        self.current.adjusted();
    }

    /// Takes other choices that change nothing that a restart reads from flash: when a write is copied there, and what is evicted.
    /// Returns false, and changes nothing, if they differ in anything else.
    pub fn choose(&self, spec: &CacheSpec) -> bool {
        self.current.choose(spec)
    }

    /// Sets the clock to `now` and runs all tasks that are ready.
    pub fn run(&self, now: Nanos) {
        self.cx.exec.run(now);
    }

    /// The next device operation to execute.
    #[must_use]
    pub fn next_io(&self) -> Option<Io> {
        self.cx.exec.next_io()
    }

    /// Completes an operation and returns its buffer to the engine.
    pub fn complete(&self, id: IoId, result: Result<(), Errno>, buf: Option<Buf>) {
        self.cx.exec.complete(id, result, buf);
    }

    /// The next reply to a client.
    #[must_use]
    pub fn next_reply(&self) -> Option<Reply> {
        self.cx.next_reply()
    }

    /// The error of the first failed flush of a volume's origin.
    #[must_use]
    pub fn flush_failed(&self, volume: u32) -> Option<Errno> {
        self.cx.origins.of(volume).flush_failed()
    }

    /// The origin of a volume may have lost acknowledged writes: the driver calls this for every shard after
    /// [`Event::OriginFlushFailed`], and after a connection to the origin with unflushed writes was lost. From then on the
    /// origin serves nothing that flash has.
    pub fn distrust_origin(&self, volume: u32) {
        self.cx.origins.of(volume).distrust();
    }

    /// A flush of this flash device failed, or an operation with FUA, which includes a flush on many devices: for this shard
    /// or another. The device may have lost writes that it had acknowledged. The driver calls this before the shard runs with
    /// the completion of a flush that ended later, since the shard would trust it.
    pub fn flash_flush_failed(&self, dev: DevId) {
        if self.uses(dev) {
            self.current.flash_flush_failed();
        }
    }

    /// The next event.
    #[must_use]
    pub fn next_event(&self) -> Option<Event> {
        self.cx.events.next()
    }

    /// The latest time of the next [`run`](Self::run).
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.cx.exec.next_deadline()
    }

    /// Starts to cache units on a flash device with the state recovered from its metadata; detaches the previous device.
    /// Returns whether the cache is warm. If the state contradicts itself, a clean cache starts cold, and a write-back
    /// cache is not attached.
    ///
    /// The caller must have flushed the device after it read the metadata.
    pub fn attach(&self, flash: FlashPlan, recovered: Option<&Recovered>) -> bool {
        self.attach_without(flash, recovered, VolumeSet::default())
    }

    /// As [`attach`](Self::attach). What the flash has of the `stale` volumes may be older than their origins: none of it is
    /// dirty. The caller serves these volumes only after it has left the flash ([`clear`](Self::clear)).
    pub fn attach_without(
        &self,
        flash: FlashPlan,
        recovered: Option<&Recovered>,
        stale: VolumeSet,
    ) -> bool {
        self.current.attach_units(flash, recovered, stale)
    }

    /// Starts to cache in a page log, in this shard's place on the flash device. An event reports whether the log is open.
    /// Requests wait for [`all_logs_open`](Self::all_logs_open).
    ///
    /// `ignored`: the pages that the last [`Event::LogIgnores`] of this log named, in order.
    pub fn attach_log(
        &self,
        dev: DevId,
        (place, seat): (Geometry, Seat),
        ignored: Vec<Range<u64>>,
    ) {
        self.current.attach_log(dev, LogPlace { place, ignored, seat });
    }

    /// The pages of [`Event::LogIgnores`] are recorded durably, or could not be.
    pub fn ignores_recorded(&self, result: Result<(), Errno>) {
        self.current.ignores_recorded(result);
    }

    /// The page logs of all shards on the device are open: requests are served. If one of them could not be opened, the
    /// caller detaches the device from all shards instead.
    pub fn all_logs_open(&self) {
        self.current.all_logs_open();
    }

    /// The driver calls this when it is durable off the flash that the flash is out of use. Writes continue.
    pub fn fenced(&self) {
        self.cx.fence.lower(&self.cx.exec);
    }

    /// Requests that all state of the cache be made durable; ends exchanges. For a volume that stops.
    pub fn settle_journal(&self) {
        self.current.settle();
    }

    /// The volume stops, and its time limit is near: a page log whose flash fails retries no more, and what only memory has
    /// goes to the origin.
    pub fn stop_retrying(&self) {
        self.current.stop_retrying();
    }

    /// Whether all state of the cache that a restart uses is durable. If so, only client requests change the origin: a
    /// volume that stops then records the origin's modification time.
    #[must_use]
    pub fn journal_settled(&self) -> bool {
        self.current.is_settled()
    }

    /// Whether acknowledged writes are lost on flash.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        self.current.has_losses()
    }

    /// Flushes the origin of a volume for another shard that emitted [`Event::NeedsOriginFlush`]; replies with `tag`.
    pub fn flush_origin(&self, volume: u32, tag: u64) {
        let cx = Rc::clone(&self.cx);
        cx.opened();
        self.cx.exec.spawn(async move {
            let result = cx.origins.of(volume).flush().await;
            cx.reply(Tag::Whole(tag), result, None, false);
        });
    }

    /// Reports the flush of the origin that this shard requested with [`Event::NeedsOriginFlush`].
    pub fn origin_flushed(&self, volume: u32, result: Result<(), Errno>) {
        self.cx.origins.of(volume).relayed(result);
    }

    /// Switches to pass-through. [`Event::FlashReleased`] follows when no operation on the device is in flight.
    pub fn detach(&self) {
        self.current.detach();
    }

    /// Copies dirty data to the origins in the background, and evicts if asked. If a clear of a volume is in progress, another
    /// follows it.
    pub fn clear(&self, clear: Clear) {
        self.current.clear(clear);
    }

    /// A volume that left by a [`Clear`] may be cached again.
    pub fn join(&self, volume: u32) {
        self.current.join(volume);
    }

    /// Warms or evicts this shard's units of ranges of a volume, one after the other, and calls `done` at the end; it is dropped if the shard is.
    pub fn arrange(
        &self,
        what: Arrangement,
        ranges: Vec<Range<u64>>,
        done: impl FnOnce(Result<(), Errno>) + 'static,
    ) {
        let current = Rc::clone(&self.current);
        self.cx.exec.spawn(async move { done(current.arrange(what, ranges).await) });
    }

    /// From now on `total` slots of the flash device may hold units, over all shards. Calls `done` when those beyond are empty; it is
    /// dropped if the shard is. A resize in progress ends.
    pub fn resize(&self, total: u64, done: impl FnOnce(Result<(), Errno>) + 'static) {
        let (current, begun) = (Rc::clone(&self.current), self.current.begin_resize(total));
        self.cx.exec.spawn(async move {
            done(match begun {
                Ok(begun) => current.end_resize(begun).await,
                Err(errno) => Err(errno),
            });
        });
    }

    /// Slots that a [`resize`](Self::resize) has not emptied.
    #[must_use]
    pub fn slots_beyond(&self) -> u32 {
        self.current.slots_beyond()
    }

    /// Reads what flash has of this shard's part of ranges, compares it with its checksums, and calls `done` with the pages that do
    /// not match; it is dropped if the shard is.
    pub fn scrub(
        &self,
        ranges: Vec<Range<u64>>,
        done: impl FnOnce(Result<Vec<Damaged>, Errno>) + 'static,
    ) {
        let current = Rc::clone(&self.current);
        self.cx.exec.spawn(async move { done(current.scrub(ranges).await) });
    }

    /// From now on these ranges are pinned and excluded. Pinned ones are copied to flash in the background, and what flash has of
    /// excluded ones is evicted.
    pub fn follow(&self, rules: &Arc<RangeRules>) {
        self.cx.rules.replace(Arc::clone(rules));
        self.current.follow(rules);
        self.cx.rules_changed.set(&self.cx.exec);
    }

    /// Begins a list of ranges to warm: what earlier lists warmed may be evicted for it.
    pub fn begin_list(&self) {
        self.current.begin_list();
    }

    /// Bytes of this shard's part of a range that flash has, in whole pages.
    #[must_use]
    pub fn cached(&self, range: &Range<u64>) -> u64 {
        self.current.cached(range)
    }

    /// Whether the unit of this shard at this place has a slot.
    #[must_use]
    pub fn holds(&self, at: u64) -> bool {
        self.current.holds(at)
    }

    /// What flash has in `most` slots from `first` on, 0 being the first one, and where to continue. It takes some microseconds for
    /// each slot.
    #[must_use]
    pub fn heat(&self, first: u64, most: u32) -> (Vec<Warmth>, Option<u64>) {
        self.current.heat(first, most)
    }

    /// Cancels the detach that a [`clear`](Self::clear) with `evict` prepared: changes of a page log no longer wait for it.
    pub fn cancel_detach(&self) {
        self.current.cancel_detach();
    }

    /// Result of the last such [`clear`](Self::clear); `None` while one of its volumes is being cleared.
    #[must_use]
    pub fn cleared(&self, clear: Clear) -> Option<Result<(), Errno>> {
        self.current.cleared(clear)
    }

    /// Whether it caches on this device or is opening it.
    #[must_use]
    pub fn uses(&self, dev: DevId) -> bool {
        self.current.device().is_some_and(|device| device.dev == dev)
    }

    /// The cache's state, if a flash device is attached.
    #[must_use]
    pub fn cache_status(&self) -> Option<CacheStatus> {
        self.current.status()
    }

    /// Slots with units of a volume, and those of them that have dirty data. Single pages in mixed slots are not counted.
    #[must_use]
    pub fn units_of(&self, volume: u32) -> (u64, u64) {
        self.current.units_of(volume)
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.cx.stats.get()
    }

    /// Client requests without a reply.
    #[must_use]
    pub fn requests_open(&self) -> u64 {
        self.cx.open()
    }

    /// Whether no request, device operation or claim is open.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.cx.open() == 0 && self.cx.exec.ios_open() == 0 && self.cx.claims.count() == 0
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        // Breaks a cycle: tasks hold the context, and the context holds the tasks.
        self.cx.exec.stop();
    }
}
