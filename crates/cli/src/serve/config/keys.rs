// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of a configuration file: the flags of `larder serve`, and which of them stand where.

use std::ffi::OsString;

use clap::Args;

use crate::serve::args::ServeArgs;

/// Keys that belong to the process, not to a volume.
pub(super) const PROCESS: &[&str] = &["client_memory", "drain", "metrics", "unrestricted"];
/// Arguments of the command line only.
pub(super) const COMMAND_LINE: &[&str] = &["config", "print_config"];

/// A key and its value, as words of the command line.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub key: String,
    /// `--key=value`, or `--key`.
    pub words: Vec<OsString>,
    /// The line in the file; none for a flag.
    pub line: Option<usize>,
}

/// `serve` by itself, as each volume is read.
pub(super) fn command() -> clap::Command {
    ServeArgs::augment_args(clap::Command::new("serve")).no_binary_name(true)
}
