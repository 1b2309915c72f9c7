// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cached data of an unused flash device, compared with its checksums: `larder check --data`.

use larder_core::format::{Plan, compare_data};
use larder_core::shard::Damaged;
use larder_io::Device;
use serde::Serialize;

use super::error::VolumeError;
use super::inspect::plan_of;
use super::raw_io::Raw;
use super::scrub::Scrubbed;

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DataReport {
    /// Pages that were compared.
    pub compared_pages: u64,
    /// Those that do not match; dirty ones among them may have been overwritten in the moment of a crash.
    #[serde(flatten)]
    pub wrong: Scrubbed,
}

/// Compares all cached data of a device; `progress` is called with the pages that are done.
///
/// # Errors
/// It has no checksums, holds no cache of this program, or cannot be read.
pub fn compare(device: &Device, progress: &mut dyn FnMut(u64)) -> Result<DataReport, VolumeError> {
    let (label, plan) = plan_of(device)?;
    let units = match plan {
        Plan::Units(units) if units.sums.is_some() => units,
        Plan::Units(_) | Plan::Logs(_) => {
            let why = "its data has no checksums; accepted: the flash of a cache with --verify on";
            return Err(VolumeError::Refused(format!("{}: {why}", device.name())));
        }
    };
    let mut report = DataReport::default();
    let compared = compare_data(&units, label.volume, &Raw(device), &mut |page| {
        report.compared_pages += 1;
        if !page.matches {
            report.wrong.add(Damaged { range: page.range, lost: page.dirty }, &(0..u64::MAX));
        }
        progress(report.compared_pages);
    });
    let (device, doing) = (device.name().to_owned(), "reading cached data");
    compared.map_err(|errno| VolumeError::Device { device, doing, errno })?;
    Ok(report)
}
