// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bugs that the deaths of members must show.
