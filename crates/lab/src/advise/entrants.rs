// SPDX-License-Identifier: MIT OR Apache-2.0
//! The presets that are tried, and the handicap of each.

use larder_core::config::DEFAULT_PRESET;
use toml::Table;

use super::knee::{LEAST_YEARS, PRWC_SHARE};
use super::points::Alone;
use crate::replays::update_seconds;

/// A preset that is tried.
pub(super) struct Entrant {
    pub(super) preset: &'static str,
    /// Settings that differ from its defaults.
    pub(super) settings: Table,
    /// From one update to the next, where it has updates.
    pub(super) update_seconds: Option<i64>,
    /// Of the latency of a preset with a share of 1, how much its own may be at most to be advised instead.
    pub(super) share: f64,
    /// What the advice must warn of.
    pub(super) warning: &'static str,
    /// The assumption behind its points.
    pub(super) assumption: Option<String>,
}

/// What a user must know before flash holds the only copy of written data.
const SAFETY: &str =
    "; written data is only on flash until it is written back: losing the flash loses it";

/// The presets to try, the safer ones first. A trace without writes gains nothing by write-back.
pub(super) fn entrants(alone: &Alone) -> Vec<Entrant> {
    let clean = Entrant {
        preset: DEFAULT_PRESET,
        settings: Table::new(),
        update_seconds: None,
        share: 1.0,
        warning: "",
        assumption: None,
    };
    if alone.writes == 0 {
        return vec![clean];
    }
    let seconds = update_seconds(alone.seconds);
    let prwc = Entrant {
        preset: "prwc",
        settings: Table::from_iter([("update_seconds".to_owned(), seconds.into())]),
        update_seconds: Some(seconds),
        share: PRWC_SHARE,
        warning: SAFETY,
        assumption: Some(format!(
            "prwc exchanges units every {seconds} s here (by default every hour), and is advised over {DEFAULT_PRESET} only where \
             it takes at most {PRWC_SHARE} of the latency, or where it pays and {DEFAULT_PRESET} does not or would wear flash out \
             within {LEAST_YEARS} years."
        )),
    };
    vec![clean, prwc]
}
