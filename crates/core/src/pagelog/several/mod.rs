// SPDX-License-Identifier: MIT OR Apache-2.0
//! One log that several parties share: each may die at any access to its memory, or pause at any of its operations while
//! another continues.
//!
//! All parties run on one thread, so that a number identifies a schedule. The victim unwinds at its `n`th step; a step is an
//! access to the memory or one half of an operation. The next party finds its lock as that of a dead holder. A pause is a
//! hook that one operation of a party runs.

mod deaths;
mod races;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::ops::{Deref, Range};
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use super::device::Device;
use super::*;
use crate::buf::{Buf, PAGE};
use crate::request::Errno;

/// An operation of a party that may run a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Lock,
    ReadFlash,
    FlushOrigin,
    Hold,
}

/// Runs at the first such operation of a party after `skip` of them.
struct Hook {
    name: u64,
    op: Op,
    skip: u64,
    run: Box<dyn FnOnce()>,
}

/// The state that the parties share.
#[derive(Default)]
struct World {
    flash: RefCell<Device>,
    origin: RefCell<Device>,
    buffers: RefCell<BTreeMap<(usize, usize), Vec<u8>>>,
    changes: Cell<u64>,
    held: Cell<bool>,
    died: Cell<bool>,
    gone: RefCell<HashSet<u64>>,
    /// The party that dies, and its remaining steps.
    victim: Cell<(u64, u64)>,
    dying: Cell<bool>,
    hook: RefCell<Option<Hook>>,
}

/// The panic payload of a party that dies.
struct Died;

impl World {
    fn step(&self, name: u64) {
        let (victim, steps) = self.victim.get();
        if victim != name || self.dying.get() {
            return;
        }
        if steps == 0 {
            self.dying.set(true);
            resume_unwind(Box::new(Died));
        }
        self.victim.set((victim, steps - 1));
    }

    fn run_hook(&self, name: u64, op: Op) {
        let hook = self.hook.take();
        match hook {
            Some(hook) if hook.name == name && hook.op == op && hook.skip == 0 => (hook.run)(),
            Some(mut hook) => {
                hook.skip -= u64::from(hook.name == name && hook.op == op);
                self.hook.replace(Some(hook));
            }
            None => {}
        }
    }

    /// Runs a hook at an operation of party 1.
    fn at(&self, op: Op, skip: u64, run: impl FnOnce() + 'static) {
        self.hook.replace(Some(Hook { name: 1, op, skip, run: Box::new(run) }));
    }

    /// Runs a party until it dies or finishes; returns whether it died.
    fn until_death(&self, name: u64, steps: u64, act: impl FnOnce()) -> bool {
        self.victim.set((name, steps));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        self.victim.set((0, 0));
        self.dying.set(false);
        match result {
            Ok(()) => false,
            Err(why) if why.is::<Died>() => {
                self.gone.borrow_mut().insert(name);
                true
            }
            Err(why) => resume_unwind(why),
        }
    }
}

struct Party {
    world: Rc<World>,
    name: u64,
}

struct Guard<'a>(&'a World);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.held.set(false);
        self.0.died.set(self.0.died.get() || self.0.dying.get());
    }
}

/// Memory whose every access is a step.
struct Watched {
    words: Rc<[AtomicU64]>,
    world: Rc<World>,
    name: u64,
}

impl Deref for Watched {
    type Target = [AtomicU64];
    fn deref(&self) -> &[AtomicU64] {
        self.world.step(self.name);
        &self.words
    }
}

impl Party {
    fn device(&self, device: &RefCell<Device>, offset: u64, bytes: &[u8]) {
        self.world.step(self.name);
        device.borrow_mut().write(offset, bytes);
        self.world.step(self.name);
    }
}

