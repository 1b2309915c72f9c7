// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and writes of relation files, page by page: what of them flash has, what the disk; and advice on reads to come.
//!
//! A read into shared buffers: each frame's old page leaves it, then the new one comes from the kernel's page cache if flash
//! has no newer version, else from flash, else with its neighbours in one read from the disk. Any other read goes to the
//! disk, and gets what flash has that is newer.
//!
//! A write of whole pages below the end of a file goes to flash, if that takes changed pages. Any other one: begin each
//! page, write the disk, end each. A write that is not of whole pages ends none, so they are not on flash.
#![allow(unsafe_code)]

use std::ops::{Deref, Range};
use std::os::fd::{BorrowedFd, RawFd};
use std::slice;
use std::time::Instant;

use larder_core::buf::Buf;
use larder_core::pagelog::Latest;
use larder_core::request::Errno;
use larder_shared::Locked;
use libc::{iovec, off_t, ssize_t};

use crate::error::Failure;
use crate::file::{File, Fork};
use crate::frame;
use crate::here::{self, Armed};
use crate::mutant::{Mutant, is_active};
use crate::near;
use crate::pool::{Pool, Use, Writing};
use crate::process::MayFail;
use crate::tally::Operation;

/// Parts of a transfer that the kernel takes at most.
const PARTS_MOST: usize = 1024;
/// Pages that the page cache is asked for together. Few, so that no memory is allocated for them.
const NEAR_MOST: usize = 16;
const NO_PART: iovec = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
/// Pages of an advice that are looked up; more go to the disk as they are.
const ADVICE_MOST: off_t = 1024;

/// A segment's part, in whole pages.
struct Span {
    fork: Fork,
    segment: u32,
    first: u64,
}

fn bytes_of(parts: &[iovec]) -> usize {
    parts.iter().fold(0_usize, |all, part| all.saturating_add(part.iov_len))
}

/// Where a transfer of whole pages lies.
fn span(armed: &Armed, fd: RawFd, parts: &[iovec], at: off_t) -> Option<Span> {
    let File::Segment(fork, segment) = here::file(fd) else { return None };
    let at = usize::try_from(at).ok()?;
    let page = armed.page_bytes;
    let whole = |len: usize| len.is_multiple_of(page);
    (whole(at) && parts.iter().all(|p| whole(p.iov_len) && p.iov_len > 0) && !parts.is_empty())
        .then_some(Span { fork, segment, first: (at / page) as u64 })
}

/// Addresses of the pages that the parts are.
fn pages_of(armed: &Armed, parts: &[iovec]) -> impl Iterator<Item = usize> {
    let of = |part: &iovec| {
        let start = part.iov_base as usize;
        (start..start + part.iov_len).step_by(armed.page_bytes)
    };
    parts.iter().flat_map(of)
}

/// # Safety
/// As `preadv`.
pub unsafe fn read(fd: RawFd, parts: &[iovec], at: off_t) -> ssize_t {
    // SAFETY: the caller guarantees it.
    let real = || unsafe { libc::preadv(fd, parts.as_ptr(), parts.len() as i32, at) };
    if !matches!(here::file(fd), File::Segment(..)) || !here::is_armed() {
        return real();
    }
    let _may_fail = MayFail::read();
    let plan = here::with(|armed, pool| {
        let span = span(armed, fd, parts, at).filter(|_| pool.works())?;
        let page_bytes = armed.page_bytes;
        let are_frames =
            |part: &iovec| armed.are_frames(part.iov_base as usize, part.iov_len / page_bytes);
        if !parts.iter().all(are_frames) {
            return None;
        }
        let slots = pages_of(armed, parts).enumerate().map(|(i, address)| {
            let frame = armed.frame(address)?;
            let page = pool.page(&span.fork, pool.block(span.segment, span.first + i as u64));
            // SAFETY: all of a frame, which `Armed::frame` found; shared buffers are mapped and writable.
            let how = pool.leaves(frame, page, || unsafe { frame::copy(address, page_bytes) });
            let epoch = page.map_or(0, |page| pool.epoch(page));
            let latest = page.map_or(Some(Latest::Origin), |page| pool.begin_read(page, how));
            Some(Slot { frame, address, page, how, epoch, latest, hit: false })
        });
        let mut slots = slots.collect::<Option<Vec<Slot>>>()?;
        // SAFETY: the slots are frames, which no other process uses until this read is done.
        let done = unsafe { read_cached(armed, pool, fd, &mut slots, at) };
        Some(done.map(|()| (slots, page_bytes)))
    });
    match plan.flatten() {
        // SAFETY: the caller guarantees it.
        Some(Ok((mut slots, page_bytes))) => unsafe { read_missed(fd, &mut slots, page_bytes, at) },
        Some(Err(errno)) => refuse(errno),
        // SAFETY: the caller guarantees it.
        None => unsafe { read_around(fd, parts, at, real) },
    }
}

