// SPDX-License-Identifier: MIT OR Apache-2.0
//! Population: how data of the origin comes to flash without a client's write.
//!
//! | the ... | file |
//! | --- | --- |
//! | admission policy of a shard, and what the paths report to it | `demand.rs` |
//! | pace: population yields to clients (design rule 6) | `pace.rs` |
//! | one unit, part by part | `step.rs` |
//! | background workers (SCE 3.6), and units that a restart found in part | `workers.rs` |
//! | periodic exchange of units (PRWC 2.6) | `exchange.rs` |

pub(crate) mod demand;
pub(crate) mod exchange;
pub(crate) mod pace;
pub(crate) mod step;
pub(crate) mod workers;
