// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of what flash has of a volume, and how much it is read.
//!
//! The workers are asked for a few slots at a time, so that none is busy for long. The list is no picture of one moment: what comes or
//! goes meanwhile may be in it or not.

use larder_core::shard::Warmth;

use super::error::VolumeError;
use super::volume::Volume;

/// Slots that a worker is asked for at a time.
const TOGETHER: u32 = 2048;

/// A part of a volume that flash has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First byte on the volume.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// How much it is read; 0 if the preset has no measure.
    pub reads: u32,
}

/// Takes the list, some parts at a time.
pub struct Heat<'a> {
    volume: &'a Volume,
    /// Where each worker continues that has more.
    next: Vec<Option<u64>>,
}

impl Volume {
    /// What flash has of it.
    #[must_use]
    pub fn heat(&self) -> Heat<'_> {
        Heat { volume: self, next: vec![Some(0); self.cache().mailboxes.len()] }
    }
}

impl Heat<'_> {
    /// The next parts, which may be none; `None` after the last.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn next_parts(&mut self) -> Result<Option<Vec<Part>>, VolumeError> {
        if self.next.iter().all(Option::is_none) {
            return Ok(None);
        }
        let next = self.next.clone();
        let answers = self.volume.cache().ask(move |worker| {
            let index = worker.index() as usize;
            let first = next.get(index).copied().flatten();
            let some = first.map(|first| worker.shard.heat(first, TOGETHER));
            (index, some.unwrap_or_default())
        })?;
        // The answers come in any order.
        for (index, (_, next)) in &answers {
            if let Some(place) = self.next.get_mut(*index) {
                *place = *next;
            }
        }
        let space = self.volume.space();
        let own = |part: &Warmth| space.contains(&part.offset);
        let parts = answers.into_iter().flat_map(|(_, (parts, _))| parts).filter(own);
        let parts = parts.map(|Warmth { offset, len, reads }| Part {
            offset: offset - space.start,
            len: len.min(space.end - offset),
            reads,
        });
        Ok(Some(parts.collect()))
    }
}
