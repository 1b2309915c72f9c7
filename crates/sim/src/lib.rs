// SPDX-License-Identifier: MIT OR Apache-2.0
//! The laboratory: the engine in virtual time, over modelled devices, judged by an oracle.
//!
//! [`World`](world::World) is the driver; [`SimDevice`](device::SimDevice) a device with a latency
//! model, bytes and faults; [`Oracle`](oracle::Oracle) says what reads may return.
#![forbid(unsafe_code)]

pub mod check;
pub mod database;
pub mod device;
pub mod faults;
pub mod hierarchy;
pub mod hits;
pub mod load;
pub mod oracle;
pub mod scenario;
pub mod store;
pub mod torture;
pub mod world;
