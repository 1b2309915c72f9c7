// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rounds in which one member dies, or all members die.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use larder_core::pagelog::LogPolicy;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{Column, Life, MEMBERS, PAGES, look};

/// Deaths before the members are stopped and the whole state is checked.
const IN_A_LIFE: u64 = 10;
/// The access at which a member that shall not die by itself would die.
const NEVER: u64 = u64::MAX;

/// Members die one after the other: every other one by a kill at any time, the rest by themselves at an access to the
/// log's memory.
pub fn deaths(
    policy: LogPolicy,
    rounds: u64,
    mutant: Option<&'static str>,
    test: &'static str,
) -> Result<(), String> {
    let mut random = Pcg64Mcg::seed_from_u64(7 + policy as u64);
    let (mut done, mut put, mut evicted) = (0, 0, 0);
    for first in (0..rounds).step_by(IN_A_LIFE as usize) {
        let mut life = Life::new(policy, test).with_mutant(mutant);
        (0..MEMBERS).for_each(|index| life.spawn(index, NEVER));
        for round in first..rounds.min(first + IN_A_LIFE) {
            one_death(&mut life, round, &mut random).map_err(|e| format!("round {round}: {e}"))?;
        }
        life.stop()?;
        life.check()?;
        let pages = larder_shared::Pages::join(&life.memory(), super::devices(&life.dir()));
        let pages = pages.map_err(|errno| errno.to_string())?;
        done += (0..MEMBERS).map(|i| life.book.progress(i).load(SeqCst)).sum::<u64>();
        put += pages.status().put;
        evicted += pages.log().host().pages_evicted();
    }
    println!("{policy:?}: {rounds} deaths, {done} acts, {put} pages put, {evicted} evicted");
    Ok(())
}

fn one_death(life: &mut Life, round: u64, random: &mut Pcg64Mcg) -> Result<(), String> {
    life.wait_for_progress(0..MEMBERS, 5)?;
    let victim = random.random_range(0..MEMBERS);
    if round.is_multiple_of(2) {
        std::thread::sleep(Duration::from_micros(random.random_range(0..3_000)));
        life.kill(victim);
    } else {
        // Replace it by a member that is certain to die.
        life.kill(victim);
        life.spawn(victim, random.random_range(1..60_000));
        life.wait_for_death(victim)?;
    }
    // No member waits for the dead one.
    for index in (0..MEMBERS).filter(|index| *index != victim) {
        life.wait_for_progress(index..index + 1, 20)?;
    }
    life.spawn(victim, NEVER);
    Ok(())
}

/// All members die at once, `rounds` times, and the log is opened from its files alone.
pub fn reopened(policy: LogPolicy, rounds: u64, test: &'static str) -> Result<(), String> {
    let mut random = Pcg64Mcg::seed_from_u64(70 + policy as u64);
    let mut life = Life::new(policy, test);
    for round in 0..rounds.max(3) {
        (0..MEMBERS).for_each(|index| life.spawn(index, NEVER));
        life.wait_for_progress(0..MEMBERS, 30)?;
        std::thread::sleep(Duration::from_micros(random.random_range(0..20_000)));
        (0..MEMBERS).for_each(|index| life.kill(index));
        let shape = life.memory().shape();
        let pages = life.start(shape);
        for page in 0..PAGES {
            // The version is at least the flushed one, and must not change again.
            let book = &life.book;
            let flushed = book.get(Column::Flushed, page);
            book.of(Column::Done, page).store(flushed, SeqCst);
            book.of(Column::Seen, page).store(0, SeqCst);
            let found = look(&pages, book, page, false);
            let found = found.map_err(|why| format!("{policy:?}, round {round}: {why}"))?;
            book.of(Column::Done, page).store(found, SeqCst);
        }
    }
    Ok(())
}
