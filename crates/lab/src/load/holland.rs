// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trace generator of Holland et al. (4): a file server, working sets of it, requests of both.
//!
//! Purpose: the load of their Figures 2 to 12. Files with a popularity make up the server; working
//! sets are pieces of files; most requests go to the host's working set, the others anywhere.
//! Threads are alike and each has a stream of its own, as the paper's are dealt out evenly.
//!
//! # What the paper leaves open: knobs, and what they are set to
//! - *File sizes* (from a generator of file systems): log-normal around [`HollandSpec::file_blocks`]
//!   with a standard deviation of [`HollandSpec::file_spread`] of the logarithm.
//! - *Popularity* (small integers, Zipfian): 1 to [`HollandSpec::popularity_most`], `k` being drawn
//!   with a chance in proportion to `k^-popularity_exponent`. The default has one popularity for
//!   all: the hit ratios that the paper states for its 160 GB working set (3.4 % in RAM, 47 % in
//!   128 GB of flash, 7.2) are those of uniform access (H7).
//! - *Whether a large file gets more requests than a small one of the same popularity*: yes, in
//!   proportion. Else the blocks of small files would be far hotter than the same hit ratios allow.
//! - *Means of the Poisson sizes*: [`HollandSpec::io_blocks`], [`HollandSpec::region_blocks`].
//! - *Pieces that overlap*: the part that is in the working set already is left out, so that a
//!   working set has as many different blocks as specified.
//!
//! Invariants: equal specs and seeds give equal streams on every machine; a thread's stream depends
//! on its number alone, the end on how much all have asked for.

use larder_model::SplitMix64;

use super::chance;
use super::maths::{exp, ln};
use super::zipf::Zipf;
use crate::hierarchy::{Io, Source};

/// What to generate; blocks are of 4 KiB.
#[derive(Clone, Debug, PartialEq)]
pub struct HollandSpec {
    /// Blocks of the file server.
    pub server_blocks: u32,
    /// Blocks of a working set.
    pub working_set_blocks: u32,
    /// The chance that a request goes to the working set.
    pub working_set_share: f64,
    /// The chance that a request writes.
    pub write_share: f64,
    /// Hosts.
    pub hosts: u32,
    /// Threads of each.
    pub threads: u32,
    /// Whether all hosts have one working set.
    pub shared: bool,
    /// Blocks of all requests together.
    pub volume_blocks: u64,
    /// Mean blocks of a request.
    pub io_blocks: f64,
    /// Mean blocks of a piece of a working set.
    pub region_blocks: f64,
    /// Median blocks of a file.
    pub file_blocks: f64,
    /// Standard deviation of the logarithm of file sizes; 0: all alike.
    pub file_spread: f64,
    /// The greatest popularity.
    pub popularity_most: u32,
    /// Zipf's exponent of popularity.
    pub popularity_exponent: f64,
    /// Decides everything else.
    pub seed: u64,
}

impl HollandSpec {
    /// The paper's baseline (4): one host of eight threads, 80 % of requests to a working set of so
    /// many blocks out of a server of so many, 30 % writes, four times the working set in all; what
    /// the paper leaves open as in the module's document.
    #[must_use]
    pub fn baseline(working_set_blocks: u32, server_blocks: u32, seed: u64) -> Self {
        Self {
            server_blocks,
            working_set_blocks,
            working_set_share: 0.8,
            write_share: 0.3,
            hosts: 1,
            threads: 8,
            shared: true,
            volume_blocks: 4 * u64::from(working_set_blocks),
            io_blocks: 4.0,
            region_blocks: 256.0,
            file_blocks: 256.0,
            file_spread: 1.0,
            popularity_most: 1,
            popularity_exponent: 1.0,
            seed,
        }
    }
}

/// Blocks in one piece, and how much of all requests they get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    first: u32,
    blocks: u32,
}

/// Pieces, each as likely as its weight.
#[derive(Clone, Debug)]
struct Pieces {
    pieces: Vec<Piece>,
    /// Of 2^32: below it the place's own piece, else the other.
    own: Vec<u32>,
    other: Vec<u32>,
}

impl Pieces {
    /// Walker's aliases: a draw takes one number and one look.
    fn new(pieces: Vec<Piece>, weights: &[u64]) -> Self {
        let count = pieces.len() as u128;
        let sum: u128 = weights.iter().map(|w| u128::from(*w)).sum::<u128>().max(1);
        let mut own = vec![u32::MAX; pieces.len()];
        let mut other: Vec<u32> = (0..pieces.len() as u32).collect();
        let mut rest: Vec<u128> = weights.iter().map(|w| u128::from(*w) * count).collect();
        let (mut poor, mut rich): (Vec<usize>, Vec<usize>) =
            (0..pieces.len()).partition(|i| rest[*i] < sum);
        while let Some(low) = poor.pop()
            && let Some(high) = rich.last().copied()
        {
            own[low] = ((rest[low] << 32) / sum) as u32;
            other[low] = high as u32;
            rest[high] -= sum - rest[low];
            if rest[high] < sum {
                rich.pop();
                poor.push(high);
            }
        }
        Self { pieces, own, other }
    }

