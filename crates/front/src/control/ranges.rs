// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands for ranges of a volume: what of them is cached; warm, evict, scrub, pin or exclude them.
//!
//! Invariant: a command whose client has gone ends soon; what it did stays done.

use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use larder_volume::{RangeRule, Ranged, Terms, Volume, VolumeError};
use serde_json::{Value, json};

use super::follow::Follow;
use super::wire::Extent;

/// Ranges of a volume.
pub(super) struct Ranges<'a> {
    volume: &'a Arc<Volume>,
    ranges: Vec<Range<u64>>,
}

impl<'a> Ranges<'a> {
    pub fn of(volume: &'a Arc<Volume>, extents: &[Extent]) -> Result<Self, VolumeError> {
        let range = |extent: &Extent| {
            let end = extent.offset.checked_add(extent.length).ok_or_else(|| {
                let Extent { offset, length } = extent;
                VolumeError::Usage(format!("{offset}+{length}: beyond the largest offset"))
            })?;
            Ok(extent.offset..end)
        };
        Ok(Self { volume, ranges: extents.iter().map(range).collect::<Result<_, VolumeError>>()? })
    }

    pub fn cached(&self) -> Result<Value, VolumeError> {
        self.volume.cached(&self.ranges).map(|ranged| value(&ranged))
    }

    pub fn warm(
        &self,
        terms: Terms,
        stream: &UnixStream,
        tell: impl FnMut(String),
    ) -> Result<Value, VolumeError> {
        let mut follow = Follow::new("warm", stream, tell);
        let mut progress = |done, all| follow.goes_on(done, all);
        let (warmed, flash_bytes) = self.volume.warm(&self.ranges, terms, &mut progress)?;
        let mut value = value(&warmed);
        value["flash_bytes"] = flash_bytes.into();
        Ok(value)
    }

    pub fn scrub(
        &self,
        terms: Terms,
        stream: &UnixStream,
        tell: impl FnMut(String),
    ) -> Result<Value, VolumeError> {
        let mut follow = Follow::new("scrub", stream, tell);
        let mut progress = |done, all| follow.goes_on(done, all);
        let (passed, scrubbed) = self.volume.scrub(&self.ranges, terms, &mut progress)?;
        let mut value = value(&passed);
        value["damaged_pages"] = scrubbed.damaged_pages.into();
        value["lost_pages"] = scrubbed.lost_pages.into();
        value["places"] = json!(scrubbed.places);
        Ok(value)
    }

    pub fn evict(
        &self,
        stream: &UnixStream,
        tell: impl FnMut(String),
    ) -> Result<Value, VolumeError> {
        let mut follow = Follow::new("evict", stream, tell);
        let mut progress = |done, all| follow.goes_on(done, all);
        self.volume.evict(&self.ranges, &mut progress).map(|ranged| value(&ranged))
    }

    /// Pins or excludes them, or ends that.
    pub fn rule(
        &self,
        rule: RangeRule,
        stream: &UnixStream,
        tell: impl FnMut(String),
    ) -> Result<Value, VolumeError> {
        let what = if rule == RangeRule::Pin { "pin" } else { "exclude" };
        let mut follow = Follow::new(what, stream, tell);
        let mut progress = |done, all| follow.goes_on(done, all);
        let (done, rest) = self.volume.rule(rule, &self.ranges, &mut progress)?;
        let mut value = value(&done);
        value["rest"] = json!(rest);
        Ok(value)
    }
}

fn value(ranged: &Ranged) -> Value {
    let Ranged { range_bytes, passed_bytes, cached_bytes } = ranged;
    json!({
        "range_bytes": range_bytes,
        "passed_bytes": passed_bytes,
        "cached_bytes": cached_bytes,
    })
}
