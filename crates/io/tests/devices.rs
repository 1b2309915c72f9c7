// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every kind of device through the driver: written data reads back, and nothing else changes.
#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use common::{DEV, OWNER, driver_for, file_in, io, next_done, open, pattern, read, run, write};
use larder_core::buf::Buf;
use larder_core::exec::{DevId, Io, IoId, IoKind};
use larder_core::request::Errno;
use larder_io::{Access, DevSpec, Device, Driver, OpenError};

const BYTES: u64 = 32 << 20;

/// Devices under test: a file with direct I/O (where /tmp supports it), one on tmpfs, and memory.
fn each(test: impl Fn(&str, Device)) {
    let on_disk = file_in(Path::new("/tmp"), BYTES);
    test("file", open(on_disk.path()));
    let on_tmpfs = file_in(Path::new("/dev/shm"), BYTES);
    let device = open(on_tmpfs.path());
    assert!(!device.direct());
    test("tmpfs", device);
    test("mem", Device::mem(BYTES));
}

#[test]
fn written_data_reads_back() {
    each(|name, device| {
        let mut driver = driver_for(&device);
        for (at, fua) in [(0, false), (1 << 20, true), (BYTES - (2 << 20), false)] {
            let data = pattern(at, 2 << 20);
            write(&mut driver, at, &data, fua).unwrap();
            assert!(read(&mut driver, at, 2 << 20).unwrap() == data, "{name}");
            let middle = read(&mut driver, at + 4096, 8192).unwrap();
            assert!(middle == data[4096..4096 + 8192], "{name}");
        }
        run(&mut driver, io(IoKind::Flush, 0, 0)).unwrap();
    });
}

#[test]
fn a_part_of_a_buffer_is_transferred_and_the_rest_unchanged() {
    each(|name, device| {
        let mut driver = driver_for(&device);
        let data = pattern(5, 3 * 4096);
        let mut w = common::write_io(4096, &data, false);
        (w.at, w.len) = (4096, 4096);
        run(&mut driver, w).unwrap();
        let mut r = io(IoKind::Read, 0, 4 * 4096);
        (r.offset, r.at, r.len) = (4096, 8192, 4096);
        let back = run(&mut driver, r).unwrap().unwrap();
        assert!(back[8192..12288] == data[4096..8192], "{name}");
        assert!(back[..8192].iter().chain(&back[12288..]).all(|b| *b == 0xEE), "{name}");
    });
}

#[test]
fn many_parallel_operations_end_with_their_own_data() {
    const COUNT: u32 = 5000; // more than either queue of the ring holds
    each(|name, device| {
        let mut driver = driver_for(&device);
        let start = |driver: &mut Driver, id: u32, kind, buf| {
            let io = Io {
                id: IoId(id),
                dev: DEV,
                kind,
                offset: u64::from(id) * 4096,
                len: 4096,
                buf,
                at: 0,
            };
            driver.start(id, io);
        };
        for id in 0..COUNT {
            let data = Buf::copy_of(&pattern(u64::from(id), 4096));
            start(&mut driver, id, IoKind::Write { fua: false }, Some(data));
        }
        for _ in 0..COUNT {
            next_done(&mut driver).result.unwrap();
        }
        for id in 0..COUNT {
            start(&mut driver, id, IoKind::Read, Some(Buf::with_len(4096)));
        }
        for _ in 0..COUNT {
            let done = next_done(&mut driver);
            assert_eq!(done.owner, done.id.0);
            let expected = pattern(u64::from(done.id.0), 4096);
            assert!(done.buf.unwrap()[..] == expected[..], "{name}");
        }
        assert_eq!(driver.in_flight(), 0);
    });
}

