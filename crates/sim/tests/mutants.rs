// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every named mutant of the engine must be caught by the model check, and the same seed must
//! pass without it. Run with `--features mutants`.
#![cfg(feature = "mutants")]

use larder_core::mutant::{MUTANTS, activate};
use larder_sim::check::{Check, TROUBLES, run};
use larder_sim::{crash, scenario};

/// The first of `seeds` with which the check catches what is active.
fn first_catch(seeds: u64) -> Option<(Check, String)> {
    (0..seeds).find_map(|seed| {
        let unit_bytes = [4 << 10, 64 << 10, 256 << 10, 1 << 20][(seed % 4) as usize];
        let trouble = TROUBLES[(seed / 4 % 5) as usize];
        let in_flight = [4, 64][(seed / 20 % 2) as usize];
        let check =
            Check { seed, unit_bytes, in_flight, requests: 600, shards: 1, trouble, preset: None };
        run(&check).err().map(|violation| (check, violation))
    })
}

#[test]
fn every_mutant_is_caught() {
    let mut survivors = Vec::new();
    for mutant in MUTANTS {
        activate(Some(mutant.name));
        let caught = if mutant.name == "displace-anything" {
            scenario::hot_units_stay().err().map(|e| (None, e))
        } else if mutant.rule >= 9 {
            let found = (0..2_000).find_map(|seed| crash::run(seed).err().map(|e| (seed, e)));
            activate(None);
            match found {
                Some((seed, why)) => {
                    println!("{}: crash seed {seed}: {why}", mutant.name);
                    assert!(crash::run(seed).is_ok(), "seed {seed} fails without {}", mutant.name);
                }
                None => survivors.push(mutant.name),
            }
            continue;
        } else {
            first_catch(600).map(|(check, e)| (Some(check), e))
        };
        activate(None);
        match caught {
            Some((Some(check), why)) => {
                println!("{}: seed {}: {why}", mutant.name, check.seed);
                assert!(run(&check).is_ok(), "{check:?} fails without {} too", mutant.name);
            }
            Some((None, why)) => {
                println!("{}: {why}", mutant.name);
                assert!(scenario::hot_units_stay().is_ok());
            }
            None => survivors.push(mutant.name),
        }
    }
    assert!(survivors.is_empty(), "not caught: {survivors:?}");
}
