// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recording over the control socket, both ends: `larder trace record` and the serving process.
//!
//! The server says `{"progress": ..}` when it listens, then `{"requests": [..]}` as they come, and
//! `{"recorded": {"lost": N, "stopped": ..}}` when the client closes its sending side or the volume
//! stops, for which a stop waits a while. A client that takes nothing for [`REQUEST_BOUND`](super::wire::REQUEST_BOUND) is cut
//! off; until then what its workers tell is kept in their rings or lost.
//!
//! Why the client writes the file: it is made with the rights of whoever asks for it, not with
//! those of the server.

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
use super::wire::{Answer, Command, End, say};

/// How often the server looks for what workers told, and the client for its own reasons to end.
const LOOK: Duration = Duration::from_millis(10);
const CLIENT_LOOK: Duration = Duration::from_millis(50);
/// How long the server may take for its last word.
const LAST_WORD: Duration = Duration::from_secs(15);
/// Requests of a line.
const LINE: usize = 4096;

/// The server's end.
pub(super) fn serve(stream: &UnixStream, volume: &Volume) -> Result<Value, VolumeError> {
    let mut recording = volume.record()?;
    let send = |requests: Vec<Recorded>| {
        let lines = requests.chunks(LINE).map(|part| Answer::Requests(part.to_vec()));
        lines.into_iter().try_for_each(|line| say(stream, &line))
    };
    let mut goes_on = true;
    let mut sent = say(stream, &Answer::Progress("recording".to_owned()));
    while sent.is_ok() && goes_on && !has_enough(stream) {
        std::thread::sleep(LOOK);
        let (requests, more) = recording.take();
        goes_on = more;
        sent = send(requests);
    }
    let (rest, lost) = recording.finish(volume);
    let end = Answer::Recorded(End { lost, stopped: !goes_on });
    if sent.and_then(|()| send(rest)).and_then(|()| say(stream, &end)).is_err() {
        // A line may have been cut short, behind which no other can be understood.
        let _ = stream.shutdown(Shutdown::Both);
    }
    Ok(json!({ "recorded": true }))
}

/// Whether the client closed its sending side, or all of it.
fn has_enough(stream: &UnixStream) -> bool {
    let mut byte = [0];
    match recv(stream, &mut byte, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
        Ok((count, _)) => count == 0,
        Err(e) => !matches!(e, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR),
    }
}

/// The client's end. `hear` is called when the recording begins, for what comes, and often enough
/// in between. Its first break ends the recording; it still hears what came before that.
///
/// # Errors
/// When nobody listens, the server refuses or goes away: the exit code and one line.
pub fn record(
    path: &Path,
    mut hear: impl FnMut(&[Recorded]) -> ControlFlow<()>,
) -> Result<End, Failed> {
    let at = path.display();
    let lost = |e: std::io::Error| Failed::new(3, format!("{at}: the server does not answer: {e}"));
    let stream = connect(path, &Command::Record)?;
    stream.set_read_timeout(Some(CLIENT_LOOK)).map_err(lost)?;
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
                    Ok(Answer::Ok(_)) => continue,
                    Ok(Answer::Error { code, message }) => return Err(Failed { code, message }),
                    Err(e) => {
                        return Err(Failed::new(
                            3,
                            format!("{at}: an answer is not understood: {e}"),
                        ));
                    }
                }
            }
            Ok(_) => return Err(Failed::new(3, format!("{at}: the server went away"))),
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
            Some(since) if since.elapsed() > LAST_WORD => {
                return Err(Failed::new(3, format!("{at}: the server does not say how it ended")));
            }
            _ => {}
        }
    }
}
