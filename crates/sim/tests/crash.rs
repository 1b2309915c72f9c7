// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seeded lives and crashes of a journaled volume (design rules 1, 2, 7, 9, 10).

use larder_sim::crash::{Lived, run};

#[test]
fn a_crash_never_leaves_a_stale_page() {
    let mut all = Lived::default();
    for seed in 0..150 {
        match run(seed) {
            Ok(lived) => all += lived,
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    println!("{all:?}");
    assert!(
        all.warm > 200 && all.warm_hits > 500 && all.recoveries > 4_500 && all.fenced > 10,
        "{all:?}"
    );
}
