// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache with its volumes before it starts: settings checked, then devices open.
//!
//! Invariants: nothing is written to a device here. A flash file that a failed start created
//! is removed: the next start would find it with another size.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use larder_core::config::{Choices, DEFAULT_PRESET, Durability, Limits, Memory, preset};
use larder_core::format::{DeviceSize, OriginPlace, Plan as LayoutPlan, Wishes};
use larder_core::request::Errno;
use larder_core::shape::Shape;
use larder_core::volumes::Volumes;
use larder_front::listen::Secure;
use larder_io::{
    Access, DevSpec, Device, OpenError, Privacy, ServerBounds, format_size, rough_size,
};
use larder_private::{Refuse, is_refusal};
use larder_volume::{FlashDevice, StateFile, VolumeError};
use rustix::fs::OFlags;

use super::args::ServeArgs;
use super::config::Plan;
use crate::choices::choices;
use crate::control::{default_control, default_state, group};
use crate::out::tell;
use crate::setting::BadSetting;
use crate::workers::workers;

/// How long a start waits for the lock of a device.
const LOCK_BOUND: Duration = Duration::from_secs(2);

/// A cache whose settings are checked.
pub struct Checked {
    pub plan: Plan,
    pub choices: Choices,
    pub limits: Limits,
    pub remote: ServerBounds,
    pub workers: u32,
    /// How its volumes are reached, in their order.
    pub ways: Vec<Way>,
    /// How the cache is reached, if volumes share it.
    pub own_way: Option<Way>,
    /// Its preset.
    pub preset: Preset,
    /// The file that records whether the flash may be used.
    pub state: Option<StateFile>,
}

/// How a volume or a cache is reached.
pub struct Way {
    pub control: PathBuf,
    /// The group whose members may read the state and the counters.
    pub readers: Option<u32>,
    /// The TLS of clients.
    pub secure: Option<Secure>,
}

impl Way {
    fn of(plan: &Plan) -> Result<Self> {
        let args = &plan.args;
        let of = || {
            args.check_generation()?;
            let secure = args.tls.secure()?;
            let default = || default_control(&args.name);
            let control = args.control.clone().map_or_else(default, Ok)?;
            let readers = args.control_group.as_deref().map(group).transpose()?;
            Ok(Self { control, readers, secure })
        };
        of().map_err(|e| plan.locate(e))
    }
}

/// The preset of a cache.
pub struct Preset {
    pub name: String,
    /// It was not given, and differs from the default: the state file names it.
    is_recorded: bool,
}

impl Preset {
    /// The given one; else that of the flash which the volume used at its last start, over the same origin; else the
    /// default.
    ///
    /// # Errors
    /// The state file is refused, or records a preset that does not exist; or the directory that the user gave cannot be
    /// read. The errors of a default directory are reported when the flash is attached.
    pub fn of(args: &ServeArgs, file: Option<&StateFile>) -> Result<Self> {
        let given = args.preset.clone().or(args.flash.is_none().then(|| DEFAULT_PRESET.to_owned()));
        let (None, Some(file)) = (&given, file) else {
            let name = given.unwrap_or_else(|| DEFAULT_PRESET.to_owned());
            return Ok(Self { name, is_recorded: false });
        };
        let record = match file.load() {
            Err(VolumeError::StateDirectory { .. }) if args.state.is_none() => None,
            record => record?,
        };
        let record = record.filter(|record| record.in_use && record.is_of(file.origins()));
        let name = record.and_then(|record| record.preset).unwrap_or_else(|| DEFAULT_PRESET.into());
        if preset(&name).is_none() {
            let why = format!(
                "is missing, and state file {} records the preset {name:?}, which this version does not have; accepted: \
                 the preset of the volume",
                file.path().display()
            );
            bail!(BadSetting::new("preset", why));
        }
        Ok(Self { is_recorded: *name != *DEFAULT_PRESET, name: name.into() })
    }
}

