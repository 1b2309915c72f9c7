// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of the load `trace`.
//!
//! ```toml
//! [trace]
//! path = "t.btr.zst"      # or a load that is made, of `load/trace/named.rs`:
//! made = "scattered"
//! made_mib = 4096         # its data; with trace.requests
//! format = "btr"          # as larder trace info --format; without, the name or beginning decides
//! dev = 0                 # only this device; without, all of them, packed one behind the other
//! columns = "op=what"     # of a CSV
//! event = "Q"             # of a blkparse text
//! flash_mib = 512         # or, of the footprint, whatever the units:
//! flash_share = 0.1
//! speed = 1.0             # requests come at the recorded times, so many times as fast
//! most_outstanding = 1024 # with times: more than so many wait, and count as late
//! outstanding = 8         # instead: so many in flight, whatever the times
//! warm_up_share = 0.5     # of the requests; they are not counted
//! requests = 1_000_000    # only the first so many
//! ```
//! The footprint is the bytes of all different pages of 4 KiB that are asked for. A share of it is rounded up to whole
//! [`SHARE_STEP_BYTES`], so that it is the same bytes for every system.
//!
//! Without `speed` and `outstanding`, times are kept where the trace has them: what a client waits
//! for depends on rests and on bursts, and population does its work in the rests. A trace without
//! times runs with 8 in flight.

use std::path::PathBuf;
use std::str::FromStr as _;

use larder_trace::{Columns, Format, Options, Trace};
use serde::Deserialize;

use super::super::super::setting::{bad, in_range};
use super::source::Source;
use crate::load::replay::Pace;
use crate::load::trace::named::Named;

/// Requests in flight where there are no times, or none that can be kept.
pub const OUTSTANDING: u32 = 8;
/// The most that may be asked for.
const MOST_OUTSTANDING: u64 = 65_536;
/// Flash, of the footprint, if nothing else is said.
const FLASH_SHARE: f64 = 0.1;
/// A share of the footprint is a multiple of so many bytes: the unit of the presets with the largest.
pub const SHARE_STEP_BYTES: u64 = 1 << 20;
/// Data of a load that is made, if nothing else is said, and the most.
const MADE_MIB: u64 = 4096;
const MOST_MADE_MIB: u64 = 1 << 20;
/// The most MiB of flash: what a map of the engine has room for.
const MOST_MIB: f64 = (4096_u64 << 10) as f64;

/// Settings of the load, see the module.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TraceSettings {
    path: PathBuf,
    made: Option<String>,
    made_mib: u64,
    format: Option<String>,
    dev: Option<u8>,
    columns: Option<String>,
    event: char,
    flash_mib: Option<f64>,
    flash_share: Option<f64>,
    speed: Option<f64>,
    most_outstanding: u32,
    outstanding: Option<u32>,
    pub(super) warm_up_share: f64,
    requests: Option<u64>,
}

impl Default for TraceSettings {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            made: None,
            made_mib: MADE_MIB,
            format: None,
            dev: None,
            columns: None,
            event: 'Q',
            flash_mib: None,
            flash_share: None,
            speed: None,
            most_outstanding: 1024,
            outstanding: None,
            warm_up_share: 0.5,
            requests: None,
        }
    }
}

/// How much flash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum FlashSize {
    /// So many bytes.
    Bytes(u64),
    /// This share of the footprint.
    Share(f64),
}

impl TraceSettings {
    /// Whether they can be: the trace opens, and all is in range.
    ///
    /// # Errors
    /// What cannot be, and what would be accepted.
    pub fn lawful(&self) -> Result<(), String> {
        self.flash_size()?;
        if let Some(count) = self.outstanding {
            in_range("trace.outstanding", count.into(), 1, MOST_OUTSTANDING)?;
        }
        in_range("trace.most_outstanding", self.most_outstanding.into(), 1, MOST_OUTSTANDING)?;
        in_range("trace.requests", self.requests(), 1, u64::MAX)?;
        if !(0.0..=0.99).contains(&self.warm_up_share) {
            return bad("trace.warm_up_share", self.warm_up_share, "0 to 0.99");
        }
        match (self.speed, self.outstanding) {
            (Some(speed), Some(_)) => {
                return bad("trace.speed", speed, "speed or outstanding, not both");
            }
            (Some(speed), _) if !(1e-3..=1e6).contains(&speed) => {
                return bad("trace.speed", speed, "0.001 to 1000000");
            }
            _ => {}
        }
        match self.source(0)? {
            Source::File(trace) => trace.records().map(drop).map_err(|e| e.to_string()),
            Source::Made { .. } => Ok(()),
        }
    }

