// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `larder` command.

#[global_allocator]
static ALLOCATOR: larder_io::memory::Allocator = larder_io::memory::Allocator;

fn main() -> std::process::ExitCode {
    larder::larder()
}
