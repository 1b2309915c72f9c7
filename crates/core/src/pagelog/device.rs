// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device of the tests: a power cut loses writes since the last flush.

use std::collections::BTreeMap;

use crate::buf::PAGE;

/// Blocks, and writes since the last flush with the blocks that they replaced.
#[derive(Default)]
pub(super) struct Device {
    pub(super) blocks: BTreeMap<u64, Vec<u8>>,
    pub(super) unflushed: Vec<(u64, Option<Vec<u8>>)>,
    pub(super) writes: Vec<u64>,
}

impl Device {
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        assert!(offset.is_multiple_of(PAGE as u64));
        self.writes.push(bytes.len() as u64);
        for (i, block) in bytes.chunks(PAGE).enumerate() {
            let at = offset / PAGE as u64 + i as u64;
            let old = self.blocks.insert(at, block.to_vec());
            self.unflushed.push((at, old));
        }
    }

    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        for (i, block) in into.chunks_mut(PAGE).enumerate() {
            match self.blocks.get(&(offset / PAGE as u64 + i as u64)) {
                Some(bytes) => block.copy_from_slice(bytes),
                None => block.fill(0),
            }
        }
    }

    /// A power cut: `keep` decides which blocks written since the last flush stay.
    pub(super) fn cut(&mut self, mut keep: impl FnMut() -> bool) {
        for (at, old) in std::mem::take(&mut self.unflushed).into_iter().rev() {
            if !keep() {
                match old {
                    Some(bytes) => drop(self.blocks.insert(at, bytes)),
                    None => drop(self.blocks.remove(&at)),
                }
            }
        }
    }
}