    fn draw(&self, random: &mut SplitMix64) -> Piece {
        let number = random.next_u64();
        let at = ((u128::from(number >> 32) * self.pieces.len() as u128) >> 32) as usize;
        let at = if (number as u32) < self.own[at] { at } else { self.other[at] as usize };
        self.pieces[at]
    }
}

/// Poisson's law, as a table of chances.
#[derive(Clone, Debug)]
struct Poisson {
    /// The chance of so many or fewer, in units of 2^-53.
    cumulative: Vec<u64>,
}

impl Poisson {
    fn new(mean: f64) -> Self {
        let mean = mean.max(1e-3);
        let deviation = mean.sqrt();
        let most = (mean + 12.0 * deviation + 12.0) as u32;
        let (mut sum, mut factorial) = (0.0, 0.0);
        let mut cumulative = Vec::with_capacity(most as usize + 1);
        for k in 0..=most {
            factorial += if k == 0 { 0.0 } else { ln(f64::from(k)) };
            let power = f64::from(k) * ln(mean) - mean - factorial;
            sum += if power < -700.0 { 0.0 } else { exp(power) };
            cumulative.push((sum.min(1.0) * (1u64 << 53) as f64) as u64);
        }
        Self { cumulative }
    }

    /// At least one.
    fn draw(&self, random: &mut SplitMix64) -> u32 {
        let point = random.next_u64() >> 11;
        (self.cumulative.partition_point(|c| *c <= point) as u32).max(1)
    }
}

/// The generator, see the module.
pub struct Holland {
    spec: HollandSpec,
    server: Pieces,
    /// One for each host, or one for all.
    working_sets: Vec<Pieces>,
    sizes: Poisson,
    threads: Vec<SplitMix64>,
    left: u64,
}

impl Holland {
    /// The server and the working sets of a spec.
    #[must_use]
    pub fn new(spec: HollandSpec) -> Self {
        let mut random = SplitMix64::new(spec.seed);
        let (files, popularity) = files(&spec, &mut random);
        let weigh = |(file, p): (&Piece, &u32)| u64::from(file.blocks) * u64::from(*p);
        let weights: Vec<u64> = files.iter().zip(&popularity).map(weigh).collect();
        let server = Pieces::new(files, &weights);
        let sets = if spec.shared { 1 } else { spec.hosts.max(1) };
        let working_sets = (0..sets).map(|_| working_set(&spec, &server, &popularity, &mut random));
        let working_sets = working_sets.collect();
        let streams = u64::from(spec.hosts) * u64::from(spec.threads);
        let threads = (0..streams).map(|_| SplitMix64::new(random.next_u64())).collect();
        let (sizes, left) = (Poisson::new(spec.io_blocks), spec.volume_blocks);
        Self { spec, server, working_sets, sizes, threads, left }
    }
}

impl Source for Holland {
    fn next(&mut self, host: u32, thread: u32) -> Option<Io> {
        if self.left == 0 {
            return None;
        }
        let random = self.threads.get_mut((host * self.spec.threads + thread) as usize)?;
        let pieces = if chance(random, self.spec.working_set_share) {
            self.working_sets.get(host as usize).or(self.working_sets.first())?
        } else {
            &self.server
        };
        let piece = pieces.draw(random);
        let start = random.below(u64::from(piece.blocks)) as u32;
        let blocks = self.sizes.draw(random).min(piece.blocks - start);
        let blocks = u64::from(blocks).min(self.left) as u32;
        self.left -= u64::from(blocks);
        let write = chance(random, self.spec.write_share);
        Some(Io { write, block: piece.first + start, blocks })
    }
}

