// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several volumes in one process: each has its own data, cache and misfortune. What is given
//! twice is refused before anything is written.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use larder_nbd::client::{Client, Options};
use larder_nbd::uri::{Address, Names, Uri};
use larder_testkit::certs;
use larder_testkit::command::{
    self, connect, have, larder, larder_says, make_initial, one_json, run,
};
use larder_testkit::load::{Judge, Load, Shape, eventually};
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use serde_json::Value;

const BYTES: u64 = 6 << 20;
const EAGER: &str = r#"
populate_workers = 4
populate_miss = 0
populate_free = 0
populate_period = "0"
displace_heat = 1
clock_ceiling = 1
populate_io = "16KiB"
unit = "64KiB"
"#;

/// Two volumes, `a` and `b`, with listeners of their own and one in common.
struct Two {
    place: Place,
    config: PathBuf,
}

impl Two {
    fn new() -> Self {
        let place = Place::new();
        let mut text = format!("{EAGER}drain = \"20s\"\n");
        for name in ["a", "b"] {
            make_initial(&place.path(&format!("origin-{name}")), BYTES);
            let at = |what: &str| place.word(&format!("{what}-{name}"));
            text += &format!(
                "[volume.{name}]\norigin = \"{}\"\nflash = \"{}\"\nflash_size = \"4MiB\"\n\
                 listen = [\"nbd+unix:{}\", \"nbd://127.0.0.1:0\"]\ncontrol = \"{}\"\n",
                at("origin"),
                at("flash"),
                at("nbd"),
                at("control")
            );
        }
        let config = place.path("config.toml");
        std::fs::write(&config, text).unwrap();
        Self { place, config }
    }

    /// Three listeners, of which one has both.
    fn serve(&self) -> Server {
        Server::start_config(&self.config, 4)
    }

    fn uri(&self, name: &str) -> Uri {
        let path = self.place.path(&format!("nbd-{name}"));
        Uri { address: Address::Unix(path), export: name.to_owned(), tls: None }
    }

    fn ask(&self, name: &str, command: &str) -> command::Ended {
        let control = self.place.word(&format!("control-{name}"));
        larder_says(&[command, "--control", &control, "--json"])
    }

    fn stats(&self, name: &str) -> Value {
        one_json(&self.ask(name, "stats").ok())
    }

    fn stat(&self, name: &str, key: &str) -> u64 {
        self.stats(name)[key].as_u64().unwrap()
    }

    /// Hits and populations from here on.
    fn caches(&self, name: &str) {
        let before = self.stats(name);
        eventually("there are hits and populations", || {
            let now = self.stats(name);
            let grew = |key: &str| now[key].as_u64() > before[key].as_u64();
            grew("read_hits") && grew("populations")
        });
    }

    fn seen(&self, name: &str, judge: &Judge) {
        judge.seen(0, &std::fs::read(self.place.path(&format!("origin-{name}"))).unwrap());
        judge.verdict();
    }
}

fn load(uri: &Uri, seed: u64) -> Load {
    let shape = Shape { bytes: BYTES, hot_bytes: BYTES / 3, clients: 2, depth: 8, reads: 50, seed };
    let load = Load::start(uri, &shape, &Judge::new());
    load.progress(5);
    load
}

/// The listener that both volumes have.
fn common_door(server: &Server, export: &str) -> Uri {
    let addresses = server.addresses();
    let ends = format!("/{export}");
    let tcp = addresses.iter().find(|a| a.starts_with("nbd://") && a.ends_with(&ends));
    tcp.unwrap_or_else(|| panic!("{addresses:?}")).parse().unwrap()
}

#[test]
fn what_happens_to_one_does_not_happen_to_the_other() {
    let two = Two::new();
    let server = two.serve();
    let a = load(&two.uri("a"), 1);
    let b = load(&common_door(&server, "b"), 2);
    two.caches("a");
    two.caches("b");
    assert_eq!((two.stat("a", "units_total"), two.stat("b", "units_total")), (32, 32));
    // Detached.
    two.ask("a", "detach").ok();
    assert_eq!(two.stats("a")["state"], "pass-through");
    two.caches("b");
    let flash = two.place.word("flash-a");
    let control = two.place.word("control-a");
    larder_says(&["attach", &flash, "--control", &control]).ok();
    two.caches("a");
    two.caches("b");
    assert_eq!(two.stats("b")["state"], "caching");
    a.progress(10);
    let (a, b) = (a.finish(), b.finish());
    server.stop();
    two.seen("a", &a);
    two.seen("b", &b);
}

