// SPDX-License-Identifier: MIT OR Apache-2.0
//! The helper: a small process beside the server that does what needs privileges which the server drops. It mounts and
//! unmounts the files of FUSE listeners.
//!
//! Purpose: the process that parses bytes of clients neither holds CAP_SYS_ADMIN nor executes `fusermount3`, so that it
//! can restrict itself with a FUSE file as without one.
//!
//! Invariants: it is started before the server drops its privileges and while the server has one thread, and only if a
//! listener is a file. All mounts of `larder serve` go through it, whatever the privileges of the user. If the helper
//! ended or does not answer, the server reports it and sends no further request: it serves the files until its stop, and
//! they stay mounted. A server that stops waits for the end of its helper.
//!
//! Why a process and not a thread: threads share memory, so that an attacker who controls one controls all. Why the same
//! executable: nothing else must be installed, and the two cannot differ in version. Why numbers and not paths in
//! requests: an attacker who controls the server cannot mount elsewhere.

pub mod process;
mod wire;

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use larder_front::fuse::descriptor::{receive, send};
use larder_front::fuse::error::MountError;
use larder_front::fuse::mount::Unmounted;
use larder_front::fuse::mounter::{Mounted, Mounter};
use larder_front::listen::{Listen, ListenSpec};
use larder_volume::VolumeError;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use self::wire::{MOST_BYTES, Reply, Request, Verb};

/// The hidden subcommand.
pub const COMMAND: &str = "helper";
/// How long the helper may take for a reply at a start. It waits 5 s for the server of an existing mount.
const START_BOUND: Duration = Duration::from_secs(20);
/// The same at a stop, which has a bound of its own.
const STOP_BOUND: Duration = Duration::from_secs(3);
/// How long the end of the helper may take.
const END_BOUND: Duration = Duration::from_secs(5);
/// Time between two looks whether it has ended.
const POLL: Duration = Duration::from_millis(5);

/// The helper of a server, seen from the server.
pub struct Helper {
    /// The files, in the order of the helper's arguments.
    places: Vec<PathBuf>,
    /// None: there is none, or it is lost.
    process: Mutex<Option<Process>>,
}

struct Process {
    child: Child,
    socket: OwnedFd,
}

