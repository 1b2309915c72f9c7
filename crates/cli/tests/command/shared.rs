// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes that share one flash: each has its own data, FLUSH, detach and misfortune, through restarts and kills.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use larder_nbd::client::{Client, Options};
use larder_nbd::uri::{Address, Uri};
use larder_testkit::command::{self, connect, larder_says, make_initial, one_json};
use larder_testkit::load::{Judge, Load, Shape, eventually};
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde_json::Value;

const BYTES: u64 = 4 << 20;
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Clean, with units that misses admit at once; and write-back, with units that are exchanged every 20 ms.
const CLEAN: &str = r#"
preset = "sce"
populate_workers = 4
populate_miss = 0
populate_free = 0
populate_period = "0"
displace_misses = 1
populate_io = "16KiB"
"#;
const OWNED: &str = r#"
preset = "prwc"
update_period = "20ms"
update_hot_factor = 30
"#;

/// Three volumes over one flash.
struct Three {
    place: Place,
    config: PathBuf,
}

impl Three {
    fn new(preset: &str) -> Self {
        let place = Place::new();
        let at = |what: &str| place.word(what);
        let mut text = format!(
            "drain = \"20s\"\n[cache.fast]\n{preset}unit = \"64KiB\"\nworkers = 2\ncheckpoint = \"20ms\"\n\
             flash = \"{}\"\nflash_size = \"12MiB\"\nstate = \"{}\"\ncontrol = \"{}\"\n",
            at("flash"),
            at("state"),
            at("control-fast")
        );
        for name in NAMES {
            make_initial(&place.path(&format!("origin-{name}")), BYTES);
            text += &format!(
                "[volume.{name}]\ncache = \"fast\"\norigin = \"{}\"\nlisten = \"nbd+unix:{}\"\ncontrol = \"{}\"\n\
                 least = \"10%\"\nmay_be_missing = true\n",
                at(&format!("origin-{name}")),
                at("nbd"),
                at(&format!("control-{name}"))
            );
        }
        let config = place.path("config.toml");
        std::fs::write(&config, text).unwrap();
        Self { place, config }
    }

    fn serve(&self) -> Server {
        let begin = Instant::now();
        loop {
            // The kernel may take a moment to end the locks of one that was killed.
            match std::panic::catch_unwind(|| Server::start_config(&self.config, 3)) {
                Ok(server) => return server,
                Err(_) => assert!(begin.elapsed() < command::PATIENCE),
            }
        }
    }

    fn uri(&self, name: &str) -> Uri {
        let address = Address::Unix(self.place.path("nbd"));
        Uri { address, export: name.to_owned(), tls: None }
    }

    fn ask(&self, name: &str, command: &str) -> command::Ended {
        let control = self.place.word(&format!("control-{name}"));
        larder_says(&[command, "--control", &control, "--json"])
    }

    fn status(&self, name: &str) -> Value {
        one_json(&self.ask(name, "status").ok())
    }

    fn used(&self, name: &str) -> u64 {
        self.status(name)["units_used"].as_u64().unwrap()
    }

    fn origin(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.place.path(&format!("origin-{name}"))).unwrap()
    }

    fn served(&self, name: &str) -> Vec<u8> {
        let mut bytes = vec![0; BYTES as usize];
        let mut client = connect(&self.uri(name));
        for (at, part) in (0..).step_by(1 << 20).zip(bytes.chunks_mut(1 << 20)) {
            client.read_at(at, part).unwrap();
        }
        bytes
    }

    /// Reads two units of a volume until they are cached.
    fn warm(&self, name: &str) {
        let mut client = connect(&self.uri(name));
        eventually("units are cached", || {
            client.read_at(0, &mut [0; 4096]).unwrap();
            client.read_at(9 << 16, &mut [0; 4096]).unwrap();
            self.used(name) >= 2
        });
    }

    fn load(&self, name: &str, seed: u64, judge: &Arc<Judge>) -> Load {
        let hot_bytes = BYTES / 4;
        let shape = Shape { bytes: BYTES, hot_bytes, clients: 2, depth: 4, reads: 40, seed };
        Load::start(&self.uri(name), &shape, judge)
    }
}

fn judges() -> [Arc<Judge>; 3] {
    NAMES.map(|_| Judge::new())
}

