// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of a log that its recovery ignores, and the state of changes past the log (`bypass.rs`).

use std::cell::{Cell, RefCell};
use std::ops::Range;

use crate::ranges;
use crate::request::Errno;

/// What a log has ignored, and the changes that go past it.
#[derive(Default)]
pub(super) struct Bypass {
    /// The pages that recovery ignores, in order and apart from each other.
    pub(super) ignored: RefCell<Vec<Range<u64>>>,
    /// Changes that go past the log at the moment.
    pub(super) passing: Cell<u32>,
    /// The log returns: no change may begin to go past it.
    pub(super) returning: Cell<bool>,
    /// A record is being made.
    pub(super) recording: Cell<bool>,
    /// Its result.
    pub(super) recorded: Cell<Option<Result<(), Errno>>>,
}

impl Bypass {
    pub(super) fn ignoring(ignored: Vec<Range<u64>>) -> Self {
        Self { ignored: RefCell::new(ignored), ..Self::default() }
    }

    /// Nothing is ignored.
    pub(super) fn clear(&self) {
        self.ignored.borrow_mut().clear();
    }

    pub(super) fn ignored(&self) -> Vec<Range<u64>> {
        self.ignored.borrow().clone()
    }

    pub(super) fn has_ignored(&self, page: u64) -> bool {
        ranges::has(&self.ignored.borrow(), page)
    }

    /// Whether the log may continue without a return: nothing is ignored or about to be.
    pub(super) fn is_unused(&self) -> bool {
        self.passing.get() == 0 && self.ignored.borrow().is_empty()
    }
}
