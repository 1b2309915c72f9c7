// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties of a disk from `/sys`, by device number. All are hints: where a file is missing (network file systems,
//! containers) the result is `None` or false.

/// Reads a queue attribute of a disk, or of the disk that a partition is on.
fn text(disk: u64, name: &str) -> Option<String> {
    let (major, minor) = (rustix::fs::major(disk), rustix::fs::minor(disk));
    ["queue", "../queue"].iter().find_map(|dir| {
        let path = format!("/sys/dev/block/{major}:{minor}/{dir}/{name}");
        std::fs::read_to_string(path).ok()
    })
}

/// An attribute that is a number.
fn queue(disk: u64, name: &str) -> Option<u64> {
    text(disk, name)?.trim().parse().ok()
}

/// Whether the disk calls itself one without a volatile write cache.
pub(super) fn is_write_through(disk: u64) -> bool {
    text(disk, "write_cache").is_some_and(|mode| mode.trim() == "write through")
}

/// Whether the disk is rotational.
pub(super) fn rotational(disk: u64) -> Option<bool> {
    queue(disk, "rotational").map(|v| v != 0)
}

/// Whether the disk accepts discards.
pub(super) fn can_discard(disk: u64) -> bool {
    queue(disk, "discard_max_bytes").is_some_and(|v| v > 0)
}

/// The smallest transfer.
pub(super) fn logical_block_bytes(disk: u64) -> Option<u32> {
    queue(disk, "logical_block_size").and_then(|v| u32::try_from(v).ok())
}
