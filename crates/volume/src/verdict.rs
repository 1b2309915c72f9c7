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
    Asked, Decision, Kept, LogsKept, OriginFacts, Plan, Records, StateRecord, Used, Warm, WhyCold,
    Wishes, admit,
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
    origin: OriginFacts,
) -> String {
    if !label.keeps_metadata() {
        return format!("starts cold: {}", WhyCold::NoJournal);
    }
    let asked = Asked {
        plan,
        device: size_of(device),
        write: Used::last(label, record),
        wishes: Wishes::default(),
        origin,
        // A check knows no other origin than the recorded one.
        place: None,
        records: Some(Records { own: record, naming: record }),
    };
    match admit(&Found::Label(label.clone()), &asked, &Raw(device)) {
        Decision::Refused(why) => format!("is refused: {why}"),
        Decision::Cold { why, .. } => format!("starts cold: {why}"),
        Decision::Warm(Warm { kept: Kept::Logs(LogsKept { unclosed: n @ 1.., .. }), .. }) => {
            format!("starts cold: {}", unclosed_logs(n))
        }
        Decision::Warm(_) if used == 0 => "starts cold: it holds nothing".to_owned(),
        Decision::Warm(_) => "starts warm".to_owned(),
    }
}

/// The origin that a state record describes, as it is; or as the record describes it, with the reason why it was not
/// read.
pub(super) fn origin_facts(record: &StateRecord) -> (OriginFacts, Option<String>) {
    let recorded = OriginFacts { bytes: record.origin_bytes, modified_ns: record.origin_mtime_ns };
    let path = Path::new(&record.origin);
    if !path.is_absolute() {
        return (recorded, Some("a check does not connect to servers".to_owned()));
    }
    match Device::open(&DevSpec::Path(path.to_owned()), Access::ReadOnly) {
        Ok(origin) => (facts(&origin), None),
        Err(e) => (recorded, Some(e.to_string())),
    }
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
