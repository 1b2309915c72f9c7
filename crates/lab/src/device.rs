// SPDX-License-Identifier: MIT OR Apache-2.0
//! The devices of a scenario: a built-in one by its name, or one that the scenario describes.
//!
//! ```toml
//! origin = "cloud"          # a built-in device
//! [flash]                   # or a table with the keys of a device file, see docs/simulation.md
//! about = "a drive of ours"
//! source = "fio, read and write for an hour"
//! [flash.device.fixed]
//! read_ns = 88_000
//! write_ns = 21_000
//! ```
//!
//! Invariant: a scenario contains its devices, and names no file of them. [`setting`] reads the file that a flag names. So a point
//! that is resumed, or runs on another machine, has the same device, and a grid may vary the keys of a device.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use larder_core::exec::MILLISECOND;
use larder_model::{Description, Model, UnknownProfile, described, is_path};
use larder_sim::device::SimDevice;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::{Table, Value};

/// The longest description of a device, in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// A device; clones share the description.
#[derive(Clone, Debug, PartialEq)]
pub struct Device(Arc<Description>);

impl Device {
    /// A built-in device.
    ///
    /// # Errors
    /// There is none of this name; the message lists the names.
    pub fn named(name: &str) -> Result<Self, UnknownProfile> {
        Ok(Self(Arc::new(described(name)?)))
    }

    /// Its model, see [`Description::build`].
    #[must_use]
    pub fn model(&self, bytes: u64, seed: u64) -> Box<dyn Model> {
        self.0.build(bytes, seed)
    }

    /// It without bytes.
    #[must_use]
    pub fn without_bytes(&self, bytes: u64, seed: u64) -> SimDevice {
        SimDevice::new(self.model(bytes, seed), None, seed, MILLISECOND)
    }
}

impl<'de> Deserialize<'de> for Device {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NameOrTable)
    }
}

struct NameOrTable;

impl<'de> Visitor<'de> for NameOrTable {
    type Value = Device;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a built-in device, or a table with the keys of a device file")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Device, E> {
        if is_path(name) {
            return Err(E::custom(format!(
                "device {name:?}: a scenario names no file; accepted: a built-in device, or a table with the keys of the file"
            )));
        }
        Device::named(name).map_err(|error| {
            E::custom(format!("{error}; or a table with the keys of a device file"))
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Device, A::Error> {
        let description = Description::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Device(Arc::new(description)))
    }
}

/// The setting `origin` or `flash` for a profile: the name of a built-in device, or the path of a device file, which contains a
/// `/` or ends in `.toml`.
///
/// # Errors
/// The file cannot be read, or does not describe a device.
pub fn setting(profile: &str) -> Result<Value> {
    if !is_path(profile) {
        described(profile).map_err(|error| {
            anyhow!("{error}; or the path of a device file, which contains a / or ends in .toml")
        })?;
        return Ok(profile.into());
    }
    let text = read(profile).map_err(|error| {
        anyhow!("{profile}: cannot be read: {error}; accepted: a device file in TOML")
    })?;
    Description::parse(profile, &text)?;
    Ok(Value::Table(text.parse::<Table>()?))
}

/// Reads a file up to a length, because the path may be a device without an end.
fn read(path: &str) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(std::io::Error::other("it is longer than 1 MiB"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(text: &str) -> Result<Device, String> {
        #[derive(Deserialize)]
        struct Scenario {
            origin: Device,
        }
        let table: Table = text.parse().unwrap();
        let scenario: Result<Scenario, _> = table.try_into();
        scenario.map(|s| s.origin).map_err(|e| e.to_string().trim().replace('\n', " "))
    }

    const FIXED: &str =
        "about = 'a'\nsource = 'b'\n[device.fixed]\nread_ns = 88_000\nwrite_ns = 21_000\n";

    #[test]
    fn a_device_is_a_name_or_a_table() {
        assert_eq!(device("origin = 'cloud'").unwrap(), Device::named("cloud").unwrap());
        let inline = "origin = { about = 'a', source = 'b', device = { fixed = { read_ns = 88_000, write_ns = 21_000 } } }";
        let parsed = Description::parse("x", FIXED).unwrap();
        assert_eq!(device(inline).unwrap(), Device(Arc::new(parsed)));
    }

    #[test]
    fn what_is_no_device_names_what_is_accepted() {
        for (text, line) in [
            ("origin = 'clowd'", "unknown device profile \"clowd\"; accepted: hdd-7200"),
            (
                "origin = './mine.toml'",
                "device \"./mine.toml\": a scenario names no file; accepted",
            ),
            ("origin = 3", "expected the name of a built-in device, or a table"),
            (
                "origin = { about = 'a', source = 'b', device = { fixed = { read_ns = 1 } } }",
                "missing field `write_ns`",
            ),
            ("origin = { about = 'a', source = 'b', devise = 1 }", "unknown field `devise`"),
        ] {
            let error = device(text).unwrap_err();
            assert!(error.contains(line) && error.contains("origin"), "{error}");
        }
    }

    #[test]
    fn a_flag_names_a_device_or_a_file() {
        assert_eq!(setting("cloud").unwrap(), Value::from("cloud"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mine.toml");
        let path = path.to_str().unwrap();
        std::fs::write(path, FIXED).unwrap();
        let table = setting(path).unwrap();
        assert_eq!(table["device"]["fixed"]["read_ns"].as_integer(), Some(88_000));

        std::fs::write(path, FIXED.replace("88_000", "'fast'")).unwrap();
        let error = setting(path).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{path}:4: read_ns: ")), "{error}");
        let error = setting("./none.toml").unwrap_err().to_string();
        assert!(error.contains("./none.toml: cannot be read: No such file"), "{error}");
        let error = setting("/dev/zero").unwrap_err().to_string();
        assert!(error.contains("longer than 1 MiB"), "{error}");
        let error = setting("clowd").unwrap_err().to_string();
        assert!(
            error.contains("accepted: hdd-7200") && error.ends_with("ends in .toml"),
            "{error}"
        );
    }
}
