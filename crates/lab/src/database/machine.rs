// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two devices in virtual time, what tasks ask of them, and the clock that jumps between events.
//!
//! Tasks see [`Io`]; [`Machine`] drives. Before anything is measured a machine can *hurry*: operations
//! complete at once, without the devices, and the clock stands still. So caches are
//! filled in the time that policies take, and not disks.
//!
//! Invariants: an operation is answered exactly once; time never goes back; while hurried nothing is
//! in a device; a device is *busy* while at least one operation is in it, as iostat counts.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use larder_core::buf::Buf;
use larder_core::exec::{DevId, Ended, Exec, IoFuture, IoKind, Nanos};
use larder_model::{Kind, Model, Op, Wear};

/// Where the database is.
pub(super) const DISK: DevId = DevId(0);
/// Where its extension is.
pub(super) const FLASH: DevId = DevId(1);
/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// The operations of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Writes that begin where the one before them ended.
    pub sequential_writes: u64,
    /// Time with at least one operation in the device.
    pub busy_ns: Nanos,
}

impl Tally {
    /// The difference to an earlier state.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            read_bytes: self.read_bytes - earlier.read_bytes,
            writes: self.writes - earlier.writes,
            written_bytes: self.written_bytes - earlier.written_bytes,
            sequential_writes: self.sequential_writes - earlier.sequential_writes,
            busy_ns: self.busy_ns - earlier.busy_ns,
        }
    }
}

/// The devices as tasks see them.
pub(super) struct Io {
    pub(super) exec: Exec,
    tallies: [Cell<Tally>; 2],
    last_end: [Cell<u64>; 2],
    /// The version of each page on disk.
    disk: RefCell<Vec<u32>>,
}

impl Io {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self {
            exec: Exec::default(),
            tallies: Default::default(),
            last_end: Default::default(),
            disk: RefCell::default(),
        })
    }

    /// Asks for an operation; it is in flight from this call on, whether or not a task waits for it.
    pub(super) fn ask(
        &self,
        dev: DevId,
        kind: IoKind,
        offset: u64,
        buf: Option<Buf>,
        len: u64,
    ) -> IoFuture<()> {
        let at = dev.0 as usize;
        let mut tally = self.tallies[at].get();
        match kind {
            IoKind::Read => {
                tally.reads += 1;
                tally.read_bytes += len;
            }
            IoKind::Write { .. } => {
                tally.writes += 1;
                tally.written_bytes += len;
                let follows = self.last_end[at].replace(offset + len) == offset;
                tally.sequential_writes += u64::from(follows);
            }
            _ => {}
        }
        self.tallies[at].set(tally);
        self.exec.io(dev, kind, offset, len, buf, 0, None, None)
    }

    pub(super) fn read(&self, dev: DevId, page: u64) -> IoFuture<()> {
        self.ask(dev, IoKind::Read, page * PAGE_BYTES, None, PAGE_BYTES)
    }

    pub(super) fn write(&self, dev: DevId, page: u64) -> IoFuture<()> {
        self.ask(dev, IoKind::Write { fua: false }, page * PAGE_BYTES, None, PAGE_BYTES)
    }

    /// Writes a version of a page to disk.
    pub(super) async fn write_disk(&self, page: u64, version: u32) {
        done(self.write(DISK, page)).await;
        self.set_disk(page, version);
    }

    /// A version of a page is on disk. No older one comes later, as its writers wait for each other, but
    /// where a page is made again after a crash.
    pub(super) fn set_disk(&self, page: u64, version: u32) {
        let (mut disk, page) = (self.disk.borrow_mut(), page as usize);
        if disk.len() <= page {
            disk.resize(page + 1, 0);
        }
        disk[page] = version;
    }

    /// The version that disk has.
    pub(super) fn on_disk(&self, page: u64) -> u32 {
        self.disk.borrow().get(page as usize).copied().unwrap_or(0)
    }

    /// The operations of a device so far.
    pub(super) fn tally(&self, dev: DevId) -> Tally {
        self.tallies[dev.0 as usize].get()
    }
}

