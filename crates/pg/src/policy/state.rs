// SPDX-License-Identifier: MIT OR Apache-2.0
//! The policy in force. A log that is a part of the database (`full`) has one for the life of its memory. Any other log may hold
//! dirty pages, and its policy changes while the server runs:
//!
//! | the server | flash takes changes ([`Switch::changes`]) | policy |
//! | --- | --- | --- |
//! | recovers after a crash ([`Begins::Crash`]) | yes | `recovery.rs` |
//! | runs | yes, or dirty pages are left | `bounded.rs` |
//! | runs | no | `through.rs` |
//!
//! # Invariants
//! 1. While the policy is `through`, flash holds no dirty page ([`Switch`]).
//! 2. A server that recovers from an archive or follows another server takes no changes into flash until a checkpoint of its own:
//!    up to there its log was written by another server, whose `full_page_writes` is not known. If it is promoted and dies before
//!    that checkpoint, its recovery takes them all the same: recovery writes pages in the middle of its log in any case, as it does
//!    without the library, and flash keeps none of them.
//! 3. No process keeps a policy: each operation asks for it. An operation that finds two is right with either, because no two
//!    processes write a page at the same time, and the page is not dirty when the policy changes to or from `through`.

use larder_core::pagelog::LogPolicy;

use super::Policy;
use super::bounded::Bounded;
use super::full::Full;
use super::recovery::Recovery;
use super::through::Through;
use crate::area::{Area, Mark};
use crate::control::{Control, State};
use crate::mutant::{Mutant, is_active};
use crate::settings;
use crate::switch::{Draining, Switch};

/// How a server begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// After a stop, with a disk that has everything.
    Stopped,
    /// With recovery from its own last checkpoint.
    Crash,
    /// With recovery from an archive, from a backup, or as a standby.
    Archive,
}

/// The policy of the log that a setting needs. `through` and `bounded` share one, so that they can change.
#[must_use]
pub fn of_log(setting: LogPolicy) -> LogPolicy {
    match setting {
        LogPolicy::Through | LogPolicy::Bounded => LogPolicy::Bounded,
        // The server's settings have no `ordered`.
        LogPolicy::Full | LogPolicy::Ordered => LogPolicy::Full,
    }
}

/// The policy in force for a log with this policy.
#[must_use]
pub fn in_force(log: LogPolicy, area: &Area) -> &'static dyn Policy {
    match log {
        LogPolicy::Full | LogPolicy::Ordered => &Full,
        LogPolicy::Through | LogPolicy::Bounded if recovers(area) => &Recovery,
        LogPolicy::Through | LogPolicy::Bounded => match Switch::changes(area).is_off() {
            true => &Through,
            false => &Bounded,
        },
    }
}

/// Values of [`Mark::Recovers`] other than 0.
const BEGUN: u64 = 1;
const SETTLES: u64 = 2;

/// Whether the server recovers after a crash, so that pages of before the crash may be only on flash.
#[must_use]
pub fn recovers(area: &Area) -> bool {
    area.get(Mark::Recovers) != 0
}

/// Whether files that pages go to are flushed now, because a later place to recover from is about to be named. Before, a flush
/// only takes time.
#[must_use]
pub fn settles(area: &Area) -> bool {
    area.get(Mark::Recovers) == SETTLES
}

/// The disk is about to get all pages, see [`settles`], because this `pg_control` will be written. Under `through` flash takes no
/// changes from now on, if recovery ends with it; [`recovered`] gets the result.
pub fn settle(area: &Area, control: &Control) -> Option<Draining> {
    area.exchange(Mark::Recovers, BEGUN, SETTLES);
    let through = || settings::policy().is_ok_and(|setting| setting == LogPolicy::Through);
    let ends = control.state != State::RecoversFromCrash && through();
    ends.then(|| Switch::changes(area).begin_off()).flatten()
}

/// The server begins, with this `pg_control`. Flash holds no dirty page, unless it recovers after a crash.
pub fn begin(area: &Area, begins: Begins, control: &Control, setting: LogPolicy) {
    let (changes, crashed) = (Switch::changes(area), begins == Begins::Crash);
    area.set(Mark::RecoversFrom, control.redo);
    let recovers = crashed && !is_active(Mutant::RecoversThrough);
    area.set(Mark::Recovers, if recovers { BEGUN } else { 0 });
    area.set(Mark::Follows, u64::from(begins == Begins::Archive));
    match begins {
        Begins::Crash if !is_active(Mutant::RecoversThrough) => changes.on(),
        Begins::Stopped if setting.holds_dirty() => changes.on(),
        Begins::Crash | Begins::Stopped | Begins::Archive => changes.set_off(),
    }
}

/// Whether a server that recovers after a crash would, with this `pg_control`, recover from the same place again: it begins to, or
/// begins its last checkpoint.
#[must_use]
pub fn recovers_from(area: &Area, control: &Control) -> bool {
    control.redo == area.get(Mark::RecoversFrom)
        && matches!(control.state, State::RecoversFromCrash | State::Stops)
}

/// The disk has everything that the server needs with this `pg_control`.
pub fn recovered(area: &Area, control: &Control, ends: Option<Draining>) {
    if let Some(ends) = ends {
        // If another process turned it on meanwhile, the policy is `bounded`.
        let _ = Switch::changes(area).end_off(ends);
    }
    area.set(Mark::RecoversFrom, control.redo);
    let continues = control.state == State::RecoversFromCrash;
    area.set(Mark::Recovers, if continues { BEGUN } else { 0 });
}

/// `pg_control` was written: notes the first checkpoint of a server that followed another one. After a promotion it is on the
/// timeline that the server writes to; a checkpoint of the other server, at which a restartpoint ends late, is not. A server that
/// only recovered from an archive or a backup ends that with a checkpoint, like a stop.
pub fn control_is(area: &Area, control: &Control) {
    let own =
        || control.timeline == area.get(Mark::WalTimeline) || is_active(Mutant::PromotesEarly);
    let is_first = match control.state {
        State::Stopped => true,
        State::Runs => own(),
        _ => false,
    };
    if is_first {
        area.set(Mark::Follows, 0);
    }
}

/// The policy with which a server begins, and if it is not that of the setting, until when.
#[must_use]
pub fn at_start(setting: LogPolicy, begins: Begins) -> (LogPolicy, Option<&'static str>) {
    match (begins, setting) {
        (Begins::Stopped | Begins::Crash, _) | (_, LogPolicy::Through) => (setting, None),
        (Begins::Archive, LogPolicy::Bounded) => {
            (LogPolicy::Through, Some("its first checkpoint after a promotion"))
        }
        (Begins::Archive, LogPolicy::Full | LogPolicy::Ordered) => {
            (LogPolicy::Through, Some("a start after a promotion"))
        }
    }
}

/// What a running server does about a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    Nothing,
    /// Nothing before its next start.
    NextStart,
    /// Flash takes changes.
    Begin,
    /// Flash takes no changes.
    End,
}

/// What this setting means for a log that has this policy.
#[must_use]
pub fn change_to(setting: LogPolicy, log: LogPolicy, area: &Area) -> Change {
    match setting {
        _ if of_log(setting) != log => Change::NextStart,
        LogPolicy::Full | LogPolicy::Ordered => Change::Nothing,
        _ if recovers(area) => Change::Nothing,
        LogPolicy::Bounded if area.get(Mark::Follows) == 0 => Change::Begin,
        LogPolicy::Through | LogPolicy::Bounded => Change::End,
    }
}
