// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log on devices that lose unflushed writes in a power cut, checked by a model of the values that may be read.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::ready;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use super::device::Device;
use super::format::BatchHeader;
use super::words::{REFERENCED, Words};
use super::*;
use crate::buf::{Buf, PAGE};
use crate::config::Limits;
use crate::request::Errno;

const PAGES: u64 = 1_000;

#[derive(Default)]
pub(super) struct Devices {
    pub(super) flash: Device,
    pub(super) origin: Device,
}

pub(super) struct Bench {
    pub(super) devices: Rc<RefCell<Devices>>,
    buffers: RefCell<HashMap<(usize, usize), Vec<u8>>>,
    changes: Cell<u64>,
    order: Option<Order>,
}

impl Host for Bench {
    type Guard<'a> = ();
    type Hold = ();
    fn lock(&self) -> ((), bool) {
        ((), false)
    }
    fn order(&self) -> Option<&Order> {
        self.order.as_ref()
    }
    fn stage(&self, buffer: usize, place: usize, bytes: &[u8]) {
        self.buffers.borrow_mut().insert((buffer, place), bytes.to_vec());
    }
    fn staged(&self, buffer: usize, place: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.buffers.borrow()[&(buffer, place)]);
    }
    async fn read_flash(&self, offset: u64, mut buf: Buf) -> Result<Buf, Errno> {
        self.devices.borrow().flash.read(offset, &mut buf);
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
        let buffers = self.buffers.borrow();
        (0..pages).for_each(|place| bytes.extend_from_slice(&buffers[&(buffer, place)]));
        self.devices.borrow_mut().flash.write(offset, &bytes);
        Ok(())
    }
    async fn write_flash(&self, offset: u64, buf: Buf) -> Result<(), Errno> {
        self.devices.borrow_mut().flash.write(offset, &buf);
        Ok(())
    }
    async fn flush_flash(&self) -> Result<(), Errno> {
        self.devices.borrow_mut().flash.unflushed.clear();
        Ok(())
    }
    async fn hold(&self, _: u64) {}
    async fn write_origin(&self, page: u64, buf: Buf) -> Result<(), Errno> {
        self.devices.borrow_mut().origin.write(page * PAGE as u64, &buf);
        Ok(())
    }
    async fn zero_origin(&self, pages: Range<u64>) -> Result<(), Errno> {
        let zero = [0; PAGE];
        let mut devices = self.devices.borrow_mut();
        pages.for_each(|page| devices.origin.write(page * PAGE as u64, &zero));
        Ok(())
    }
    async fn flush_origin(&self) -> Result<(), Errno> {
        self.devices.borrow_mut().origin.unflushed.clear();
        Ok(())
    }
    fn evicted(&self, _: u64) {}
    fn has_tasks(&self) -> bool {
        false
    }
    async fn changed(&self, seen: u64) {
        assert_ne!(seen, self.changes.get(), "a single task waits for a change");
    }
    fn changes(&self) -> u64 {
        self.changes.get()
    }
    fn notify(&self) {
        self.changes.set(self.changes.get() + 1);
    }
    fn me(&self) -> u64 {
        1
    }
    fn is_gone(&self, _: u64) -> bool {
        false
    }
}

pub(super) type Log = PageLog<Bench, Vec<AtomicU64>>;

pub(super) struct Rig {
    pub(super) devices: Rc<RefCell<Devices>>,
    pub(super) log: Geometry,
    pub(super) settings: LogSettings,
    random: u64,
}

impl Rig {
    pub(super) fn new(policy: LogPolicy, second_chance: bool, seed: u64) -> Self {
        let log = Geometry::fit(1 << 20, 2 << 20, 16, 7).expect("fits");
        let rig = Self {
            devices: Rc::default(),
            log,
            settings: LogSettings { policy, second_chance },
            random: seed * 2 + 1,
        };
        for (offset, bytes) in log.blank() {
            rig.devices.borrow_mut().flash.write(offset, &bytes);
        }
        rig.devices.borrow_mut().flash.unflushed.clear();
        rig
    }

    fn try_open(&self) -> Result<(Log, Found), OpenError> {
        self.open_at(&Seat::alone())
    }

