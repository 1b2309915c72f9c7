// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel counts of this process, under the names that Prometheus' own libraries use.
//!
//! A figure that cannot be read is absent.

use std::fmt::Error;
use std::fs;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use rustix::process::{Resource, getrlimit};

/// The fields of `/proc/self/stat` behind the name of the program, by their number there.
struct Fields(Vec<u64>);

impl Fields {
    /// Number of the first field.
    const FIRST: usize = 3;

    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name may have any characters.
        let (_, rest) = stat.rsplit_once(") ")?;
        // Some fields are letters or negative; none of those is used.
        Some(Self(rest.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect()))
    }

    fn get(&self, number: usize) -> Option<f64> {
        Some(*self.0.get(number - Self::FIRST)? as f64)
    }
}

/// When the machine was started, in seconds since 1970.
fn boot_seconds() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let fields = Fields::read();
    let field = |number: usize| fields.as_ref().and_then(|fields| fields.get(number));
    let (tick, page) =
        (rustix::param::clock_ticks_per_second() as f64, rustix::param::page_size() as f64);
    let processor = field(14).zip(field(15)).map(|(user, system)| (user + system) / tick);
    if let Some(seconds) = processor {
        let help = "Processor time, user and system";
        let mut metric =
            encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&seconds, None)?;
    }
    let open = fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as f64);
    let most = getrlimit(Resource::Nofile).current.map(|most| most as f64);
    let started = boot_seconds().zip(field(22)).map(|(boot, ticks)| boot + ticks / tick);
    let gauges = [
        ("process_resident_memory_bytes", field(24).map(|pages| pages * page), "Resident memory"),
        ("process_virtual_memory_bytes", field(23), "Virtual memory"),
        ("process_threads", field(20), "Threads"),
        ("process_open_fds", open, "Open file descriptors"),
        ("process_max_fds", most, "File descriptors that may be open"),
        ("process_start_time_seconds", started, "Start of the process, in seconds since 1970"),
    ];
    for (name, value, help) in gauges {
        if let Some(value) = value {
            encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_moves_no_field() {
        let fields = Fields::parse(
            "7 (a) b) c) S 1 2 3 4 -1 6 7 8 9 10 14 15 16 17 18 19 20 21 22 23 24 25",
        )
        .unwrap();
        assert_eq!((fields.get(4), fields.get(8)), (Some(1.0), Some(0.0)));
        assert_eq!(
            (fields.get(14), fields.get(15), fields.get(99)),
            (Some(14.0), Some(15.0), None)
        );
    }

    #[test]
    fn this_process_has_all_fields() {
        let fields = Fields::read().unwrap();
        assert!(fields.get(24).is_some_and(|pages| pages > 0.0));
        assert!(boot_seconds().is_some_and(|seconds| seconds > 1e9));
    }
}
