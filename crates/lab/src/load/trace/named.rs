// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads by name, over data of any size: what a comparison of caches asks of each of them.
//!
//! Each is a stream of requests for a closed loop that keeps [`Named::outstanding`] of them in flight; times do not
//! count. [`Named::requests_per_mib`] is the number of requests that meets the data of a load a few times.
//!
//! Why these: one load that suits each known way to cache, and one that defeats it. Every cache has its good loads, and
//! a user cannot know in advance which one is theirs.

use larder_core::exec::MILLISECOND;
use larder_trace::{Record, Records, TraceError};

use super::super::desktop::{DAYS, Desktop, Scale, USERS};
use super::super::{EXPONENT, PAGE_BYTES, Pattern, WALK_PAGES, WRITES_PER_READ};
use super::log::LogTrace;
use super::moving::MovingTrace;
use super::oltp::{self, OltpTrace};
use super::plain::{self, Law, PlainTrace};
use super::scan::ScanTrace;
use super::{Begin, Pace, record};

/// In flight at once where a load is of many clients.
const CLIENTS: u32 = 8;
/// Bytes of tiny requests.
const TINY_BYTES: u64 = 512;
const MIB: u64 = 1 << 20;

/// The requests of a load, in order.
pub type Requests = Box<dyn Iterator<Item = Result<Record, TraceError>>>;

/// A load, see the module.
pub struct Named {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it asks for.
    pub about: &'static str,
    /// Requests in flight.
    pub outstanding: u32,
    /// Requests for each MiB of data. A load that ends by itself may have fewer.
    pub requests_per_mib: u64,
    make: fn(u64, u64) -> Result<Requests, TraceError>,
}

impl Named {
    /// All loads.
    pub const ALL: &[Self] = &[
        Self {
            name: "oltp",
            about: "walks of four pages within hot regions, 13 % writes",
            outstanding: CLIENTS,
            requests_per_mib: 1024,
            make: |bytes, seed| made(transactions(Pattern::Oltp, bytes, seed)),
        },
        Self {
            name: "scattered",
            about: "hot single pages anywhere, 13 % writes",
            outstanding: CLIENTS,
            requests_per_mib: 1024,
            make: |bytes, seed| made(transactions(Pattern::Scattered, bytes, seed)),
        },
        Self {
            name: "desktop",
            about: "ten days of a desktop, one request after the other",
            outstanding: 1,
            requests_per_mib: 1024,
            make: |bytes, seed| made(desktop(bytes, seed)),
        },
        Self {
            name: "scan",
            about: "a sequential scan beside a hot set",
            outstanding: CLIENTS,
            requests_per_mib: 256,
            make: |bytes, seed| made(ScanTrace::new(bytes, seed)),
        },
        Self {
            name: "moving",
            about: "a working set that moves, 10 % writes",
            outstanding: CLIENTS,
            requests_per_mib: 512,
            make: |bytes, seed| made(MovingTrace::new(bytes, seed)),
        },
        Self {
            name: "half-writes",
            about: "hot blocks of 8 KiB, 50 % writes",
            outstanding: CLIENTS,
            requests_per_mib: 512,
            make: |bytes, seed| made(zipf(8 << 10, bytes, 0.5, seed)),
        },
        Self {
            name: "log",
            about: "appends of 16 KiB, 5 % reads of recent ones",
            outstanding: CLIENTS,
            requests_per_mib: 128,
            make: |bytes, seed| made(LogTrace::new(bytes, seed)),
        },
        Self {
            name: "tiny",
            about: "requests of 512 bytes, 10 % writes",
            outstanding: CLIENTS,
            requests_per_mib: 1024,
            make: |bytes, seed| made(tiny(bytes, seed)),
        },
        Self {
            name: "huge",
            about: "requests of 1 MiB, 10 % writes",
            outstanding: CLIENTS,
            requests_per_mib: 8,
            make: |bytes, seed| made(zipf(MIB, bytes, 0.1, seed)),
        },
        Self {
            name: "pg15_zipf_update",
            about: "the trace shipped with Larder, whatever the data's size",
            outstanding: CLIENTS,
            requests_per_mib: 1024,
            make: |_, _| Ok(Box::new(Records::shipped()?)),
        },
    ];

    /// The load of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|load| load.name == name)
    }

    /// Its requests over so many bytes of data.
    ///
    /// # Errors
    /// The shipped trace cannot be decompressed.
    pub fn requests(&self, data_bytes: u64, seed: u64) -> Result<Requests, TraceError> {
        (self.make)(data_bytes, seed)
    }
}

fn made(records: impl Iterator<Item = Record> + 'static) -> Result<Requests, TraceError> {
    Ok(Box::new(records.map(Ok)))
}

fn transactions(pattern: Pattern, data_bytes: u64, seed: u64) -> OltpTrace {
    let pace = Pace { begin: Begin::Clients { count: CLIENTS, think: 0 }, service: MILLISECOND };
    let writes = WALK_PAGES as f64 * WRITES_PER_READ;
    OltpTrace::new(oltp::Spec { pattern, data_bytes, walks: 1, writes, pace }, seed)
}

/// The last of the paper's users, whose coverage is the data.
fn desktop(data_bytes: u64, seed: u64) -> impl Iterator<Item = Record> {
    let user = &USERS[USERS.len() - 1];
    let scale = Scale { segments_per_gb: (data_bytes / MIB / user.all).max(1) };
    let mut desktop = Desktop::new(user, scale, seed);
    let days = (0..DAYS).flat_map(move |day| desktop.day(day));
    days.filter_map(|ask| record(0, ask.writes, ask.offset, ask.len))
}

fn zipf(block_bytes: u64, data_bytes: u64, write_ratio: f64, seed: u64) -> PlainTrace {
    let law = Law::Zipf { exponent: EXPONENT };
    PlainTrace::new(plain::Spec { law, data_bytes, block_bytes, write_ratio, rate: 1e6 }, seed)
}

/// A sector of a hot page, each sector in turn.
fn tiny(data_bytes: u64, seed: u64) -> impl Iterator<Item = Record> {
    let pages = zipf(PAGE_BYTES, data_bytes, 0.1, seed);
    (0..).zip(pages).map(|(count, page): (u64, Record)| {
        let sector = count % (PAGE_BYTES / TINY_BYTES) * TINY_BYTES;
        let offset_bytes = page.offset_bytes + sector;
        Record { offset_bytes, len_bytes: TINY_BYTES as u32, ..page }
    })
}

#[cfg(test)]
mod tests {
    use larder_trace::Op;

    use super::*;

    fn first(load: &Named, seed: u64) -> Vec<Record> {
        let requests = load.requests(128 * MIB, seed).unwrap().take(2_000);
        requests.map(Result::unwrap).collect()
    }

    #[test]
    fn equal_seeds_give_equal_requests_and_each_load_has_its_mix() {
        for load in Named::ALL {
            let records = first(load, 1);
            assert_eq!(records, first(load, 1), "{}", load.name);
            assert_eq!(records.len(), 2_000, "{}", load.name);
            let writes = records.iter().filter(|r| r.op == Op::Write).count();
            let expected = match load.name {
                "oltp" | "scattered" => 200..320,
                "desktop" | "pg15_zipf_update" => 0..2_000,
                "scan" => 0..1,
                "half-writes" => 900..1_100,
                "log" => 1_850..1_950,
                _ => 140..260,
            };
            assert!(expected.contains(&writes), "{}: {writes}", load.name);
        }
    }
}
