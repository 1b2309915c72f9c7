// SPDX-License-Identifier: MIT OR Apache-2.0
//! A FLUSH of one member while another member changes the origin without the log (rule S5): every write that was
//! acknowledged before the FLUSH survives power loss once the FLUSH is answered.
//!
//! The members are threads; one is a process that kills itself. Their origin is memory with a volatile write cache, and a
//! test can block a write to it.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use larder_core::buf::{Buf, PAGE};
use larder_core::pagelog::{Geometry, LogPolicy, LogSettings};
use larder_core::request::Errno;
use larder_shared::{Devices, Member, Memory, Origin, Pages, Shape};

const PATH: &str = "LARDER_SHARED_MEMORY";
/// How long a write is blocked: time enough for a wrong FLUSH to be answered too early.
const MOMENT: Duration = Duration::from_millis(200);
/// Time after which an operation is assumed to hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// The page of all tests, and its versions: the origin's, a newer one, and a burial's.
const ONE: u64 = 5;
const OLD: u8 = 1;
const NEW: u8 = 2;
const ZERO: u8 = 0;

/// Blocks a write: the write reports its arrival, and continues when the test releases it.
struct Gate {
    reached: Sender<()>,
    released: Receiver<()>,
}

/// The first byte of each page.
#[derive(Default)]
struct State {
    written: BTreeMap<u64, u8>,
    durable: BTreeMap<u64, u8>,
    gate: Option<Gate>,
}

#[derive(Clone, Default)]
struct Disk(Arc<Mutex<State>>);

impl Disk {
    fn durable(&self, page: u64) -> u8 {
        self.0.lock().expect("no panic").durable.get(&page).copied().unwrap_or(0)
    }

    /// Blocks the next write. Returns a channel that reports its arrival and a channel that releases it.
    fn block_next(&self) -> (Receiver<()>, Sender<()>) {
        let ((reached, arrival), (release, released)) = (channel(), channel());
        self.0.lock().expect("no panic").gate = Some(Gate { reached, released });
        (arrival, release)
    }
}

impl Origin for Disk {
    fn read(&self, page: u64, into: &mut [u8]) -> Result<(), Errno> {
        into.fill(self.0.lock().expect("no panic").written.get(&page).copied().unwrap_or(0));
        Ok(())
    }

    fn write(&self, page: u64, pages: &[Buf], _: &Member) -> Result<(), Errno> {
        let gate = self.0.lock().expect("no panic").gate.take();
        if let Some(Gate { reached, released }) = gate {
            reached.send(()).expect("the test waits");
            released.recv_timeout(PATIENCE).expect("is released");
        }
        let mut state = self.0.lock().expect("no panic");
        state.written.extend((page..).zip(pages).map(|(page, bytes)| (page, bytes[0])));
        Ok(())
    }

    fn flush(&self, _: &Member) -> Result<(), Errno> {
        let mut state = self.0.lock().expect("no panic");
        state.durable = state.written.clone();
        Ok(())
    }
}

/// The error that the members of a test contain.
type Mutant = Option<&'static str>;

struct Rig {
    mutant: Mutant,
    disk: Disk,
    flash: tempfile::NamedTempFile,
    file: tempfile::NamedTempFile,
    memory: Arc<Memory>,
    first: Pages,
}

impl Rig {
    /// A new log, over an origin with the old version.
    fn new(policy: LogPolicy) -> Self {
        let (flash, file) = (tempfile::NamedTempFile::new(), tempfile::NamedTempFile::new());
        let (flash, file) = (flash.expect("a file"), file.expect("a file"));
        let log = Geometry::fit(0, 220 * PAGE as u64, 4, 7).expect("fits");
        for (offset, bytes) in log.blank() {
            flash.as_file().write_all_at(&bytes, offset).expect("is written");
        }
        let settings = LogSettings { policy, second_chance: false };
        let shape = Shape { log, settings, user_words: 0 };
        let memory = Memory::create(&open(file.path(), true), shape).expect("memory");
        let disk = Disk::default();
        let old = BTreeMap::from([(ONE, OLD)]);
        *disk.0.lock().expect("no panic") =
            State { written: old.clone(), durable: old, gate: None };
        let devices = devices(flash.path(), &disk, true);
        let (first, _) = Pages::start(&memory, devices).expect("opens");
        Self { mutant: None, disk, flash, file, memory, first }
    }