/// A cache whose devices are open.
pub struct Opened {
    pub checked: Checked,
    /// Of its volumes, in their order.
    pub origins: Vec<Device>,
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
    /// Checks the settings; opens no device.
    pub fn new(plan: Plan) -> Result<Self> {
        let ways = plan.volumes().iter().map(Way::of).collect::<Result<Vec<_>>>()?;
        let own_way = plan.is_shared().then(|| Way::of(&plan)).transpose()?;
        let args = &plan.args;
        let settings = || {
            let state = state_file(&plan);
            let preset = Preset::of(args, state.as_ref().ok())?;
            let choices = durable(choices(&preset.name, &args.choices)?, &plan)?;
            let limits = args.limits.limits()?;
            if choices.log().is_some() {
                check_log(&plan, &preset, limits.ram_bytes)?;
            }
            let remote = args.limits.remote()?;
            if args.flash.is_none() && (args.flash_size.is_some() || args.format || args.adopt) {
                bail!("--flash-size, --format and --adopt: need --flash DEV");
            }
            if args.adopt && !choices.write.flash_owns() {
                let why = "the origin has all data, and a flash without its state file starts cold; \
                     accepted with write-back caches (--preset prwc or face)";
                bail!(BadSetting::new("adopt", why));
            }
            let workers = workers(args.workers)?;
            let state = needed(state, args, &choices)?.map(|file| file.under(&preset.name));
            Ok((choices, limits, remote, workers, preset, state))
        };
        let (choices, limits, remote, workers, preset, state) =
            settings().map_err(|e| plan.locate(e))?;
        Ok(Self { plan, choices, limits, remote, workers, ways, own_way, preset, state })
    }

    /// Opens its devices.
    pub fn open(self) -> Result<Opened> {
        let (plan, args) = (&self.plan, &self.plan.args);
        if self.choices.write.flash_keeps() && args.flash.is_none() {
            let why = "is missing; with write-back it may hold dirty data";
            return Err(plan.locate(BadSetting::new("flash", why).into()));
        }
        let open = |(number, volume): (usize, &Plan)| {
            let opened = open_origin(volume, self.remote, self.state.as_ref(), number);
            let checked = opened.and_then(|origin| {
                check_ranges(&volume.args, origin.geometry().bytes)?;
                Ok(origin)
            });
            checked.map_err(|e| volume.locate(e))
        };
        let origins = plan.volumes().iter().enumerate().map(open).collect::<Result<Vec<_>>>()?;
        let bytes = space(&origins, &self.choices, self.workers);
        let shape = self.choices.shape(bytes, self.workers);
        let opened = open_flash(args, shape, &self.choices).map_err(|e| plan.locate(e));
        let (flash, made) = opened?;
        Ok(Opened { checked: self, origins, flash, made })
    }
}

/// Refuses what a page log does not have.
fn check_log(plan: &Plan, preset: &Preset, ram_bytes: u64) -> Result<()> {
    if ram_bytes > 0 {
        let why = "a page log has no tier of RAM; accepted: 0, or a preset with units";
        bail!(BadSetting::new("ram", why));
    }
    let ranges = [("pin", &plan.args.pin), ("exclude", &plan.args.exclude)];
    if let Some((key, _)) = ranges.iter().find(|(_, ranges)| !ranges.is_empty()) {
        let why = "a page log has what is written, and evicts in the order of its pages; accepted: a preset with units";
        bail!(BadSetting::new(*key, why));
    }
    if plan.is_shared() {
        let why = "a page log has one volume; accepted for volumes that share a cache: a preset with units";
        bail!(BadSetting::of("preset", &preset.name, why));
    }
    Ok(())
}

/// Refuses ranges that a volume of so many bytes cannot pin and exclude.
fn check_ranges(args: &ServeArgs, bytes: u64) -> Result<()> {
    let Some((key, range, why)) = args.ranges().refused(bytes) else { return Ok(()) };
    bail!(BadSetting::of(key, format!("{}+{}", range.start, range.end - range.start), &why));
}

/// Bytes of the space of all volumes.
fn space(origins: &[Device], choices: &Choices, workers: u32) -> u64 {
    let sizes: Vec<u64> = origins.iter().map(|origin| origin.geometry().bytes).collect();
    Volumes::placed(&sizes, choices.shape(0, workers).stripe_bytes()).bytes()
}

/// Opens the origin of a volume. One that may be missing, and is, has the size that the state file records.
fn open_origin(
    volume: &Plan,
    remote: ServerBounds,
    state: Option<&StateFile>,
    number: usize,
) -> Result<Device> {
    let origin = volume.args.origin.as_ref();
    let origin = origin.ok_or(BadSetting::new("origin", "is missing; accepted: DEV"))?;
    let error = match open_device(origin, Privacy::Any, remote) {
        Ok(device) => return Ok(device),
        Err(error) if !volume.member.may_be_missing || !is_missing(&error) => {
            return Err(error.into());
        }
        Err(error) => error,
    };
    let record = state.map_or(Ok(None), StateFile::load)?;
    let places = state.map(StateFile::origins).unwrap_or_default();
    let recorded = record.as_ref().and_then(|record| record.origins.get(number));
    match recorded.filter(|of| places.get(number).is_some_and(|place| of.is_at(place))) {
        Some(recorded) => {
            tracing::warn!("{}: starts without its origin: {error}", volume.title());
            Ok(Device::absent(origin, recorded.origin_bytes))
        }
        None => Err(anyhow::Error::from(error)
            .context("`may_be_missing`: the state file has no size of this origin; start once with the origin connected")),
    }
}

