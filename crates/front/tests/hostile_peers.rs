// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hostile peers: bytes of NBD clients, of guests, of an origin's server and of control clients, random and the same in every run:
//! inputs of the fuzz corpus, changed, and random pieces. The checks are those of the fuzz targets, with a time limit for
//! each input and bounded memory. `crates/cli/tests/command/hostile_clients.rs` sends such bytes to a live server.
//!
//! Without variables a few hundred of each; with `LARDER_HOSTILE_CLIENTS`, `LARDER_HOSTILE_ORIGINS` or
//! `LARDER_HOSTILE_LINES` so many.

use larder_testkit::fuzz::campaign::Campaign;
use larder_testkit::fuzz::{control_lines, guest_requests, nbd_handshake, nbd_requests};

const CLIENTS: Campaign = Campaign { variable: "LARDER_HOSTILE_CLIENTS", few: 300 };
const ORIGINS: Campaign = Campaign { variable: "LARDER_HOSTILE_ORIGINS", few: 300 };
const LINES: Campaign = Campaign { variable: "LARDER_HOSTILE_LINES", few: 300 };

/// The bytes are those of a client, for a server.
fn of_client(mut input: Vec<u8>) -> Vec<u8> {
    input[0] &= !1;
    input
}

/// The bytes are those of a server, for a client.
fn of_server(mut input: Vec<u8>) -> Vec<u8> {
    input[0] |= 1;
    input
}

#[test]
fn a_hostile_client_negotiates_nothing_or_an_export() {
    CLIENTS.run_as("nbd_handshake", nbd_handshake::check, of_client);
}

#[test]
fn requests_of_a_hostile_client_are_bounded() {
    CLIENTS.run_as("nbd_requests", nbd_requests::check, of_client);
}

#[test]
fn a_hostile_guest_stops_its_queue_or_is_served() {
    CLIENTS.run("guest_requests", guest_requests::check);
}

#[test]
fn the_negotiation_with_a_hostile_origin_ends() {
    ORIGINS.run_as("nbd_handshake", nbd_handshake::check, of_server);
}

#[test]
fn replies_of_a_hostile_origin_are_validated() {
    ORIGINS.run_as("nbd_requests", nbd_requests::check, of_server);
}

#[test]
fn hostile_control_lines_are_parsed_or_rejected() {
    LINES.run_as("control_lines", control_lines::check, of_client);
}

#[test]
fn hostile_answers_to_a_control_client_end() {
    LINES.run_as("control_lines", control_lines::check, of_server);
}
