// SPDX-License-Identifier: MIT OR Apache-2.0
//! The replay against a volume served by this process, with threads, rings and sockets.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use larder_core::config::preset;
use larder_front::listen::{ListenSpec, Listener};
use larder_front::nbd::export::{Export, Exports};
use larder_io::{Access, DevSpec, Device};
use larder_nbd::client::Options;
use larder_nbd::uri::{Address, Uri};
use larder_volume::{CacheConfig, Volume};

use super::super::verify::verify;
use super::*;
use crate::demo::device_file;
use crate::demo::window::Window;

const PAGES: u32 = 64;

/// A served file whose pages hold their initial version.
struct Served {
    dir: tempfile::TempDir,
    volume: Arc<Volume>,
    _listener: Listener,
}

impl Served {
    fn start(pages: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("origin");
        let bytes = u64::from(pages) * PAGE_BYTES as u64;
        device_file::make(&path, bytes, |page, into| content::fill(page, 0, into), || Ok(()))
            .unwrap();
        let origin = Device::open(&DevSpec::Path(path), Access::ReadWrite).unwrap();
        let choices = preset("sce").unwrap().choices();
        let volume = Volume::start(CacheConfig::of(origin, choices, 2)).unwrap();
        let exports = Arc::new(Exports::new(vec![Export::of(&volume)]).unwrap());
        let volumes = Arc::new(vec![Arc::clone(&volume)]);
        let spec = ListenSpec::Unix(dir.path().join("nbd"));
        let _listener = Listener::start(&spec, volumes, exports).unwrap();
        Self { dir, volume, _listener }
    }

    fn origin(&self) -> std::path::PathBuf {
        Path::join(self.dir.path(), "origin")
    }

    fn clients(&self, count: usize) -> Vec<Client> {
        let address = Address::Unix(self.dir.path().join("nbd"));
        let uri = Uri { address, export: String::new(), tls: None };
        (0..count).map(|_| Client::connect(&uri, &Options::default()).unwrap()).collect()
    }

    /// Stops, and looks at the file.
    fn verify(&self, book: &Book) {
        self.volume.cache().stop(Duration::from_secs(30), |_| {}, || false).unwrap();
        verify(&self.origin(), book, || Ok(())).unwrap();
    }
}

fn scale(measured_seconds: u64) -> Scale {
    let window = Window { warm_up_seconds: 0, measured_seconds };
    Scale { depth: 4, flush_every: 3, window, ..Scale::default() }
}

/// Few pages and many overlaps, so that requests meet.
fn steps() -> Vec<Step> {
    let verbs = [Verb::Read, Verb::Write, Verb::Read, Verb::LogWrite];
    let step = |i: u32| {
        let page = i * 7 % (PAGES - 8);
        Step { verb: verbs[(i % 4) as usize], page, pages: 1 + i % 5 }
    };
    (0..997).map(step).collect()
}

#[test]
fn everything_read_is_verified_and_the_file_holds_what_was_written() {
    let (served, book) = (Served::start(PAGES), Book::new(PAGES as usize));
    let mut seen = Vec::new();
    let second = |second, answered| {
        seen.push((second, answered));
        Ok(())
    };
    let tally = replay(served.clients(3), &steps(), &book, &scale(1), second).unwrap();
    assert!(tally.reads.count() > 0 && tally.writes.count() > 0 && tally.flushes.count() > 0);
    assert!(tally.verified >= tally.reads.count());
    assert_eq!(seen.len(), 1);
    // Each row of the demo continues from the previous one in the same way.
    replay(served.clients(2), &steps(), &book, &scale(1), |_, _| Ok(())).unwrap();
    served.verify(&book);
    assert!((0..PAGES).any(|page| book.completed(page) > 1));
}

#[test]
fn a_wrong_byte_ends_the_replay() {
    let (served, book) = (Served::start(PAGES), Book::new(PAGES as usize));
    // The book thinks that page 9 was written once, and the volume lost it.
    assert!(book.begin_write(9..10).is_some());
    book.end_write(9..10);
    let read = Step { verb: Verb::Read, page: 8, pages: 4 };
    let result = replay(served.clients(2), &[read], &book, &scale(60), |_, _| Ok(()));
    let error = result.unwrap_err().to_string();
    assert!(error.contains("wrong data") && error.contains("page 9, sector 0"), "{error}");
    assert!(error.contains("must be version 1; it reads as its version 0 (stale)"), "{error}");
}

#[test]
fn a_failed_request_names_itself() {
    let (served, book) = (Served::start(PAGES), Book::new(2 * PAGES as usize));
    let beyond = Step { verb: Verb::Read, page: PAGES, pages: 1 };
    let result = replay(served.clients(1), &[beyond], &book, &scale(60), |_, _| Ok(()));
    let error = format!("{:#}", result.unwrap_err());
    assert!(error.contains("Read of 4096 bytes at 262144: EINVAL"), "{error}");
}

#[test]
fn whoever_watches_may_end_it() {
    let (served, book) = (Served::start(PAGES), Book::new(PAGES as usize));
    let second = |_, _| Err(anyhow!("enough"));
    let result = replay(served.clients(2), &steps(), &book, &scale(60), second);
    assert_eq!(result.unwrap_err().to_string(), "enough");
    served.verify(&book);
}
