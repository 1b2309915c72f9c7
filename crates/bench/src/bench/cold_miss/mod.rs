// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cold-miss`: what the cache adds to reads that it cannot serve, and what population does to
//! them.
//!
//! Method: an open loop of 4 KiB reads arrives as a Poisson process at half of the origin's own
//! rate, each read in another unit that was never read before, so that all of them miss. The same
//! arrivals go to the bare device, the cache with population switched off (*idle*), and the cache
//! with population on (*running*), over an empty flash device that is large enough for everything.
//! Latency counts from the moment of arrival. Nothing is warmed up or left out.
//!
//! In [virtual time](virtual_time) over many seeds, and once more in [real time](real_time)
//! through the real driver, as a cross-check on a machine that others use too.
//!
//! Why not a closed loop: it slows down with the device and so hides queueing.
//! Why Poisson and not even spacing: independent clients come in bunches, and a population read delays
//! the requests of a bunch most.

mod load;
mod real_time;
mod virtual_time;

use anyhow::Result;

use super::common::BenchOptions;
use super::row::Row;

pub(super) fn run(options: &BenchOptions) -> Result<Vec<Row>> {
    let mut rows = virtual_time::run(options)?;
    rows.extend(real_time::run(options)?);
    Ok(rows)
}