#[test]
fn emptied_ranges_read_as_zeroes_and_neighbours_are_unchanged() {
    let kinds = [
        IoKind::Trim { fua: false },
        IoKind::Trim { fua: true },
        IoKind::Zero { fua: false, may_unmap: false },
        IoKind::Zero { fua: true, may_unmap: true },
    ];
    each(|name, device| {
        let mut driver = driver_for(&device);
        for kind in kinds {
            write(&mut driver, 0, &[7; 4 << 20], false).unwrap();
            run(&mut driver, io(kind, 8192, 3 << 20)).unwrap();
            let back = read(&mut driver, 0, 4 << 20).unwrap();
            let end = 8192 + (3 << 20);
            assert!(back[8192..end].iter().all(|b| *b == 0), "{name} {kind:?}");
            assert!(back[..8192].iter().chain(&back[end..]).all(|b| *b == 7), "{name} {kind:?}");
        }
    });
}

#[test]
fn invalid_operations_are_rejected() {
    each(|name, device| {
        let mut driver = driver_for(&device);
        let mut short = io(IoKind::Read, 0, 4096);
        short.len = 8192;
        let mut beside = io(IoKind::Read, 0, 4096);
        beside.at = 512;
        let none = Io { buf: None, ..io(IoKind::Read, 0, 4096) };
        for bad in [
            io(IoKind::Read, 100, 4096),
            io(IoKind::Read, 0, 4000),
            io(IoKind::Read, 0, 0),
            io(IoKind::Read, BYTES, 4096),
            io(IoKind::Read, u64::MAX - 511, 512),
            io(IoKind::Trim { fua: false }, 0, 2 * BYTES),
            io(IoKind::Zero { fua: false, may_unmap: true }, 5, 4096),
            short,
            beside,
            none,
        ] {
            let what = format!("{name} {bad:?}");
            assert_eq!(run(&mut driver, bad).unwrap_err(), Errno::EINVAL, "{what}");
        }
        let unknown = Io { dev: DevId(99), ..io(IoKind::Flush, 0, 0) };
        assert_eq!(run(&mut driver, unknown).unwrap_err(), Errno::ENXIO);
    });
}

#[test]
fn a_truncated_file_is_an_error() {
    for (dir, cut) in [("/tmp", 1 << 20), ("/tmp", (1 << 20) + 100), ("/dev/shm", 1 << 20)] {
        let file = file_in(Path::new(dir), BYTES);
        let mut driver = driver_for(&open(file.path()));
        write(&mut driver, 0, &[1; 2 << 20], false).unwrap();
        file.as_file().set_len(cut).unwrap();
        assert_eq!(read(&mut driver, 1 << 21, 4096), Err(Errno::EIO));
        assert_eq!(read(&mut driver, (1 << 20) - 4096, 16384), Err(Errno::EIO));
        assert!(read(&mut driver, 0, 4096).is_ok());
    }
}

#[test]
fn null_reads_zeroes_and_a_blackhole_touches_nothing() {
    for (device, expected) in [(Device::null(1 << 30), 0), (Device::blackhole(1 << 30), 0xEE)] {
        let mut driver = driver_for(&device);
        write(&mut driver, 0, &[9; 4096], true).unwrap();
        assert!(read(&mut driver, 0, 4096).unwrap().iter().all(|b| *b == expected));
        run(&mut driver, io(IoKind::Trim { fua: true }, 0, 1 << 20)).unwrap();
    }
}

#[test]
fn the_name_determines_the_device() {
    let open = |text: &str| Device::open(&text.parse::<DevSpec>().unwrap(), Access::ReadWrite);
    assert_eq!(open("mem:100GiB").unwrap().geometry().bytes, 100 << 30);
    assert_eq!(open("mem:1000").unwrap().geometry().bytes, 512);
    assert_eq!(open("null:1.5TiB").unwrap().geometry().bytes, 3 << 39);
    assert!(matches!(open("mem:100"), Err(OpenError::TooSmall { .. })));
    assert!(matches!(open("mem:8EiB"), Err(OpenError::TooLarge { .. })));
    assert!(matches!(open("/tmp"), Err(OpenError::NotADevice { .. })));
    assert!(matches!(open("/dev/null"), Err(OpenError::NotADevice { .. })));
    assert!(matches!(open("/tmp/there is no such"), Err(OpenError::NotFound { .. })));
    let absent = open("nbd+unix:///x?socket=/tmp/there%20is%20no%20such");
    assert!(matches!(absent, Err(OpenError::Remote { .. })));
    let error = open("slow+mem:1GiB?profile=tape").unwrap_err();
    assert!(matches!(error, OpenError::Profile { .. }));
    assert!(error.to_string().contains("hdd-7200"), "{error}");
}

