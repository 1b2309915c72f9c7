// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of volumes that share a flash.
//!
//! ```toml
//! turn_hours = 1        # one volume after the other is active for so long; without, all are, all the time
//!
//! [sharing]
//! least = 0.25          # of the slots: what no other volume takes; for each volume that has none of its own. Default 0
//! most = 1.0            # of the slots: it takes no more
//! apart = false         # true: nothing is shared, each volume has an equal part of flash_gib to itself
//!
//! [[volumes]]           # 1 to 64; what a volume does not set is as in the scenario
//! load = "scattered"    # or "oltp"
//! data_gib = 160
//! active_gib = 30
//! page_kib = 4
//! origin = "cloud"      # each has an origin device of its own
//! least = 0.1
//! most = 0.5
//!
//! [[volumes]]           # one with the settings of the scenario alone
//! ```
//! `plan` is of each volume: as many clients as it has are behind each.
//!
//! Why a table `sharing`: a grid over it compares ways to share (`crates/lab/scenarios/shared-flash.toml`).

use larder_core::volumes::{MOST_VOLUMES, Share};

use super::super::super::setting::{bad, in_range};
use super::super::settings::{Load, MOST_GIB, MOST_HOURS};
use super::super::{SAMPLES_PER_HOUR, Settings};
use super::keys::{Sharing, VolumeSettings};
use super::tally::{Arrangement, Volume};

impl Arrangement {
    /// What settings with volumes describe; nothing of settings without.
    ///
    /// # Errors
    /// What cannot be, and what would be accepted.
    pub fn of(settings: &Settings) -> Result<Option<Self>, String> {
        let Some(volumes) = &settings.volumes else {
            let given = [
                ("turn_hours", settings.turn_hours.is_some()),
                ("sharing", settings.sharing.is_some()),
            ];
            return match given.into_iter().find(|(_, given)| *given) {
                Some((key, _)) => Err(format!(
                    "{key} is for volumes that share a flash; accepted: with [[volumes]]"
                )),
                None => Ok(None),
            };
        };
        in_range("number of volumes", volumes.len(), 1, MOST_VOLUMES)?;
        let sharing = settings.sharing.unwrap_or_default();
        let volume = |(number, volume): (usize, &VolumeSettings)| {
            let named = |what| format!("volume {}: {what}", number + 1);
            let load = settings.of_volume(number, volume).map_err(named)?;
            one(&load, volume.share(&sharing)).map_err(named)
        };
        let mut parts: Vec<Volume> =
            volumes.iter().enumerate().map(volume).collect::<Result<_, _>>()?;
        let least: f64 = parts.iter().map(|part| part.share.least).sum();
        if least > 1.0 {
            return bad("sum of least", least, "at most 1, over all volumes");
        }
        let most_bytes = (MOST_GIB * settings.mib_per_gib()?) << 20;
        if parts.iter().map(|part| part.setup.data_bytes).sum::<u64>() > most_bytes {
            return Err(format!("the volumes have too much data; accepted: {MOST_GIB} GiB in all"));
        }
        if sharing.apart {
            for part in &mut parts {
                part.setup.flash_bytes /= volumes.len() as u64;
                if part.setup.flash_bytes < part.setup.choices.unit_bytes {
                    return bad("sharing.apart", true, "room for a unit in each part of the flash");
                }
            }
        }
        let takes_turns = settings.turn_hours.is_some();
        let turn_samples = turn_samples(settings, &parts)?;
        Ok(Some(Self { parts, apart: sharing.apart, takes_turns, turn_samples }))
    }
}

/// A volume from the settings that it would have alone.
fn one(settings: &Settings, share: Result<Share, String>) -> Result<Volume, String> {
    match settings.load()? {
        Load::Clients(_) => Ok(Volume { setup: settings.setup()?, share: share? }),
        Load::Passes => bad("load", "passes", "oltp, scattered, with volumes"),
        Load::Trace(_) => bad("load", "trace", "oltp, scattered, with volumes"),
    }
}

/// The samples of a turn. Each volume has two turns at least: what happens in the first is not counted.
fn turn_samples(settings: &Settings, parts: &[Volume]) -> Result<u64, String> {
    let hours = in_range("turn_hours", settings.turn_hours.unwrap_or(1), 1, MOST_HOURS)?;
    let in_turn = settings.turn_hours.map_or(1, |_| parts.len() as u64);
    let (samples, needed) = (hours * SAMPLES_PER_HOUR, 2 * in_turn * hours);
    let has = parts.iter().map(|part| part.setup.span / part.setup.sample / SAMPLES_PER_HOUR);
    match has.min() {
        Some(has) if has < needed => {
            bad("hours", has, format!("two turns of each volume, {needed} and more"))
        }
        _ => Ok(samples),
    }
}

impl VolumeSettings {
    fn share(&self, sharing: &Sharing) -> Result<Share, String> {
        let given = [self.least, self.most, sharing.least, sharing.most];
        if sharing.apart && given.iter().any(Option::is_some) {
            return Err("least and most are shares of one flash; accepted: without sharing.apart"
                .to_owned());
        }
        let any = Share::default();
        let least = self.least.or(sharing.least).unwrap_or(any.least);
        let most = self.most.or(sharing.most).unwrap_or(any.most);
        in_range("least", least, 0.0, 1.0)?;
        in_range("most", most, 0.0, 1.0)?;
        if least > most {
            return bad("least", least, format!("at most {most}, its most"));
        }
        Ok(Share { least, most })
    }
}
