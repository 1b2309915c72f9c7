// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that the processes of the demo's cluster share: a note of its names lies in the demo's directory, so that
//! the command that clears the directory finds it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Where the library has the memory that processes share.
const SHARED: &str = "/dev/shm";
/// The file with the prefix of the names of that memory.
const CLUSTER: &str = "cluster";

/// Notes whose memory it is.
pub(super) fn note(top: &Path, identifier: u64) -> Result<()> {
    let names = format!("larder-{identifier:016x}-");
    fs::write(top.join(CLUSTER), names).context("a note of the cluster")
}

/// Files of the memory that processes of the cluster in a demo's directory share.
pub(super) fn files(top: &Path) -> Vec<PathBuf> {
    let Ok(names) = fs::read_to_string(top.join(CLUSTER)) else { return Vec::new() };
    let Ok(entries) = fs::read_dir(SHARED) else { return Vec::new() };
    let named = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&names);
    // A note that is cut short names others' too.
    let whole = names.starts_with("larder-") && names.len() == "larder--".len() + 16;
    entries.flatten().filter(|entry| whole && named(entry)).map(|entry| entry.path()).collect()
}

/// Removes that memory.
///
/// # Errors
/// It cannot be removed.
pub fn clear(top: &Path) -> Result<()> {
    for path in files(top) {
        fs::remove_file(&path).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
