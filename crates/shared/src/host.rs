// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page log's [`Host`] for one process: every call blocks, and no future is ever pending.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::time::{Duration, Instant};

use larder_core::buf::Buf;
use larder_core::mutant;
use larder_core::pagelog::{Burials, Host, PageLog, now};
use larder_core::request::Errno;
use rustix::fs::Timespec;
use rustix::thread::futex;

use crate::flash::{self, Flash, Reach};
use crate::locked::Locked;
use crate::members::{
    self, Entry, LOG, NEIGHBOURS, hold_mutex, hold_of, holds_of, latch_mutex, open_burials,
};
use crate::memory::{Control, HOLDS, Memory, Shape, Words};
use crate::spread::Slow;
use crate::timed::FlashCall;

/// The longest sleep of a member that waits for a change: a death causes no change.
const SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// An origin, which defines the meaning of page numbers. Every call blocks.
pub trait Origin {
    /// Reads a page; pages beyond the end are zero.
    ///
    /// # Errors
    /// The page cannot be read.
    fn read(&self, page: u64, into: &mut [u8]) -> Result<(), Errno>;
    /// Writes this page and the following ones. All lie in one neighbourhood ([`NEIGHBOURS`]), whose hold `member` has.
    ///
    /// # Errors
    /// A page cannot be written.
    fn write(&self, page: u64, pages: &[Buf], member: &Member) -> Result<(), Errno>;
    /// Makes pages zero that the log has dropped, and of which it has no version.
    ///
    /// # Errors
    /// A page cannot be written.
    fn zero(&self, mut pages: Range<u64>, member: &Member) -> Result<(), Errno> {
        let zero = [Buf::zeroed(member.page_bytes())];
        pages.try_for_each(|page| self.write(page, &zero, member))
    }
    /// Makes all writes durable, whichever process made them.
    ///
    /// # Errors
    /// The origin cannot be flushed.
    fn flush(&self, member: &Member) -> Result<(), Errno>;
    /// Whether the page is kept in the log in preference to others. The caller holds the log's lock.
    fn keeps(&self, _page: u64) -> bool {
        false
    }
    /// A call of the flash device on so many bytes took this long.
    fn took(&self, _: FlashCall, _bytes: u64, _: Duration) {}
    /// A copy for another thread, if parallel writes are faster than consecutive ones.
    fn again(&self) -> Option<Box<dyn Origin + Send>> {
        None
    }
}

/// The devices of a log, as opened by this process.
pub struct Devices {
    /// The flash file, or a part of it.
    pub flash: Flash,
    /// The origin.
    pub origin: Box<dyn Origin>,
}

struct Inner {
    slow: Slow,
    /// See [`Host::hurry`].
    hurried: Cell<bool>,
    // Fields drop in order: the entry is released before the memory is unmapped.
    entry: Entry,
    memory: Arc<Memory>,
    devices: Devices,
}

/// Devices to be moved to another thread.
struct Again {
    flash: Flash,
    origin: Box<dyn Origin + Send>,
    /// See [`Host::hurry`].
    hurried: bool,
}

/// A member of a shared log, see [`Host`].
#[derive(Clone)]
pub struct Member(Rc<Inner>);

impl Member {
    /// Joins the members of this memory.
    ///
    /// # Errors
    /// The memory has no room for another member.
    pub fn join(memory: &Arc<Memory>, devices: Devices) -> Result<Self, Errno> {
        let member = Self::of(Entry::take(memory).ok_or(Errno::ENOSPC)?, memory, devices);
        // A burial that a dead member left open blocks its entry until a member takes the hold; do that now.
        member.await_burials();
        Ok(member)
    }

    /// As above, for a thread that writes pages for another member.
    fn join_as_writer(memory: &Arc<Memory>, again: Again) -> Option<Self> {
        let Again { flash, origin, hurried } = again;
        let member = Self::of(Entry::take_for_writer(memory)?, memory, Devices { flash, origin });
        member.await_burials();
        member.hurry(hurried);
        Some(member)
    }

    /// As above, for a thread that serves flash, and changes no page.
    pub(crate) fn join_to_serve(memory: &Arc<Memory>, devices: Devices) -> Option<Self> {
        Some(Self::of(Entry::take_for_writer(memory)?, memory, devices))
    }