#[test]
fn a_profile_may_be_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("mine.toml");
    let open = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let name = format!("slow+mem:1MiB?profile={}", file.display());
        Device::open(&name.parse::<DevSpec>().unwrap(), Access::ReadWrite)
    };
    let good = "about = 'x'\nsource = 'y'\n[device.fixed]\nread_ns = 100\nwrite_ns = 200\n";
    assert_eq!(open(good).unwrap().geometry().bytes, 1 << 20);
    let error = open(&good.replace("200", "-1")).unwrap_err();
    assert!(matches!(error, OpenError::Profile { .. }));
    let want = format!("{}:5: write_ns: invalid value", file.display());
    assert!(error.to_string().contains(&want), "{error}");
    assert!(error.to_string().contains("accepted: a whole number"), "{error}");
    let error = open(&" ".repeat(2 << 20)).unwrap_err().to_string();
    assert!(error.contains("longer than 1 MiB") && error.contains("accepted"), "{error}");
    std::fs::remove_file(&file).unwrap();
    let absent: DevSpec = "slow+mem:1MiB?profile=no-such.toml".parse().unwrap();
    let error = Device::open(&absent, Access::ReadWrite).unwrap_err().to_string();
    assert!(
        error.contains("no-such.toml: cannot be read") && error.contains("accepted"),
        "{error}"
    );
}

#[test]
fn a_file_is_opened_for_writing_once_and_has_an_identity() {
    let file = file_in(Path::new("/tmp"), BYTES + 100);
    let spec = DevSpec::Path(file.path().to_owned());
    let first = Device::open(&spec, Access::ReadWrite).unwrap();
    assert_eq!(first.geometry().bytes, BYTES);
    let again = Device::open(&spec, Access::ReadWrite).unwrap_err();
    assert!(matches!(again, OpenError::InUse { .. }), "{again}");
    let reader = Device::open(&spec, Access::ReadOnly).unwrap();
    let identity = first.identity().unwrap().unwrap();
    assert_eq!(reader.identity().unwrap(), Some(identity));
    assert_eq!(identity.bytes, BYTES + 100);
    assert_eq!(Device::mem(4096).identity(), Ok(None));

    let mut driver = driver_for(&reader);
    assert!(read(&mut driver, 0, 4096).is_ok());
    assert_eq!(write(&mut driver, 0, &[1; 4096], false), Err(Errno(30)));
    drop((first, reader, driver));
    Device::open(&spec, Access::ReadWrite).unwrap();
}

#[test]
fn a_device_works_the_same_without_a_driver() {
    each(|name, device| {
        let data = pattern(1, 8192);
        device.run_blocking(&mut common::write_io(4096, &data, true)).unwrap();
        device
            .run_blocking(&mut io(IoKind::Zero { fua: true, may_unmap: false }, 8192, 4096))
            .unwrap();
        device.run_blocking(&mut io(IoKind::Flush, 0, 0)).unwrap();
        let mut back = io(IoKind::Read, 4096, 8192);
        device.run_blocking(&mut back).unwrap();
        let back = back.buf.unwrap();
        assert!(back[..4096] == data[..4096] && back[4096..].iter().all(|b| *b == 0), "{name}");
        assert_eq!(device.run_blocking(&mut io(IoKind::Read, 1, 512)), Err(Errno::EINVAL));
    });
}

