// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume as the disk of a virtual machine: `--listen vhost-user:PATH`, a virtio-blk device whose queues the workers serve.
//!
//! | the ... | file |
//! | --- | --- |
//! | socket as a front door: one client at a time, refused or waited for | `door.rs` |
//! | client's messages: features, memory, queues | `control.rs` |
//! | features and configuration of the device | `device.rs` |
//! | memory of the guest | `memory.rs` |
//! | descriptors of a request, read once and checked | `chain.rs` |
//! | queue of requests, served by a worker | `queue.rs` |
//! | state of a queue that control and worker share | `link.rs` |
//! | record of requests in flight, which survives the server | `inflight.rs` |
//!
//! Invariants:
//! - The guest's memory is untrusted, and its processors change it at any moment. Each word that describes a request is read
//!   once. A write's data is copied once, before a device or a checksum sees it, and a read's data after the last one did.
//! - A queue whose descriptors make no sense stops, with one line that names the volume; a request that cannot be served
//!   has an error as its status.
//! - The requests of a dead server are issued again only after its operations on the devices have ended, as for ublk: the
//!   server opens its devices before its socket exists, and opening one excludes other servers until they have ended.
//! - If answered writes do not survive the process (`Volume::answers_survive`), a guest that continues after its server has
//!   its requests fail until it resets the device, so that its file systems learn of the loss.
//!
//! Why `vhost`, `virtio-queue` and `vm-memory`, and not `vhost-user-backend` on top of them: its queues are served by threads
//! with an epoll loop, which it makes and owns. A worker of Larder waits in one io_uring ring for its disks, sockets and
//! queues, and a thread can wait in one place only. It also has no record of requests in flight.
//!
//! Limits: split rings only. A client that shrinks the file of the guest's memory ends the server (SIGBUS), unless the file is
//! sealed, as QEMU's `memory-backend-memfd` is. Clients are trusted as far as that; guests are not.

mod chain;
mod control;
pub mod device;
mod door;
pub mod inflight;
pub mod link;
pub mod memory;
pub mod queue;

pub use self::door::VhostUserDoor;