    fn of(entry: Entry, memory: &Arc<Memory>, devices: Devices) -> Self {
        let (memory, slow, hurried) = (Arc::clone(memory), Slow::default(), Cell::default());
        Self(Rc::new(Inner { entry, memory, devices, slow, hurried }))
    }

    fn reach(&self) -> Reach<'_> {
        let Inner { memory, devices, hurried, .. } = &*self.0;
        Reach { memory, flash: &devices.flash, hurried: hurried.get(), me: self.me() }
    }

    /// Whether flash is overdue: it is served, and takes too long.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        flash::is_overdue(&self.0.memory)
    }

    /// The memory.
    #[must_use]
    pub fn memory(&self) -> &Arc<Memory> {
        &self.0.memory
    }

    /// Runs a call of the flash device on so many bytes, and reports it to the origin if it succeeds.
    fn timed<T>(
        &self,
        call: FlashCall,
        bytes: u64,
        run: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let begin = Instant::now();
        let done = run()?;
        self.0.devices.origin.took(call, bytes, begin.elapsed());
        Ok(done)
    }

    /// The log's words in the memory.
    #[must_use]
    pub fn words(&self) -> Words {
        Words::of(&self.0.memory)
    }

    /// Valid pages that were evicted since the memory was created.
    #[must_use]
    pub fn pages_evicted(&self) -> u64 {
        self.0.memory.control(Control::Left).load(Acquire)
    }

    /// Takes the latch of `key`, a lock for the user of the log. It is taken after holds and before the log's lock.
    /// Keys may share a latch.
    #[must_use]
    pub fn latch(&self, key: u64) -> Locked {
        Locked::lock(&self.0.memory, latch_mutex(key)).0
    }

    /// Takes the latches of all keys; the caller must hold no latch.
    #[must_use]
    pub fn latches(&self, keys: &[u64]) -> Vec<Locked> {
        let mutexes: BTreeSet<usize> = keys.iter().copied().map(latch_mutex).collect();
        mutexes.into_iter().map(|mutex| Locked::lock(&self.0.memory, mutex).0).collect()
    }

    /// Makes this member the one that makes room ahead of need, by [`PageLog::keep`]; other members then make room only
    /// when there is none.
    pub fn keep_ahead(&self) {
        self.0.memory.control(Control::Ahead).store(self.me(), Release);
    }

    /// Whether the log has a dirty version of the page.
    #[must_use]
    pub fn log_has_dirty(&self, page: u64) -> bool {
        self.log().has_dirty(page)
    }

    fn log(&self) -> PageLog<Self, Words> {
        let Shape { log, settings, .. } = self.0.memory.shape();
        PageLog::join(self.clone(), self.words(), log, settings)
    }

    /// Takes the holds of all these pages.
    #[must_use]
    pub fn hold_all(&self, pages: &Range<u64>) -> Vec<Locked> {
        self.take_holds(holds_of(pages))
    }

    /// As above, of pages in any order.
    #[must_use]
    pub fn hold_each(&self, pages: &[u64]) -> Vec<Locked> {
        self.take_holds(pages.iter().fold(0, |all, page| all | holds_of(&(*page..page + 1))))
    }

    /// Takes holds in their order; each is a bit.
    fn take_holds(&self, holds: u64) -> Vec<Locked> {
        (0..HOLDS).filter(|hold| holds & 1 << hold != 0).map(|hold| self.take_hold(hold)).collect()
    }

    pub(crate) fn begin_burial(&self, pages: &Range<u64>) {
        self.0.entry.begin_burial(pages);
    }

    pub(crate) fn end_burial(&self) {
        self.0.entry.end_burial();
    }

    /// Counts a burial that the origin refused: the log holds zeroes or newer versions of its pages.
    pub(crate) fn count_refused(&self) {
        self.0.memory.control(Control::BurialsRefused).fetch_add(1, AcqRel);
    }

    /// Waits for the burials of running members, and completes those of dead members.
    fn await_burials(&self) {
        let open = open_burials(&self.0.memory);
        (0..HOLDS).filter(|hold| open & 1 << hold != 0).for_each(|h| drop(self.take_hold(h)));
    }

    fn take_hold(&self, hold: usize) -> Locked {
        let (locked, died) = Locked::lock(&self.0.memory, hold_mutex(hold));
        if died {
            let log = self.log();
            members::end_burials(&self.0.memory, hold, |page| {
                // A failed log records nothing. No member may read the origin's older bytes.
                let absent = now(log.bury_absent(page)).unwrap_or_else(|_| !log.has(page));
                if absent && let Err(error) = self.zero(page..page + 1) {
                    // The next member that takes the hold tries again; until then no member may read the old bytes.
                    eprintln!("larder: page {page} cannot be zeroed on the origin: {error}");
                    std::process::abort();
                }
            });
            // The dead member may have changed the origin without counting the change.
            self.count_direct();
        }
        locked
    }

    /// The devices for another thread.
    fn devices_again(&self) -> Option<Again> {
        let Devices { flash, origin } = &self.0.devices;
        let (flash, hurried) = (flash.clone(), self.0.hurried.get());
        Some(Again { flash, origin: origin.again()?, hurried })
    }

    /// A function that writes pages to the origin, neighbours together, and returns those that failed.
    fn bring(&self) -> impl Fn(&[u64]) -> Vec<u64> + use<> {
        let log = self.log();
        move |pages| now(log.run_to_origin(pages))
    }

    /// Whether this is the name of another, living member.
    fn is_other(&self, name: u64) -> bool {
        name != self.0.entry.name && !members::is_gone(&self.0.memory, name)
    }

    fn zero(&self, pages: Range<u64>) -> Result<(), Errno> {
        self.change_past_log(|| self.0.devices.origin.zero(pages, self))
    }

    pub(crate) fn page_bytes(&self) -> usize {
        self.0.memory.shape().log.page_bytes as usize
    }

    /// Changes the origin without the log, and counts the change once the origin has it (rule S5): a flush that began
    /// before may not cover it.
    pub(crate) fn change_past_log(
        &self,
        change: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let early = mutant::is_active("shared-counted-early");
        if early {
            self.count_direct();
        }
        let changed = change();
        if !early {
            self.count_direct();
        }
        changed
    }

    fn count_direct(&self) {
        self.0.memory.control(Control::Direct).fetch_add(1, AcqRel);
    }

    /// Flushes the origin, if it was changed past the log since the last such flush.
    pub(crate) fn flush_direct(&self) -> Result<(), Errno> {
        let changes = self.0.memory.control(Control::Direct).load(Acquire);
        let flushed = self.0.memory.control(Control::DirectFlushed);
        if changes != flushed.load(Acquire) {
            self.0.devices.origin.flush(self)?;
            flushed.fetch_max(changes, AcqRel);
        }
        Ok(())
    }

    /// Reads a page from the origin; the caller has its hold.
    pub(crate) fn read_origin(&self, page: u64) -> Result<Buf, Errno> {
        let mut buf = Buf::with_len(self.page_bytes());
        self.0.devices.origin.read(page, &mut buf)?;
        Ok(buf)
    }
}

