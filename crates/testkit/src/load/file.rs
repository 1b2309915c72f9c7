// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same load through the file of a FUSE door: one thread for each request in flight.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use larder_core::request::{Errno, Kind};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use rustix::fs::{FallocateFlags, OFlags, fallocate};

use super::{Chooser, Judge, Load, Op, RATE, Shape, answered, begin};

/// A client of the file.
struct Client {
    judge: Arc<Judge>,
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    chooser: Chooser,
    file: File,
    /// The same file, opened such that writes are durable on completion.
    durable: File,
}

impl Load {
    /// Starts the clients on a file.
    pub fn over_file(path: &Path, shape: &Shape, judge: &Arc<Judge>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let clients = (0..shape.clients * shape.depth).map(|i| {
            let count = Arc::new(AtomicU64::new(0));
            let open = |flags: OFlags| {
                let mut options = File::options();
                options.read(true).write(true).custom_flags(flags.bits() as i32);
                options.open(path).unwrap()
            };
            let random = Pcg64::seed_from_u64(shape.seed << 8 | i as u64);
            let client = Client {
                judge: Arc::clone(judge),
                stop: Arc::clone(&stop),
                count: Arc::clone(&count),
                chooser: Chooser { random, shape: shape.clone(), block: 512 },
                file: open(OFlags::empty()),
                durable: open(OFlags::DSYNC),
            };
            (count, std::thread::spawn(move || client.run()))
        });
        Self { judge: Arc::clone(judge), clients: clients.collect(), stop }
    }
}

impl Client {
    fn run(mut self) {
        let (began, shape) = (Instant::now(), self.chooser.shape.clone());
        let pause = Duration::from_secs((shape.clients * shape.depth) as u64) / RATE as u32;
        while !self.stop.load(Ordering::SeqCst) {
            let ahead = pause * self.count.load(Ordering::SeqCst) as u32;
            std::thread::sleep(ahead.saturating_sub(began.elapsed()));
            let (kind, offset, len) = self.chooser.next();
            let (id, mut data, start) = begin(&self.judge, kind, offset, len);
            let result = self.act(kind, offset, len, &mut data);
            let op = Op { kind, offset, len, id, start };
            match result {
                Ok(()) => answered(&self.judge, &op, &data, self.judge.now()),
                Err(_) if self.judge.may_break.load(Ordering::SeqCst) => return,
                Err(e) => self.judge.judge_error(&op, Errno(e.raw_os_error().unwrap_or(5))),
            }
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn act(&self, kind: Kind, offset: u64, len: u64, data: &mut Vec<u8>) -> std::io::Result<()> {
        let keep = FallocateFlags::KEEP_SIZE;
        match kind {
            Kind::Read => {
                data.resize(len as usize, 0);
                self.file.read_exact_at(data, offset)
            }
            Kind::Write { fua: true } => self.durable.write_all_at(data, offset),
            Kind::Write { fua: false } => self.file.write_all_at(data, offset),
            Kind::Flush => self.file.sync_data(),
            Kind::Trim { .. } | Kind::Zero { may_unmap: true, .. } => {
                Ok(fallocate(&self.file, FallocateFlags::PUNCH_HOLE | keep, offset, len)?)
            }
            Kind::Zero { .. } => {
                Ok(fallocate(&self.file, FallocateFlags::ZERO_RANGE | keep, offset, len)?)
            }
        }
    }
}
