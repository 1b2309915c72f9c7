// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device for cached data gives no access to other users; every other file is refused and stays as it was.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use larder_io::{Access, DevSpec, Device, OpenError};

fn mode(path: &Path, mode: u32) {
    set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn make(dir: &Path, name: &str, bits: u32) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, [7; 8192]).unwrap();
    mode(&path, bits);
    path
}

fn open(path: &Path) -> Result<Device, OpenError> {
    Device::open_private(&DevSpec::Path(path.to_owned()))
}

#[track_caller]
fn refused(path: &Path, word: &str) {
    let error = open(path).unwrap_err();
    assert!(matches!(error, OpenError::NotPrivate { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(word) && text.contains("accepted"), "{text}");
    assert!(Device::open(&DevSpec::Path(path.to_owned()), Access::ReadWrite).is_ok());
}

#[test]
fn a_file_that_other_users_can_read_or_write_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    open(&make(dir.path(), "own", 0o600)).unwrap();
    for bits in [0o640, 0o604, 0o620, 0o602, 0o666] {
        refused(&make(dir.path(), "open", bits), &format!("{bits:04o}"));
    }
    let model = "slow+".to_owned() + dir.path().join("open").to_str().unwrap();
    let spec: DevSpec = (model + "?profile=hdd-7200").parse().unwrap();
    assert!(matches!(Device::open_private(&spec), Err(OpenError::NotPrivate { .. })));
}

#[test]
fn a_file_that_other_users_can_exchange_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let shared = dir.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let path = make(&shared, "flash", 0o600);
    mode(&shared, 0o777);
    refused(&path, "shared");
    mode(&shared, 0o1777);
    open(&path).unwrap();
}

#[test]
fn own_links_are_followed() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), "own", 0o600);
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("own", &link).unwrap();
    open(&link).unwrap();
    make(dir.path(), "own", 0o644);
    refused(&link, "0644");
    assert!(matches!(open(&dir.path().join("none")), Err(OpenError::NotFound { .. })));
}
