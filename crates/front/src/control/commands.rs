// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands of a control socket, for a volume or for a cache that several volumes share.
//!
//! A volume that shares its cache leaves it with `detach` and joins it with `attach` without a device. Flash devices are attached
//! and detached at the socket of the cache.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_core::format::Wishes;
use larder_io::{DevSpec, Device, OpenError};
use larder_volume::{Cache, FlashDevice, Terms, Volume, VolumeError};
use serde_json::{Value, json};

use super::heat;
use super::quiesce;
use super::ranges::Ranges;
use super::recent;
use super::record;
use super::resize;
use super::wire::Command;

/// What a control socket is for.
#[derive(Clone)]
pub enum Target {
    /// A volume.
    Volume(Arc<Volume>),
    /// A cache that several volumes share.
    Cache(Arc<Cache>),
}

/// What the clients of a control socket may do.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The group whose members may read the state and the counters.
    pub readers: Option<u32>,
    /// This process may use only its own files: an attach may fail for this reason.
    pub restricted: bool,
    /// The configuration of the cache at its start, as a file.
    pub config: Arc<str>,
}

/// A flash device to attach.
struct Attach {
    flash: String,
    flash_bytes: Option<u64>,
    format: bool,
    sparse: bool,
}

impl Target {
    fn cache(&self) -> &Arc<Cache> {
        match self {
            Self::Volume(volume) => volume.cache(),
            Self::Cache(cache) => cache,
        }
    }

    /// The volume, if it is one of several.
    fn one_of_several(&self) -> Option<&Arc<Volume>> {
        match self {
            Self::Volume(volume) => Some(volume).filter(|volume| volume.is_shared()),
            Self::Cache(_) => None,
        }
    }

    /// The volume.
    fn volume(&self) -> Result<&Arc<Volume>, VolumeError> {
        match self {
            Self::Volume(volume) => Ok(volume),
            Self::Cache(cache) => Err(VolumeError::Usage(format!(
                "several volumes share this cache; accepted: --name with one of them: {}",
                names(cache)
            ))),
        }
    }

    /// Carries a command out.
    pub(super) fn execute(
        &self,
        command: Command,
        rules: &Rules,
        stream: &UnixStream,
        progress: impl FnMut(String),
    ) -> Result<Value, VolumeError> {
        let value = |v| serde_json::to_value(v).map_err(|e| VolumeError::Usage(e.to_string()));
        match command {
            Command::Status => match self {
                Self::Volume(volume) => volume.status(),
                Self::Cache(cache) => cache.status(),
            }
            .and_then(|status| value(json!(status))),
            Command::Stats => match self {
                Self::Volume(volume) => volume.stats(),
                Self::Cache(cache) => cache.stats(),
            }
            .and_then(|stats| value(json!(stats))),
            Command::Flush { bound_seconds } => {
                match self {
                    Self::Volume(volume) => volume.flush(bounded(bound_seconds)),
                    Self::Cache(cache) => cache.flush(bounded(bound_seconds)),
                }?;
                Ok(json!({ "flushed": true }))
            }
            Command::Detach { bound_seconds } => self.detach(bounded(bound_seconds), progress),
            Command::Attach { flash, flash_bytes, format, sparse } => {
                self.attach(Attach { flash, flash_bytes, format, sparse }, rules.restricted)
            }
            Command::Resize { flash_bytes, bound_seconds } => {
                let sizes = (flash_bytes, bounded(bound_seconds));
                resize::serve(self.whole_cache("the flash")?, sizes, stream, progress)
            }
            Command::Join => self.join(),
            Command::Cached { ranges } => Ranges::of(self.volume()?, &ranges)?.cached(),
            Command::Warm { ranges, pace_bytes, bound_seconds, beside_bytes } => {
                let bound = bound_seconds.map(bounded);
                let terms = Terms { pace: pace_bytes, bound, beside: beside_bytes };
                Ranges::of(self.volume()?, &ranges)?.warm(terms, stream, progress)
            }
            Command::Evict { ranges } => {
                Ranges::of(self.volume()?, &ranges)?.evict(stream, progress)
            }
            Command::Scrub { ranges, pace_bytes, bound_seconds } => {
                let bound = bound_seconds.map(bounded);
                let terms = Terms { pace: pace_bytes, bound, beside: None };
                Ranges::of(self.volume()?, &ranges)?.scrub(terms, stream, progress)
            }
            Command::Rule { rule, ranges } => {
                Ranges::of(self.volume()?, &ranges)?.rule(rule, stream, progress)
            }
            Command::Quiesce { hold_seconds, bound_seconds } => quiesce::serve(
                stream,
                self.volume()?,
                (bounded(hold_seconds), bounded(bound_seconds)),
            ),
            Command::Heat => heat::serve(stream, self.volume()?),
            Command::Config => {
                let settings = self.cache().settings();
                Ok(json!({ "config": *rules.config, "settings": settings }))
            }
            Command::Set(change) => {
                let cache = self.whole_cache("the settings")?;
                cache.set(&change).and_then(|settings| value(json!(settings)))
            }
            Command::Recent { at_alarm, last_us } => {
                recent::serve(stream, self.volume()?, at_alarm, last_us)
            }
            Command::Record => record::serve(stream, self.volume()?),
        }
    }

