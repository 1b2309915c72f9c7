// SPDX-License-Identifier: MIT OR Apache-2.0
//! Population: copies data of the origin to flash.
//!
//! | the ... | file |
//! | --- | --- |
//! | admission policy of a shard, and the reports that it gets from the paths | `demand.rs` |
//! | single pages without the rest of their unit | `singles.rs` |
//! | sequential streams, which bypass the cache or are read ahead | `streams.rs` |
//! | pace: population yields to clients (design rule 6) | `pace.rs` |
//! | one unit, part by part | `step.rs` |
//! | background workers (SCE 3.6), and the repair of units that were recovered in part | `workers.rs` |
//! | periodic exchange of units (PRWC 2.6) | `exchange.rs` |

pub(crate) mod demand;
pub(crate) mod exchange;
pub(crate) mod pace;
pub(crate) mod singles;
pub(crate) mod step;
mod streams;
pub(crate) mod workers;