/// Whether a device does not exist or does not work, or its server does not serve it.
fn is_missing(error: &VolumeError) -> bool {
    let VolumeError::Open(error) = error else { return false };
    match error {
        OpenError::NotFound { .. } | OpenError::Remote { .. } => true,
        OpenError::System { errno, .. } => {
            [Errno::ENXIO, Errno::ENODEV, Errno::EIO].contains(errno)
        }
        _ => false,
    }
}

impl Opened {
    /// The memory that it needs.
    pub fn memory(&self) -> Memory {
        let Checked { choices, limits, workers, .. } = &self.checked;
        let slots = self.flash.as_ref().map_or(0, |f| f.plan.slots());
        let space = || space(&self.origins, choices, *workers);
        let origin_bytes = if slots > 0 { space() } else { 0 };
        Memory::of(origin_bytes, slots * choices.cached_bytes(), choices, limits, *workers)
    }

    /// Prints what will be served.
    pub fn announce(&self) {
        let plan = &self.checked.plan;
        if plan.several {
            tell!("{}:", plan.title());
        }
        let workers = self.checked.workers;
        for (volume, origin) in plan.volumes().iter().zip(&self.origins) {
            let served = origin.geometry().bytes;
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
            let of = if plan.is_shared() { format!("{}, ", volume.title()) } else { String::new() };
            tell!("{of}origin {} ({}), {workers} worker(s)", origin.name(), rough_size(served));
        }
        match &self.flash {
            Some(flash) => tell!(
                "flash {}: {} {} of {}, preset {}{}",
                flash.device.name(),
                flash.plan.slots(),
                if self.checked.choices.log().is_some() { "pages" } else { "units" },
                format_size(self.checked.choices.cached_bytes()),
                self.checked.preset.name,
                if self.checked.preset.is_recorded {
                    ", as at the last start (--preset changes it)"
                } else {
                    ""
                }
            ),
            None => tell!("no flash: pass-through until `larder attach`"),
        }
    }
}

/// A journal needs devices that exist after a restart. Without them there is no journal, and a journal that the user
/// asked for is refused.
fn durable(mut choices: Choices, plan: &Plan) -> Result<Choices> {
    let args = &plan.args;
    let origins = plan.volumes().iter().filter_map(|volume| volume.args.origin.as_ref());
    let lost_origin = origins.clone().find(|spec| !spec.outlives_process());
    let lost_flash = args.flash.as_ref().filter(|spec| !spec.outlives_process());
    let is_kept = matches!(choices.durability, Durability::Journal | Durability::Log);
    if !is_kept || lost_origin.or(lost_flash).is_none() {
        return Ok(choices);
    }
    // A page log cannot do without.
    let asked = args.choices.durability.is_some()
        || choices.write.flash_owns()
        || choices.durability == Durability::Log;
    if let Some(spec) = lost_origin.filter(|_| asked) {
        let why = "is gone with this process, so that its cached data would be wrong after a restart; accepted with a journal or page log: a file, a block device or an NBD export";
        bail!(BadSetting::of("origin", spec, why));
    }
    if !asked {
        choices.durability = Durability::Volatile;
    }
    Ok(choices)
}

/// The state file, if the volume needs it. One without a journal needs it only to invalidate the flash of an earlier run
/// with a journal; it has none where this user may not read the default directory.
fn needed(
    file: Result<StateFile>,
    args: &ServeArgs,
    choices: &Choices,
) -> Result<Option<StateFile>> {
    let closed = |file: &StateFile| {
        let dir = file.path().parent().map(std::fs::read_dir);
        dir.is_some_and(|dir| dir.is_err_and(|e| e.kind() == ErrorKind::PermissionDenied))
    };
    match file {
        file if choices.durability != Durability::Volatile || args.state.is_some() => {
            file.map(Some)
        }
        file => Ok(file.ok().filter(|file| !closed(file))),
    }
}

/// The place of the state file; an error if there is no default directory.
pub fn state_file(plan: &Plan) -> Result<StateFile> {
    let dir = plan.args.state.clone().map_or_else(default_state, Ok)?;
    let place = |volume: &Plan| {
        let origin = volume.args.origin.as_ref();
        let link = origin.and_then(DevSpec::link).map(Into::into);
        let resolved = origin.map(DevSpec::place).unwrap_or_default();
        OriginPlace { name: volume.args.name.as_str().into(), resolved, link }
    };
    let places: Vec<OriginPlace> = plan.volumes().iter().map(place).collect();
    let first = places.first().map(|place| place.resolved.clone()).unwrap_or_default();
    Ok(StateFile::new(&dir, &plan.args.name, &first).over(places))
}