    /// Runs `act` as a member on another thread. Its next write to the origin is blocked until the sender releases it.
    fn blocked(
        &self,
        act: impl FnOnce(Pages) -> Result<(), Errno> + Send + 'static,
    ) -> (thread::JoinHandle<Result<(), Errno>>, Sender<()>) {
        let (arrival, go) = self.disk.block_next();
        let handle = self.member(act);
        arrival.recv_timeout(PATIENCE).expect("reaches the origin");
        (handle, go)
    }

    fn member(
        &self,
        act: impl FnOnce(Pages) -> Result<(), Errno> + Send + 'static,
    ) -> thread::JoinHandle<Result<(), Errno>> {
        let (memory, disk) = (Arc::clone(&self.memory), self.disk.clone());
        let (flash, mutant) = (self.flash.path().to_owned(), self.mutant);
        thread::spawn(move || {
            activate(mutant);
            act(Pages::join(&memory, devices(&flash, &disk, true)).expect("joins"))
        })
    }
}

/// Releases a blocked write after [`MOMENT`].
fn in_a_moment(go: Sender<()>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        thread::sleep(MOMENT);
        go.send(()).expect("waits");
    })
}

/// Activates a mutant on this thread.
fn activate(mutant: Mutant) {
    #[cfg(feature = "mutants")]
    larder_core::mutant::activate(mutant);
    #[cfg(not(feature = "mutants"))]
    assert_eq!(mutant, None);
}

fn open(path: &std::path::Path, writes: bool) -> OwnedFd {
    OpenOptions::new().read(true).write(writes).open(path).expect("opens").into()
}

fn devices(flash: &std::path::Path, disk: &Disk, writes: bool) -> Devices {
    Devices { flash: open(flash, writes).into(), origin: Box::new(disk.clone()) }
}

fn page(version: u8) -> Vec<u8> {
    vec![version; PAGE]
}

/// A flush begins and ends while a change of the origin is blocked; the next flush must make the change durable.
fn covers_late_change(policy: LogPolicy, mutant: Mutant, change: fn(&Pages), after: u8) {
    let rig = Rig { mutant, ..Rig::new(policy) };
    let (other, go) = rig.blocked(move |pages| {
        change(&pages);
        Ok(())
    });
    rig.first.flush().expect("flushes");
    go.send(()).expect("waits");
    other.join().expect("no panic").expect("is changed");
    rig.first.flush().expect("flushes");
    assert_eq!(rig.disk.durable(ONE), after, "{policy:?}");
}

fn writes(pages: &Pages) {
    pages.write(ONE, &page(NEW)).expect("is written");
}

fn buries(pages: &Pages) {
    pages.bury(ONE..ONE + 1).expect("is buried");
}

fn covers_late_changes(mutant: Mutant) {
    covers_late_change(LogPolicy::Through, mutant, writes, NEW);
    covers_late_change(LogPolicy::Through, mutant, buries, ZERO);
    covers_late_change(LogPolicy::Full, mutant, buries, ZERO);
}

#[test]
fn a_flush_covers_a_change_that_an_earlier_flush_came_too_early_for() {
    covers_late_changes(None);
}

/// A burial that runs during the FLUSH has dropped an acknowledged version.
fn waits(mutant: Mutant) {
    let rig = Rig { mutant, ..Rig::new(LogPolicy::Bounded) };
    rig.first.write(ONE, &page(NEW)).expect("is written");
    let (other, go) = rig.blocked(|pages| pages.bury(ONE..ONE + 1));
    activate(mutant);
    let released = in_a_moment(go);
    let flushed = rig.first.flush();
    let durable = rig.disk.durable(ONE);
    activate(None);
    released.join().expect("no panic");
    other.join().expect("no panic").expect("is buried");
    flushed.expect("flushes");
    assert_ne!(durable, OLD, "the version that was acknowledged before the FLUSH is lost");
}

