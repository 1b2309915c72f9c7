// SPDX-License-Identifier: MIT OR Apache-2.0
//! From flags to the five choices: a preset, and what the user overrides in it.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use larder_core::config::{
    AdmissionChoice, Choices, Durability, Eviction, FRAGMENT_BYTES_LEAST, ReplacementChoice,
    UNIT_BYTES_LEAST, UNIT_BYTES_MOST, WritePolicy, preset, presets,
};
use larder_core::exec::Nanos;
use larder_core::pagelog::{BATCH_PAGES_MOST, LogPolicy};
use larder_core::policy::admission::{Class, Schedule, SelectiveSettings};
use larder_io::{format_size, format_span};

use crate::setting::BadSetting;
use crate::units::{format_time_of_day, on_or_off, ratio, size, span, time_of_day};
use crate::write_back::{self, WriteBackArgs};

/// The effect of a client write on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WriteArg {
    /// Write the origin, then flash; acknowledge after the origin
    Async,
    /// Write the origin, then flash; acknowledge after both
    Through,
    /// Write the origin; the flash copy becomes invalid
    Around,
    /// Write cached units to flash, and to the origin later (presets prwc, flashcache, enhanceio, bcache)
    #[value(alias = "no-write-back")]
    WriteBack,
    /// Write pages to a log on flash, and to the origin at the next FLUSH (page logs)
    Bounded,
    /// Write pages to a log on flash, and to the origin when they are evicted (page logs)
    Full,
    /// As full, and the origin receives them in the order of FLUSH and FUA: alone it is an older state of the volume
    Ordered,
}

/// Which metadata survives a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DurabilityArg {
    /// None: the cache starts cold
    Volatile,
    /// A journal on flash: the cache starts warm, also after a crash
    Journal,
    /// The page log itself: the cache starts warm, after a crash with --write-policy full
    Log,
}