/// Opens a device. The kernel holds the locks of a killed server until its last operations end, so that a start right
/// after the kill waits for the lock.
fn open_device(
    spec: &DevSpec,
    privacy: Privacy,
    remote: ServerBounds,
) -> Result<Device, VolumeError> {
    let begin = Instant::now();
    let mut told = false;
    loop {
        match Device::open_within(spec, Access::ReadWrite, privacy, remote) {
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
        check_flash_size(bytes, shape, choices)?;
    }
    check_flash_most(args)?;
    let made = match (spec, args.flash_size) {
        (DevSpec::Path(path), Some(bytes)) => make_file(path, bytes, args.sparse)?,
        _ => None,
    };
    let device = open_device(spec, Privacy::Private, ServerBounds::default())
        .map_err(|e| flash_hint(e, args))?;
    if let Some(asked) = args.flash_size.filter(|size| *size > device.geometry().bytes) {
        tell!(
            "flash {} holds {}, less than --flash-size {}; larder resize makes a file longer",
            device.name(),
            rough_size(device.geometry().bytes),
            rough_size(asked)
        );
    }
    let wishes = Wishes { formats: args.format, adopted: args.adopt };
    let flash =
        FlashDevice::prepare(device, (args.flash_size, args.flash_most), shape, choices, wishes)?;
    Ok((Some(flash.sparse(args.sparse)), made))
}

/// Refuses a size to grow to that is below the size, or more than a label describes.
fn check_flash_most(args: &ServeArgs) -> Result<()> {
    let least = args.flash_size.unwrap_or(0);
    let is_refused = |most: &u64| !(least..=1 << 59).contains(most);
    let Some(most) = args.flash_most.filter(is_refused) else { return Ok(()) };
    let why = format!("accepted {} (flash_size) to 512PiB", format_size(least));
    bail!(BadSetting::of("flash_most", format_size(most), why))
}

/// Refuses a size without room for one unit and its metadata, or for one page log a worker. The error states a size
/// that is accepted, in whole MiB.
fn check_flash_size(bytes: u64, shape: Shape, choices: &Choices) -> Result<()> {
    const MIB: u64 = 1 << 20;
    if i64::try_from(bytes).is_err() {
        bail!(BadSetting::of("flash_size", format_size(bytes), "accepted less than 8EiB"));
    }
    let fits = |bytes| {
        let device = DeviceSize { bytes, block_bytes: 512 };
        LayoutPlan::fit(shape, choices, device, None, None).is_ok()
    };
    if fits(bytes) {
        return Ok(());
    }
    let mut accepted = MIB;
    while !fits(accepted) && accepted < 1 << 60 {
        accepted *= 2;
    }
    let mut refused = accepted / 2;
    while accepted - refused > MIB {
        let middle = (accepted + refused) / 2 / MIB * MIB;
        if fits(middle) { accepted = middle } else { refused = middle }
    }
    let why = format!("too small for a cache; accepted at least {}", format_size(accepted));
    bail!(BadSetting::of("flash_size", format_size(bytes), why));
}

/// Adds to the error of a missing flash file that --flash-size creates one.
fn flash_hint(error: VolumeError, args: &ServeArgs) -> anyhow::Error {
    match &error {
        VolumeError::Open(OpenError::NotFound { .. }) if args.flash_size.is_none() => {
            VolumeError::Usage(format!("{error}; with --flash-size SIZE a file is created")).into()
        }
        _ => error.into(),
    }
}

/// Creates a flash file of this size, with its blocks allocated unless `sparse`, if there is none.
fn make_file(path: &std::path::Path, bytes: u64, sparse: bool) -> Result<Option<Made>> {
    let (size, flags) = (format_size(bytes), OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL);
    let file = match larder_private::open(path, flags, 0o600, Refuse::ANY) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => return Ok(None),
        Err(e) => {
            let why = format!("{} of {size} cannot be created: {e}", path.display());
            let code = if is_refusal(&e) { 4 } else { 2 };
            bail!(BadSetting { code, ..BadSetting::new("flash", why) });
        }
    };
    let made = Made(Some(path.to_owned()));
    let allocated = match sparse {
        true => rustix::fs::ftruncate(&file, bytes),
        false => rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes),
    };
    if let Err(e) = allocated {
        let why = format!("{}: cannot allocate {size}: {e}", path.display());
        bail!(BadSetting { code: 3, ..BadSetting::new("flash", why) });
    }
    Ok(Some(made))
}
