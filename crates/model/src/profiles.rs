// SPDX-License-Identifier: MIT OR Apache-2.0
//! The built-in devices: their names, and their files in `devices/`.
//!
//! Scripts rely on these names (`slow+PATH?profile=NAME`). The rated figures of a file are for documentation and for
//! sizing, and `tests/calibration.rs` compares the models with them.
//!
//! Why not a flag for every parameter: results with a named, documented device can be compared between two people, and
//! a user who needs another device writes a file.

use std::fmt;
use std::sync::LazyLock;

use crate::Model;
use crate::description::{Description, DeviceSpec, Rated};

macro_rules! built_in {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../devices/", $name, ".toml")))),*]
    };
}

/// Names and files: first the general devices, then those of the papers.
static FILES: [(&str, &str); 17] = built_in![
    "hdd-7200" "hdd-15k" "san-1g" "array-16" "cloud" "ssd-840pro" "ssd-850evo" "ssd-s3500"
    "ssd-p3700" "none" "ssd-840pro-ftl" "ssd-s3500-ftl" "ssd-prwc" "hdd-prwc" "holland-ram"
    "holland-flash" "holland-filer"
];

/// The prefix of arrays, of which there is one for each number of disks up to that of the file.
const ARRAY: &str = "array-";
const ARRAY_DISKS: u64 = 16;

/// A profile, for documentation and sizing.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileInfo {
    /// The name.
    pub name: &'static str,
    /// One line on what it models.
    pub about: String,
    /// The source of its figures.
    pub source: String,
    /// Its performance.
    pub rated: Rated,
}

/// A name that is not among [`profiles`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownProfile {
    name: String,
}

impl fmt::Display for UnknownProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = FILES.map(|(name, _)| name).join(", ");
        write!(f, "unknown device profile {:?}; accepted: {names}, ", self.name)?;
        write!(f, "and {ARRAY}1 to {ARRAY}{}", ARRAY_DISKS - 1)
    }
}

impl std::error::Error for UnknownProfile {}

/// Whether a profile is the path of a device file, and no name: it contains a `/` or ends in `.toml`.
#[must_use]
pub fn is_path(profile: &str) -> bool {
    profile.contains('/') || profile.ends_with(".toml")
}

/// The description of a built-in device: its file, or `array-N` with another number of disks.
///
/// # Errors
/// The profile does not exist; the message lists the existing ones.
pub fn described(name: &str) -> Result<Description, UnknownProfile> {
    if let Some((_, text)) = FILES.iter().find(|(known, _)| *known == name) {
        return Ok(built_in(name, text));
    }
    smaller_array(name).ok_or_else(|| UnknownProfile { name: name.to_owned() })
}

/// Builds the model of a built-in device.
///
/// The seed determines the random properties (the angles of platters, a filer's slow reads). The capacity matters to
/// disks: seeks are spread over it, so a small file behaves like a small disk of the same average seek, as long as it
/// is much larger than a track (1.3 MB). A drive with a flash translation layer needs memory in proportion to it (see
/// `ftl/`).
///
/// # Errors
/// The profile does not exist; the message lists the existing ones.
pub fn profile(
    name: &str,
    capacity_bytes: u64,
    seed: u64,
) -> Result<Box<dyn Model>, UnknownProfile> {
    Ok(described(name)?.build(capacity_bytes, seed))
}

/// All profiles with files, the general ones first.
#[must_use]
pub fn profiles() -> &'static [ProfileInfo] {
    static ALL: LazyLock<Vec<ProfileInfo>> = LazyLock::new(|| {
        let info = |(name, text): &(&'static str, &str)| {
            let Description { about, source, rated, .. } = built_in(name, text);
            ProfileInfo { name, about, source, rated }
        };
        FILES.iter().map(info).collect()
    });
    &ALL
}

/// Parses a file that is compiled in; a test parses all of them.
fn built_in(name: &str, text: &str) -> Description {
    match Description::parse(name, text) {
        Ok(description) => description,
        Err(error) => unreachable!("a device file that the tests have read: {error}"),
    }
}

/// `array-N`: fewer disks behind the same controller with the same cache.
fn smaller_array(name: &str) -> Option<Description> {
    let disks = (1..ARRAY_DISKS).find(|disks| name == format!("{ARRAY}{disks}"))?;
    let mut description = described(&format!("{ARRAY}{ARRAY_DISKS}")).ok()?;
    description.about = format!("array-{ARRAY_DISKS} with {disks} of its disks");
    description.rated = Rated::default();
    if let DeviceSpec::Array(array) = &mut description.device {
        *array = array.with_disks(disks);
    }
    Some(description)
}
