// SPDX-License-Identifier: MIT OR Apache-2.0
//! A row: one way of running a load, and what was measured of it.
//!
//! Invariants: every figure is of the measured window unless its name states another; throughput and
//! latencies are the clients', bytes and hits the servers' own counters.

use anyhow::{Result, ensure};
use serde::Serialize;

/// The share of the bytes that clients ask for that must come from the slow device where there is no
/// cache.
const LEAST_DEVICE_RATIO: f64 = 0.25;

/// What all rows have, an element of a file of rows; the keys are part of the contract. What a part
/// of the demo measures besides stands beside these keys.
#[derive(Clone, Debug, Serialize)]
pub struct Row<D> {
    /// Its name.
    pub name: &'static str,
    /// Requests or transactions per second.
    pub throughput: f64,
    /// Half of them took at most this long.
    pub p50_us: f64,
    /// 95 % of them took at most this long.
    pub p95_us: f64,
    /// 99 % of them took at most this long.
    pub p99_us: f64,
    /// The share of reads served wholly from a cache's flash; 0 where there is no cache.
    pub hit_ratio: f64,
    /// Bytes read from the slow device, population included; 0 where there is none.
    pub device_reads: u64,
    /// Bytes written to flash; 0 where there is none.
    pub flash_write_bytes: u64,
    /// Memory that the server or the cache accounts for.
    pub memory_bytes: u64,
    /// What the part measures besides.
    #[serde(flatten)]
    pub details: D,
}

/// Refuses a row without a cache that did not get its data from the slow device.
///
/// # Errors
/// Less than a quarter of the bytes that were asked for came from there.
pub fn ensure_uncached(name: &str, device_bytes: u64, asked_bytes: u64) -> Result<()> {
    ensure!(
        device_bytes as f64 >= LEAST_DEVICE_RATIO * asked_bytes as f64,
        "row {name} read {device_bytes} bytes from the slow device for {asked_bytes} bytes that were asked for, less \
         than a quarter: another cache answered the rest, and the comparison is invalid"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Details {
        restart_seconds: f64,
    }

    #[test]
    fn the_keys_of_the_contract_are_there() {
        let row = Row {
            name: "no-cache",
            throughput: 1.0,
            p50_us: 1.0,
            p95_us: 1.0,
            p99_us: 1.0,
            hit_ratio: 0.0,
            device_reads: 1,
            flash_write_bytes: 0,
            memory_bytes: 1,
            details: Details { restart_seconds: 1.0 },
        };
        let value = serde_json::to_value(row).unwrap();
        assert_eq!(value["name"], "no-cache");
        for key in [
            "throughput",
            "p50_us",
            "p95_us",
            "p99_us",
            "hit_ratio",
            "device_reads",
            "flash_write_bytes",
            "restart_seconds",
        ] {
            assert!(value[key].is_number(), "{key}");
        }
    }

    #[test]
    fn a_row_without_a_cache_that_is_cached_is_refused() {
        assert!(ensure_uncached("direct", 25, 100).is_ok());
        let error = ensure_uncached("direct", 24, 100).unwrap_err().to_string();
        assert!(error.contains("row direct read 24 bytes") && error.contains("quarter"), "{error}");
    }
}
