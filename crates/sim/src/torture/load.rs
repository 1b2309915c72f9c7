// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps of a history: requests, crashes, power cuts to be checked, and troubles.
//!
//! Every history has at least `REQUESTS` requests and three crashes, and checks so many power
//! cuts that thirty recoveries are checked.

use larder_core::buf::SECTOR;
use larder_core::exec::MILLISECOND;
use larder_core::request::Kind;
use larder_core::shard::Arrangement;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::history::{RECOVERIES, REQUESTS};
use super::mix::by_weight;
use super::profile::Profile;
use super::promise::Trouble;
use super::rot::flippable;
use super::setup::{HANGING, Setup};
use super::step::{Fault, Rule, Step, Stop};

/// Outcomes checked for one power cut.
const OUTCOMES: u32 = 4;

/// Where the requests of a history go.
struct Aim<'a> {
    row: &'a Profile,
    setup: &'a Setup,
    /// First sectors of the few pages that many requests go to.
    hot: Vec<u64>,
    /// Where a stream continues, in each volume.
    next: Vec<u64>,
    /// Whether requests are whole pages.
    aligned: f64,
}

/// Draws the steps.
pub(super) fn steps(row: &Profile, setup: &Setup, rng: &mut Pcg64Mcg) -> Vec<Step> {
    let sectors = setup.volumes.range(0).end / SECTOR as u64;
    let hot = (0..rng.random_range(2..10)).map(|_| rng.random_range(0..sectors) / 8 * 8).collect();
    let aligned = [0.2, 0.6, 0.95][rng.random_range(0..3)];
    let next = vec![0; setup.volumes.count() as usize];
    let mut aim = Aim { row, setup, hot, next, aligned };
    let crashes = rng.random_range(row.crashes.clone());
    // A crash leaves requests unanswered.
    let hanging = if setup.trouble == Trouble::OriginHangs { HANGING } else { 0 };
    let unanswered = (setup.in_flight + hanging) as u32;
    let requests = REQUESTS + crashes * unanswered + rng.random_range(0..60);
    let cuts = (RECOVERIES.saturating_sub(crashes)).div_ceil(OUTCOMES) + rng.random_range(0..3);
    // When crashes and cuts come: after so many requests.
    let mut stops: Vec<u32> = (1..crashes).map(|_| rng.random_range(0..requests)).collect();
    if row.bursts {
        for i in (0..stops.len()).filter(|i| i % 3 > 0).collect::<Vec<_>>() {
            stops[i] = stops[i / 3 * 3] + rng.random_range(0..4);
        }
    }
    let cuts: Vec<u32> = (0..cuts).map(|_| rng.random_range(0..requests)).collect();
    let pace = [0.1, 0.3, 0.6][rng.random_range(0..3)];
    let mut steps = Vec::with_capacity(2 * requests as usize);
    for number in 0..requests {
        for _ in stops.iter().filter(|s| **s == number) {
            steps.push(crash(setup, rng));
        }
        for _ in cuts.iter().filter(|c| **c == number) {
            steps.push(Step::Cut(rng.random(), OUTCOMES));
        }
        trouble(setup, rng, &mut steps);
        for (chance, step) in setup.kind.asks {
            if rng.random_bool(*chance) {
                steps.push(*step);
            }
        }
        administrate(&aim, rng, &mut steps);
        steps.push(aim.ask(rng));
        if rng.random_bool(pace) {
            steps.push(Step::Go(rng.random_range(1..6)));
        }
        if row.rest.0 > 0 && rng.random_range(0..row.rest.0) == 0 {
            steps.push(Step::Rest(rng.random_range(1..=row.rest.1) * MILLISECOND));
        }
    }
    // Those that drew a number beyond the last request.
    steps.extend(stops.iter().filter(|s| **s >= requests).map(|_| crash(setup, rng)));
    steps.push(Step::Crash(rng.random(), Stop::Power, true));
    steps
}

/// What an administrator asks for before a request.
fn administrate(aim: &Aim<'_>, rng: &mut Pcg64Mcg, steps: &mut Vec<Step>) {
    let (row, setup) = (aim.row, aim.setup);
    if row.plugs > 0.0 && rng.random_bool(row.plugs) {
        let away = rng.random_bool(0.4);
        let same = rng.random_bool(0.5);
        steps.push(if away { setup.kind.leaves } else { Step::Attach(same) });
    }
    if row.departs > 0.0 && rng.random_bool(row.departs) {
        let volume = rng.random_range(0..setup.volumes.count());
        let away = rng.random_bool(0.5);
        steps.push(if away { Step::Depart(volume) } else { Step::Return(volume) });
    }
    if row.arranges > 0.0 && rng.random_bool(row.arranges) {
        steps.push(aim.arrange(rng));
    }
    if row.scrubs > 0.0 && rng.random_bool(row.scrubs) {
        let (first, len) = aim.range(rng);
        steps.push(Step::Scrub(first, len));
    }
    if row.resizes > 0.0 && rng.random_bool(row.resizes) {
        steps.push(Step::Resize(rng.random_range(0..=10)));
    }
    if row.settings > 0.0 && rng.random_bool(row.settings) {
        steps.push(Step::Set(rng.random()));
    }
    if row.rules > 0.0 && rng.random_bool(row.rules) {
        let rules = [Rule::Pin, Rule::Pin, Rule::Exclude, Rule::Exclude, Rule::Forget];
        let rule = rules[rng.random_range(0..5)];
        let (first, len) = aim.range(rng);
        steps.push(Step::Rule(rule, first, len));
    }
}

