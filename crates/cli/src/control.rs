// SPDX-License-Identifier: MIT OR Apache-2.0
//! The places that servers and commands have in common: control sockets and state files.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::setting::BadSetting;

/// The server that a command is for.
#[derive(Args, Debug)]
pub struct ControlArgs {
    /// Control socket of the server [default: NAME.sock in /run/larder or $XDG_RUNTIME_DIR/larder]
    #[arg(long, value_name = "SOCKET")]
    pub control: Option<PathBuf>,
    /// Export name of the volume, for the default socket
    #[arg(long, default_value = "")]
    pub name: String,
    /// Print one JSON value
    #[arg(long)]
    pub json: bool,
}

impl ControlArgs {
    /// The control socket.
    pub fn socket(&self) -> Result<PathBuf> {
        self.control.clone().map_or_else(|| default_control(&self.name), Ok)
    }
}

/// The directory of control sockets without --control.
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

/// The control socket of a volume without --control.
pub fn default_control(name: &str) -> Result<PathBuf> {
    let file = if name.is_empty() { "default" } else { name };
    if file.contains('/') {
        bail!(BadSetting::of("name", name, "has a slash; give --control SOCKET"));
    }
    Ok(control_dir()?.join(format!("{file}.sock")))
}

/// The directory of state files without --state: the one that systemd gives (`StateDirectory=`), or that of the user.
pub fn default_state() -> Result<PathBuf> {
    if let Some(dirs) = std::env::var_os("STATE_DIRECTORY")
        && let Some(dir) = std::env::split_paths(&dirs).find(|dir| dir.is_absolute())
    {
        return Ok(dir);
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/larder"));
    }
    let from = |key: &str| std::env::var_os(key).filter(|v| !v.is_empty()).map(PathBuf::from);
    let state = from("XDG_STATE_HOME").or_else(|| Some(from("HOME")?.join(".local/state")));
    Ok(state.context("neither $XDG_STATE_HOME nor $HOME is set; give --state DIR")?.join("larder"))
}
