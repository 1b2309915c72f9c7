// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program as its users run it: each module has the tests of one part of it.
//!
//! Why one program of tests: most of them wait for a server, and tests of one program wait at the same time.

mod advise;
mod backup;
mod check;
mod cli;
mod control;
mod crowd;
mod demo;
mod flips;
mod fuse;
mod generate;
mod grown;
mod helper;
mod hostile;
mod hostile_clients;
mod install;
mod interop;
mod journal;
mod kill;
mod kill_presets;
mod kill_verbs;
mod metrics;
mod namespaces;
mod operate;
mod ordered;
mod other_user;
mod owned;
mod pin;
mod prometheus;
mod quiesce;
mod ram;
mod ranges;
mod record;
mod recorder;
mod remote;
mod resize;
mod restricted;
mod set;
mod shard;
mod shared;
mod slow_dir;
mod sparse;
mod stop;
mod suites;
mod top;
mod trace;
mod unnamed;
mod verify;
mod vhost_user;
mod volumes;
mod warm;
mod write_budget;
