// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume on its way: its settings checked, then its devices open.
//!
//! Invariants: nothing is written to a device here. A flash file that was made for a start that
//! fails is removed again: it would stand in the way of the next try.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use larder_core::config::Memory;
use larder_core::config::{Choices, Durability, Limits};
use larder_core::format::{Wishes, slots_in};
use larder_core::shape::Shape;
use larder_front::listen::Secure;
use larder_io::{Access, DevSpec, Device, OpenError, ServerBounds, format_size, rough_size};
use larder_volume::{FlashDevice, StateFile, VolumeError};

use super::args::ServeArgs;
use super::config::Plan;
use crate::choices::choices;
use crate::control::default_control;
use crate::out::tell;
use crate::setting::BadSetting;
use crate::workers::workers;

/// How long a device may be locked before it counts as another's.
const LOCK_BOUND: Duration = Duration::from_secs(2);

/// A volume whose settings can be.
pub struct Checked {
    pub plan: Plan,
    pub choices: Choices,
    pub limits: Limits,
    pub remote: ServerBounds,
    pub secure: Option<Secure>,
    pub workers: u32,
    pub control: PathBuf,
    /// Where it is kept whether the flash may be used.
    pub state: Option<StateFile>,
}

/// A volume whose devices are open.
pub struct Opened {
    pub checked: Checked,
    pub origin: Device,
    pub flash: Option<FlashDevice>,
    pub made: Option<Made>,
}

/// A flash file that was made; removed when dropped, unless it is kept.
pub struct Made(Option<PathBuf>);