    /// Where requests come from; the seed is of loads that are made.
    ///
    /// # Errors
    /// The load or the format of the file is not known.
    pub(super) fn source(&self, seed: u64) -> Result<Source, String> {
        let Some(name) = &self.made else { return Ok(Source::File(self.trace()?)) };
        if !self.path.as_os_str().is_empty() {
            return bad("trace.made", name, "made or path, not both");
        }
        if self.requests.is_none() {
            return Err(format!(
                "trace.made = '{name}' needs trace.requests; accepted: 1 and more"
            ));
        }
        in_range("trace.made_mib", self.made_mib, 1, MOST_MADE_MIB)?;
        let Some(load) = Named::by_name(name) else {
            let names: Vec<&str> = Named::ALL.iter().map(|load| load.name).collect();
            return bad("trace.made", name, names.join(", "));
        };
        Ok(Source::Made { load, data_bytes: self.made_mib << 20, seed })
    }

    /// The trace of the file.
    fn trace(&self) -> Result<Trace, String> {
        if self.path.as_os_str().is_empty() {
            return bad("trace.path", "", "the path of a trace, or trace.made");
        }
        let format = self.format.as_deref().map(Format::by_name).transpose();
        let columns = self.columns.as_deref().map(Columns::from_str).transpose();
        let options = Options {
            format: format.map_err(|e| format!("trace.format: {e}"))?,
            columns: columns.map_err(|e| format!("trace.columns: {e}"))?.unwrap_or_default(),
            event: self.event,
            dev: self.dev,
        };
        Ok(Trace::new(&self.path, options))
    }

    /// How much flash.
    pub(super) fn flash_size(&self) -> Result<FlashSize, String> {
        match (self.flash_mib, self.flash_share) {
            (Some(mib), Some(_)) => {
                bad("trace.flash_mib", mib, "flash_mib or flash_share, not both")
            }
            (Some(mib), None) if (f64::MIN_POSITIVE..=MOST_MIB).contains(&mib) => {
                Ok(FlashSize::Bytes((mib * f64::from(1 << 20)) as u64))
            }
            (Some(mib), None) => bad("trace.flash_mib", mib, format!("above 0, up to {MOST_MIB}")),
            (None, share) => match share.unwrap_or(FLASH_SHARE) {
                share if (f64::MIN_POSITIVE..=1.0).contains(&share) => Ok(FlashSize::Share(share)),
                share => bad("trace.flash_share", share, "above 0, up to 1"),
            },
        }
    }

    /// At most so many requests.
    pub(super) fn requests(&self) -> u64 {
        self.requests.unwrap_or(u64::MAX)
    }

    /// The pace, and the factor of the times.
    ///
    /// # Errors
    /// The times of a trace that has none are asked for.
    pub(super) fn pace(&self, timed: bool) -> Result<(Pace, f64), String> {
        match (self.outstanding, self.speed) {
            (Some(count), _) => Ok((Pace::Outstanding(count as usize), 1.0)),
            (None, Some(speed)) if !timed => {
                bad("trace.speed", speed, "trace.outstanding, as the trace has no times")
            }
            (None, None) if !timed => Ok((Pace::Outstanding(OUTSTANDING as usize), 1.0)),
            (None, speed) => {
                let most = self.most_outstanding as usize;
                Ok((Pace::AtTimes { most }, speed.unwrap_or(1.0)))
            }
        }
    }
}
