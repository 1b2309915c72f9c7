// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of one volume of a cache that its workers and its front-ends share.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use larder_core::config::CacheSpec;
use larder_core::request::Errno;
use larder_io::Device;

use super::config::{ClientLimits, VolumeConfig};
use super::curve::LiveCurve;
use super::doubt::Doubt;
use super::error::VolumeError;
use super::extents::Map;
use super::overlaps::Overlaps;
use super::peer::reserved;
use super::seat::Seats;

/// The state of one volume, see the module.
pub(crate) struct Part {
    pub name: String,
    pub generation: u64,
    pub origin: Device,
    /// Its place in the space of all volumes.
    pub range: Range<u64>,
    pub doubt: Doubt,
    /// Data and holes, in offsets of the volume.
    pub map: Map,
    /// Writes of parts of blocks, once the volume is a file; in offsets of the volume.
    pub overlaps: Overlaps,
    /// What a cache of another size would do for its clients.
    pub curve: LiveCurve,
    /// The files that are the volume at the moment.
    pub files: Mutex<Vec<PathBuf>>,
    /// Places for its connections: clients of another volume take none of them.
    pub seats: Seats,
    /// The error of a failed flush of its origin, known once the workers have ended.
    pub flush_failed: OnceLock<Errno>,
}

impl Part {
    pub fn new(
        config: &VolumeConfig,
        range: Range<u64>,
        spec: &CacheSpec,
        clients: &ClientLimits,
    ) -> Self {
        let origin = config.origin.clone();
        Self {
            name: config.name.clone(),
            generation: config.generation,
            doubt: Doubt::of(&origin),
            map: Map::new(spec.with_holes(origin.clone())),
            origin,
            range,
            overlaps: Overlaps::default(),
            curve: LiveCurve::none(),
            files: Mutex::default(),
            seats: Seats::new(clients.most_each, reserved(clients.most_each)),
            flush_failed: OnceLock::new(),
        }
    }

    /// The error of a flush of its origin.
    pub fn flush_error(&self, errno: Errno) -> VolumeError {
        VolumeError::Device { device: self.origin.name().to_owned(), doing: "flush", errno }
    }

    /// What an administrator should know of its origin.
    pub fn alarm(&self) -> Option<String> {
        if self.origin.is_absent() {
            return Some(MISSING.to_owned());
        }
        self.origin.may_have_lost_writes().then(|| LOST_WRITES.to_owned())
    }
}

/// The alarm of an origin that the start did not find.
const MISSING: &str = "the origin was missing at the start: the server rejects clients of this volume; connect the origin and restart the server";

/// The alarm of a remote origin whose connection broke.
const LOST_WRITES: &str = "the origin's server had acknowledged writes that were not flushed and may have lost them: every FLUSH fails until the volume is restarted";
