// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the fuzz targets do with their bytes, a module each with one function `check`, which panics
//! where something is wrong. The targets in `fuzz/` call them under libFuzzer, and
//! `crates/front/tests/fuzz_corpus.rs` calls them with the corpus.

pub mod metadata;
pub mod nbd_handshake;
pub mod nbd_requests;
pub mod state_file;
