// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that reads and writes flash for the members of a log.
//!
//! Purpose: a process that waits for a hanging device waits inside the kernel, where nothing can end it. So the processes of the
//! program, which must end when they are asked to, do not wait for the device; one process beside them does.
//!
//! | threads | do |
//! | --- | --- |
//! | readers | requests that read |
//! | one writer | requests that write headers and segments, and flushes, in their order |
//! | batch writers | [`PageLog::write_next`](larder_core::pagelog::PageLog::write_next): closed batches, as members of the log |
//! | a watch | whether flash is overdue |
//!
//! # Invariants
//! 1. A write that its member abandoned is carried out before every later one, so no late header replaces a newer one. A batch is
//!    written by one thread, which is a member and frees the batch's buffer when the device has answered; so a buffer is not
//!    used again while the device may still read it.
//! 2. A failed flush fails the log before its members learn of it: the kernel reports a loss once, and the member that asked
//!    may have stopped waiting. Flushes that wait at the same time are one.
//! 3. While flash is *overdue*, members do not begin what they would abandon. Flash is overdue if an operation takes longer
//!    than [`Watch::timeout`]. It answers again when nothing of that age is left, and a read of flash is fast. Each time that
//!    it becomes overdue again soon it must answer for twice as long.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::{Builder, Scope, scope, sleep};
use std::time::{Duration, Instant};

use larder_core::buf::{Buf, PAGE};
use larder_core::pagelog::{Host, PageLog, now};
use larder_core::request::Errno;
use rustix::fs::Timespec;
use rustix::thread::futex;

use crate::flash::{Device, Flash, set_overdue};
use crate::host::{Devices, Member, Origin};
use crate::memory::{Control, Memory, Words};
use crate::requests::{Kind, Request};
use crate::timed::FlashCall;

const READERS: usize = 16;
const BATCH_WRITERS: usize = 2;
/// Numbers of the threads behind them.
const WRITER: usize = READERS + BATCH_WRITERS;
const WATCH: usize = WRITER + 1;
/// The longest sleep of a thread that waits for work.
const IDLE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// How long the watch sleeps if nothing happened since it looked last, unless that is longer than the time limit.
const IDLE_WATCH: Duration = Duration::from_secs(1);
/// The longest time for which flash must answer before it is used again.
const DOUBT_MOST: Duration = Duration::from_secs(60);

/// What watches over the served flash.
pub struct Watch<'a> {
    /// An operation that takes longer is overdue.
    pub timeout: Duration,
    /// Called when flash becomes overdue (true), and when it answers again (false).
    pub tell: &'a (dyn Fn(bool) + Sync),
    /// Called after each write of a batch, see [`Origin::took`].
    pub took: Took,
}

/// See [`Watch::took`].
pub type Took = Arc<dyn Fn(FlashCall, u64, Duration) + Send + Sync>;

struct Server<'a> {
    memory: &'a Arc<Memory>,
    /// The device, for each thread.
    devices: Vec<Arc<Watched>>,
    watch: Watch<'a>,
    ends: AtomicBool,
}

/// The device of a thread, which the watch observes.
struct Watched {
    device: Arc<dyn Device>,
    begin: Instant,
    /// When the present operation began, in nanoseconds since `begin`, at least 1; 0: none.
    since: AtomicU64,
    /// Operations that began.
    operations: AtomicU64,
}

impl Watched {
    fn new(device: &Arc<dyn Device>) -> Arc<Self> {
        let (since, operations) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { device: Arc::clone(device), begin: Instant::now(), since, operations })
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    fn run<T>(&self, operation: impl FnOnce(&dyn Device) -> T) -> T {
        self.operations.fetch_add(1, Relaxed);
        self.since.store(self.now().max(1), Release);
        let done = operation(&*self.device);
        self.since.store(0, Release);
        done
    }

    /// The age of the present operation.
    fn age(&self) -> Duration {
        match self.since.load(Acquire) {
            0 => Duration::ZERO,
            since => Duration::from_nanos(self.now().saturating_sub(since)),
        }
    }
}

impl Device for Watched {
    fn read(&self, into: &mut [u8], offset: u64) -> Result<(), Errno> {
        self.run(|device| device.read(into, offset))
    }

