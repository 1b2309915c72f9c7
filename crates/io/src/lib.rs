// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices, and the io_uring driver that runs their operations.
#![deny(unsafe_code)]

pub mod clock;
mod credentials;
pub mod device;
pub mod driver;
mod errno;
pub mod fault;
mod file_extents;
pub mod memory;
pub mod process;
pub mod spec;
pub mod ublk;
mod waker;

pub use credentials::Credentials;
pub use device::nbd::ServerBounds;
pub use device::{Access, Device, Geometry, Identity, OpenError, Paced, PacedOp, Privacy};
pub use driver::{Done, Driver, DriverError, NetEvent, QueueEvent, QueueOp, SendBatch};
pub use fault::{Fault, Target};
pub use file_extents::file_extents;
pub use larder_core::size::{format_size, format_span, parse_size, rough_size};
pub use spec::{DevSpec, SpecError, whole_path};
pub use waker::Waker;