impl Made {
    /// It is in use now.
    pub fn keep(&mut self) {
        self.0 = None;
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Checked {
    /// Checks all that can be without looking at a device.
    pub fn new(plan: Plan) -> Result<Self> {
        let args = &plan.args;
        let settings = || {
            let choices = durable(choices(&args.preset, &args.choices)?, args)?;
            let limits = args.limits.limits()?;
            let remote = args.limits.remote()?;
            let secure = args.tls.secure()?;
            if args.flash.is_none() && (args.flash_size.is_some() || args.format || args.adopt) {
                bail!("--flash-size, --format and --adopt: need --flash DEV");
            }
            if args.adopt && !choices.write.flash_owns() {
                let why = "the origin has everything, and flash without its state file starts cold; \
                     accepted with flash that alone has some of the data, as of --preset prwc or face";
                bail!(BadSetting::new("adopt", why));
            }
            let default = || default_control(&args.name);
            let control = args.control.clone().map_or_else(default, Ok)?;
            let workers = workers(args.workers)?;
            let state = state_file(args, &choices)?;
            Ok((choices, limits, remote, secure, workers, control, state))
        };
        let settings = settings().map_err(|e| plan.locate(e))?;
        let (choices, limits, remote, secure, workers, control, state) = settings;
        Ok(Self { plan, choices, limits, remote, secure, workers, control, state })
    }

    /// Opens its devices.
    pub fn open(self) -> Result<Opened> {
        let args = &self.plan.args;
        let devices = || {
            let origin = args.origin.as_ref();
            let origin = origin.ok_or(BadSetting::new("origin", "is missing; accepted: DEV"))?;
            if self.choices.write.flash_keeps() && args.flash.is_none() {
                let why = "is missing; under write-back it has what the origin has not";
                bail!(BadSetting::new("flash", why));
            }
            let origin = open_device(origin, self.remote)?;
            let bytes = origin.geometry().bytes;
            let shape = Shape::new(bytes, self.choices.unit_bytes, self.workers);
            let (flash, made) = open_flash(args, shape, &self.choices)?;
            Ok((origin, flash, made))
        };
        let (origin, flash, made) = devices().map_err(|e| self.plan.locate(e))?;
        Ok(Opened { checked: self, origin, flash, made })
    }
}

impl Opened {
    /// The memory that it needs.
    pub fn memory(&self) -> Memory {
        let Checked { choices, limits, workers, .. } = &self.checked;
        let slots = self.flash.as_ref().map_or(0, |f| f.plan.slots());
        let origin_bytes = if slots > 0 { self.origin.geometry().bytes } else { 0 };
        Memory::of(origin_bytes, slots * choices.cached_bytes(), choices, limits, *workers)
    }

    /// Says what will be served.
    pub fn announce(&self) {
        let (origin, served) = (&self.origin, self.origin.geometry().bytes);
        if self.checked.plan.several {
            tell!("{}:", self.checked.plan.title());
        }
        if let Ok(Some(identity)) = origin.identity()
            && identity.bytes > served
        {
            tell!(
                "origin {} holds {} bytes; the last {} are not served (not a whole block of {})",
                origin.name(),
                identity.bytes,
                identity.bytes - served,
                origin.geometry().block_bytes
            );
        }
        let workers = self.checked.workers;
        tell!("origin {} ({}), {workers} worker(s)", origin.name(), rough_size(served));
        match &self.flash {
            Some(flash) => tell!(
                "flash {}: {} {} of {}, preset {}",
                flash.device.name(),
                flash.plan.slots(),
                if self.checked.choices.log().is_some() { "pages" } else { "units" },
                format_size(self.checked.choices.cached_bytes()),
                self.checked.plan.args.preset
            ),
            None => tell!("no flash: pass-through until `larder attach`"),
        }
    }
}

/// A journal needs devices that are still there after a restart: with others there is none, unless it
/// was asked for.
fn durable(mut choices: Choices, args: &ServeArgs) -> Result<Choices> {
    let devices = [("origin", &args.origin), ("flash", &args.flash)];
    let given = devices.iter().filter_map(|(key, spec)| Some((*key, spec.as_ref()?)));
    let lost = given.into_iter().find(|(_, spec)| !spec.outlives_process());
    let (Durability::Journal | Durability::Log, Some((key, spec))) = (choices.durability, lost)
    else {
        return Ok(choices);
    };
    // A page log cannot do without.
    let asked = args.choices.durability.is_some()
        || choices.write.flash_owns()
        || choices.durability == Durability::Log;
    if asked && args.origin.as_ref() == Some(spec) {
        let why = "is gone with this process, and what is cached of it would be wrong after a restart; accepted with a journal or page log: a file, a block device or an NBD export";
        bail!(BadSetting::of(key, spec, why));
    }
    if !asked {
        choices.durability = Durability::Volatile;
    }
    Ok(choices)
}

/// Where state files lie: where systemd says (`StateDirectory=`), or by rule.
pub fn default_state() -> Result<PathBuf> {
    if let Some(dirs) = std::env::var_os("STATE_DIRECTORY")
        && let Some(dir) = std::env::split_paths(&dirs).find(|dir| dir.is_absolute())
    {
        return Ok(dir);
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/larder"));
    }
    let from = |key: &str| std::env::var_os(key).filter(|v| !v.is_empty()).map(PathBuf::from);
    let state = from("XDG_STATE_HOME").or_else(|| Some(from("HOME")?.join(".local/state")));
    Ok(state.context("neither $XDG_STATE_HOME nor $HOME is set; give --state DIR")?.join("larder"))
}

/// The state file. Without a journal a place for it is not needed, but what an earlier run with one
/// left there is: nothing where this user may not read.
fn state_file(args: &ServeArgs, choices: &Choices) -> Result<Option<StateFile>> {
    let dir = args.state.clone().map_or_else(default_state, Ok);
    let closed = |dir: &PathBuf| {
        std::fs::read_dir(dir).is_err_and(|e| e.kind() == ErrorKind::PermissionDenied)
    };
    if choices.durability == Durability::Volatile
        && args.state.is_none()
        && dir.as_ref().map_or(true, closed)
    {
        return Ok(None);
    }
    let origin = args.origin.as_ref().map(DevSpec::place).unwrap_or_default();
    Ok(Some(StateFile::new(&dir?, &args.name, &origin)))
}

/// Opens a device. The kernel holds the locks of a killed server until its last operations end;
/// that is no other server, and a supervisor that starts us at once must not be refused.
fn open_device(spec: &DevSpec, remote: ServerBounds) -> Result<Device, VolumeError> {
    let begin = Instant::now();
    let mut told = false;
    loop {
        match Device::open_within(spec, Access::ReadWrite, remote) {
            Err(OpenError::InUse { .. }) if begin.elapsed() < LOCK_BOUND => {
                if begin.elapsed() > LOCK_BOUND / 10 && !std::mem::replace(&mut told, true) {
                    tell!("{spec} is in use; waiting for up to {} s", LOCK_BOUND.as_secs());
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done.map_err(VolumeError::from),
        }
    }
}

fn open_flash(
    args: &ServeArgs,
    shape: Shape,
    choices: &Choices,
) -> Result<(Option<FlashDevice>, Option<Made>)> {
    let Some(spec) = &args.flash else { return Ok((None, None)) };
    if let Some(bytes) = args.flash_size {
        let slots = slots_in(bytes, choices.unit_bytes);
        slots.map_err(|e| BadSetting::new("flash_size", e.to_string()))?;
    }
    let made = match (spec, args.flash_size) {
        (DevSpec::Path(path), Some(bytes)) => make_file(path, bytes)?,
        _ => None,
    };
    let device = open_device(spec, ServerBounds::default()).map_err(|e| flash_hint(e, args))?;
    if let Some(asked) = args.flash_size.filter(|size| *size > device.geometry().bytes) {
        tell!(
            "flash {} holds {}, less than --flash-size {}",
            device.name(),
            rough_size(device.geometry().bytes),
            rough_size(asked)
        );
    }
    let wishes = Wishes { formats: args.format, adopted: args.adopt };
    let flash = FlashDevice::prepare(device, args.flash_size, shape, choices, wishes)?;
    Ok((Some(flash), made))
}

/// A missing flash file is made when its size is known; say so.
fn flash_hint(error: VolumeError, args: &ServeArgs) -> anyhow::Error {
    match &error {
        VolumeError::Open(OpenError::NotFound { .. }) if args.flash_size.is_none() => {
            VolumeError::Usage(format!("{error}; with --flash-size SIZE a file is made")).into()
        }
        _ => error.into(),
    }
}

/// Makes a flash file of this size with its blocks allocated, unless something is there.
fn make_file(path: &std::path::Path, bytes: u64) -> Result<Option<Made>> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let file = match options.write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => return Ok(None),
        Err(e) => bail!(BadSetting::of("flash", path.display(), e.to_string())),
    };
    let made = Made(Some(path.to_owned()));
    let allocated = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes);
    if let Err(e) = allocated {
        let size = format_size(bytes);
        let bad = BadSetting::of("flash", path.display(), format!("cannot allocate {size}: {e}"));
        bail!(BadSetting { code: 3, ..bad });
    }
    Ok(Some(made))
}
