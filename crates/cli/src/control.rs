// SPDX-License-Identifier: MIT OR Apache-2.0
//! The places that servers and commands have in common: control sockets and state files.

use std::path::{Path, PathBuf};

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
    /// The control socket: without flags that of the only volume, if one listens and has a name. Sockets of the user's own
    /// servers precede those of the system.
    pub fn socket(&self) -> Result<PathBuf> {
        if let Some(control) = &self.control {
            return Ok(control.clone());
        }
        let (file, own) = (socket_file(&self.name)?, control_dir());
        let dirs = own.iter().map(PathBuf::as_path).chain([Path::new(SYSTEM)]);
        match find(dirs, &file, !self.name.is_empty())? {
            Some(socket) => Ok(socket),
            None => Ok(own?.join(file)),
        }
    }
}

/// The directory of control sockets of root's servers and of services.
const SYSTEM: &str = "/run/larder";

/// The directory of control sockets without --control: the one that systemd gives (`RuntimeDirectory=`), or that of the
/// user.
pub fn control_dir() -> Result<PathBuf> {
    if let Some(dir) = given_by_systemd("RUNTIME_DIRECTORY") {
        return Ok(dir);
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from(SYSTEM));
    }
    let dir = std::env::var_os("XDG_RUNTIME_DIR");
    let dir =
        dir.map(PathBuf::from).context("XDG_RUNTIME_DIR is not set; give --control SOCKET")?;
    Ok(dir.join("larder"))
}

/// The first directory of a variable in which systemd names the directories of a service.
fn given_by_systemd(variable: &str) -> Option<PathBuf> {
    let dirs = std::env::var_os(variable)?;
    std::env::split_paths(&dirs).find(|dir| dir.is_absolute())
}

/// The group of a name or a number.
pub fn group(given: &str) -> Result<u32> {
    if let Ok(number) = given.parse() {
        return Ok(number);
    }
    match nix::unistd::Group::from_name(given) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => {
            bail!(BadSetting::of("control_group", given, "accepted the name or number of a group"))
        }
        Err(e) => {
            bail!(BadSetting::of("control_group", given, format!("cannot be looked up: {e}")))
        }
    }
}

/// The control socket of this file in the first of the directories that has it, or has one at all if no volume is named.
fn find<'a>(
    dirs: impl IntoIterator<Item = &'a Path>,
    file: &str,
    is_named: bool,
) -> Result<Option<PathBuf>> {
    for dir in dirs {
        let socket = dir.join(file);
        if socket.exists() {
            return Ok(Some(socket));
        }
        let mut sockets = if is_named { Vec::new() } else { sockets_in(dir) };
        if sockets.len() > 1 {
            let names = sockets.iter().filter_map(|path| path.file_stem()?.to_str());
            let names = names.collect::<Vec<_>>().join(", ");
            bail!(BadSetting::new("name", format!("is missing; accepted: {names}")));
        }
        if let Some(only) = sockets.pop() {
            return Ok(Some(only));
        }
    }
    Ok(None)
}

/// The control sockets in the default directory, sorted. A user without servers may be in the group that reads those
/// of the system.
pub fn control_sockets() -> Result<Vec<PathBuf>> {
    let (own, system) = (control_dir(), Path::new(SYSTEM));
    let sockets = own.as_ref().map(|dir| sockets_in(dir)).unwrap_or_default();
    let sockets = if sockets.is_empty() { sockets_in(system) } else { sockets };
    if sockets.is_empty() { own.map(|_| sockets) } else { Ok(sockets) }
}

fn sockets_in(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let paths = entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "sock"));
    let mut sockets: Vec<PathBuf> = paths.collect();
    sockets.sort();
    sockets
}

/// The control socket of a volume without --control.
pub fn default_control(name: &str) -> Result<PathBuf> {
    Ok(control_dir()?.join(socket_file(name)?))
}

fn socket_file(name: &str) -> Result<String> {
    let file = if name.is_empty() { "default" } else { name };
    if file.contains('/') {
        bail!(BadSetting::of("name", name, "has a slash; give --control SOCKET"));
    }
    Ok(format!("{file}.sock"))
}

/// The directory of state files without --state: the one that systemd gives (`StateDirectory=`), or that of the user.
pub fn default_state() -> Result<PathBuf> {
    if let Some(dir) = given_by_systemd("STATE_DIRECTORY") {
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
        let (dir, system) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| dir.path().join(name);
        let find = |file: &str, is_named| find([dir.path(), system.path()], file, is_named);
        assert_eq!(find("default.sock", false).unwrap(), None);
        // Of another user's server.
        std::fs::write(system.path().join("default.sock"), "").unwrap();
        assert_eq!(find("default.sock", false).unwrap(), Some(system.path().join("default.sock")));
        std::fs::write(at("a.sock"), "").unwrap();
        assert_eq!(find("default.sock", false).unwrap(), Some(at("a.sock")));
        assert_eq!(find("b.sock", true).unwrap(), None);
        std::fs::write(at("b.sock"), "").unwrap();
        assert_eq!(find("b.sock", true).unwrap(), Some(at("b.sock")));
        let refused = find("default.sock", false).unwrap_err().to_string();
        assert_eq!(refused, "--name: is missing; accepted: a, b");
        std::fs::write(at("default.sock"), "").unwrap();
        assert_eq!(find("default.sock", false).unwrap(), Some(at("default.sock")));
    }

    #[test]
    fn a_group_is_named_or_numbered() {
        assert_eq!((group("root").unwrap(), group("7").unwrap()), (0, 7));
        let refused = group("no such group").unwrap_err().to_string();
        assert!(refused.starts_with("--control-group: got no such group, accepted"), "{refused}");
    }
}
