// SPDX-License-Identifier: MIT OR Apache-2.0
//! `throughput`: how close a warm cache comes to flash alone.
//!
//! Method: the cache is larger than the data and warmed by reading all of it, in pieces and with
//! pauses, until all of it hits (or, where sets overflow, as much as can). Then the clients run for a
//! quarter of an hour of the paper, so that the array's write cache is as full as it gets, and for
//! five minutes more, in which everything counts. The same clients run over flash alone.
//! - *Transactions* (S4: 94 % of all-flash): 20 reads, 3 writes, 10 ms of computing, 16 clients,
//!   writes by bounded background cleaners ([`Plan::throughput`]). The origin is `array-16`: the
//!   clients ask for some 4,000 writes a second, and a write-through cache writes all of them to
//!   the origin, where the paper's three disks (`san-1g`, 820/s) would bound every cache alike. How
//!   busy the origin is with them is printed: as the share of the writes that the bare origin takes
//!   from the same cleaners when they have no end of work.
//! - *Reads*: the same number of clients reading without computing.
//! - *The pure closed loop*: no computing, and each client waits for its own writes. Here no
//!   write-through cache can come near all-flash, as a write takes what the origin takes for it. By
//!   the asymptotic bounds of a closed network, `N` clients with `r` reads and `w` writes each do
//!   at most `min(N / (r f + w o), W / w)` transactions a second: `f` and `o` are what a read of the
//!   bare flash and a write of the bare origin take alone, so the first term is clients that never
//!   queue; `W` is how many writes a second the bare origin takes from `N` writers at once, so the
//!   second is an origin that never idles. What is measured stands beside that bound. Its origin is
//!   `san-1g`.
//!
//! Why warm without writes: a write during warm-up is a page that may stay invalid, and the bench `warm-up` measures
//! how pages become valid again. Writes of the measured part count in full.

use anyhow::Result;
use larder_core::buf::PAGE;
use larder_core::exec::{Nanos, SECOND};
use larder_core::request::Kind;
use larder_lab::device::Device;
use larder_lab::jobs::run_jobs;
use larder_lab::latencies::Latencies;
use larder_lab::load::clients::{Clients, Plan, Seen, What};
use larder_lab::load::{
    CLEANERS, DATA_BYTES, FLASH_A_BYTES, HOUR, Oltp, Pattern, REGION_BYTES, WALK_PAGES,
    WRITES_PER_READ,
};
use larder_lab::scenario::volume::{SAN_PROFILE, Setup, System, world};
use larder_model::profiles;
use larder_report::{Figure, Spread};
use larder_sim::world::World;

use super::common::{BenchOptions, Findings};
use super::row::{Goal, Row, median};

const NAME: &str = "throughput";
/// The origin that bears the writes.
pub(super) const ARRAY_PROFILE: &str = "array-16";
const CLIENTS: u32 = 16;
/// Regions that are warmed together: fewer than a heat list is long.
const TOGETHER: usize = 80;
/// Times that those are asked for before the next.
const ATTEMPTS: usize = 50;

/// The loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loop {
    Transactions,
    Reads,
    Pure,
}

impl Loop {
    fn plan(self) -> Plan {
        match self {
            Self::Transactions => Plan::throughput(),
            Self::Reads => Plan { writes: 0.0, ..Plan::pure(CLIENTS) },
            Self::Pure => Plan::pure(CLIENTS),
        }
    }

    fn origin(self) -> &'static str {
        if self == Self::Pure { SAN_PROFILE } else { ARRAY_PROFILE }
    }

    fn systems(self) -> Vec<System> {
        let mut systems = vec![System::AllFlash, System::Preset("sce")];
        if self == Self::Transactions {
            systems.extend(System::CACHES.iter().skip(1));
            systems.push(System::NoCache);
        }
        systems
    }
}

/// The result of one measured part.
#[derive(Clone, Copy, Default)]
pub(super) struct Found {
    pub per_second: f64,
    pub reads_per_second: f64,
    pub writes_per_second: f64,
    pub hit_ratio: f64,
    pub p50_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
}

/// A loop from one seed: every system in the order of [`Loop::systems`], and the bare devices.
struct Outcome {
    systems: Vec<Found>,
    /// Writes a second that the bare origin takes from all cleaners, and from all clients.
    cleaned_per_second: f64,
    written_per_second: f64,
    /// What a write of the bare origin and a read of the bare flash take alone, in seconds.
    write_seconds: f64,
    read_seconds: f64,
}

pub(super) fn run(options: &BenchOptions) -> Result<Findings> {
    let (seeds, lead, span) =
        if options.quick { (1, HOUR / 60, HOUR / 30) } else { (3, HOUR / 4, HOUR / 12) };
    let loops = [Loop::Transactions, Loop::Reads, Loop::Pure];
    let jobs: Vec<(Loop, u64)> =
        loops.into_iter().flat_map(|kind| (1..=seeds).map(move |seed| (kind, seed))).collect();
    let words = |(kind, seed): &(Loop, u64)| format!("{kind:?}, seed {seed}");
    let outcomes = run_jobs(NAME, &jobs, words, |(kind, seed)| one(*kind, *seed, (lead, span)))?;
    let mut found = Findings::default();
    for (kind, outcomes) in loops.into_iter().zip(outcomes.chunks(seeds as usize)) {
        found.rows.extend(match kind {
            Loop::Transactions => transactions(outcomes, options),
            Loop::Reads => reads(outcomes, options),
            Loop::Pure => pure(outcomes),
        });
        if kind == Loop::Transactions {
            found.figures = pictures(outcomes);
        }
    }
    Ok(found)
}

