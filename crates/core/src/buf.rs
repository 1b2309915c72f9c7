// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page-aligned buffers with one owner at a time.
//!
//! A buffer moves by value: from a front-end to the engine, from the engine into a device operation, and back with its
//! completion. While the kernel may access the memory no other code owns it, so the type enforces design rule 5 (no buffer
//! is reused while an operation on it is in the kernel).
//!
//! Invariants: the memory is aligned to [`PAGE`] bytes and never moves while the `Buf` lives; `len` is at most the capacity,
//! which is whole pages.
//!
//! Why not reference counts: two owners would need a lock. Why not `Vec<u8>`: direct I/O needs the alignment.

use std::cell::RefCell;

/// Bytes in a page: the unit of validity, hit and write-through (SCE 3.4).
pub const PAGE: usize = 4096;

/// Bytes in a sector: the smallest request and the unit of consistency.
pub const SECTOR: usize = 512;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// A page-aligned buffer.
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
/// The most bytes of a class that one thread keeps for reuse: for large buffers, whose page faults take longer than the copy
/// into them, enough for a deep queue.
const fn keep_bytes(class: usize) -> usize {
    if (PAGE << class) < (256 << 10) { 2 << 20 } else { 16 << 20 }
}

thread_local! {
    /// Buffers that this thread dropped; reuse saves page faults.
    static SPARE: RefCell<[Vec<Box<[Page]>>; CLASSES]> = const {
        RefCell::new([const { Vec::new() }; CLASSES])
    };
}

/// The class whose buffers hold `pages`, if there is one.
fn class_of(pages: usize) -> Option<usize> {
    let class = pages.next_power_of_two().trailing_zeros() as usize;
    (class < CLASSES).then_some(class)
}

impl Buf {
    /// A buffer of `len` bytes with unspecified content. It may be old data of this process, so the caller must overwrite
    /// all of it.
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
        // A thread that ends has no pool; its buffers are freed.
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
    fn a_buffer_is_aligned_and_has_the_requested_length() {
        for len in [1, 512, 4096, 4097, 1 << 20, (1 << 20) + 1, 3 << 20] {
            let buf = Buf::with_len(len);
            assert_eq!(buf.len(), len);
            assert_eq!(buf.as_ptr() as usize % PAGE, 0);
        }
    }

    #[test]
    fn a_dropped_buffer_is_reused() {
        let first = Buf::with_len(64 << 10);
        let at = first.as_ptr() as usize;
        drop(first);
        assert_eq!(Buf::with_len(60 << 10).as_ptr() as usize, at);
    }

    #[test]
    fn zeroed_clears_a_reused_buffer() {
        Buf::with_len(PAGE).fill(7);
        assert!(Buf::zeroed(PAGE).iter().all(|b| *b == 0));
    }
}