/// A read into private memory: the bytes of the disk, replaced by those of flash where flash has the page. Flash is
/// searched before the disk is read: a page that is evicted meanwhile is on the disk, and one that is admitted is newer.
///
/// # Safety
/// As `preadv`.
unsafe fn read_around(
    fd: RawFd,
    parts: &[iovec],
    at: off_t,
    real: impl Fn() -> ssize_t,
) -> ssize_t {
    let File::Segment(fork, segment) = here::file(fd) else { return real() };
    let newer = here::with(|armed, pool| {
        let (size, start) = (armed.page_bytes as u64, at.max(0) as u64);
        let first = pool.block(segment, 0);
        let end = (start + bytes_of(parts) as u64).div_ceil(size);
        let found = pool.newer(&fork, first + start / size..first + end)?.into_iter();
        Ok(found.map(|(block, bytes)| ((block - first) * size, bytes)).collect::<Vec<_>>())
    });
    let newer = match newer.transpose() {
        Ok(newer) => newer,
        Err(errno) => return refuse(errno),
    };
    let got = real();
    let end = at.max(0) as u64 + got.max(0) as u64;
    let mut from = at.max(0) as u64;
    for part in parts {
        for (first, bytes) in newer.iter().flatten() {
            let both = from.max(*first)
                ..end.min(from + part.iov_len as u64).min(first + bytes.len() as u64);
            if both.start < both.end {
                let source = (both.start - first) as usize..(both.end - first) as usize;
                let at = part.iov_base as usize + (both.start - from) as usize;
                // SAFETY: within the caller's part, which nothing else uses until this read is done.
                let target = unsafe { slice::from_raw_parts_mut(at as *mut u8, source.len()) };
                target.copy_from_slice(&bytes[source]);
            }
        }
        from += part.iov_len as u64;
    }
    got
}

/// A page of a read.
struct Slot {
    frame: usize,
    address: usize,
    page: Option<u64>,
    how: Use,
    epoch: u64,
    latest: Option<Latest>,
    hit: bool,
}

impl Slot {
    fn part(&self, page_bytes: usize) -> iovec {
        iovec { iov_base: self.address as *mut _, iov_len: page_bytes }
    }

    /// The frame has the page's bytes now.
    ///
    /// # Safety
    /// No other process uses the frame.
    unsafe fn filled(&mut self, pool: &Pool, page_bytes: usize) {
        self.hit = true;
        if let Some(page) = self.page {
            // SAFETY: all of a frame, which `Armed::frame` found; shared buffers are mapped.
            let bytes = unsafe { slice::from_raw_parts(self.address as *const u8, page_bytes) };
            pool.filled(self.frame, page, self.how, self.epoch, bytes);
        }
    }
}

