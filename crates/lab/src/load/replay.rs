// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests over a [`World`], each at its time or when one before it is answered.
//!
//! [`drive`] takes them as they come, so that a trace of any length needs no memory; [`replay`] is a
//! list, one after the other.
//!
//! Invariants: requests are begun in their order; at most so many as the [`Pace`] allows are in
//! flight, of no more than 256 MiB together, or one part; one that is longer than [`PART_BYTES`], which
//! no server takes whole, is asked for in parts and answered when the last part is; a request that
//! comes late counts as long as its client waited, from its own time on.
//!
//! Why one at a time for a desktop: it has one user, and of a single stream it can be said what part of
//! the time was reading and what writing. PRWC's Figures 11 to 13 must be meant so: three times the
//! write bandwidth, equal read bandwidth and half as much more in total agree only there.

use larder_core::exec::{Nanos, SECOND};
use larder_core::request::Kind;
use larder_sim::world::World;
use slab::Slab;

use super::desktop::Ask;

/// The longest request that every NBD server takes.
pub const PART_BYTES: u64 = 32 << 20;
/// So many bytes may be in flight, or one part.
const MOST_BYTES: u64 = 256 << 20;

/// When requests are begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Each at its time, or later if so many are in flight.
    AtTimes {
        /// At least one.
        most: usize,
    },
    /// Whenever fewer than so many (at least one) are in flight.
    Outstanding(usize),
}

impl Pace {
    fn most(self) -> usize {
        match self {
            Self::AtTimes { most } | Self::Outstanding(most) => most.max(1),
        }
    }
}

/// A request that is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// When; no earlier than the one before.
    pub at: Nanos,
    /// What it asks for.
    pub ask: Ask,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// What it asked for.
    pub ask: Ask,
    /// Served from flash: a read wholly, a write whose units were cached.
    pub hit: bool,
    /// How long its client waited.
    pub took: Nanos,
    /// How much later than its time it was begun.
    pub late: Nanos,
}

/// A request in flight.
struct Open {
    ask: Ask,
    due: Nanos,
    begun: Nanos,
    /// Bytes that are not answered yet.
    left: u64,
    hit: bool,
}

/// Requests in flight, and how far the last of them was asked for.
struct Driver {
    pace: Pace,
    open: Slab<Open>,
    bytes: u64,
    /// The next one.
    next: Option<Due>,
    /// The one whose parts are being asked for, and how many bytes of it were.
    asking: Option<(usize, u64)>,
}

impl Driver {
    /// Begins what may begin now.
    fn begin(&mut self, world: &mut World, mut source: impl FnMut() -> Option<Due>) {
        loop {
            self.next = self.next.or_else(&mut source);
            if self.asking.is_none() {
                let Some(due) = self.next else { return };
                let early = matches!(self.pace, Pace::AtTimes { .. }) && due.at > world.now();
                if early || self.open.len() >= self.pace.most() {
                    return;
                }
                let begun = world.now();
                let at = if let Pace::AtTimes { .. } = self.pace { due.at } else { begun };
                let open = Open { ask: due.ask, due: at, begun, left: due.ask.len, hit: true };
                self.asking = Some((self.open.insert(open), 0));
                self.next = None;
            }
            let Some((key, asked)) = self.asking else { return };
            let Some(Open { ask, .. }) = self.open.get(key) else { return };
            let len = (ask.len - asked).min(PART_BYTES);
            if self.bytes > 0 && self.bytes + len > MOST_BYTES {
                return;
            }
            let kind = if ask.writes { Kind::Write { fua: false } } else { Kind::Read };
            world.request((key as u64) << 32 | len, kind, ask.offset + asked, len, &[]);
            self.bytes += len;
            self.asking = Some((key, asked + len)).filter(|_| asked + len < ask.len);
        }
    }

    /// Until when nothing begins unless something is answered.
    fn until(&self) -> Nanos {
        match (self.pace, self.next) {
            (Pace::AtTimes { most }, Some(due))
                if self.asking.is_none() && self.open.len() < most.max(1) =>
            {
                due.at
            }
            _ => Nanos::MAX,
        }
    }

    /// Takes the answers that are there.
    fn take(
        &mut self,
        world: &mut World,
        seen: &mut impl FnMut(&mut World, Answered),
    ) -> Result<(), String> {
        while let Some(done) = world.next_finished() {
            let (key, len) = ((done.client >> 32) as usize, done.client & u64::from(u32::MAX));
            let Some(open) = self.open.get_mut(key) else { continue };
            done.result.map_err(|errno| format!("{:?} failed: {errno}", open.ask))?;
            open.hit &= done.hit;
            open.left -= len;
            self.bytes -= len;
            if open.left == 0 {
                let Open { ask, due, begun, hit, .. } = self.open.remove(key);
                let (took, late) = (world.now() - due, begun - due);
                seen(world, Answered { ask, hit, took, late });
            }
        }
        Ok(())
    }
}
/// What one kind of request came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Requests.
    pub requests: u64,
    /// Of which were served from flash: a read wholly, a write whose segment was cached.
    pub hits: u64,
    /// Bytes.
    pub bytes: u64,
    /// The time that they took together.
    pub took: Nanos,
}

impl Part {
    /// Bytes a second of its own time.
    #[must_use]
    pub fn bandwidth(&self) -> f64 {
        self.bytes as f64 * SECOND as f64 / self.took.max(1) as f64
    }

    /// Hits per request.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        self.hits as f64 / self.requests.max(1) as f64
    }
}

