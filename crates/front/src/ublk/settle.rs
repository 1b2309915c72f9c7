// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the wish for a device to one whose queues may fetch: devices of earlier servers are recovered or removed, and a
//! new one is added if there is none.
//!
//! Invariant: the start is refused, within a time limit, rather than to take a device of another server.

use std::time::{Duration, Instant};

use larder_core::request::Errno;
use larder_io::ublk::DeviceInfo;

use super::commands::Commands;
use super::plan::{Step, step};
use super::wish::Wish;
use super::word::Kin;

/// How long a start waits for the kernel to end an earlier server: its last requests may take 30 s, see the module.
pub const BOUND: Duration = Duration::from_secs(45);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// A device whose queues may fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// A new one, which must be started.
    Added(DeviceInfo),
    /// One of an earlier server; the recovery must be ended.
    Recovered(DeviceInfo),
}

impl Settled {
    /// The device.
    pub fn info(&self) -> &DeviceInfo {
        match self {
            Self::Added(info) | Self::Recovered(info) => info,
        }
    }
}

/// What one look led to.
enum Look {
    Done(Settled),
    Again(&'static str),
}

/// Finds or adds the device.
///
/// # Errors
/// It cannot be had, in one line.
pub fn settle(
    commands: &mut dyn Commands,
    wish: &Wish,
    bound: Duration,
) -> Result<Settled, String> {
    let (begin, mut told) = (Instant::now(), false);
    loop {
        let why = match look(commands, wish)? {
            Look::Done(settled) => return Ok(settled),
            Look::Again(why) => why,
        };
        if begin.elapsed() > bound {
            return Err(format!("ublk: {why}, and does not end within {} s", bound.as_secs()));
        }
        if begin.elapsed() > Duration::from_secs(1) && !std::mem::replace(&mut told, true) {
            tracing::info!("ublk: {why}; waiting for up to {} s", bound.as_secs());
        }
        std::thread::sleep(LOOK);
    }
}

/// Whether a start would be refused because of a device that is there now. Changes nothing.
///
/// # Errors
/// It would, in one line.
pub fn check(commands: &mut dyn Commands, wish: &Wish) -> Result<(), String> {
    let mut steps = steps(commands, wish)?.into_iter().map(|(_, step)| step);
    steps.try_for_each(|step| if let Step::Refuse(why) = step { Err(why) } else { Ok(()) })
}

/// The devices that concern a wish, the one of the wished number first, and what to do about each.
fn steps(commands: &mut dyn Commands, wish: &Wish) -> Result<Vec<(DeviceInfo, Step)>, String> {
    let wished = wish.id.into_iter();
    let others = commands.numbers().into_iter().filter(|id| Some(*id) != wish.id);
    let mut steps = Vec::new();
    for id in wished.chain(others).collect::<Vec<_>>() {
        let Ok(info) = commands.info(id) else { continue };
        if wish.word.kin(info.server_word) == Kin::Other && Some(id) != wish.id {
            continue;
        }
        let params = commands.params(id).map_err(|e| failed("reading its parameters", id, e))?;
        steps.push((info, step(wish, &info, &params)));
    }
    Ok(steps)
}

fn look(commands: &mut dyn Commands, wish: &Wish) -> Result<Look, String> {
    for (info, step) in steps(commands, wish)? {
        let id = info.id;
        match step {
            Step::Refuse(why) => return Err(why),
            Step::Wait => return Ok(Look::Again("an earlier server of this volume has not ended")),
            Step::Recover => {
                return match commands.start_recovery(id) {
                    Ok(()) => Ok(Look::Done(Settled::Recovered(info))),
                    Err(Errno(16)) => Ok(Look::Again("the kernel ends an earlier server")),
                    Err(errno) => Err(failed("recovering it", id, errno)),
                };
            }
            Step::Remove => {
                tracing::info!("ublk: /dev/ublkb{id} of an earlier server is removed");
                remove(commands, id).map_err(|e| failed("removing it", id, e))?;
            }
        }
    }
    add(commands, wish)
}

fn add(commands: &mut dyn Commands, wish: &Wish) -> Result<Look, String> {
    let info = match commands.add(wish.info()) {
        Ok(info) => info,
        Err(Errno(17)) => return Ok(Look::Again("a removed device is still in use")),
        Err(errno) => return Err(format!("ublk: a device cannot be added: {errno}")),
    };
    if let Err(errno) = commands.set_params(info.id, wish.params) {
        let _ = commands.delete(info.id);
        return Err(failed("setting its parameters", info.id, errno));
    }
    Ok(Look::Done(Settled::Added(info)))
}

/// Removes a device: its block device, then the rest. What is in use of it fails.
///
/// # Errors
/// The driver's.
pub fn remove(commands: &mut dyn Commands, id: u32) -> Result<(), Errno> {
    commands.stop(id)?;
    commands.delete(id)
}

fn failed(doing: &str, id: u32, errno: Errno) -> String {
    format!("ublk: /dev/ublkb{id}: {doing} failed: {errno}")
}

#[cfg(test)]
mod tests {
    use larder_io::ublk::Params;
    use larder_io::ublk::uapi::{Basic, state};

