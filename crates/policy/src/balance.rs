// SPDX-License-Identifier: MIT OR Apache-2.0
//! Balance: whether the origin serves a read that hit, because flash is the busier or the slower device.
//!
//! The owner of each device measures its client reads with a [`Meter`]. From the two [`Load`]s the policy estimates what
//! one more read costs all clients of a device: its *marginal latency* `L * L / s`, where `L` is the smoothed latency and
//! `s` the latency without a queue. This is exact for a queue with one server and random arrivals, and it counts what the
//! origin's own clients, the misses, would suffer. The origin serves a hit only while its marginal latency is the smaller
//! one.
//!
//! A window bounds the client reads that may be in flight at the origin, misses included. It moves by at most one for each
//! window of answers and stands still while the two marginal latencies differ by little, so several clients or shards with
//! one policy each settle instead of oscillating, and misses that fill the window leave no room for hits.
//!
//! - While few reads are in flight at flash and it answers in time, nothing is asked of the origin: the policy is inert.
//! - If nothing is known of the present latency of the origin, one hit in [`BalanceSettings::probe_every`] is sent there,
//!   one at a time, until a few were answered. What is learned is remembered for a second, and ten times as long if the
//!   origin is slower by an order of magnitude.
//! - After an error or an overdue answer of the origin, it serves no hit for ten seconds.
//!
//! Why not equal latencies: a queue at flash delays each later read, so the sum of all latencies is smaller when the origin
//! takes reads that are slower than their own wait would be. Why no share that is computed from rated figures: the devices
//! are not known.

use crate::Nanos;

/// Larger reads are not measured and not balanced: their latency is that of their bytes.
pub const MOST_BYTES: u64 = 64 << 10;
/// The newest value counts `1 / 2^NEWEST` in a smoothed latency.
const NEWEST: u32 = 5;
/// Reads in a row whose mean may become the latency without a queue.
const ROW: u32 = 32;
/// Answers before a latency is known.
const ENOUGH: u32 = 8;
/// Flash that takes so many times its latency without a queue is slow, whatever is in flight.
const SLOW: Nanos = 4;
/// Smaller differences of the marginal latencies do not move the window, ...
const DEAD_BAND: f64 = 1.1;
/// ... and with a larger difference the origin serves none.
const HYSTERESIS: f64 = 1.5;
/// The first window.
const FIRST_WINDOW: f64 = 1.0;
/// Pause after an error or an overdue answer.
const PAUSE: Nanos = 10_000_000_000;
/// How many times longer the latency of a much slower origin is remembered.
const LONGER: Nanos = 10;

/// The client reads of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// In flight.
    pub in_flight: u32,
    /// Answers that the latency is made of, since the device last had none for a second.
    pub count: u32,
    /// Smoothed latency.
    pub latency: Nanos,
    /// Latency without a queue: the mean of reads during which no other was in flight, or before the first of these the
    /// least mean of some reads in a row; 0 if unknown.
    pub unloaded: Nanos,
    /// When the last answer came.
    pub at: Nanos,
}

impl Load {
    /// What one more read costs all clients of the device.
    fn marginal(&self) -> f64 {
        let latency = self.latency as f64;
        match self.unloaded {
            0 => latency,
            unloaded => latency * (latency / unloaded as f64).max(1.0),
        }
    }
}

/// Measures the client reads of a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    load: Load,
    /// Since the last read began no other was in flight.
    is_alone: bool,
    /// Reads that were alone, since the device last had none for a second; any at all.
    alone: u32,
    any_alone: bool,
    row: u32,
    row_sum: Nanos,
}

/// The running mean of `count` values with a further one, and of many values their smoothed mean.
#[inline]
fn smooth(mean: Nanos, count: &mut u32, value: Nanos) -> Nanos {
    if *count < 1 << NEWEST {
        *count += 1;
        let count = Nanos::from(*count);
        mean.saturating_mul(count - 1).saturating_add(value) / count
    } else {
        mean - (mean >> NEWEST) + (value >> NEWEST)
    }
}