#[test]
fn each_volume_flushes_leaves_and_joins_by_itself() {
    for preset in [CLEAN, OWNED] {
        let three = Three::new(preset);
        let server = three.serve();
        let judges = judges();
        let loads: Vec<Load> = NAMES
            .iter()
            .zip(&judges)
            .zip(1..)
            .map(|((name, judge), seed)| three.load(name, seed, judge))
            .collect();
        NAMES.iter().for_each(|name| three.warm(name));
        three.ask("a", "flush").ok();
        three.ask("b", "detach").ok();
        assert_eq!(three.status("b")["state"], "outside");
        assert_eq!((three.used("b"), three.status("a")["state"].as_str()), (0, Some("caching")));
        let refused = three.ask("b", "detach");
        assert!(refused.code == 4 && refused.err.contains("has left its cache already"));
        loads.iter().for_each(|load| load.progress(5));
        assert!(three.used("b") == 0 && three.used("a") > 0 && three.used("c") > 0);
        three.ask("b", "attach").ok();
        assert!(three.ask("a", "attach").err.contains("volume 'a' is in its cache"));
        three.warm("b");
        loads.iter().for_each(|load| load.progress(5));
        // A flash that is attached is that of all volumes.
        three.ask("a", "detach").ok();
        three.ask("fast", "detach").ok();
        assert_eq!(three.status("a")["state"], "pass-through");
        assert!(three.ask("a", "attach").err.contains("no flash device is attached"));
        let (flash, control) = (three.place.word("flash"), three.place.word("control-fast"));
        larder_says(&["attach", &flash, "--control", &control]).ok();
        assert_eq!(three.status("a")["state"], "caching");
        NAMES.iter().for_each(|name| three.warm(name));
        // What left is on the origin alone.
        three.ask("c", "detach").ok();
        let mut loads = loads;
        loads.pop().unwrap().finish();
        judges[2].seen(0, &three.origin("c"));
        loads.into_iter().for_each(|load| drop(load.finish()));
        server.stop();
        let server = three.serve();
        for (name, judge) in NAMES.iter().zip(&judges) {
            judge.seen(0, &three.served(name));
            judge.verdict();
        }
        three.ask("fast", "detach").ok();
        for (name, judge) in NAMES.iter().zip(&judges) {
            judge.seen(0, &three.origin(name));
            judge.verdict();
        }
        server.stop();
    }
}

#[test]
fn an_origin_that_changed_costs_its_own_volume_its_cache() {
    let three = Three::new(CLEAN);
    let server = three.serve();
    NAMES.iter().for_each(|name| three.warm(name));
    // Logged, and complete.
    eventually("units are whole", || three.status("fast")["units_used"].as_u64().unwrap() >= 6);
    three.ask("fast", "flush").ok();
    server.stop();
    let changed = std::fs::File::options().write(true).open(three.place.path("origin-b")).unwrap();
    changed.write_all_at(&[0x5a; 8192], 0).unwrap();
    let server = three.serve();
    let log = server.log();
    assert!(log.contains("starts cold for the volume 'b': the origin was written to"), "{log}");
    assert_eq!(three.used("b"), 0);
    assert!(three.used("a") >= 2 && three.used("c") >= 2);
    three.warm("b");
    assert!(three.served("b") == three.origin("b"));
    // The record permits its use again, also after a crash.
    server.kill();
    let server = three.serve();
    assert!(!server.log().contains("starts cold"), "{}", server.log());
    NAMES.iter().for_each(|name| assert!(three.served(name) == three.origin(name)));
    server.stop();
}

#[test]
fn other_volumes_or_another_order_are_not_served_from_flash() {
    let three = Three::new(OWNED);
    let server = three.serve();
    three.warm("a");
    let mut client = connect(&three.uri("a"));
    client.write_at(0, &[7; 4096], false).unwrap();
    client.flush().unwrap();
    drop(client);
    server.stop();
    let text = std::fs::read_to_string(&three.config).unwrap();
    let other = three.place.path("other.toml");
    std::fs::copy(three.place.path("origin-a"), three.place.path("origin-x")).unwrap();
    for (from, to) in [("[volume.a]", "[volume.d]"), ("origin-a\"", "origin-x\"")] {
        std::fs::write(&other, text.replace(from, to)).unwrap();
        let refused = larder_says(&["serve", other.to_str().unwrap()]);
        assert!(refused.code == 4 && refused.err.contains("may hold dirty data"), "{refused:?}");
    }
    // A lone volume over one of the origins would write past the dirty data.
    let place = &three.place;
    let alone = |origin: &str| {
        let words =
            place.serve(&["--origin", &place.word(origin), "--state", &place.word("state")]);
        Server::try_start(&words)
    };
    let refused = alone("origin-a").err().unwrap();
    assert!(refused.code == 4 && refused.err.contains("may hold dirty data"), "{refused:?}");
    // Of that one nothing is dirty after the stop.
    alone("origin-c").ok().unwrap().stop();
    let server = three.serve();
    assert!(server.log().contains("starts cold for the volume 'c'"), "{}", server.log());
    assert_eq!(three.served("a")[..4096], [7; 4096]);
    server.stop();
}

