// SPDX-License-Identifier: MIT OR Apache-2.0
//! Damaged images of every format that Larder reads from flash or from its state directory: labels and metadata of units,
//! page logs, headers of shared memory, state files. The damage is random and the same in every run: inputs of the fuzz corpus, changed, and random
//! pieces. The checks are those of the fuzz targets.
//!
//! PostgreSQL's files (`crates/pg/src/fuzz.rs`) and configurations (`crates/cli`) are read by tests of their crates.
//! Without a variable a few hundred of each. `LARDER_DAMAGED_IMAGES=100000 cargo test --release -p larder-front --test
//! damaged_images` reads 100,000 of each.

use larder_testkit::fuzz::campaign::Campaign;
use larder_testkit::fuzz::{metadata, page_log, shared_memory, state_file};

const IMAGES: Campaign = Campaign { variable: "LARDER_DAMAGED_IMAGES", few: 300 };

#[test]
fn damaged_metadata_is_recovered_or_rejected() {
    IMAGES.run("metadata", metadata::check);
}

#[test]
fn a_damaged_page_log_is_recovered_or_rejected() {
    IMAGES.run("page_log", page_log::check);
}

#[test]
fn a_damaged_shared_memory_is_joined_or_rejected() {
    IMAGES.run("shared_memory", shared_memory::check);
}

#[test]
fn a_damaged_state_file_is_parsed_or_rejected() {
    IMAGES.run("state_file", state_file::check);
}