impl Meter {
    /// After such a time without answers the latency starts from the next one.
    const FORGOTTEN: Nanos = 1_000_000_000;

    /// A read of the device begins.
    #[inline]
    pub fn began(&mut self) {
        self.is_alone = self.load.in_flight == 0;
        self.load.in_flight += 1;
    }

    /// A read of so many bytes ended after this time; failed reads have none.
    #[inline]
    pub fn ended(&mut self, bytes: u64, took: Option<Nanos>, now: Nanos) {
        self.load.in_flight = self.load.in_flight.saturating_sub(1);
        if let Some(took) = took.filter(|_| bytes <= MOST_BYTES) {
            self.learn(took, now);
        }
    }

    #[inline]
    fn learn(&mut self, took: Nanos, now: Nanos) {
        let load = &mut self.load;
        if now.saturating_sub(load.at) > Self::FORGOTTEN {
            (load.count, self.alone) = (0, 0);
            (self.row, self.row_sum) = (0, 0);
        }
        load.at = now;
        load.latency = smooth(load.latency, &mut load.count, took);
        if self.is_alone && load.in_flight == 0 {
            load.unloaded = smooth(load.unloaded, &mut self.alone, took).max(1);
            self.any_alone = true;
        }
        if self.any_alone {
            return;
        }
        self.row += 1;
        self.row_sum = self.row_sum.saturating_add(took);
        if self.row == ROW {
            let mean = (self.row_sum / Nanos::from(ROW)).max(1);
            load.unloaded = if load.unloaded == 0 { mean } else { load.unloaded.min(mean) };
            (self.row, self.row_sum) = (0, 0);
        }
    }

    /// What was measured.
    #[inline]
    #[must_use]
    pub fn load(&self) -> Load {
        self.load
    }
}

/// Settings of the balance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BalanceSettings {
    /// With fewer client reads in flight flash is not busy.
    pub least_in_flight: u32,
    /// The origin serves no hit while its latency is more than so many times that of flash.
    pub most_slower: f64,
    /// While nothing is known of the origin, one hit in so many is sent there.
    pub probe_every: u64,
    /// How long the latency of the origin is remembered.
    pub remembered: Nanos,
}

impl Default for BalanceSettings {
    fn default() -> Self {
        Self { least_in_flight: 8, most_slower: 10.0, probe_every: 512, remembered: 1_000_000_000 }
    }
}

/// State of the balance.
#[derive(Debug)]
pub struct Balance {
    settings: BalanceSettings,
    hits: u64,
    window: f64,
    /// When the origin last answered a read that hit.
    answered: Nanos,
    /// The origin serves none before this time.
    paused_until: Nanos,
}

impl Balance {
    /// The policy.
    #[must_use]
    pub fn new(settings: &BalanceSettings) -> Self {
        Self { settings: *settings, hits: 0, window: FIRST_WINDOW, answered: 0, paused_until: 0 }
    }

    /// Whether the load of flash is such that the origin could help. Cheap, for every hit.
    #[inline]
    #[must_use]
    pub fn concerns(&self, flash: &Load) -> bool {
        flash.in_flight >= self.settings.least_in_flight
            || flash.latency > SLOW * flash.unloaded && flash.unloaded > 0
    }

    /// Whether the origin serves a read that hit.
    pub fn serves(&mut self, flash: &Load, origin: &Load, now: Nanos) -> bool {
        if !self.concerns(flash) || now < self.paused_until {
            return false;
        }
        self.hits += 1;
        if !self.knows(flash, origin, now) {
            self.window = FIRST_WINDOW;
            return origin.in_flight == 0 && self.hits.is_multiple_of(self.settings.probe_every);
        }
        if now.saturating_sub(self.answered) > self.settings.remembered {
            self.window = FIRST_WINDOW;
        }
        f64::from(origin.in_flight) < self.window
            && self.advantage(flash, origin) > 1.0 / HYSTERESIS
    }

