// SPDX-License-Identifier: MIT OR Apache-2.0
//! What becomes of the devices that are there when a server starts, and which kernels it can use.
//!
//! Invariants: decides, and changes nothing. A device of another server is never touched. A device that waits for a
//! server of this volume is recovered or the start is refused: its users would otherwise lose writes that they still hold.
//! One of an earlier grant is removed: what its users still hold is older than data that another machine may have written.

use larder_core::request::Errno;
use larder_io::ublk::uapi::{attribute, feature, state};
use larder_io::ublk::{DeviceInfo, Params};

use super::wish::Wish;
use super::word::Kin;

/// What a user can do without ublk.
const INSTEAD: &str =
    "accepted instead: --listen nbd+unix:PATH, with nbd-client or another NBD client, or fuse:PATH";

/// The features that Larder uses.
const NEEDED: [(u64, &str); 4] = [
    (feature::ENCODED, "commands encoded as ioctl numbers"),
    (feature::USER_COPY, "copies by the server"),
    (feature::RECOVERY, "recovery by another server"),
    (feature::REISSUE, "requests that are issued again"),
];

/// One line for a control device that cannot be opened.
#[must_use]
pub fn missing(errno: Errno) -> String {
    let why = match errno {
        // ENOENT, ENXIO, ENODEV.
        Errno(2 | 6 | 19) => {
            "this kernel has no ublk_drv, or it is not loaded (modprobe ublk_drv); it needs Linux 6.5 or newer"
                .to_owned()
        }
        // EPERM, EACCES.
        Errno(1 | 13) => "/dev/ublk-control: the server needs root or CAP_SYS_ADMIN".to_owned(),
        errno => format!("/dev/ublk-control cannot be used: {errno}"),
    };
    format!("ublk: {why}; {INSTEAD}")
}

/// Whether the features of a driver suffice; otherwise the reason in one line.
///
/// # Errors
/// They do not.
pub fn negotiate(features: Result<u64, Errno>) -> Result<(), String> {
    let features = match features {
        Ok(features) => features,
        Err(errno @ Errno(1 | 13)) => return Err(missing(errno)),
        // The command is unknown.
        Err(_) => 0,
    };
    match NEEDED.iter().find(|(bit, _)| features & bit == 0) {
        None => Ok(()),
        Some((_, what)) => Err(format!(
            "ublk: the driver of this kernel lacks a feature ({what}); it needs Linux 6.5 or newer; {INSTEAD}"
        )),
    }
}

/// What to do about a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Its server is still ending.
    Wait,
    /// Continue with it.
    Recover,
    /// It is of no use.
    Remove,
    /// It cannot be used, in one line.
    Refuse(String),
}

/// What to do about a device that has the wished number, or that an earlier server of the volume left.
#[must_use]
pub fn step(wish: &Wish, info: &DeviceInfo, params: &Params) -> Step {
    let id = info.id;
    let kin = wish.word.kin(info.server_word);
    if kin == Kin::Other {
        return Step::Refuse(format!(
            "ublk:{id}: the device /dev/ublkb{id} belongs to another server (process {}) or volume; accepted: another number, or ublk for any; `ublk del -n {id}` removes a device",
            info.server_pid
        ));
    }
    if kin == Kin::Later {
        return Step::Refuse(format!(
            "ublk:{id}: /dev/ublkb{id} is the device of this volume under a later grant; accepted: the --generation of the newest grant"
        ));
    }
    match info.state {
        state::LIVE => return Step::Wait,
        state::DEAD => return Step::Remove,
        _ if info.flags & feature::RECOVERY == 0 || kin == Kin::Earlier => return Step::Remove,
        _ => {}
    }
    if let Some(id) = wish.id.filter(|id| *id != info.id) {
        return Step::Refuse(format!(
            "ublk:{id}: /dev/ublkb{} of this volume waits for its server; accepted: ublk:{} or ublk",
            info.id, info.id
        ));
    }
    match difference(wish, params) {
        None => Step::Recover,
        Some(what) => Step::Refuse(format!(
            "ublk:{id}: /dev/ublkb{id} waits for its server, which now differs: {what}; accepted: the settings and devices with which it was added, or its removal, which fails what is in use of it: `ublk del -n {id}`"
        )),
    }
}

/// Why a device cannot continue as the wished one: what its users know of it does not hold.
fn difference(wish: &Wish, params: &Params) -> Option<String> {
    let (old, new) = (&params.basic, &wish.params.basic);
    let has = |basic: &larder_io::ublk::uapi::Basic, what: u32| basic.attributes & what != 0;
    if !wish.survives {
        return Some("answered writes would no longer survive the process".to_owned());
    }
    if old.sectors != new.sectors {
        return Some(format!("{} bytes instead of {}", new.sectors * 512, old.sectors * 512));
    }
    if old.logical_shift < new.logical_shift {
        return Some(format!("blocks of {} bytes", 1_u32 << new.logical_shift));
    }
    if has(new, attribute::VOLATILE_CACHE) && !has(old, attribute::VOLATILE_CACHE) {
        return Some("writes need a FLUSH, which the device does not send".to_owned());
    }
    let read_only = |basic| has(basic, attribute::READ_ONLY);
    (read_only(old) != read_only(new)).then(|| "ro: or backup: was added or removed".to_owned())
}