    /// Opens the log at a place among those of a volume.
    pub(super) fn open_at(&self, seat: &Seat) -> Result<(Log, Found), OpenError> {
        let memory = || (0..words_needed(self.log.blocks)).map(|_| AtomicU64::new(0)).collect();
        let limits = Limits { ordered_lag: 1, ..Limits::default() };
        let limits = Rc::new(Cell::new(limits));
        let host = Bench {
            devices: Rc::clone(&self.devices),
            buffers: RefCell::default(),
            changes: Cell::default(),
            order: self.settings.policy.is_ordered().then(|| Order::new(seat.clone(), &limits)),
        };
        now(PageLog::open(host, memory(), self.log, self.settings))
    }

    pub(super) fn open(&self) -> (Log, Found) {
        self.try_open().expect("opens")
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % limit
    }

    fn cut(&mut self) {
        let devices = Rc::clone(&self.devices);
        let (mut a, mut b) = (self.below(1 << 30), self.below(1 << 30));
        let toss = |state: &mut u64| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *state >> 60 < 8
        };
        devices.borrow_mut().flash.cut(|| toss(&mut a));
        devices.borrow_mut().origin.cut(|| toss(&mut b));
    }

    /// The page's value, from the log or from the origin.
    fn value(&self, log: &Log, page: u64) -> u64 {
        let mut bytes = [0; PAGE];
        match now(log.get(page)).expect("readable") {
            Got::Hit(buf, _) => bytes.copy_from_slice(&buf),
            Got::Miss => self.devices.borrow().origin.read(page * PAGE as u64, &mut bytes),
        }
        u64::from_le_bytes(bytes[..8].try_into().unwrap())
    }
}

pub(super) fn bytes_of(value: u64) -> [u8; PAGE] {
    let mut bytes = [0; PAGE];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    bytes
}

/// Writes, reads, flushes, burials and power cuts; checks every value that is read.
fn life(policy: LogPolicy, second_chance: bool, seed: u64) {
    let mut rig = Rig::new(policy, second_chance, seed);
    let (mut log, _) = rig.open();
    // Values that a page may have, the newest last.
    let mut model: HashMap<u64, Vec<u64>> = HashMap::new();
    for step in 1..6_000_u64 {
        let page = match rig.below(4) {
            0 => rig.below(PAGES),
            _ => rig.below(PAGES / 20),
        };
        match rig.below(200) {
            0 => {
                drop(log);
                rig.cut();
                log = rig.open().0;
                for (page, values) in &mut model {
                    let value = rig.value(&log, *page);
                    assert!(
                        values.contains(&value),
                        "seed {seed} step {step}: page {page} is {value}, not one of {values:?}"
                    );
                    *values = vec![value];
                }
            }
            1..4 => {
                now(log.barrier(ready(Ok(())), ready(Ok(())))).expect("flushes");
                model.values_mut().for_each(|v| drop(v.drain(..v.len() - 1)));
            }
            4..6 => {
                let pages = page..(page + rig.below(8)).min(PAGES);
                let recorded = now(log.bury(pages.clone())).expect("is buried");
                now(log.host().zero_origin(pages.clone())).unwrap();
                if !recorded {
                    now(log.host().flush_origin()).unwrap();
                }
                pages.for_each(|page| model.entry(page).or_insert(vec![0]).push(0));
            }
            6 => {
                assert!(now(log.release()).expect("is sealed"));
                let found;
                (log, found) = rig.open();
                assert!(found.warm && found.redo.iter().all(|r| r.start < PAGES));
            }
            7..80 => {
                now(log.put(page, &bytes_of(step), true)).expect("is put");
                model.entry(page).or_insert(vec![0]).push(step);
            }
            _ => {
                let value = rig.value(&log, page);
                let newest = model.get(&page).and_then(|v| v.last()).copied().unwrap_or(0);
                assert_eq!(
                    value,
                    newest,
                    "seed {seed} step {step}: page {page} {:?}",
                    log.has(page)
                );
            }
        }
    }
    assert!(log.status().head > 2 * u64::from(rig.log.blocks), "several laps");
}

#[test]
fn full_and_bounded_keep_flushed_values() {
    for seed in 0..12 {
        life(LogPolicy::Full, true, seed);
        life(LogPolicy::Full, false, seed + 10000);
        life(LogPolicy::Bounded, true, seed + 20000);
    }
}

