// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control socket, over which the commands that operate a server, and `larder trace record`, reach a serving process.
//!
//! This module is the server. [`wire`] has the messages, [`client`] the client, `commands.rs` carries them out; [`record`] and
//! [`quiesce`] have both ends of a recording and of a hold of writes.
//!
//! Each volume has a socket. Where several volumes share a cache, the cache has one too, for what concerns its flash.
//!
//! Invariants: the user of this process and root may run each command, members of the readers' group `status` and
//! `stats` (with which `top` works), and other users none (`Rank`); a client has [`REQUEST_BOUND`] to send its
//! request, which has at most [`MOST_LINE`](wire::MOST_LINE) bytes. Clients are in a [`Lobby`], so that those of one user exclude no
//! other user; the user of this process and root leave it with their request, because a command may take long.

pub mod client;
mod commands;
mod follow;
mod heat;
pub mod quiesce;
mod ranges;
mod recent;
pub mod record;
mod resize;
pub mod wire;

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use larder_io::Credentials;
use larder_nbd::deadline::Deadlined;
use larder_private::{Directory, Refuse, is_refusal};
use larder_volume::VolumeError;
use larder_volume::peer::Peer;

pub use self::commands::{Rules, Target};

use self::wire::{Answer, Command, REQUEST_BOUND, read_command, write_answer};
use crate::lobby::{Lobby, Place};
use crate::socket::{Rights, bind_unix};

/// Control clients at a time, and those of one user.
const MOST_CLIENTS: usize = 16;
const MOST_EACH: usize = 8;

/// A control socket; dropping it removes the socket.
pub struct Control {
    path: PathBuf,
}

impl Control {
    /// Listens for control clients.
    ///
    /// # Errors
    /// The socket cannot be bound.
    pub fn start(path: &Path, rules: Rules, target: Target) -> Result<Self, VolumeError> {
        make_home(path)?;
        let mode = Some(if rules.readers.is_some() { 0o660 } else { 0o600 });
        let listener = bind_unix(path, Rights { mode, group: rules.readers })?;
        let body = move || accept(&listener, &rules, &target);
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
        Err(e) if is_refusal(&e) => {
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
    fn of(peer: &Credentials, owner: u32, readers: Option<u32>) -> Self {
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

fn accept(listener: &UnixListener, rules: &Rules, target: &Target) {
    let lobby = Lobby::new(MOST_CLIENTS, MOST_EACH);
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let Ok(peer) = Credentials::of(&stream) else { continue };
        let Ok(place) = lobby.enter(Peer::User(peer.user), &stream) else { continue };
        let (target, rules) = (target.clone(), rules.clone());
        let body = move || {
            let owner = rustix::process::geteuid().as_raw();
            let rank = Rank::of(&peer, owner, rules.readers);
            // An error means that the client is gone; no one is left to report it to.
            let _ = serve(stream, place, rank, &rules, &target);
        };
        // Without a thread the client is disconnected.
        let _ = std::thread::Builder::new().name("larder-control".to_owned()).spawn(body);
    }
}

fn serve(
    stream: UnixStream,
    place: Place,
    rank: Rank,
    rules: &Rules,
    target: &Target,
) -> std::io::Result<()> {
    let command = read_command(Deadlined::new(&stream, REQUEST_BOUND));
    stream.set_write_timeout(Some(REQUEST_BOUND))?;
    let answer = |answer: Answer| write_answer(&stream, &answer);
    let command = match command {
        Ok(command) => command,
        Err(message) => return answer(Answer::Error { code: 2, message }),
    };
    // Other users than the owner keep their place until they are answered.
    let _place = match rank {
        Rank::Owner => match place.leave() {
            true => None,
            false => return Ok(()),
        },
        Rank::Reader | Rank::Stranger => Some(place),
    };
    let mut last = String::new();
    let progress = |text: String| {
        if text != last {
            let _ = answer(Answer::Progress(text.clone()));
            last = text;
        }
    };
    let result =
        rank.may(&command).and_then(|()| target.execute(command, rules, &stream, progress));
    answer(match result {
        Ok(value) => Answer::Ok(value),
        Err(e) => Answer::Error { code: e.exit_code(), message: e.to_string() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_decides_which_commands_a_client_may_run() {
        let rank = |user, groups: &[u32], readers| {
            Rank::of(&Credentials { user, groups: groups.to_vec() }, 500, readers)
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
