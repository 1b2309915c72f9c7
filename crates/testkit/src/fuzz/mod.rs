// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checks of the fuzz targets: a module each with one function `check`, which panics if a requirement is violated.
//! The targets in `fuzz/` call them under libFuzzer, and `crates/front/tests/fuzz_corpus.rs` calls them with the
//! corpus. The checks `configuration` and `postgres_files` are in their crates, `larder` and `larder-pg`, with their tests.

pub mod campaign;
pub mod control_lines;
pub mod guest_requests;
pub mod metadata;
pub mod nbd_handshake;
pub mod nbd_requests;
pub mod page_log;
pub mod shared_memory;
pub mod state_file;

use std::fs;
use std::path::{Path, PathBuf};

use larder_core::checksum::crc32c;
use larder_core::request::Kind;
use larder_volume::session::{ClientRequest, What};

/// The inputs of a target's corpus with their paths, in the order of the paths.
#[must_use]
pub fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let read = |file: PathBuf| (file.clone(), fs::read(file).unwrap());
    files.into_iter().map(read).collect()
}

/// A request that a session passes on has its payload, and lies in a volume of so many bytes.
fn is_sound(request: &ClientRequest, bytes: u64) {
    let payload = request.bufs.iter().map(|buf| buf.len() as u64).sum::<u64>();
    let writes = matches!(request.what, What::Io(Kind::Write { .. }));
    assert_eq!(payload, if writes { request.len } else { 0 });
    assert!(request.offset.checked_add(request.len).is_some_and(|end| end <= bytes));
    assert!((request.offset | request.len).is_multiple_of(512));
}

/// Writes the checksum of a structure into its field at `at`, which counts as zero; returns the checksum.
fn seal(bytes: &mut [u8], at: usize) -> u32 {
    bytes[at..at + 4].fill(0);
    let crc = crc32c(bytes);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    crc
}
