// SPDX-License-Identifier: MIT OR Apache-2.0
//! From flags to choices and limits: a preset, and what the user overrides in it.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use larder_core::config::{
    AdmissionChoice, Choices, Durability, Eviction, FRAGMENT_BYTES_LEAST, Limits,
    ReplacementChoice, UNIT_BYTES_LEAST, UNIT_BYTES_MOST, WritePolicy, preset, presets,
};
use larder_core::pagelog::{BATCH_PAGES_MOST, LogPolicy};
use larder_core::policy::admission::{Class, SelectiveSettings};
use larder_front::listen::Secure;
use larder_front::nbd::tls::ServerTls;
use larder_io::{Remote, format_size};

use crate::args::{ChoiceArgs, DurabilityArg, LimitArgs, TlsArgs, WriteArg};
use crate::units::format_span;

/// The preset of this name with the user's changes.
pub fn choices(name: &str, args: &ChoiceArgs) -> Result<Choices> {
    let Some(preset) = preset(name) else {
        let names: Vec<&str> = presets().map(|p| p.name).collect();
        bail!("--preset {name}: is not known; accepted: {}", names.join(", "));
    };
    let mut choices = preset.choices();
    if let Some(unit) = args.unit {
        choices.unit_bytes = check_unit(unit, &choices)?;
    }
    match choices.write.log() {
        Some(_) => logged(&mut choices, name, args)?,
        None => unlogged(&mut choices, args)?,
    }
    if let Some(given) = &args.replacement {
        choices = choices
            .with_replacement(replacement(given)?)
            .map_err(|e| anyhow!("--replacement {given}: with --preset {name} {e}"))?;
    }
    match &mut choices.eviction {
        Eviction::Replacement(ReplacementChoice::GClock { ceiling }) => {
            *ceiling = args.clock_ceiling.unwrap_or(*ceiling);
        }
        _ if args.clock_ceiling.is_some() => {
            bail!("--clock-ceiling: accepted with generalised CLOCK only (--replacement gclock)");
        }
        _ => {}
    }
    if args.clock_ceiling == Some(0) {
        bail!("--clock-ceiling 0: accepted: at least 1");
    }
    match choices.selective_mut() {
        Some(settings) => selective(settings, args)?,
        None if args.has_selective() => {
            bail!(
                "--populate-*, --displace-heat: accepted with selective admission only (--preset sce)"
            );
        }
        None => {}
    }
    match choices.periodic_mut() {
        Some(settings) => {
            settings.period = args.update_period.unwrap_or(settings.period);
            settings.hot = args.update_hot.unwrap_or(settings.hot);
        }
        None if args.update_period.is_some() || args.update_hot.is_some() => {
            bail!("--update-*: accepted with periodic update only (--preset prwc or proc)");
        }
        None => {}
    }
    if args.update_period == Some(0) {
        bail!("--update-period 0: accepted: above 0");
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
        Some(WriteArg::NoWriteBack) => choices.write = WritePolicy::WriteBack,
        Some(other @ (WriteArg::Bounded | WriteArg::Full)) => {
            bail!("--write-policy {}: {only}", word(other));
        }
        None => {}
    }
    match args.durability {
        Some(DurabilityArg::Journal) => choices.durability = Durability::Journal,
        Some(DurabilityArg::Volatile) => choices.durability = Durability::Volatile,
        Some(DurabilityArg::Log) => bail!("--durability log: {only}"),
        None => {}
    }
    if args.batch_pages.is_some() {
        bail!("--batch-pages: {only}");
    }
    let periodic = choices.admission.is_periodic();
    if choices.write.flash_owns() && (!periodic || choices.durability == Durability::Volatile) {
        bail!(
            "--write-policy no-write-back: accepted with periodic update and a journal (--preset prwc or proc, --durability journal)"
        );
    }
    Ok(())
}

