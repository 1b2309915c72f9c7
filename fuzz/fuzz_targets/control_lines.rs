// SPDX-License-Identifier: MIT OR Apache-2.0
//! libFuzzer's door to `larder_testkit::fuzz::control_lines`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_testkit::fuzz::control_lines::check(data));