impl Host for Member {
    type Guard<'a> = Locked;
    type Hold = Locked;

    fn lock(&self) -> (Locked, bool) {
        Locked::lock(&self.0.memory, LOG)
    }

    fn stage(&self, buffer: usize, place: usize, bytes: &[u8]) {
        self.0.memory.copy_in(buffer, place, bytes);
    }

    fn staged(&self, buffer: usize, place: usize, into: &mut [u8]) {
        self.0.memory.copy_out(buffer, place, into);
    }

    async fn read_flash(&self, offset: u64, buf: Buf) -> Result<Buf, Errno> {
        self.read_flash_each(vec![(offset, buf)]).await.pop().unwrap_or(Err(Errno::EIO))
    }

    async fn read_flash_each(&self, wanted: Vec<(u64, Buf)>) -> Vec<Result<Buf, Errno>> {
        let begin = Instant::now();
        let read = self.reach().read_each(wanted);
        let bytes = read.iter().flatten().map(|buf| buf.len() as u64).sum();
        if bytes > 0 {
            self.0.devices.origin.took(FlashCall::Read, bytes, begin.elapsed());
        }
        read
    }

    async fn write_batch(
        &self,
        offset: u64,
        header: Buf,
        buffer: usize,
        pages: usize,
    ) -> Result<(), Errno> {
        let pages = self.0.memory.batch(buffer, pages);
        let bytes = 2 * header.len() + pages.len();
        let mut parts = [IoSlice::new(&header), IoSlice::new(&header), pages];
        self.timed(FlashCall::Write, bytes as u64, || self.reach().write(&mut parts, offset))
    }

