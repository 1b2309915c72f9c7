// SPDX-License-Identifier: MIT OR Apache-2.0
//! A party stands still, or dies, at one of its operations while another goes on.

use super::*;

/// Another party dies while it builds the chains anew: nothing is found until somebody repairs them.
fn die_in_repair(world: &Rc<World>, other: &Log) {
    world.died.set(true);
    let died = world.until_death(other.host().name, 2 * u64::from(other.log.blocks), || {
        other.status();
    });
    assert!(died);
}

#[test]
fn what_is_brought_to_the_origin_is_looked_for_under_the_lock() {
    let mut rig = Rig::new(LogPolicy::Bounded, false);
    let log = rig.open(1);
    (0..9).for_each(|page| put(&log, page, 1));
    let (other, world) = (rig.join(2), Rc::clone(&rig.world));
    rig.world.at(Op::Hold, 3, move || die_in_repair(&world, &other));
    now(log.drain()).expect("drains");
    drop(log);
    let log = rig.cut(3);
    (0..9).for_each(|page| assert_eq!(version(&log, page), 1, "page {page}"));
}