/// Settings of the five choices.
#[derive(Args, Debug)]
#[command(next_help_heading = "Choices, with the preset's value as default")]
pub struct ChoiceArgs {
    /// Unit of caching [flashcache, enhanceio, bcache: 4KiB; else: 1MiB]
    ///
    /// A power of two up to 8MiB; at least 64KiB with selective admission, else 4KiB. With a page log: the range of the
    /// volume that one worker's log holds in a row.
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub unit: Option<u64>,
    /// Replacement policy [sce, larder: gclock; slru, flashcache, enhanceio: lru]
    ///
    /// Accepted: gclock, lru, fifo, clock, sieve, s3fifo, arc, 2q, lirs, wtinylfu.
    #[arg(long, value_name = "POLICY")]
    pub replacement: Option<String>,
    /// Effect of a write on flash [sce, larder: async; slru: around; prwc: write-back; face, face-basic: full; else: through]
    #[arg(long, value_name = "POLICY")]
    pub write_policy: Option<WriteArg>,
    /// Metadata that survives a restart [sce, larder, prwc, proc: journal; face, face-basic: log; else: volatile]
    ///
    /// Without this flag a cache on a device in memory has no journal.
    #[arg(long, value_name = "DURABILITY")]
    pub durability: Option<DurabilityArg>,
    /// Give each cached page a checksum on flash, and compare what is read with it; page logs always do
    #[arg(
        long, value_parser = on_or_off, action = clap::ArgAction::Set, default_value = "off", value_name = "on|off",
        hide_short_help = true
    )]
    pub verify: bool,
    /// Population workers of each class, fastest class first [sce: 8,4,1,1; larder: 1]
    #[arg(long, value_delimiter = ',', value_name = "N,..", hide_short_help = true)]
    pub populate_workers: Option<Vec<u32>>,
    /// Least miss ratio of each class, falling; the first class whose conditions hold is active
    /// [sce: 35%,15%,0%,0%; larder: 0%]
    #[arg(
        long, value_delimiter = ',', value_parser = ratio, value_name = "SHARE,..", hide_short_help = true
    )]
    pub populate_miss: Option<Vec<f64>>,
    /// Least free share of the cache of each class [sce: 10%,0%,10%,0%; larder: 0%]
    #[arg(
        long, value_delimiter = ',', value_parser = ratio, value_name = "SHARE,..", hide_short_help = true
    )]
    pub populate_free: Option<Vec<f64>>,
    /// Pause of each class's workers before each unit [sce: 0,0,0,500ms; larder: 0]
    #[arg(
        long, value_delimiter = ',', value_parser = span, value_name = "SPAN,..", hide_short_help = true
    )]
    pub populate_period: Option<Vec<Nanos>>,
    /// Number of recent misses among which a population worker chooses the hottest [sce: 100; larder: 800]
    #[arg(long, alias = "populate-list", value_name = "N", hide_short_help = true)]
    pub populate_list_misses: Option<usize>,
    /// Span over which the miss ratio is measured [sce, larder: 1s]
    #[arg(long, value_parser = span, value_name = "SPAN", hide_short_help = true)]
    pub populate_window: Option<Nanos>,
    /// Number of recent misses that a unit needs to displace another [sce: 8; larder: 2]
    #[arg(long, alias = "displace-heat", value_name = "N", hide_short_help = true)]
    pub displace_misses: Option<u32>,
    /// Span between the end of one update and the start of the next [prwc, proc: 1h]
    #[arg(long, value_parser = span, value_name = "SPAN", hide_short_help = true)]
    pub update_period: Option<Nanos>,
    /// Times of day at which updates begin, in UTC, instead of --update-period
    #[arg(
        long, value_delimiter = ',', value_parser = time_of_day, value_name = "HH:MM,..",
        conflicts_with = "update_period", hide_short_help = true
    )]
    pub update_at: Option<Vec<Nanos>>,
    /// Exchange units only after this span without a client request; 0: at any time [prwc, proc: 0]
    #[arg(long, value_parser = span, value_name = "SPAN", hide_short_help = true)]
    pub update_idle: Option<Nanos>,
    /// Reference factor above which a unit is hot; each request adds 20 [prwc, proc: 50]
    #[arg(long, alias = "update-hot", value_name = "N", hide_short_help = true)]
    pub update_hot_factor: Option<u16>,
    /// Highest reference count of a unit in generalised CLOCK [sce, larder: 4]
    #[arg(long, alias = "clock-ceiling", value_name = "N", hide_short_help = true)]
    pub clock_ceiling_count: Option<u8>,
    /// Pages that are written to a page log together, 1 to 256 [face, face-basic: 64]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub batch_pages: Option<u32>,
    /// Of units that flash owns.
    #[command(flatten)]
    pub write_back: WriteBackArgs,
}

impl ChoiceArgs {
    /// Whether a setting of periodic update is given.
    pub fn has_periodic(&self) -> bool {
        self.update_period.is_some()
            || self.update_at.is_some()
            || self.update_idle.is_some()
            || self.update_hot_factor.is_some()
    }

    /// Whether a setting of selective admission is given.
    pub fn has_selective(&self) -> bool {
        self.populate_workers.is_some()
            || self.populate_miss.is_some()
            || self.populate_free.is_some()
            || self.populate_period.is_some()
            || self.populate_list_misses.is_some()
            || self.populate_window.is_some()
            || self.displace_misses.is_some()
    }
}

