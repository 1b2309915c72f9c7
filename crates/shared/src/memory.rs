// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shared memory: a file that every process maps, at any address.
//!
//! Layout: `control words | mutexes | members' words | requests' words | the user's words | the log's words | batch buffers |
//! requests' buffers`. Everything except the mutexes and the buffers is atomic words, so there is no data race whatever a
//! process does or leaves undone. Bytes of buffers are copied through raw pointers; the log's lock determines who owns those
//! of batches, and the state of a request who owns its buffer (`requests.rs`).
//!
//! Invariant: the magic word is written last, so a process that can join finds everything initialised.
#![allow(unsafe_code)]

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use larder_core::buf::PAGE;
use larder_core::pagelog::{BUFFERS, Geometry, LogPolicy, LogSettings, words_needed};
use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::members;
use crate::mutex::{Mutex, STRIDE};

const MAGIC: u64 = u64::from_le_bytes(*b"LARDMEM3");
const CONTROL_BYTES: usize = PAGE;
/// The most members of a memory.
pub const MEMBERS: usize = 1024;
/// Members among them that are threads of other members, which write pages for these (`spread.rs`). Threads take no other
/// entries, so they never keep a process from joining.
pub const WRITERS: usize = 64;
/// Mutexes of pages; a hash assigns one to each neighbourhood.
pub(crate) const HOLDS: usize = 64;
/// Mutexes for the user of the log: see [`Member::latch`](crate::Member::latch).
pub(crate) const LATCHES: usize = 256;
/// Words of a member.
pub(crate) const MEMBER_WORDS: usize = 8;
/// Requests with a buffer of one page, and those with a buffer of [`LARGE_BYTES`] behind them.
pub(crate) const SMALL_REQUESTS: usize = 64;
pub(crate) const LARGE_REQUESTS: usize = 4;
pub(crate) const REQUESTS: usize = SMALL_REQUESTS + LARGE_REQUESTS;
pub(crate) const LARGE_BYTES: usize = 256 << 10;
/// Words of a request.
pub(crate) const REQUEST_WORDS: usize = 8;

/// The control words.
#[derive(Clone, Copy)]
pub(crate) enum Control {
    Magic,
    Base,
    Blocks,
    PageBytes,
    BatchPages,
    Volume,
    Policy,
    SecondChance,
    UserWords,
    /// Number of evicted pages.
    Left,
    /// Number of changes of the origin that bypassed the log, and how many of them are flushed.
    Direct,
    DirectFlushed,
    /// Two words of 32 bits: a counter of changes; whether a member waits for one.
    Changes,
    Waiting,
    /// The name of the member that makes room ahead of need; 0 if every member does.
    Ahead,
    /// Number of burials that have ended.
    BurialsEnded,
    /// Number of burials that the origin refused.
    BurialsRefused,
    /// The name of the member that serves flash.
    Server,
    /// Counts requests, which orders writes and flushes.
    Order,
    /// Two words of 32 bits, which count requests: of reads, and of writes and flushes. The server waits for changes.
    AskedRead,
    AskedWrite,
    /// Whether flash is overdue, see `serve.rs`.
    Overdue,
}

/// The log for which a memory is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The log's place on flash.
    pub log: Geometry,
    /// The log's settings.
    pub settings: LogSettings,
    /// Words for the user of the log, initially zero.
    pub user_words: usize,
}

/// A mapping of the shared memory.
pub struct Memory {
    at: NonNull<u8>,
    len: usize,
    shape: Shape,
}

// SAFETY: other processes share the mapping already, so other threads may: words are atomic, mutexes are mutexes, and
// batches are copied under the log's lock, or read by the member that owns the batch.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// The log's words of a memory.
#[derive(Clone)]
pub struct Words(Arc<Memory>);

impl Words {
    /// The log's words of `memory`.
    #[must_use]
    pub fn of(memory: &Arc<Memory>) -> Self {
        Self(Arc::clone(memory))
    }
}

impl Deref for Words {
    type Target = [AtomicU64];
    fn deref(&self) -> &[AtomicU64] {
        let count = words_needed(self.0.shape.log.blocks);
        self.0.words(Memory::log_words_at(&self.0.shape), count)
    }
}

