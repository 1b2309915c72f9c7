// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and writes of relation files, page by page: what of them flash has, what the disk.
//!
//! A read into shared buffers: each frame's old page leaves it, then the new one comes from flash, or with its
//! neighbours in one read from the disk. Any other read goes to the disk, which has everything. A write of whole pages:
//! begin each, write the disk, end each. A write that is not of whole pages begins the pages that it touches, and
//! ends none, so they are not on flash.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::os::fd::RawFd;

use libc::{iovec, off_t, ssize_t};

use crate::file::{File, Fork};
use crate::here::{self, Armed};
use crate::pool::{Pool, Writing};

/// Parts of a transfer that the kernel takes at most.
const PARTS_MOST: usize = 1024;

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
fn pages_of(armed: &Armed, parts: &[iovec]) -> Vec<usize> {
    let of = |part: &iovec| {
        let start = part.iov_base as usize;
        (start..start + part.iov_len).step_by(armed.page_bytes)
    };
    parts.iter().flat_map(of).collect()
}

/// # Safety
/// As `preadv`.
pub unsafe fn read(fd: RawFd, parts: &[iovec], at: off_t) -> ssize_t {
    // SAFETY: as the caller says.
    let real = || unsafe { libc::preadv(fd, parts.as_ptr(), parts.len() as i32, at) };
    if here::file(fd) == File::Other {
        return real();
    }
    let plan = here::with(|armed, pool| {
        let span = span(armed, fd, parts, at).filter(|_| pool.works())?;
        let addresses = pages_of(armed, parts);
        let frames: Option<Vec<usize>> = addresses.iter().map(|a| armed.frame(*a)).collect();
        let page_bytes = armed.page_bytes;
        let slots = frames?.into_iter().zip(addresses).enumerate().map(|(i, (frame, address))| {
            // SAFETY: a frame of shared buffers, which nobody else uses until this read is done.
            let bytes = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, page_bytes) };
            pool.leaves(frame, bytes);
            let page = pool.page(&span.fork, pool.block(span.segment, span.first + i as u64));
            let epoch = page.map_or(0, |page| pool.epoch(page));
            let hit = page.is_some_and(|page| pool.fetch(page, bytes));
            if let Some(page) = page.filter(|_| hit) {
                pool.filled(frame, page, epoch, bytes);
            }
            Slot { frame, address, page, epoch, hit }
        });
        Some((slots.collect::<Vec<_>>(), page_bytes))
    });
    match plan.flatten() {
        // SAFETY: as the caller says.
        Some((slots, page_bytes)) => unsafe { read_missed(fd, &slots, page_bytes, at) },
        None => real(),
    }
}

/// A page of a read.
struct Slot {
    frame: usize,
    address: usize,
    page: Option<u64>,
    epoch: u64,
    hit: bool,
}

/// Reads what flash did not have; as many bytes as are there without a hole.
///
/// # Safety
/// As `preadv`, of the slots' addresses.
unsafe fn read_missed(fd: RawFd, slots: &[Slot], page_bytes: usize, at: off_t) -> ssize_t {
    let mut done = 0;
    while done < slots.len() {
        if slots[done].hit {
            done += 1;
            continue;
        }
        let missed = slots[done..].iter().take_while(|s| !s.hit).take(PARTS_MOST).count();
        let run = &slots[done..done + missed];
        let part = |s: &Slot| iovec { iov_base: s.address as *mut _, iov_len: page_bytes };
        let parts: Vec<iovec> = run.iter().map(part).collect();
        let from = at + (done * page_bytes) as off_t;
        // SAFETY: as the caller says.
        let got = unsafe { libc::preadv(fd, parts.as_ptr(), parts.len() as i32, from) };
        if got < 0 {
            return if done == 0 { got } else { (done * page_bytes) as ssize_t };
        }
        let whole = got as usize / page_bytes;
        here::with(|_, pool| {
            for slot in &run[..whole] {
                // SAFETY: a frame of shared buffers, which nobody else uses until this read is done.
                let bytes =
                    unsafe { std::slice::from_raw_parts(slot.address as *const u8, page_bytes) };
                if let Some(page) = slot.page {
                    pool.filled(slot.frame, page, slot.epoch, bytes);
                }
            }
        });
        if whole < missed {
            return (done * page_bytes) as ssize_t + got;
        }
        done += missed;
    }
    (slots.len() * page_bytes) as ssize_t
}

