// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory: a file that every process maps, at whatever address.
//!
//! `control words | mutexes | members' words | the user's words | the log's words | batch buffers`. All but the mutexes and the buffers
//! are atomic words, so nothing here is a data race, whatever a process does or leaves undone. Bytes of
//! buffers are copied through raw pointers: the log's lock says whose they are.
//!
//! Invariant: the first word is written last, so whoever can join finds all of it made.
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

use crate::mutex::{Mutex, STRIDE};

const MAGIC: u64 = u64::from_le_bytes(*b"LARDMEM1");
const CONTROL_BYTES: usize = PAGE;
/// Members that a memory has room for.
pub const MEMBERS: usize = 1024;
/// Mutexes of pages: a page has that of its hash.
pub(crate) const HOLDS: usize = 64;
/// Mutexes of whatever the user has: see [`Member::latch`](crate::Member::latch).
pub(crate) const LATCHES: usize = 256;
/// Words of a member.
pub(crate) const MEMBER_WORDS: usize = 8;

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
    /// Pages that left, counted.
    Left,
    /// Changes of the origin that went past the log, and how many of them were flushed.
    Direct,
    DirectFlushed,
    /// Two halves: counts changes; whether somebody waits for one.
    Changes,
    Waiting,
    /// Who makes room before it is needed; 0: whoever comes.
    Ahead,
    /// Burials that ended, and those that the origin refused.
    BurialsEnded,
    BurialsRefused,
}

/// Which log a memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Where the log lies on flash.
    pub log: Geometry,
    /// How it behaves.
    pub settings: LogSettings,
    /// Words for whoever uses the log, zero at first.
    pub user_words: usize,
}

/// A mapping, see the module.
pub struct Memory {
    at: NonNull<u8>,
    len: usize,
    shape: Shape,
}

// SAFETY: the mapping is shared between processes as it is: words are atomic, mutexes are mutexes, and batches are copied
// under the log's lock, or read by whoever has the batch.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// The log's words in a memory.
#[derive(Clone)]
pub struct Words(Arc<Memory>);

impl Words {
    /// Those of this memory.
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
    /// Makes the memory of a log in an empty file.
    ///
    /// # Errors
    /// If the file cannot be mapped.
    pub fn create(file: &OwnedFd, shape: Shape) -> Result<Arc<Self>> {
        let len = Self::buffers_at(&shape) + Self::buffer_bytes(&shape);
        rustix::fs::ftruncate(file, 0)?;
        // Without room a write to the mapping would be the end of the process.
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len as u64).map_err(|error| {
            let error = Error::from(error);
            let what = format!("{} KiB of shared memory: {error}", len.div_ceil(1024));
            Error::new(error.kind(), what)
        })?;
        let memory = Self::map(file, len, shape)?;
        for index in 0..Self::mutexes() {
            // Holds may be taken again by whoever has them: a page's neighbour may have the same one.
            let again = (1..=HOLDS).contains(&index);
            // SAFETY: nobody else joins before the magic word is there.
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

    /// As [`create`](Self::create), in memory without a name; children that are forked find it mapped.
    ///
    /// # Errors
    /// If there is none.
    pub fn anonymous(shape: Shape) -> Result<Arc<Self>> {
        let file = rustix::fs::memfd_create("larder", rustix::fs::MemfdFlags::CLOEXEC)?;
        Self::create(&file, shape)
    }

    /// Maps a memory that another process made.
    ///
    /// # Errors
    /// If it is none, or cannot be mapped.
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
        let log = Geometry {
            base: get(Control::Base),
            blocks: get(Control::Blocks) as u32,
            page_bytes: get(Control::PageBytes) as u32,
            batch_pages: get(Control::BatchPages) as u32,
            volume: get(Control::Volume),
        };
        let user_words = get(Control::UserWords) as usize;
        memory.shape = Shape { log, settings, user_words };
        if len != Self::buffers_at(&memory.shape) + Self::buffer_bytes(&memory.shape) {
            return Err(bad());
        }
        Ok(Arc::new(memory))
    }

