// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges of volumes that are pinned and excluded (`larder_core::range_rules`).
//!
//! Ranges come from the configuration and from commands; both are in force. Those of commands are durable in the directory of state
//! files before they take effect (`state_file/ranges.rs`), so they hold after a restart, and for another flash device.
//!
//! Invariant: nothing is pinned beyond three quarters of the slots of a worker.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_core::range_rules::RangeRules;
use larder_core::ranges::{has_any, merged};
use larder_core::shard::Arrangement;

use super::cache::Cache;
use super::error::VolumeError;
use super::lock::lock;
use super::ranges::{Progress, Ranged, Terms};
use super::volume::Volume;
use super::volume_ranges::{Asked, RangeRule, VolumeRanges};

/// The most ranges of a kind that commands may leave to a volume.
const MOST_RANGES: usize = 4096;

impl Cache {
    /// Takes the ranges of the configuration and those of earlier commands. A file of these that cannot be used is reported.
    pub(crate) fn begin_ranges(&self) -> Result<(), VolumeError> {
        let mut loaded = match self.config.state.as_ref().map(|file| file.load_ranges()) {
            Some(Ok(loaded)) => loaded,
            Some(Err(error)) => {
                tracing::error!(
                    "ALARM: {error}; ranges that commands pinned and excluded are not in force: pin and exclude them again"
                );
                Default::default()
            }
            None => Default::default(),
        };
        let asked: Vec<Asked> = self
            .config
            .volumes
            .iter()
            .map(|of| Asked {
                configured: of.ranges.within(of.bytes()),
                by_command: loaded.remove(&of.name).unwrap_or_default().within(of.bytes()),
            })
            .collect();
        let none = asked.iter().all(|of| of.all() == VolumeRanges::default());
        *lock(&self.asked) = asked;
        if none { Ok(()) } else { self.follow_ranges() }
    }

    /// The rules for its whole space.
    fn rules_of(&self, asked: &[Asked]) -> RangeRules {
        let (mut pinned, mut excluded) = (Vec::new(), Vec::new());
        for (part, asked) in self.parts.iter().zip(asked) {
            let place =
                |range: Range<u64>| part.range.start + range.start..part.range.start + range.end;
            let all = asked.all();
            pinned.extend(all.pinned.into_iter().map(place));
            excluded.extend(all.excluded.into_iter().map(place));
        }
        RangeRules::new(&pinned, &excluded, self.config.choices.unit_bytes)
    }

    /// Whether what is pinned fits on a flash of so many slots.
    fn fits(&self, rules: &RangeRules, slots: u64) -> bool {
        let (shape, placement) = (self.shape(), self.config.choices.placement);
        (0..shape.shards).all(|shard| rules.fit(&shape.of_shard(shard), slots, placement))
    }

    /// The workers follow the ranges that are asked for.
    fn follow_ranges(&self) -> Result<(), VolumeError> {
        let rules = Arc::new(self.rules_of(&lock(&self.asked)));
        self.ask(move |worker| worker.shard.follow(&rules)).map(drop)
    }

    /// Reports that more is pinned than a flash of so many slots can keep.
    pub(crate) fn check_pinned(&self, slots: u64) {
        let rules = self.rules_of(&lock(&self.asked));
        if !self.fits(&rules, slots) {
            tracing::warn!(
                "more is pinned than three quarters of the flash: not all of it stays cached, {}",
                self.config.title()
            );
        }
    }

    /// Takes the ranges that the configuration of a volume has now.
    ///
    /// # Errors
    /// A range ends beyond the volume, this cache cannot pin or exclude, or a worker does not answer.
    pub fn configure_ranges(&self, volume: &str, ranges: &VolumeRanges) -> Result<(), VolumeError> {
        let _one = lock(&self.setting);
        let Some(number) = self.parts.iter().position(|part| part.name == volume) else {
            return Ok(());
        };
        let bytes = self.parts[number].range.end - self.parts[number].range.start;
        let mut all = ranges.pinned.iter().chain(&ranges.excluded);
        if let Some(range) = all.find(|range| range.end > bytes) {
            return Err(VolumeError::Usage(format!(
                "pin and exclude: {}+{} ends beyond the volume; accepted: an end up to {bytes}",
                range.start,
                range.end - range.start
            )));
        }
        let configured = ranges.within(bytes);
        if lock(&self.asked)[number].configured == configured {
            return Ok(());
        }
        self.check_rules()?;
        lock(&self.asked)[number].configured = configured;
        self.follow_ranges()
    }

