// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ublk device as a front door: from its start to its end, or to the next server.
//!
//! Invariants: an opened door has a device that serves requests. A device that fails to start is removed. A closed door
//! leaves a device only if it survives its server and is in use (a mounted file system, or another exclusive user):
//! then the kernel holds its requests until the next server. Otherwise the device is removed, after the kernel has written
//! what it holds of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_core::request::Errno;
use larder_io::ublk::Character;
use larder_volume::peer::Peer;
use larder_volume::{Volume, VolumeError};
use rustix::fs::{Mode, OFlags};

use super::controller::Controller;
use super::queue::UblkQueue;
use super::record;
use super::settle::{BOUND, Settled, check, remove, settle};
use super::wish::Wish;
use crate::blocks::Rules;
use crate::grant::Grant;

/// How long the driver may take for a command, beside what it waits for.
const COMMAND_BOUND: Duration = Duration::from_secs(10);
/// How long a start may take: the kernel reads the partition table through the volume.
const START_BOUND: Duration = Duration::from_secs(60);
/// How long the node of a new device may take to appear.
const NODE_BOUND: Duration = Duration::from_secs(5);
/// How long queues and the driver may take to let a stopped device go.
const END_BOUND: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(5);

/// An open door.
pub struct UblkDoor {
    id: u32,
    survives: bool,
    character: Option<Character>,
    volume: Arc<Volume>,
    controller: Arc<Controller>,
    closed: bool,
}

impl UblkDoor {
    /// Whether a device would be refused because of one that is there now. Changes nothing.
    ///
    /// # Errors
    /// It would; or the driver does not answer in time.
    pub fn check(
        id: Option<u32>,
        volume: &Volume,
        grant: Grant,
        controller: &Controller,
    ) -> Result<(), VolumeError> {
        let wish = Wish::of(volume, id, grant).map_err(VolumeError::Usage)?;
        let checked = controller.ask("looking at devices", COMMAND_BOUND, move |c| check(c, &wish));
        checked?.map_err(VolumeError::Refused)
    }

    /// Adds or recovers the device of a volume, and serves it.
    ///
    /// # Errors
    /// The kernel cannot have such a device, or does not answer in time; another server has it.
    pub fn open(
        id: Option<u32>,
        volume: &Arc<Volume>,
        grant: Grant,
        controller: &Arc<Controller>,
    ) -> Result<Self, VolumeError> {
        let wish = Wish::of(volume, id, grant).map_err(VolumeError::Usage)?;
        let (wished, survives) = (wish.clone(), wish.survives);
        let bound = BOUND + COMMAND_BOUND;
        let settled =
            controller.ask("adding a device", bound, move |c| settle(c, &wished, BOUND))?;
        let settled = settled.map_err(VolumeError::Refused)?;
        let id = settled.info().id;
        let begun = serve(volume, &settled, grant).map_err(|errno| {
            let path = format!("/dev/ublkc{id}");
            VolumeError::Device { device: path, doing: "open", errno }
        });
        let remove_it = move || {
            // One that waits for its server keeps waiting.
            if matches!(settled, Settled::Added(_)) {
                let _ = controller.ask("removing", COMMAND_BOUND, move |c| remove(c, id));
                record::remove(id);
            }
        };
        let character = begun.inspect_err(|_| remove_it())?;
        record::write(id, volume.name());
        let pid = std::process::id();
        let started = controller.ask("starting a device", START_BOUND, move |c| match settled {
            Settled::Added(_) => c.start(id, pid),
            Settled::Recovered(_) => c.end_recovery(id, pid),
        });
        let device = format!("/dev/ublkb{id}");
        match started {
            Ok(Ok(())) => {}
            Ok(Err(errno)) => {
                remove_it();
                return Err(VolumeError::Device { device, doing: "start", errno });
            }
            Err(late) => return Err(late),
        }
        if matches!(settled, Settled::Recovered(_)) {
            tracing::info!("{device} continues: its server was replaced");
        }
        volume.add_file(device.into());
        let (volume, controller) = (Arc::clone(volume), Arc::clone(controller));
        let character = Some(character);
        Ok(Self { id, survives, character, volume, controller, closed: false })
    }

    /// The block device.
    #[must_use]
    pub fn device(&self) -> PathBuf {
        format!("/dev/ublkb{}", self.id).into()
    }

    /// The volume.
    #[must_use]
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Removes the device within `bound`, or leaves it to the next server.
    pub fn close(mut self, bound: Duration) {
        self.end(bound);
    }

    fn end(&mut self, bound: Duration) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        let (id, device) = (self.id, self.device());
        self.volume.remove_file(&device);
        if self.survives && is_claimed(&device) {
            tracing::info!("{} is in use and waits for the next server", device.display());
            return;
        }
        let stopped = self.controller.ask("stopping a device", bound, move |c| c.stop(id));
        let removed = match stopped {
            Ok(Ok(())) => {
                // Its number becomes free when the last user has closed it.
                let character = self.character.take();
                eventually(|| character.as_ref().is_none_or(Character::is_alone));
                drop(character);
                self.controller.ask("removing a device", COMMAND_BOUND, move |c| c.delete(id))
            }
            other => other,
        };
        match removed {
            Ok(Ok(())) => record::remove(id),
            Ok(Err(errno)) => tracing::warn!("{}: cannot be removed: {errno}", device.display()),
            Err(e) => tracing::warn!("{}: {e}", device.display()),
        }
    }
}

impl Drop for UblkDoor {
    /// A door that is dropped open is that of a volume that failed: a device that survives waits for the next server.
    fn drop(&mut self) {
        if !self.survives {
            self.end(COMMAND_BOUND);
        }
    }
}

/// Gives the device's queues to the workers.
fn serve(volume: &Arc<Volume>, settled: &Settled, grant: Grant) -> Result<Character, Errno> {
    let info = settled.info();
    let character = open(info.id)?;
    let config = volume.cache().config();
    let rules = Rules::of(volume, grant);
    // All queues, before the first one fetches: they cannot be taken back.
    let queues = (0..info.queues).map(|queue| character.queue(queue, info.depth));
    let queues = queues.collect::<Result<Vec<_>, _>>()?;
    let peer = Peer::User(rustix::process::getuid().as_raw());
    for (index, port) in (0..).zip(queues) {
        let purse = config.clients.budget.purse(peer);
        let queue = UblkQueue::new(port, rules, purse);
        volume.welcome_queue(index % config.workers, Box::new(queue));
    }
    Ok(character)
}

/// Opens the character device, whose node may appear late.
fn open(id: u32) -> Result<Character, Errno> {
    let begin = Instant::now();
    loop {
        match Character::open(id) {
            // ENOENT, EACCES, EBUSY: udev makes the node and sets its rights; an earlier server lets it go.
            Err(Errno(2 | 13 | 16)) if begin.elapsed() < NODE_BOUND => std::thread::sleep(LOOK),
            done => return done,
        }
    }
}

/// Whether a file system, or another exclusive user, has the block device.
fn is_claimed(device: &std::path::Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    matches!(rustix::fs::open(device, flags, Mode::empty()), Err(rustix::io::Errno::BUSY))
}

fn eventually(is: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is() && begin.elapsed() < END_BOUND {
        std::thread::sleep(LOOK);
    }
}
