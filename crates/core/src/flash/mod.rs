// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flash devices: every operation on one goes through [`Flash::io`], with a time limit and counters.
//!
//! | the ... | file |
//! | --- | --- |
//! | operations, their errors and time limits | `device.rs` |
//! | a tier of RAM over it | `ram.rs` |
//! | checksums of cached data (`--verify`); what is read is compared with them | `sums.rs`; `verified.rs` |
//! | operations that are repeated while they fail; when | `retry.rs`; `retries.rs` |
//! | guards that an operation holds until the device answers | `guards.rs` |
//! | one attachment of a device, and its end | `attached.rs` |
//! | health of a device: used, bypassed, failed | `health.rs` |

mod attached;
mod device;
mod guards;
mod health;
mod ram;
mod retries;
mod retry;
mod sums;
mod verified;

pub(crate) use self::attached::Attached;
pub(crate) use self::device::{Flash, FlashError, FlashOp, Mismatch, Owner, Role};
pub(crate) use self::guards::{Guards, InFlight, LateAnswer};
pub(crate) use self::ram::Bringing;
pub(crate) use self::retry::Unreadable;
pub(crate) use self::sums::{BLOCK_BYTES, BLOCKS_LEAST, Sums, UNSURE_BYTES};
