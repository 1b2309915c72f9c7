// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host of the page log in a simulation: modelled devices, and flash that stores what was written.
//!
//! A page of the database records which page it is and in which version, and is zero behind that; so a
//! block of flash that has one takes twelve bytes. Blocks of the log's own are kept as they are.
//!
//! Invariant: a block holds what the last write that ended put there; a crash loses writes in flight.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use hashbrown::HashSet;
use larder_core::buf::{Buf, PAGE};
use larder_core::exec::IoKind;
use larder_core::pagelog::{BUFFERS, Host};
use larder_core::request::Errno;

use super::machine::{DISK, FLASH, Io, PAGE_BYTES, done};
use super::waits::Waits;

const WRITE: IoKind = IoKind::Write { fua: false };

/// A page's bytes: its number and version.
pub(super) fn encode(page: u64, version: u32, into: &mut [u8]) {
    into.fill(0);
    into[..8].copy_from_slice(&page.to_le_bytes());
    into[8..12].copy_from_slice(&version.to_le_bytes());
}

/// The number and version of a page.
pub(super) fn decode(bytes: &[u8]) -> (u64, u32) {
    let mut number = [0; 8];
    let mut version = [0; 4];
    number.copy_from_slice(&bytes[..8]);
    version.copy_from_slice(&bytes[8..12]);
    (u64::from_le_bytes(number), u32::from_le_bytes(version))
}

#[derive(Clone, Default)]
enum Block {
    #[default]
    Zero,
    Page(u64, u32),
    Raw(Box<[u8]>),
}

/// What is on flash.
#[derive(Default)]
pub(super) struct Store(RefCell<Vec<Block>>);

impl Store {
    fn set(&self, block: u64, what: Block) {
        let (mut blocks, at) = (self.0.borrow_mut(), block as usize);
        if blocks.len() <= at {
            blocks.resize(at + 1, Block::Zero);
        }
        blocks[at] = what;
    }

    pub(super) fn write(&self, offset: u64, bytes: &[u8]) {
        for (block, bytes) in (offset / PAGE_BYTES..).zip(bytes.chunks(PAGE)) {
            self.set(block, Block::Raw(bytes.into()));
        }
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        let blocks = self.0.borrow();
        for (block, into) in (offset / PAGE_BYTES..).zip(into.chunks_mut(PAGE)) {
            match blocks.get(block as usize) {
                None | Some(Block::Zero) => into.fill(0),
                Some(Block::Page(page, version)) => encode(*page, *version, into),
                Some(Block::Raw(bytes)) => into.copy_from_slice(bytes),
            }
        }
    }
}

/// A page that is being written to disk, as long as this value exists.
pub(super) struct Held {
    page: u64,
    held: Rc<RefCell<HashSet<u64>>>,
    let_go: Rc<Waits>,
    io: Rc<Io>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.held.borrow_mut().remove(&self.page);
        self.let_go.wake(&self.io.exec);
    }
}

/// The host, see the module.
pub(super) struct LogHost {
    io: Rc<Io>,
    pub(super) store: Rc<Store>,
    batches: bool,
    /// Pages of the batches in memory.
    staged: RefCell<Vec<Vec<(u64, u32)>>>,
    changes: Cell<u64>,
    waits: Waits,
    held: Rc<RefCell<HashSet<u64>>>,
    let_go: Rc<Waits>,
    /// Blocks and pages of the batches that were written, the oldest first.
    written: RefCell<VecDeque<(u64, u64)>>,
}

impl LogHost {
    pub(super) fn new(io: Rc<Io>, store: Rc<Store>, batches: bool) -> Self {
        Self {
            io,
            store,
            batches,
            staged: RefCell::new(vec![Vec::new(); BUFFERS]),
            changes: Cell::new(0),
            waits: Waits::default(),
            held: Rc::default(),
            let_go: Rc::default(),
            written: RefCell::default(),
        }
    }

    /// Pages, of any version, in the last so many blocks of the log.
    pub(super) fn pages_in(&self, blocks: u64) -> u64 {
        let mut written = self.written.borrow_mut();
        let mut all: u64 = written.iter().map(|(blocks, _)| blocks).sum();
        while all > blocks
            && let Some((first, _)) = written.pop_front()
        {
            all -= first;
        }
        written.iter().map(|(_, pages)| pages).sum()
    }
}