#[cfg(test)]
mod tests {
    use larder_io::ublk::uapi::Basic;

    use super::*;
    use crate::ublk::word::Word;

    const WORD: Word = Word { bits: 7 << 16 | 2, granted: true };

    fn wish() -> Wish {
        let basic = Basic { sectors: 2048, logical_shift: 9, ..Basic::default() };
        let params = Params::new(basic, Default::default());
        Wish { id: None, word: WORD, survives: true, params, queues: 2 }
    }

    fn left(state: u16) -> DeviceInfo {
        DeviceInfo { id: 3, state, server_pid: 99, ..wish().info() }
    }

    fn with(change: impl Fn(&mut Basic)) -> Params {
        let mut params = wish().params;
        change(&mut params.basic);
        params
    }

    fn refusal(wish: &Wish, info: &DeviceInfo, params: &Params) -> String {
        match step(wish, info, params) {
            Step::Refuse(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_kernel_that_cannot_is_named_with_the_alternative() {
        for (line, needle) in [
            (missing(Errno(2)), "modprobe ublk_drv"),
            (missing(Errno(13)), "CAP_SYS_ADMIN"),
            (missing(Errno::EIO), "cannot be used"),
            (negotiate(Err(Errno::EOPNOTSUPP)).unwrap_err(), "Linux 6.5"),
            (negotiate(Err(Errno(1))).unwrap_err(), "CAP_SYS_ADMIN"),
            (negotiate(Ok(feature::ENCODED)).unwrap_err(), "copies by the server"),
        ] {
            assert!(
                line.contains(needle) && line.contains("accepted instead: --listen nbd+unix"),
                "{line}"
            );
            assert!(!line.contains('\n'));
        }
        assert_eq!(negotiate(Ok(u64::MAX)), Ok(()));
        assert_eq!(negotiate(Ok(0b1101_1000)), Ok(()));
    }

    #[test]
    fn a_device_that_waits_for_this_volume_is_recovered_and_a_dead_one_removed() {
        let params = wish().params;
        assert_eq!(step(&wish(), &left(state::QUIESCED), &params), Step::Recover);
        assert_eq!(step(&wish(), &left(state::LIVE), &params), Step::Wait);
        assert_eq!(step(&wish(), &left(state::DEAD), &params), Step::Remove);
        let no_recovery = DeviceInfo { flags: 0, ..left(state::QUIESCED) };
        assert_eq!(step(&wish(), &no_recovery, &params), Step::Remove);
        // More FLUSHes than needed do no harm.
        let flushes = with(|b| b.attributes = attribute::VOLATILE_CACHE);
        assert_eq!(step(&wish(), &left(state::QUIESCED), &flushes), Step::Recover);
    }

    #[test]
    fn a_device_of_an_earlier_grant_is_removed_whatever_it_is_once_its_server_has_ended() {
        let earlier = |state| DeviceInfo { server_word: 7 << 16 | 1, ..left(state) };
        let elsewhere = Wish { id: Some(5), ..wish() };
        let larger = with(|b| b.sectors = 4096);
        for wish in [wish(), elsewhere] {
            assert_eq!(step(&wish, &earlier(state::QUIESCED), &larger), Step::Remove);
            assert_eq!(step(&wish, &earlier(state::LIVE), &larger), Step::Wait);
        }
    }

    #[test]
    fn a_device_of_a_later_grant_is_refused_whatever_its_state() {
        for state in [state::DEAD, state::LIVE, state::QUIESCED] {
            let later = DeviceInfo { server_word: 7 << 16 | 3, ..left(state) };
            assert!(refusal(&wish(), &later, &wish().params).contains("later grant"));
        }
    }

    #[test]
    fn a_device_of_another_server_is_refused_whatever_its_state() {
        for state in [state::DEAD, state::LIVE, state::QUIESCED] {
            let other = DeviceInfo { server_word: 8 << 16 | 2, ..left(state) };
            assert!(refusal(&wish(), &other, &wish().params).contains("process 99"));
        }
    }

    #[test]
    fn a_device_whose_users_would_be_misled_is_refused() {
        let waits = left(state::QUIESCED);
        let changed = |change: fn(&mut Wish)| {
            let mut wish = wish();
            change(&mut wish);
            wish
        };
        for (wish, needle) in [
            (changed(|w| w.survives = false), "survive"),
            (changed(|w| w.params.basic.sectors = 4096), "2097152 bytes instead of 1048576"),
            (changed(|w| w.params.basic.logical_shift = 12), "blocks of 4096"),
            (changed(|w| w.params.basic.attributes = attribute::VOLATILE_CACHE), "FLUSH"),
            (changed(|w| w.params.basic.attributes = attribute::READ_ONLY), "ro:"),
            (changed(|w| w.id = Some(5)), "accepted: ublk:3 or ublk"),
        ] {
            let why = refusal(&wish, &waits, &self::wish().params);
            assert!(why.contains(needle), "{why}");
        }
    }
}
