// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checks of the fuzz targets: a module each with one function `check`, which panics if a requirement is violated.
//! The targets in `fuzz/` call them under libFuzzer, and `crates/front/tests/fuzz_corpus.rs` calls them with the
//! corpus.

pub mod metadata;
pub mod nbd_handshake;
pub mod nbd_requests;
pub mod page_log;
pub mod state_file;
