// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listeners for clients that only read: no client of theirs changes the volume, and a backup leaves the cache as it is.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;

use larder_nbd::client::Client;
use larder_nbd::uri::{Address, Uri};
use larder_testkit::command::{connect, make_initial};
use larder_testkit::fuse::can_mount;
use larder_testkit::load::{eventually, initial};
use larder_testkit::place::Place;
use larder_testkit::server::Server;

const BYTES: u64 = 4 << 20;

fn at(place: &Place, socket: &str) -> Client {
    let address = Address::Unix(place.path(socket));
    connect(&Uri { address, export: String::new(), tls: None })
}

fn read_all(client: &mut Client) -> Vec<u8> {
    let mut all = vec![0; BYTES as usize];
    client.read_at(0, &mut all).unwrap();
    all
}

/// Whether flash answers a read of every page of the volume.
fn all_hit(place: &Place, client: &mut Client) -> bool {
    let before = place.stat("read_hits");
    let mut bytes = [0; 4096];
    (0..BYTES / 4096).for_each(|page| client.read_at(page * 4096, &mut bytes).unwrap());
    place.stat("read_hits") - before == BYTES / 4096
}

#[test]
fn clients_that_only_read_change_nothing() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let ro = format!("ro:nbd+unix:{}", place.word("ro"));
    let backup = format!("backup:nbd+unix:{}", place.word("backup"));
    let listen = ["--listen", &ro, "--listen", &backup];
    let server = Server::start(&place.serve_cached(4, &listen));
    let mut writer = place.client();
    assert!(!writer.info().read_only());
    for socket in ["ro", "backup"] {
        let mut client = at(&place, socket);
        assert!(client.info().read_only(), "{socket}");
        assert!(client.write_at(0, &[7; 4096], false).is_err(), "{socket}");
        // The connection stays.
        assert!(read_all(&mut client) == initial(0, BYTES), "{socket}");
    }
    writer.write_at(4096, &[9; 4096], false).unwrap();
    for socket in ["ro", "backup"] {
        let mut bytes = [0; 4096];
        at(&place, socket).read_at(4096, &mut bytes).unwrap();
        assert_eq!(bytes, [9; 4096], "{socket}");
    }
    drop(writer);
    server.stop();
}

#[test]
fn a_backup_admits_nothing_and_is_served_from_flash_where_it_can() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let backup = format!("backup:nbd+unix:{}", place.word("backup"));
    let server = Server::start(&place.serve_cached(8, &["--listen", &backup]));
    let mut client = at(&place, "backup");
    for _ in 0..3 {
        assert!(read_all(&mut client) == initial(0, BYTES));
    }
    let stats = ["populations", "population_bytes", "units_used", "flash_write_bytes"];
    for key in stats {
        assert_eq!(place.stat(key), 0, "{key}");
    }
    // Ordinary reads admit it, so that the backup hits.
    let mut reader = place.client();
    eventually("ordinary reads hit", || all_hit(&place, &mut reader));
    eventually("the backup hits", || all_hit(&place, &mut client));
    drop((client, reader));
    server.stop();
}

#[test]
fn a_file_that_is_only_read_is_mounted_so() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let file = format!("backup:fuse:{}", place.word("vol"));
    let server = Server::start(&place.serve_cached(4, &["--listen", &file]));
    let refused = std::fs::File::options().write(true).open(place.path("vol")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    let opened = std::fs::File::open(place.path("vol")).unwrap();
    let mut all = vec![0; BYTES as usize];
    opened.read_exact_at(&mut all, 0).unwrap();
    assert!(all == initial(0, BYTES));
    assert_eq!(place.stat("populations"), 0);
    // Root can make the mount writable; the server still refuses.
    rustix::mount::mount_remount(place.path("vol"), rustix::mount::MountFlags::empty(), c"")
        .unwrap();
    let writer = std::fs::File::options().write(true).open(place.path("vol")).unwrap();
    assert_eq!(writer.write_at(&[7; 4096], 0).unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    drop((opened, writer));
    server.stop();
    assert!(std::fs::read(place.path("origin")).unwrap() == initial(0, BYTES));
}
