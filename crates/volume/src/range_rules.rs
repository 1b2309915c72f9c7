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
use larder_core::ranges::{has_any, merged, without};
use larder_core::shard::Arrangement;

use super::cache::Cache;
use super::error::VolumeError;
use super::lock::lock;
use super::ranges::{Progress, Ranged, Terms};
use super::volume::Volume;
use super::volume_ranges::{Asked, RangeRule, Rest, VolumeRanges};

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
        if !none && self.check_rules().is_err() {
            tracing::warn!(
                "ranges that commands pinned and excluded are not in force under a page log, {}",
                self.config.title()
            );
            *lock(&self.asked) = vec![Asked::default(); self.parts.len()];
            return Ok(());
        }
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

    /// Whether a flash of so many slots can keep all that is pinned.
    pub(crate) fn keeps_pinned(&self, slots: u64) -> bool {
        let rules = self.rules_of(&lock(&self.asked));
        self.fits(&rules, slots)
    }

    /// Reports that more is pinned than a flash of so many slots can keep.
    pub(crate) fn check_pinned(&self, slots: u64) {
        if !self.keeps_pinned(slots) {
            tracing::warn!(
                "more is pinned than three quarters of the flash: not all of it stays cached, {}",
                self.config.title()
            );
        }
    }

    /// Takes the ranges that the configuration of a volume has now.
    ///
    /// # Errors
    /// A range ends beyond the volume, or is pinned and excluded; this cache can do neither; or a worker does not answer.
    pub fn configure_ranges(&self, volume: &str, ranges: &VolumeRanges) -> Result<(), VolumeError> {
        let _one = lock(&self.setting);
        let Some(number) = self.parts.iter().position(|part| part.name == volume) else {
            return Ok(());
        };
        let bytes = self.parts[number].range.end - self.parts[number].range.start;
        if let Some((key, Range { start, end }, why)) = ranges.refused(bytes) {
            return Err(VolumeError::Usage(format!("{key}: got {start}+{}, {why}", end - start)));
        }
        let configured = ranges.within(bytes);
        if lock(&self.asked)[number].configured == configured {
            return Ok(());
        }
        self.check_rules()?;
        lock(&self.asked)[number].configured = configured;
        let slots = lock(&self.state).attached.as_ref().map(|a| a.flash.plan.slots());
        slots.into_iter().for_each(|slots| self.check_pinned(slots));
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

    /// Pins or excludes ranges, or ends that, durably, for whole units. What is pinned is then copied to flash, and what flash has of
    /// excluded ranges leaves it. What is left of that at the end of the command follows.
    ///
    /// # Errors
    /// A range ends beyond the volume, or contradicts the configuration; more is pinned than the flash, or the volume's share of it, can
    /// keep; this cache cannot do it; the ranges cannot be recorded; or a worker does not answer.
    pub fn rule(
        &self,
        rule: RangeRule,
        ranges: &[Range<u64>],
        progress: Progress<'_>,
    ) -> Result<(Ranged, Rest), VolumeError> {
        self.check_present()?;
        self.check(ranges)?;
        let units = self.whole_units(ranges);
        let before = self.rules();
        self.record_rule(rule, &units)?;
        let after = self.rules();
        let ended = match rule {
            RangeRule::Pin | RangeRule::Exclude => units,
            RangeRule::Unpin => without(&before.pinned, &after.pinned),
            RangeRule::Include => without(&before.excluded, &after.excluded),
        };
        let cached = || self.cached(&ended).map(|cached| (cached, Rest::Follows));
        let what = match rule {
            RangeRule::Pin => Arrangement::Warm,
            RangeRule::Exclude => Arrangement::Evict,
            RangeRule::Unpin | RangeRule::Include => return cached(),
        };
        let state = lock(&self.cache().state);
        let is_attached = state.attached.is_some() && !state.outside.contains(&self.number());
        drop(state);
        if rule == RangeRule::Pin && !self.cache().settings().populate {
            return Ok((self.cached(&ended)?, Rest::NeedsPopulation));
        }
        if !is_attached {
            return Ok((self.cached(&ended)?, Rest::NeedsFlash));
        }
        match self.pass(what, &ended, Terms::default(), progress) {
            Ok(done) => Ok((done, Rest::Follows)),
            // The ranges are recorded, and followed in the background.
            Err(_) => cached(),
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
        let before = cache.rules_of(&asked);
        asked[number].by_command = by_command;
        let slots = lock(&cache.state).attached.as_ref().map(|a| a.flash.plan.slots());
        if let Some(slots) = slots.filter(|_| before != cache.rules_of(&asked)) {
            self.check_room(rule, &asked, slots)?;
        }
        if let Some((file, _records)) = cache.records()? {
            let names = cache.parts.iter().map(|part| part.name.clone());
            file.store_ranges(names.zip(asked.iter().map(|of| of.by_command.clone())))?;
        }
        *lock(&cache.asked) = asked;
        if cache.stopping.load(Ordering::SeqCst) {
            return Ok(()); // the next start follows them
        }
        cache.follow_ranges()
    }

    /// Whether a flash of so many slots, and the volume's share of it, can keep what is pinned.
    fn check_room(&self, rule: RangeRule, asked: &[Asked], slots: u64) -> Result<(), VolumeError> {
        let (cache, own) = (self.cache(), self.number() as usize);
        let unit = cache.config.choices.unit_bytes;
        if rule != RangeRule::Pin {
            return Ok(());
        }
        if !cache.fits(&cache.rules_of(asked), slots) {
            return Err(VolumeError::Refused(format!(
                "pin: more than three quarters of the flash would be pinned, which caches {} bytes in units of {unit}; accepted: fewer units",
                cache.flash_bytes(slots)
            )));
        }
        let shares = || cache.config.volumes.iter().map(|of| of.share).enumerate();
        let others = shares().filter(|(number, _)| *number != own);
        let free = 1.0 - others.map(|(_, share)| share.least).sum::<f64>();
        let most = cache.config.volumes[own].share.most.min(free);
        let pinned = asked[own]
            .all()
            .pinned
            .iter()
            .map(|range| (range.end - range.start).div_ceil(unit))
            .sum::<u64>();
        if pinned as f64 > most * slots as f64 {
            return Err(VolumeError::Refused(format!(
                "pin: {pinned} units would be pinned, and the shares of the volumes leave this one {} of {slots}; accepted: fewer units",
                (most * slots as f64) as u64
            )));
        }
        Ok(())
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
