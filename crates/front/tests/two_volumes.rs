// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two volumes in one process, one with units and one with a page log: when a worker of one dies, the other keeps
//! serving, and clients of the dead one get errors instead of waiting indefinitely.
#![allow(clippy::unwrap_used)] // a test that cannot continue fails

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_core::config::{Durability, preset};
use larder_core::format::Wishes;
use larder_core::request::Kind;
use larder_core::shape::Shape;
use larder_front::door::{Door, Openers};
use larder_front::fuse::mount::Terms;
use larder_front::fuse::mounter::{Direct, Mounter};
use larder_front::grant::Grant;
use larder_front::listen::{Listen, ListenSpec, Listener};
use larder_front::nbd::export::{Export, Exports};
use larder_front::socket::Rights;
use larder_io::{Device, Fault};
use larder_nbd::client::{Client, Options};
use larder_nbd::uri::{Address, Uri};
use larder_testkit::load::eventually;
use larder_volume::{CacheConfig, FlashDevice, Volume};

const PATIENCE: Duration = Duration::from_secs(30);

fn volume(name: &str) -> Arc<Volume> {
    volume_on(name, &Fault::new())
}

fn volume_on(name: &str, fault: &Fault) -> Arc<Volume> {
    let mut choices = preset(if name == "a" { "sce" } else { "face" }).unwrap().choices();
    if choices.log().is_none() {
        choices.durability = Durability::Volatile;
    }
    let flash = Device::mem(16 << 20).with_fault(fault);
    let shape = Shape::new(16 << 20, choices.unit_bytes, 2);
    let flash =
        FlashDevice::prepare(flash, (None, None), shape, &choices, Wishes::default()).unwrap();
    let config = CacheConfig::of(Device::mem(16 << 20), choices, 2).named(name);
    let volume = Volume::start(config).unwrap();
    volume.cache().attach(flash).unwrap();
    volume
}

#[test]
fn a_lost_worker_fails_only_its_own_volume() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nbd");
    let volumes = Arc::new(vec![volume("a"), volume("b")]);
    let exports = Exports::new(volumes.iter().map(|v| Export::of(v)).collect()).unwrap();
    let spec = ListenSpec::Unix(path.clone());
    let (shared, exports) = (Arc::clone(&volumes), Arc::new(exports));
    let _listener = Listener::start(&spec, shared, exports).unwrap();
    let uri = |name: &str| Uri {
        address: Address::Unix(path.clone()),
        export: name.to_owned(),
        tls: None,
    };
    let options = Options { io_timeout: Some(PATIENCE), ..Options::default() };
    let mut a: Vec<Client> =
        (0..2).map(|_| Client::connect(&uri("a"), &options).unwrap()).collect();
    let mut b = Client::connect(&uri("b"), &options).unwrap();
    a[0].write_at(0, &[0xaa; 4096], true).unwrap();
    b.write_at(0, &[0xbb; 4096], true).unwrap();

    volumes[0].call(Kind::Flush, 0, 0, Vec::new(), |_| panic!("a worker of this test dies"));
    eventually("the loss is known", || volumes[0].cache().has_lost_a_worker());
    let begin = Instant::now();
    let error = volumes[0].stats().unwrap_err().to_string();
    assert!(error.contains("lost a worker") && begin.elapsed() < Duration::from_secs(5), "{error}");
    let late = Client::connect(&uri("a"), &options);
    let answered = late.is_ok_and(|mut late| late.read_at(0, &mut [0; 4096]).is_ok());
    assert!(!answered, "a lost volume serves a new client");
    let stopped = volumes[0].cache().stop(Duration::ZERO, |_| (), || true);
    drop(stopped);
    for client in &mut a {
        let mut bytes = [0; 4096];
        assert!(client.read_at(8 << 20, &mut bytes).is_err(), "a worker answered");
    }
    let mut bytes = [0; 4096];
    b.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0xbb; 4096]);
    Client::connect(&uri("b"), &options).unwrap().write_at(4096, &bytes, false).unwrap();
    assert_eq!(volumes[1].stats().unwrap().state, "caching");
    volumes[1].cache().stop(PATIENCE, |_| (), || false).unwrap();
}