#[test]
fn a_detached_device_completes_its_operations() {
    let file = file_in(Path::new("/tmp"), BYTES);
    let mut driver = driver_for(&open(file.path()));
    driver.start(OWNER, common::write_io(0, &[5; 4096], false));
    driver.detach(DEV);
    assert_eq!(next_done(&mut driver).result, Ok(()));
    assert_eq!(run(&mut driver, io(IoKind::Flush, 0, 0)).unwrap_err(), Errno::ENXIO);
    // The lock is released with the last operation, so the file can be opened and attached again.
    driver.attach(DEV, open(file.path()));
    assert!(read(&mut driver, 0, 4096).unwrap().iter().all(|b| *b == 5));
}

/// Threads write whole chunks of one value each and read whole sectors: none may be torn.
#[test]
fn threads_share_one_device() {
    let file = file_in(Path::new("/tmp"), 1 << 20);
    for device in [Device::mem(1 << 20), open(file.path())] {
        let rounds = Arc::new(AtomicU32::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let (device, rounds) = (device.clone(), Arc::clone(&rounds));
                scope.spawn(move || {
                    let mut driver = driver_for(&device);
                    for round in 0..50_u64 {
                        let at = (round * 7 + u64::from(thread)) % 16 * 65536;
                        write(&mut driver, at, &[thread + 1; 65536], false).unwrap();
                        let back = read(&mut driver, at, 65536).unwrap();
                        for sector in back.chunks(512) {
                            assert!(sector.iter().all(|b| *b == sector[0]) && sector[0] <= 4);
                        }
                        rounds.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(rounds.load(Ordering::Relaxed), 200);
    }
}

/// Data and holes as the file system reports them, in whole blocks.
#[test]
fn holes_match_those_of_the_file() {
    use larder_core::extent::Extent;
    use rustix::fs::{FallocateFlags, fallocate};
    each(|name, device| {
        let all = || device.extents(0, BYTES, 100);
        if all() != [Extent::hole(BYTES)] {
            assert_eq!(all(), [Extent::data(BYTES)], "{name}");
            return println!("{name} reports no holes");
        }
        let mut driver = driver_for(&device);
        write(&mut driver, 1 << 20, &pattern(1, 8192), false).unwrap();
        write(&mut driver, BYTES - 4096, &pattern(1, 4096), false).unwrap();
        let (hole, data) = (Extent::hole, Extent::data);
        let second = BYTES - 4096 - (1 << 20) - 8192;
        assert_eq!(all(), [hole(1 << 20), data(8192), hole(second), data(4096)], "{name}");
        assert_eq!(device.extents(0, BYTES, 1), [hole(1 << 20)]);
        assert_eq!(device.extents(0, BYTES, 2), [hole(1 << 20), data(8192)]);
        assert_eq!(device.extents((1 << 20) + 4096, 8192, 9), [data(4096), hole(4096)]);
        run(&mut driver, io(IoKind::Trim { fua: false }, 1 << 20, 4096)).unwrap();
        let expected = [hole((1 << 20) + 4096), data(4096), hole(second), data(4096)];
        assert_eq!(all(), expected, "{name}");
        // A range that cannot be queried is reported as data.
        for (offset, len) in [(0, 0), (1, 512), (0, 100), (BYTES, 4096), (u64::MAX - 511, 512)] {
            assert_eq!(device.extents(offset, len, 9), [data(len)]);
        }
    });
    // A file that was truncated has no zeroes beyond its end.
    let file = file_in(Path::new("/tmp"), BYTES);
    let device = open(file.path());
    fallocate(file.as_file(), FallocateFlags::empty(), 0, 4096).unwrap();
    file.as_file().set_len(BYTES / 2).unwrap();
    assert_eq!(device.extents(0, BYTES, 9), [Extent::data(BYTES)]);
    assert_eq!(Device::mem(4096).extents(0, 4096, 9), [Extent::data(4096)]);
}