/// The preset of this name with the user's changes.
pub fn choices(name: &str, args: &ChoiceArgs) -> Result<Choices> {
    let Some(preset) = preset(name) else {
        let names: Vec<&str> = presets().map(|p| p.name).collect();
        let why = format!("accepted {}", names.join(", "));
        bail!(BadSetting::of("preset", name, why));
    };
    let mut choices = preset.choices();
    if let Some(unit) = args.unit {
        choices.unit_bytes = check_unit(unit, &choices)?;
    }
    match choices.write.log() {
        Some(_) => logged(&mut choices, name, args)?,
        None => {
            unlogged(&mut choices, args)?;
            choices.verify = args.verify;
        }
    }
    if let Some(given) = &args.replacement {
        choices = choices.with_replacement(replacement(given)?).map_err(|e| {
            BadSetting::of("replacement", given, format!("with --preset {name} {e}"))
        })?;
    }
    match &mut choices.eviction {
        Eviction::Replacement(ReplacementChoice::GClock { ceiling }) => {
            *ceiling = args.clock_ceiling_count.unwrap_or(*ceiling);
        }
        _ if args.clock_ceiling_count.is_some() => {
            let only = "accepted with generalised CLOCK only (--replacement gclock)";
            bail!(BadSetting::new("clock_ceiling_count", only));
        }
        _ => {}
    }
    if args.clock_ceiling_count == Some(0) {
        bail!(BadSetting::of("clock_ceiling_count", 0, "accepted at least 1"));
    }
    match choices.selective_mut() {
        Some(settings) => selective(settings, args)?,
        None if args.has_selective() => {
            bail!(
                "--populate-*, --displace-misses: accepted with selective admission only (--preset larder or sce)"
            );
        }
        None => {}
    }
    match choices.periodic_mut() {
        Some(settings) => {
            if let Some(period) = args.update_period {
                settings.schedule = Schedule::Every(period);
            }
            if let Some(times) = &args.update_at {
                settings.schedule = Schedule::At(times.clone());
            }
            settings.idle = args.update_idle.unwrap_or(settings.idle);
            settings.hot = args.update_hot_factor.unwrap_or(settings.hot);
        }
        None if args.has_periodic() => {
            bail!("--update-*: accepted with periodic update only (--preset prwc or proc)");
        }
        None => {}
    }
    write_back::apply(&mut choices, &args.write_back)?;
    if args.update_period == Some(0) {
        bail!(BadSetting::of("update_period", 0, "accepted above 0"));
    }
    Ok(choices)
}

/// What may be set of a cache that maps units.
fn unlogged(choices: &mut Choices, args: &ChoiceArgs) -> Result<()> {
    let only = "accepted with page logs only (--preset face or face-basic)";
    match args.write_policy {
        Some(WriteArg::Async) => choices.write = WritePolicy::AsyncWriteThrough,
        Some(WriteArg::Through) => choices.write = WritePolicy::WriteThrough,
        Some(WriteArg::Around) => choices.write = WritePolicy::WriteAround,
        Some(WriteArg::WriteBack) => choices.write = WritePolicy::WriteBack,
        Some(other @ (WriteArg::Bounded | WriteArg::Full | WriteArg::Ordered)) => {
            bail!(BadSetting::of("write_policy", word(other), only));
        }
        None => {}
    }
    match args.durability {
        Some(DurabilityArg::Journal) => choices.durability = Durability::Journal,
        Some(DurabilityArg::Volatile) => choices.durability = Durability::Volatile,
        Some(DurabilityArg::Log) => bail!(BadSetting::of("durability", "log", only)),
        None => {}
    }
    if args.batch_pages.is_some() {
        bail!(BadSetting::new("batch_pages", only));
    }
    if choices.write.flash_owns() {
        // Dirty data needs one; a preset that writes through may have none.
        choices.durability = args.durability.map_or(Durability::Journal, |_| choices.durability);
        let on_miss = matches!(choices.admission, AdmissionChoice::OnMiss(_));
        let whole = on_miss && choices.unit_bytes == UNIT_BYTES_LEAST;
        let owned = choices.admission.is_periodic() || whole;
        if !owned || choices.durability == Durability::Volatile {
            let only = "accepted with a journal, and periodic update (--preset prwc or proc) or units of 4 KiB \
                        (--preset flashcache, enhanceio or bcache)";
            bail!(BadSetting::of("write_policy", word(WriteArg::WriteBack), only));
        }
    }
    Ok(())
}