    /// Whether the present latency of the origin is known.
    fn knows(&self, flash: &Load, origin: &Load, now: Nanos) -> bool {
        let longer = if self.much_slower(flash, origin) { LONGER } else { 1 };
        let remembered = self.settings.remembered.saturating_mul(longer);
        origin.count >= ENOUGH && now.saturating_sub(origin.at) < remembered
    }

    fn much_slower(&self, flash: &Load, origin: &Load) -> bool {
        origin.latency as f64 > self.settings.most_slower * flash.latency as f64
    }

    /// The marginal latency of flash over that of the origin; 0 if the origin is out of question.
    fn advantage(&self, flash: &Load, origin: &Load) -> f64 {
        if self.much_slower(flash, origin) {
            return 0.0;
        }
        let busy = flash.in_flight >= self.settings.least_in_flight;
        // With few reads in flight a read of flash delays no others, and only its own latency counts.
        let gain = if busy { flash.marginal() } else { flash.latency as f64 };
        gain / origin.marginal().max(1.0)
    }

    /// The origin answered a read that hit.
    pub fn answered(&mut self, flash: &Load, origin: &Load, now: Nanos) {
        self.answered = now;
        let advantage = self.advantage(flash, origin);
        let step = 1.0 / self.window.max(1.0);
        if advantage > DEAD_BAND {
            // A window that is not used does not grow.
            if f64::from(origin.in_flight) + 1.0 >= self.window {
                self.window += step;
            }
        } else if advantage < 1.0 / DEAD_BAND {
            self.window = (self.window - step).max(FIRST_WINDOW);
        }
    }

