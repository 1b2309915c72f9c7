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
use larder_core::journal::layout::{HEADER_BYTES, Layout};
use larder_core::pagelog::Geometry;

use super::promise::Trouble;
use super::setup::Setup;

/// The ranges of flash that the plan's rot strikes.
pub(super) fn places(setup: &Setup) -> Vec<Range<u64>> {
    match setup.trouble {
        Trouble::MetadataRot if setup.log_bytes > 0 => one_copy(setup),
        Trouble::DataRot if setup.log_bytes > 0 => batches(setup),
        Trouble::DataRot => once(setup.metadata_bytes()..setup.flash_bytes()).collect(),
        Trouble::MetadataRot => (0..setup.shape.shards).flat_map(|s| metadata(setup, s)).collect(),
        _ => Vec::new(),
    }
}

/// Of page logs, what rot of one copy strikes: one place of headers, and segments, which the heads of batches repeat.
fn one_copy(setup: &Setup) -> Vec<Range<u64>> {
    let page = PAGE as u64;
    let of = |place: Geometry| {
        let header = place.base + u64::from(setup.copy) * page;
        [header..header + page, place.base + 2 * page..place.block(0)]
    };
    setup.logs(0).into_iter().flat_map(of).collect()
}

/// Where batches lie.
fn batches(setup: &Setup) -> Vec<Range<u64>> {
    let of = |place: Geometry| place.block(0)..place.base + place.bytes();
    setup.logs(0).into_iter().map(of).collect()
}

fn metadata(setup: &Setup, shard: u32) -> Vec<Range<u64>> {
    let Some(layout) = Layout::of(&setup.shape.of_shard(shard), &setup.flash(0)) else {
        return Vec::new();
    };
    let log = u64::from(layout.log_blocks) * layout.block_bytes;
    let region = |region| {
        let header = layout.header(region, setup.copy);
        let block = layout.log_block(region, setup.copy, 0);
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
