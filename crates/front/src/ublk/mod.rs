// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume as a block device, `/dev/ublkbN`: `--listen ublk[:N]`.
//!
//! | the ... | file |
//! | --- | --- |
//! | device as a front door: opened, closed, left to the next server | `door.rs` |
//! | control commands, and the thread that runs them | `commands.rs`, `controller.rs` |
//! | decision what becomes of a device of an earlier server | `plan.rs`, `settle.rs` |
//! | size, blocks and attributes of the device | `wish.rs` |
//! | queue of requests, of which each worker serves one | `queue.rs` |
//! | word by which a server recognises a device of its volume | `word.rs` |
//! | name of the volume, for udev | `record.rs` |
//!
//! Invariants:
//! - A device survives its server only if each answered write survives the process (`Choices::answers_survive`), and if
//!   both devices are local. Otherwise it fails its I/O when the server ends, so that a file system learns of the loss.
//! - A server recovers a device only if it serves the same volume under the same grant, see `word.rs`.
//! - The requests of a dead server are issued again only after its operations on the devices have ended. The server
//!   opens its devices before it recovers, and opening one excludes other servers (an exclusive lock of a file,
//!   `O_EXCL` of a block device). The lock belongs to the open file, which each operation in the kernel holds until it
//!   ends, also after the death of its process.
//! - Why not with an NBD origin: the server of an export has no such lock, and may execute a request of the dead
//!   connection after one of the new one.
//!
//! Why no zero copy (`UBLK_F_SUPPORT_ZERO_COPY`): the devices would read and write the client's own pages. A client may
//! change a page between the write to the origin and the write to flash, which would then differ; a checksum would be of
//! neither; and a flash that does not answer would hold the page of a read that the origin has answered (rule 5 of
//! docs/design.md).
//!
//! Limits: the kernel gives requests of a dead server back at once, but before Linux 6.16 only after 30 s if all tags of
//! a queue were in flight. The size of a device does not change. Data is copied between the kernel and the server.

mod commands;
mod controller;
mod door;
mod plan;
mod queue;
pub mod record;
mod settle;
mod wish;
mod word;

pub use self::commands::Commands;
pub use self::controller::Controller;
pub use self::door::UblkDoor;
