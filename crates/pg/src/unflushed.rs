// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files on the disk that pages went to from flash, and that are still to be flushed, by whichever process.
//!
//! A word of shared memory for each: the number of the extent. One process makes pages leave, another makes the
//! disk durable, any may die: so a word goes only when its file was flushed, and one latch is kept over all of that.
//! A page's word is there before the log hears that the disk has the page. A table that is full flushes the file at
//! once.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use larder_core::request::Errno;

use crate::names::Number;

/// Names the latch.
pub const LATCH: u64 = u64::MAX - 1;

fn word(number: Number) -> u64 {
    number.bits() + 1
}

/// Under the latch: notes an extent; whether there was a place for it.
pub fn note(words: &[AtomicU64], number: Number) -> bool {
    let word = word(number);
    let is_ours = |w: &&AtomicU64| [0, word].contains(&w.load(Acquire));
    // Words are taken from the first on, and go all together.
    words.iter().find(is_ours).map(|place| place.store(word, Release)).is_some()
}

/// Under the latch: flushes all that was noted.
///
/// # Errors
/// If one cannot be; it stays.
pub fn flush(
    words: &[AtomicU64],
    flush: impl Fn(Vec<Number>) -> Vec<Result<(), Errno>>,
) -> Result<(), Errno> {
    let noted: Vec<u64> = words.iter().map(|w| w.load(Acquire)).take_while(|w| *w != 0).collect();
    let done = flush(noted.iter().map(|word| Number::of_bits(word - 1)).collect());
    let (mut free, mut result) = (0, Ok(()));
    // What stays moves to the first words, so that no free word precedes a taken one. For a moment it is there twice.
    for (word, done) in noted.iter().zip(done) {
        if let Err(errno) = done {
            words[free].store(*word, Release);
            free += 1;
            result = Err(errno);
        }
    }
    words[free..noted.len()].iter().rev().for_each(|place| place.store(0, Release));
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_flushed_once_and_stays_if_it_cannot_be() {
        let words: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
        let number = |n| Number::of_bits(n);
        for n in [1, 7, 1, (1 << 41) - 1, 0] {
            assert!(note(&words, number(n)));
        }
        assert!(!note(&words, number(8)), "full");
        let all = |_: Vec<Number>| -> Vec<Result<(), Errno>> { vec![Ok(()); 9] };
        let refuse = |noted: Vec<Number>| {
            let one = |n: &Number| if *n == number(7) { Err(Errno::EIO) } else { Ok(()) };
            noted.iter().map(one).collect()
        };
        assert_eq!(flush(&words, refuse), Err(Errno::EIO));
        let left: Vec<u64> = words.iter().map(|word| word.load(Acquire)).collect();
        assert_eq!(left, [word(number(7)), 0, 0, 0]);
        assert_eq!(flush(&words, all), Ok(()));
        assert!(words.iter().all(|word| word.load(Acquire) == 0));
    }
}
