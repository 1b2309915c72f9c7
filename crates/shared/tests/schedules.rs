// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page log under a minimal host of plain memory with shuttle's threads, locks and waits. Schedules are random, and
//! every access to the log's memory may switch threads. No schedule may lose an acknowledged version, return an older
//! one, or block all threads.
//!
//! Deaths are tested elsewhere (`pagelog/several` in the engine, `killed.rs`): a thread of shuttle cannot be killed.

use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU64 as Word, Ordering::Relaxed};

use larder_core::buf::{Buf, PAGE};
use larder_core::pagelog::{Geometry, Got, Host, LogPolicy, LogSettings, PageLog, words_needed};
use larder_core::request::Errno;
use larder_shared::now;
use shuttle::rand::Rng;
use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};

const PAGES: u64 = 12;
const THREADS: u64 = 3;
const ACTS: u64 = 14;

/// What the threads share.
struct World {
    words: Vec<Word>,
    lock: Mutex<()>,
    buffers: Mutex<Vec<u8>>,
    flash: Mutex<Vec<u8>>,
    origin: Mutex<Vec<u8>>,
    held: Mutex<Vec<bool>>,
    released: Condvar,
    changes: Mutex<u64>,
    changed: Condvar,
    /// For each page the newest version that was begun, and the newest acknowledged; locks that order the writers.
    writers: Vec<Mutex<()>>,
    begun: Vec<Word>,
    done: Vec<Word>,
}

struct Thread {
    world: Arc<World>,
    name: u64,
}

/// Memory whose accesses may switch threads.
struct Watched(Arc<World>);

impl Deref for Watched {
    type Target = [Word];
    fn deref(&self) -> &[Word] {
        // Not at every access: a schedule has a limited number of steps.
        if shuttle::rand::thread_rng().gen_ratio(1, 64) {
            shuttle::thread::yield_now();
        }
        &self.0.words
    }
}

struct Hold(Arc<World>, u64);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.held.lock().expect("no panic")[self.1 as usize] = false;
        self.0.released.notify_all();
    }
}

fn part(bytes: &mut [u8], at: u64, len: usize) -> &mut [u8] {
    &mut bytes[at as usize..at as usize + len]
}

impl Host for Thread {
    type Guard<'a> = MutexGuard<'a, ()>;
    type Hold = Hold;
    fn lock(&self) -> (MutexGuard<'_, ()>, bool) {
        (self.world.lock.lock().expect("no panic"), false)
    }
    fn stage(&self, buffer: usize, place: usize, bytes: &[u8]) {
        let mut buffers = self.world.buffers.lock().expect("no panic");
        part(&mut buffers, ((buffer * 2 + place) * PAGE) as u64, PAGE).copy_from_slice(bytes);
    }
    fn staged(&self, buffer: usize, place: usize, into: &mut [u8]) {
        let mut buffers = self.world.buffers.lock().expect("no panic");
        into.copy_from_slice(part(&mut buffers, ((buffer * 2 + place) * PAGE) as u64, PAGE));
    }
    async fn read_flash(&self, offset: u64, mut buf: Buf) -> Result<Buf, Errno> {
        let len = buf.len();
        buf.copy_from_slice(part(&mut self.world.flash.lock().expect("no panic"), offset, len));
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
        let mut page = [0; PAGE];
        for place in 0..pages {
            self.staged(buffer, place, &mut page);
            bytes.extend_from_slice(&page);
        }
        self.write_flash(offset, Buf::copy_of(&bytes)).await
    }
    async fn write_flash(&self, offset: u64, buf: Buf) -> Result<(), Errno> {
        // Block by block, so that other threads read in between.
        for (i, block) in buf.chunks(PAGE).enumerate() {
            let mut flash = self.world.flash.lock().expect("no panic");
            part(&mut flash, offset + (i * PAGE) as u64, PAGE).copy_from_slice(block);
        }
        Ok(())
    }
    async fn flush_flash(&self) -> Result<(), Errno> {
        shuttle::thread::yield_now();
        Ok(())
    }
    async fn hold(&self, page: u64) -> Hold {
        let held = self.world.held.lock().expect("no panic");
        let is_held = |held: &mut Vec<bool>| held[page as usize];
        let mut held = self.world.released.wait_while(held, is_held).expect("no panic");
        held[page as usize] = true;
        Hold(Arc::clone(&self.world), page)
    }
    async fn write_origin(&self, page: u64, buf: Buf) -> Result<(), Errno> {
        let mut origin = self.world.origin.lock().expect("no panic");
        part(&mut origin, page * PAGE as u64, PAGE).copy_from_slice(&buf);
        Ok(())
    }
    async fn zero_origin(&self, pages: Range<u64>) -> Result<(), Errno> {
        for page in pages {
            self.write_origin(page, Buf::zeroed(PAGE)).await?;
        }
        Ok(())
    }
    async fn flush_origin(&self) -> Result<(), Errno> {
        shuttle::thread::yield_now();
        Ok(())
    }
    fn evicted(&self, _: u64) {}
    fn has_tasks(&self) -> bool {
        false
    }
    async fn changed(&self, seen: u64) {
        // No timeout: a wait that nothing ends makes the schedule a deadlock.
        let changes = self.world.changes.lock().expect("no panic");
        drop(self.world.changed.wait_while(changes, |now| *now == seen).expect("no panic"));
    }
    fn changes(&self) -> u64 {
        *self.world.changes.lock().expect("no panic")
    }
    fn notify(&self) {
        *self.world.changes.lock().expect("no panic") += 1;
        self.world.changed.notify_all();
    }
    fn me(&self) -> u64 {
        self.name
    }
    fn is_gone(&self, _: u64) -> bool {
        false
    }
}