impl Memory {
    /// Creates the memory of a log in a file; earlier content is discarded.
    ///
    /// # Errors
    /// There is not enough space, or the file cannot be mapped.
    pub fn create(file: &OwnedFd, shape: Shape) -> Result<Arc<Self>> {
        let len = Self::bytes(&shape);
        rustix::fs::ftruncate(file, 0)?;
        // Without allocated space a write to the mapping would raise SIGBUS.
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len as u64).map_err(|error| {
            let error = Error::from(error);
            let what = format!("{} KiB of shared memory: {error}", len.div_ceil(1024));
            Error::new(error.kind(), what)
        })?;
        let memory = Self::map(file, len, shape)?;
        for index in 0..Self::mutexes() {
            // Holds are recursive: two pages of one call may share a hold.
            let again = (1..=HOLDS).contains(&index);
            // SAFETY: no other process uses the mutex before the magic word is stored.
            unsafe { memory.mutex(index).make(again) };
        }
        let Shape { log, settings, user_words } = shape;
        for (control, value) in [
            (Control::Base, log.base),
            (Control::Blocks, u64::from(log.blocks)),
            (Control::PageBytes, u64::from(log.page_bytes)),
            (Control::BatchPages, u64::from(log.batch_pages)),
            (Control::Volume, log.volume),
            (Control::Policy, settings.policy as u64),
            (Control::SecondChance, u64::from(settings.second_chance)),
            (Control::UserWords, user_words as u64),
        ] {
            memory.control(control).store(value, Ordering::Relaxed);
        }
        memory.control(Control::Magic).store(MAGIC, Ordering::Release);
        Ok(Arc::new(memory))
    }

    /// As [`create`](Self::create), in memory without a name; forked children inherit the mapping.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn anonymous(shape: Shape) -> Result<Arc<Self>> {
        let file = rustix::fs::memfd_create("larder", rustix::fs::MemfdFlags::CLOEXEC)?;
        Self::create(&file, shape)
    }

    /// Maps a memory that another process created.
    ///
    /// # Errors
    /// The file does not hold the memory of a log, or cannot be mapped.
    pub fn join(file: &OwnedFd) -> Result<Arc<Self>> {
        let bad = || Error::new(ErrorKind::InvalidData, "not the memory of a page log");
        let len = rustix::fs::fstat(file)?.st_size as usize;
        if len < CONTROL_BYTES {
            return Err(bad());
        }
        let settings = LogSettings { policy: LogPolicy::Through, second_chance: false };
        let log = Geometry { base: 0, blocks: 0, page_bytes: 0, batch_pages: 0, volume: 0 };
        let mut memory = Self::map(file, len, Shape { log, settings, user_words: 0 })?;
        let get = |control| memory.control(control).load(Ordering::Relaxed);
        if memory.control(Control::Magic).load(Ordering::Acquire) != MAGIC {
            return Err(bad());
        }
        let policy = LogPolicy::ALL.into_iter().find(|p| *p as u64 == get(Control::Policy));
        let settings = LogSettings {
            policy: policy.ok_or_else(bad)?,
            second_chance: get(Control::SecondChance) != 0,
        };
        let small = |control| u32::try_from(get(control)).map_err(|_| bad());
        let log = Geometry {
            base: get(Control::Base),
            blocks: small(Control::Blocks)?,
            page_bytes: small(Control::PageBytes)?,
            batch_pages: small(Control::BatchPages)?,
            volume: get(Control::Volume),
        };
        // With these bounds no size below overflows.
        let user_words = get(Control::UserWords);
        if user_words > len as u64 / 8 || !log.is_possible() {
            return Err(bad());
        }
        memory.shape = Shape { log, settings, user_words: user_words as usize };
        if len != Self::bytes(&memory.shape) {
            return Err(bad());
        }
        Ok(Arc::new(memory))
    }

    fn map(file: &OwnedFd, len: usize, shape: Shape) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let null = std::ptr::null_mut();
        // SAFETY: a new mapping at an address chosen by the kernel overlaps no memory of this process.
        let at = unsafe { mmap(null, len, protection, MapFlags::SHARED, file.as_fd(), 0) }?;
        let at = NonNull::new(at.cast()).ok_or(ErrorKind::OutOfMemory)?;
        Ok(Self { at, len, shape })
    }

    fn buffer_bytes(shape: &Shape) -> usize {
        BUFFERS * shape.log.batch_pages as usize * shape.log.page_bytes as usize
    }

    fn page_bytes(&self) -> usize {
        self.shape.log.page_bytes as usize
    }

    /// The log for which the memory was made.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The log's lock, holds, members' mutexes, and latches.
    fn mutexes() -> usize {
        1 + HOLDS + MEMBERS + LATCHES
    }

    fn member_words_at() -> usize {
        CONTROL_BYTES + Self::mutexes() * STRIDE
    }

    fn request_words_at() -> usize {
        Self::member_words_at() + MEMBERS * MEMBER_WORDS * 8
    }

    fn user_words_at() -> usize {
        Self::request_words_at() + REQUESTS * REQUEST_WORDS * 8
    }

    fn log_words_at(shape: &Shape) -> usize {
        Self::user_words_at() + shape.user_words * 8
    }

    /// The words for the user of the log.
    #[must_use]
    pub fn user_words(&self) -> &[AtomicU64] {
        self.words(Self::user_words_at(), self.shape.user_words)
    }

    fn buffers_at(shape: &Shape) -> usize {
        (Self::log_words_at(shape) + words_needed(shape.log.blocks) * 8).next_multiple_of(PAGE)
    }

    fn request_buffers_at(shape: &Shape) -> usize {
        (Self::buffers_at(shape) + Self::buffer_bytes(shape)).next_multiple_of(PAGE)
    }

    /// Bytes of a small request's buffer.
    fn small_bytes(shape: &Shape) -> usize {
        (shape.log.page_bytes as usize).next_multiple_of(PAGE)
    }

    /// Bytes of the memory of a log.
    #[must_use]
    pub fn bytes(shape: &Shape) -> usize {
        let buffers = SMALL_REQUESTS * Self::small_bytes(shape) + LARGE_REQUESTS * LARGE_BYTES;
        Self::request_buffers_at(shape) + buffers
    }

    /// `count` words from byte `at` on.
    fn words(&self, at: usize, count: usize) -> &[AtomicU64] {
        // No sum overflows: `create` has allocated these sizes, and `join` has bounded them.
        assert!(at.is_multiple_of(8) && at + count * 8 <= self.len);
        // SAFETY: the range is inside the mapping, which is page-aligned and lives as long as `self`; all access to
        // these bytes, by any process, is atomic.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().add(at).cast(), count) }
    }

    pub(crate) fn control(&self, control: Control) -> &AtomicU64 {
        &self.words(0, CONTROL_BYTES / 8)[control as usize]
    }

    /// The lower half of a control word, for use as a futex.
    pub(crate) fn futex(&self, control: Control) -> &AtomicU32 {
        let word: *const AtomicU64 = self.control(control);
        // SAFETY: these control words are only used as halves; the first half is at the word's aligned address.
        unsafe { &*word.cast::<AtomicU32>() }
    }

    /// The words of a request.
    pub(crate) fn request(&self, index: usize) -> &[AtomicU64] {
        assert!(index < REQUESTS);
        self.words(Self::request_words_at() + index * REQUEST_WORDS * 8, REQUEST_WORDS)
    }

    /// Bytes of a request's buffer.
    pub(crate) fn request_bytes(&self, index: usize) -> usize {
        if index < SMALL_REQUESTS { Self::small_bytes(&self.shape) } else { LARGE_BYTES }
    }

    /// A request's buffer, which the caller owns by the request's state: its owner before it is submitted and after it is
    /// done, the server in between.
    pub(crate) fn request_buffer(&self, index: usize) -> *mut u8 {
        let small = Self::small_bytes(&self.shape);
        let at = match index.checked_sub(SMALL_REQUESTS) {
            None => index * small,
            Some(large) => SMALL_REQUESTS * small + large * LARGE_BYTES,
        };
        assert!(index < REQUESTS);
        // SAFETY: inside the mapping, by the assertion.
        unsafe { self.at.as_ptr().add(Self::request_buffers_at(&self.shape) + at) }
    }

    pub(crate) fn member(&self, index: usize) -> &[AtomicU64] {
        assert!(index < MEMBERS);
        self.words(Self::member_words_at() + index * MEMBER_WORDS * 8, MEMBER_WORDS)
    }

    /// Whether an address is in the mapping.
    #[must_use]
    pub fn has_address(&self, address: usize) -> bool {
        address.checked_sub(self.at.as_ptr() as usize).is_some_and(|offset| offset < self.len)
    }

    /// Whether a process serves flash.
    #[must_use]
    pub fn is_served(self: &Arc<Self>) -> bool {
        !members::is_gone(self, self.control(Control::Server).load(Ordering::Acquire))
    }

    /// Whether a process is a member, beside threads of members and of the process that serves flash.
    #[must_use]
    pub fn has_members(self: &Arc<Self>) -> bool {
        members::has_any(self)
    }

    pub(crate) fn mutex(&self, index: usize) -> &Mutex {
        assert!(index < Self::mutexes());
        let at = CONTROL_BYTES + index * STRIDE;
        // SAFETY: inside the mapping, aligned (the stride is the type's size and the first mutex is page-aligned), and
        // used only as a mutex.
        unsafe { &*self.at.as_ptr().add(at).cast::<Mutex>() }
    }

    /// The address of a page in a batch buffer.
    fn page(&self, buffer: usize, place: usize) -> *mut u8 {
        let pages = self.shape.log.batch_pages as usize;
        assert!(buffer < BUFFERS && place < pages);
        let at = Self::buffers_at(&self.shape) + (buffer * pages + place) * self.page_bytes();
        // SAFETY: inside the mapping, by the assertion.
        unsafe { self.at.as_ptr().add(at) }
    }

    pub(crate) fn copy_in(&self, buffer: usize, place: usize, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.page_bytes());
        // SAFETY: the place has the size of a page. The caller has the log's lock, and the page becomes valid later.
        unsafe { self.page(buffer, place).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    pub(crate) fn copy_out(&self, buffer: usize, place: usize, into: &mut [u8]) {
        assert_eq!(into.len(), self.page_bytes());
        // SAFETY: as above; a valid page is not overwritten before its batch is on flash.
        unsafe { self.page(buffer, place).copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) }
    }

    /// The first pages of a batch that is being written.
    pub(crate) fn batch(&self, buffer: usize, pages: usize) -> IoSlice<'_> {
        assert!((1..=self.shape.log.batch_pages as usize).contains(&pages));
        // SAFETY: as above: no process writes there until the caller reports that the batch is written.
        IoSlice::new(unsafe {
            std::slice::from_raw_parts(self.page(buffer, 0), pages * self.page_bytes())
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: everything that points into the mapping keeps an `Arc` of `self`, so no reference remains.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.len) };
    }
}
