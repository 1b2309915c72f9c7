// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptions of devices: the built-in ones, what is accepted, and the text of errors.

mod common;

use common::{closed_loop, disk_spec, random_ops, ssd_spec};
use larder_model::{
    Description, DeviceSpec, FilerSpec, FixedSpec, Holland, Kind, LinkSpec, Model, Op, SsdSpec,
    WriteCacheSpec, described, profile, profiles,
};

const DISK: &str = r#"about = "a disk"
source = "its maker"

[device.disk]
rpm = 7_200
seek_average_ns = 8_500_000
settle_ns = 800_000
write_settle_ns = 500_000
bytes_per_second = 160_000_000
read_ahead_tracks = 2
queue_depth = 32
patience = 96
command_ns = 100_000
bus_bytes_per_second = 550_000_000
"#;

fn text_of(name: &str) -> String {
    let path = format!("{}/devices/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("a file for each profile")
}

#[test]
fn every_file_of_the_directory_is_a_profile() {
    let directory = format!("{}/devices", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut names: Vec<String> = profiles().iter().map(|p| format!("{}.toml", p.name)).collect();
    files.sort();
    names.sort();
    assert_eq!(files, names);
    for info in profiles() {
        let description = Description::parse("it", &text_of(info.name)).unwrap();
        assert_eq!(Ok(description), described(info.name));
        assert!(
            [&info.about, &info.source].iter().all(|s| !s.is_empty() && s.lines().count() == 1)
        );
    }
}

#[test]
fn a_disk_needs_no_cache() {
    let description = Description::parse("it", DISK).unwrap();
    let DeviceSpec::Disk(disk) = description.device else { panic!("{description:?}") };
    assert_eq!(disk.cache, None);
    let cache = Some(WriteCacheSpec { size_bytes: 64 << 20, battery_backed: false });
    assert_eq!(larder_model::DiskSpec { cache, ..disk }, disk_spec("hdd-7200"));
}

#[test]
fn errors_state_the_position_and_what_is_accepted() {
    let all_keys = "`rpm`, `seek_average_ns`, `settle_ns`, `write_settle_ns`, `bytes_per_second`, \
                    `read_ahead_tracks`, `queue_depth`, `patience`, `command_ns`, \
                    `bus_bytes_per_second`, `cache`";
    let unknown = format!("f.toml:5: unknown field `rpmm`; accepted: {all_keys}");
    let cases = [
        (
            "rpm = 7_200",
            "rpm = 0",
            "f.toml:5: rpm: invalid value: integer `0`; accepted: a whole number from 1000 to 100000",
        ),
        (
            "rpm = 7_200",
            "rpm = -3",
            "f.toml:5: rpm: invalid value: integer `-3`; accepted: a whole number from 1000 to 100000",
        ),
        (
            "rpm = 7_200",
            "rpm = \"fast\"",
            "f.toml:5: rpm: invalid type: string \"fast\"; accepted: a whole number from 1000 to 100000",
        ),
        (
            "queue_depth = 32",
            "queue_depth = 1_000_000_000_000",
            "f.toml:11: queue_depth: invalid value: integer `1000000000000`; accepted: a whole number from 1 to 1000",
        ),
        ("rpm = 7_200", "rpmm = 7_200", &unknown),
        (
            "rpm = 7_200\n",
            "",
            "f.toml:4: missing field `rpm`; accepted: see \"Device models\" in docs/simulation.md",
        ),
        (
            "[device.disk]",
            "[device.floppy]",
            "f.toml:4: unknown variant `floppy`; accepted: `disk`, `array`, `ssd`, `cloud`, `fixed`, `filer`",
        ),
        (
            "[device.disk]",
            "[link]\nbytes_per_second = 1_000\nlatency_ns = 0\n[device.disk]",
            "f.toml:4: missing field `packet_ns`; accepted: see \"Device models\" in docs/simulation.md",
        ),
        ("rpm = 7_200", "rpm = ", "f.toml:5: "),
        (
            "about = \"a disk\"",
            "about = 1",
            "f.toml:1: about: invalid type: integer `1`; accepted: a string",
        ),
    ];
    for (old, new, want) in cases {
        let text = DISK.replacen(old, new, 1);
        assert_ne!(text, DISK);
        let error = Description::parse("f.toml", &text).unwrap_err().to_string();
        println!("{error}");
        assert!(error.starts_with(want), "{error}\n{want}");
        assert!(error.contains("accepted") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn errors_of_other_tables_state_it_too() {
    let filer = text_of("holland-filer");
    let share = filer.replace("fast_read_ratio = 0.90", "fast_read_ratio = 90");
    let error = Description::parse("f.toml", &share).unwrap_err().to_string();
    assert!(error.ends_with("accepted: a number from 0.0 to 1.0"), "{error}");
    let block = text_of("ssd-840pro-ftl").replace("262_144", "262_145");
    let error = Description::parse("f.toml", &block).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "block_bytes: invalid value: integer `262145`; accepted: a multiple of 4096"
        ),
        "{error}"
    );
    let two = format!("{DISK}\n[device.fixed]\nread_ns = 1\nwrite_ns = 1\n");
    let error = Description::parse("f.toml", &two).unwrap_err().to_string();
    println!("{error}");
    assert_eq!(
        error,
        "f.toml:4: exactly one device is required; accepted: one of the tables [device.disk], [device.array], [device.ssd], [device.cloud], [device.fixed], [device.filer]"
    );
    for nonsense in ["", "\0", "device = 3", "[device]", "[[[", "[device.disk", "é = é"] {
        let error = Description::parse("f.toml", nonsense).unwrap_err().to_string();
        println!("{error}");
        assert!(error.starts_with("f.toml:1: ") && !error.contains('\n'), "{error}");
        assert!(error.contains("accepted"), "{error}");
    }
}

/// Submits requests of all kinds, including invalid ones, and waits for all of them.
fn exercise(name: &str, description: &Description) {
    let mapped = matches!(description.device, DeviceSpec::Ssd(SsdSpec { ftl: Some(_), .. }));
    let capacities: &[u64] = if mapped { &[1 << 20] } else { &[1, 1 << 20, 1 << 44] };
    for &bytes in capacities {
        let mut model = description.build(bytes, 1);
        let mut id = 0;
        for (offset, len) in [(0, 4096), (7, 1), (u64::MAX, 1 << 30), (1 << 19, 300_000), (5, 0)] {
            for kind in [Kind::Read, Kind::Write, Kind::Flush, Kind::Trim] {
                model.submit(0, id, Op { kind, offset, len, fua: id % 2 == 0 });
                id += 1;
            }
        }
        while let Some(next) = model.next() {
            while model.poll(next).is_some() {
                id -= 1;
            }
            if model.in_flight() == 0 {
                break;
            }
        }
        assert_eq!(id, 0, "{name}: all completed");
    }
}

/// The least and the greatest accepted value of each key, alone and together with the others.
#[test]
fn no_accepted_value_stops_a_model() {
    let candidates: Vec<u64> =
        (0..63).flat_map(|bit| [1 << bit, (1 << bit) + 1]).chain([0]).collect();
    let tens = (0..19).map(|power| 10_u64.pow(power));
    let mut candidates: Vec<u64> = candidates.into_iter().chain(tens).collect();
    candidates.sort_unstable();
    for info in profiles() {
        let text = text_of(info.name);
        let mut extremes = [text.clone(), text.clone()];
        for line in text.split("[device").skip(1).flat_map(|part| part.lines()) {
            let Some((key, old)) = line.split_once(" = ") else { continue };
            if old.parse::<f64>().is_err() && !old.contains('_') {
                continue;
            }
            let with = |text: &str, value: u64| text.replace(line, &format!("{key} = {value}"));
            let parsed = |value: &u64| Description::parse("it", &with(&text, *value)).ok();
            let least = candidates.iter().copied().find(|value| parsed(value).is_some()).unwrap();
            let most = candidates.iter().copied().rfind(|value| parsed(value).is_some()).unwrap();
            assert!(most > least, "{} {key}", info.name);
            for (extreme, value) in extremes.iter_mut().zip([least, most]) {
                exercise(info.name, &parsed(&value).unwrap());
                // A drive with the largest blocks and the most overwrites takes minutes.
                if key != "overwrites" {
                    *extreme = with(extreme, value);
                }
            }
        }
        for text in extremes {
            exercise(info.name, &Description::parse("it", &text).unwrap());
        }
    }
}

/// The figures for simulators equal those of the models with the same names.
#[test]
fn hollands_table_matches_the_profiles() {
    let times = Holland::table_1();
    let device = |name| described(name).unwrap().device;
    let block = times.ram_ns_per_block;
    assert_eq!(
        device("holland-ram"),
        DeviceSpec::Fixed(FixedSpec { read_ns: block, write_ns: block })
    );
    let flash = FixedSpec { read_ns: times.flash_read_ns, write_ns: times.flash_write_ns };
    assert_eq!(device("holland-flash"), DeviceSpec::Fixed(flash));
    let filer = FilerSpec {
        fast_read_ns: times.filer_fast_read_ns,
        slow_read_ns: times.filer_slow_read_ns,
        write_ns: times.filer_write_ns,
        fast_read_ratio: times.fast_read_ratio,
        servers: 0,
    };
    assert_eq!(device("holland-filer"), DeviceSpec::Filer(filer));
    let bytes_per_second = 1_000_000_000 / (8 * times.ns_per_bit);
    let link = LinkSpec { bytes_per_second, latency_ns: 0, packet_ns: times.packet_ns };
    assert_eq!(described("holland-filer").unwrap().link, Some(link));
}

#[test]
fn a_drive_with_a_map_has_the_ratings_of_the_one_without() {
    for name in ["ssd-840pro", "ssd-s3500"] {
        let mapped = ssd_spec(&format!("{name}-ftl"));
        assert!(mapped.ftl.is_some());
        assert_eq!(SsdSpec { ftl: None, ..mapped }, ssd_spec(name));
    }
}

/// F16 varies the number of disks behind one controller, whose cache keeps its size.
#[test]
fn an_array_has_as_many_disks_as_its_name_says() {
    let mut last = 0.0;
    for disks in 1..=16 {
        let description = described(&format!("array-{disks}")).unwrap();
        let DeviceSpec::Array(array) = description.device else { panic!("{description:?}") };
        assert_eq!(array.disks, disks);
        let cache_bytes = array.disk.cache.unwrap().size_bytes * disks;
        assert!((512 << 20) - cache_bytes < disks, "{cache_bytes}");
        if disks.is_power_of_two() {
            let mut model = profile(&format!("array-{disks}"), common::CAPACITY_BYTES, 1).unwrap();
            let ops = random_ops(Kind::Read, 4096, 3);
            let iops = closed_loop(&mut model, 0, 32 * disks, 10_000, ops).iops();
            println!("{disks} disks: {iops:.0} reads a second");
            assert!(iops > 1.8 * last);
            last = iops;
        }
    }
    for name in ["array-0", "array-17", "array-01", "array-", "array-x", "array-16 "] {
        assert!(described(name).is_err(), "{name}");
    }
}

/// Holland, Table 1: one read in ten is slow, and the seed determines which.
#[test]
fn a_filer_has_the_stated_share_of_slow_reads() {
    let mut model = profile("holland-filer", 1 << 40, 7).unwrap();
    let run = closed_loop(&mut model, 0, 1, 40_000, random_ops(Kind::Read, 4096, 1));
    println!("a read of the filer takes {:.1} us on average", run.mean_ns / 1e3);
    common::assert_near("mean", run.mean_ns, 927_200.0, 0.02);
    assert_eq!(run.max_ns, 49_168 + 7_952_000);
    let mut model = profile("holland-filer", 1 << 40, 7).unwrap();
    assert_eq!(run, closed_loop(&mut model, 0, 1, 40_000, random_ops(Kind::Read, 4096, 1)));
}

#[test]
fn a_filer_serves_as_many_at_once_as_it_has_servers() {
    let spec = |servers| FilerSpec {
        fast_read_ns: 1_000,
        slow_read_ns: 1_000,
        write_ns: 1_000,
        fast_read_ratio: 1.0,
        servers,
    };
    for (servers, end) in [(0, 1_000), (1, 10_000), (3, 4_000), (10, 1_000), (20, 1_000)] {
        let mut filer = larder_model::Filer::new(spec(servers), 1);
        (0..10).for_each(|id| filer.submit(0, id, Op::write(0, 1 << 20)));
        let last = std::iter::from_fn(|| filer.poll(1 << 20)).map(|(_, at)| at).max();
        assert_eq!(last, Some(end), "{servers}");
    }
}