    use super::*;
    use crate::ublk::commands::fake::{Device, Fake};
    use crate::ublk::word::Word;

    const SOON: Duration = Duration::from_millis(300);

    fn wish(id: Option<u32>) -> Wish {
        let basic = Basic { sectors: 2048, logical_shift: 9, ..Basic::default() };
        let params = Params::new(basic, Default::default());
        let word = Word { bits: 7 << 16 | 2, granted: true };
        Wish { id, word, survives: true, params, queues: 2 }
    }

    /// A driver with the device 3 of an earlier server of the volume.
    fn driver(state: u16, ending: u32, leaving: u32) -> Fake {
        let (info, params) = (DeviceInfo { id: 3, state, ..wish(None).info() }, wish(None).params);
        let mut fake = Fake::default();
        fake.devices.insert(3, Device { info, params, ending, leaving });
        fake
    }

    #[test]
    fn without_a_device_one_is_added() {
        let mut fake = Fake::default();
        let settled = settle(&mut fake, &wish(Some(5)), SOON).unwrap();
        assert!(matches!(settled, Settled::Added(info) if info.id == 5));
        assert_eq!(fake.devices[&5].params, wish(None).params);
        let other = Wish { word: Word { bits: 8 << 16, granted: true }, ..wish(None) };
        assert_eq!(settle(&mut fake, &other, SOON).unwrap().info().id, 0);
    }

    #[test]
    fn a_device_that_waits_is_recovered_once_its_server_has_ended() {
        for id in [None, Some(3)] {
            let mut fake = driver(state::QUIESCED, 4, 0);
            let settled = settle(&mut fake, &wish(id), SOON).unwrap();
            assert!(matches!(settled, Settled::Recovered(info) if info.id == 3));
            assert_eq!(fake.log, ["recover 3"]);
        }
        let late = settle(&mut driver(state::QUIESCED, u32::MAX, 0), &wish(None), SOON);
        assert!(late.unwrap_err().contains("does not end within"));
    }

    #[test]
    fn a_dead_device_is_removed_wherever_it_is() {
        let mut fake = driver(state::DEAD, 0, 2);
        let settled = settle(&mut fake, &wish(Some(3)), SOON).unwrap();
        assert!(matches!(settled, Settled::Added(info) if info.id == 3));
        assert_eq!(fake.log, ["stop 3", "delete 3", "add 3"]);
        let mut fake = driver(state::DEAD, 0, 0);
        assert_eq!(settle(&mut fake, &wish(Some(5)), SOON).unwrap().info().id, 5);
        assert_eq!(fake.log, ["stop 3", "delete 3", "add 5"]);
        let used = settle(&mut driver(state::DEAD, 0, u32::MAX), &wish(Some(3)), SOON);
        assert!(used.unwrap_err().contains("still in use"));
    }

    #[test]
    fn a_device_of_an_earlier_grant_is_removed_before_another_is_added() {
        let mut fake = driver(state::QUIESCED, 2, 0);
        fake.devices.get_mut(&3).unwrap().info.server_word -= 1;
        let settled = settle(&mut fake, &wish(Some(5)), SOON).unwrap();
        assert!(matches!(settled, Settled::Added(info) if info.id == 5));
        assert_eq!(fake.log, ["stop 3", "delete 3", "add 5"]);
    }

    #[test]
    fn a_check_refuses_what_a_start_would_and_changes_nothing() {
        let mut fake = driver(state::QUIESCED, 0, 0);
        assert_eq!(check(&mut fake, &wish(None)), Ok(()));
        assert!(check(&mut fake, &wish(Some(5))).unwrap_err().contains("waits for its server"));
        let volatile = Wish { survives: false, ..wish(None) };
        assert!(check(&mut fake, &volatile).unwrap_err().contains("no longer survive"));
        assert_eq!(check(&mut driver(state::DEAD, 0, 0), &wish(Some(5))), Ok(()));
        assert!(fake.log.is_empty());
    }

    #[test]
    fn devices_of_others_are_left_alone() {
        let mut fake = driver(state::DEAD, 0, 0);
        fake.devices.get_mut(&3).unwrap().info.server_word = 8 << 16;
        assert!(settle(&mut fake, &wish(Some(3)), SOON).unwrap_err().contains("another server"));
        assert_eq!(settle(&mut fake, &wish(None), SOON).unwrap().info().id, 0);
        assert_eq!(fake.log, ["add 0"]);
    }
}
