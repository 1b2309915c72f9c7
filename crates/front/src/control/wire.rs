// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages of a control socket.
//!
//! One JSON object a line in each direction. A request is `{"command": NAME, ...}`. The answer is any number of
//! `{"progress": TEXT}` and then one `{"ok": VALUE}` or `{"error": {"code": EXIT_CODE, "message": TEXT}}`.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use larder_volume::{Answered, Change, RangeRule, Recorded};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How long a client may take to send its request.
pub const REQUEST_BOUND: Duration = Duration::from_secs(10);
/// The longest request.
pub const MOST_LINE: u64 = 4 << 20;

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// The volume's state.
    Status,
    /// The counters.
    Stats,
    /// Make every acknowledged write durable.
    Flush {
        /// The time limit.
        bound_seconds: u64,
    },
    /// Continue without the flash device.
    Detach {
        /// How long to wait for operations in flight on the device.
        bound_seconds: u64,
    },
    /// Use this flash device as the cache.
    Attach {
        /// The device, as for `serve --flash`.
        flash: String,
        /// Use at most this many bytes of it.
        flash_bytes: Option<u64>,
        /// Overwrite foreign data.
        format: bool,
        /// Do not allocate the blocks of a file that is formatted.
        #[serde(default)]
        sparse: bool,
    },
    /// Use another part of the flash device, larger or smaller.
    Resize {
        /// Bytes of it to use; without, all that it has.
        flash_bytes: Option<u64>,
        /// The time limit.
        bound_seconds: u64,
    },
    /// Count what flash has of these ranges.
    Cached {
        /// The ranges.
        ranges: Vec<Extent>,
    },
    /// Copy these ranges to flash, in their order.
    Warm {
        /// The ranges.
        ranges: Vec<Extent>,
        /// Bytes per second at most.
        #[serde(default)]
        pace_bytes: Option<u64>,
        /// When to end.
        #[serde(default)]
        bound_seconds: Option<u64>,
        /// Warm only the first ranges, which fit beside what earlier commands of the same list took: their answer's `flash_bytes`.
        #[serde(default)]
        beside_bytes: Option<u64>,
    },
    /// Evict these ranges from flash.
    Evict {
        /// The ranges.
        ranges: Vec<Extent>,
    },
    /// Read what flash has of these ranges, and compare it with its checksums.
    Scrub {
        /// The ranges.
        ranges: Vec<Extent>,
        /// Bytes per second at most.
        #[serde(default)]
        pace_bytes: Option<u64>,
        /// When to end.
        #[serde(default)]
        bound_seconds: Option<u64>,
    },
    /// Pin or exclude these ranges, or end that, durably.
    Rule {
        /// What becomes of them.
        rule: RangeRule,
        /// The ranges.
        ranges: Vec<Extent>,
    },
    /// Hold writes, with everything on the origin, until this client closes its sending side.
    Quiesce {
        /// How long writes are held at most.
        hold_seconds: u64,
        /// The time limit until they are held.
        bound_seconds: u64,
    },
    /// Send what flash has of the volume, and how much it is read.
    Heat,
    /// Send the last requests of clients, or those before the last alarm.
    Recent {
        /// Those before the alarm.
        at_alarm: bool,
        /// Only requests that arrived so many microseconds before the last of them, or later.
        last_us: Option<u64>,
    },
    /// The configuration at the start, as a file, and the settings in use.
    Config,
    /// Change settings, until the server ends; the answer has all of them.
    Set(Change),
    /// Take a volume that left the cache it shares into it again.
    Join,
    /// Send the clients' requests until this client closes its sending side: see [`record`](super::record).
    Record,
}

/// A range of bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extent {
    /// The first byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// One line of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Progress of a command that takes a while.
    Progress(String),
    /// Requests of clients.
    Requests(Vec<Recorded>),
    /// Writes are held.
    Held,
    /// What flash has: first byte, bytes, reads.
    Heat(Vec<[u64; 3]>),
    /// Requests that were answered.
    Answered(Vec<Answered>),
    /// The recording has ended.
    Recorded(End),
    /// Success.
    Ok(Value),
    /// Failure.
    Error {
        /// The exit code.
        code: u8,
        /// The message, one line.
        message: String,
    },
}

/// How a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Requests that were dropped because the client was too slow.
    pub lost: u64,
    /// Whether the volume stopped.
    pub stopped: bool,
}

/// Reads a request, of at most [`MOST_LINE`] bytes.
///
/// # Errors
/// It cannot be read, or is not a request: one line.
pub fn read_command(from: impl Read) -> Result<Command, String> {
    let mut line = String::new();
    BufReader::new(from.take(MOST_LINE)).read_line(&mut line).map_err(|e| e.to_string())?;
    serde_json::from_str(&line).map_err(|e| {
        format!("control request: {e}; accepted: one JSON object a line with \"command\": status, stats, flush, detach, attach, resize, cached, warm, evict, scrub, rule, heat, quiesce, recent, config, set, join or record")
    })
}

/// Writes one line of an answer.
pub(crate) fn write_answer(mut stream: &UnixStream, answer: &Answer) -> std::io::Result<()> {
    let mut line = serde_json::to_string(answer)?;
    line.push('\n');
    stream.write_all(line.as_bytes())
}
