// SPDX-License-Identifier: MIT OR Apache-2.0
//! Advice in words: the verdict, its assumptions, and the configuration.

use larder_report::number;
use larder_trace::info::Info;

use super::advice::Advised;
use super::entrants::Entrant;
use super::knee;
use super::points::{Alone, Asked, MIB};
use crate::replays::Point;
use crate::scenario::volume::OUTSTANDING;

/// A size for people.
#[must_use]
pub fn size(bytes: u64) -> String {
    match bytes {
        0..MIB => format!("{} KiB", number(bytes as f64 / 1024.0)),
        _ if bytes >> 30 == 0 => format!("{} MiB", number(bytes as f64 / MIB as f64)),
        _ => format!("{} GiB", number(bytes as f64 / 1024.0 / MIB as f64)),
    }
}

pub(super) fn seconds(found: &Info) -> Option<f64> {
    let us = found.totals.duration_us();
    (us > 0).then_some(us as f64 / 1e6)
}

/// Yes or no, and why.
pub(super) fn verdict(pays: bool, alone: &Point, advised: Option<&Advised>) -> String {
    let what = if alone.read_us_mean.is_some() { "a read" } else { "a write" };
    let Some(advised) = advised else {
        return format!(
            "no: at no size does a cache take less than the origin alone, {} us for {what}",
            number(alone.us())
        );
    };
    let (point, wear) = (&advised.point, &advised.wear);
    let times = number(alone.us() / point.us().max(1e-3));
    let mut text = format!(
        "{}: {} with {} of flash takes {} us for {what}, the origin alone {} us ({times} times as long; {} \
         and more pay)",
        if pays { "yes" } else { "no" },
        point.system,
        size(point.flash_bytes),
        number(point.us()),
        number(alone.us()),
        knee::PAYS_FACTOR
    );
    if let (Some(before), Some(after)) = (alone.write_us_mean, point.write_us_mean)
        && after > before * knee::PAYS_FACTOR
    {
        text += &format!("; a write takes {} us instead of {}", number(after), number(before));
        if point.request_us_mean > alone.request_us_mean {
            text += ", and so all requests take longer in the mean";
        }
    }
    if let Some(years) = wear.years.filter(|years| *years < knee::LEAST_YEARS) {
        text += &format!("; but flash would be worn out after {} years", number(years));
    }
    text += advised.warning;
    text
}

/// Another preset, at its knee.
#[must_use]
pub fn other(other: &Advised) -> String {
    let Point { system, flash_bytes, read_us_mean, write_us_mean, .. } = &other.point;
    let us = |us: &Option<f64>| us.map_or("-".to_owned(), |us| format!("{} us", number(us)));
    let (read, write) = (us(read_us_mean), us(write_us_mean));
    let years = other.wear.years.map(|years| format!(", flash lasts {} years", number(years)));
    format!(
        "or {system} with {}: {read} for a read, {write} for a write{}{}",
        size(*flash_bytes),
        years.unwrap_or_default(),
        other.warning
    )
}

/// The assumptions of the advice.
pub(super) fn assumptions(
    asked: &Asked,
    found: &Info,
    alone: &Alone,
    entrants: &[Entrant],
) -> Vec<String> {
    let requests = found.totals.all.requests;
    let mut all = vec![format!(
        "Devices are models: origin {}, flash {}; the origin is as large as what the trace spans ({}).",
        asked.origin,
        asked.flash,
        size(alone.origin_bytes)
    )];
    all.push(if alone.requests < requests {
        format!(
            "Points replay the first {} of {requests} requests (--requests takes more); the miss-ratio curve \
             sees all of them.",
            alone.requests
        )
    } else {
        format!("Points replay all {requests} requests.")
    });
    all.push("A cache starts cold; the first half of the requests is not counted.".to_owned());
    all.push(pace(found, alone));
    let sample = if found.reuse.exact { "exactly" } else { "from a sample of pages (SHARDS)" };
    all.push(format!(
        "The miss-ratio curve is of LRU with pages of 4 KiB, reads and writes, {sample}."
    ));
    let endurance = asked.endurance.unwrap_or_default();
    let given =
        if asked.endurance.is_some() { "" } else { ", unless --endurance gives another value" };
    all.push(format!("Flash is {}{given}.", endurance.words()));
    all.extend(entrants.iter().filter_map(|entrant| entrant.assumption.clone()));
    all
}

fn pace(found: &Info, alone: &Alone) -> String {
    let fast = format!(
        "{OUTSTANDING} are always in flight, so flash written a day is of a client that never rests"
    );
    match (alone.timed, alone.too_slow) {
        (true, _) => "Requests come at the recorded times.".to_owned(),
        (false, true) => format!(
            "The origin alone cannot keep up with the recorded times ({} s), so requests do not keep them: {fast}.",
            number(seconds(found).unwrap_or(0.0))
        ),
        (false, false) => format!("The trace has no times: {fast}."),
    }
}

/// The configuration for `larder serve`.
pub(super) fn configuration(asked: &Asked, pays: bool, advised: &Advised) -> String {
    let point = &advised.point;
    let pays = if pays { "" } else { " It does not pay." };
    let mut text = format!(
        "# By larder advise, for a load as in the trace over {} and {}.{pays}\n\
         # To be filled in: origin and flash.\n\
         origin = \"/dev/ORIGIN\"\n\
         flash = \"/dev/FLASH\"\n\
         # {} of cached data; the rest is metadata.\n\
         flash_size = \"{}MiB\"\n\
         preset = \"{}\"\n",
        asked.origin,
        asked.flash,
        size(point.flash_bytes),
        advised.device_bytes / MIB,
        point.system,
    );
    if let Some(seconds) = advised.update_seconds {
        text += &format!("update_period = \"{seconds}s\"\n");
    }
    text += "listen = [\"nbd+unix:/run/larder/larder.nbd\"]\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        let text = [512, 1 << 20, 387 << 20, 5 << 30].map(size);
        assert_eq!(text, ["0.5 KiB", "1 MiB", "387 MiB", "5 GiB"]);
    }
}