    fn write(&self, parts: &mut [IoSlice<'_>], offset: u64) -> Result<(), Errno> {
        self.run(|device| device.write(parts, offset))
    }

    fn flush(&self) -> Result<(), Errno> {
        self.run(|device| device.flush())
    }
}

/// Serves the flash of a log until `end` returns: it is called when members can make requests. Every earlier server of this
/// memory has ended, with all of its threads.
///
/// # Errors
/// There is no room for a member, or a thread cannot start.
pub fn serve(
    memory: &Arc<Memory>,
    device: Arc<dyn Device>,
    watch: Watch<'_>,
    end: impl FnOnce(),
) -> Result<(), Errno> {
    let devices = (0..=WATCH).map(|_| Watched::new(&device)).collect();
    let server = Server { memory, devices, watch, ends: AtomicBool::new(false) };
    let me = server.member(WATCH)?;
    memory.control(Control::Overdue).store(0, Release);
    Request::free_all(memory);
    let began = scope(|scope| {
        let began = server.begin(scope);
        if began.is_ok() {
            memory.control(Control::Server).store(me.me(), Release);
            end();
        }
        server.ends.store(true, Release);
        for word in [Control::AskedRead, Control::AskedWrite, Control::Changes] {
            memory.futex(word).fetch_add(1, AcqRel);
            let _ = futex::wake(memory.futex(word), futex::Flags::empty(), i32::MAX as u32);
        }
        began
    });
    began.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno))
}

impl Server<'_> {
    fn begin<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> std::io::Result<()> {
        let start = |name: &str, run: Box<dyn FnOnce() + Send + 'scope>| {
            Builder::new().name(format!("larder-{name}")).spawn_scoped(scope, run).map(drop)
        };
        for thread in 0..READERS {
            start("read", Box::new(move || self.read(thread)))?;
        }
        for thread in READERS..WRITER {
            start("batch", Box::new(move || self.write_batches(thread)))?;
        }
        start("write", Box::new(move || self.write()))?;
        start("watch", Box::new(move || self.watch()))
    }

    /// A member for this thread.
    fn member(&self, thread: usize) -> Result<Member, Errno> {
        let flash = Flash::from(Arc::clone(&self.devices[thread]));
        let origin = Box::new(NoOrigin { took: Arc::clone(&self.watch.took) });
        Member::join_to_serve(self.memory, Devices { flash, origin }).ok_or(Errno::ENOSPC)
    }

    fn ends(&self) -> bool {
        self.ends.load(Acquire)
    }

    /// Waits until this word changes.
    fn rest(&self, word: Control, seen: u32) {
        if !self.ends() {
            let _ = futex::wait(self.memory.futex(word), futex::Flags::empty(), seen, Some(&IDLE));
        }
    }

    fn read(&self, thread: usize) {
        while !self.ends() {
            let seen = self.memory.futex(Control::AskedRead).load(Acquire);
            let Some((_, mut request)) = Request::take(self.memory, &[Kind::Read], false) else {
                self.rest(Control::AskedRead, seen);
                continue;
            };
            let offset = request.offset();
            let read = self.devices[thread].read(request.bytes(), offset);
            request.done(read.map_err(of_device));
        }
    }

    fn write(&self) {
        let Ok(member) = self.member(WRITER) else { return };
        while !self.ends() {
            let seen = self.memory.futex(Control::AskedWrite).load(Acquire);
            let kinds = [Kind::Write, Kind::Flush];
            match Request::take(self.memory, &kinds, true) {
                None => self.rest(Control::AskedWrite, seen),
                Some((Kind::Flush, request)) => self.flush(request, &member),
                Some((_, mut request)) => {
                    let offset = request.offset();
                    let mut parts = [IoSlice::new(request.bytes())];
                    let wrote = self.devices[WRITER].write(&mut parts, offset);
                    request.done(wrote.map_err(of_device));
                }
            }
        }
    }

    /// Flushes for all that wait for it.
    fn flush(&self, first: Request, member: &Member) {
        let mut all = vec![first];
        let more = || Some(Request::take(self.memory, &[Kind::Flush], true)?.1);
        all.extend(std::iter::from_fn(more));
        let flushed = self.devices[WRITER].flush().map_err(of_device);
        if let Err(errno) = flushed {
            let log = self.log(member);
            log.doubt();
            log.fail(errno);
        }
        all.into_iter().for_each(|request| request.done(flushed));
    }

    fn log(&self, member: &Member) -> PageLog<Member, Words> {
        let shape = self.memory.shape();
        PageLog::join(member.clone(), member.words(), shape.log, shape.settings)
    }

    fn write_batches(&self, thread: usize) {
        let Ok(member) = self.member(thread) else { return };
        let log = self.log(&member);
        while !self.ends() {
            let seen = self.memory.futex(Control::Changes).load(Acquire);
            self.memory.futex(Control::Waiting).store(1, std::sync::atomic::Ordering::SeqCst);
            if !now(log.write_next()) {
                self.rest(Control::Changes, seen);
            }
        }
    }

    /// The age of the oldest operation.
    fn oldest(&self) -> Duration {
        self.devices.iter().map(|device| device.age()).max().unwrap_or_default()
    }

    /// Operations that began.
    fn operations(&self) -> u64 {
        self.devices.iter().map(|device| device.operations.load(Relaxed)).sum()
    }

    fn watch(&self) {
        let timeout = self.watch.timeout;
        let often = (timeout / 4).clamp(Duration::from_millis(1), Duration::from_millis(250));
        let (mut doubt, mut seen) = (Doubt::new(timeout), 0);
        while !self.ends() {
            let operations = self.operations();
            let idle = operations == seen && self.oldest().is_zero() && !self.is_overdue();
            seen = operations;
            // Not on the word of the readers: a wake-up for one of them would be lost here.
            sleep(if idle { often.max(timeout.min(IDLE_WATCH)) } else { often });
            if self.oldest() > timeout {
                if set_overdue(self.memory) {
                    (self.watch.tell)(true);
                }
                doubt.fails();
            } else if self.is_overdue() && doubt.ends(self.answers()) {
                self.memory.control(Control::Overdue).store(0, Release);
                (self.watch.tell)(false);
            }
        }
    }

    fn is_overdue(&self) -> bool {
        crate::flash::is_overdue(self.memory)
    }

    /// Whether a read is fast. Waits for it.
    fn answers(&self) -> bool {
        let (begin, mut buf) = (Instant::now(), Buf::with_len(PAGE));
        let read = self.devices[WATCH].device.read(&mut buf, self.memory.shape().log.base);
        read.is_ok() && begin.elapsed() < self.watch.timeout / 4
    }
}

