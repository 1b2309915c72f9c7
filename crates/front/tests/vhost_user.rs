// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume as a virtual machine's disk: a client of the crate `vhost` against a door of this process.
#![allow(clippy::unwrap_used)] // a test that cannot continue fails

use std::io::{ErrorKind, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_core::config::preset;
use larder_front::grant::Grant;
use larder_front::socket::Rights;
use larder_front::vhost_user::VhostUserDoor;
use larder_io::{Access, DevSpec, Device};
use larder_testkit::guest::{AVAILABLE, DATA_BYTES, EVENT_INDEX, Guest, kind};
use larder_volume::{CacheConfig, Volume};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use vhost::vhost_user::VhostUserFrontend as _;
use vhost::vhost_user::message::VhostUserConfigFlags;
use vm_memory::{Bytes as _, GuestAddress};

const BYTES: u64 = 64 << 20;
const SOON: Duration = Duration::from_secs(10);
const OK: u8 = 0;
const ERROR: u8 = 1;
const UNKNOWN: u8 = 2;

struct Rig {
    dir: tempfile::TempDir,
    volume: Arc<Volume>,
    door: Option<VhostUserDoor>,
}

impl Rig {
    fn over(dir: tempfile::TempDir, origin: Device, grant: Grant) -> Self {
        let choices = preset("sce").unwrap().choices();
        let volume = Volume::start(CacheConfig::of(origin, choices, 2).named("disk")).unwrap();
        let mut rig = Self { dir, volume, door: None };
        rig.open(grant);
        rig
    }

    fn with(grant: Grant) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("origin");
        std::fs::File::create(&path).unwrap().set_len(BYTES).unwrap();
        let origin = Device::open(&DevSpec::Path(path), Access::ReadWrite).unwrap();
        Self::over(dir, origin, grant)
    }

    fn new() -> Self {
        Self::with(Grant::Full)
    }

    fn open(&mut self, grant: Grant) {
        let door = VhostUserDoor::open(&self.path(), &self.volume, grant, Rights::default());
        self.door = Some(door.unwrap());
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("disk.sock")
    }

    fn boot(&self, queues: u16) -> Guest {
        Guest::boot(&self.path(), queues, 0).unwrap()
    }
}

fn page(byte: u8) -> Vec<u8> {
    vec![byte; 4096]
}

#[test]
fn a_guest_reads_what_it_wrote_flushes_trims_and_zeroes() {
    let rig = Rig::new();
    for without in [0, EVENT_INDEX] {
        let mut guest = Guest::boot(&rig.path(), 2, without).unwrap();
        for queue in [0, 1] {
            let at = queue as u64 * 2048;
            let data: Vec<u8> = (0..DATA_BYTES).map(|i| (i / 512) as u8 + 1).collect();
            assert_eq!(guest.ask(queue, kind::WRITE, at, &data).0, OK);
            assert_eq!(guest.ask(queue, kind::FLUSH, 0, &[]).0, OK);
            assert_eq!(guest.ask(1 - queue, kind::READ, at, &vec![0; DATA_BYTES]), (OK, data));
            let segment = Guest::segment(at, 8, 1);
            assert_eq!(guest.ask(queue, kind::WRITE_ZEROES, 0, &segment).0, OK);
            assert_eq!(guest.ask(queue, kind::READ, at, &page(7)), (OK, page(0)));
            let segment = Guest::segment(at + 8, 8, 0);
            assert_eq!(guest.ask(queue, kind::DISCARD, 0, &segment).0, OK);
        }
        let (status, name) = guest.ask(0, kind::GET_ID, 0, &[9; 20]);
        assert_eq!((status, &name[..5]), (OK, &b"disk\0"[..]));
    }
}