#[test]
fn through_is_cold_after_a_crash_and_warm_after_a_stop() {
    let rig = Rig::new(LogPolicy::Through, true, 1);
    let (log, _) = rig.open();
    now(log.put(3, &bytes_of(9), false)).unwrap();
    now(log.flush()).unwrap();
    let (log, found) = rig.open();
    assert!(!found.warm && !log.has(3));
    now(log.put(3, &bytes_of(10), false)).unwrap();
    assert!(now(log.release()).unwrap());
    let (log, found) = rig.open();
    assert!(found.warm && matches!(now(log.get(3)), Ok(Got::Hit(_, false))));
    assert_eq!(log.status().dirty, 0);
}

#[test]
fn full_batches_are_one_sequential_write_each() {
    let rig = Rig::new(LogPolicy::Full, true, 1);
    let (log, _) = rig.open();
    rig.devices.borrow_mut().flash.writes.clear();
    for page in 0..160 {
        now(log.put(page, &bytes_of(page), true)).unwrap();
    }
    let writes = rig.devices.borrow().flash.writes.clone();
    assert_eq!(writes.iter().filter(|len| **len == 18 * PAGE as u64).count(), 10);
}

#[test]
fn a_second_chance_keeps_referenced_pages() {
    for chance in [true, false] {
        let rig = Rig::new(LogPolicy::Full, chance, 1);
        let (log, _) = rig.open();
        for page in 0..3 * u64::from(rig.log.blocks) {
            now(log.put(page, &bytes_of(page), true)).unwrap();
            assert_eq!(rig.value(&log, 5.min(page)), 5.min(page));
        }
        assert_eq!(log.has(5), chance, "referenced in every lap");
        assert!(!log.has(100));
        assert_eq!(log.status().appended_again > 0, chance);
    }
}

#[test]
fn a_glance_finds_what_the_log_has_and_counts_as_an_access_if_it_is_one() {
    for access in [true, false] {
        let rig = Rig::new(LogPolicy::Full, true, 1);
        let (log, _) = rig.open();
        for page in 0..3 * u64::from(rig.log.blocks) {
            now(log.put(page, &bytes_of(page), true)).unwrap();
            // A glance for another page changes nothing for this one.
            assert!(log.glance(page, false));
            assert_eq!(log.glance(5.min(page), access), log.has(5.min(page)));
        }
        assert_eq!(log.has(5), access, "it has its second chance in every lap");
        assert!(!log.glance(100, true) && !log.glance(1 << 40, true));
        now(log.drop_pages(5..6)).unwrap();
        assert!(!log.glance(5, true));
    }
}

#[test]
fn a_glance_at_chains_that_lead_anywhere_ends() {
    let memory: Vec<AtomicU64> = (0..words_needed(8)).map(|_| AtomicU64::new(0)).collect();
    let words = Words::new(memory, 8);
    let any = |slot: u32| (1..8).map(move |next| (slot, next));
    for (slot, next) in (0..8).flat_map(any) {
        (0..8).for_each(|chain| words.set_chain(chain, slot + 1));
        words.set_next(slot, next + 1);
        words.set_next(next, slot + 1);
        assert!(!words.glance(77, REFERENCED));
        words.set_next(next, u32::MAX);
        assert!(!words.glance(77, REFERENCED), "no such slot");
    }
}

#[test]
fn damage_of_durable_batches_is_refused_and_one_copy_is_enough() {
    let rig = Rig::new(LogPolicy::Full, true, 1);
    let (log, _) = rig.open();
    for page in 0..100 {
        now(log.put(page, &bytes_of(page), true)).unwrap();
        now(log.flush()).unwrap();
    }
    drop(log);
    let block = |position: u64| rig.log.block(position) / PAGE as u64;
    let flip = |at: u64| rig.devices.borrow_mut().flash.blocks.get_mut(&at).unwrap()[9] ^= 1;
    // A batch is two copies of its header and a page; this one is beyond the last segment.
    flip(block(270));
    flip(block(271));
    assert!(matches!(rig.try_open(), Err(OpenError::Missing { end: 270, .. })));
    flip(block(271));
    let (log, found) = rig.open();
    assert_eq!((found.head, rig.value(&log, 90)), (300, 90));
    drop(log);
    flip(rig.log.header(0) / PAGE as u64);
    assert!(rig.try_open().is_ok());
    flip(rig.log.header(0) / PAGE as u64);
    flip(rig.log.header(1) / PAGE as u64);
    assert_eq!(rig.try_open().map(drop), Err(OpenError::NoHeader));
}