impl Host for LogHost {
    type Guard<'a> = ();
    type Hold = Held;

    fn lock(&self) -> ((), bool) {
        ((), false)
    }

    fn stage(&self, buffer: usize, place: usize, bytes: &[u8]) {
        let staged = &mut self.staged.borrow_mut()[buffer];
        staged.resize(staged.len().max(place + 1), (0, 0));
        staged[place] = decode(bytes);
    }

    fn staged(&self, buffer: usize, place: usize, into: &mut [u8]) {
        let (page, version) = self.staged.borrow()[buffer][place];
        encode(page, version, into);
    }

    async fn read_flash(&self, offset: u64, buf: Buf) -> Result<Buf, Errno> {
        let len = buf.len() as u64;
        let buf = done(self.io.ask(FLASH, IoKind::Read, offset, Some(buf), len)).await;
        let mut buf = buf.ok_or(Errno::EIO)?;
        self.store.read(offset, &mut buf);
        Ok(buf)
    }

    async fn write_batch(
        &self,
        offset: u64,
        header: Buf,
        buffer: usize,
        pages: usize,
    ) -> Result<(), Errno> {
        let headers = 2 * header.len() as u64;
        let first = offset + headers;
        if self.batches {
            let len = headers + pages as u64 * PAGE_BYTES;
            done(self.io.ask(FLASH, WRITE, offset, None, len)).await;
        } else {
            done(self.io.ask(FLASH, WRITE, offset, None, headers)).await;
            for page in 0..pages as u64 {
                let at = first + page * PAGE_BYTES;
                done(self.io.ask(FLASH, WRITE, at, None, PAGE_BYTES)).await;
            }
        }
        self.store.write(offset, &header);
        self.store.write(offset + header.len() as u64, &header);
        let staged = &self.staged.borrow()[buffer][..pages];
        for (block, (page, version)) in (first / PAGE_BYTES..).zip(staged) {
            self.store.set(block, Block::Page(*page, *version));
        }
        let blocks = headers / PAGE_BYTES + pages as u64;
        self.written.borrow_mut().push_back((blocks, pages as u64));
        Ok(())
    }

    async fn write_flash(&self, offset: u64, buf: Buf) -> Result<(), Errno> {
        let len = buf.len() as u64;
        let buf = done(self.io.ask(FLASH, WRITE, offset, Some(buf), len)).await;
        self.store.write(offset, &buf.ok_or(Errno::EIO)?);
        Ok(())
    }

    async fn flush_flash(&self) -> Result<(), Errno> {
        done(self.io.ask(FLASH, IoKind::Flush, 0, None, 0)).await;
        Ok(())
    }

    async fn hold(&self, page: u64) -> Held {
        while !self.held.borrow_mut().insert(page) {
            self.let_go.wait(&self.io.exec).await;
        }
        let (held, let_go) = (Rc::clone(&self.held), Rc::clone(&self.let_go));
        Held { page, held, let_go, io: Rc::clone(&self.io) }
    }

    async fn write_origin(&self, page: u64, buf: Buf) -> Result<(), Errno> {
        let (number, version) = decode(&buf);
        debug_assert_eq!(number, page);
        self.io.write_disk(page, version).await;
        Ok(())
    }

    async fn zero_origin(&self, _pages: Range<u64>) -> Result<(), Errno> {
        // The database trims nothing.
        Err(Errno::EIO)
    }

    async fn flush_origin(&self) -> Result<(), Errno> {
        done(self.io.ask(DISK, IoKind::Flush, 0, None, 0)).await;
        Ok(())
    }

    fn evicted(&self, _pages: u64) {}

    fn has_tasks(&self) -> bool {
        true
    }

    async fn changed(&self, seen: u64) {
        while self.changes.get() == seen {
            self.waits.wait(&self.io.exec).await;
        }
    }

    fn changes(&self) -> u64 {
        self.changes.get()
    }

    fn notify(&self) {
        self.changes.set(self.changes.get() + 1);
        self.waits.wake(&self.io.exec);
    }

    fn me(&self) -> u64 {
        1
    }

    fn is_gone(&self, _name: u64) -> bool {
        false
    }
}