impl std::ops::AddAssign for Part {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.hits += other.hits;
        self.bytes += other.bytes;
        self.took += other.took;
    }
}

/// What a replay came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Its reads.
    pub reads: Part,
    /// Its writes.
    pub writes: Part,
}

impl Replayed {
    /// Both.
    #[must_use]
    pub fn all(&self) -> Part {
        let mut all = self.reads;
        all += self.writes;
        all
    }
}

impl std::ops::AddAssign for Replayed {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
    }
}

/// Begins requests at their pace and waits for all of them; `seen` receives each, in the order of
/// the answers.
///
/// # Errors
/// When one fails or is never answered.
pub fn drive(
    world: &mut World,
    pace: Pace,
    mut source: impl FnMut() -> Option<Due>,
    mut seen: impl FnMut(&mut World, Answered),
) -> Result<(), String> {
    let mut driver = Driver { pace, open: Slab::new(), bytes: 0, next: None, asking: None };
    loop {
        driver.begin(world, &mut source);
        if driver.open.is_empty() && driver.next.is_none() {
            return Ok(());
        }
        let until = driver.until();
        if !world.advance(until) {
            if until == Nanos::MAX {
                let ask = driver.open.iter().next().map(|(_, open)| open.ask);
                return Err(format!("{ask:?} is never answered"));
            }
            world.idle_until(until);
        }
        driver.take(world, &mut seen)?;
    }
}

/// Replays a list, one request after the other; `took` receives each and the time that it took.
///
/// # Errors
/// When one fails or is never answered.
pub fn replay(
    world: &mut World,
    asks: &[Ask],
    mut took: impl FnMut(&Ask, Nanos),
) -> Result<Replayed, String> {
    let (mut sum, mut asks) = (Replayed::default(), asks.iter());
    let source = || asks.next().map(|ask| Due { at: 0, ask: *ask });
    drive(world, Pace::Outstanding(1), source, |_, seen| {
        let Answered { ask, hit, took: span, .. } = seen;
        took(&ask, span);
        *if ask.writes { &mut sum.writes } else { &mut sum.reads } +=
            Part { requests: 1, hits: u64::from(hit), bytes: ask.len, took: span };
    })?;
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_sim::scenario::{plain_world, sce};

    #[test]
    fn times_add_up_and_hits_are_counted() {
        let mut world = plain_world(&sce(), 8, 8);
        let ask = |writes, offset| Ask { writes, offset, len: 4096 };
        let mut told = 0;
        let asks = [ask(false, 0), ask(true, 1 << 20)];
        let cold = replay(&mut world, &asks, |_, span| told += span).unwrap();
        assert_eq!(told, cold.all().took);
        assert_eq!((cold.reads.hits, cold.writes.requests), (0, 1));
        assert_eq!((cold.all().took, cold.all().bytes), (world.now(), 8192));
        world.idle_until(60 * SECOND);
        let warm = replay(&mut world, &[ask(false, 0), ask(false, 4096)], |_, _| ()).unwrap();
        assert_eq!(warm.reads.hit_ratio(), 1.0);
        assert!(warm.reads.bandwidth() > cold.reads.bandwidth());
    }

    fn driven(pace: Pace, dues: &[(Nanos, u64, u64)]) -> (Vec<Answered>, World) {
        let mut world = plain_world(&sce(), 128, 8);
        let mut seen = Vec::new();
        let mut dues = dues.iter();
        let due = |(at, offset, len): &(Nanos, u64, u64)| Due {
            at: *at,
            ask: Ask { writes: false, offset: *offset, len: *len },
        };
        drive(&mut world, pace, || dues.next().map(due), |_, one| seen.push(one)).unwrap();
        (seen, world)
    }

    #[test]
    fn requests_begin_at_their_times_and_wait_where_too_many_are_under_way() {
        // Each of them takes 1 to 2 ms.
        let dues = [(0, 0, 4096), (SECOND, 1 << 20, 4096), (SECOND, 2 << 20, 4096)];
        let (seen, world) = driven(Pace::AtTimes { most: 8 }, &dues);
        assert!(seen.iter().all(|one| one.late == 0 && (1_000_000..2_000_001).contains(&one.took)));
        assert!((1_001_000_000..1_003_000_000).contains(&world.now()), "{}", world.now());
        let (seen, _) = driven(Pace::AtTimes { most: 1 }, &dues);
        let late: Vec<bool> = seen.iter().map(|one| one.late > 0).collect();
        assert_eq!(late, [false, false, true]);
        // Its client has waited for both.
        assert_eq!(seen[2].late, seen[1].took);
        assert!(seen[2].took > seen[2].late + 999_999, "{seen:?}");
    }

    #[test]
    fn a_closed_loop_asks_for_no_times() {
        let dues: Vec<_> = (0..64).map(|n| (n * SECOND, n << 20, 4096)).collect();
        let span = |most| driven(Pace::Outstanding(most), &dues).1.now();
        assert!(span(1) > 64_000_000 && span(16) < span(1) / 8, "{} {}", span(1), span(16));
    }

    #[test]
    fn a_request_longer_than_any_server_takes_is_one_all_the_same() {
        let (seen, world) = driven(Pace::Outstanding(1), &[(0, 0, 2 * PART_BYTES + 512)]);
        assert_eq!((seen.len(), seen[0].ask.len), (1, 2 * PART_BYTES + 512));
        let requests = world.requests();
        assert_eq!((requests.reads, requests.read_bytes), (3, seen[0].ask.len));
    }
}
