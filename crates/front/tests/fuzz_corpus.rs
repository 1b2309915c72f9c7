// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the fuzz corpus (`fuzz/corpus`) through the fuzzed functions; see CONTRIBUTING.md. A file whose name begins
//! with `found` once made its function panic.

use larder_testkit::fuzz::{
    control_lines, corpus, guest_requests, metadata, nbd_handshake, nbd_requests, page_log,
    shared_memory, state_file,
};

fn replay(target: &str, check: fn(&[u8])) {
    let inputs = corpus(target);
    assert!(inputs.len() > 10, "{target}: {} inputs", inputs.len());
    for (file, data) in inputs {
        let judged = std::panic::catch_unwind(|| check(&data));
        assert!(judged.is_ok(), "{}", file.display());
    }
}

#[test]
fn control_lines_are_parsed_or_rejected() {
    replay("control_lines", control_lines::check);
}

#[test]
fn a_guests_memory_is_served_or_rejected() {
    replay("guest_requests", guest_requests::check);
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
fn a_shared_memory_is_joined_or_rejected() {
    replay("shared_memory", shared_memory::check);
}

#[test]
fn a_state_file_is_parsed_or_rejected() {
    replay("state_file", state_file::check);
}