/// A batch header whose first copy is of an earlier generation, as a crash leaves it that ended the log there.
fn value_behind_an_older_first_copy() -> u64 {
    let rig = Rig::new(LogPolicy::Full, true, 1);
    drop(rig.open());
    let (log, _) = rig.open();
    for page in 0..100 {
        now(log.put(page, &bytes_of(page + 1), true)).unwrap();
        now(log.flush()).unwrap();
    }
    drop(log);
    // This batch is beyond the last segment.
    let at = rig.log.block(270) / PAGE as u64;
    let older = {
        let devices = rig.devices.borrow();
        let mut header = BatchHeader::decode(&devices.flash.blocks[&at], &rig.log).expect("whole");
        header.generation -= 1;
        header.entries.iter_mut().for_each(|entry| entry.0 += 500);
        header.encode(&rig.log)
    };
    rig.devices.borrow_mut().flash.blocks.get_mut(&at).unwrap().copy_from_slice(&older);
    // The second start makes this generation one of the past.
    drop(rig.open());
    rig.value(&rig.open().0, 90)
}

#[test]
fn the_newer_copy_of_a_batch_header_is_used() {
    assert_eq!(value_behind_an_older_first_copy(), 91);
    #[cfg(feature = "mutants")]
    {
        crate::mutant::activate(Some("page-log-older-batch-header"));
        let value = value_behind_an_older_first_copy();
        crate::mutant::activate(None);
        assert_ne!(value, 91, "the mutant is not caught");
    }
}

#[test]
fn a_damaged_page_is_an_error_until_it_is_written() {
    let rig = Rig::new(LogPolicy::Full, true, 1);
    let (log, _) = rig.open();
    now(log.put(5, &bytes_of(5), true)).unwrap();
    now(log.flush()).unwrap();
    let at = rig.log.block(2) / PAGE as u64;
    rig.devices.borrow_mut().flash.blocks.get_mut(&at).unwrap()[100] ^= 4;
    assert_eq!(now(log.get(5)).err(), Some(Errno::EIO));
    for page in 0..3 * u64::from(rig.log.blocks) {
        now(log.put(1_000 + page % 900, &bytes_of(page), true)).unwrap();
    }
    assert_eq!(now(log.get(5)).err(), Some(Errno::EIO), "not the origin's older bytes");
    now(log.put(5, &bytes_of(6), true)).unwrap();
    assert_eq!(rig.value(&log, 5), 6);
}

/// Pages that stay because they are damaged fill the reserve of several groups in a row: the log takes the room of the groups
/// before, and does not fail.
#[test]
fn damaged_pages_do_not_fail_the_log() {
    let rig = Rig::new(LogPolicy::Full, true, 1);
    let (log, _) = rig.open();
    let blocks = u64::from(rig.log.blocks);
    for page in 0..blocks / 2 {
        now(log.put(page, &bytes_of(page), true)).unwrap();
    }
    now(log.flush()).unwrap();
    let pages: Vec<u64> = (0..blocks / 2).filter(|page| page % 4 != 0).collect();
    {
        let mut devices = rig.devices.borrow_mut();
        for block in devices.flash.blocks.values_mut() {
            let value = u64::from_le_bytes(block[..8].try_into().unwrap());
            let is_page = block[8..].iter().all(|byte| *byte == 0) && value > 0;
            if is_page && pages.contains(&value) {
                block[100] ^= 4;
            }
        }
    }
    for page in 0..3 * blocks {
        now(log.put(100_000 + page % 900, &bytes_of(page), true)).unwrap();
    }
    assert_eq!(log.failed(), None);
    let lost = pages.iter().filter(|page| now(log.get(**page)).err() == Some(Errno::EIO)).count();
    assert_eq!(lost, pages.len());
}

#[test]
fn a_repair_of_a_sound_log_changes_nothing() {
    let rig = Rig::new(LogPolicy::Full, true, 1);
    let (log, _) = rig.open();
    for page in 0..700 {
        now(log.put(page % 90, &bytes_of(page), true)).unwrap();
    }
    let before = log.status();
    log.repair();
    assert_eq!(log.status(), before);
    (0..90).for_each(|page| assert!(log.has(page)));
}