/// What may be set of a page log.
fn logged(choices: &mut Choices, name: &str, args: &ChoiceArgs) -> Result<()> {
    let policy = match args.write_policy {
        None | Some(WriteArg::Full) => LogPolicy::Full,
        Some(WriteArg::Ordered) => LogPolicy::Ordered,
        Some(WriteArg::Bounded) => LogPolicy::Bounded,
        Some(WriteArg::Through) => LogPolicy::Through,
        Some(other) => {
            let why =
                format!("accepted are full, ordered, bounded and through with --preset {name}");
            bail!(BadSetting::of("write_policy", word(other), why));
        }
    };
    choices.write = WritePolicy::Logged(policy);
    if let Some(other) = args.durability.filter(|d| *d != DurabilityArg::Log) {
        let why = format!("accepted is log with --preset {name}");
        bail!(BadSetting::of("durability", word(other), why));
    }
    if let (AdmissionChoice::OnExit(settings), Some(pages)) =
        (&mut choices.admission, args.batch_pages)
    {
        if !(1..=BATCH_PAGES_MOST).contains(&pages) {
            let why = format!("accepted 1 to {BATCH_PAGES_MOST}");
            bail!(BadSetting::of("batch_pages", pages, why));
        }
        settings.batch_pages = pages;
    }
    Ok(())
}

/// The word for a value on the command line.
fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
}

fn replacement(given: &str) -> Result<ReplacementChoice> {
    let known = ReplacementChoice::NAMED;
    let Some((_, choice)) = known.iter().find(|(name, _)| *name == given) else {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        let why = format!("accepted {}", names.join(", "));
        bail!(BadSetting::of("replacement", given, why));
    };
    Ok(*choice)
}

fn selective(settings: &mut SelectiveSettings, args: &ChoiceArgs) -> Result<()> {
    classes(&mut settings.classes, args)?;
    if args.populate_list_misses == Some(0) {
        bail!(BadSetting::of("populate_list_misses", 0, "accepted at least 1"));
    }
    settings.list_length = args.populate_list_misses.unwrap_or(settings.list_length);
    settings.window_ns = args.populate_window.unwrap_or(settings.window_ns).max(1);
    settings.displace_heat = args.displace_misses.unwrap_or(settings.displace_heat);
    if settings.list_length > 100_000 {
        bail!(BadSetting::of(
            "populate_list_misses",
            settings.list_length,
            "accepted up to 100000"
        ));
    }
    Ok(())
}

/// The choices as flags and keys; those without a flag are the preset's.
pub fn decided(choices: &Choices) -> Vec<(&'static str, Vec<String>)> {
    let durability = match choices.durability {
        Durability::Volatile => "volatile",
        Durability::Journal => "journal",
        Durability::Log => "log",
    };
    let mut decided = vec![
        ("unit", vec![format_size(choices.unit_bytes)]),
        ("write_policy", vec![choices.write.name().to_owned()]),
        ("durability", vec![durability.to_owned()]),
    ];
    if let Eviction::Replacement(policy) = choices.eviction {
        if let Some(name) = policy.name() {
            decided.push(("replacement", vec![name.to_owned()]));
        }
        if let ReplacementChoice::GClock { ceiling } = policy {
            decided.push(("clock_ceiling_count", vec![ceiling.to_string()]));
        }
    }
    if let AdmissionChoice::Selective(settings) = &choices.admission {
        decided.extend(decided_selective(settings));
    }
    if let AdmissionChoice::Periodic(settings) = &choices.admission {
        match &settings.schedule {
            Schedule::Every(period) => decided.push(("update_period", vec![format_span(*period)])),
            Schedule::At(times) => {
                let times = times.iter().map(|at| format_time_of_day(*at)).collect();
                decided.push(("update_at", times));
            }
        }
        decided.push(("update_idle", vec![format_span(settings.idle)]));
        decided.push(("update_hot_factor", vec![settings.hot.to_string()]));
    }
    if let AdmissionChoice::OnExit(settings) = &choices.admission {
        decided.push(("batch_pages", vec![settings.batch_pages.to_string()]));
    }
    decided.extend(write_back::decided(choices));
    decided
}

