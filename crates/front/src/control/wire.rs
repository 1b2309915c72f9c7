// SPDX-License-Identifier: MIT OR Apache-2.0
//! What both ends of a control socket say.
//!
//! One JSON object a line in each direction. A request is `{"command": NAME, ...}`; answers are
//! any number of `{"progress": TEXT}` and then one `{"ok": VALUE}` or
//! `{"error": {"code": EXIT_CODE, "message": TEXT}}`.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use larder_volume::Recorded;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How long a client may take to say what it wants.
pub const REQUEST_BOUND: Duration = Duration::from_secs(10);
/// The longest request.
pub const MOST_LINE: u64 = 64 << 10;

/// What may be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// What the volume is and does.
    Status,
    /// The counters.
    Stats,
    /// Make everything answered so far durable.
    Flush {
        /// How long that may take.
        bound_seconds: u64,
    },
    /// Go on without the flash device.
    Detach {
        /// How long operations on it are waited for.
        bound_seconds: u64,
    },
    /// Cache on this flash device.
    Attach {
        /// The device, as for `serve --flash`.
        flash: String,
        /// Use at most so many bytes of it.
        flash_bytes: Option<u64>,
        /// Overwrite foreign data.
        format: bool,
    },
    /// Tell what clients ask for, until this client closes its sending side: see
    /// [`record`](super::record).
    Record,
}

/// One line of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It takes a while.
    Progress(String),
    /// What clients asked for.
    Requests(Vec<Recorded>),
    /// That was all of them.
    Recorded(End),
    /// Done.
    Ok(Value),
    /// Not done.
    Error {
        /// The exit code that this means.
        code: u8,
        /// One line.
        message: String,
    },
}

/// How a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Requests that were not told, since this end was too slow.
    pub lost: u64,
    /// Whether the volume stopped.
    pub stopped: bool,
}

/// One line of an answer.
pub(crate) fn say(mut stream: &UnixStream, answer: &Answer) -> std::io::Result<()> {
    let mut line = serde_json::to_string(answer)?;
    line.push('\n');
    stream.write_all(line.as_bytes())
}
