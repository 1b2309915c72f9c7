// SPDX-License-Identifier: MIT OR Apache-2.0
//! A log whose flash another process serves, and which hangs, crawls, loses a flush, or is no longer served.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::cell::Cell;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

#[cfg(feature = "mutants")]
use larder_core::mutant;
use larder_core::pagelog::{Geometry, Got, LogPolicy, LogSettings};
use larder_core::request::Errno;
use larder_shared::{
    Device, Devices, Flash, Memory, OneFile, Pages, Shape, Waits, Watch, now, serve,
};

const PAGE: usize = 4096;
const TIMEOUT: Duration = Duration::from_millis(100);

/// What hangs at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Hangs {
    reads: bool,
    writes: bool,
}

/// A file that can hang, and lose a flush.
struct Gate {
    file: OwnedFd,
    hangs: Mutex<Hangs>,
    changed: Condvar,
    loses: AtomicBool,
    /// Operations that wait.
    waiting: AtomicUsize,
}

impl Gate {
    fn set(&self, hangs: Hangs) {
        *self.hangs.lock().expect("no panic") = hangs;
        self.changed.notify_all();
    }

    fn pass(&self, hangs: fn(&Hangs) -> bool) {
        self.waiting.fetch_add(1, SeqCst);
        let now = self.hangs.lock().expect("no panic");
        drop(self.changed.wait_while(now, |now| hangs(now)).expect("no panic"));
        self.waiting.fetch_sub(1, SeqCst);
    }
}

impl Device for Gate {
    fn read(&self, into: &mut [u8], offset: u64) -> Result<(), Errno> {
        self.pass(|hangs| hangs.reads);
        self.file.read(into, offset)
    }

    fn write(&self, parts: &mut [IoSlice<'_>], offset: u64) -> Result<(), Errno> {
        self.pass(|hangs| hangs.writes);
        self.file.write(parts, offset)
    }

    fn flush(&self) -> Result<(), Errno> {
        self.pass(|hangs| hangs.writes);
        if self.loses.swap(false, SeqCst) { Err(Errno::EIO) } else { self.file.flush() }
    }
}

thread_local! {
    static INTERRUPTED: Cell<bool> = const { Cell::new(false) };
}

fn served() -> Flash {
    let interrupted = || INTERRUPTED.get();
    Flash::Served(Waits { timeout: TIMEOUT, interrupted, overdue: || () }, None)
}

fn file(name: &str) -> OwnedFd {
    rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).unwrap()
}

fn devices(flash: Flash) -> Devices {
    Devices { flash, origin: Box::new(OneFile(file("origin"))) }
}

/// Runs something with a served log. `told` counts the times that flash became overdue, and answered again.
fn with_served(policy: LogPolicy, run: impl FnOnce(&Pages, &Gate, &[AtomicUsize; 2])) {
    let log = Geometry { base: 0, blocks: 0, page_bytes: PAGE as u32, batch_pages: 8, volume: 9 };
    let log = log.grown_to(2000 * PAGE as u64).unwrap();
    let (hangs, changed) = (Mutex::default(), Condvar::new());
    let (loses, waiting) = (AtomicBool::new(false), AtomicUsize::new(0));
    let gate = Arc::new(Gate { file: file("flash"), hangs, changed, loses, waiting });
    for (at, bytes) in log.blank() {
        gate.file.write(&mut [IoSlice::new(&bytes)], at).unwrap();
    }
    let settings = LogSettings { policy, second_chance: false };
    let memory = Memory::anonymous(Shape { log, settings, user_words: 0 }).unwrap();
    drop(Pages::start(&memory, devices(gate.clone().into())).unwrap());
    let told = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let (ready, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let wait = |flag: &AtomicBool| {
        while !flag.load(SeqCst) {
            sleep(Duration::from_millis(1));
        }
    };
    scope(|scope| {
        scope.spawn(|| {
            let tell = |overdue: bool| {
                told[usize::from(!overdue)].fetch_add(1, SeqCst);
            };
            let watch = Watch { timeout: TIMEOUT, tell: &tell, took: Arc::new(|_, _, _| ()) };
            let ended = serve(&memory, gate.clone(), watch, || {
                ready.store(true, SeqCst);
                wait(&done);
            });
            ended.unwrap();
        });
        wait(&ready);
        let pages = Pages::join(&memory, devices(served())).unwrap();
        let ran =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&pages, &gate, &told)));
        gate.set(Hangs::default());
        done.store(true, SeqCst);
        if let Err(panic) = ran {
            std::panic::resume_unwind(panic);
        }
    });
}

fn content(page: u64) -> [u8; PAGE] {
    [page as u8 + 1; PAGE]
}

/// Fills several batches, so that the first pages are only on flash.
fn fill(pages: &Pages, dirty: bool) {
    for page in 0..100 {
        while matches!(
            now(pages.log().put_new(page, &content(page), dirty)),
            Ok(larder_core::pagelog::New::NoRoom)
        ) {
            sleep(Duration::from_millis(1));
        }
    }
}

fn until(what: impl Fn() -> bool) {
    let begin = Instant::now();
    while !what() {
        assert!(begin.elapsed() < Duration::from_secs(20), "it does not come");
        sleep(Duration::from_millis(2));
    }
}

/// A loaded machine may be slower than flash may be.
fn has(pages: &Pages, page: u64) -> bool {
    until(|| !matches!(now(pages.log().get(page)), Err(Errno::ETIMEDOUT)));
    is_hit(now(pages.log().get(page)), page)
}

