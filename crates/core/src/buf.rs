// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page-aligned buffers that are owned by exactly one party at a time.
//!
//! Purpose: the memory that travels with an operation. A buffer moves by value: from a front to
//! the engine, from the engine into a device operation, and back with its completion. While the
//! kernel may touch the memory nobody else can hold it, so design rule 5 (no buffer is reused
//! while an operation on it is in the kernel) is kept by the type, not by care.
//!
//! Invariants: the memory is aligned to [`PAGE`] bytes and never moves while the `Buf` lives;
//! `len` is at most the capacity, which is whole pages.
//!
//! Why not reference counts: two owners would need a lock or a promise not to write. Why not
//! `Vec<u8>`: direct I/O wants the alignment.

use std::cell::RefCell;

/// Bytes in a page: the unit of validity, hit and write-through (SCE 3.4).
pub const PAGE: usize = 4096;

/// Bytes in a sector: the smallest request and the grain of consistency.
pub const SECTOR: usize = 512;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// A page-aligned buffer, see the module.
pub struct Buf {
    pages: Box<[Page]>,
    len: usize,
}

impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buf({} bytes)", self.len)
    }
}

/// The size classes kept for reuse: 1, 2, 4 .. 256 pages (4 KiB to 1 MiB).
const CLASSES: usize = 9;
/// How many bytes of a class one thread keeps for reuse at the most: of the large ones, whose
/// page faults cost more than the copy into them, a deep queue's worth.
const fn keep_bytes(class: usize) -> usize {
    if (PAGE << class) < (256 << 10) { 2 << 20 } else { 16 << 20 }
}

thread_local! {
    /// Buffers given back on this thread; reusing them saves page faults, most of all for the
    /// large ones.
    static SPARE: RefCell<[Vec<Box<[Page]>>; CLASSES]> = const {
        RefCell::new([const { Vec::new() }; CLASSES])
    };
}

/// The class whose buffers hold `pages`, if any does.
fn class_of(pages: usize) -> Option<usize> {
    let class = pages.next_power_of_two().trailing_zeros() as usize;
    (class < CLASSES).then_some(class)
}

impl Buf {
    /// A buffer of `len` bytes whose content is unspecified (old bytes of this process, so a
    /// caller overwrites all of it before anybody else sees it).
    #[must_use]
    pub fn with_len(len: usize) -> Self {
        let pages = len.div_ceil(PAGE).max(1);
        let spare = class_of(pages)
            .and_then(|c| SPARE.try_with(|s| s.borrow_mut()[c].pop()).ok().flatten());
        let pages = spare.unwrap_or_else(|| {
            let count = class_of(pages).map_or(pages, |c| 1 << c);
            bytemuck::allocation::zeroed_slice_box(count)
        });
        Self { pages, len }
    }

    /// A buffer of `len` zero bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let mut buf = Self::with_len(len);
        buf.fill(0);
        buf
    }

    /// A buffer that holds a copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = Self::with_len(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }
}

impl std::ops::Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.pages)[..self.len]
    }
}

impl std::ops::DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.pages)[..self.len]
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        let pages = std::mem::take(&mut self.pages);
        let Some(class) = class_of(pages.len()).filter(|c| pages.len() == 1 << c) else { return };
        // A thread that is ending has no pool any more; its buffers are simply freed.
        let _ = SPARE.try_with(|s| {
            let spare = &mut s.borrow_mut()[class];
            if spare.len() * (PAGE << class) < keep_bytes(class) {
                spare.push(pages);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_and_of_the_asked_length() {
        for len in [1, 512, 4096, 4097, 1 << 20, (1 << 20) + 1, 3 << 20] {
            let buf = Buf::with_len(len);
            assert_eq!(buf.len(), len);
            assert_eq!(buf.as_ptr() as usize % PAGE, 0);
        }
    }

    #[test]
    fn a_buffer_given_back_is_used_again() {
        let first = Buf::with_len(64 << 10);
        let at = first.as_ptr() as usize;
        drop(first);
        assert_eq!(Buf::with_len(60 << 10).as_ptr() as usize, at);
    }

    #[test]
    fn zeroed_forgets_what_a_reused_buffer_held() {
        Buf::with_len(PAGE).fill(7);
        assert!(Buf::zeroed(PAGE).iter().all(|b| *b == 0));
    }
}
