// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test helpers shared by several crates; a dev-dependency, never a dependency.
//!
//! | tests of | modules | feature |
//! | --- | --- | --- |
//! | the engine | [`memory`], [`units`], [`fixtures`] | |
//! | the fuzz targets and their corpus | `fuzz` | `fuzz` |
//! | a volume and its front doors in this process; raw clients | `load`, `rig`, `certs`, `sent`; `raw` | `served` |
//! | disks of virtual machines | `guest` | `guest` |
//! | the command | `command`, `place`, `server`, `fuse` | `command` |
//!
//! Why features: the tests of `larder-core` are built without the crates above it.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::missing_panics_doc)] // a test that cannot continue fails
#![allow(clippy::new_without_default)] // a rig needs its parts

pub mod fixtures;
pub mod memory;
pub mod units;

#[cfg(feature = "fuzz")]
pub mod fuzz;

#[cfg(feature = "served")]
pub mod certs;
#[cfg(feature = "served")]
pub mod load;
#[cfg(feature = "served")]
pub mod rig;
#[cfg(feature = "served")]
pub mod sent;

#[cfg(feature = "guest")]
pub mod guest;

#[cfg(feature = "command")]
pub mod command;
#[cfg(feature = "command")]
pub mod fuse;
#[cfg(feature = "command")]
pub mod place;
#[cfg(feature = "served")]
pub mod raw;
#[cfg(feature = "command")]
pub mod server;