fn is_hit(got: Result<Got, Errno>, page: u64) -> bool {
    matches!(got, Ok(Got::Hit(bytes, _)) if bytes[..] == content(page))
}

#[test]
fn pages_are_written_and_read_alone_and_several_at_a_time() {
    // Of dirty pages, which are waited for on a loaded machine too.
    with_served(LogPolicy::Bounded, |pages, _, _| {
        fill(pages, true);
        assert!((0..100).all(|page| is_hit(now(pages.log().get(page)), page)));
        let wanted: Vec<(u64, bool)> = (0..100).chain([5000]).map(|page| (page, true)).collect();
        let mut all = now(pages.log().get_each(&wanted));
        assert!(matches!(all.pop(), Some(Ok(Got::Miss))));
        assert!(all.into_iter().zip(0..).all(|(got, page)| is_hit(got, page)));
        now(pages.log().flush()).unwrap();
    });
}

#[test]
fn a_clean_page_is_abandoned_when_flash_hangs_and_is_there_again_when_it_answers() {
    with_served(LogPolicy::Through, |pages, gate, told| {
        fill(pages, false);
        gate.set(Hangs { reads: true, writes: true });
        let begin = Instant::now();
        let given_up = |page| matches!(now(pages.log().get(page)), Err(Errno::ETIMEDOUT));
        assert!(given_up(1) && begin.elapsed() >= TIMEOUT);
        // From then on no read waits.
        let (begin, waiting) = (Instant::now(), gate.waiting.load(SeqCst));
        assert!((2..60).all(given_up) && begin.elapsed() < 20 * TIMEOUT);
        assert!(gate.waiting.load(SeqCst) <= waiting + 1, "only the watch asks");
        assert!(pages.log().host().is_overdue());
        gate.set(Hangs::default());
        until(|| !pages.log().host().is_overdue());
        assert!((0..100).all(|page| has(pages, page)));
        until(|| told[1].load(SeqCst) > 0);
    });
}

#[test]
fn a_dirty_page_is_waited_for_until_the_process_is_told_to_stop() {
    waits_for_dirty(None);
}

fn waits_for_dirty(mutant: Option<&'static str>) {
    #[cfg(feature = "mutants")]
    mutant::activate(mutant);
    let _ = mutant;
    with_served(LogPolicy::Bounded, |pages, gate, _| {
        fill(pages, true);
        gate.set(Hangs { reads: true, writes: false });
        scope(|scope| {
            scope.spawn(|| {
                sleep(4 * TIMEOUT);
                gate.set(Hangs::default());
            });
            let begin = Instant::now();
            assert!(is_hit(now(pages.log().get(3)), 3));
            assert!(begin.elapsed() >= 3 * TIMEOUT, "it was waited for");
        });
        gate.set(Hangs { reads: true, writes: false });
        INTERRUPTED.set(true);
        let got = now(pages.log().get(3));
        INTERRUPTED.set(false);
        assert!(matches!(got, Err(Errno::ECANCELED)));
        assert_eq!(pages.log().failed(), None);
        gate.set(Hangs::default());
        assert!(is_hit(now(pages.log().get(3)), 3));
    });
}

#[test]
fn batches_that_hang_make_flash_overdue_and_are_on_it_afterwards() {
    with_served(LogPolicy::Through, |pages, gate, told| {
        gate.set(Hangs { reads: false, writes: true });
        let mut entered = Vec::new();
        for page in 0..100 {
            if now(pages.log().put_new(page, &content(page), false))
                == Ok(larder_core::pagelog::New::Entered)
            {
                entered.push(page);
            }
        }
        assert!((9..100).contains(&entered.len()), "the buffers are full, and no put waited");
        until(|| pages.log().host().is_overdue());
        assert_eq!(told[0].load(SeqCst), 1);
        gate.set(Hangs::default());
        until(|| !pages.log().host().is_overdue());
        assert!(entered.into_iter().all(|page| has(pages, page)));
    });
}

#[test]
fn a_lost_flush_that_nobody_waits_for_any_more_fails_the_log() {
    with_served(LogPolicy::Full, |pages, gate, _| {
        fill(pages, true);
        gate.set(Hangs { reads: false, writes: true });
        gate.loses.store(true, SeqCst);
        INTERRUPTED.set(true);
        assert_eq!(now(pages.log().flush()), Err(Errno::ECANCELED));
        INTERRUPTED.set(false);
        scope(|scope| {
            scope.spawn(|| {
                sleep(TIMEOUT);
                gate.set(Hangs::default());
            });
            assert_eq!(now(pages.log().flush()), Err(Errno::EIO));
        });
        assert_eq!(pages.log().failed(), Some(Errno::EIO));
    });
}

#[test]
fn members_learn_that_nobody_serves_them() {
    let mut left = None;
    // Of a dirty page, which is waited for on a loaded machine too.
    with_served(LogPolicy::Bounded, |pages, _, _| {
        fill(pages, true);
        left = Some(Pages::join(pages.log().host().memory(), devices(served())).unwrap());
    });
    let got = now(left.unwrap().log().get(1));
    assert!(matches!(got, Err(Errno::EOWNERDEAD)), "{got:?}");
}

#[cfg(feature = "mutants")]
#[test]
fn the_mutant_is_detected() {
    let name = "shared-hurries-dirty";
    let detected = std::panic::catch_unwind(|| waits_for_dirty(Some(name))).is_err();
    assert!(detected, "{name}");
}