#[test]
fn a_flush_waits_for_a_burial_of_another_member() {
    waits(None);
}

#[test]
fn a_version_put_during_a_burial_survives_it() {
    for policy in [LogPolicy::Bounded, LogPolicy::Full] {
        let rig = Rig::new(policy);
        rig.first.write(ONE, &page(OLD)).expect("is written");
        let (other, go) = rig.blocked(|pages| pages.bury(ONE..ONE + 1));
        rig.first.write(ONE, &page(NEW)).expect("is written");
        let released = in_a_moment(go);
        larder_shared::now(rig.first.log().drain()).expect("drains");
        released.join().expect("no panic");
        other.join().expect("no panic").expect("is buried");
        assert_eq!(rig.disk.durable(ONE), NEW, "{policy:?}");
        assert_eq!(rig.first.read(ONE, false).expect("is read")[0], NEW, "{policy:?}");
    }
}

/// An origin that kills the process at its first write.
struct Deadly;

impl Origin for Deadly {
    fn read(&self, _: u64, into: &mut [u8]) -> Result<(), Errno> {
        into.fill(OLD);
        Ok(())
    }

    fn write(&self, _: u64, _: &[Buf], _: &Member) -> Result<(), Errno> {
        let me = rustix::process::getpid();
        let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
        Err(Errno::EIO)
    }

    fn flush(&self, _: &Member) -> Result<(), Errno> {
        Ok(())
    }
}

#[test]
#[ignore = "runs in a process that another test starts"]
fn dies_in_a_burial() {
    let paths = std::env::var(PATH).expect("is run by another test");
    let (memory, flash) = paths.split_once(' ').expect("two paths");
    let memory = Memory::join(&open(memory.as_ref(), true)).expect("memory");
    let flash = open(flash.as_ref(), true).into();
    let pages = Pages::join(&memory, Devices { flash, origin: Box::new(Deadly) }).expect("joins");
    buries(&pages);
}

#[test]
fn a_flush_completes_a_burial_of_the_dead() {
    for policy in [LogPolicy::Bounded, LogPolicy::Full] {
        let rig = Rig::new(policy);
        rig.first.write(ONE, &page(NEW)).expect("is written");
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args(["--exact", "dies_in_a_burial", "--ignored"]);
        let paths = format!("{} {}", rig.file.path().display(), rig.flash.path().display());
        let status = command.env(PATH, paths).output().expect("runs").status;
        assert!(!status.success(), "it dies");
        rig.first.flush().expect("flushes");
        if policy == LogPolicy::Bounded {
            assert_ne!(rig.disk.durable(ONE), OLD, "{policy:?}");
        }
        assert_eq!(rig.first.read(ONE, false).expect("is read")[0], ZERO, "{policy:?}");
    }
}

/// The log drops the page, and cannot make the drop durable.
#[test]
fn a_burial_that_flash_refuses_does_not_show_an_older_version() {
    let rig = Rig::new(LogPolicy::Full);
    rig.first.write(ONE, &page(NEW)).expect("is written");
    let (memory, devices) = (Arc::clone(&rig.memory), devices(rig.flash.path(), &rig.disk, false));
    let other = Pages::join(&memory, devices).expect("joins");
    other.bury(ONE..ONE + 1).expect_err("flash is read-only for this member");
    let found = rig.first.read(ONE, false).expect("is read")[0];
    assert_ne!(found, OLD, "a version that was replaced");
}

#[cfg(feature = "mutants")]
#[test]
fn every_mutant_is_detected() {
    let tests: [(_, fn(Mutant)); 2] =
        [("shared-counted-early", covers_late_changes), ("page-log-flush-misses-trims", waits)];
    for (name, test) in tests {
        let detected = std::panic::catch_unwind(|| test(Some(name))).is_err();
        assert!(detected, "{name}");
    }
}
