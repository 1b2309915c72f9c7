// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that stand for devices.
//!
//! Invariants: a file that was made is full, so that its file system has nothing left to allocate; it
//! is on the disk, and out of the page cache before anything is measured. A file is read as the disk
//! has it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::Advice;

/// Bytes of a page, the unit in which files are filled and checked.
pub const PAGE_BYTES: usize = 4096;
/// Pages written or read at once.
const CHUNK_PAGES: usize = 256;

/// Makes a file of `bytes` (whole pages), whose content `fill` writes page by page over zeroes or the
/// content of an earlier page.
///
/// # Errors
/// The disk's, or that of `stopped`, which is asked now and then.
pub fn make(
    path: &Path,
    bytes: u64,
    fill: impl Fn(u32, &mut [u8]),
    stopped: impl Fn() -> Result<()>,
) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .with_context(failed)?;
    for_chunks(bytes, stopped, |first, chunk| {
        for (page, into) in (first..).zip(chunk.chunks_exact_mut(PAGE_BYTES)) {
            fill(page, into);
        }
        file.write_all(chunk).with_context(failed)
    })?;
    file.sync_all().with_context(failed)?;
    forget(&file).with_context(failed)
}

/// Reads a file that no server has open, page by page.
///
/// # Errors
/// The file cannot be read, or that of `check`, or that of `stopped`, which is asked now and then.
pub fn check(
    path: &Path,
    check: impl Fn(u32, &[u8]) -> Result<()>,
    stopped: impl Fn() -> Result<()>,
) -> Result<()> {
    let failed = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(failed)?;
    // What a server wrote past the page cache may lie behind what is in it.
    forget(&file).with_context(failed)?;
    let bytes = file.metadata().with_context(failed)?.len();
    for_chunks(bytes, stopped, |first, chunk| {
        let offset = u64::from(first) * PAGE_BYTES as u64;
        file.read_exact_at(chunk, offset).with_context(failed)?;
        (first..).zip(chunk.chunks_exact(PAGE_BYTES)).try_for_each(|(page, data)| check(page, data))
    })?;
    forget(&file).with_context(failed)
}

/// Goes through so many bytes, with the number of the first page of each chunk and a buffer for it.
fn for_chunks(
    bytes: u64,
    stopped: impl Fn() -> Result<()>,
    mut chunk: impl FnMut(u32, &mut [u8]) -> Result<()>,
) -> Result<()> {
    let pages = (bytes / PAGE_BYTES as u64) as usize;
    let mut buffer = vec![0; CHUNK_PAGES * PAGE_BYTES];
    for first in (0..pages).step_by(CHUNK_PAGES) {
        stopped()?;
        let count = CHUNK_PAGES.min(pages - first);
        chunk(first as u32, &mut buffer[..count * PAGE_BYTES])?;
    }
    Ok(())
}

/// Takes a file out of the page cache, where it would be a second cache.
fn forget(file: &File) -> std::io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?)
}

#[cfg(test)]
mod tests {
    use anyhow::{anyhow, ensure};

    use super::*;

    #[test]
    fn every_page_that_was_made_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let (path, pages) = (dir.path().join("origin"), CHUNK_PAGES + 3);
        let fill = |page: u32, into: &mut [u8]| into[..4].copy_from_slice(&page.to_le_bytes());
        make(&path, (pages * PAGE_BYTES) as u64, fill, || Ok(())).unwrap();
        let seen = std::cell::Cell::new(0);
        let look = |page: u32, data: &[u8]| {
            ensure!(data[..4] == page.to_le_bytes() && data.len() == PAGE_BYTES, "page {page}");
            seen.set(seen.get() + 1);
            Ok(())
        };
        check(&path, look, || Ok(())).unwrap();
        assert_eq!(seen.get(), pages);
        let error = check(&path, look, || Err(anyhow!("interrupted"))).unwrap_err();
        assert_eq!(error.to_string(), "interrupted");
    }
}
