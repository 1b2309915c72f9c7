// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request that spans several small units is one operation on the origin, except where flash serves a part of it.

use larder_core::config::preset;
use larder_core::request::Kind;
use larder_sim::scenario::plain_world;
use larder_sim::world::{ORIGIN, World};

const PAGE: u64 = 4096;

/// Reads and changes of the origin that a request needs.
fn operations(world: &mut World, kind: Kind, page: u64, pages: u64) -> (u64, u64) {
    let before = world.device(ORIGIN).operations();
    world.request(0, kind, page * PAGE, pages * PAGE, &[]);
    while world.next_finished().is_none() && world.advance(u64::MAX) {}
    world.idle_until(world.now() + 1_000_000_000);
    let after = world.device(ORIGIN).operations();
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn a_request_that_misses_in_adjoining_units_is_one_operation_on_the_origin() {
    for name in ["bcache", "enhanceio", "flashcache"] {
        let Some(preset) = preset(name) else { panic!("{name} is a preset") };
        let mut world = plain_world(&preset.choices(), 4096, 1024);
        let mut count = |kind, page, pages| operations(&mut world, kind, page, pages);
        assert_eq!(count(Kind::Read, 10, 1), (1, 0), "{name}: one unit");
        assert_eq!(count(Kind::Read, 20, 2), (1, 0), "{name}: two units");
        assert_eq!(count(Kind::Read, 20, 2), (0, 0), "{name}: a hit");
        assert_eq!(count(Kind::Read, 19, 3), (1, 0), "{name}: a hit at the end");
        assert_eq!(count(Kind::Read, 8, 6), (2, 0), "{name}: a hit in the middle");
        assert_eq!(count(Kind::Read, 250, 12), (2, 0), "{name}: across a border of stripes");
        assert_eq!(count(Kind::Write { fua: false }, 20, 64), (0, 1), "{name}: a write");
        assert_eq!(count(Kind::Write { fua: true }, 300, 3), (0, 1), "{name}: a write under FUA");
    }
}
