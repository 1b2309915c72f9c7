// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the fuzz corpus (`fuzz/corpus`) through the fuzzed functions; see CONTRIBUTING.md. A file whose name begins
//! with `found` once made its function panic.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::path::Path;

use larder_testkit::fuzz::{metadata, nbd_handshake, nbd_requests, page_log, state_file};

fn replay(target: &str, check: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 10, "{}: {} files", dir.display(), files.len());
    for file in files {
        let data = std::fs::read(&file).unwrap();
        let judged = std::panic::catch_unwind(|| check(&data));
        assert!(judged.is_ok(), "{}", file.display());
    }
}

#[test]
fn metadata_is_recovered_or_rejected() {
    replay("metadata", metadata::check);
}

#[test]
fn a_negotiation_ends() {
    replay("nbd_handshake", nbd_handshake::check);
}

#[test]
fn requests_and_replies_are_bounded() {
    replay("nbd_requests", nbd_requests::check);
}

#[test]
fn a_page_log_is_recovered_or_rejected() {
    replay("page_log", page_log::check);
}

#[test]
fn a_state_file_is_parsed_or_rejected() {
    replay("state_file", state_file::check);
}
