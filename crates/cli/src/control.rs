// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a serving process is found: its control socket.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::setting::BadSetting;

/// Where the serving process is found.
#[derive(Args, Debug)]
pub struct ControlArgs {
    /// Its control socket [default: /run/larder/NAME.sock for root, else
    /// $XDG_RUNTIME_DIR/larder/NAME.sock]
    #[arg(long, value_name = "SOCKET")]
    pub control: Option<PathBuf>,
    /// Its export name, for the default socket
    #[arg(long, default_value = "")]
    pub name: String,
    /// One JSON value on stdout
    #[arg(long)]
    pub json: bool,
}

impl ControlArgs {
    /// The socket that they name.
    pub fn socket(&self) -> Result<PathBuf> {
        self.control.clone().map_or_else(|| default_control(&self.name), Ok)
    }
}

/// The directory of the control sockets of those that are given none.
pub fn control_dir() -> Result<PathBuf> {
    let root = rustix::process::geteuid().is_root();
    let dir = if root {
        PathBuf::from("/run")
    } else {
        let dir = std::env::var_os("XDG_RUNTIME_DIR");
        dir.map(PathBuf::from).context("XDG_RUNTIME_DIR is not set; give --control SOCKET")?
    };
    Ok(dir.join("larder"))
}

/// The control socket of a volume that was given none.
pub fn default_control(name: &str) -> Result<PathBuf> {
    let file = if name.is_empty() { "default" } else { name };
    if file.contains('/') {
        bail!(BadSetting::of("name", name, "has a slash; give --control SOCKET"));
    }
    Ok(control_dir()?.join(format!("{file}.sock")))
}
