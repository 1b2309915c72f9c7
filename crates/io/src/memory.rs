// SPDX-License-Identifier: MIT OR Apache-2.0
//! The allocator of the program: buffers are mappings of their own.
//!
//! Purpose: memory of buffers that are freed returns to the system at once. The C library would keep it: it returns unused
//! parts of its heap with `MADV_DONTNEED`, which fails on locked memory (see `process.rs`), and it raises the size from which
//! it maps memory to that of the largest buffer.
//!
//! Invariants: only allocations with the alignment of a page, which are those of `larder_core::buf`, are mappings; workers
//! keep such buffers for reuse. All others are the C library's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;

use larder_core::buf::PAGE;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap, munmap};

/// The allocator of a program that serves.
pub struct Allocator;

fn is_mapping(layout: Layout) -> bool {
    layout.align() == PAGE && rustix::param::page_size() == PAGE
}

#[allow(unsafe_code)]
fn map(bytes: usize) -> *mut u8 {
    let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new private mapping at an address that the kernel chooses aliases nothing.
    unsafe { mmap_anonymous(null_mut(), bytes, rights, flags) }.map_or(null_mut(), <*mut _>::cast)
}

// SAFETY: a mapping has at least the requested bytes, is aligned to a page and overlaps no other memory. Whether memory is
// a mapping depends on its layout only, so it is freed the way in which it was allocated. Nothing here unwinds.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_mapping(layout) {
            return map(layout.size());
        }
        // SAFETY: the caller's promise is that of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_mapping(layout) {
            return map(layout.size());
        }
        // SAFETY: the caller's promise is that of the system's allocator.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if is_mapping(layout) {
            // SAFETY: the mapping is as long as the layout, and the caller no longer uses it. A failure leaks it.
            let _ = unsafe { munmap(at.cast(), layout.size()) };
            return;
        }
        // SAFETY: it was allocated by the system's allocator with this layout.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if !is_mapping(layout) {
            // SAFETY: it was allocated by the system's allocator with this layout; the caller promises the rest.
            return unsafe { System.realloc(at, layout, bytes) };
        }
        // SAFETY: the mapping is as long as the layout, and the caller no longer uses the old address if this succeeds.
        let new = unsafe { mremap(at.cast(), layout.size(), bytes, MremapFlags::MAYMOVE) };
        new.map_or(null_mut(), <*mut _>::cast)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of this process that are in memory.
    fn resident() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse().unwrap()
    }

    #[test]
    #[allow(unsafe_code)]
    fn freed_buffers_return_to_the_system_and_others_are_the_c_librarys() {
        // More than tests beside this one use.
        let layout = Layout::from_size_align(256 << 20, PAGE).unwrap();
        let before = resident();
        // SAFETY: the layout has a size; the memory is written within its size and freed once, with its layout.
        unsafe {
            let at = Allocator.alloc_zeroed(layout);
            assert!(!at.is_null() && at.addr().is_multiple_of(PAGE));
            assert!(at.read() == 0 && at.add(layout.size() - 1).read() == 0);
            at.write_bytes(7, layout.size());
            assert!(resident() >= before + (192 << 20) / PAGE);
            let at = Allocator.realloc(at, layout, layout.size() / 2);
            assert_eq!(at.add(layout.size() / 2 - 1).read(), 7);
            Allocator.dealloc(at, Layout::from_size_align(128 << 20, PAGE).unwrap());
            let word = Layout::new::<u64>();
            let at = Allocator.alloc(word);
            at.cast::<u64>().write(1);
            Allocator
                .dealloc(Allocator.realloc(at, word, 64), Layout::from_size_align(64, 8).unwrap());
        }
        assert!(resident() < before + (64 << 20) / PAGE);
    }
}
