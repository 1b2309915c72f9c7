// SPDX-License-Identifier: MIT OR Apache-2.0
//! A moment of a life, as a power cut in it is judged.

use std::collections::BTreeSet;
use std::ops::Range;

use larder_core::exec::{DevId, Nanos};
use larder_core::shape::Shape;
use larder_core::volumes::Volumes;

use super::history::Seen;
use super::setup::Setup;
use crate::oracle::Oracle;
use crate::world::World;

/// See the module.
pub(super) struct Moment<'a> {
    pub setup: &'a Setup,
    /// What the engine serves.
    pub space: (Shape, Volumes),
    pub world: &'a World,
    pub oracle: &'a Oracle,
    /// The histories of earlier lives, if the origin must be in order.
    pub earlier: &'a [Oracle],
    /// The flash device that was attached last.
    pub flash: DevId,
    /// The id of the volume on flash.
    pub volume: u64,
    /// The state file records that flash is in use.
    pub attached: bool,
    /// The pages that recovery of each log ignores, by the state file.
    pub ignored: Vec<Vec<Range<u64>>>,
    /// For each volume: when a flush was asked for that was answered ...
    pub flushed: &'a [Option<Nanos>],
    /// ... and when the last write-back was asked for that is durable on the origin.
    pub cleared: &'a [Option<Nanos>],
    /// Volumes that have left the cache.
    pub outside: &'a BTreeSet<u32>,
    pub seen: &'a mut Seen,
}