/// Reads what no disk is needed for: from the page cache what it has and flash has no newer version of, else from flash.
///
/// # Safety
/// No other process uses the slots' frames.
///
/// # Errors
/// If the process is to stop.
unsafe fn read_cached(
    armed: &Armed,
    pool: &Pool,
    fd: RawFd,
    slots: &mut [Slot],
    at: off_t,
) -> Result<(), Errno> {
    // SAFETY: the caller guarantees it.
    unsafe { read_near(armed, pool, fd, slots, at) };
    let asks = |slot: &Slot| match slot.latest {
        Some(Latest::Origin) => false,
        Some(_) => true,
        None => !pool.is_overdue(),
    };
    let with_page = |slot| -> Option<(_, &mut Slot)> {
        let slot: &mut Slot = slot;
        Some(((slot.page?, slot.how), slot))
    };
    let wanted = slots.iter_mut().filter(|slot| !slot.hit && asks(slot)).filter_map(with_page);
    let (pages, wanted): (Vec<(u64, Use)>, Vec<&mut Slot>) = wanted.unzip();
    for (slot, bytes) in wanted.into_iter().zip(pool.fetch(&pages)?) {
        let Some(bytes) = bytes else { continue };
        // SAFETY: all of a frame; the caller guarantees that no other process uses it.
        unsafe {
            slice::from_raw_parts_mut(slot.address as *mut u8, armed.page_bytes)
                .copy_from_slice(&bytes);
            slot.filled(pool, armed.page_bytes);
        }
    }
    Ok(())
}

/// Reads from the page cache what it has and flash has no newer version of.
///
/// # Safety
/// No other process uses the slots' frames.
unsafe fn read_near(armed: &Armed, pool: &Pool, fd: RawFd, slots: &mut [Slot], at: off_t) {
    let page_bytes = armed.page_bytes;
    let on_disk = |slot: &&Slot| slot.latest != Some(Latest::Log) && !armed.direct;
    let mut next = 0;
    while next < slots.len() {
        let run = slots[next..].iter().take_while(on_disk).take(NEAR_MOST).count();
        let mut parts = [NO_PART; NEAR_MOST];
        for (part, slot) in parts.iter_mut().zip(&slots[next..next + run]) {
            *part = slot.part(page_bytes);
        }
        let from = at + (next * page_bytes) as off_t;
        // SAFETY: the caller guarantees it.
        let got = unsafe { near::read(fd, &parts[..run], page_bytes, from) };
        for slot in &mut slots[next..next + got] {
            if let (Some(Latest::Both), Some(page)) = (slot.latest, slot.page) {
                pool.was_near(page);
            }
            // SAFETY: the caller guarantees it.
            unsafe { slot.filled(pool, page_bytes) };
        }
        // The page after them is not there, or is newer on flash.
        next += got + usize::from(run == 0 || got < run);
    }
}

/// Reads what flash did not have; as many bytes as are there without a hole.
///
/// # Safety
/// As `preadv`, of the slots' addresses.
unsafe fn read_missed(fd: RawFd, slots: &mut [Slot], page_bytes: usize, at: off_t) -> ssize_t {
    let mut done = 0;
    while done < slots.len() {
        if slots[done].hit {
            done += 1;
            continue;
        }
        let missed = slots[done..].iter().take_while(|s| !s.hit).take(PARTS_MOST).count();
        let run = &mut slots[done..done + missed];
        let parts: Vec<iovec> = run.iter().map(|slot| slot.part(page_bytes)).collect();
        let from = at + (done * page_bytes) as off_t;
        let begin = Instant::now();
        // SAFETY: the caller guarantees it.
        let got = unsafe { libc::preadv(fd, parts.as_ptr(), parts.len() as i32, from) };
        let time = begin.elapsed();
        if got < 0 {
            return if done == 0 { got } else { (done * page_bytes) as ssize_t };
        }
        let whole = got as usize / page_bytes;
        here::with(|_, pool| {
            pool.area().tally().took(Operation::DiskRead, got as u64, time);
            // SAFETY: no other process uses the frames until this read is done.
            run[..whole].iter_mut().for_each(|slot| unsafe { slot.filled(pool, page_bytes) });
        });
        if whole < missed {
            return (done * page_bytes) as ssize_t + got;
        }
        done += missed;
    }
    (slots.len() * page_bytes) as ssize_t
}

