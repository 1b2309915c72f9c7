// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of the scenarios, the values that they take, and where figures stand.

pub(in super::super) const READ: &str = "/read_us";
pub(in super::super) const WRITE: &str = "/write_us";
pub(in super::super) const RAM_HIT: &str = "/ram_hit_ratio";
pub(in super::super) const FLASH: &str = "cache.flash_gib";
pub(in super::super) const SET: &str = "load.working_set_gib";
pub(in super::super) const ARCHITECTURE: &str = "cache.architecture";

/// How RAM and flash are put together.
pub(in super::super) const ARCHITECTURES: [&str; 3] = ["naive", "lookaside", "unified"];
/// When dirty blocks move down.
pub(in super::super) const POLICIES: [&str; 7] =
    ["sync", "async", "1s", "5s", "15s", "30s", "none"];
/// Working sets in the paper's GB.
pub(in super::super) const SETS: [&str; 9] =
    ["5", "10", "20", "40", "60", "80", "160", "320", "640"];
/// All of the paper's RAM: 8 GB.
pub(in super::super) const ALL_RAM: &str = "512";
/// Sizes of RAM.
pub(in super::super) const RAM_SIZES: [&str; 7] = ["0", "0.25", "1", "4", "16", "64", ALL_RAM];
/// Shares of writes.
pub(in super::super) const WRITE_SHARES: [&str; 9] =
    ["0", "0.1", "0.3", "0.5", "0.7", "0.8", "0.9", "0.95", "1"];
/// Times of flash over the paper's.
pub(in super::super) const FLASH_FACTORS: [&str; 6] = ["0.1", "0.25", "0.5", "1", "1.5", "2"];
