// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of `larder slow-dir`.

use std::path::PathBuf;

/// What is mounted where, and on what disk.
#[derive(Clone, Debug)]
pub struct SlowDirOptions {
    /// A device model's name, or the file that describes one.
    pub device: String,
    /// The seed of what it leaves to chance.
    pub seed: u64,
    /// The disk's size; without one, twice of what the directory has, and 1 GiB at least.
    pub disk_bytes: Option<u64>,
    /// Bytes that are read ahead when a file is read in order; 0 for none.
    pub ahead_bytes: u64,
    /// Whether flushes flush the files below too. Without, what was written survives this process, and no crash of the
    /// machine.
    pub sync: bool,
    /// The directory.
    pub source: PathBuf,
    /// Where it is mounted: an empty directory.
    pub at: PathBuf,
}