#[test]
fn a_missing_origin_is_missing_to_its_own_clients_only() {
    for preset in [CLEAN, OWNED] {
        let three = Three::new(preset);
        let (origin, away) = (three.place.path("origin-b"), three.place.path("away"));
        std::fs::rename(&origin, &away).unwrap();
        let refused = larder_says(&["serve", three.config.to_str().unwrap()]);
        assert!(refused.err.contains("the state file has no size of this origin"), "{refused:?}");
        std::fs::rename(&away, &origin).unwrap();
        let server = three.serve();
        NAMES.iter().for_each(|name| three.warm(name));
        let mut client = connect(&three.uri("b"));
        client.write_at(0, &[9; 4096], false).unwrap();
        client.flush().unwrap();
        drop(client);
        server.stop();
        std::fs::rename(&origin, &away).unwrap();
        let server = three.serve();
        assert_eq!(three.status("b")["state"], "missing");
        assert!(
            three.status("fast")["alarm"]
                .as_str()
                .unwrap()
                .starts_with("b: the origin was missing")
        );
        let refused = Client::connect(&three.uri("b"), &Options::default()).err().unwrap();
        assert!(refused.to_string().contains("is missing"), "{refused}");
        let judge = Judge::new();
        let load = three.load("a", 5, &judge);
        load.progress(10);
        three.ask("a", "flush").ok();
        let held = three.used("b");
        assert!(held > 0, "flash keeps what it has of it");
        load.finish().verdict();
        server.stop();
        std::fs::rename(&away, &origin).unwrap();
        let server = three.serve();
        assert_eq!(three.used("b"), held);
        assert_eq!(three.served("b")[..4096], [9; 4096]);
        three.ask("fast", "detach").ok();
        assert_eq!(three.origin("b")[..4096], [9; 4096]);
        judge.seen(0, &three.origin("a"));
        judge.verdict();
        server.stop();
    }
}

/// Lives of the three volumes: 6, or the value of LARDER_TEST_LIVES.
fn rounds() -> u64 {
    std::env::var("LARDER_TEST_LIVES").map_or(6, |lives| lives.parse().unwrap())
}

#[test]
fn every_volume_survives_kills() {
    for preset in [CLEAN, OWNED] {
        let three = Three::new(preset);
        let judges = judges();
        judges.iter().for_each(|judge| judge.may_break.store(true, Ordering::SeqCst));
        let (mut random, mut warm) = (Pcg64::seed_from_u64(7), 0);
        for round in 0..rounds() {
            let server = three.serve();
            warm += u64::from(three.used("fast") > 0);
            for (name, judge) in NAMES.iter().zip(&judges) {
                judge.seen(0, &three.served(name));
            }
            let loads: Vec<Load> = NAMES
                .iter()
                .zip(&judges)
                .map(|(name, judge)| three.load(name, round, judge))
                .collect();
            std::thread::sleep(Duration::from_millis(random.random_range(50..400)));
            // A detach or a flush of one volume may be in progress.
            let control = three.place.word("control-b");
            let command = if round % 2 == 0 { "detach" } else { "flush" };
            let asked = std::thread::spawn(move || larder_says(&[command, "--control", &control]));
            std::thread::sleep(Duration::from_millis(random.random_range(0..30)));
            server.kill();
            loads.into_iter().for_each(|load| drop(load.finish()));
            asked.join().unwrap();
        }
        judges.iter().for_each(|judge| judge.verdict());
        assert!(warm >= (rounds() - 1) * 7 / 10, "warm after {warm} of {} kills", rounds() - 1);
    }
}

fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn metrics_count_nothing_twice() {
    let three = Three::new(CLEAN);
    let text = std::fs::read_to_string(&three.config).unwrap();
    std::fs::write(&three.config, format!("metrics = \"127.0.0.1:0\"\n{text}")).unwrap();
    let server = three.serve();
    connect(&three.uri("a")).read_at(0, &mut [0; 4096]).unwrap();
    let log = server.log();
    let address = log.lines().find_map(|line| line.split_once("metrics at http://")).unwrap().1;
    let scraped = scrape(address.trim().trim_end_matches("/metrics"));
    let has = |metric: &str, of: &str| scraped.contains(&format!("{metric}{{volume=\"{of}\""));
    for (metric, cache, volume) in [
        ("larder_reads_total", false, true),
        ("larder_origin_reads_total", true, false),
        ("larder_units_used", false, true),
        ("larder_units", true, false),
        ("larder_state", true, true),
        ("larder_up", true, true),
    ] {
        assert_eq!((has(metric, "fast"), has(metric, "a")), (cache, volume), "{metric}: {scraped}");
    }
    assert!(scraped.contains("larder_reads_total{volume=\"a\"} 1"), "{scraped}");
    server.stop();
}
