// SPDX-License-Identifier: MIT OR Apache-2.0
//! A shard: the units that it owns, and the engine that serves them.
//!
//! The face of the engine. A volume is one or more shards; unit `u` belongs to shard `u mod shards`, whose state no
//! other thread touches, so the paths need no lock. A driver gives requests in ([`Shard::submit`]), moves time and tasks
//! on ([`Shard::run`]), carries out operations ([`Shard::next_io`], [`Shard::complete`]) and takes replies and events
//! out. What a request does depends on the kind of cache: see `cache/mod.rs`.

use std::rc::Rc;

use crate::buf::Buf;
pub use crate::cache::CacheStatus;
use crate::cache::Current;
use crate::config::{CacheSpec, Limits};
use crate::context::Context;
use crate::event::Event;
use crate::exec::{DevId, Io, IoId, IoKind, Nanos};
use crate::format::FlashPlan;
use crate::journal::recover::Recovered;
use crate::pagelog::Geometry;
use crate::population::demand::Population;
use crate::population::{exchange, workers};
use crate::request::{Errno, Kind, Reply, Request};
use crate::runs::{Tag, parts};
use crate::shape::Shape;
use crate::stats::Counters;

/// One shard of a volume, see the module.
pub struct Shard {
    cx: Rc<Context>,
    current: Rc<Current>,
}

impl Shard {
    /// A shard in pass-through over the origin device.
    #[must_use]
    pub fn new(shape: Shape, spec: &CacheSpec, limits: Limits, origin: DevId) -> Self {
        assert!(shape.units() <= Shape::MOST_UNITS, "checked by whoever configures the volume");
        let cx = Context::new(shape, limits, &spec.admission, origin);
        let current = Current::new(&cx, spec);
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

    /// Takes a request that lies in one of this shard's stripes and within the volume (flushes
    /// have no place). Its reply carries `tag`.
    pub fn submit(&self, tag: u64, request: Request) {
        self.cx.opened();
        let unit_bytes = self.cx.shape.unit_bytes;
        if request.offset % unit_bytes + request.len <= unit_bytes {
            return self.start(Tag::Whole(tag), request);
        }
        let reads = (request.kind == Kind::Read).then_some(request.len as usize);
        let first = request.offset;
        let parts = parts(request, unit_bytes);
        let run = self.cx.runs.open(tag, parts.len() as u32, reads);
        for part in parts {
            let at = (part.offset - first) as u32;
            self.start(Tag::Part { run, at }, part);
        }
    }

    fn start(&self, tag: Tag, request: Request) {
        let (exec, current) = (&self.cx.exec, Rc::clone(&self.current));
        match request.kind {
            Kind::Read => exec.spawn(current.read(tag, request)),
            Kind::Write { fua } => exec.spawn(current.write(tag, request, fua)),
            Kind::Flush => exec.spawn(current.flush(tag)),
            Kind::Trim { fua } => exec.spawn(current.discard(tag, request, IoKind::Trim { fua })),
            Kind::Zero { fua, may_unmap } => {
                exec.spawn(current.discard(tag, request, IoKind::Zero { fua, may_unmap }));
            }
        }
    }

    /// Moves the clock to `now` and runs what can run.
    pub fn run(&self, now: Nanos) {
        self.cx.exec.run(now);
    }

    /// The next device operation to carry out.
    #[must_use]
    pub fn next_io(&self) -> Option<Io> {
        self.cx.exec.next_io()
    }

    /// Reports the end of an operation; its buffer comes back.
    pub fn complete(&self, id: IoId, result: Result<(), Errno>, buf: Option<Buf>) {
        self.cx.exec.complete(id, result, buf);
    }

    /// The next answer to a client.
    #[must_use]
    pub fn next_reply(&self) -> Option<Reply> {
        self.cx.next_reply()
    }

    /// How a flush of the origin failed, if one ever did.
    #[must_use]
    pub fn flush_failed(&self) -> Option<Errno> {
        self.cx.origin.flush_failed()
    }

    /// The next event.
    #[must_use]
    pub fn next_event(&self) -> Option<Event> {
        self.cx.events.next()
    }

    /// When [`run`](Self::run) must be called at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.cx.exec.next_deadline()
    }

