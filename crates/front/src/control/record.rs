// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recording over the control socket, both ends: `larder trace record` and the serving process.
//!
//! The server sends `{"progress": ..}` when the recording begins, then `{"requests": [..]}` as requests arrive. It
//! sends `{"recorded": {"lost": N, "stopped": ..}}` when the client closes its sending side or the volume stops; a
//! stopping volume waits for a while until the recording is sent. A client that reads nothing for
//! [`REQUEST_BOUND`](super::wire::REQUEST_BOUND) is disconnected. Until then the workers keep requests in their rings,
//! and drop those that do not fit.
//!
//! Why the client writes the file: the file gets the permissions of the user who runs the command, not those of the
//! server.

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::Shutdown;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use larder_volume::{Recorded, Volume, VolumeError};
use rustix::net::{RecvFlags, recv};
use serde_json::{Value, json};

use super::client::{Failed, connect};
use super::wire::{Answer, Command, End, write_answer};

/// How often the server polls the workers' rings, and the client its own reasons to end.
const POLL: Duration = Duration::from_millis(10);
const CLIENT_POLL: Duration = Duration::from_millis(50);
/// How long the client waits for the final message.
const END_BOUND: Duration = Duration::from_secs(15);
/// Requests in one line.
const LINE: usize = 4096;

/// Serves a recording.
pub(super) fn serve(stream: &UnixStream, volume: &Volume) -> Result<Value, VolumeError> {
    let mut recording = volume.record()?;
    let send = |requests: Vec<Recorded>| {
        let lines = requests.chunks(LINE).map(|part| Answer::Requests(part.to_vec()));
        lines.into_iter().try_for_each(|line| write_answer(stream, &line))
    };
    let mut goes_on = true;
    let mut sent = write_answer(stream, &Answer::Progress("recording".to_owned()));
    while sent.is_ok() && goes_on && !has_enough(stream) {
        std::thread::sleep(POLL);
        let (requests, more) = recording.take();
        goes_on = more;
        sent = send(requests);
    }
    let (rest, lost) = recording.finish(volume.cache());
    let end = Answer::Recorded(End { lost, stopped: !goes_on });
    if sent.and_then(|()| send(rest)).and_then(|()| write_answer(stream, &end)).is_err() {
        // The last line may be truncated, so no further line could be parsed.
        let _ = stream.shutdown(Shutdown::Both);
    }
    Ok(json!({ "recorded": true }))
}

/// Whether the client closed its sending side or the connection.
pub(super) fn has_enough(stream: &UnixStream) -> bool {
    let mut byte = [0];
    match recv(stream, &mut byte, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
        Ok((count, _)) => count == 0,
        Err(e) => !matches!(e, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR),
    }
}

/// Records on the client's side. `hear` is called when the recording begins, for each batch of requests, and at least
/// once every `CLIENT_POLL` in between. After its first break the recording ends; `hear` still receives the requests
/// that arrived before.
///
/// # Errors
/// No server listens, the server refuses or closes the connection: the exit code and one line.
pub fn record(
    path: &Path,
    mut hear: impl FnMut(&[Recorded]) -> ControlFlow<()>,
) -> Result<End, Failed> {
    let at = path.display();
    let lost = |e: std::io::Error| {
        Failed::new(3, format!("{at}: the connection to the server failed: {e}"))
    };
    let stream = connect(path, &Command::Record)?;
    stream.set_read_timeout(Some(CLIENT_POLL)).map_err(lost)?;
    let mut lines = BufReader::new(&stream);
    let (mut line, mut began, mut enough) = (Vec::new(), false, None::<Instant>);
    loop {
        let heard = match lines.read_until(b'\n', &mut line) {
            Ok(_) if line.ends_with(b"\n") => {
                let answer = serde_json::from_slice(&line);
                line.clear();
                match answer {
                    Ok(Answer::Progress(_)) => Vec::new(),
                    Ok(Answer::Requests(requests)) => requests,
                    Ok(Answer::Recorded(end)) => return Ok(end),
                    Ok(Answer::Ok(_) | Answer::Held | Answer::Heat(_) | Answer::Answered(_)) => {
                        continue;
                    }
                    Ok(Answer::Error { code, message }) => return Err(Failed { code, message }),
                    Err(e) => {
                        return Err(Failed::new(
                            3,
                            format!("{at}: the server's answer cannot be parsed: {e}"),
                        ));
                    }
                }
            }
            Ok(_) => return Err(Failed::new(3, format!("{at}: the server closed the connection"))),
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) if e.kind() == ErrorKind::WouldBlock && !began => continue,
            Err(e) if e.kind() == ErrorKind::WouldBlock => Vec::new(),
            Err(e) => return Err(lost(e)),
        };
        began = true;
        let breaks = hear(&heard).is_break();
        match enough {
            None if breaks => {
                stream.shutdown(Shutdown::Write).map_err(lost)?;
                enough = Some(Instant::now());
            }
            Some(since) if since.elapsed() > END_BOUND => {
                return Err(Failed::new(
                    3,
                    format!("{at}: the server did not end the recording in time"),
                ));
            }
            _ => {}
        }
    }
}