#[test]
fn a_lost_origin_is_lost_to_its_own_clients_only() {
    let two = Two::new();
    let server = two.serve();
    let b = load(&two.uri("b"), 3);
    std::fs::File::options()
        .write(true)
        .open(two.place.path("origin-a"))
        .unwrap()
        .set_len(0)
        .unwrap();
    let mut client = connect(&two.uri("a"));
    assert!(client.read_at(BYTES / 2, &mut vec![0; 4096]).is_err(), "there is nothing to read");
    assert!(two.stat("a", "origin_errors") > 0);
    two.caches("b");
    assert_eq!(two.stat("b", "origin_errors"), 0);
    drop(client);
    let b = b.finish();
    server.stop();
    two.seen("b", &b);
}

#[test]
fn every_volume_survives_a_kill() {
    let two = Two::new();
    let judges = ["a", "b"].map(|_| Judge::new());
    for seed in 0..3 {
        let begin = std::time::Instant::now();
        let server = loop {
            // The kernel may take a moment to end the locks of the killed one.
            match std::panic::catch_unwind(|| two.serve()) {
                Ok(server) => break server,
                Err(_) => assert!(begin.elapsed() < command::PATIENCE),
            }
        };
        let loads: Vec<Load> = ["a", "b"]
            .iter()
            .zip(&judges)
            .map(|(name, judge)| {
                judge.may_break.store(true, std::sync::atomic::Ordering::SeqCst);
                let (clients, reads) = (2, 40);
                let hot_bytes = BYTES / 3;
                let shape = Shape { bytes: BYTES, hot_bytes, clients, depth: 8, reads, seed };
                Load::start(&two.uri(name), &shape, judge)
            })
            .collect();
        loads.iter().for_each(|l| l.progress(3));
        server.kill();
        loads.into_iter().for_each(|l| drop(l.finish()));
    }
    for (name, judge) in ["a", "b"].iter().zip(&judges) {
        two.seen(name, judge);
    }
}

#[test]
fn clients_are_shown_all_exports_of_a_listener() {
    let two = Two::new();
    let server = two.serve();
    let shared = common_door(&server, "a");
    // Without a name there is no telling which.
    let nameless = Uri { export: String::new(), ..shared.clone() };
    assert!(Client::connect(&nameless, &Options::default()).is_err());
    if have("nbdinfo", "libnbd-bin") {
        let Address::Tcp { host, port } = &shared.address else { panic!("{shared}") };
        let list = format!("nbd://{host}:{port}");
        let ended = run(std::process::Command::new("nbdinfo").args(["--list", "--json", &list]));
        let list = one_json(&ended.ok());
        let exports = list["exports"].as_array().unwrap();
        let names: Vec<_> = exports.iter().map(|e| e["export-name"].as_str().unwrap()).collect();
        assert_eq!(names, ["a", "b"]);
    }
    server.stop();
}

/// Needs root and `/dev/fuse`; without them nothing is tested.
#[test]
fn each_volume_has_a_file_of_its_own() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return println!("skipped: needs root and /dev/fuse");
    }
    let place = Place::new();
    let listen = |name: &str| {
        let (file, nbd) = (place.word(&format!("file-{name}")), place.word("nbd"));
        format!("origin = \"mem:8MiB\"\nlisten = [\"fuse:{file}\", \"nbd+unix:{nbd}\"]")
    };
    let text = volume(&place, "a", &listen("a")) + &volume(&place, "b", &listen("b"));
    let config = place.path("config.toml");
    std::fs::write(&config, format!("drain = \"8s\"\n{text}")).unwrap();
    let server = Server::start_config(&config, 4);
    let open = |name: &str| {
        let path = place.path(&format!("file-{name}"));
        std::fs::File::options().read(true).write(true).open(path).unwrap()
    };
    for (name, byte) in [("a", 0xaa), ("b", 0xbb)] {
        open(name).write_all_at(&[byte; 4096], 4096).unwrap();
    }
    for (name, byte) in [("a", 0xaa), ("b", 0xbb)] {
        let address = Address::Unix(place.path("nbd"));
        let mut client = connect(&Uri { address, export: name.to_owned(), tls: None });
        let mut seen = [0; 4096];
        client.read_at(4096, &mut seen).unwrap();
        assert_eq!(seen, [byte; 4096], "what the file of '{name}' was given");
        let control = place.word(&format!("control-{name}"));
        let status = larder_says(&["status", "--control", &control, "--json"]);
        let files = place.word(&format!("file-{name}"));
        assert_eq!(one_json(&status.ok())["files"], serde_json::json!([files]));
    }
    // Both in use: they are waited for side by side, for half of the drain.
    let (_a, _b, begin) = (open("a"), open("b"), std::time::Instant::now());
    server.stop();
    assert!(begin.elapsed().as_millis() < 5500, "one after the other: {:?}", begin.elapsed());
    assert!(!place.path("file-a").exists() && !place.path("file-b").exists());
}

