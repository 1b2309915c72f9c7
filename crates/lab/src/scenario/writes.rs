// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of what a write does, of the kinds `volume` and `desktop`.
//!
//! ```toml
//! writes = "async"      # or "through", "around", and "back" of systems with updates or with units of 4 KiB
//! durability = "volatile"
//! sync_seconds = 30     # under write-back: the age at which a unit is written back; 0: at once, -1: never
//! dirty_share = 0.2     # under write-back: the share of flash that may be dirty
//! ```
//! Without a setting the system chooses. A period is in seconds at any scale.

use larder_core::config::{CacheSpec, Choices, Durability, WritePolicy};
use larder_core::exec::SECOND;

use super::setting::bad;

/// The longest period: a day.
const MOST_SECONDS: i64 = 86_400;

/// The settings as a scenario has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WriteSettings {
    /// The policy.
    pub writes: Option<String>,
    /// Which metadata survives a crash.
    pub durability: Option<String>,
    /// When a dirty unit is written back.
    pub sync_seconds: Option<i64>,
    /// How much may be dirty.
    pub dirty_share: Option<f64>,
}

impl WriteSettings {
    /// Changes a system's choices.
    ///
    /// # Errors
    /// What cannot be, and what would be accepted.
    pub(super) fn apply(&self, choices: &mut Choices) -> Result<(), String> {
        choices.write = match self.writes.as_deref() {
            None => choices.write,
            Some("async") => WritePolicy::AsyncWriteThrough,
            Some("through") => WritePolicy::WriteThrough,
            Some("around") => WritePolicy::WriteAround,
            Some("back") => WritePolicy::WriteBack,
            Some(other) => return bad("writes", other, "async, through, around, back"),
        };
        if self.writes.as_deref() == Some("back") {
            choices.durability = Durability::Journal;
        }
        // Under write-back a volatile cache writes everything back with a FLUSH; only the laboratory has it.
        choices.durability = match self.durability.as_deref() {
            None => choices.durability,
            Some("journal") => Durability::Journal,
            Some("volatile") => Durability::Volatile,
            Some(other) => return bad("durability", other, "journal, volatile"),
        };
        self.write_back(choices)?;
        CacheSpec::try_from(&*choices).map(drop).map_err(|e| e.to_string())
    }

    /// When dirty units are written back.
    fn write_back(&self, choices: &mut Choices) -> Result<(), String> {
        let given = [
            ("sync_seconds", self.sync_seconds.is_some()),
            ("dirty_share", self.dirty_share.is_some()),
        ];
        if let Some((key, _)) = given.into_iter().find(|(_, given)| *given)
            && !choices.write.owns_units()
        {
            return Err(format!(
                "{key} is for systems that write back; accepted: writes = \"back\""
            ));
        }
        match self.sync_seconds {
            None => {}
            Some(-1) => choices.sync.period_ns = None,
            Some(seconds @ 0..=MOST_SECONDS) => {
                choices.sync.period_ns = Some(seconds.unsigned_abs() * SECOND);
            }
            Some(other) => return bad("sync_seconds", other, format!("-1 to {MOST_SECONDS}")),
        }
        if let Some(share) = self.dirty_share {
            if !(0.0..=1.0).contains(&share) {
                return bad("dirty_share", share, "0 to 1");
            }
            choices.sync.most_dirty = share;
        }
        Ok(())
    }
}
