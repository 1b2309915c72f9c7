// SPDX-License-Identifier: MIT OR Apache-2.0
//! A list of requests over a [`World`], one after the other, each when the one before it is
//! answered.
//!
//! Why one at a time: a desktop has one user, and of a single stream it can be said what part of
//! the time was reading and what writing. PRWC's Figures 11 to 13 must be meant so: three times the
//! write bandwidth, equal read bandwidth and half as much more in total agree only there.

use larder_core::exec::{Nanos, SECOND};
use larder_core::request::Kind;

use super::desktop::Ask;
use crate::world::World;

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

/// Replays requests; `took` is told of each and of the time that it took.
///
/// # Errors
/// When one fails or is never answered.
pub fn replay(
    world: &mut World,
    asks: &[Ask],
    mut took: impl FnMut(&Ask, Nanos),
) -> Result<Replayed, String> {
    let mut sum = Replayed::default();
    for ask in asks {
        let began = world.now();
        let kind = if ask.writes { Kind::Write { fua: false } } else { Kind::Read };
        world.request(0, kind, ask.offset, ask.len, &[]);
        let done = loop {
            if let Some(done) = world.next_finished() {
                break done;
            }
            if !world.advance(Nanos::MAX) {
                return Err(format!("{ask:?} is never answered"));
            }
        };
        done.result.map_err(|errno| format!("{ask:?} failed: {errno}"))?;
        let part = Part {
            requests: 1,
            hits: u64::from(done.hit),
            bytes: ask.len,
            took: world.now() - began,
        };
        took(ask, part.took);
        *if ask.writes { &mut sum.writes } else { &mut sum.reads } += part;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{plain_world, sce};

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
}