    /// The cache, for what concerns all of its volumes.
    fn whole_cache(&self, what: &str) -> Result<&Arc<Cache>, VolumeError> {
        let cache = self.cache();
        if self.one_of_several().is_some() {
            return Err(VolumeError::Usage(format!(
                "several volumes share {what}; accepted: --name {}",
                cache.config().name
            )));
        }
        Ok(cache)
    }

    fn detach(
        &self,
        bound: Duration,
        mut progress: impl FnMut(String),
    ) -> Result<Value, VolumeError> {
        if let Some(volume) = self.one_of_several() {
            volume.leave_cache(bound)?;
            return Ok(json!({ "detached": true }));
        }
        let began = Instant::now();
        self.cache().detach(bound, |n| {
            if began.elapsed() > Duration::from_secs(1) {
                progress(format!("waiting for flash operations on {n} workers"));
            }
        })?;
        Ok(json!({ "detached": true }))
    }

    fn attach(&self, asked: Attach, restricted: bool) -> Result<Value, VolumeError> {
        let Attach { flash, flash_bytes, format, sparse } = asked;
        let cache = self.cache();
        if self.one_of_several().is_some() {
            return Err(VolumeError::Usage(format!(
                "{flash}: several volumes share the flash; accepted: --name {} for the flash, or no device, which takes the \
                 volume into the cache again",
                cache.config().name
            )));
        }
        let spec: DevSpec = flash.parse().map_err(|e| VolumeError::Usage(format!("{e}")))?;
        cache.end_retries();
        let device = Device::open_private(&spec).map_err(|e| explain(e, &spec, restricted))?;
        let choices = &cache.config().choices;
        let wishes = Wishes { formats: format, adopted: false };
        let flash = FlashDevice::prepare(
            device,
            (flash_bytes, cache.config().flash_most),
            cache.shape(),
            choices,
            wishes,
        )?;
        let units = flash.plan.slots();
        cache.attach(flash.sparse(sparse))?;
        Ok(json!({ "attached": true, "units_total": units }))
    }

    fn join(&self) -> Result<Value, VolumeError> {
        let Some(volume) = self.one_of_several() else {
            let why = "no flash device given; accepted: larder attach DEV";
            return Err(VolumeError::Usage(why.to_owned()));
        };
        volume.join_cache()?;
        Ok(json!({ "attached": true, "units_total": volume.stats()?.units_total }))
    }
}

/// The volumes of a cache, for a message.
fn names(cache: &Arc<Cache>) -> String {
    let volumes = cache.volumes();
    let names: Vec<&str> = volumes.iter().map(|volume| volume.name()).collect();
    names.join(", ")
}

/// The error of an attach. A server that restricted itself has no access to most files outside of /dev.
fn explain(error: OpenError, flash: &DevSpec, restricted: bool) -> VolumeError {
    let denied = rustix::io::Errno::ACCESS.raw_os_error();
    let by_restriction = restricted && !flash.place().starts_with("/dev/");
    match &error {
        OpenError::System { errno, .. } if errno.0 == denied && by_restriction => {
            VolumeError::Usage(format!(
                "{error}; accepted, unless the server runs with --unrestricted: a device in /dev, or a file in the \
                 directory of the flash that the server was started with"
            ))
        }
        _ => error.into(),
    }
}

/// Limits a client's time limit to one day.
fn bounded(seconds: u64) -> Duration {
    Duration::from_secs(seconds.min(24 * 3600))
}

#[cfg(test)]
mod tests {
    use larder_core::request::Errno;

    use super::*;

    #[test]
    fn an_error_names_the_restriction_only_where_it_can_be_the_reason() {
        let denied = rustix::io::Errno::ACCESS.raw_os_error();
        for (flash, restricted, errno, named) in [
            ("/srv/flash", true, denied, true),
            ("/srv/flash", false, denied, false),
            ("/dev/larder-none", true, denied, false),
            ("/srv/flash", true, denied + 1, false),
        ] {
            let spec: DevSpec = flash.parse().unwrap();
            let (device, errno) = (flash.to_owned(), Errno(errno));
            let error = OpenError::System { device, action: "open it", errno };
            let text = explain(error, &spec, restricted).to_string();
            assert_eq!(text.contains("--unrestricted"), named, "{text}");
        }
    }
}
