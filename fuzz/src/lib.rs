// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the fuzz targets do with their bytes, a module each with one function `check`, which panics
//! where something is wrong. `crates/front/tests/fuzz_corpus.rs` has the same functions in an ordinary
//! test, for the corpus.

#[path = "../../crates/core/tests/common/memory.rs"]
mod memory;
#[path = "../../crates/core/tests/common/units.rs"]
mod units;

pub mod metadata;
pub mod nbd_handshake;
pub mod nbd_requests;
pub mod state_file;
