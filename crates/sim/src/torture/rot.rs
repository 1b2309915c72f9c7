// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where rot strikes.
//!
//! Metadata is kept twice, so that one bad copy does no harm; what is promised is just that. Rot
//! of the metadata therefore strikes one copy, as often as it likes. Rot of data strikes what is cached.

use std::ops::Range;

use larder_core::buf::SECTOR;

use super::on_flash::on_flash;
use super::promise::Trouble;
use super::setup::Setup;

/// The ranges of flash that the plan's rot strikes.
pub(super) fn places(setup: &Setup) -> Vec<Range<u64>> {
    let kept = on_flash(&setup.plan);
    match setup.trouble {
        Trouble::MetadataRot => kept.one_copy(setup.copy),
        Trouble::DataRot => kept.data(),
        Trouble::SumsRot => kept.sums(setup.copy),
        _ => Vec::new(),
    }
}

/// A sector of flash in which a bit may flip; `pick` gives a number below another.
pub(super) fn flippable(setup: &Setup, mut pick: impl FnMut(u64) -> u64) -> u64 {
    let places = places(setup);
    let Some(place) = places.get(pick(places.len().max(1) as u64) as usize) else { return 0 };
    place.start / SECTOR as u64 + pick((place.end - place.start) / SECTOR as u64)
}
