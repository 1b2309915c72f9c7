// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where rot strikes.
//!
//! Metadata is kept twice, so that one bad copy does no harm; what is promised is just that. Rot
//! of the metadata therefore strikes one copy of headers and logs, as often as it likes, and
//! payloads, whose second copy is the older region with its log. Rot of data strikes the slots, or the
//! batches of a page log.

use std::iter::once;
use std::ops::Range;

use larder_core::buf::{PAGE, SECTOR};
use larder_core::format::{LogsPlan, Plan};
use larder_core::journal::layout::{HEADER_BYTES, Layout};
use larder_core::pagelog::Geometry;

use super::promise::Trouble;
use super::setup::Setup;

/// The ranges of flash that the plan's rot strikes.
pub(super) fn places(setup: &Setup) -> Vec<Range<u64>> {
    match (setup.trouble, &setup.plan) {
        (Trouble::MetadataRot, Plan::Logs(logs)) => one_copy(logs, setup.copy),
        (Trouble::DataRot, Plan::Logs(logs)) => batches(logs),
        (Trouble::DataRot, Plan::Units(units)) => once(units.slots_at..units.end()).collect(),
        (Trouble::MetadataRot, Plan::Units(units)) => {
            units.layouts(0).flat_map(|layout| metadata(&layout, setup.copy)).collect()
        }
        _ => Vec::new(),
    }
}

/// Of page logs, what rot of one copy strikes: one place of headers, and segments, which the heads of batches repeat.
fn one_copy(logs: &LogsPlan, copy: u8) -> Vec<Range<u64>> {
    let page = PAGE as u64;
    let of = |place: Geometry| {
        let header = place.base + u64::from(copy) * page;
        [header..header + page, place.base + 2 * page..place.block(0)]
    };
    logs.each(0).flat_map(of).collect()
}

/// Where batches lie.
fn batches(logs: &LogsPlan) -> Vec<Range<u64>> {
    let of = |place: Geometry| place.block(0)..place.base + place.bytes();
    logs.each(0).map(of).collect()
}

fn metadata(layout: &Layout, copy: u8) -> Vec<Range<u64>> {
    let log = u64::from(layout.log_blocks) * layout.block_bytes;
    let region = |region| {
        let header = layout.header(region, copy);
        let block = layout.log_block(region, copy, 0);
        let payload = layout.payload(region);
        [header..header + HEADER_BYTES, payload..payload + layout.payload_bytes, block..block + log]
    };
    [0, 1].into_iter().flat_map(region).collect()
}

/// A sector of flash in which a bit may flip; `pick` gives a number below another.
pub(super) fn flippable(setup: &Setup, mut pick: impl FnMut(u64) -> u64) -> u64 {
    let places = places(setup);
    let Some(place) = places.get(pick(places.len().max(1) as u64) as usize) else { return 0 };
    place.start / SECTOR as u64 + pick((place.end - place.start) / SECTOR as u64)
}
