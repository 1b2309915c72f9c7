// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports the state of the process to the service manager: ready, stopping, a line of status, and that it
//! lives.
//!
//! The protocol is one datagram of `KEY=VALUE` lines to the socket that `NOTIFY_SOCKET` names; see
//! sd_notify(3). Without that variable nothing is sent.
//!
//! Why not a crate: the protocol needs no more code than this.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Clients are served.
pub const READY: &str = "READY=1";
/// The stop has begun.
pub const STOPPING: &str = "STOPPING=1";

/// Sends a state to the service manager, if there is one, with a line for people.
pub fn notify(state: &str, status: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let text = format!("{state}\nSTATUS={status}\n");
    if let Err(e) = send(&path, text.trim_start().as_bytes()) {
        tracing::debug!("the service manager cannot be notified: {e}");
    }
}

/// Answers the service manager's watchdog, if there is one.
pub fn ping() {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(e) = send(&path, b"WATCHDOG=1\n") {
        tracing::debug!("the service manager cannot be notified: {e}");
    }
}

fn send(path: &OsStr, text: &[u8]) -> std::io::Result<()> {
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not block the volumes.
    socket.set_write_timeout(Some(std::time::Duration::from_secs(1)))?;
    socket.send_to_addr(text, &address).map(drop)
}
