// SPDX-License-Identifier: MIT OR Apache-2.0
//! libFuzzer's door to `larder_testkit::fuzz::guest_requests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_testkit::fuzz::guest_requests::check(data));
