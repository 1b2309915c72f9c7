// SPDX-License-Identifier: MIT OR Apache-2.0
//! Damaged images of every format that Larder reads from flash or from its state directory: labels and metadata of units,
//! page logs, state files. The damage is random and the same in every run: inputs of the fuzz corpus, changed, and random
//! pieces. The checks are those of the fuzz targets.
//!
//! Without a variable a few hundred of each. `LARDER_DAMAGED_IMAGES=100000 cargo test --release -p larder-front --test
//! damaged_images` reads 100,000 of each.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::panic::catch_unwind;
use std::path::PathBuf;

use larder_testkit::fuzz::{corpus, metadata, page_log, state_file};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const FEW: u64 = 300;
/// The most memory of this process, in KiB: the images are small.
const MEMORY_KIB: u64 = 400 << 10;

fn count() -> u64 {
    std::env::var("LARDER_DAMAGED_IMAGES").map_or(FEW, |count| count.parse().unwrap())
}

/// An input of the corpus with some bytes changed, or a random one of up to a dozen pieces.
fn damaged(corpus: &[(PathBuf, Vec<u8>)], numbers: &mut Pcg64Mcg) -> Vec<u8> {
    let mut input = match numbers.random_ratio(2, 3) {
        true => corpus[numbers.random_range(0..corpus.len())].1.clone(),
        false => {
            let mut input = vec![0; numbers.random_range(2..400)];
            numbers.fill_bytes(&mut input);
            input
        }
    };
    for _ in 0..numbers.random_range(0..8) {
        let at = numbers.random_range(0..=input.len());
        match numbers.random_range(0..4) {
            0 => input.truncate(at.max(2)),
            1 => input.insert(at, numbers.random()),
            _ if at < input.len() => input[at] = numbers.random(),
            _ => input.push(0xff),
        }
    }
    input
}

fn read_all(target: &str, check: fn(&[u8])) {
    let corpus = corpus(target);
    for image in 0..count() {
        let input = damaged(&corpus, &mut Pcg64Mcg::seed_from_u64(image));
        let judged = catch_unwind(|| check(&input));
        assert!(judged.is_ok(), "{target}, image {image}: {input:?}");
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let most: u64 = most.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(most < MEMORY_KIB, "{most} KiB of memory");
    println!("{target}: {} damaged images, at most {most} KiB of memory", count());
}

#[test]
fn damaged_metadata_is_recovered_or_rejected() {
    read_all("metadata", metadata::check);
}

#[test]
fn a_damaged_page_log_is_recovered_or_rejected() {
    read_all("page_log", page_log::check);
}

#[test]
fn a_damaged_state_file_is_parsed_or_rejected() {
    read_all("state_file", state_file::check);
}
