// SPDX-License-Identifier: MIT OR Apache-2.0
//! The number of worker threads of a volume.

use anyhow::{Result, bail};
use larder_volume::MOST_WORKERS;

use crate::setting::BadSetting;

/// The number of workers of a volume.
pub fn workers(given: Option<u32>) -> Result<u32> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let workers = given.unwrap_or((cores / 2).clamp(1, 4));
    if workers == 0 || workers > MOST_WORKERS {
        bail!(BadSetting::of("workers", workers, format!("accepted 1 to {MOST_WORKERS}")));
    }
    Ok(workers)
}
