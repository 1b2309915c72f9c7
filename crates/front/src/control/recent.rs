// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends what the flight recorder has of a volume.

use std::os::unix::net::UnixStream;

use larder_volume::{Volume, VolumeError};
use serde_json::{Value, json};

use super::wire::{Answer, write_answer};

/// Requests in one line.
const LINE: usize = 4096;

pub(super) fn serve(
    stream: &UnixStream,
    volume: &Volume,
    at_alarm: bool,
    last_us: Option<u64>,
) -> Result<Value, VolumeError> {
    let recent = volume.recent(at_alarm)?;
    let end_us = recent.requests.last().map_or(0, |request| request.at_us);
    let from_us = end_us.saturating_sub(last_us.unwrap_or(u64::MAX));
    let first = recent.requests.partition_point(|request| request.at_us < from_us);
    let gone = |_| VolumeError::Refused("abandoned by its client".to_owned());
    for line in recent.requests[first..].chunks(LINE) {
        write_answer(stream, &Answer::Answered(line.to_vec())).map_err(gone)?;
    }
    Ok(json!({ "alarm": recent.alarm }))
}
