// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows about page logs whose origin receives changes in their order (`ordered.rs` is their judge).

use super::bases::PAGE_LOG;
use super::kinds::LOG_ORDERED;
use super::mix::Mix;
use super::profile::Profile;
use super::promise::Trouble;

pub(super) const ORDERED: Profile = Profile {
    name: "page-log-ordered",
    what: "a page log whose origin alone is an older state of the volume",
    weight: 0,
    percent: 3,
    takes: &[&LOG_ORDERED],
    shards: &[1, 1, 2, 3],
    mix: Mix { read: 32, write: 46, flush: 14, trim: 3, zero: 5, fill: 0 },
    troubles: &[
        Trouble::None,
        Trouble::None,
        Trouble::None,
        Trouble::FlashErrors,
        Trouble::FlashSlow,
        Trouble::OriginErrors,
        Trouble::OriginFlushErrors,
    ],
    plugs: 0.001,
    ..PAGE_LOG
};
