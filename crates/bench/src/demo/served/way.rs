// SPDX-License-Identifier: MIT OR Apache-2.0
//! A way of serving the data: what `larder serve` is given in a row.

use std::path::{Path, PathBuf};

use anyhow::Result;
use larder_core::config::DEFAULT_PRESET;

use crate::demo::options::DemoOptions;
use crate::demo::place::{Place, utf8};

/// A way of serving the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The name of its row.
    pub name: &'static str,
    /// Where the data lies.
    pub medium: Medium,
}

/// Where the data lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// On the slow device, in pass-through.
    Device,
    /// On the slow device, behind a flash cache of this preset.
    Cached(&'static str),
    /// On flash alone, in pass-through.
    Flash,
}

impl Way {
    /// The slow device behind Larder as it is.
    pub const LARDER: Self = Self { name: "larder", medium: Medium::Cached(DEFAULT_PRESET) };

    /// Whether there is a cache.
    #[must_use]
    pub fn is_cached(&self) -> bool {
        matches!(self.medium, Medium::Cached(_))
    }

    /// The file that holds the truth.
    #[must_use]
    pub fn truth(&self, place: &Place) -> PathBuf {
        if self.medium == Medium::Flash { place.all_flash() } else { place.origin() }
    }

    /// The flags of its devices.
    pub(super) fn flags(&self, options: &DemoOptions, place: &Place) -> Result<Vec<String>> {
        let truth = self.truth(place);
        let origin = match self.medium {
            Medium::Flash => utf8(&truth)?.to_owned(),
            _ => slow(&truth, options)?,
        };
        let mut flags = vec!["--origin".to_owned(), origin];
        if let Medium::Cached(preset) = self.medium {
            let flash = place.flash();
            // The file may have been the flash of the row before.
            let words = ["--flash", utf8(&flash)?, "--preset", preset, "--format"];
            flags.extend(words.map(str::to_owned));
            if *self == Self::LARDER {
                flags.extend_from_slice(&options.larder_flags);
            }
        }
        Ok(flags)
    }
}

/// A file behind the model of the slow device.
fn slow(file: &Path, options: &DemoOptions) -> Result<String> {
    let DemoOptions { profile, seed, .. } = options;
    Ok(format!("slow+{}?profile={profile}&seed={seed}", utf8(file)?))
}
