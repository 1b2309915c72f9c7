// SPDX-License-Identifier: MIT OR Apache-2.0
//! The places that servers and commands have in common: control sockets and state files.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::setting::BadSetting;

/// The server that a command is for.
#[derive(Args, Debug)]
pub struct ControlArgs {
    /// Control socket of the server [default: NAME.sock, or the only one, in /run/larder or $XDG_RUNTIME_DIR/larder]
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
    /// The control socket: without flags that of the only volume, if one listens and has a name.
    pub fn socket(&self) -> Result<PathBuf> {
        if let Some(control) = &self.control {
            return Ok(control.clone());
        }
        let default = default_control(&self.name)?;
        if !self.name.is_empty() || default.exists() {
            return Ok(default);
        }
        only(default, control_sockets()?)
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

/// The only control socket of these, or the default one if there is none.
fn only(default: PathBuf, mut sockets: Vec<PathBuf>) -> Result<PathBuf> {
    if sockets.len() > 1 {
        let names = sockets.iter().filter_map(|path| path.file_stem()?.to_str());
        let names = names.collect::<Vec<_>>().join(", ");
        bail!(BadSetting::new("name", format!("is missing; accepted: {names}")));
    }
    Ok(sockets.pop().unwrap_or(default))
}

/// The control sockets in the default directory, sorted.
pub fn control_sockets() -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(control_dir()?).into_iter().flatten().flatten();
    let paths = entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "sock"));
    let mut sockets: Vec<PathBuf> = paths.collect();
    sockets.sort();
    Ok(sockets)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_without_a_name_is_for_the_only_volume() {
        let only = |sockets: &[&str]| {
            only("/d/default.sock".into(), sockets.iter().map(PathBuf::from).collect())
        };
        assert_eq!(only(&[]).unwrap(), PathBuf::from("/d/default.sock"));
        assert_eq!(only(&["/d/a.sock"]).unwrap(), PathBuf::from("/d/a.sock"));
        let refused = only(&["/d/a.sock", "/d/b.sock"]).unwrap_err().to_string();
        assert_eq!(refused, "--name: is missing; accepted: a, b");
    }
}
