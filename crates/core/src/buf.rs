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
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// The size classes kept for reuse: 1, 2, 3 and 4 pages, then four sizes for each doubling up to 256 pages (1 MiB). So a
/// buffer is at most a quarter larger than needed.
const CLASSES: usize = 28;
const MOST_PAGES: usize = 256;
/// Classes of buffers below 256 KiB have a quarter of what a thread keeps. Page faults of larger buffers take longer than the
/// copy into them.
const SMALL_PAGES: usize = 64;

/// Bytes that a thread keeps if it does not set its own limit: enough for a deep queue of large buffers.
static KEPT_BY_DEFAULT: AtomicUsize = AtomicUsize::new(64 << 20);

/// Buffers that a thread dropped; reuse saves page faults.
struct Spare {
    classes: [Vec<Box<[Page]>>; CLASSES],
    /// Bytes of small and of large buffers.
    bytes: [usize; 2],
    most: Option<usize>,
}

thread_local! {
    static SPARE: RefCell<Spare> = const {
        RefCell::new(Spare { classes: [const { Vec::new() }; CLASSES], bytes: [0; 2], most: None })
    };
}

/// The class whose buffers hold `pages`, if there is one, and its pages.
fn class_of(pages: usize) -> Option<(usize, usize)> {
    match pages {
        0 => None,
        1..=4 => Some((pages - 1, pages)),
        5..=MOST_PAGES => {
            let doubling = (pages - 1).ilog2() as usize;
            let step = doubling - 2;
            let quarter = (pages - (1 << doubling)).div_ceil(1 << step);
            Some((4 * step + 3 + quarter, (1 << doubling) + (quarter << step)))
        }
        _ => None,
    }
}

impl Spare {
    fn take(&mut self, class: usize, pages: usize) -> Option<Box<[Page]>> {
        let found = self.classes[class].pop()?;
        self.bytes[usize::from(pages >= SMALL_PAGES)] -= pages * PAGE;
        Some(found)
    }

    fn keep(&mut self, class: usize, pages: Box<[Page]>) {
        let most = self.most.unwrap_or_else(|| KEPT_BY_DEFAULT.load(Ordering::Relaxed));
        let (large, bytes) = (usize::from(pages.len() >= SMALL_PAGES), pages.len() * PAGE);
        let share = if large == 1 { most / 4 * 3 } else { most / 4 };
        // A class that is no longer used must not fill the share.
        while self.bytes[large] + bytes > share {
            let fullest = self.fullest(large == 1);
            if bytes > share || fullest.is_none_or(|fullest| fullest == class) {
                return;
            }
            let freed = fullest.and_then(|fullest| self.classes[fullest].pop());
            self.bytes[large] -= freed.map_or(0, |pages| pages.len() * PAGE);
        }
        self.bytes[large] += bytes;
        self.classes[class].push(pages);
    }

    /// The class of large or of small buffers that has the most bytes.
    fn fullest(&self, large: bool) -> Option<usize> {
        let bytes = |class: &Vec<Box<[Page]>>| {
            let pages = class.first().map_or(0, |first| first.len());
            if (pages >= SMALL_PAGES) == large { pages * class.len() } else { 0 }
        };
        let filled = self.classes.iter().enumerate().map(|(number, class)| (bytes(class), number));
        filled.filter(|(bytes, _)| *bytes > 0).max().map(|(_, number)| number)
    }
}

/// Sets how many bytes each thread keeps that does not set its own limit.
pub fn keep_by_default(bytes: usize) {
    KEPT_BY_DEFAULT.store(bytes, Ordering::Relaxed);
}

/// Sets how many bytes the calling thread keeps for reuse.
pub fn keep_at_most(bytes: usize) {
    SPARE.with_borrow_mut(|spare| spare.most = Some(bytes));
}

/// Bytes that the calling thread keeps for reuse.
#[must_use]
pub fn kept_bytes() -> usize {
    SPARE.with_borrow(|spare| spare.bytes.iter().sum())
}

/// Frees what the calling thread keeps for reuse; returns how many bytes that was.
pub fn release_kept() -> usize {
    SPARE.with_borrow_mut(|spare| {
        spare.classes.iter_mut().for_each(|class| *class = Vec::new());
        std::mem::take(&mut spare.bytes).iter().sum()
    })
}

impl Buf {
    /// A buffer of `len` bytes with unspecified content. It may be old data of this process, so the caller must overwrite
    /// all of it.
    #[must_use]
    pub fn with_len(len: usize) -> Self {
        let (class, count) = match class_of(len.div_ceil(PAGE).max(1)) {
            Some((class, count)) => (Some(class), count),
            None => (None, len.div_ceil(PAGE)),
        };
        let spare = class
            .and_then(|class| SPARE.try_with(|s| s.borrow_mut().take(class, count)).ok().flatten());
        let pages = spare.unwrap_or_else(|| bytemuck::allocation::zeroed_slice_box(count));
        Self { pages, len }
    }

    /// The memory of a buffer of `len` bytes.
    #[must_use]
    pub fn room(len: usize) -> usize {
        let pages = len.div_ceil(PAGE).max(1);
        class_of(pages).map_or(pages, |(_, count)| count) * PAGE
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
        let Some((class, _)) = class_of(pages.len()).filter(|(_, n)| *n == pages.len()) else {
            return;
        };
        // A thread that ends has no pool; its buffers are freed.
        let _ = SPARE.try_with(|s| s.borrow_mut().keep(class, pages));
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
    fn a_buffer_is_at_most_a_quarter_larger_than_needed() {
        let mut last = None;
        for pages in 1..=MOST_PAGES {
            let (class, count) = class_of(pages).unwrap();
            assert!(count >= pages && count * 4 <= pages * 5, "{pages}: {count}");
            assert_eq!(class_of(count), Some((class, count)));
            assert!(last.is_none_or(|last| class == last || class == last + 1) && class < CLASSES);
            last = Some(class);
        }
        assert_eq!((last, class_of(MOST_PAGES + 1)), (Some(CLASSES - 1), None));
        for len in [1, 5000, 257 << 10, 1 << 20, (1 << 20) + 1] {
            assert_eq!(Buf::room(len), Buf::with_len(len).pages.len() * PAGE);
        }
    }

    #[test]
    fn a_thread_keeps_no_more_than_its_limit_and_frees_it() {
        keep_at_most(4 << 20);
        for len in [PAGE, 100 << 10, 257 << 10, 1 << 20] {
            let held: Vec<Buf> = (0..200).map(|_| Buf::with_len(len)).collect();
            drop(held);
            assert!(kept_bytes() <= 4 << 20);
        }
        assert!(kept_bytes() > 2 << 20);
        assert_eq!((release_kept() > 2 << 20, kept_bytes()), (true, 0));
        assert_eq!(Buf::with_len(PAGE).len(), PAGE);
    }

    #[test]
    fn a_size_that_is_used_replaces_one_that_is_no_longer_used() {
        keep_at_most(4 << 20);
        for sizes in [[PAGE, 3 * PAGE], [1 << 20, 257 << 10]] {
            for len in sizes {
                drop((0..300).map(|_| Buf::with_len(len)).collect::<Vec<_>>());
                let kept = kept_bytes();
                let reused = Buf::with_len(len);
                assert!(kept <= 4 << 20 && kept_bytes() < kept, "{} is not reused", reused.len());
            }
        }
        release_kept();
    }

    #[test]
    fn zeroed_clears_a_reused_buffer() {
        Buf::with_len(PAGE).fill(7);
        assert!(Buf::zeroed(PAGE).iter().all(|b| *b == 0));
    }
}
