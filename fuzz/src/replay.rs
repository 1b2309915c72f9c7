// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replays the corpus of each target, for `scripts/coverage`: a program without tests, in which only the corpus runs.

use larder_testkit::fuzz;

fn main() {
    let targets: [(&str, fn(&[u8])); 10] = [
        ("configuration", larder::configuration::check),
        ("control_lines", fuzz::control_lines::check),
        ("guest_requests", fuzz::guest_requests::check),
        ("metadata", fuzz::metadata::check),
        ("nbd_handshake", fuzz::nbd_handshake::check),
        ("nbd_requests", fuzz::nbd_requests::check),
        ("page_log", fuzz::page_log::check),
        ("postgres_files", larder_pg::fuzz::check),
        ("shared_memory", fuzz::shared_memory::check),
        ("state_file", fuzz::state_file::check),
    ];
    for (target, check) in targets {
        let inputs = fuzz::corpus(target);
        inputs.iter().for_each(|(_, data)| check(data));
        println!("{target}: {} inputs", inputs.len());
    }
}