    /// Starts to cache units on a flash device; what was attached before is detached. With what was recovered from the
    /// device's metadata the cache is warm at once; whether that was usable is the answer, and if not the cache starts
    /// cold. A write-back cache whose metadata contradicts itself is not attached at all.
    ///
    /// The caller flushed the device after it read the metadata.
    pub fn attach(&self, flash: FlashPlan, recovered: Option<&Recovered>) -> bool {
        self.current.attach_units(flash, recovered)
    }

    /// Starts to cache in a page log on a flash device: its place is this shard's own. An event reports whether it could
    /// be opened; requests wait until then.
    pub fn attach_log(&self, dev: DevId, place: Geometry) {
        self.current.attach_log(dev, place);
    }

    /// It is durable off the flash that the flash is out of use: writes go on.
    pub fn fenced(&self) {
        self.cx.fence.lower(&self.cx.exec);
    }

    /// Asks that all of the cache's state be made durable soon, and that nothing be exchanged any
    /// more: the volume stops.
    pub fn settle_journal(&self) {
        self.current.settle();
    }

    /// Whether all of the cache's state is durable, or there is none to be kept. From then on only clients' requests
    /// change the origin: a volume that stops notes the origin's modification time.
    #[must_use]
    pub fn journal_settled(&self) -> bool {
        self.current.is_settled()
    }

    /// Flushes the origin, for another shard that asked with [`Event::NeedsOriginFlush`]; replies with `tag`.
    pub fn flush_origin(&self, tag: u64) {
        let cx = Rc::clone(&self.cx);
        cx.opened();
        self.cx.exec.spawn(async move {
            let result = cx.origin.flush().await;
            cx.reply(Tag::Whole(tag), result, None, false);
        });
    }

    /// The origin was flushed, as asked for by [`Event::NeedsOriginFlush`].
    pub fn origin_flushed(&self, result: Result<(), Errno>) {
        self.cx.origin.relayed(result);
    }

    /// Goes on in pass-through. The device is released with an event, once everything under way
    /// on it has ended.
    pub fn detach(&self) {
        self.current.detach();
    }

    /// Copies dirty data to the origin, in the background; with `leave` nothing stays cached. With one clear under way,
    /// another follows it: it may have passed what was written since.
    pub fn clear(&self, leave: bool) {
        if self.current.asks_clear(leave) {
            self.cx.exec.spawn(Rc::clone(&self.current).clear());
        }
    }

    /// The flash is not detached after a [`clear`](Self::clear) with `leave`: changes of a page log, which wait for the
    /// detach, go on.
    pub fn stay(&self) {
        self.current.stay();
    }

    /// How [`clear`](Self::clear) ended, if it is not under way.
    #[must_use]
    pub fn cleared(&self) -> Option<Result<(), Errno>> {
        let parting = &self.current.parting;
        (!parting.clearing.get()).then(|| parting.result.get())
    }

    /// Whether it caches on this device, or is about to.
    #[must_use]
    pub fn uses(&self, dev: DevId) -> bool {
        self.current.device().is_some_and(|device| device.dev == dev)
    }

    /// The cache's state, if a flash device is attached.
    #[must_use]
    pub fn cache_status(&self) -> Option<CacheStatus> {
        self.current.status()
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.cx.stats.get()
    }

    /// Client requests not answered yet.
    #[must_use]
    pub fn requests_open(&self) -> u64 {
        self.cx.open()
    }

    /// Whether nothing is under way: no request, no device operation, no claim.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.cx.open() == 0 && self.cx.exec.ios_open() == 0 && self.cx.claims.count() == 0
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        // Tasks hold the context, and the context holds the tasks.
        self.cx.exec.stop();
    }
}