    /// The origin failed to answer a read that hit, or did not answer it in time.
    pub fn failed(&mut self, now: Nanos) {
        self.window = FIRST_WINDOW;
        self.paused_until = now.saturating_add(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const MS: Nanos = 1_000_000;

    fn load(in_flight: u32, latency: Nanos, unloaded: Nanos, at: Nanos) -> Load {
        Load { in_flight, count: 32, latency, unloaded, at }
    }

    fn balance() -> Balance {
        Balance::new(&BalanceSettings::default())
    }

    /// A device as a closed queue: its latency with so many reads in flight.
    #[derive(Clone, Copy)]
    struct Device {
        unloaded: f64,
        /// Time between two answers at full load.
        each: f64,
    }

    impl Device {
        fn latency(self, in_flight: f64) -> f64 {
            self.unloaded.max(in_flight * self.each)
        }
    }

    const FLASH: Device = Device { unloaded: 77e3, each: 16.6e3 };

    /// The reads in flight at the origin, over time, of policies that share two devices and `clients` reads in flight;
    /// each policy directs its share of the clients.
    fn shares(policies: u32, clients: f64, origin: Device, misses: f64, rounds: u32) -> Vec<f64> {
        let mut all: Vec<(Balance, f64)> = (0..policies).map(|_| (balance(), 0.0)).collect();
        let (mut now, mut seen, mut out) = (MS, 0.0_f64, Vec::new());
        let own = clients / f64::from(policies);
        for _ in 0..rounds {
            let at_origin: f64 = all.iter().map(|(_, sent)| sent).sum();
            let latency = origin.latency(at_origin + misses);
            seen = if seen == 0.0 { latency } else { seen + (latency - seen) / 4.0 };
            now += latency as Nanos;
            let flash = FLASH.latency(clients - at_origin);
            for (policy, sent) in &mut all {
                let waiting = (own - *sent).max(0.0) as u32;
                let flash = load(waiting, flash as Nanos, FLASH.unloaded as Nanos, now);
                let slow = |n: f64| {
                    load((n + misses) as u32, seen as Nanos, origin.unloaded as Nanos, now)
                };
                // All answers of a round, then as many new reads as the policy sends.
                for _ in 0..*sent as u32 {
                    policy.answered(&flash, &slow(*sent), now);
                }
                *sent = 0.0;
                while *sent < own && policy.serves(&flash, &slow(*sent), now) {
                    *sent += 1.0;
                }
            }
            out.push(all.iter().map(|(_, sent)| sent).sum());
        }
        out
    }

    /// Sixteen disks.
    const ARRAY: Device = Device { unloaded: 5.5e6, each: 0.2e6 };

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn the_share_equalises_marginal_latencies_and_does_not_oscillate() {
        for policies in [1, 4] {
            let sent = shares(policies, 256.0, ARRAY, 0.0, 3000);
            let last = &sent[2000..];
            let mean = mean(last);
            let (flash, origin) = (FLASH.latency(256.0 - mean), ARRAY.latency(mean));
            let ratio = (flash * flash / FLASH.unloaded) / (origin * origin / ARRAY.unloaded);
            assert!((0.5..2.0).contains(&ratio), "{policies}: {mean} in flight, ratio {ratio}");
            let far = last.iter().filter(|n| (**n - mean).abs() > 0.3 * mean + 2.0).count();
            assert!(far < last.len() / 20, "{policies}: {mean} in flight, {far} rounds far off");
        }
    }

    #[test]
    fn misses_that_use_the_origin_leave_no_room_for_hits() {
        let free = mean(&shares(1, 256.0, ARRAY, 0.0, 3000)[2000..]);
        let busy = mean(&shares(1, 256.0, ARRAY, 200.0, 3000)[2000..]);
        assert!(free > 20.0 && busy < 1.0, "{free} without misses, {busy} beside them");
    }

    #[test]
    fn an_unknown_origin_is_probed_rarely_and_one_at_a_time() {
        let (mut policy, flash) = (balance(), load(100, 2 * MS, MS / 10, MS));
        let unknown = Load::default();
        let sent = (0..100_000).filter(|_| policy.serves(&flash, &unknown, MS)).count();
        assert!((100..500).contains(&sent), "{sent} of 100,000");
        let asked = Load { in_flight: 1, ..unknown };
        assert!((0..100_000).all(|_| !policy.serves(&flash, &asked, MS)));
    }

    #[test]
    fn a_much_slower_origin_is_left_alone_for_longer() {
        let (mut policy, flash) = (balance(), load(100, MS, MS / 10, MS));
        let mut asked =
            |origin: Load, now| (0..10_000).any(|_| policy.serves(&flash, &origin, now));
        let slow = load(0, 50 * MS, 50 * MS, MS);
        assert!(!asked(slow, MS + 9_000 * MS), "plainly slower, and probed lately");
        assert!(asked(slow, MS + 11_000 * MS), "long ago");
        let near = load(0, 9 * MS, MS, MS);
        assert!(!asked(near, MS + 900 * MS));
        assert!(asked(near, MS + 1_100 * MS));
    }

    #[test]
    fn an_error_pauses_the_balance() {
        let (mut policy, flash) = (balance(), load(100, 5 * MS, MS / 10, MS));
        let origin = |now| load(0, 2 * MS, 2 * MS, now);
        assert!(policy.serves(&flash, &origin(MS), MS));
        policy.failed(MS);
        assert!(!policy.serves(&flash, &origin(9 * PAUSE / 10), 9 * PAUSE / 10));
        assert!(policy.serves(&flash, &origin(2 * PAUSE), 2 * PAUSE));
    }

    #[test]
    fn without_a_read_that_is_alone_the_least_mean_counts() {
        let mut meter = Meter::default();
        meter.began();
        for took in [500, 200, 300] {
            for _ in 0..ROW {
                meter.began();
                meter.ended(4096, Some(took), 1);
            }
        }
        assert_eq!(meter.load().unloaded, 200);
        meter.ended(4096, Some(900), 1);
        assert_eq!(meter.load().unloaded, 200, "others were in flight");
        meter.began();
        meter.ended(4096, Some(400), 1);
        assert_eq!(meter.load().unloaded, 400);
    }

    #[test]
    fn a_meter_follows_the_latency_of_all_and_of_those_that_are_alone() {
        let mut meter = Meter::default();
        let mut read = |took: Nanos, now: Nanos, times: u32| {
            for _ in 0..times {
                meter.began();
                meter.ended(4096, Some(took), now);
            }
            meter.load()
        };
        let light = read(100, 1, 200);
        assert_eq!((light.latency, light.unloaded, light.in_flight), (100, 100, 0));
        let slower = read(1_000, 2, 400);
        assert!((900..=1_000).contains(&slower.latency), "{slower:?}");
        assert_eq!(slower.unloaded, slower.latency);
        let later = read(300, 3_000_000_000, 1);
        assert_eq!((later.latency, later.count), (300, 1), "an old latency says nothing");
        meter.began();
        meter.ended(1 << 20, Some(MS), 3_000_000_001);
        meter.began();
        meter.ended(4096, None, 3_000_000_002);
        assert_eq!(meter.load(), later, "large and failed reads teach nothing");
    }

    fn any_load() -> impl Strategy<Value = Load> {
        let nanos = 0..100 * MS;
        (0..2_000u32, 0..64u32, nanos.clone(), nanos, 0..40_000 * MS).prop_map(
            |(in_flight, count, latency, unloaded, at)| Load {
                in_flight,
                count,
                latency,
                unloaded,
                at,
            },
        )
    }

    proptest! {
        /// Whatever came before, a hit is never sent to the origin in vain.
        #[test]
        fn the_origin_serves_only_where_it_helps(
            steps in prop::collection::vec((any_load(), any_load(), 0..3u32), 1..200)
        ) {
            let (mut policy, mut now) = (balance(), 0);
            for (flash, origin, what) in steps {
                now = now.max(origin.at);
                match what {
                    0 => policy.answered(&flash, &origin, now),
                    1 if origin.count == 0 => policy.failed(now),
                    _ => {}
                }
                let paused = now < policy.paused_until;
                let known = policy.knows(&flash, &origin, now);
                if policy.serves(&flash, &origin, now) {
                    prop_assert!(!paused && policy.concerns(&flash));
                    let busy = flash.in_flight >= policy.settings.least_in_flight;
                    let gain = if busy { flash.marginal() } else { flash.latency as f64 };
                    prop_assert!(!known || gain * HYSTERESIS > origin.marginal());
                    prop_assert!(known || origin.in_flight == 0);
                    prop_assert!(f64::from(origin.in_flight) < policy.window);
                }
                prop_assert!(policy.window >= FIRST_WINDOW);
            }
        }

        /// Flash that is not loaded serves every hit.
        #[test]
        fn without_load_the_policy_is_inert(
            in_flight in 0..8u32, unloaded in 1..MS, share in 0..=4u64, origin in any_load()
        ) {
            let mut policy = balance();
            let flash = load(in_flight, share * unloaded, unloaded, 1);
            for hit in 0..2_000 {
                prop_assert!(!policy.serves(&flash, &origin, origin.at + hit));
            }
        }

        /// A smoothed latency lies between the least and the largest of its values, and no count overflows.
        #[test]
        fn a_meter_stays_within_what_it_saw(
            took in prop::collection::vec(1_000..u64::from(u32::MAX), 1..300)
        ) {
            let mut meter = Meter::default();
            for (now, took) in took.iter().enumerate() {
                meter.began();
                meter.ended(512, Some(*took), now as u64);
            }
            let (least, most) = (*took.iter().min().unwrap(), *took.iter().max().unwrap());
            let load = meter.load();
            // Each step rounds by less than two.
            prop_assert!(load.latency + 700 >= least && load.latency <= most + 700, "{load:?}");
            prop_assert!(load.unloaded == 0 || (least..=most).contains(&load.unloaded));
            prop_assert_eq!(load.in_flight, 0);
        }
    }
}