impl Host for Party {
    type Guard<'a> = Guard<'a>;
    type Hold = ();
    fn lock(&self) -> (Guard<'_>, bool) {
        self.world.run_hook(self.name, Op::Lock);
        assert!(!self.world.held.replace(true), "the lock is taken twice");
        (Guard(&self.world), self.world.died.replace(false))
    }
    fn stage(&self, buffer: usize, place: usize, bytes: &[u8]) {
        self.world.step(self.name);
        self.world.buffers.borrow_mut().insert((buffer, place), bytes.to_vec());
    }
    fn staged(&self, buffer: usize, place: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.world.buffers.borrow()[&(buffer, place)]);
    }
    async fn read_flash(&self, offset: u64, mut buf: Buf) -> Result<Buf, Errno> {
        self.world.run_hook(self.name, Op::ReadFlash);
        self.world.flash.borrow().read(offset, &mut buf);
        Ok(buf)
    }
    async fn write_batch(
        &self,
        offset: u64,
        header: Buf,
        buffer: usize,
        pages: usize,
    ) -> Result<(), Errno> {
        let mut bytes = [&header[..], &header[..]].concat();
        for place in 0..pages {
            bytes.extend_from_slice(&self.world.buffers.borrow()[&(buffer, place)]);
        }
        self.world.step(self.name);
        // A party that dies within a write has written a part of it.
        self.world.flash.borrow_mut().write(offset, &bytes[..3 * PAGE]);
        self.device(&self.world.flash, offset, &bytes);
        Ok(())
    }
    async fn write_flash(&self, offset: u64, buf: Buf) -> Result<(), Errno> {
        self.device(&self.world.flash, offset, &buf);
        Ok(())
    }
    async fn flush_flash(&self) -> Result<(), Errno> {
        self.world.step(self.name);
        self.world.flash.borrow_mut().unflushed.clear();
        self.world.step(self.name);
        Ok(())
    }
    async fn hold(&self, _: u64) {
        self.world.run_hook(self.name, Op::Hold);
    }
    async fn write_origin(&self, page: u64, buf: Buf) -> Result<(), Errno> {
        self.device(&self.world.origin, page * PAGE as u64, &buf);
        Ok(())
    }
    async fn zero_origin(&self, pages: Range<u64>) -> Result<(), Errno> {
        pages.for_each(|page| {
            self.device(&self.world.origin, page * PAGE as u64, &[0; PAGE]);
        });
        Ok(())
    }
    async fn flush_origin(&self) -> Result<(), Errno> {
        self.world.run_hook(self.name, Op::FlushOrigin);
        self.world.step(self.name);
        self.world.origin.borrow_mut().unflushed.clear();
        self.world.step(self.name);
        Ok(())
    }
    fn evicted(&self, _: u64) {}
    fn has_tasks(&self) -> bool {
        false
    }
    async fn changed(&self, seen: u64) {
        assert_ne!(seen, self.changes(), "a single party waits for a change");
    }
    fn changes(&self) -> u64 {
        self.world.changes.get()
    }
    fn notify(&self) {
        self.world.changes.set(self.world.changes.get() + 1);
    }
    fn me(&self) -> u64 {
        self.name
    }
    fn is_gone(&self, name: u64) -> bool {
        self.world.gone.borrow().contains(&name)
    }
}

type Log = PageLog<Party, Watched>;

/// A log and its parties.
struct Rig {
    world: Rc<World>,
    memory: Rc<[AtomicU64]>,
    log: Geometry,
    settings: LogSettings,
}

impl Rig {
    fn new(policy: LogPolicy, second_chance: bool) -> Self {
        let log = Geometry::fit(0, 100 * PAGE as u64, 2, 7).expect("fits");
        let world = Rc::new(World::default());
        for (offset, bytes) in log.blank() {
            world.flash.borrow_mut().write(offset, &bytes);
        }
        world.flash.borrow_mut().unflushed.clear();
        let settings = LogSettings { policy, second_chance };
        Self { world, memory: Rc::new([]), log, settings }
    }

    fn party(&self, name: u64) -> (Party, Watched) {
        let (words, world) = (Rc::clone(&self.memory), Rc::clone(&self.world));
        (Party { world: Rc::clone(&self.world), name }, Watched { words, world, name })
    }

    /// Starts the log in new memory.
    fn open(&mut self, name: u64) -> Log {
        self.memory = (0..words_needed(self.log.blocks)).map(|_| AtomicU64::new(0)).collect();
        let (party, memory) = self.party(name);
        let opened = now(PageLog::open(party, memory, self.log, self.settings));
        opened.expect("opens").0
    }

    /// Another party of the log.
    fn join(&self, name: u64) -> Log {
        let (party, memory) = self.party(name);
        PageLog::join(party, memory, self.log, self.settings)
    }

    /// A power cut, and a start of the log.
    fn cut(&mut self, name: u64) -> Log {
        self.world.flash.borrow_mut().cut(|| false);
        self.world.origin.borrow_mut().cut(|| false);
        self.open(name)
    }
}

/// The page's version, from the log or from the origin.
fn version(log: &Log, page: u64) -> u64 {
    let mut bytes = [0; PAGE];
    match now(log.get(page)).expect("readable") {
        Got::Hit(buf, _) => bytes.copy_from_slice(&buf),
        Got::Miss => log.host().world.origin.borrow().read(page * PAGE as u64, &mut bytes),
    }
    let word = |i: usize| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("8 bytes"));
    let (found, version) = (word(0), word(1));
    assert!(version == 0 || found == page, "page {page} has bytes of page {found}");
    version
}

fn bytes_of(page: u64, version: u64) -> [u8; PAGE] {
    let mut bytes = [0; PAGE];
    bytes[..8].copy_from_slice(&page.to_le_bytes());
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    bytes
}

fn put(log: &Log, page: u64, version: u64) {
    now(log.put(page, &bytes_of(page, version), true)).expect("is put");
}