/// A hint that the server will read this soon (from recovery and bitmap scans). The kernel gets it only for the pages that
/// flash lacks: a read of the others would be useless.
pub fn will_need(
    file: File,
    at: off_t,
    length: off_t,
    advise: impl Fn(off_t, off_t) -> i32,
) -> i32 {
    let File::Segment(fork, segment) = file else { return advise(at, length) };
    let lacking = here::with(|armed, pool| {
        let size = armed.page_bytes as off_t;
        let whole = at >= 0 && at % size == 0 && length > 0 && length % size == 0;
        if !whole || length / size > ADVICE_MOST || !pool.works() {
            return None;
        }
        let first = pool.block(segment, (at / size) as u64);
        let runs = pool.lacks(&fork, first..first + (length / size) as u64);
        let place = |run: Range<u64>| {
            (at + (run.start - first) as off_t * size, (run.end - run.start) as off_t * size)
        };
        Some(runs.into_iter().map(place).collect::<Vec<_>>())
    });
    let runs = lacking.flatten().unwrap_or_else(|| vec![(at, length)]);
    runs.into_iter().map(|(at, length)| advise(at, length)).find(|error| *error != 0).unwrap_or(0)
}

/// The bytes of a part of a write.
enum Bytes<'a> {
    /// In the process's own memory.
    Own(&'a [u8]),
    /// A copy of a frame.
    Copied(Buf),
}

impl Deref for Bytes<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Copied(bytes) => bytes,
        }
    }
}

/// The decision about a write.
enum Plan {
    /// Flash has it.
    Absorbed,
    /// Write the disk; then report the pages to the cache, and release the locks that keep others from these pages.
    Direct(Option<Vec<Option<Writing>>>, Vec<Locked>),
    /// Nothing may be done.
    Refused(Failure),
}

/// # Safety
/// As `pwritev`.
pub unsafe fn write(fd: RawFd, parts: &[iovec], at: off_t) -> ssize_t {
    // SAFETY: the caller guarantees it.
    let real =
        |parts: &[iovec]| unsafe { libc::pwritev(fd, parts.as_ptr(), parts.len() as i32, at) };
    if !matches!(here::file(fd), File::Segment(..)) || !here::is_armed() {
        return real(parts);
    }
    let _may_fail = MayFail::new();
    // Other processes may set hints in a frame while it is written. The disk and flash must get the same bytes.
    let mut copies: Vec<Bytes<'_>> = Vec::with_capacity(parts.len());
    let plan = here::with(|armed, pool| {
        for part in parts {
            let (at, len) = (part.iov_base as usize, part.iov_len);
            // SAFETY: the caller's part, so many bytes long: in shared buffers, or its own.
            copies.push(unsafe {
                match armed.frame(at) {
                    Some(_) => Bytes::Copied(frame::copy(at, len)),
                    None => Bytes::Own(slice::from_raw_parts(at as *const u8, len)),
                }
            });
        }
        (plan(armed, pool, fd, &copies, at), armed.page_bytes)
    });
    let part = |copy: &Bytes<'_>| iovec { iov_base: copy.as_ptr() as *mut _, iov_len: copy.len() };
    let Some((plan, page_bytes)) = plan else { return real(parts) };
    let parts: Vec<iovec> = copies.iter().map(part).collect();
    let (begun, holds) = match plan {
        Plan::Absorbed => return bytes_of(&parts) as ssize_t,
        Plan::Refused(failure) => return refuse(failure.errno()),
        Plan::Direct(begun, holds) => (begun, holds),
    };
    let written = real(&parts);
    let whole = written == bytes_of(&parts) as ssize_t;
    here::with(|_, pool| {
        let pages = copies.iter().flat_map(|copy| copy.chunks(page_bytes));
        for (writing, bytes) in begun.filter(|_| whole).into_iter().flatten().zip(pages) {
            if let Some(writing) = writing {
                pool.end_write(writing, bytes);
            }
        }
        // A process that holds a page must not make room.
        drop(holds);
        pool.make_room();
    });
    written
}