    /// Whether units can be pinned and excluded.
    pub(crate) fn check_rules(&self) -> Result<(), VolumeError> {
        match self.spec.has_units() {
            true => Ok(()),
            false => Err(VolumeError::Refused(
                "a page log has what is written, and evicts in the order of its pages: nothing is pinned or excluded there; accepted: a preset with units".to_owned(),
            )),
        }
    }
}

impl Volume {
    /// Its ranges that are pinned and excluded.
    #[must_use]
    pub fn rules(&self) -> VolumeRanges {
        lock(&self.cache().asked)[self.number() as usize].all()
    }

    /// Pins or excludes ranges, or ends that, durably. What is pinned is then copied to flash, and what flash has of excluded
    /// ranges leaves it; if the command ends before, that continues in the background.
    ///
    /// # Errors
    /// A range ends beyond the volume, or contradicts the configuration; more is pinned than the flash can keep; this cache cannot
    /// do it; the ranges cannot be recorded; or as for [`warm`](Self::warm).
    pub fn rule(
        &self,
        rule: RangeRule,
        ranges: &[Range<u64>],
        progress: Progress<'_>,
    ) -> Result<Ranged, VolumeError> {
        self.check_present()?;
        self.check(ranges)?;
        self.record_rule(rule, ranges)?;
        let units = self.whole_units(ranges);
        let is_attached = lock(&self.cache().state).attached.is_some();
        let left = || lock(&self.cache().state).outside.contains(&self.number());
        let arranged = match rule {
            RangeRule::Pin if is_attached && !left() => Some((Arrangement::Warm, &units[..])),
            RangeRule::Exclude if is_attached => Some((Arrangement::Evict, ranges)),
            _ => None,
        };
        match arranged {
            Some((what, ranges)) if self.cache().settings().populate || rule != RangeRule::Pin => {
                self.pass(what, ranges, Terms::default(), progress)
            }
            _ => self.cached(ranges),
        }
    }

    /// Makes the ranges of a command durable, and lets the workers follow them.
    fn record_rule(&self, rule: RangeRule, ranges: &[Range<u64>]) -> Result<(), VolumeError> {
        let cache = self.cache();
        cache.check_rules()?;
        if cache.config.state.is_none() {
            let why = "there is no directory for state files, where ranges are recorded; accepted: start with --state DIR";
            return Err(VolumeError::Refused(why.to_owned()));
        }
        let _one = lock(&cache.setting);
        let number = self.number() as usize;
        let mut asked = lock(&cache.asked).clone();
        asked[number].check(rule, ranges)?;
        let by_command = asked[number].by_command.with(rule, ranges);
        if by_command.pinned.len().max(by_command.excluded.len()) > MOST_RANGES {
            return Err(VolumeError::Refused(format!(
                "the volume would have more than {MOST_RANGES} ranges of a kind; accepted: fewer and larger ones"
            )));
        }
        asked[number].by_command = by_command;
        let slots = lock(&cache.state).attached.as_ref().map(|a| a.flash.plan.slots());
        let fits = |slots| rule != RangeRule::Pin || cache.fits(&cache.rules_of(&asked), slots);
        if !slots.is_none_or(fits) {
            return Err(VolumeError::Refused(format!(
                "pin: more than three quarters of the flash would be pinned, which caches {} bytes in units of {}; accepted: fewer units",
                cache.flash_bytes(slots.unwrap_or_default()),
                cache.config.choices.unit_bytes
            )));
        }
        if let Some((file, _records)) = cache.records()? {
            file.store_ranges(self.name(), &asked[number].by_command)?;
        }
        *lock(&cache.asked) = asked;
        if cache.stopping.load(Ordering::SeqCst) {
            return Ok(()); // the next start follows them
        }
        cache.follow_ranges()
    }

    /// Ranges extended to whole units.
    fn whole_units(&self, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
        let (unit, size) =
            (self.cache().config.choices.unit_bytes, self.space().end - self.space().start);
        let whole = |r: &Range<u64>| r.start / unit * unit..r.end.next_multiple_of(unit).min(size);
        merged(ranges.iter().map(whole).collect())
    }

    /// Refuses to evict what is pinned.
    pub(crate) fn check_unpinned(&self, ranges: &[Range<u64>]) -> Result<(), VolumeError> {
        let pinned = self.rules().pinned;
        match ranges.iter().find(|range| has_any(&pinned, range)) {
            None => Ok(()),
            Some(range) => Err(VolumeError::Refused(format!(
                "{}+{}: has pinned bytes; accepted: after larder unpin",
                range.start,
                range.end - range.start
            ))),
        }
    }
}