impl Helper {
    /// Starts a helper for the files among the listeners; none, if there is none.
    ///
    /// # Errors
    /// It cannot be executed.
    pub fn start<'a>(listeners: impl IntoIterator<Item = &'a Listen>) -> Result<Self> {
        let path = |listen: &'a Listen| match &listen.spec {
            ListenSpec::Fuse(path) => Some((listen, path.clone())),
            _ => None,
        };
        let (files, places): (Vec<&Listen>, Vec<PathBuf>) =
            listeners.into_iter().filter_map(path).unzip();
        let process = match files.is_empty() {
            true => None,
            false => Some(spawn(&files).context("cannot start the helper process for FUSE files")?),
        };
        Ok(Self { places, process: Mutex::new(process) })
    }

    /// Reports a helper that has ended by itself.
    pub fn look(&self) {
        let mut process = self.process();
        let ended = process.as_mut().and_then(|p| p.child.try_wait().transpose());
        if let Some(how) = ended {
            let how = how.map_or_else(|e| e.to_string(), |status| status.to_string());
            *process = None;
            tracing::error!("{}", self.lost(&format!("the helper process ended ({how})")));
        }
    }

    /// The consequence of a lost helper.
    fn lost(&self, why: &str) -> String {
        let paths: Vec<String> = self.places.iter().map(|p| p.display().to_string()).collect();
        let paths = paths.join(", ");
        format!("{why}; mounted until the next start there: {paths}")
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the helper, and returns its reply, with the descriptor of a mount.
    fn ask(&self, verb: Verb, path: &Path) -> Result<(Reply, Option<OwnedFd>), String> {
        let place = self.places.iter().position(|known| known == path);
        let place = place.ok_or_else(|| "is not a file of this server".to_owned())?;
        let mut process = self.process();
        let Some(Process { socket, .. }) = process.as_ref() else {
            return Err("the helper process is lost".to_owned());
        };
        let bound = match verb {
            Verb::Check | Verb::Mount => START_BOUND,
            Verb::Unmount | Verb::Detach => STOP_BOUND,
        };
        let _ = set_socket_timeout(socket, Timeout::Recv, Some(bound));
        let mut bytes = [0; MOST_BYTES];
        let request = Request { verb, place };
        let asked = send(socket, &request.bytes(), None).and_then(|()| receive(socket, &mut bytes));
        let why = match asked {
            Ok((0, _)) => "the helper process ended".to_owned(),
            Ok((len, fd)) => match bytes.get(..len).and_then(Reply::parse) {
                Some(reply) => return Ok((reply, fd)),
                None => "the helper process gave a wrong reply".to_owned(),
            },
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                format!("the helper process does not answer within {} s", bound.as_secs())
            }
            Err(e) => format!("the helper process cannot be asked: {e}"),
        };
        // A late reply would be taken for that to the next request, so that there is none.
        *process = None;
        tracing::error!("{}", self.lost(&why));
        Err(why)
    }

    /// As [`ask`](Self::ask), for a request whose errors are those of a start.
    fn ask_at_start(
        &self,
        verb: Verb,
        path: &Path,
    ) -> Result<(Reply, Option<OwnedFd>), VolumeError> {
        let usage = |why: &str| VolumeError::Usage(format!("fuse:{}: {why}", path.display()));
        match self.ask(verb, path) {
            Ok((Reply::Usage(why), _)) => Err(VolumeError::Usage(why)),
            Ok((Reply::Refused(why), _)) => Err(VolumeError::Refused(why)),
            Ok((Reply::Failed(why), _)) => Err(usage(&why)),
            Ok(replied) => Ok(replied),
            Err(why) => Err(usage(&why)),
        }
    }
}

impl Mounter for Helper {
    fn check(&self, path: &Path) -> Result<(), VolumeError> {
        self.ask_at_start(Verb::Check, path).map(drop)
    }

    fn mount(&self, path: &Path) -> Result<Mounted, VolumeError> {
        match self.ask_at_start(Verb::Mount, path)? {
            (Reply::File(path), Some(device)) => Ok(Mounted { device, path, is_dir: false }),
            (Reply::Directory(path), Some(device)) => Ok(Mounted { device, path, is_dir: true }),
            _ => {
                let what = "the helper process returned no descriptor";
                Err(VolumeError::Usage(format!("fuse:{}: {what}", path.display())))
            }
        }
    }

    fn unmount(&self, path: &Path) -> Result<Unmounted, MountError> {
        match self.ask(Verb::Unmount, path).map_err(MountError::Asked)? {
            (Reply::Busy, _) => Ok(Unmounted::Busy),
            (Reply::Failed(why), _) => Err(MountError::Asked(why)),
            _ => Ok(Unmounted::Done),
        }
    }

    fn detach(&self, path: &Path) -> Result<(), MountError> {
        match self.ask(Verb::Detach, path).map_err(MountError::Asked)? {
            (Reply::Failed(why), _) => Err(MountError::Asked(why)),
            _ => Ok(()),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        if let Some(process) = self.process().take() {
            end(process);
        }
    }
}

fn spawn(files: &[&Listen]) -> Result<Process> {
    let flags = SocketFlags::CLOEXEC;
    let (socket, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("larder").args([COMMAND, "--"]).args(files.iter().map(|file| file.to_string()));
    command.env_remove("NOTIFY_SOCKET");
    let child = command.stdin(its).spawn()?;
    Ok(Process { child, socket })
}

/// Closes the socket, upon which the helper unmounts and ends.
fn end(Process { mut child, socket }: Process) {
    drop(socket);
    let begin = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        if begin.elapsed() > END_BOUND {
            tracing::warn!("the helper process does not end");
            return;
        }
        std::thread::sleep(POLL);
    }
}
