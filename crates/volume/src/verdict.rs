// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decision of a start on a flash device, made without the server: `larder check`.
//!
//! [`admit`] decides, as in a start, so that both give the same decision with the same reason. The settings of the server
//! are unknown here; the decision is for the settings that the flash was formatted with, without `--format` and
//! `--adopt`. The volume's own state record is the one that names the flash.
//!
//! The origin is read where it is a file or a block device. An origin behind a server is assumed to be unchanged: a
//! check opens no connection.

use std::path::Path;

use larder_core::format::label::{Found, Label};
use larder_core::format::{
    Asked, AskedOrigin, Decision, Kept, LogsKept, OriginFacts, OriginRecord, Plan, Records,
    StateRecord, Used, Warm, WhyCold, Wishes, admit,
};
use larder_io::{Access, DevSpec, Device};

use super::flash::size_of;
use super::raw_io::Raw;

/// What a start does with a flash device of this label and plan on which so many slots or pages are in use.
pub(super) fn verdict(
    device: &Device,
    label: &Label,
    plan: &Plan,
    used: u64,
    record: Option<&StateRecord>,
    origins: &[OriginFacts],
) -> String {
    if !label.keeps_metadata() {
        return format!("starts cold: {}", WhyCold::NoJournal);
    }
    // A check knows no other origins than the recorded ones.
    let origin = |facts: &OriginFacts| AskedOrigin { facts: *facts, place: None };
    let origins: Vec<AskedOrigin<'_>> = origins.iter().map(origin).collect();
    let asked = Asked {
        plan,
        device: size_of(device),
        write: Used::last(label, record),
        wishes: Wishes::default(),
        origins: &origins,
        records: Some(Records { own: record, naming: record }),
    };
    match admit(&Found::Label(label.clone()), &asked, &Raw(device)) {
        Decision::Refused(why) => format!("is refused: {why}"),
        Decision::Cold { why, .. } => format!("starts cold: {why}"),
        Decision::Warm(Warm { kept: Kept::Logs(LogsKept { unclosed: n @ 1.., .. }), .. }) => {
            format!("starts cold: {}", unclosed_logs(n))
        }
        Decision::Warm(_) if used == 0 => "starts cold: it holds nothing".to_owned(),
        Decision::Warm(Warm { stale, .. }) => {
            let name = |number: u32| record.and_then(|of| of.origins.get(number as usize));
            let cold = stale.iter().map(|(number, why)| {
                let name = name(*number).map_or("", |of| &of.name);
                format!("; cold for the volume '{name}': {why}")
            });
            format!("starts warm{}", cold.collect::<String>())
        }
    }
}

/// The origin that a state record describes, as it is; or as the record describes it, with the reason why it was not
/// read.
pub(super) fn origin_facts(record: &OriginRecord) -> (OriginFacts, Option<String>) {
    let path = Path::new(&record.origin);
    if !path.is_absolute() {
        let why = "a check does not connect to servers".to_owned();
        return (as_recorded(record), Some(why));
    }
    match Device::open(&DevSpec::Path(path.to_owned()), Access::ReadOnly) {
        Ok(origin) => (facts(&origin), None),
        Err(e) => (as_recorded(record), Some(e.to_string())),
    }
}

/// An origin as its record describes it.
pub(super) fn as_recorded(record: &OriginRecord) -> OriginFacts {
    OriginFacts { bytes: record.origin_bytes, modified_ns: record.origin_mtime_ns }
}

/// What a decision needs to know of an open origin.
pub(super) fn facts(origin: &Device) -> OriginFacts {
    let modified = origin.modified_before_open_ns();
    OriginFacts {
        bytes: origin.geometry().bytes,
        modified_ns: modified.and_then(|ns| i64::try_from(ns).ok()),
    }
}

/// Why page logs are empty after a start.
pub(super) fn unclosed_logs(logs: usize) -> String {
    format!("{logs} of its page logs were not closed, as after a crash")
}
