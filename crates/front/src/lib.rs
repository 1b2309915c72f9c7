// SPDX-License-Identifier: MIT OR Apache-2.0
//! Front doors: the protocols that clients of a volume use.
//!
//! [`nbd`], [`fuse`], [`ublk`] and [`vhost_user`] are the protocols; [`listen`] accepts the clients of sockets; [`door`] covers all kinds;
//! [`control`] is the operator's socket. The volume and its worker threads are in `larder-volume`: a worker serves a
//! connection through [`larder_volume::session`] and knows no protocol. [`lobby`] has the clients that are not served yet,
//! [`lines`] limits the lines of the log that a peer causes, [`grant`] is what the clients of a listener may do,
//! [`blocks`] are the requests of block devices.

pub mod blocks;
pub mod control;
pub mod door;
pub mod fuse;
pub mod grant;
pub mod lines;
pub mod listen;
pub mod lobby;
pub mod nbd;
pub mod socket;
pub mod ublk;
pub mod vhost_user;
