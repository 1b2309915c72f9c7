// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holland et al., "Flash caching on the storage client" (ATC'13): H0 to H17, and HT1.
//!
//! The scenarios are hierarchies ([`crate::hierarchy`]) at a part of the paper's sizes; times are the
//! paper's, and the periods of write-back shrink with the sizes. Its figures have no printed values, so most claims
//! are shapes.
//!
//! What a mean read latency is worth: one filer read in ten takes 8 ms, and at 1/64 a run has some
//! 20,000 of these, so a mean moves by half a percent from seed to seed. Tolerances are far above
//! that; where runs are compared, they ask in the same order and meet the same slow reads.

mod buffers;
mod hosts;
mod loads;
mod policies;
mod popularity;
mod sizes;
mod sums;
pub(super) mod values;

use super::Group;

/// Its groups.
pub(super) const GROUPS: &[Group] = &[
    Group { ids: &["HT1", "H0", "H1"], run: sums::run },
    Group { ids: &["H2", "H3", "H5", "H17"], run: policies::run },
    Group { ids: &["H4", "H6"], run: sizes::together },
    Group { ids: &["H7", "H8"], run: sizes::working_sets },
    Group { ids: &["H9"], run: sizes::read_ahead },
    Group { ids: &["H10"], run: sizes::growing },
    Group { ids: &["H11"], run: buffers::large_sets },
    Group { ids: &["H12"], run: buffers::small_set },
    Group { ids: &["H13"], run: loads::writes },
    Group { ids: &["H14"], run: loads::timings },
    Group { ids: &["H15"], run: loads::persistence },
    Group { ids: &["H16"], run: hosts::run },
];