fn decided_selective(settings: &SelectiveSettings) -> [(&'static str, Vec<String>); 7] {
    let classes =
        |say: fn(&Class) -> String| settings.classes.iter().map(say).collect::<Vec<String>>();
    [
        ("populate_workers", classes(|c| c.workers.to_string())),
        ("populate_miss", classes(|c| c.target_miss_ratio.to_string())),
        ("populate_free", classes(|c| c.min_free_ratio.to_string())),
        ("populate_period", classes(|c| format_span(c.period_ns))),
        ("populate_list_misses", vec![settings.list_length.to_string()]),
        ("populate_window", vec![format_span(settings.window_ns)]),
        ("displace_misses", vec![settings.displace_heat.to_string()]),
    ]
}

/// A unit size that the engine supports with these choices.
pub fn check_unit(unit: u64, choices: &Choices) -> Result<u64> {
    let selective = matches!(choices.admission, AdmissionChoice::Selective(_));
    let least = if selective { FRAGMENT_BYTES_LEAST } else { UNIT_BYTES_LEAST };
    if !unit.is_power_of_two() || !(least..=UNIT_BYTES_MOST).contains(&unit) {
        let (least, most) = (format_size(least), format_size(UNIT_BYTES_MOST));
        let why = format!("accepted a power of two from {least} to {most}");
        bail!(BadSetting::of("unit", format_size(unit), why));
    }
    Ok(unit)
}

fn classes(classes: &mut Vec<Class>, args: &ChoiceArgs) -> Result<()> {
    let count = args.populate_workers.as_ref().map_or(classes.len(), Vec::len);
    let idle = Class { workers: 1, target_miss_ratio: 0.0, min_free_ratio: 0.0, period_ns: 0 };
    classes.resize(count, idle);
    let expect = |key: &str, given: Option<usize>| match given {
        Some(n) if n != count => bail!(BadSetting::new(
            key,
            format!(
                "has {n} values for {count} classes of workers; accepted: one each, as given by --populate-workers"
            )
        )),
        _ => Ok(()),
    };
    expect("populate_miss", args.populate_miss.as_ref().map(Vec::len))?;
    expect("populate_free", args.populate_free.as_ref().map(Vec::len))?;
    expect("populate_period", args.populate_period.as_ref().map(Vec::len))?;
    if let Some(miss) = &args.populate_miss
        && !miss.is_sorted_by(|faster, slower| faster >= slower)
    {
        let given = miss.iter().map(f64::to_string).collect::<Vec<_>>().join(",");
        let why = "accepted falling shares, as 35%,15%,0% (fastest class first; the first whose conditions hold is in force)";
        bail!(BadSetting::of("populate_miss", given, why));
    }
    for (i, class) in classes.iter_mut().enumerate() {
        let at = |values: &Option<Vec<f64>>| values.as_ref().map(|v| v[i]);
        class.workers = args.populate_workers.as_ref().map_or(class.workers, |v| v[i]);
        class.target_miss_ratio = at(&args.populate_miss).unwrap_or(class.target_miss_ratio);
        class.min_free_ratio = at(&args.populate_free).unwrap_or(class.min_free_ratio);
        class.period_ns = args.populate_period.as_ref().map_or(class.period_ns, |v| v[i]);
        if class.workers > 256 {
            let why = "accepted up to 256 in each class";
            bail!(BadSetting::of("populate_workers", class.workers, why));
        }
    }
    Ok(())
}
