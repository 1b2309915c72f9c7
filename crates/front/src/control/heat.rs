// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends the list of what flash has of a volume.

use std::os::unix::net::UnixStream;

use larder_volume::{Part, Volume, VolumeError};
use serde_json::{Value, json};

use super::wire::{Answer, write_answer};

/// Parts in one line.
const LINE: usize = 4096;

pub(super) fn serve(stream: &UnixStream, volume: &Volume) -> Result<Value, VolumeError> {
    let (mut heat, mut parts, mut bytes) = (volume.heat(), 0_u64, 0_u64);
    let gone = |_| VolumeError::Refused("abandoned by its client".to_owned());
    while let Some(some) = heat.next_parts()? {
        for line in some.chunks(LINE) {
            parts += line.len() as u64;
            bytes += line.iter().map(|part| part.len).sum::<u64>();
            let three = |part: &Part| [part.offset, part.len, u64::from(part.reads)];
            write_answer(stream, &Answer::Heat(line.iter().map(three).collect())).map_err(gone)?;
        }
    }
    Ok(json!({ "parts": parts, "cached_bytes": bytes }))
}