/// A number of the normal distribution (Marsaglia's polar method: no sine is needed).
fn normal(random: &mut SplitMix64) -> f64 {
    loop {
        let [x, y] = [(); 2].map(|()| (random.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0);
        let square = x * x + y * y;
        if square > 0.0 && square < 1.0 {
            return x * (-2.0 * ln(square) / square).sqrt();
        }
    }
}

/// Files one after the other until the server is full, and the popularity of each.
fn files(spec: &HollandSpec, random: &mut SplitMix64) -> (Vec<Piece>, Vec<u32>) {
    let zipf = Zipf::new(spec.popularity_most, spec.popularity_exponent);
    let (mut files, mut popularity, mut first) = (Vec::new(), Vec::new(), 0);
    while first < spec.server_blocks {
        let blocks = if spec.file_spread > 0.0 {
            spec.file_blocks * exp((spec.file_spread * normal(random)).clamp(-30.0, 30.0))
        } else {
            spec.file_blocks
        };
        let blocks = (blocks as u32).clamp(1, spec.server_blocks - first);
        files.push(Piece { first, blocks });
        popularity.push(zipf.draw(random) + 1);
        first += blocks;
    }
    (files, popularity)
}

/// Pieces of files, until there are as many different blocks as asked for.
fn working_set(
    spec: &HollandSpec,
    server: &Pieces,
    popularity: &[u32],
    random: &mut SplitMix64,
) -> Pieces {
    let sizes = Poisson::new(spec.region_blocks);
    let mut chosen = vec![0u64; spec.server_blocks as usize / 64 + 1];
    let mut left = spec.working_set_blocks.min(spec.server_blocks);
    let (mut pieces, mut weights) = (Vec::new(), Vec::new());
    while left > 0 {
        let file = server.draw(random);
        let of = server.pieces.partition_point(|f| f.first < file.first);
        let blocks = sizes.draw(random).min(file.blocks);
        let start = file.first + random.below(u64::from(file.blocks - blocks) + 1) as u32;
        let mut run: Option<Piece> = None;
        for block in start..start + blocks {
            let (word, bit) = (&mut chosen[block as usize / 64], 1u64 << (block % 64));
            let new = *word & bit == 0 && left > 0;
            if new {
                *word |= bit;
                left -= 1;
                run.get_or_insert(Piece { first: block, blocks: 0 }).blocks += 1;
            }
            if (!new || block + 1 == start + blocks)
                && let Some(piece) = run.take()
            {
                weights.push(u64::from(piece.blocks) * u64::from(popularity[of]));
                pieces.push(piece);
            }
        }
    }
    Pieces::new(pieces, &weights)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(seed: u64) -> HollandSpec {
        HollandSpec {
            server_blocks: 100_000,
            working_set_blocks: 20_000,
            working_set_share: 0.8,
            write_share: 0.3,
            hosts: 2,
            threads: 3,
            shared: false,
            volume_blocks: 400_000,
            io_blocks: 4.0,
            region_blocks: 64.0,
            file_blocks: 256.0,
            file_spread: 1.0,
            popularity_most: 1,
            popularity_exponent: 1.0,
            seed,
        }
    }

    fn stream(spec: HollandSpec) -> Vec<(u32, Io)> {
        let mut source = Holland::new(spec);
        let turns = (0..).map(|i| (i % 2, i / 2 % 3));
        turns.map_while(|(h, t)| source.next(h, t).map(|io| (h, io))).collect()
    }

    #[test]
    fn volume_mix_and_size_are_those_asked_for() {
        let all = stream(spec(1));
        let blocks: u64 = all.iter().map(|(_, io)| u64::from(io.blocks)).sum();
        assert_eq!(blocks, 400_000);
        let writes = all.iter().filter(|(_, io)| io.write).count() as f64 / all.len() as f64;
        assert!((writes - 0.3).abs() < 0.01, "{writes}");
        assert!(all.iter().all(|(_, io)| io.blocks > 0 && io.block + io.blocks <= 100_000));
        // Poisson with mean 4 and at least one, shorter at the ends of pieces.
        let mean = 400_000.0 / all.len() as f64;
        assert!((3.5..4.1).contains(&mean), "{mean}");
    }

    #[test]
    fn working_sets_are_as_large_as_asked_for_and_get_their_share() {
        let mut random = SplitMix64::new(9);
        let spec = spec(2);
        let (files, popularity) = files(&spec, &mut random);
        let weights: Vec<u64> = files.iter().map(|f| u64::from(f.blocks)).collect();
        let server = Pieces::new(files, &weights);
        let set = working_set(&spec, &server, &popularity, &mut random);
        let mut blocks: Vec<u32> =
            set.pieces.iter().flat_map(|p| p.first..p.first + p.blocks).collect();
        assert_eq!(blocks.len(), 20_000);
        blocks.sort_unstable();
        blocks.dedup();
        assert_eq!(blocks.len(), 20_000);
    }

    #[test]
    fn aliases_give_each_piece_its_weight() {
        let piece = |first| Piece { first, blocks: 1 };
        let pieces = Pieces::new(vec![piece(0), piece(1), piece(2), piece(3)], &[1, 0, 5, 2]);
        let mut random = SplitMix64::new(4);
        let mut counts = [0u32; 4];
        (0..80_000).for_each(|_| counts[pieces.draw(&mut random).first as usize] += 1);
        for (count, weight) in counts.into_iter().zip([1.0, 0.0, 5.0, 2.0]) {
            assert!((f64::from(count) - weight * 10_000.0).abs() < 400.0, "{counts:?}");
        }
    }

    #[test]
    fn poisson_has_its_mean_and_variance() {
        for mean in [4.0, 256.0] {
            let law = Poisson::new(mean);
            let mut random = SplitMix64::new(1);
            let draws: Vec<f64> = (0..50_000).map(|_| f64::from(law.draw(&mut random))).collect();
            let found = draws.iter().sum::<f64>() / 50_000.0;
            let variance = draws.iter().map(|d| (d - found).powi(2)).sum::<f64>() / 50_000.0;
            assert!((found / mean - 1.0).abs() < 0.02, "{mean} {found}");
            assert!((variance / mean - 1.0).abs() < 0.08, "{mean} {variance}");
        }
    }

    #[test]
    fn equal_seeds_give_equal_streams_and_others_others() {
        assert_eq!(stream(spec(3)), stream(spec(3)));
        assert_ne!(stream(spec(3)), stream(spec(4)));
    }
}