/// Needs root and `/dev/fuse`; skipped without them.
#[test]
fn users_of_a_lost_volumes_file_get_an_error() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return println!("skipped: needs root and /dev/fuse");
    }
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        let volumes = Arc::new(vec![volume(name)]);
        let exports = Exports::new(volumes.iter().map(|v| Export::of(v)).collect()).unwrap();
        let path = dir.path().join(name);
        let listen = Listen { grant: Grant::Full, spec: ListenSpec::Fuse(path.clone()) };
        let mounter: Arc<dyn Mounter> = Arc::new(Direct::new([(path.clone(), Terms::default())]));
        let openers = Openers { mounter, ublk: None };
        let (rights, exports) = (Rights::default(), Arc::new(exports));
        let door =
            Door::open(&listen, Arc::clone(&volumes), exports, None, rights, &openers).unwrap();
        (Arc::clone(&volumes[0]), door, File::options().read(true).write(true).open(path).unwrap())
    };
    let ((a, a_door, a_file), (b, b_door, b_file)) = (open("a"), open("b"));
    b_file.write_all_at(&[0xbb; 4096], 0).unwrap();
    a.call(Kind::Flush, 0, 0, Vec::new(), |_| panic!("a worker of this test dies"));
    eventually("the loss is known", || a.cache().has_lost_a_worker());
    // Units of the lost worker and of the other one. The readers are processes, because a thread that waits for this
    // process would keep it from ending.
    let mut readers: Vec<_> = (0..4)
        .map(|unit| {
            let mut file = File::open(dir.path().join("a")).unwrap();
            file.seek(SeekFrom::Start(unit << 20)).unwrap();
            let mut head = Command::new("head");
            let head = head.args(["-c", "4096"]).stdin(file);
            head.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    std::thread::sleep(Duration::from_millis(100));
    drop(a_door);
    drop(a.cache().stop(Duration::ZERO, |_| (), || true));
    eventually("no reader waits", || readers.iter_mut().all(|r| r.try_wait().unwrap().is_some()));
    assert!(readers.iter_mut().any(|r| !r.wait().unwrap().success()), "all were answered");
    assert!(a_file.read_at(&mut [0; 4096], 0).is_err(), "a worker answered");
    let mut bytes = [0; 4096];
    b_file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [0xbb; 4096]);
    drop(b_file);
    Door::close(vec![b_door], PATIENCE, || false);
    b.cache().stop(PATIENCE, |_| (), || false).unwrap();
    assert!(!dir.path().join("a").exists() && !dir.path().join("b").exists());
}

#[test]
fn a_lost_flash_fails_only_for_its_own_volume() {
    let fault = Fault::new();
    let (a, b) = (volume_on("a", &fault), volume("b"));
    fault.vanish();
    let (done, is_done) = std::sync::mpsc::channel();
    eventually("the flash has failed", || {
        let done = done.clone();
        a.call(Kind::Read, 0, 4096, Vec::new(), move |result| {
            done.send(result.is_ok()).unwrap();
        });
        assert!(is_done.recv_timeout(PATIENCE).unwrap(), "no reader sees an error");
        a.stats().unwrap().state == "failed"
    });
    let advice = a.status().unwrap().advice.unwrap();
    assert!(advice.contains("nothing is lost"), "{advice}");
    let alarm = a.status().unwrap().alarm.unwrap();
    assert!(alarm.contains("mem:16MiB"), "it names the device: {alarm}");
    let status = b.status().unwrap();
    assert_eq!((status.state, status.alarm), ("caching", None));
    for volume in [a, b] {
        volume.cache().stop(PATIENCE, |_| (), || false).unwrap();
    }
}