/// What may be set of a page log.
fn logged(choices: &mut Choices, name: &str, args: &ChoiceArgs) -> Result<()> {
    let policy = match args.write_policy {
        None | Some(WriteArg::Full) => LogPolicy::Full,
        Some(WriteArg::Bounded) => LogPolicy::Bounded,
        Some(WriteArg::Through) => LogPolicy::Through,
        Some(other) => bail!(
            "--write-policy {}: with --preset {name} accepted: full, bounded, through",
            word(other)
        ),
    };
    choices.write = WritePolicy::Logged(policy);
    if let Some(other) = args.durability.filter(|d| *d != DurabilityArg::Log) {
        bail!("--durability {}: with --preset {name} accepted: log", word(other));
    }
    if let (AdmissionChoice::OnExit(settings), Some(pages)) =
        (&mut choices.admission, args.batch_pages)
    {
        if !(1..=BATCH_PAGES_MOST).contains(&pages) {
            bail!("--batch-pages {pages}: accepted: 1 to {BATCH_PAGES_MOST}");
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
        bail!("--replacement {given}: is not known; accepted: {}", names.join(", "));
    };
    Ok(*choice)
}

fn selective(settings: &mut SelectiveSettings, args: &ChoiceArgs) -> Result<()> {
    classes(&mut settings.classes, args)?;
    let nonzero = |name: &str, zero: bool| match zero {
        true => bail!("--{name} 0: accepted: at least 1"),
        false => Ok(()),
    };
    nonzero("populate-list", args.populate_list == Some(0))?;
    settings.list_length = args.populate_list.unwrap_or(settings.list_length);
    settings.window_ns = args.populate_window.unwrap_or(settings.window_ns).max(1);
    settings.displace_heat = args.displace_heat.unwrap_or(settings.displace_heat);
    if settings.list_length > 100_000 {
        bail!("--populate-list {}: accepted: up to 100000", settings.list_length);
    }
    Ok(())
}

/// The choices as flags and keys say them; what no flag can say is the preset's.
pub fn decided(choices: &Choices) -> Vec<(&'static str, Vec<String>)> {
    let durability = match choices.durability {
        Durability::Volatile => "volatile",
        Durability::Journal => "journal",
        Durability::Log => "log",
    };
    let write = match choices.write {
        WritePolicy::AsyncWriteThrough => "async",
        WritePolicy::WriteThrough => "through",
        WritePolicy::WriteAround => "around",
        WritePolicy::WriteBack => "no-write-back",
        WritePolicy::Logged(LogPolicy::Through) => "through",
        WritePolicy::Logged(LogPolicy::Bounded) => "bounded",
        WritePolicy::Logged(LogPolicy::Full) => "full",
    };
    let mut decided = vec![
        ("unit", vec![format_size(choices.unit_bytes)]),
        ("write_policy", vec![write.to_owned()]),
        ("durability", vec![durability.to_owned()]),
    ];
    if let Eviction::Replacement(policy) = choices.eviction {
        let kind = std::mem::discriminant(&policy);
        let mut named = ReplacementChoice::NAMED.iter();
        if let Some((name, _)) = named.find(|(_, c)| std::mem::discriminant(c) == kind) {
            decided.push(("replacement", vec![(*name).to_owned()]));
        }
        if let ReplacementChoice::GClock { ceiling } = policy {
            decided.push(("clock_ceiling", vec![ceiling.to_string()]));
        }
    }
    if let AdmissionChoice::Selective(settings) = &choices.admission {
        decided.extend(decided_selective(settings));
    }
    if let AdmissionChoice::Periodic(settings) = &choices.admission {
        decided.push(("update_period", vec![format_span(settings.period)]));
        decided.push(("update_hot", vec![settings.hot.to_string()]));
    }
    if let AdmissionChoice::OnExit(settings) = &choices.admission {
        decided.push(("batch_pages", vec![settings.batch_pages.to_string()]));
    }
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
        ("populate_list", vec![settings.list_length.to_string()]),
        ("populate_window", vec![format_span(settings.window_ns)]),
        ("displace_heat", vec![settings.displace_heat.to_string()]),
    ]
}