fn pictures(outcomes: &[Outcome]) -> Vec<Figure> {
    let systems = || Loop::Transactions.systems().into_iter().enumerate();
    let bars = systems().map(|(n, s)| (s.name().to_owned(), mid(outcomes, n, |f| f.per_second)));
    let spreads = systems().map(|(n, system)| Spread {
        name: system.name().to_owned(),
        p50: mid(outcomes, n, |f| f.p50_us) / 1e3,
        p95: mid(outcomes, n, |f| f.p95_us) / 1e3,
        p99: mid(outcomes, n, |f| f.p99_us) / 1e3,
    });
    let caption =
        "20 reads, 3 writes by background cleaners, 10 ms of computing, 16 clients; warm.";
    vec![
        Figure::bars("Transactions, warm", caption, "transactions a second", bars.collect()),
        Figure::spreads(
            "Latency of transactions, warm",
            caption,
            "milliseconds",
            spreads.collect(),
        ),
    ]
}

fn setup(kind: Loop, system: System, seed: u64) -> Result<Setup> {
    let setup = Setup::paper(system, Pattern::Oltp, FLASH_A_BYTES, 1, seed)?;
    Ok(Setup { origin: Device::named(kind.origin())?, ..setup })
}

fn one(kind: Loop, seed: u64, spans: (Nanos, Nanos)) -> Result<Outcome> {
    let mut systems = Vec::new();
    for system in kind.systems() {
        let mut world = world(&setup(kind, system, seed)?)?;
        if let System::Preset(_) = system {
            warm(&mut world);
        }
        systems.push(measure(&mut world, kind.plan(), seed, spans));
    }
    let bare = |system, kind_of, depth| -> Result<f64> {
        let mut world = world(&setup(kind, system, seed)?)?;
        Ok(flood(&mut world, kind_of, depth, seed))
    };
    let write = Kind::Write { fua: false };
    Ok(Outcome {
        systems,
        cleaned_per_second: bare(System::NoCache, write, CLEANERS)?,
        written_per_second: bare(System::NoCache, write, CLIENTS)?,
        write_seconds: 1.0 / bare(System::NoCache, write, 1)?,
        read_seconds: 1.0 / bare(System::AllFlash, Kind::Read, 1)?,
    })
}

/// Asks for all data, some regions at a time and those again until they hit, with pauses in which
/// population has the origin for itself. Not in order, or a bypass of streams would see one.
pub(super) fn warm(world: &mut World) {
    let count = DATA_BYTES / REGION_BYTES;
    let regions: Vec<u64> = (0..count).map(|i| i * 6337 % count).collect();
    for some in regions.chunks(TOGETHER) {
        for _ in 0..ATTEMPTS {
            let mut missed = false;
            for region in some {
                world.request(0, Kind::Read, region * REGION_BYTES, REGION_BYTES, &[]);
                missed |= !wait(world);
            }
            if !missed {
                break;
            }
            world.idle_until(world.now() + 20 * SECOND);
        }
    }
}

/// Waits for the only request; whether it hit.
fn wait(world: &mut World) -> bool {
    loop {
        if let Some(done) = world.next_finished() {
            return done.hit;
        }
        if !world.advance(Nanos::MAX) {
            return false;
        }
    }
}

/// Requests a second when so many are in flight at any time, over pages of the load, once what the
/// device's own cache absorbs is over.
fn flood(world: &mut World, kind: Kind, depth: u32, seed: u64) -> f64 {
    let mut load = Oltp::new(Pattern::Oltp, DATA_BYTES, seed);
    let (begin, end, mut count) = (20 * SECOND, 40 * SECOND, 0u64);
    let mut ask = |world: &mut World| {
        let page = load.transaction(1, 0.0).reads.first().copied().unwrap_or(0);
        world.request(0, kind, page, PAGE as u64, &[]);
    };
    (0..depth).for_each(|_| ask(world));
    while world.now() < end && world.advance(Nanos::MAX) {
        while world.next_finished().is_some() {
            count += u64::from(world.now() >= begin);
            ask(world);
        }
    }
    count as f64 * SECOND as f64 / (end - begin) as f64
}

