// SPDX-License-Identifier: MIT OR Apache-2.0
//! Block devices, on a loop device; without permission to create one the tests are skipped.
#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod common;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{driver_for, file_in, io, open, pattern, read, run, write};
use larder_core::exec::IoKind;
use larder_core::request::Errno;
use larder_io::{Access, DevSpec, Device, OpenError};

const BYTES: u64 = 16 << 20;

struct Loop {
    path: PathBuf,
    file: tempfile::NamedTempFile,
}

impl Loop {
    fn new(sector: &str) -> Option<Self> {
        let file = file_in(Path::new("/tmp"), BYTES);
        let made = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", sector])
            .arg(file.path())
            .output();
        match made {
            Ok(out) if out.status.success() => {
                let path = String::from_utf8(out.stdout).unwrap().trim().into();
                Some(Self { path, file })
            }
            other => {
                eprintln!("skipped, no loop device: {other:?}");
                None
            }
        }
    }
}

impl Loop {
    /// Allocated blocks of the backing file.
    fn blocks(&self) -> u64 {
        self.file.as_file().metadata().unwrap().blocks()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

#[test]
fn a_block_device_supports_all_operations_of_a_file() {
    for sector in ["512", "4096"] {
        let Some(disk) = Loop::new(sector) else { return };
        let device = open(&disk.path);
        let geometry = device.geometry();
        assert_eq!((geometry.bytes, geometry.block_bytes.to_string()), (BYTES, sector.into()));
        assert!(device.direct() && geometry.can_trim);
        assert_eq!(device.identity().unwrap().unwrap().bytes, BYTES);
        let mut driver = driver_for(&device);
        for fua in [false, true] {
            let data = pattern(9, 2 << 20);
            write(&mut driver, 1 << 20, &data, fua).unwrap();
            assert!(read(&mut driver, 1 << 20, 2 << 20).unwrap() == data);
            for kind in [
                IoKind::Trim { fua },
                IoKind::Zero { fua, may_unmap: true },
                IoKind::Zero { fua, may_unmap: false },
            ] {
                write(&mut driver, 0, &[7; 4 << 20], false).unwrap();
                let full = disk.blocks();
                run(&mut driver, io(kind, 8192, 3 << 20)).unwrap();
                let holes = !matches!(kind, IoKind::Zero { may_unmap: false, .. });
                assert!(!holes || disk.blocks() < full, "{kind:?} did not free the space");
                let back = read(&mut driver, 0, 4 << 20).unwrap();
                let end = 8192 + (3 << 20);
                assert!(back[8192..end].iter().all(|b| *b == 0), "{kind:?}");
                assert!(back[..8192].iter().chain(&back[end..]).all(|b| *b == 7), "{kind:?}");
            }
            run(&mut driver, io(IoKind::Flush, 0, 0)).unwrap();
        }
        let half = io(IoKind::Read, 0, u64::from(geometry.block_bytes) / 2);
        assert_eq!(run(&mut driver, half).unwrap_err(), Errno::EINVAL);
    }
}

#[test]
fn a_block_device_is_opened_for_writing_once() {
    let Some(disk) = Loop::new("512") else { return };
    let spec = DevSpec::Path(disk.path.clone());
    let first = Device::open(&spec, Access::ReadWrite).unwrap();
    let again = Device::open(&spec, Access::ReadWrite).unwrap_err();
    assert!(matches!(again, OpenError::InUse { .. }), "{again}");
    Device::open(&spec, Access::ReadOnly).unwrap();
    drop(first);
    Device::open(&spec, Access::ReadWrite).unwrap();
}
