// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces of block requests: one file per format.

pub mod btr;

/// The trace that the project ships: PostgreSQL 15 under pgbench with a Zipf-distributed update
/// load, recorded below the file system.
pub static PG15_ZIPF_UPDATE: &[u8] = include_bytes!("../../data/pg15_zipf_update.btr.zst");
