// SPDX-License-Identifier: MIT OR Apache-2.0
//! What may go wrong, and what is promised then.
//!
//! A wrong byte is excused only where the promise allows it, and only if the device itself returned
//! just these bytes from a sector that rot had struck. It is counted, never passed over.

/// What goes wrong in a history besides crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    None,
    /// Flash reads and writes fail now and then.
    FlashErrors,
    /// All flash operations fail for a while, for less time than the cache retries.
    FlashBursts,
    /// All flash operations fail for longer than that; service returns afterwards.
    FlashOutages,
    /// Flash flushes fail now and then, and lose writes that flash had acknowledged.
    FlashForgets,
    /// Flash writes fail for want of space.
    FlashFull,
    /// Flash operations hang and are answered late.
    FlashHangs,
    /// Flash is slow, up to some hundred times.
    FlashSlow,
    /// Flash disappears, and returns after the next crash or before.
    FlashVanishes,
    /// Flash shrinks.
    FlashShrinks,
    /// Origin reads and writes fail now and then.
    OriginErrors,
    /// Origin flushes fail too.
    OriginFlushErrors,
    /// All operations on an origin fail for a while.
    OriginGone,
    /// No operation on an origin is answered for a while.
    OriginHangs,
    /// Origin flushes fail now and then, and lose writes that the origin had acknowledged.
    OriginForgets,
    /// One copy of the metadata on flash rots.
    MetadataRot,
    /// Cached data on flash rots.
    DataRot,
    /// One copy of the checksums of cached pages rots.
    SumsRot,
}

/// What is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// No wrong byte, and no error that a client sees.
    Invisible,
    /// No wrong byte; the origin's errors reach the clients.
    ErrorsPass,
    /// Wrong bytes that nothing detects are possible, and counted.
    Undetected,
}

/// The table: trouble, promise, why.
pub const PROMISES: &[(Trouble, Promise, &str)] = &[
    (Trouble::None, Promise::Invisible, "power cuts with honest devices"),
    (Trouble::FlashErrors, Promise::Invisible, "EIO: answered from the origin"),
    (Trouble::FlashBursts, Promise::Invisible, "operations are retried"),
    (Trouble::FlashOutages, Promise::Invisible, "as EIO: a clean cache does without flash"),
    (Trouble::FlashForgets, Promise::Invisible, "what was not flushed is verified"),
    (Trouble::FlashFull, Promise::Invisible, "ENOSPC: a failed write like others"),
    (Trouble::FlashHangs, Promise::Invisible, "answered from the origin after a time limit"),
    (Trouble::FlashSlow, Promise::Invisible, "as a hang that ends"),
    (Trouble::FlashVanishes, Promise::Invisible, "writes wait until it is fenced"),
    (Trouble::FlashShrinks, Promise::Invisible, "operations beyond the end fail"),
    (Trouble::OriginErrors, Promise::ErrorsPass, "a failed write may or may not have happened"),
    (Trouble::OriginFlushErrors, Promise::ErrorsPass, "every later FLUSH of the life fails too"),
    (Trouble::OriginGone, Promise::ErrorsPass, "only to clients of its own volume"),
    (Trouble::OriginHangs, Promise::Invisible, "only clients of its own volume wait"),
    (Trouble::OriginForgets, Promise::ErrorsPass, "every FLUSH of its volume fails from then on"),
    (Trouble::MetadataRot, Promise::Invisible, "checksums, two copies; at worst a cold start"),
    (Trouble::DataRot, Promise::Undetected, "without `--verify` cached data has no checksums"),
    (Trouble::SumsRot, Promise::Invisible, "a second copy where flash may hold dirty data"),
];

impl Trouble {
    /// What is promised under it.
    #[must_use]
    pub fn promise(self) -> Promise {
        PROMISES.iter().find(|(t, ..)| *t == self).map_or(Promise::Invisible, |(_, p, _)| *p)
    }

    /// Whether operations on flash go as they should.
    #[must_use]
    pub fn spares_flash(self) -> bool {
        matches!(
            self,
            Self::None
                | Self::OriginErrors
                | Self::OriginFlushErrors
                | Self::OriginGone
                | Self::OriginForgets
        )
    }

    /// Whether what recovery finds may be damaged.
    #[must_use]
    pub fn rots(self) -> bool {
        matches!(self, Self::MetadataRot | Self::DataRot | Self::SumsRot)
    }
}
