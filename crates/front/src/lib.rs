// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume being served, and its front doors.
//!
//! [`volume`] holds the worker threads; [`nbd`] and [`fuse`] are the protocols; [`listen`] where
//! clients of sockets come in; [`door`] any way in; [`control`] where the operator comes, and
//! [`recorder`] how it tells what clients ask for.

pub mod control;
pub mod door;
pub mod fuse;
pub mod listen;
pub mod nbd;
pub mod recorder;
pub mod seat;
pub mod volume;
