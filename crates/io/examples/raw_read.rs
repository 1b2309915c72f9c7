// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random 4 KiB reads through the driver: `raw_read DEV [depth [seconds [threads]]]`.
//!
//! For comparison with, and profiling beside: `fio --name=r --filename=FILE --rw=randread --bs=4k --direct=1
//! --ioengine=io_uring --iodepth=32 --runtime=10 --time_based`.

use std::error::Error;
use std::time::Duration;

use larder_core::buf::Buf;
use larder_core::exec::{DevId, Io, IoId, IoKind, Nanos};
use larder_io::{Access, DevSpec, Device, Driver};
use rand::{RngExt, SeedableRng};

const BLOCK: u64 = 4096;
const DEV: DevId = DevId(0);

struct Tally {
    latencies: Vec<Nanos>,
    span: Nanos,
    turns: u64,
}

fn run(
    device: Device,
    depth: u32,
    span: Duration,
    seed: u64,
) -> Result<Tally, Box<dyn Error + Send + Sync>> {
    let blocks = device.geometry().bytes / BLOCK;
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
    let mut driver = Driver::new()?;
    driver.attach(DEV, device);
    let mut began: Vec<Nanos> = vec![0; depth as usize];
    let mut tally = Tally { latencies: Vec::with_capacity(1 << 22), span: 0, turns: 0 };
    let start = driver.now();
    let end = start + span.as_nanos() as u64;
    let mut now = start;
    let mut go = |driver: &mut Driver, id: u32, buf: Option<Buf>| {
        let offset = random.random_range(0..blocks) * BLOCK;
        let (id, kind) = (IoId(id), IoKind::Read);
        driver.start(0, Io { id, dev: DEV, kind, offset, len: BLOCK, buf, at: 0 });
    };
    for id in 0..depth {
        began[id as usize] = now;
        go(&mut driver, id, Some(Buf::with_len(BLOCK as usize)));
    }
    while now < end {
        driver.turn(None)?;
        tally.turns += 1;
        now = driver.now();
        // At most `depth` completions, so that the loop also ends on devices that complete at once.
        for _ in 0..depth {
            let Some(done) = driver.next_done() else { break };
            done.result?;
            tally.latencies.push(now - began[done.id.0 as usize]);
            began[done.id.0 as usize] = now;
            go(&mut driver, done.id.0, done.buf);
        }
    }
    tally.span = now - start;
    Ok(tally)
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut args = std::env::args().skip(1);
    let spec: DevSpec =
        args.next().ok_or("usage: raw_read DEV [depth [seconds [threads]]]")?.parse()?;
    let mut number = |default: u64| args.next().map_or(Ok(default), |a| a.parse());
    let (depth, seconds, threads) = (number(32)?, number(5)?, number(1)?);
    let device = if spec == DevSpec::Null(0) {
        Device::blackhole(1 << 30)
    } else {
        Device::open(&spec, Access::ReadOnly)?
    };
    println!("{spec}: {:?}, direct {}", device.geometry(), device.direct());
    let workers: Vec<_> = (0..threads)
        .map(|seed| {
            let (device, span) = (device.clone(), Duration::from_secs(seconds));
            std::thread::spawn(move || run(device, depth as u32, span, seed))
        })
        .collect();
    for worker in workers {
        let mut tally = worker.join().map_err(|_| "a worker panicked")??;
        tally.latencies.sort_unstable();
        let count = tally.latencies.len();
        let at = |part: f64| tally.latencies[((count - 1) as f64 * part) as usize] as f64 / 1e3;
        println!(
            "depth {depth}: {:.0} IOPS, {:.2} us each, p50 {:.1} us, p99 {:.1} us, {:.1} per turn",
            count as f64 * 1e9 / tally.span as f64,
            tally.span as f64 / 1e3 / count as f64,
            at(0.5),
            at(0.99),
            count as f64 / tally.turns as f64,
        );
    }
    Ok(())
}
