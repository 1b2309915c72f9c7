// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes in the server's shared memory: frames of shared buffers, and buffers of its log.
//!
//! Other processes may change them meanwhile (hints in a page that is written, records behind the end of the log), so no
//! reference may point there: a reference promises that nothing changes. Bytes are copied with atomic loads and stores.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

use larder_core::buf::Buf;

const WORD: usize = size_of::<u64>();

/// A copy of `len` bytes.
///
/// # Safety
/// So many bytes from `at` on are mapped and writable.
#[must_use]
pub unsafe fn copy(at: usize, len: usize) -> Buf {
    let mut buf = Buf::with_len(len);
    let words = if at.is_multiple_of(WORD) { len / WORD } else { 0 };
    for (i, chunk) in buf.chunks_exact_mut(WORD).take(words).enumerate() {
        // SAFETY: mapped by the caller's contract, and aligned.
        let word = unsafe { AtomicU64::from_ptr((at as *mut u64).add(i)) };
        chunk.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
    }
    for (i, byte) in buf.iter_mut().enumerate().skip(words * WORD) {
        // SAFETY: mapped by the caller's contract.
        *byte = unsafe { AtomicU8::from_ptr((at as *mut u8).add(i)) }.load(Relaxed);
    }
    buf
}

/// Copies bytes there.
///
/// # Safety
/// So many bytes from `at` on are mapped and writable.
pub unsafe fn fill(at: usize, bytes: &[u8]) {
    let words = if at.is_multiple_of(WORD) { bytes.len() / WORD } else { 0 };
    for (i, chunk) in bytes.chunks_exact(WORD).take(words).enumerate() {
        // SAFETY: mapped by the caller's contract, and aligned.
        let word = unsafe { AtomicU64::from_ptr((at as *mut u64).add(i)) };
        word.store(u64::from_ne_bytes(chunk.try_into().unwrap_or_default()), Relaxed);
    }
    for (i, byte) in bytes.iter().enumerate().skip(words * WORD) {
        // SAFETY: mapped by the caller's contract.
        unsafe { AtomicU8::from_ptr((at as *mut u8).add(i)) }.store(*byte, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_at_any_place_are_copied_in_both_directions() {
        let mut words = [0_u64; 8];
        let start = words.as_mut_ptr() as usize;
        let all: Vec<u8> = (1..=64).collect();
        for from in 0..64 {
            for len in 0..=64 - from {
                // SAFETY: within the array, which nothing else uses.
                let (before, copied, after) = unsafe {
                    fill(start, &[0; 64]);
                    fill(start + from, &all[from..from + len]);
                    (
                        copy(start, from),
                        copy(start + from, len),
                        copy(start + from + len, 64 - from - len),
                    )
                };
                assert_eq!(copied[..], all[from..from + len], "{from} {len}");
                assert!(before.iter().chain(after.iter()).all(|byte| *byte == 0));
            }
        }
    }
}
