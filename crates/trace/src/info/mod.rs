// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a trace is like.