/// A unit size that the engine supports with these choices.
pub fn check_unit(unit: u64, choices: &Choices) -> Result<u64> {
    let selective = matches!(choices.admission, AdmissionChoice::Selective(_));
    let least = if selective { FRAGMENT_BYTES_LEAST } else { UNIT_BYTES_LEAST };
    if !unit.is_power_of_two() || !(least..=UNIT_BYTES_MOST).contains(&unit) {
        bail!(
            "--unit {}: accepted: a power of two from {} to {}",
            format_size(unit),
            format_size(least),
            format_size(UNIT_BYTES_MOST)
        );
    }
    Ok(unit)
}

fn classes(classes: &mut Vec<Class>, args: &ChoiceArgs) -> Result<()> {
    let count = args.populate_workers.as_ref().map_or(classes.len(), Vec::len);
    let idle = Class { workers: 1, target_miss_ratio: 0.0, min_free_ratio: 0.0, period_ns: 0 };
    classes.resize(count, idle);
    let expect = |name: &str, given: Option<usize>| match given {
        Some(n) if n != count => bail!(
            "--{name}: has {n} values for {count} classes of workers; accepted: one each, as given by --populate-workers"
        ),
        _ => Ok(()),
    };
    expect("populate-miss", args.populate_miss.as_ref().map(Vec::len))?;
    expect("populate-free", args.populate_free.as_ref().map(Vec::len))?;
    expect("populate-period", args.populate_period.as_ref().map(Vec::len))?;
    if let Some(miss) = &args.populate_miss
        && !miss.is_sorted_by(|faster, slower| faster >= slower)
    {
        let given = miss.iter().map(f64::to_string).collect::<Vec<_>>().join(",");
        bail!(
            "--populate-miss {given}: accepted: falling shares, as 35%,15%,0% (fastest class first; the first whose conditions hold is in force)"
        );
    }
    for (i, class) in classes.iter_mut().enumerate() {
        let at = |values: &Option<Vec<f64>>| values.as_ref().map(|v| v[i]);
        class.workers = args.populate_workers.as_ref().map_or(class.workers, |v| v[i]);
        class.target_miss_ratio = at(&args.populate_miss).unwrap_or(class.target_miss_ratio);
        class.min_free_ratio = at(&args.populate_free).unwrap_or(class.min_free_ratio);
        class.period_ns = args.populate_period.as_ref().map_or(class.period_ns, |v| v[i]);
        if class.workers > 256 {
            bail!("--populate-workers {}: accepted: up to 256 in each class", class.workers);
        }
    }
    Ok(())
}

/// How long the server of an NBD origin may take.
pub fn remote(args: &LimitArgs) -> Result<Remote> {
    if args.origin_timeout == 0 || args.origin_give_up < args.origin_timeout {
        bail!("--origin-timeout: accepted: above 0 and at most --origin-give-up");
    }
    let span = Duration::from_nanos;
    Ok(Remote::new(span(args.origin_timeout), span(args.origin_give_up)))
}

/// What clients are asked for, if there is TLS.
pub fn secure(args: &TlsArgs) -> Result<Option<Secure>> {
    let (Some(cert), Some(key)) = (&args.tls_cert, &args.tls_key) else { return Ok(None) };
    let tls = ServerTls::load(cert, key, args.tls_client_ca.as_deref())?;
    Ok(Some(Secure { tls, everywhere: args.tls_require }))
}

/// The limits that the user set.
pub fn limits(args: &LimitArgs) -> Result<Limits> {
    if !(4096..=1 << 20).contains(&args.populate_io) || !args.populate_io.is_multiple_of(4096) {
        bail!(
            "--populate-io {}: accepted: a multiple of 4KiB up to 1MiB",
            format_size(args.populate_io)
        );
    }
    if args.flash_timeout == 0 || args.flash_dead_after < args.flash_timeout {
        bail!("--flash-timeout: accepted: above 0 and at most --flash-dead-after");
    }
    if args.flash_errors == 0 {
        bail!("--flash-errors 0: accepted: at least 1");
    }
    Ok(Limits {
        write_through_bytes: args.write_buffer,
        population_io_bytes: args.populate_io,
        population_share: args.populate_share,
        checkpoint: args.checkpoint.max(1_000_000),
        flash_timeout: args.flash_timeout,
        flash_dead_after: args.flash_dead_after,
        flash_errors: args.flash_errors,
        ..Limits::default()
    })
}