#[test]
fn what_cannot_be_served_has_an_error_as_its_status() {
    let rig = Rig::new();
    let mut guest = rig.boot(1);
    let end = BYTES / 512;
    for (what, sector, data, status) in [
        (kind::READ, end - 7, page(0), ERROR),
        (kind::WRITE, u64::MAX, page(0), ERROR),
        (kind::WRITE, 0, vec![0; 100], ERROR),
        (kind::READ, 0, Vec::new(), ERROR),
        (kind::DISCARD, 0, Guest::segment(end, 8, 0), ERROR),
        (kind::DISCARD, 0, Guest::segment(0, 8, 1), UNKNOWN),
        (kind::WRITE_ZEROES, 0, Guest::segment(0, 8, 6), UNKNOWN),
        (kind::WRITE_ZEROES, 0, vec![0; 32], ERROR),
        (99, 0, page(0), UNKNOWN),
    ] {
        assert_eq!(guest.ask(0, what, sector, &data).0, status, "{what} at {sector}");
    }
    // Data that is not in its memory.
    let slot = guest.reserve(0);
    guest.describe_request(0, slot, (kind::READ, 0), &page(0));
    guest.describe(0, slot * 3 + 1, (1 << 40, 4096, 3, slot * 3 + 2));
    let _ = guest.is_called(0, Duration::ZERO);
    guest.offer(0, slot * 3);
    assert!(guest.is_called(0, SOON));
    assert_eq!(guest.answered(0), [(slot, ERROR)]);
    assert_eq!(guest.ask(0, kind::READ, 0, &page(1)).0, OK, "the queue continues");
}

#[test]
fn clients_that_only_read_write_nothing() {
    let rig = Rig::with(Grant::ReadOnly);
    let mut guest = rig.boot(1);
    assert_eq!(guest.ask(0, kind::WRITE, 0, &page(1)).0, ERROR);
    assert_eq!(guest.ask(0, kind::READ, 0, &page(1)), (OK, page(0)));
}

/// Address, length, flags, next.
type Descriptor = (u64, u32, u16, u16);

#[test]
fn a_queue_whose_descriptors_make_no_sense_stops_and_the_others_go_on() {
    let rig = Rig::new();
    let place = Guest::place(0, 0);
    let chains: [(&str, Vec<Descriptor>); 8] = [
        ("a loop", vec![(place, 16, 1, 0)]),
        ("a number outside", vec![(place, 16, 1, 64)]),
        ("no header", vec![(place, 15, 1, 1), (place + 16, 1, 2, 0)]),
        ("a header outside", vec![(u64::MAX - 8, 16, 1, 1), (place + 16, 1, 2, 0)]),
        ("no status", vec![(place, 16, 0, 0)]),
        ("a status outside", vec![(place, 16, 1, 1), (1 << 50, 1, 2, 0)]),
        ("an order", vec![(place, 16, 1, 1), (place + 16, 1, 3, 2), (place, 16, 0, 0)]),
        ("a table in a table", vec![(0, 16, 4, 0)]),
    ];
    for (what, descriptors) in chains {
        let mut guest = rig.boot(2);
        for (number, descriptor) in (0..).zip(descriptors) {
            guest.describe(0, number, descriptor);
        }
        guest.offer(0, 0);
        assert_eq!(guest.ask(1, kind::READ, 0, &page(1)), (OK, page(0)), "{what}");
        std::thread::sleep(Duration::from_millis(50));
        assert!(guest.answered(0).is_empty(), "{what}");
        // The queue can be stopped, and starts again after a reset.
        guest.stop(0).unwrap();
        guest.stop(1).unwrap();
    }
    let mut guest = rig.boot(1);
    guest.memory.write_obj(999_u16, GuestAddress(AVAILABLE + 2)).unwrap();
    guest.describe(0, 0, (place, 16, 1, 0));
    guest.stop(0).unwrap();
    assert_eq!(rig.boot_after(guest).ask(0, kind::READ, 0, &page(1)).0, OK);
}

impl Rig {
    /// Another guest, once the former has left.
    fn boot_after(&self, former: Guest) -> Guest {
        drop(former);
        self.boot(1)
    }
}

#[test]
fn a_second_client_is_refused_and_the_next_one_served() {
    let rig = Rig::new();
    let mut first = rig.boot(1);
    assert!(Guest::boot(&rig.path(), 1, 0).is_err());
    assert_eq!(first.ask(0, kind::WRITE, 0, &page(3)).0, OK);
    let mut second = rig.boot_after(first);
    assert_eq!(second.ask(0, kind::READ, 0, &page(0)), (OK, page(3)));
    // It connects again, and its queue continues.
    second.connect().unwrap();
    assert_eq!(second.ask(0, kind::READ, 0, &page(0)), (OK, page(3)));
}