/// # Safety
/// As `pwritev`.
pub unsafe fn write(fd: RawFd, parts: &[iovec], at: off_t) -> ssize_t {
    let file = here::file(fd);
    // SAFETY: as the caller says.
    let real =
        |parts: &[iovec]| unsafe { libc::pwritev(fd, parts.as_ptr(), parts.len() as i32, at) };
    let File::Segment(..) = file else { return real(parts) };
    if !here::is_armed() {
        return real(parts);
    }
    // Others may set hints in a frame while it is written: what is written and what enters are to be the same.
    let mut copies: Vec<Cow<'_, [u8]>> = Vec::with_capacity(parts.len());
    let begun = here::with(|armed, pool| {
        for part in parts {
            // SAFETY: the caller's part, so many bytes long.
            let bytes =
                unsafe { std::slice::from_raw_parts(part.iov_base as *const u8, part.iov_len) };
            let shared = armed.frame(part.iov_base as usize).is_some();
            copies.push(if shared { Cow::Owned(bytes.to_vec()) } else { Cow::Borrowed(bytes) });
        }
        let begun = begin(armed, pool, fd, parts, at);
        (begun, armed.page_bytes)
    });
    let Some((begun, page_bytes)) = begun else {
        // This process is in the cache already, in a handler; nobody can be told page by page.
        forget_all(file);
        return real(parts);
    };
    let part =
        |copy: &Cow<'_, [u8]>| iovec { iov_base: copy.as_ptr() as *mut _, iov_len: copy.len() };
    let parts: Vec<iovec> = copies.iter().map(part).collect();
    let written = real(&parts);
    if let Some(begun) = begun.filter(|_| written == bytes_of(&parts) as ssize_t) {
        here::with(|_, pool| {
            let pages = copies.iter().flat_map(|copy| copy.chunks(page_bytes));
            for (writing, bytes) in begun.into_iter().zip(pages) {
                if let Some(writing) = writing.filter(|_| pool.works()) {
                    pool.end_write(writing, bytes);
                }
            }
        });
    }
    written
}

/// Begins the pages of a write; those that can be ended, if it is of whole pages.
fn begin(
    armed: &Armed,
    pool: &Pool,
    fd: RawFd,
    parts: &[iovec],
    at: off_t,
) -> Option<Vec<Option<Writing>>> {
    let page_bytes = armed.page_bytes as u64;
    let File::Segment(fork, segment) = here::file(fd) else { return None };
    let at_byte = at.max(0) as u64;
    let end = at_byte + bytes_of(parts) as u64;
    let blocks = at_byte / page_bytes..end.div_ceil(page_bytes);
    let begun = blocks.map(|block| {
        let page = pool.page(&fork, pool.block(segment, block))?;
        let writing = pool.begin_write(page);
        writing.inspect_err(|errno| pool.fail(*errno, "a page cannot be dropped")).ok()
    });
    let begun: Vec<_> = begun.collect();
    span(armed, fd, parts, at).map(|_| begun)
}

/// A file is about to be cut to a length, or to vanish (0).
pub fn forget(file: File, length: off_t) {
    let File::Segment(fork, segment) = file else { return };
    here::with(|armed, pool| {
        let from = length.max(0) as u64 / armed.page_bytes as u64;
        // However long it is: pages behind its end are not in the log, and looking for them costs little.
        let blocks = armed.segment_blocks;
        if let Err(errno) = pool.forget(&fork, segment, from, blocks) {
            pool.fail(errno, "pages cannot be dropped");
        }
    });
}

/// A file was made: whatever had its name is no more.
pub fn forget_new(file: File) {
    forget(file, 0);
}

/// All of the fork that a file is of may change.
pub fn forget_all(file: File) {
    let File::Segment(fork, _) = file else { return };
    forget(File::Segment(fork, 0), 0);
}