/// For how long flash must answer before it is used again.
struct Doubt {
    least: Duration,
    needed: Duration,
    /// Since when it answers.
    answers: Option<Instant>,
    ended: Option<Instant>,
}

impl Doubt {
    fn new(least: Duration) -> Self {
        Self { least, needed: least, answers: None, ended: None }
    }

    /// It is overdue.
    fn fails(&mut self) {
        if let Some(ended) = self.ended.take() {
            let soon = ended.elapsed() < 10 * self.needed;
            self.needed = if soon { (2 * self.needed).min(DOUBT_MOST) } else { self.least };
        }
        self.answers = None;
    }

    /// Whether it is used again, after a check.
    fn ends(&mut self, answers: bool) -> bool {
        if !answers {
            self.fails();
            return false;
        }
        let ends = self.answers.get_or_insert_with(Instant::now).elapsed() >= self.needed;
        if ends {
            (self.ended, self.answers) = (Some(Instant::now()), None);
        }
        ends
    }
}

/// The error of a device, which is none of those for operations that were abandoned.
fn of_device(errno: Errno) -> Errno {
    if crate::flash::is_abandoned(errno) { Errno::EIO } else { errno }
}

/// Members that serve only flash have no origin.
struct NoOrigin {
    took: Took,
}

impl Origin for NoOrigin {
    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::ENODEV)
    }

    fn write(&self, _: u64, _: &[Buf], _: &Member) -> Result<(), Errno> {
        Err(Errno::ENODEV)
    }

    fn flush(&self, _: &Member) -> Result<(), Errno> {
        Err(Errno::ENODEV)
    }

    fn took(&self, call: FlashCall, bytes: u64, time: Duration) {
        (self.took)(call, bytes, time);
    }
}