    async fn write_flash(&self, offset: u64, buf: Buf) -> Result<(), Errno> {
        let write = || self.reach().write(&mut [IoSlice::new(&buf)], offset);
        self.timed(FlashCall::Write, buf.len() as u64, write)
    }

    async fn flush_flash(&self) -> Result<(), Errno> {
        self.timed(FlashCall::Flush, 0, || self.reach().flush())
    }

    fn writes_batches(&self) -> bool {
        matches!(self.0.devices.flash, Flash::Own(_))
    }

    fn hurry(&self, hurried: bool) -> bool {
        self.0.hurried.replace(hurried)
    }

    fn stops_waiting(&self, since: &mut u64) -> Option<Errno> {
        self.reach().stops_waiting(since)
    }

    fn is_abandoned(&self, errno: Errno) -> bool {
        flash::is_abandoned(errno)
    }

    async fn hold(&self, page: u64) -> Locked {
        self.take_hold(hold_of(page))
    }

    fn burials(&self) -> Burials {
        let count = |control| self.0.memory.control(control).load(Acquire);
        let (ended, refused) = (Control::BurialsEnded, Control::BurialsRefused);
        Burials { ended: count(ended), refused: count(refused) }
    }

    async fn burials_end(&self) {
        self.await_burials();
    }

    async fn write_origin(&self, page: u64, buf: Buf) -> Result<(), Errno> {
        self.write_origin_run(page, vec![buf]).await
    }

    async fn write_origin_run(&self, first: u64, pages: Vec<Buf>) -> Result<(), Errno> {
        self.0.slow.watch(|| self.0.devices.origin.write(first, &pages, self))
    }

    fn spread(&self, pages: &[u64]) -> Option<Vec<u64>> {
        self.0.slow.spread(pages, NEIGHBOURS, self.bring(), || {
            let (memory, devices) = (Arc::clone(&self.0.memory), self.devices_again());
            move || Some(Self::join_as_writer(&memory, devices?)?.bring())
        })
    }

    fn keeps_ahead(&self) -> bool {
        let name = self.0.memory.control(Control::Ahead).load(Acquire);
        name == 0 || !self.is_other(name)
    }

    async fn zero_origin(&self, pages: Range<u64>) -> Result<(), Errno> {
        self.zero(pages)
    }

    async fn flush_origin(&self) -> Result<(), Errno> {
        self.0.devices.origin.flush(self)
    }

    fn keeps(&self, page: u64) -> bool {
        self.0.devices.origin.keeps(page)
    }

    fn evicted(&self, pages: u64) {
        self.0.memory.control(Control::Left).fetch_add(pages, AcqRel);
    }

    fn has_tasks(&self) -> bool {
        false
    }

    async fn changed(&self, seen: u64) {
        let changes = self.0.memory.futex(Control::Changes);
        self.0.memory.futex(Control::Waiting).store(1, std::sync::atomic::Ordering::SeqCst);
        // Returns at once if the value has changed. Any other result is handled like a change.
        let _ = futex::wait(changes, futex::Flags::empty(), seen as u32, Some(&SLEEP));
    }

    fn changes(&self) -> u64 {
        u64::from(self.0.memory.futex(Control::Changes).load(Acquire))
    }

    fn notify(&self) {
        let seq = std::sync::atomic::Ordering::SeqCst;
        self.0.memory.futex(Control::Changes).fetch_add(1, seq);
        if self.0.memory.futex(Control::Waiting).swap(0, seq) != 0 {
            let all = i32::MAX as u32;
            let _ = futex::wake(self.0.memory.futex(Control::Changes), futex::Flags::empty(), all);
        }
    }

    fn me(&self) -> u64 {
        self.0.entry.name
    }

    fn is_gone(&self, name: u64) -> bool {
        name != self.me() && members::is_gone(&self.0.memory, name)
    }
}
