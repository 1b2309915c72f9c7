// SPDX-License-Identifier: MIT OR Apache-2.0
//! Caches being served, each with a volume or several: devices, worker threads, and what an operator may do with them.
//!
//! | the ... | file |
//! | --- | --- |
//! | cache: its start, its workers; what belongs to each of its volumes | `cache.rs`, `part.rs` |
//! | volume, as listeners and commands see it | `volume.rs` |
//! | worker thread, its clients, long zeroings, and its messages | `worker/{mod,clients,bulk}.rs`, `mailbox.rs` |
//! | queues that are not byte streams | [`queue`], `worker/queues.rs`, `client.rs` |
//! | clients' connections, without a protocol; their peers; their seats; their memory | [`session`], `connection.rs`; [`peer`]; [`seat`], [`budget`] |
//! | attach and detach of flash; state file, and what is recorded there | `attach.rs`; `state_file.rs`, `notes.rs` |
//! | copies of dirty data; volumes that leave their cache and join it | `clear.rs` |
//! | flash device: preparation, label; inspection, decision of a start | `flash.rs`, `raw_io.rs`; `inspect.rs`, `compare.rs`, `verdict.rs` |
//! | what a block device promises its users | `promises.rs` |
//! | settings that change while a cache serves; the bound on flash writes | `settings.rs`, `by_name.rs`, `set.rs`; `daily_writes.rs` |
//! | ranges that are pinned and excluded; what commands do with ranges | `volume_ranges.rs`, `range_rules.rs`, `state_file/ranges.rs`; `ranges.rs` |
//! | stop | `stop.rs`, `left.rs` |
//! | writes that may overlap; holes | `overlaps.rs`, `extents.rs` |
//! | what workers note of requests: recordings, the flight recorder, the miss-ratio curve | `worker/observed.rs`; `tap.rs`, `record.rs`; `recent.rs`, `recorder.rs`; `curve.rs` |
//! | state of flash; status, counters, latencies | `state.rs`; `status.rs`, `stats.rs`, `latency.rs` |

mod attach;
pub mod budget;
mod by_name;
mod cache;
mod clear;
mod client;
mod compare;
mod config;
mod connection;
mod curve;
mod daily_writes;
mod doubt;
mod error;
mod extents;
mod fits;
mod flash;
mod heat;
mod inspect;
mod latency;
mod left;
mod lock;
mod mailbox;
mod notes;
mod overlaps;
mod part;
pub mod peer;
mod promises;
pub mod queue;
mod quiesce;
mod range_rules;
mod ranges;
mod raw_io;
mod recent;
mod record;
mod recorder;
mod resize;
mod retry;
mod returned;
mod scrub;
pub mod seat;
pub mod session;
mod set;
mod settings;
mod signature;
mod state;
mod state_file;
mod stats;
mod status;
mod stop;
mod tap;
mod tasks;
mod verdict;
mod volume;
mod volume_ranges;
mod worker;

pub use self::by_name::{ByName, Named};
pub use self::cache::Cache;
pub use self::compare::{DataReport, compare};
pub use self::config::{CacheConfig, ClientLimits, RECORDER_BYTES, VolumeConfig};
pub use self::connection::Accepted;
pub use self::curve::{MOST_TIMES, Point, Shown};
pub use self::daily_writes::DailyWrites;
pub use self::error::{BadValue, VolumeError};
pub use self::extents::Seek;
pub use self::fits::check_memory;
pub use self::flash::FlashDevice;
pub use self::heat::{Heat, Part};
pub use self::inspect::{Report as FlashReport, ShardReport, ShardState, inspect};
pub use self::latency::{Histogram, Latencies};
pub use self::overlaps::{Overlaps, Pass};
pub use self::quiesce::Quiet;
pub use self::ranges::{Progress, Ranged, Terms};
pub use self::recent::{Answered, Recent};
pub use self::record::Recording;
pub use self::resize::Resized;
pub use self::scrub::{MOST_PLACES, Place, Scrubbed};
pub use self::settings::{Change, Settings};
pub use self::state_file::StateFile;
pub use self::stats::Stats;
pub use self::status::{AskedFor, Member, Status};
pub use self::tap::Recorded;
pub use self::volume::Volume;
pub use self::volume_ranges::{RangeRule, Rest, ShownRanges, VolumeRanges};
pub use self::worker::MOST_WORKERS;