#[test]
fn a_door_that_closes_answers_what_it_took_and_the_guest_connects_to_the_next() {
    let mut rig = Rig::new();
    let mut guest = rig.boot(1);
    for slot in 0..8 {
        guest.submit(0, kind::WRITE, slot * 8, &page(slot as u8 + 1)).unwrap();
    }
    rig.door.take().unwrap().close(SOON);
    assert!(!rig.path().exists());
    rig.open(Grant::Full);
    guest.connect().unwrap();
    let (begun, mut answered) = (Instant::now(), 0);
    while answered < 8 {
        for (_, status) in guest.answered(0) {
            assert_eq!(status, OK);
            answered += 1;
        }
        assert!(begun.elapsed() < SOON);
    }
    for slot in 0..8 {
        assert_eq!(guest.ask(0, kind::READ, slot * 8, &page(0)).1, page(slot as u8 + 1));
    }
}

/// Memory dies with its server, so that a guest that continues may have lost what was answered.
#[test]
fn a_guest_whose_answered_writes_may_be_lost_sees_errors_until_it_resets_the_disk() {
    let mut rig = Rig::over(tempfile::tempdir().unwrap(), Device::mem(BYTES), Grant::Full);
    let mut guest = rig.boot(2);
    assert_eq!(guest.ask(0, kind::WRITE, 0, &page(1)).0, OK);
    // The same server knows what it answered.
    guest.connect().unwrap();
    assert_eq!(guest.ask(0, kind::READ, 0, &page(0)), (OK, page(1)));
    rig.door.take().unwrap().close(SOON);
    rig.open(Grant::Full);
    for _ in 0..2 {
        guest.connect().unwrap();
        for queue in [0, 1] {
            assert_eq!(guest.ask(queue, kind::READ, 0, &page(0)).0, ERROR);
        }
    }
    let mut guest = rig.boot_after(guest);
    assert_eq!(guest.ask(0, kind::READ, 0, &page(0)).0, OK);
}

#[test]
fn the_configuration_can_be_read_and_its_cache_mode_written() {
    let rig = Rig::new();
    let mut guest = rig.boot(1);
    let client = guest.client.as_mut().unwrap();
    let flags = VhostUserConfigFlags::WRITABLE;
    let (_, config) = client.get_config(0, 60, flags, &[0; 60]).unwrap();
    assert_eq!(config[..8], (BYTES / 512).to_le_bytes());
    client.set_config(32, flags, &[0]).unwrap();
    assert_eq!(client.get_config(32, 1, flags, &[0]).unwrap().1, [0]);
    assert_eq!(guest.ask(0, kind::WRITE, 0, &page(1)).0, OK);
}

/// Messages of every kind with random bodies, some of them cut.
#[test]
fn a_client_that_sends_anything_ends_only_its_own_connection() {
    let rig = Rig::new();
    let mut random = Pcg64::seed_from_u64(1);
    for round in 0..400_u32 {
        let mut client = UnixStream::connect(rig.path()).unwrap();
        client.set_read_timeout(Some(SOON)).unwrap();
        for _ in 0..random.random_range(1..6) {
            let bodies = [0, 8, 12, 20, 24, 40, 100];
            let size: u32 = bodies[random.random_range(0..bodies.len())];
            let flags = if random.random_range(0..4) == 0 { random.random() } else { 1_u32 };
            let header = [random.random_range(0..48_u32), flags, size];
            let mut message: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
            // Small numbers reach further than random ones.
            message.extend(
                (0..size).map(|_| random.random_range(0..4_u8) * random.random_range(0..2)),
            );
            message.truncate(random.random_range(0..message.len() * 4));
            // The server may have disconnected it.
            let _ = client.write_all(&message);
        }
        let _ = client.shutdown(Shutdown::Write);
        let end = std::io::copy(&mut client, &mut std::io::sink());
        assert!(
            !matches!(&end, Err(e) if e.kind() == ErrorKind::WouldBlock),
            "round {round}: {end:?}"
        );
    }
    assert_eq!(rig.boot(1).ask(0, kind::READ, 0, &page(1)), (OK, page(0)));
}

#[test]
fn memory_that_its_file_does_not_have_is_refused() {
    let rig = Rig::new();
    let mut guest = rig.boot(1);
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    let region = vhost::VhostUserMemoryRegionInfo {
        guest_phys_addr: 0,
        memory_size: 8192,
        userspace_addr: 1 << 40,
        mmap_offset: 0,
        mmap_handle: std::os::fd::AsRawFd::as_raw_fd(&file),
    };
    let client = guest.client.as_mut().unwrap();
    assert!(vhost::VhostBackend::set_mem_table(client, &[region]).is_err());
    assert_eq!(rig.boot_after(guest).ask(0, kind::READ, 0, &page(0)).0, OK);
}
