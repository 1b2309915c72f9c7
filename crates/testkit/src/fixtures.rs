// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flash images that are never changed: `fixtures/VERSION/NAME.zst` among the tests of `larder-core`, beside
//! `NAME.txt`, which describes the image.

use std::path::PathBuf;

fn path(version: &str, name: &str) -> PathBuf {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/tests/fixtures");
    PathBuf::from(fixtures).join(version).join(name)
}

/// An image and its description.
#[must_use]
pub fn kept(version: &str, name: &str) -> (Vec<u8>, String) {
    let packed = std::fs::read(path(version, &format!("{name}.zst"))).unwrap();
    let text = std::fs::read_to_string(path(version, &format!("{name}.txt"))).unwrap();
    (zstd::decode_all(&packed[..]).unwrap(), text)
}

/// Writes an image that is missing; never changes an existing one.
pub fn keep(version: &str, name: &str, make: impl FnOnce() -> (Vec<u8>, String)) {
    if path(version, &format!("{name}.zst")).exists() {
        return;
    }
    let (bytes, text) = make();
    let packed = zstd::encode_all(&bytes[..], 19).unwrap();
    std::fs::create_dir_all(path(version, "")).unwrap();
    std::fs::write(path(version, &format!("{name}.zst")), packed).unwrap();
    std::fs::write(path(version, &format!("{name}.txt")), text).unwrap();
}
