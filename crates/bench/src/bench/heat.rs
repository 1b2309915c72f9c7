// SPDX-License-Identifier: MIT OR Apache-2.0
//! `heat`: how long an empty cache takes to have what another one had (`heat export`, `heat import`).
//!
//! Method: a cache over a modelled origin is warmed at scattered places, and its list is exported. An empty cache over the same origin
//! then warms the list, while no client uses it, until all of it is on flash. Beside it: the time that the bare origin takes to read
//! the same bytes, in reads of 1 MiB, as many at a time as the model has use for. The list has the most read parts first, so a
//! cache has most of its hits before the end; the whole list is the stricter measure.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use larder_core::buf::Buf;
use larder_core::config::{DEFAULT_PRESET, preset};
use larder_core::exec::{DevId, Io, IoId, IoKind};
use larder_core::format::Wishes;
use larder_core::shape::Shape;
use larder_io::{Access, DevSpec, Device, Driver};
use larder_model::SplitMix64;
use larder_volume::{CacheConfig, FlashDevice, Terms, Volume};

use super::common::{BenchOptions, progress};
use super::row::{Goal, Row};

const NAME: &str = "heat";
const MIB: u64 = 1 << 20;
const ORIGIN: DevId = DevId(0);
const BOUND: Duration = Duration::from_secs(60);
/// Models of the origin, and the reads at a time with which the bare one is read.
const ORIGINS: [(&str, usize); 3] = [("cloud", 16), ("san-1g", 16), ("array-16", 32)];

pub(super) fn run(options: &BenchOptions) -> Result<Vec<Row>> {
    let (mib, rounds) = if options.quick { (32, 1) } else { (256, 5) };
    ORIGINS.iter().map(|(profile, depth)| over(profile, *depth, mib, rounds)).collect()
}

fn over(profile: &str, depth: usize, mib: u64, rounds: u64) -> Result<Row> {
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // Every fourth MiB or so, so that the origin seeks.
        let spec: DevSpec =
            format!("slow+mem:{}MiB?profile={profile}&seed={round}", 4 * mib).parse()?;
        let origin = Device::open(&spec, Access::ReadWrite)?;
        let mut random = SplitMix64::new(round);
        let places: Vec<u64> = (0..mib).map(|n| (4 * n + random.below(4)) * MIB).collect();
        let first = start(&origin, mib)?;
        let ranges: Vec<_> = places.iter().map(|at| *at..at + MIB).collect();
        first.warm(&ranges, Terms::default(), &mut |_, _| true)?;
        let list = listed(&first)?;
        first.cache().stop(BOUND, |_| (), || false)?;
        let bytes: u64 = list.iter().map(|range| range.end - range.start).sum();
        ensure!(bytes == mib * MIB, "{bytes} bytes are listed, {mib} MiB were warmed");
        let second = start(&origin, mib)?;
        let began = Instant::now();
        let (warmed, _) =
            second.warm(&list, Terms { beside: Some(0), ..Terms::default() }, &mut |_, _| true)?;
        ours.push(began.elapsed().as_secs_f64());
        ensure!(
            warmed.cached_bytes == bytes,
            "{} of {bytes} bytes were warmed",
            warmed.cached_bytes
        );
        second.cache().stop(BOUND, |_| (), || false)?;
        bare.push(read_bare(&origin, &places, depth)?);
        progress(NAME, format!("{profile}: {} of {rounds}", round + 1));
    }
    let row = Row::new(NAME, format!("{mib} MiB over {profile}"), "s");
    Ok(row.paired("bare origin, the same bytes", &ours, &bare).goals(&[Goal::RatioAtMost(1.5)]))
}

/// An empty cache that has room for so many MiB.
fn start(origin: &Device, mib: u64) -> Result<Arc<Volume>> {
    let choices = preset(DEFAULT_PRESET).context("no default preset")?.choices();
    let shape = Shape::new(origin.geometry().bytes, choices.unit_bytes, 1);
    let flash = Device::mem((mib + mib / 8 + 16) * MIB);
    let flash = FlashDevice::prepare(flash, (None, None), shape, &choices, Wishes::default())?;
    let volume = Volume::start(CacheConfig::of(origin.clone(), choices, 1))?;
    volume.cache().attach(flash)?;
    Ok(volume)
}

/// What flash has, in the order of the list that `heat export` writes: all of it is read equally often here.
fn listed(volume: &Volume) -> Result<Vec<std::ops::Range<u64>>> {
    let (mut heat, mut list) = (volume.heat(), Vec::new());
    while let Some(parts) = heat.next_parts()? {
        list.extend(parts.iter().map(|part| part.offset..part.offset + part.len));
    }
    list.sort_by_key(|range| range.start);
    Ok(list)
}

/// Seconds that the origin takes to read a MiB at each place, `depth` at a time.
fn read_bare(origin: &Device, places: &[u64], depth: usize) -> Result<f64> {
    let mut driver = Driver::new()?;
    driver.attach(ORIGIN, origin.clone());
    let mut left = (0..).zip(places);
    let mut start = |driver: &mut Driver, buf: Option<Buf>| {
        let Some((number, offset)) = left.next() else { return };
        let buf = buf.or_else(|| Some(Buf::with_len(MIB as usize)));
        let kind = IoKind::Read;
        driver.start(
            0,
            Io { id: IoId(number), dev: ORIGIN, kind, offset: *offset, len: MIB, buf, at: 0 },
        );
    };
    let (began, mut done) = (Instant::now(), 0);
    (0..depth).for_each(|_| start(&mut driver, None));
    while done < places.len() {
        driver.turn(None)?;
        while let Some(read) = driver.next_done() {
            read.result?;
            done += 1;
            start(&mut driver, read.buf);
        }
    }
    Ok(began.elapsed().as_secs_f64())
}
