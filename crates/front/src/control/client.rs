// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a serving process is asked.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use super::wire::{Answer, Command};

/// Why there is no answer, or the answer is an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failed {
    /// The exit code that this means.
    pub code: u8,
    /// One line.
    pub message: String,
}

impl Failed {
    pub(super) fn new(code: u8, message: String) -> Self {
        Self { code, message }
    }
}

/// Asks a serving process; `progress` is told how it goes.
///
/// # Errors
/// When nobody listens, or the answer is an error.
pub fn ask(
    path: &Path,
    command: &Command,
    mut progress: impl FnMut(&str),
) -> Result<Value, Failed> {
    let at = path.display();
    let lost = |e: std::io::Error| Failed::new(3, format!("{at}: the server does not answer: {e}"));
    let stream = connect(path, command)?;
    for line in BufReader::new(stream).lines() {
        let line = line.map_err(lost)?;
        match serde_json::from_str(&line) {
            Ok(Answer::Progress(text)) => progress(&text),
            Ok(Answer::Requests(_) | Answer::Recorded(_)) => {}
            Ok(Answer::Ok(value)) => return Ok(value),
            Ok(Answer::Error { code, message }) => return Err(Failed { code, message }),
            Err(e) => {
                return Err(Failed::new(3, format!("{at}: an answer is not understood: {e}")));
            }
        }
    }
    Err(Failed::new(3, format!("{at}: the server went away without an answer")))
}

/// A connection on which a command was sent.
pub(super) fn connect(path: &Path, command: &Command) -> Result<UnixStream, Failed> {
    let at = path.display();
    let mut stream = UnixStream::connect(path).map_err(|e| {
        let what = match e.kind() {
            std::io::ErrorKind::PermissionDenied => {
                "may not connect: the control socket belongs to its owner and root"
            }
            _ => "no server listens there: is it running? --name or --control must be as for serve",
        };
        Failed::new(2, format!("{at}: {what} ({e})"))
    })?;
    let mut line = serde_json::to_string(command).map_err(|e| Failed::new(2, e.to_string()))?;
    line.push('\n');
    let lost = |e: std::io::Error| Failed::new(3, format!("{at}: the server does not answer: {e}"));
    stream.write_all(line.as_bytes()).map_err(lost)?;
    Ok(stream)
}
