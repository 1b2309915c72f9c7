// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hold of writes over the control socket, both ends.
//!
//! The server sends `"held"` when writes are held. The hold ends when the client closes its sending side or the connection, and at the
//! latest when its time is over; then the server sends how long it lasted. So a client that dies holds nothing.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use larder_volume::{Volume, VolumeError};
use serde_json::{Value, json};

use super::client::{Failed, connect, hear_all};
use super::record::has_enough;
use super::wire::{Answer, Command, write_answer};

/// How often the server checks whether the client has enough.
const POLL: Duration = Duration::from_millis(5);

pub(super) fn serve(
    stream: &UnixStream,
    volume: &Volume,
    (hold, bound): (Duration, Duration),
) -> Result<Value, VolumeError> {
    let quiet = volume.quiesce(bound)?;
    let held = Instant::now();
    tracing::info!(
        "volume '{}': writes are held for a snapshot, {} s at most",
        volume.name(),
        hold.as_secs()
    );
    let told = write_answer(stream, &Answer::Held).is_ok();
    let mut expired = false;
    while told && !has_enough(stream) {
        expired = held.elapsed() >= hold;
        if expired {
            break;
        }
        std::thread::sleep(POLL);
    }
    drop(quiet);
    let seconds = held.elapsed().as_secs_f64();
    if expired {
        tracing::warn!("volume '{}': the hold of writes reached its time limit", volume.name());
    } else {
        tracing::info!("volume '{}': writes were held for {seconds:.3} s", volume.name());
    }
    Ok(json!({ "held_seconds": seconds, "expired": expired }))
}

/// Holds writes on the client's side, and calls `during` once they are held.
///
/// # Errors
/// No server listens, or writes could not be held: the exit code and one line.
pub fn quiesce<R>(
    path: &Path,
    command: &Command,
    during: impl FnOnce() -> R,
) -> Result<(R, Value), Failed> {
    let stream = connect(path, command)?;
    let (mut during, mut done) = (Some(during), None);
    let value = hear_all(path, &stream, |answer| {
        if let (Answer::Held, Some(during)) = (answer, during.take()) {
            done = Some(during());
            // An error means that the server is gone, which the next answer shows.
            let _ = stream.shutdown(Shutdown::Write);
        }
    })?;
    let done = done.ok_or_else(|| Failed::new(3, "the server did not hold writes".to_owned()))?;
    Ok((done, value))
}