/// A configuration that is refused with one line, before anything is written.
fn refused(place: &Place, text: &str, code: i32, has: &[&str]) {
    let config = place.path("config.toml");
    std::fs::write(&config, text).unwrap();
    let ended = run(&mut larder(["serve", config.to_str().unwrap()]));
    assert_eq!((ended.code, ended.err.lines().count()), (code, 1), "{ended:?}");
    for has in has {
        assert!(ended.err.contains(has), "'{has}' is missing: {ended:?}");
    }
}

fn volume(place: &Place, name: &str, more: &str) -> String {
    let control = place.word(&format!("control-{name}"));
    let listen = place.word(&format!("nbd-{name}"));
    let mut text = format!("[volume.{name}]\n{more}");
    if !more.contains("control =") {
        text += &format!("\ncontrol = \"{control}\"");
    }
    if !more.contains("listen =") {
        text += &format!("\nlisten = \"nbd+unix:{listen}\"");
    }
    text + "\n"
}

#[test]
fn a_device_given_twice_is_refused() {
    let place = Place::new();
    let origin = place.file("origin", BYTES);
    place.file("other", BYTES);
    place.file("flash", 3 << 20);
    std::os::unix::fs::symlink(&origin, place.path("link")).unwrap();
    std::fs::hard_link(&origin, place.path("hard")).unwrap();
    let w = |name: &str| place.word(name);
    let key = |key: &str, value: &str| format!("{key} = \"{value}\"\n");
    let dotted = format!("{}/./origin", origin.parent().unwrap().display());
    for again in [w("origin"), w("link"), w("hard"), dotted] {
        let slow = format!("slow+{again}?profile=cloud");
        for again in [again, slow] {
            let text = volume(&place, "a", &key("origin", &w("origin")))
                + &volume(&place, "b", &key("origin", &again));
            let has = [again.as_str(), "origin of volume 'a'", "origin of volume 'b'"];
            refused(&place, &text, 4, &has);
            let flash = key("origin", &w("other")) + &key("flash", &again);
            let text =
                volume(&place, "a", &key("origin", &w("origin"))) + &volume(&place, "b", &flash);
            refused(&place, &text, 4, &["origin of volume 'a'", "flash of volume 'b'"]);
        }
    }
    // A flash file that is not there yet.
    let flash = key("flash", &w("new")) + &key("flash_size", "3MiB");
    let text = volume(&place, "a", &(key("origin", &w("origin")) + &flash))
        + &volume(&place, "b", &(key("origin", &w("other")) + &flash));
    refused(&place, &text, 4, &["flash of volume 'a'", "flash of volume 'b'"]);
    assert!(!place.path("new").exists());
}

#[test]
fn places_given_twice_or_missing_are_refused_before_anything_is_written() {
    let place = Place::new();
    place.file("flash", 3 << 20);
    let flash = format!("origin = \"mem:8MiB\"\nflash = \"{}\"\n", place.word("flash"));
    let mem = "origin = \"mem:8MiB\"\n";
    let (sock, other) = (place.word("sock"), place.word("other"));
    let control = |path: &str| format!("control = \"{path}\"\n");
    let listen = |path: &str| format!("listen = [\"nbd+unix:{path}\"]\n");
    let pair = |a: &str, b: &str| {
        volume(&place, "a", &format!("{flash}{a}")) + &volume(&place, "b", &format!("{mem}{b}"))
    };
    let twice = ["given twice", "volume 'a'", "volume 'b'", sock.as_str()];
    refused(&place, &pair(&control(&sock), &control(&sock)), 4, &twice);
    refused(&place, &pair(&listen(&sock), &control(&sock)), 4, &twice);
    refused(&place, &pair(&control(&sock), &listen(&sock)), 4, &twice);
    let same = format!("{mem}control = \"{other}\"\n");
    let same = format!("{same}listen = [\"nbd+unix:{sock}\", \"nbd+unix:{sock}\"]\n");
    refused(&place, &same, 4, &["given twice, as --listen and as --listen", &sock]);
    // A file is one volume, and names none.
    let file = format!("listen = \"fuse:{sock}\"\n");
    refused(&place, &pair(&file, &file), 4, &twice);
    refused(&place, &pair(&file, &listen(&sock)), 4, &twice);
    refused(&place, &pair(&control(&sock), &file), 4, &twice);
    let dotted = format!("listen = \"fuse:{}/./sock\"\n", place.path(".").display());
    refused(&place, &pair(&file, &dotted), 4, &["given twice", "volume 'a'", "volume 'b'"]);
    let precious = format!("listen = \"fuse:{}\"\n", place.word("config.toml"));
    refused(&place, &pair("", &precious), 2, &["volume 'b'", "is not empty"]);
    let nowhere = place.word("none/nbd");
    let dir = place.word("none");
    refused(&place, &pair("", &listen(&nowhere)), 2, &["volume 'b'", "does not exist", &dir]);
    refused(&place, &pair("", "origin2 = 1\n"), 2, &["config.toml:", "unknown key 'origin2'"]);
    refused(
        &place,
        &pair("", "unit = \"3MiB\"\n"),
        2,
        &["config.toml:", "unit: got 3MiB, accepted"],
    );
    let flash = std::fs::read(place.path("flash")).unwrap();
    assert!(flash.iter().all(|b| *b == 0), "the flash was written to");
    for left in ["sock", "other", "nbd-a", "nbd-b", "control-a", "control-b"] {
        assert!(!place.path(left).exists(), "{left} is left behind");
    }
}

