// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every preset whose cache never holds the only copy of data, through every door and over every kind of origin. The
//! flash device fails, hangs, vanishes and is detached under verified load: no client sees an error or a wrong byte.
//! Presets with a journal are excluded; page logs write through here. `volume_faults.rs` tests each fault in detail.
#![allow(clippy::unwrap_used)] // a test that cannot continue fails

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use larder_core::config::{Durability, Preset, preset, presets};
use larder_core::request::Errno;
use larder_front::listen::{ListenSpec, Listener};
use larder_io::{Access, DevSpec, Device, Target};
use larder_testkit::load::{PATIENCE, eventually};
use larder_testkit::rig::{BYTES, Front, Rig, Setup, listen};
use larder_volume::{CacheConfig, Volume};

/// Every preset on two workers, with a unit size that suits the rig's flash.
fn setups(front: Front) -> impl Iterator<Item = Setup> {
    let unjournaled = |p: &&Preset| p.choices().durability != Durability::Journal;
    presets().filter(unjournaled).map(move |found| Setup {
        workers: 2,
        in_flight: 16,
        unit: if found.choices().unit_bytes == 4096 { 4096 } else { 64 << 10 },
        preset: found.name,
        front,
        flash_timeout: Duration::from_millis(50),
        ..Setup::default()
    })
}

/// Every fault of flash, one after the other.
fn everything(mut rig: Rig) {
    rig.hits();
    for target in [Target::Reads, Target::Writes] {
        let before = rig.stats().counters.flash_errors;
        rig.flash_fault.fail_next(target, 3, Errno::EIO);
        eventually("errors are counted", || rig.stats().counters.flash_errors >= before + 3);
    }
    rig.flash_fault.hang(Target::All);
    rig.await_state("suspended");
    rig.load.progress(5);
    rig.flash_fault.release();
    rig.await_state("caching");
    rig.hits();
    rig.flash_fault.fail(Target::All, Errno::EIO);
    rig.await_state("failed");
    eventually("the device is released", || rig.status().flash.is_none());
    rig.load.progress(5);
    rig.attach_new("second").unwrap();
    rig.hits();
    rig.flash_fault.vanish();
    rig.await_state("failed");
    eventually("the device is released", || rig.status().flash.is_none());
    rig.load.progress(5);
    rig.attach_new("third").unwrap();
    rig.hits();
    rig.volume.cache().detach(PATIENCE, |_| {}).unwrap();
    rig.load.progress(5);
    rig.attach_new("fourth").unwrap();
    rig.hits();
    rig.finish();
}

#[test]
fn through_a_unix_socket() {
    for (seed, setup) in (0..).zip(setups(Front::Unix)) {
        everything(Rig::start_cold(setup, 300 + seed));
    }
}

#[test]
fn through_tcp_on_files() {
    for (seed, setup) in (0..).zip(setups(Front::Tcp)) {
        everything(Rig::start_cold(Setup { files: true, ..setup }, 310 + seed));
    }
}

#[test]
fn through_a_file() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return println!("skipped: needs root and /dev/fuse");
    }
    for (seed, setup) in (0..).zip(setups(Front::Fuse)) {
        everything(Rig::start_cold(setup, 320 + seed));
    }
}

#[test]
fn over_a_slow_origin() {
    for (seed, setup) in (0..).zip(setups(Front::Unix)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("origin");
        std::fs::File::create_new(&path).unwrap().set_len(BYTES).unwrap();
        let spec = format!("slow+{}?profile=ssd-s3500", path.display());
        let spec: DevSpec = spec.parse().unwrap();
        let origin = Device::open(&spec, Access::ReadWrite).unwrap();
        everything(Rig::over(origin, dir, setup, 330 + seed));
    }
}

/// A volume whose export is the origin of another volume.
fn far(dir: &Path) -> (Arc<Volume>, Listener, Device) {
    let config = CacheConfig::of(Device::mem(BYTES), preset("sce").unwrap().choices(), 1);
    let volume = Volume::start(config).unwrap();
    let (listener, uri) = listen(&volume, &ListenSpec::Unix(dir.join("far")));
    let origin = Device::open(&uri.to_string().parse().unwrap(), Access::ReadWrite).unwrap();
    (volume, listener, origin)
}

#[test]
fn over_an_export() {
    for (seed, setup) in (0..).zip(setups(Front::Unix)) {
        let dir = tempfile::tempdir().unwrap();
        let (volume, listener, origin) = far(dir.path());
        everything(Rig::over(origin, dir, setup, 340 + seed));
        drop(listener);
        volume.cache().stop(PATIENCE, |_| {}, || false).unwrap();
    }
}