/// Waits for an operation of these devices, which do not fail; the buffer is back.
pub(super) async fn done(asked: IoFuture<()>) -> Option<Buf> {
    match asked.await {
        Ended::Done(_, buf) => buf,
        Ended::TimedOut => None,
    }
}

struct Device {
    model: Box<dyn Model>,
    /// The buffers of operations that are in the model.
    inside: Vec<Option<Buf>>,
    since: Option<Nanos>,
}

/// The driver, see the module.
pub(super) struct Machine {
    pub(super) io: Rc<Io>,
    pub(super) now: Nanos,
    pub(super) hurried: bool,
    devices: Vec<Device>,
}

impl Machine {
    /// Over a disk and a drive of flash.
    pub(super) fn new(disk: Box<dyn Model>, flash: Box<dyn Model>) -> Self {
        let device = |model| Device { model, inside: Vec::new(), since: None };
        let devices = vec![device(disk), device(flash)];
        Self { io: Io::new(), now: 0, hurried: false, devices }
    }

    /// Runs tasks and devices until `enough` returns true or no event is left.
    pub(super) fn run(&mut self, enough: impl Fn(Nanos) -> bool) {
        loop {
            self.io.exec.run(self.now);
            while let Some(io) = self.io.exec.next_io() {
                if self.hurried {
                    self.io.exec.complete(io.id, Ok(()), io.buf);
                } else {
                    self.submit(io);
                }
            }
            if enough(self.now) {
                return;
            }
            if !self.poll() && !self.jump() {
                return;
            }
        }
    }

    /// Runs until the devices have completed all operations, without a task that waits for them.
    pub(super) fn drain(&mut self) {
        for device in &mut self.devices {
            while device.model.in_flight() > 0
                && let Some(at) = device.model.next()
            {
                self.now = self.now.max(at);
                while device.model.poll(self.now).is_some() {}
            }
            device.inside.clear();
            device.since = None;
        }
    }

    /// Counts as busy the devices with operations in flight.
    pub(super) fn mark(&mut self) {
        for (device, tally) in self.devices.iter_mut().zip(&self.io.tallies) {
            if let Some(since) = &mut device.since {
                let mut sum = tally.get();
                sum.busy_ns += self.now - std::mem::replace(since, self.now);
                tally.set(sum);
            }
        }
    }

    fn submit(&mut self, io: larder_core::exec::Io) {
        let kind = match io.kind {
            IoKind::Read => Kind::Read,
            IoKind::Write { .. } => Kind::Write,
            IoKind::Flush => Kind::Flush,
            IoKind::Trim { .. } | IoKind::Zero { .. } => Kind::Trim,
        };
        let fua = matches!(io.kind, IoKind::Write { fua: true });
        let device = &mut self.devices[io.dev.0 as usize];
        let key = io.id.0 as usize;
        if device.inside.len() <= key {
            device.inside.resize_with(key + 1, || None);
        }
        device.inside[key] = io.buf;
        device.since.get_or_insert(self.now);
        device.model.submit(self.now, key as u64, Op { kind, offset: io.offset, len: io.len, fua });
    }

    /// Reports the operations that have completed; returns whether there was one.
    fn poll(&mut self) -> bool {
        let mut some = self.io.exec.next_deadline().is_some_and(|at| at <= self.now);
        for (device, tally) in self.devices.iter_mut().zip(&self.io.tallies) {
            while let Some((key, _)) = device.model.poll(self.now) {
                some = true;
                let buf = device.inside.get_mut(key as usize).and_then(Option::take);
                self.io.exec.complete(larder_core::exec::IoId(key as u32), Ok(()), buf);
            }
            if device.model.in_flight() == 0
                && let Some(since) = device.since.take()
            {
                let mut sum = tally.get();
                sum.busy_ns += self.now - since;
                tally.set(sum);
            }
        }
        some
    }

    fn jump(&mut self) -> bool {
        let devices = self.devices.iter().filter_map(|device| device.model.next());
        let Some(at) = devices.chain(self.io.exec.next_deadline()).min() else { return false };
        self.now = self.now.max(at);
        true
    }

    /// What flash has done, of a drive with a flash translation layer.
    pub(super) fn wear(&self) -> Option<Wear> {
        self.devices[FLASH.0 as usize].model.wear()
    }
}
