// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes in the server's shared memory: frames of shared buffers, and buffers of its log.
//!
//! Other processes may change them meanwhile (hints in a page that is written, records behind the end of the log), so no
//! reference to plain bytes may point there: it promises that nothing changes. Bytes are copied with atomic loads. A frame
//! into which a process reads a page belongs to that process until the read is done (`transfer.rs`).
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt as _;

    use super::*;

    #[test]
    fn bytes_at_any_place_are_copied() {
        let words: [u64; 8] = std::array::from_fn(|i| i as u64 * 0x0807_0605_0403_0201);
        let all: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut shared = words.map(AtomicU64::new);
        let start = shared.as_mut_ptr() as usize;
        for from in 0..64 {
            for len in 0..=64 - from {
                // SAFETY: within the array.
                let copied = unsafe { copy(start + from, len) };
                assert_eq!(copied[..], all[from..from + len], "{from} {len}");
            }
        }
    }
    /// Under `debug_io_direct` the server's files take aligned memory only.
    #[test]
    fn copies_can_be_written_past_the_page_cache() {
        let mut shared = vec![0_u64; 3 * 8192 / WORD];
        let at = shared.as_mut_ptr() as usize;
        let lengths = [8192, 2 * 8192, 8192];
        // SAFETY: within the vector.
        let copies: Vec<Buf> = lengths.iter().map(|len| unsafe { copy(at + 8, *len) }).collect();
        assert!(copies.iter().all(|copied| (copied.as_ptr() as usize).is_multiple_of(4096)));
        let path = tempfile::NamedTempFile::new_in(".").unwrap().into_temp_path();
        let mut options = std::fs::File::options();
        // A file system without direct I/O.
        let Ok(file) = options.write(true).custom_flags(libc::O_DIRECT).open(&path) else { return };
        larder_shared::write_pages(&file, &copies, 0).unwrap();
        assert_eq!(file.metadata().unwrap().len(), lengths.iter().sum::<usize>() as u64);
    }
}
