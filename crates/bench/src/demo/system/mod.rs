// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the demo asks of the system: commands, loop devices, mounts, and an end for processes that it left.

pub mod command;
pub mod mounts;
pub mod processes;
