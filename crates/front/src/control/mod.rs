// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control socket, over which `larder status`, `stats`, `flush`, `detach`, `attach` and `trace record` reach a
//! serving process.
//!
//! This module is the server. [`wire`] has the messages, [`client`] the client, and [`record`] both ends of a
//! recording.
//!
//! Invariants: the user of this process and root may run each command, members of the readers' group `status` and
//! `stats` (with which `top` works), and other users none (`Rank`); a client has [`REQUEST_BOUND`] to send its
//! request, which has at most [`MOST_LINE`] bytes.

pub mod client;
pub mod record;
pub mod wire;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use larder_core::format::Wishes;
use larder_io::{DevSpec, Device, OpenError, Peer};
use larder_nbd::deadline::Deadlined;
use larder_private::{Directory, Refuse};
use larder_volume::{FlashDevice, Volume, VolumeError};
use serde_json::{Value, json};

use self::wire::{Answer, Command, MOST_LINE, REQUEST_BOUND, write_answer};
use crate::socket::{Rights, bind_unix};

/// Control clients served at a time.
const MOST_CLIENTS: usize = 16;

/// The control socket of a volume; dropping it removes the socket.
pub struct Control {
    path: PathBuf,
}

impl Control {
    /// Listens for control clients. `readers` is the group whose members may read the state and the counters.
    ///
    /// # Errors
    /// The socket cannot be bound.
    pub fn start(
        path: &Path,
        readers: Option<u32>,
        volume: Arc<Volume>,
    ) -> Result<Self, VolumeError> {
        make_home(path)?;
        let mode = Some(if readers.is_some() { 0o660 } else { 0o600 });
        let listener = bind_unix(path, Rights { mode, group: readers })?;
        let body = move || accept(&listener, readers, &volume);
        let thread = std::thread::Builder::new().name("larder-control".to_owned()).spawn(body);
        thread.map_err(VolumeError::Thread)?;
        Ok(Self { path: path.to_owned() })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Makes the directory of a control socket, if it is missing, and checks that no other user can exchange the socket.
///
/// # Errors
/// It does not exist and cannot be created, it is not a directory, or other users can exchange files in it.
pub fn make_home(control: &Path) -> Result<(), VolumeError> {
    let dir = control.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let at = dir.display();
    match Directory::create(dir, Refuse::NOTHING, 0o755) {
        Ok(_) => Ok(()),
        // It is refused: see `larder_private::Refused`.
        Err(e) if e.raw_os_error().is_none() => {
            Err(VolumeError::Refused(format!("control socket {}: {e}", control.display())))
        }
        Err(e) if dir.exists() => {
            Err(VolumeError::Usage(format!("{at}: cannot be used for a control socket: {e}")))
        }
        Err(e) => {
            Err(VolumeError::Usage(format!("{at}: does not exist and cannot be created: {e}")))
        }
    }
}

/// What a client may do, by the user and the groups that the kernel states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rank {
    /// The user of this process, or root: every command.
    Owner,
    /// A member of the readers' group.
    Reader,
    /// Any other user.
    Stranger,
}

impl Rank {
    fn of(peer: &Peer, owner: u32, readers: Option<u32>) -> Self {
        match readers {
            _ if peer.user == owner || peer.user == 0 => Self::Owner,
            Some(group) if peer.groups.contains(&group) => Self::Reader,
            _ => Self::Stranger,
        }
    }