type Log = PageLog<Thread, Watched>;

fn version_of(page: u64, bytes: &[u8]) -> u64 {
    let word = |i: usize| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("8 bytes"));
    assert!(word(1) == 0 || word(0) == page, "page {page} has bytes of page {}", word(0));
    word(1)
}

/// Reads a page and checks its version.
fn look(log: &Log, page: u64) {
    let world = &log.host().world;
    let least = world.done[page as usize].load(Relaxed);
    let found = loop {
        if let Got::Hit(bytes, _) = now(log.get(page)).expect("readable") {
            break version_of(page, &bytes);
        }
        let _hold = now(log.host().hold(page));
        if !log.has(page) {
            let mut origin = world.origin.lock().expect("no panic");
            break version_of(page, part(&mut origin, page * PAGE as u64, PAGE));
        }
    };
    let most = world.begun[page as usize].load(Relaxed);
    assert!((least..=most).contains(&found), "page {page} is {found}, not of {least}..={most}");
}

fn put(log: &Log, page: u64) {
    let world = &log.host().world;
    let _order = world.writers[page as usize].lock().expect("no panic");
    let version = world.begun[page as usize].fetch_add(1, Relaxed) + 1;
    let mut bytes = [0; PAGE];
    bytes[..8].copy_from_slice(&page.to_le_bytes());
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    now(log.put(page, &bytes, true)).expect("is put");
    world.done[page as usize].store(version, Relaxed);
}

fn act(log: &Log) {
    let mut random = shuttle::rand::thread_rng();
    let page = random.gen_range(0..PAGES);
    match random.gen_range(0..20) {
        0..12 => put(log, page),
        12..18 => look(log, page),
        18 => now(log.flush()).expect("flushes"),
        _ => now(log.drain()).expect("drains"),
    }
}

fn schedule(policy: LogPolicy) {
    let shape = Geometry::fit(0, 78 * PAGE as u64, 2, 7).expect("fits");
    let settings = LogSettings { policy, second_chance: true };
    let words = |count| (0..count).map(|_| Word::new(0)).collect::<Vec<_>>();
    let mut flash = vec![0; 80 * PAGE];
    for (offset, bytes) in shape.blank() {
        part(&mut flash, offset, PAGE).copy_from_slice(&bytes);
    }
    let world = Arc::new(World {
        words: words(words_needed(shape.blocks)),
        lock: Mutex::new(()),
        buffers: Mutex::new(vec![0; 8 * PAGE]),
        flash: Mutex::new(flash),
        origin: Mutex::new(vec![0; PAGES as usize * PAGE]),
        held: Mutex::new(vec![false; PAGES as usize]),
        released: Condvar::new(),
        changes: Mutex::new(0),
        changed: Condvar::new(),
        writers: (0..PAGES).map(|_| Mutex::new(())).collect(),
        begun: words(PAGES as usize),
        done: words(PAGES as usize),
    });
    let thread = |name| Thread { world: Arc::clone(&world), name };
    let log = now(PageLog::open(thread(1), Watched(Arc::clone(&world)), shape, settings));
    let Ok((log, _)) = log else { panic!("the log does not open") };
    // Enough pages that some are evicted while the threads run.
    (0..30).for_each(|i| put(&log, i % PAGES));
    let threads: Vec<_> = (2..2 + THREADS)
        .map(|name| {
            let (thread, memory) = (thread(name), Watched(Arc::clone(&world)));
            shuttle::thread::spawn(move || {
                let log = PageLog::join(thread, memory, shape, settings);
                (0..ACTS).for_each(|_| act(&log));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    (0..PAGES).for_each(|page| look(&log, page));
    let before = log.status();
    log.repair();
    assert_eq!(log.status(), before);
    assert!(before.head > before.used, "no page was evicted");
}

/// The number of schedules, set by `LARDER_SHARED_SCHEDULES`.
fn schedules() -> usize {
    let set = std::env::var("LARDER_SHARED_SCHEDULES").ok();
    set.map_or(300, |count| count.parse().expect("LARDER_SHARED_SCHEDULES is a number"))
}

#[test]
fn no_schedule_loses_a_version_or_deadlocks() {
    for policy in [LogPolicy::Full, LogPolicy::Bounded] {
        shuttle::check_random(move || schedule(policy), schedules());
        shuttle::check_pct(move || schedule(policy), schedules(), 3);
    }
}
