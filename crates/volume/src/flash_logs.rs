// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page logs of a flash device: they are formatted, and a start learns what they hold.
//!
//! Invariants: nothing is written here but headers of empty logs, durable before a label says that there are
//! any; whoever looked flushed the device afterwards, since what was read may have been in its write cache
//! alone.

use larder_core::buf::Buf;
use larder_core::exec::{DevId, Io, IoId, IoKind};
use larder_core::format::label::Label;
use larder_core::format::{LogsPlan, Plan};
use larder_core::pagelog::{Geometry, Look, OpenError};
use larder_core::request::Errno;

use super::flash::FlashDevice;
use super::kept::Kept;
use super::recovery::Unreadable;
use super::state_file::{FlashState, StateFile};

impl FlashDevice {
    /// What a shard's log holds.
    pub(super) fn look_at(&self, logs: &LogsPlan, place: Geometry) -> Result<Look<'_>, OpenError> {
        let read = |offset, buf: Buf| {
            let (id, dev, kind, len) = (IoId(0), DevId(0), IoKind::Read, buf.len() as u64);
            let mut io = Io { id, dev, kind, offset, len, buf: Some(buf), at: 0 };
            self.device.run_blocking(&mut io)?;
            io.buf.ok_or(Errno::EIO)
        };
        Look::new(place, logs.settings(), read)
    }

    /// What each log has kept.
    pub(super) fn logs_kept(&self, logs: &LogsPlan, volume: u64) -> Result<Kept, Unreadable> {
        let (mut all, mut unclosed, mut dirty, mut torn) = (Vec::new(), 0, false, 0);
        for place in logs.each(volume) {
            let look = self.look_at(logs, place).map_err(Unreadable::Log)?;
            let reached = look.found.reached();
            // One that was never opened is not closed either.
            unclosed += usize::from(!look.found.warm && reached.0 > 0);
            dirty |= look.is_dirty();
            torn += look.found.torn;
            all.push(reached);
        }
        Ok(Kept::Logs { reached: all, unclosed, dirty, torn })
    }

    /// Whether a detach had brought to the origin what these logs say that they alone have: the state file is of
    /// their generation, and none is dirty after that.
    pub(super) fn was_emptied(
        &self,
        label: &Label,
        known: &Option<(StateFile, FlashState)>,
    ) -> bool {
        let Some((_, state)) = known.as_ref().filter(|(_, s)| !s.in_use && !s.dirty) else {
            return false;
        };
        let Some(flash) = Self::of_label(self.device.clone(), label) else { return false };
        let Plan::Logs(logs) = flash.plan else { return false };
        let Ok(found) = flash.logs_kept(&logs, label.volume).map(|kept| kept.reached()) else {
            return false;
        };
        let known = |(found, said): (&(u64, u64), &(u64, u64))| found.0 <= said.0;
        found.len() == state.reached.len() && found.iter().zip(&state.reached).all(known)
    }
}
