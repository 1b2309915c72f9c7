// SPDX-License-Identifier: MIT OR Apache-2.0
//! Benches and the demo: every figure stands beside the bare device's or a peer's, from one run.

pub mod bench;
pub mod demo;
pub mod process;