    fn may(self, command: &Command) -> Result<(), VolumeError> {
        let reads = matches!(command, Command::Status | Command::Stats);
        let who = match self {
            Self::Owner => return Ok(()),
            Self::Reader if reads => return Ok(()),
            Self::Reader => "the group of --control-group may run status, stats and top",
            Self::Stranger => "a group of --control-group can be given status, stats and top",
        };
        Err(VolumeError::Refused(format!(
            "control socket: the user of the server and root may run this command; {who}"
        )))
    }
}

fn accept(listener: &UnixListener, readers: Option<u32>, volume: &Arc<Volume>) {
    let clients = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        if clients.fetch_add(1, Ordering::SeqCst) >= MOST_CLIENTS {
            clients.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let (volume, served) = (Arc::clone(volume), Arc::clone(&clients));
        let body = move || {
            // An error means that the client is gone; no one is left to report it to.
            let _ = serve(stream, readers, &volume);
            served.fetch_sub(1, Ordering::SeqCst);
        };
        let thread = std::thread::Builder::new().name("larder-control".to_owned());
        if thread.spawn(body).is_err() {
            clients.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn serve(stream: UnixStream, readers: Option<u32>, volume: &Volume) -> std::io::Result<()> {
    let owner = rustix::process::geteuid().as_raw();
    let rank = Rank::of(&Peer::of(&stream)?, owner, readers);
    let mut line = String::new();
    let request = Deadlined::new(&stream, REQUEST_BOUND).take(MOST_LINE);
    let read = BufReader::new(request).read_line(&mut line);
    stream.set_write_timeout(Some(REQUEST_BOUND))?;
    let answer = |answer: Answer| write_answer(&stream, &answer);
    let command = match read.map_err(|e| e.to_string()).and_then(|_| parse(&line)) {
        Ok(command) => command,
        Err(message) => return answer(Answer::Error { code: 2, message }),
    };
    let mut last = String::new();
    let progress = |text: String| {
        if text != last {
            let _ = answer(Answer::Progress(text.clone()));
            last = text;
        }
    };
    let result = rank.may(&command).and_then(|()| execute(command, volume, &stream, progress));
    answer(match result {
        Ok(value) => Answer::Ok(value),
        Err(e) => Answer::Error { code: e.exit_code(), message: e.to_string() },
    })
}

fn parse(line: &str) -> Result<Command, String> {
    serde_json::from_str(line).map_err(|e| {
        format!("control request: {e}; accepted: one JSON object a line with \"command\": status, stats, flush, detach, attach or record")
    })
}

/// The error of an attach, with the reason why a server that restricted itself may lack the permission.
fn explain(error: OpenError) -> VolumeError {
    let denied = rustix::io::Errno::ACCESS.raw_os_error();
    match &error {
        OpenError::System { errno, .. } if errno.0 == denied => VolumeError::Usage(format!(
            "{error}; accepted, unless the server runs with --unrestricted: a device in /dev, or a file in the directory \
             of the flash that the server was started with"
        )),
        _ => error.into(),
    }
}

/// Limits a client's time limit to one day.
fn bounded(seconds: u64) -> Duration {
    Duration::from_secs(seconds.min(24 * 3600))
}

fn execute(
    command: Command,
    volume: &Volume,
    stream: &UnixStream,
    mut progress: impl FnMut(String),
) -> Result<Value, VolumeError> {
    let value = |v| serde_json::to_value(v).map_err(|e| VolumeError::Usage(e.to_string()));
    match command {
        Command::Status => volume.status().and_then(|s| value(json!(s))),
        Command::Stats => volume.stats().and_then(|s| value(json!(s))),
        Command::Flush { bound_seconds } => {
            volume.flush(bounded(bound_seconds))?;
            Ok(json!({ "flushed": true }))
        }
        Command::Detach { bound_seconds } => {
            let bound = bounded(bound_seconds);
            let began = std::time::Instant::now();
            volume.detach(bound, |n| {
                if began.elapsed() > Duration::from_secs(1) {
                    progress(format!("waiting for flash operations on {n} workers"));
                }
            })?;
            Ok(json!({ "detached": true }))
        }
        Command::Attach { flash, flash_bytes, format } => {
            let spec: DevSpec = flash.parse().map_err(|e| VolumeError::Usage(format!("{e}")))?;
            let device = Device::open_private(&spec).map_err(explain)?;
            let choices = &volume.config().choices;
            let wishes = Wishes { formats: format, adopted: false };
            let flash = FlashDevice::prepare(device, flash_bytes, volume.shape(), choices, wishes)?;
            let units = flash.plan.slots();
            volume.attach(flash)?;
            Ok(json!({ "attached": true, "units_total": units }))
        }
        Command::Record => record::serve(stream, volume),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_decides_which_commands_a_client_may_run() {
        let rank = |user, groups: &[u32], readers| {
            Rank::of(&Peer { user, groups: groups.to_vec() }, 500, readers)
        };
        let detach = Command::Detach { bound_seconds: 1 };
        for (rank, expected, reads, changes) in [
            (rank(500, &[], None), Rank::Owner, true, true),
            (rank(0, &[7], Some(9)), Rank::Owner, true, true),
            (rank(501, &[7, 9], Some(9)), Rank::Reader, true, false),
            (rank(501, &[7, 8], Some(9)), Rank::Stranger, false, false),
            (rank(501, &[0, 500], None), Rank::Stranger, false, false),
        ] {
            assert_eq!(rank, expected);
            assert_eq!(rank.may(&Command::Status).is_ok(), reads);
            assert_eq!(rank.may(&Command::Stats).is_ok(), reads);
            for command in [&detach, &Command::Record, &Command::Flush { bound_seconds: 1 }] {
                assert_eq!(rank.may(command).is_ok(), changes, "{command:?}");
            }
        }
    }
}
