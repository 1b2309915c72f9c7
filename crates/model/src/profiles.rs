// SPDX-License-Identifier: MIT OR Apache-2.0
//! The named devices: which there are, and their files in `devices/`.
//!
//! A name here is part of the surface that scripts rely on (`slow+PATH?profile=NAME`). The figures
//! rated in a file are for docs and for sizing, and `tests/calibration.rs` holds the models to them.
//! Why not let users set every constant by flag: a name with documented figures can be compared
//! between two people's results, and whoever needs another device writes a file.

use std::fmt;
use std::sync::LazyLock;

use crate::Model;
use crate::description::{Description, DeviceSpec, Rated};

macro_rules! built_in {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../devices/", $name, ".toml")))),*]
    };
}

/// Names and files: first those of the contract, then the papers'.
static FILES: [(&str, &str); 17] = built_in![
    "hdd-7200" "hdd-15k" "san-1g" "array-16" "cloud" "ssd-840pro" "ssd-850evo" "ssd-s3500"
    "ssd-p3700" "none" "ssd-840pro-ftl" "ssd-s3500-ftl" "ssd-prwc" "hdd-prwc" "holland-ram"
    "holland-flash" "holland-filer"
];

/// The array of which there is one of each number of disks, up to that of its file.
const ARRAY: &str = "array-";
const ARRAY_DISKS: u64 = 16;

/// A profile, for docs and sizing.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileInfo {
    /// Its name.
    pub name: &'static str,
    /// One line on what it models.
    pub about: String,
    /// Where its figures come from.
    pub source: String,
    /// What it does.
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
        write!(f, "unknown device profile {:?}; accepted are {names}, ", self.name)?;
        write!(f, "and {ARRAY}1 to {ARRAY}{}", ARRAY_DISKS - 1)
    }
}

impl std::error::Error for UnknownProfile {}

/// The description of a named device: its file, or `array-N` of another number of disks.
///
/// # Errors
/// If there is no such profile. The message lists those that there are.
pub fn described(name: &str) -> Result<Description, UnknownProfile> {
    if let Some((_, text)) = FILES.iter().find(|(known, _)| *known == name) {
        return Ok(built_in(name, text));
    }
    smaller_array(name).ok_or_else(|| UnknownProfile { name: name.to_owned() })
}

/// Builds the model of a named device.
///
/// The seed sets what a device leaves to chance (the angles of platters, a filer's slow reads).
/// Capacity matters where distance does: seeks of a disk are spread over it, so a small file
/// behaves like a small disk of the same average seek, as long as it is much larger than a track
/// (1.3 MB). A drive with a flash translation layer needs memory for it (see `ftl/`).
///
/// # Errors
/// If there is no such profile. The message lists those that there are.
pub fn profile(
    name: &str,
    capacity_bytes: u64,
    seed: u64,
) -> Result<Box<dyn Model>, UnknownProfile> {
    Ok(described(name)?.build(capacity_bytes, seed))
}

/// All profiles that have files, those of the contract first.
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

/// A file that is part of the program, and of its tests.
fn built_in(name: &str, text: &str) -> Description {
    match Description::parse(name, text) {
        Ok(description) => description,
        Err(error) => unreachable!("a device file that the tests have read: {error}"),
    }
}

/// `array-N`: fewer disks behind the same controller, which has the same cache.
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
