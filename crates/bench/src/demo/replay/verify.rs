// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file that holds the truth, read back after a row.

use std::path::Path;

use anyhow::{Result, anyhow};

use super::content;
use crate::demo::book::Book;
use crate::demo::device_file;

/// Reads a file that no server has open, and checks that every page holds its last version.
///
/// # Errors
/// A page does not, or the file cannot be read, or that of `stopped`.
pub fn verify(path: &Path, book: &Book, stopped: impl Fn() -> Result<()>) -> Result<()> {
    let check = |page, data: &[u8]| {
        let version = book.completed(page);
        content::check(page, version..=version, data)
            .map_err(|mismatch| anyhow!("{} lost a write: {mismatch}", path.display()))
    };
    device_file::check(path, check, stopped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::device_file::PAGE_BYTES;

    #[test]
    fn what_was_made_verifies_and_a_lost_write_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (path, pages) = (dir.path().join("origin"), 259);
        let initial = |page, into: &mut [u8]| content::fill(page, 0, into);
        device_file::make(&path, (pages * PAGE_BYTES) as u64, initial, || Ok(())).unwrap();
        let book = Book::new(pages);
        verify(&path, &book, || Ok(())).unwrap();
        assert_eq!(book.begin_write(257..258), Some(vec![1]));
        book.end_write(257..258);
        let error = verify(&path, &book, || Ok(())).unwrap_err().to_string();
        assert!(error.contains("page 257") && error.contains("version 0 (stale)"), "{error}");
    }
}
