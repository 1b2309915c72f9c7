// SPDX-License-Identifier: MIT OR Apache-2.0
//! No eviction on demand: only a periodic update evicts, and its flash hand chooses the cold units (PRWC, section 2.6).

use super::Replacement;

/// The policy; it has no state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Update;

impl Replacement for Update {
    fn inserted(&mut self, _slot: u32, _unit: u64) {}

    fn accessed(&mut self, _slot: u32) {}

    fn removed(&mut self, _slot: u32) {}

    fn may_search(&self) -> bool {
        false
    }

    fn victim(&mut self, _: u64, _: u32, _: &dyn Fn(u32) -> bool) -> Option<u32> {
        None
    }
}
