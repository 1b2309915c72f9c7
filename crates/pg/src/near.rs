// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages of a relation's file that are in the kernel's page cache, which is nearer than flash.
//!
//! Invariant: no device is read. What the page cache lacks is left to flash, so a slow disk is not asked.
//!
//! Why not `mincore` or `cachestat`: both need another call for the read, and in between the pages may leave the page cache.
#![allow(unsafe_code)]

use std::os::fd::RawFd;

use libc::{iovec, off_t};

/// Reads whole pages, of `page_bytes` each, up to the first that the page cache lacks; returns how many. None if the file
/// system cannot tell (FUSE).
///
/// # Safety
/// As `preadv`: each part is memory that nothing else uses meanwhile. The descriptor does not pass the page cache by.
#[must_use]
pub unsafe fn read(fd: RawFd, parts: &[iovec], page_bytes: usize, at: off_t) -> usize {
    if parts.is_empty() {
        return 0;
    }
    // SAFETY: the caller guarantees it.
    let got =
        unsafe { libc::preadv2(fd, parts.as_ptr(), parts.len() as i32, at, libc::RWF_NOWAIT) };
    usize::try_from(got).map_or(0, |bytes| bytes / page_bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;

    use super::*;

    const PAGE: usize = 8192;

    #[test]
    fn what_the_page_cache_has_is_read_up_to_the_end() {
        let mut file = tempfile::tempfile_in(".").unwrap();
        let bytes: Vec<u8> = (0..3 * PAGE + 100).map(|i| (i / 7) as u8).collect();
        file.write_all(&bytes).unwrap();
        let mut into = vec![0; 4 * PAGE];
        let mut read = |from: usize| {
            let part =
                |page: &mut [u8]| iovec { iov_base: page.as_mut_ptr().cast(), iov_len: PAGE };
            let parts: Vec<iovec> = into.chunks_exact_mut(PAGE).map(part).collect();
            // SAFETY: parts of the vector.
            let got = unsafe { super::read(file.as_raw_fd(), &parts, PAGE, from as off_t) };
            let expected = bytes[from..].len().min(4 * PAGE) / PAGE;
            (got, expected, into[..got * PAGE] == bytes[from..from + got * PAGE])
        };
        // A file system without the flag reads nothing.
        let (got, expected, same) = read(0);
        assert!((got == expected || got == 0) && same);
        let (got, expected, same) = read(PAGE);
        assert!((got == expected || got == 0) && same);
        assert_eq!(read(3 * PAGE).0, 0, "a part of a page");
        let closed = File::open("/").unwrap();
        // SAFETY: no part.
        assert_eq!(unsafe { super::read(closed.as_raw_fd(), &[], PAGE, 0) }, 0);
    }
}
