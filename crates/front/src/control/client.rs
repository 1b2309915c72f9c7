// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client of a control socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use super::wire::{Answer, Command};

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failed {
    /// The exit code.
    pub code: u8,
    /// The message, one line.
    pub message: String,
}

impl Failed {
    pub(super) fn new(code: u8, message: String) -> Self {
        Self { code, message }
    }
}

/// Sends a command to a serving process and returns its result; `progress` receives progress messages.
///
/// # Errors
/// No server listens, or the command failed.
pub fn ask(
    path: &Path,
    command: &Command,
    mut progress: impl FnMut(&str),
) -> Result<Value, Failed> {
    listen(path, command, |answer| {
        if let Answer::Progress(text) = answer {
            progress(&text);
        }
    })
}

/// As [`ask`]; `hear` receives all that comes before the result.
///
/// # Errors
/// As for [`ask`].
pub fn listen(path: &Path, command: &Command, hear: impl FnMut(Answer)) -> Result<Value, Failed> {
    hear_all(path, &connect(path, command)?, hear)
}

/// Receives answers up to the result.
pub(super) fn hear_all(
    path: &Path,
    stream: &UnixStream,
    mut hear: impl FnMut(Answer),
) -> Result<Value, Failed> {
    let at = path.display();
    let lost = |e: std::io::Error| {
        Failed::new(3, format!("{at}: the connection to the server failed: {e}"))
    };
    for line in BufReader::new(stream).lines() {
        let line = line.map_err(lost)?;
        match serde_json::from_str(&line) {
            Ok(Answer::Ok(value)) => return Ok(value),
            Ok(Answer::Error { code, message }) => return Err(Failed { code, message }),
            Ok(other) => hear(other),
            Err(e) => {
                return Err(Failed::new(
                    3,
                    format!("{at}: the server's answer cannot be parsed: {e}"),
                ));
            }
        }
    }
    Err(Failed::new(3, format!("{at}: the server closed the connection without an answer")))
}

/// Connects and sends a command.
pub(super) fn connect(path: &Path, command: &Command) -> Result<UnixStream, Failed> {
    let at = path.display();
    let mut stream = UnixStream::connect(path).map_err(|e| {
        let what = match e.kind() {
            std::io::ErrorKind::PermissionDenied => {
                "permission denied: the user of the server, root and the group of --control-group may connect"
            }
            _ => "no server listens there; is it running, and are --name and --control those of serve?",
        };
        Failed::new(2, format!("{at}: {what} ({e})"))
    })?;
    let mut line = serde_json::to_string(command).map_err(|e| Failed::new(2, e.to_string()))?;
    line.push('\n');
    let lost = |e: std::io::Error| {
        Failed::new(3, format!("{at}: the connection to the server failed: {e}"))
    };
    stream.write_all(line.as_bytes()).map_err(lost)?;
    Ok(stream)
}