/// Who is let in at a socket is asked before which volume is wanted.
#[test]
fn volumes_at_one_socket_let_the_same_in() {
    let (place, certs) = (Place::new(), certs::Certs::new());
    let path = |name: &str| certs.path(name).to_str().unwrap().to_owned();
    let (cert, key, ca) = (path("server-cert.pem"), path("server-key.pem"), path("ca-cert.pem"));
    let tls = format!("tls_cert = \"{cert}\"\ntls_key = \"{key}\"\n");
    let (known, everywhere) = (format!("tls_client_ca = \"{ca}\"\n"), "tls_require = true\n");
    let socket = place.word("sock");
    let both = format!("origin = \"mem:8MiB\"\nlisten = \"nbd+unix:{socket}\"\n");
    for (more, flag) in [
        (String::new(), "--tls-cert"),
        (format!("{tls}{known}"), "--tls-client-ca"),
        (format!("{tls}{everywhere}"), "--tls-require"),
        (format!("{tls}listen_mode = \"0600\"\n"), "--listen-mode"),
    ] {
        let text = volume(&place, "a", &format!("{both}{tls}"))
            + &volume(&place, "b", &format!("{both}{more}"));
        refused(&place, &text, 2, &[&socket, &format!("different {flag}"), "accepted: the same"]);
    }
    let alone = volume(&place, "a", &format!("{both}tls_cert = \"{cert}\""));
    refused(&place, &alone, 2, &["config.toml", "missing keys: tls_key"]);
    let bad = volume(&place, "a", &format!("{both}{}", tls.replace(&cert, &key)));
    refused(&place, &bad, 2, &["has no certificate", &key]);
    // All of it above the volumes: both have it.
    let text = format!("drain = \"5s\"\n{tls}{known}{everywhere}")
        + &volume(&place, "a", &both)
        + &volume(&place, "b", &both);
    let config = place.path("config.toml");
    std::fs::write(&config, text).unwrap();
    let server = Server::start_config(&config, 2);
    let names = Names { certificates: Some(certs.dir().to_owned()), ..Names::default() };
    for export in ["a", "b"] {
        let address = Address::Unix(place.path("sock"));
        let plain = Uri { address, export: export.to_owned(), tls: None };
        assert!(Client::connect(&plain, &Options::default()).is_err(), "without TLS");
        let mut client = connect(&Uri { tls: Some(names.clone()), ..plain });
        client.write_at(0, &[7; 4096], true).unwrap();
    }
    assert!(server.addresses().iter().all(|a| a.starts_with("nbds+unix:///")));
    server.stop();
}

/// A file that was made for a start that failed would be in the way of the next one.
#[test]
fn a_start_is_whole_or_not_at_all() {
    let place = Place::new();
    let flash = format!(
        "origin = \"mem:8MiB\"\nflash = \"{}\"\nflash_size = \"3MiB\"\n",
        place.word("flash")
    );
    let missing = format!("origin = \"{}\"\n", place.word("missing"));
    let text = volume(&place, "a", &flash) + &volume(&place, "b", &missing);
    refused(&place, &text, 2, &["volume 'b'", "no such file"]);
    assert!(!place.path("flash").exists(), "the flash of the other is left behind");
}

#[test]
fn memory_is_counted_over_all_volumes() {
    let place = Place::new();
    let available = larder_io::process::available_memory().unwrap();
    // Each map takes six tenths of what there is.
    let origin = format!("origin = \"null:{}GiB\"\nflash = \"mem:4MiB\"\n", {
        (available / 10 * 6 / 4 * (64 << 10)) >> 30
    });
    let small = format!("{origin}unit = \"64KiB\"\nworkers = 64\n");
    let text = volume(&place, "a", &small) + &volume(&place, "b", &small);
    let config = place.path("config.toml");
    std::fs::write(&config, text).unwrap();
    let ended = run(&mut larder(["serve", config.to_str().unwrap()]));
    assert_eq!(ended.code, 4, "{ended:?}");
    assert!(ended.err.contains("of memory at worst"), "{ended:?}");
}