/// Takes a write, or begins it.
fn plan(armed: &Armed, pool: &Pool, fd: RawFd, copies: &[Bytes<'_>], at: off_t) -> Plan {
    let page_bytes = armed.page_bytes as u64;
    let File::Segment(fork, segment) = here::file(fd) else {
        return Plan::Direct(None, Vec::new());
    };
    let start = at.max(0) as u64;
    let end = start + copies.iter().map(|copy| copy.len() as u64).sum::<u64>();
    let is_whole = |n: u64| n.is_multiple_of(page_bytes);
    let whole = is_whole(start) && copies.iter().all(|copy| is_whole(copy.len() as u64));
    let blocks = start / page_bytes..end.div_ceil(page_bytes);
    let pages = |block| pool.page(&fork, pool.block(segment, block));
    let numbered: Vec<Option<u64>> = blocks.map(pages).collect();
    let all: Option<Vec<u64>> = numbered.iter().copied().collect();
    let absorbs = match pool.absorbs() {
        Ok(absorbs) => {
            absorbs && whole && (end <= size_of_file(fd) || is_active(Mutant::AbsorbsEnd))
        }
        Err(failure) => return Plan::Refused(failure),
    };
    if let Some(all) = all.filter(|_| absorbs) {
        let bytes = copies.iter().flat_map(|copy| copy.chunks(armed.page_bytes));
        // If flash takes one of them only, the disk takes all, and those that flash has are dropped there.
        let mut taken = all.into_iter().zip(bytes).map(|(page, bytes)| pool.absorb(page, bytes));
        match taken.find(|taken| *taken != Ok(true)) {
            None => return Plan::Absorbed,
            Some(Err(failure)) if failure.is_abandoned() && !failure.is_overdue() => {
                return Plan::Refused(failure);
            }
            // Returns only if the disk suffices.
            Some(Err(failure)) => pool.fail(failure),
            Some(Ok(_)) => {}
        }
    }
    // What is covered in part stays in part what it was.
    if !whole && let Err(failure) = pool.settle(&fork, segment) {
        return Plan::Refused(failure);
    }
    let cleared = numbered.iter().flatten().try_for_each(|page| pool.clear(*page));
    if let Err(failure) = cleared {
        pool.fail(failure);
        return Plan::Refused(failure);
    }
    let holds = pool.hold(&numbered.iter().flatten().copied().collect::<Vec<u64>>());
    let before_end = || size_of_file(fd).saturating_sub(start) / page_bytes;
    let begin = |page: Option<u64>| match page.map(|page| pool.begin_write(page, whole, before_end))
    {
        None => Ok(None),
        Some(Ok(writing)) => Ok(Some(writing)),
        // The log still has the old version.
        Some(Err(failure)) if failure.is_abandoned() => Err(failure),
        Some(Err(failure)) => {
            pool.fail(failure);
            Ok(None)
        }
    };
    match numbered.into_iter().map(begin).collect::<Result<Vec<_>, Failure>>() {
        Ok(begun) => Plan::Direct(whole.then_some(begun), holds),
        Err(failure) => Plan::Refused(failure),
    }
}

/// The result of a call that failed before it began.
pub fn refuse<T: From<i8>>(errno: Errno) -> T {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = errno.0 };
    T::from(-1)
}

fn size_of_file(fd: RawFd) -> u64 {
    // SAFETY: the server's own descriptor, open for the time of its call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::fs::fstat(fd).map_or(0, |stat| stat.st_size as u64)
}

/// A file is about to be truncated to a length, or to be dropped (0). Nothing is written to it until the result is
/// dropped.
#[must_use]
pub fn forget(file: File, length: off_t) -> Option<Vec<Locked>> {
    let File::Segment(fork, segment) = file else { return None };
    here::with(|armed, pool| {
        let from = length.max(0) as u64 / armed.page_bytes as u64;
        let on_disk = || armed.blocks_of(&fork, segment);
        let forgotten = pool.forget(&fork, segment, from, &on_disk);
        forgotten.inspect_err(|failure| pool.fail(*failure)).ok()
    })
    .flatten()
}

/// All of a file may change.
pub fn forget_all(file: File) {
    let File::Segment(fork, segment) = file else { return };
    let or_fail = |pool: &Pool, done: Result<(), Failure>| {
        if let Err(failure) = done {
            pool.fail(failure);
        }
    };
    here::with(|_, pool| or_fail(pool, pool.settle(&fork, segment)));
    drop(forget(file, 0));
    here::with(|_, pool| or_fail(pool, pool.commit_names()));
}

/// Writes all dirty pages of a file from flash to the disk.
pub fn settle(file: File) -> Result<(), Errno> {
    let File::Segment(fork, segment) = file else { return Ok(()) };
    here::with(|_, pool| pool.settle(&fork, segment)).unwrap_or(Ok(())).map_err(Failure::errno)
}
