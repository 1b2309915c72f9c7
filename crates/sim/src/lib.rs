// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine on trial: in virtual time, over modelled devices that fail, judged by an oracle.
//!
//! [`World`](world::World) is the driver; [`SimDevice`](device::SimDevice) a device with a latency
//! model, bytes and faults; [`Oracle`](oracle::Oracle) states what reads may return.
#![forbid(unsafe_code)]

pub mod budgeted;
pub mod device;
pub mod faults;
pub mod hung;
pub mod oracle;
pub mod scenario;
pub mod shared;
pub mod store;
pub mod synced;
pub mod torture;
pub mod world;