/// Runs the clients, first for a while in which nothing counts, then for the measured part.
pub(super) fn measure(
    world: &mut World,
    plan: Plan,
    seed: u64,
    (lead, span): (Nanos, Nanos),
) -> Found {
    let load = Oltp::new(Pattern::Oltp, DATA_BYTES, seed);
    let mut clients = Clients::starting(plan, load, world.now());
    let begin = world.now() + lead;
    clients.run(world, begin, |_| ());
    let before = world.requests();
    let mut transactions = Latencies::new();
    clients.run(world, begin + span, |seen: Seen| {
        if seen.what == What::Transaction {
            transactions.record(seen.took);
        }
    });
    let after = world.requests();
    let per_second = |count: u64| count as f64 * SECOND as f64 / span as f64;
    let reads = after.reads - before.reads;
    Found {
        per_second: per_second(transactions.count()),
        reads_per_second: per_second(reads),
        writes_per_second: per_second(after.writes - before.writes),
        hit_ratio: (after.read_hits - before.read_hits) as f64 / reads.max(1) as f64,
        p50_us: transactions.quantile_us(0.5),
        p95_us: transactions.quantile_us(0.95),
        p99_us: transactions.quantile_us(0.99),
    }
}

/// A figure of one system, of each seed.
fn each(outcomes: &[Outcome], system: usize, figure: impl Fn(&Found) -> f64) -> Vec<f64> {
    outcomes.iter().filter_map(|o| o.systems.get(system)).map(figure).collect()
}

fn mid(outcomes: &[Outcome], system: usize, figure: impl Fn(&Found) -> f64) -> f64 {
    median(&each(outcomes, system, figure))
}

fn latencies(outcomes: &[Outcome], system: usize) -> String {
    format!(
        "hit ratio {:.4}, p50 {:.2} ms, p99 {:.2} ms",
        mid(outcomes, system, |f| f.hit_ratio),
        mid(outcomes, system, |f| f.p50_us) / 1e3,
        mid(outcomes, system, |f| f.p99_us) / 1e3
    )
}

fn transactions(outcomes: &[Outcome], options: &BenchOptions) -> Vec<Row> {
    let mut rows = Vec::new();
    let alone: Vec<f64> = outcomes.iter().map(|o| o.cleaned_per_second).collect();
    for (number, system) in Loop::Transactions.systems().into_iter().enumerate().skip(1) {
        let rate = |n| each(outcomes, n, |f| f.per_second);
        let row = Row::new(NAME, format!("transactions, {}", system.name()), "tx/s")
            .paired("all-flash", &rate(number), &rate(0))
            .note(format!(
                "{}; all-flash: {}",
                latencies(outcomes, number),
                latencies(outcomes, 0)
            ));
        let goal = system == System::Preset("sce") && !options.quick;
        rows.push(if goal { row.goals(&[Goal::RatioAtLeast(0.94)]) } else { row });
    }
    let row = Row::new(NAME, "transactions, writes of the origin, sce", "writes/s")
        .paired(
            &format!("what bare {ARRAY_PROFILE} takes from {CLEANERS} cleaners"),
            &each(outcomes, 1, |f| f.writes_per_second),
            &alone,
        )
        .goals(&[Goal::RatioAtMost(0.5)]);
    let rated =
        profiles().iter().find(|p| p.name == ARRAY_PROFILE).map_or(0, |p| p.rated.write_iops_qd32);
    rows.push(row.note(format!(
        "the condition under which the rows above mean something; the array's cache is not scaled \
         and takes much of this load: of the {rated} writes/s that it sustains at random on a large \
         volume, these would be {:.0} %",
        mid(outcomes, 1, |f| f.writes_per_second) * 100.0 / rated.max(1) as f64
    )));
    rows
}

fn reads(outcomes: &[Outcome], options: &BenchOptions) -> Vec<Row> {
    let rate = |n| each(outcomes, n, |f| f.reads_per_second);
    let row = Row::new(NAME, format!("reads, {CLIENTS} clients, sce"), "reads/s")
        .paired("all-flash", &rate(1), &rate(0))
        .note(latencies(outcomes, 1));
    vec![if options.quick { row } else { row.goals(&[Goal::RatioAtLeast(0.97)]) }]
}

fn pure(outcomes: &[Outcome]) -> Vec<Row> {
    let rate = |n| each(outcomes, n, |f| f.per_second);
    let reads = WALK_PAGES as f64;
    let writes = reads * WRITES_PER_READ;
    let bound = |o: &Outcome| {
        let clients = f64::from(CLIENTS) / (reads * o.read_seconds + writes * o.write_seconds);
        clients.min(o.written_per_second / writes)
    };
    let bounds: Vec<f64> = outcomes.iter().map(bound).collect();
    let figure = |of: fn(&Outcome) -> f64| median(&outcomes.iter().map(of).collect::<Vec<_>>());
    let note = format!(
        "{}; bare: a read {:.3} ms, a write {:.2} ms, {:.0} writes/s from {CLIENTS} writers; \
         all-flash does {:.0} tx/s",
        latencies(outcomes, 1),
        figure(|o| o.read_seconds) * 1e3,
        figure(|o| o.write_seconds) * 1e3,
        figure(|o| o.written_per_second),
        median(&rate(0)),
    );
    let case = format!("pure closed loop, {CLIENTS} clients, sce");
    let row = Row::new(NAME, case, "tx/s");
    vec![row.paired("the analytic bound of any write-through cache", &rate(1), &bounds).note(note)]
}