    fn map(file: &OwnedFd, len: usize, shape: Shape) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let null = std::ptr::null_mut();
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory of ours.
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

    /// Which log it is for.
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

    fn user_words_at() -> usize {
        Self::member_words_at() + MEMBERS * MEMBER_WORDS * 8
    }

    fn log_words_at(shape: &Shape) -> usize {
        Self::user_words_at() + shape.user_words * 8
    }

    /// The words of whoever uses the log.
    #[must_use]
    pub fn user_words(&self) -> &[AtomicU64] {
        self.words(Self::user_words_at(), self.shape.user_words)
    }

    fn buffers_at(shape: &Shape) -> usize {
        (Self::log_words_at(shape) + words_needed(shape.log.blocks) * 8).next_multiple_of(PAGE)
    }

    /// Some words, from this byte on.
    fn words(&self, at: usize, count: usize) -> &[AtomicU64] {
        assert!(at.is_multiple_of(8) && at + count * 8 <= self.len);
        // SAFETY: inside of the mapping, which begins at a page's border and lives as long as `self`; all
        // access to these bytes, by any process, is atomic.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().add(at).cast(), count) }
    }

    pub(crate) fn control(&self, control: Control) -> &AtomicU64 {
        &self.words(0, CONTROL_BYTES / 8)[control as usize]
    }

    /// The half of a control word that a futex needs.
    pub(crate) fn futex(&self, control: Control) -> &AtomicU32 {
        let word: *const AtomicU64 = self.control(control);
        // SAFETY: these control words are used as halves alone; the first lies at the word's own, aligned address.
        unsafe { &*word.cast::<AtomicU32>() }
    }

    pub(crate) fn member(&self, index: usize) -> &[AtomicU64] {
        assert!(index < MEMBERS);
        self.words(Self::member_words_at() + index * MEMBER_WORDS * 8, MEMBER_WORDS)
    }

    pub(crate) fn mutex(&self, index: usize) -> &Mutex {
        assert!(index < Self::mutexes());
        let at = CONTROL_BYTES + index * STRIDE;
        // SAFETY: inside of the mapping, aligned (the stride is the type's size, the first lies at a page's
        // border), and used as a mutex alone.
        unsafe { &*self.at.as_ptr().add(at).cast::<Mutex>() }
    }

    /// A page's place in a batch buffer.
    fn page(&self, buffer: usize, place: usize) -> *mut u8 {
        let pages = self.shape.log.batch_pages as usize;
        assert!(buffer < BUFFERS && place < pages);
        let at = Self::buffers_at(&self.shape) + (buffer * pages + place) * self.page_bytes();
        // SAFETY: inside of the mapping, by the assertion.
        unsafe { self.at.as_ptr().add(at) }
    }

    pub(crate) fn copy_in(&self, buffer: usize, place: usize, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.page_bytes());
        // SAFETY: the place has a page's bytes; the caller has the log's lock, and the page counts only later.
        unsafe { self.page(buffer, place).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    pub(crate) fn copy_out(&self, buffer: usize, place: usize, into: &mut [u8]) {
        assert_eq!(into.len(), self.page_bytes());
        // SAFETY: as above; a page that counts is not written again before its batch is on flash.
        unsafe { self.page(buffer, place).copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) }
    }

    /// The first pages of a batch that is being written.
    pub(crate) fn batch(&self, buffer: usize, pages: usize) -> IoSlice<'_> {
        assert!((1..=self.shape.log.batch_pages as usize).contains(&pages));
        // SAFETY: as above: nobody writes there until the caller has said that the batch is written.
        IoSlice::new(unsafe {
            std::slice::from_raw_parts(self.page(buffer, 0), pages * self.page_bytes())
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: whatever points into the mapping keeps an `Arc` of this, so nothing does any more.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.len) };
    }
}