fn crash(setup: &Setup, rng: &mut Pcg64Mcg) -> Step {
    let stops = setup.kind.stops;
    let sum = stops.iter().map(|stop| stop.0).sum();
    let (_, stop) = *by_weight(stops, |stop| stop.0, rng.random_range(0..sum));
    Step::Crash(rng.random(), stop, rng.random_bool(0.7))
}

fn trouble(setup: &Setup, rng: &mut Pcg64Mcg, steps: &mut Vec<Step>) {
    let (begins, ends) = match setup.trouble {
        Trouble::None => return,
        Trouble::MetadataRot | Trouble::DataRot => {
            if rng.random_bool(0.01) {
                let sector = flippable(setup, |below| rng.random_range(0..below));
                steps.push(Step::Fault(Fault::Flip(sector, rng.random_range(0..4096))));
            }
            (0.02, 0.02)
        }
        Trouble::FlashVanishes | Trouble::FlashShrinks | Trouble::OriginGone => (0.002, 0.02),
        Trouble::OriginFlushErrors | Trouble::OriginForgets => (0.003, 0.05),
        _ => (0.01, 0.03),
    };
    if rng.random_bool(begins) {
        steps.push(Step::Fault(Fault::Begins));
    } else if rng.random_bool(ends) {
        steps.push(Step::Fault(Fault::Ends));
    }
}

impl Aim<'_> {
    fn ask(&mut self, rng: &mut Pcg64Mcg) -> Step {
        let mix = self.row.mix;
        let fua = rng.random_bool(0.1);
        let kinds = [
            (mix.read, Kind::Read),
            (mix.write, Kind::Write { fua }),
            (mix.trim, Kind::Trim { fua }),
            (mix.zero, Kind::Zero { fua, may_unmap: true }),
            (mix.flush, Kind::Flush),
            (mix.fill, Kind::Zero { fua, may_unmap: false }),
        ];
        let sum = kinds.iter().map(|kind| kind.0).sum();
        let kind = by_weight(&kinds, |k| k.0, rng.random_range(0..sum)).1;
        let volume = match self.setup.volumes.count() {
            1 => 0,
            several => rng.random_range(0..several),
        };
        let range = self.setup.volumes.range(volume);
        if kind == Kind::Flush {
            return Step::Ask(kind, range.start, 0);
        }
        let next = self.next[volume as usize];
        let (first, count) = self.place((range.end - range.start) / SECTOR as u64, next, rng);
        self.next[volume as usize] = first + count;
        Step::Ask(kind, range.start + first * SECTOR as u64, count * SECTOR as u64)
    }

    /// Warms or evicts a few units.
    fn arrange(&self, rng: &mut Pcg64Mcg) -> Step {
        let what = if rng.random_bool(0.6) { Arrangement::Warm } else { Arrangement::Evict };
        let (first, len) = self.range(rng);
        Step::Arrange(what, first, len)
    }

    /// The first byte of a range of a few units, and its length.
    fn range(&self, rng: &mut Pcg64Mcg) -> (u64, u64) {
        let range = self.setup.volumes.range(rng.random_range(0..self.setup.volumes.count()));
        let first = rng.random_range(range.start..range.end) / SECTOR as u64 * SECTOR as u64;
        let len = rng.random_range(1..=4) * self.setup.shape.unit_bytes;
        (first, len.min(range.end - first))
    }

    /// A place in a volume, in sectors.
    fn place(&self, sectors: u64, next: u64, rng: &mut Pcg64Mcg) -> (u64, u64) {
        let unit = self.setup.shape.unit_bytes / SECTOR as u64;
        let aligned = rng.random_bool(self.aligned);
        let count = match (rng.random_range(0..20), aligned) {
            (0, _) => rng.random_range(1..=64),
            (1..12, true) => 8,
            (_, true) => 8 * rng.random_range(1..5),
            (_, false) => rng.random_range(1..=20),
        };
        let mut first = match rng.random_range(0..100) {
            p if p < self.row.hot => {
                let page = self.hot[rng.random_range(0..self.hot.len())];
                page.min(sectors - 1) + if aligned { 0 } else { rng.random_range(0..8) }
            }
            p if p < self.row.hot + self.row.scan && next < sectors => next,
            p if p % 16 == 15 => (rng.random_range(0..sectors) / unit * unit).saturating_sub(4),
            _ => rng.random_range(0..sectors),
        };
        if aligned {
            first = first / 8 * 8;
        }
        first = first.min(sectors - 1);
        (first, count.min(sectors - first))
    }
}
