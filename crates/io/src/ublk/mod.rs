// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's side of ublk (`ublk_drv`): block devices whose requests a process serves.
//!
//! | the ... | file |
//! | --- | --- |
//! | structures and numbers of the interface | `uapi.rs` |
//! | commands that add, start, recover and remove devices | `control.rs` |
//! | the device through which a server gets requests and their data | `character.rs` |
//!
//! Why not `libublk`, the library of the driver's author: its queues run on a ring that the library makes and owns, one
//! for each thread, with its own event loop. A worker of Larder has one ring for its disks, sockets and queues, so that
//! one system call serves all of them; two rings need two, and a thread can wait for one ring only. What is left to take
//! from the library are a few structures.
//!
//! Only the opcodes that are encoded as `ioctl` numbers are used: kernels may be built without the older ones.

mod character;
mod control;
pub mod uapi;

pub use self::character::{Character, CharacterQueue};
pub use self::control::Control;
pub use self::uapi::{Descriptor, DeviceInfo, Params};
