// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of the command line: one line that states what is wrong, the contract's exit code, and never the text of a
//! panic. JSON output is one value with the keys of the contract.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;

use larder_testkit::command::{self, Ended, larder, larder_says, one_json, run};
use larder_testkit::load;
use larder_testkit::place::Place;
use larder_testkit::server::Server;

/// The last line of an error; all of them must be fit for a user.
fn line(ended: &Ended, code: i32) -> &str {
    assert_eq!(ended.code, code, "{ended:?}");
    assert_eq!(ended.out, "", "an error leaves stdout empty");
    for word in ["panicked", "RUST_BACKTRACE", "unwrap", "larder_", "Error {"] {
        assert!(!ended.err.contains(word), "{ended:?}");
    }
    let last = ended.err.lines().last().unwrap_or_default();
    assert!(last.starts_with("larder: ") && ended.err.ends_with('\n'), "{ended:?}");
    last
}

/// Runs `larder` with words parted by spaces; it must say just one line, with these in it.
fn slip(words: &str, code: i32, has: &[&str]) {
    let words: Vec<&str> = words.split_whitespace().collect();
    let ended = larder_says(&words);
    line(&ended, code);
    assert_eq!(ended.err.lines().count(), 1, "{ended:?}");
    for has in has {
        assert!(ended.err.contains(has), "'{has}' is missing: {ended:?}");
    }
}

#[test]
fn unknown_words_are_named() {
    slip("frobnicate", 2, &["frobnicate", "see larder --help"]);
    slip("srve", 2, &["did you mean 'serve'?"]);
    slip("serve --orgin x", 2, &["did you mean '--origin'?; see larder serve --help-all"]);
    slip("serve --bogus 5", 2, &["--bogus"]);
    slip("status --bogus", 2, &["--bogus"]);
    slip("serve", 2, &["--origin", "--listen"]);
    slip("size --origin 1TiB", 2, &["--flash"]);
    slip("attach --format", 2, &["need DEV"]);
    slip("bench no-such-bench", 2, &["no-such-bench", "accepted"]);
    slip("bench regret memory", 2, &["bench 'regret'", "accepted: alone"]);
    slip("bench memory --only oltp", 2, &["--only", "accepted: larder bench regret"]);
    slip("bench regret --only ontp", 2, &["--only: got 'ontp'", "accepted no-cache"]);
    slip("presets extra", 2, &["extra"]);
    slip("torture --profile nosuch", 2, &["nosuch", "everyday", "metadata-rot"]);
    slip("torture --runs 0", 2, &["0"]);
    slip("torture --runs 5 --for 5s", 2, &["--runs", "--for"]);
}

#[test]
fn no_words_at_all_bring_the_help() {
    let ended = larder_says(&[]);
    assert!(ended.code == 2 && ended.err.contains("Operate a running server:"), "{ended:?}");
}

#[test]
fn help_and_version_are_no_slips() {
    for words in [&["--help"][..], &["serve", "--help"], &["--version"], &["help", "size"]] {
        let ended = larder_says(words);
        assert!(ended.code == 0 && !ended.out.is_empty() && ended.err.is_empty(), "{ended:?}");
    }
}

/// `serve` refuses these flags and does not listen.
fn serve_refuses(words: &str, has: &[&str]) {
    let place = Place::new();
    let listen = place.word("nbd");
    slip(&format!("serve --origin mem:8MiB --listen nbd+unix:{listen} {words}"), 2, has);
    assert!(!place.path("nbd").exists());
}

#[test]
fn values_that_cannot_be_are_refused_with_what_would_do() {
    for (words, value) in [
        ("--unit abc", "'abc'"),
        ("--unit 3MiB", "3MiB"),
        ("--unit 32KiB", "32KiB"),
        ("--unit 16MiB", "16MiB"),
        ("--unit -1", "-1"),
        ("--flash-size 1XiB", "'1XiB'"),
        ("--client-memory 95MiB", "--client-memory: got '95MiB', accepted at least 96MiB"),
        ("--client-idle 999ms", "--client-idle: got '999ms', accepted at least 1s"),
        ("--write-buffer 99999999999999999999", "99999999999999999999"),
        ("--ram 64KiB", "--ram: got 64KiB, accepted 0, or at least 1MiB"),
        ("--populate-io 1", "--populate-io: got 1"),
        ("--populate-io 2MiB", "2MiB"),
        ("--populate-miss 200%", "'200%'"),
        ("--populate-free x", "'x'"),
        ("--populate-period 5", "'5'"),
        ("--populate-workers 1,2 --populate-miss 1", "--populate-miss"),
        (
            "--populate-workers 8,4,1,1 --populate-free 0,0,0,0 --populate-period 0,0,0,0 --populate-miss 0%,0%,15%,35%",
            "--populate-miss: got 0,0,0.15,0.35, accepted falling",
        ),
        ("--listen-mode 660", "'660'"),
        ("--metrics 9470", "accepted HOST:PORT"),
        ("--populate-workers 99999", "99999"),
        ("--populate-list 0", "--populate-list-misses: got 0"),
        ("--clock-ceiling 0", "--clock-ceiling-count: got 0"),
        ("--clock-ceiling 256", "256"),
        ("--flash-timeout 0", "--flash-timeout"),
        ("--flash-timeout 40s", "flash_dead_after, 30s"),
        ("--flash-errors 0", "--flash-errors-per-minute: got 0"),
        ("--drain 5", "'5'"),
        ("--drain 5parsecs", "'5parsecs'"),
        ("--workers 0", "--workers: got 0, accepted 1 to 64"),
        ("--workers 65", "--workers: got 65"),
        ("--workers 99999999999", "99999999999"),
        ("--preset nosuch", "--preset: got nosuch, accepted sce"),
        ("--write-policy back", "'back'"),
        ("--durability eternal", "'eternal'"),
        ("--write-policy full", "accepted with page logs only (--preset face or face-basic)"),
        ("--durability log", "accepted with page logs only"),
        ("--batch-pages 8", "accepted with page logs only"),
        ("--preset face --batch-pages 0", "accepted 1 to 256"),
        ("--preset face --batch-pages 257", "accepted 1 to 256"),
        ("--preset face --write-policy async", "accepted are full, ordered, bounded and through"),
        ("--preset face-basic --durability journal", "accepted is log with --preset face-basic"),
        ("--preset face --replacement lru", "pages are evicted in the order of the log"),
        ("--preset face --flash mem:64MiB", "is gone with this process"),
        ("--generation 7", "--generation: needs --name"),
        ("--format", "--flash"),
        ("--flash-size 1GiB", "--flash"),
        ("--listen fuse:", "accepted: nbd+unix:PATH"),
        ("--listen nbd://host", "accepted: nbd+unix:PATH"),
        ("--listen nbd://127.0.0.1:99999", "accepted: nbd+unix:PATH"),
        ("--listen nbd+unix:", "accepted: nbd+unix:PATH"),
    ] {
        serve_refuses(words, &[value]);
    }
    for (words, has) in [
        ("size --origin 0 --flash 1GiB", "--origin: got 0, accepted"),
        ("size --origin 1GiB --flash 0", "--flash: got 0, accepted at least one unit, 1MiB"),
        ("detach --bound 1.5s", "accepted whole seconds"),
        ("flush --bound 0", "accepted whole seconds"),
        ("size --origin 1GiB --flash 1GiB --unit 5", "accepted"),
        ("size --origin 16EiB --flash 1GiB", "less than 16EiB"),
    ] {
        slip(words, 2, &[has]);
    }
}

/// Serves `origin` (and more words) in a place, in vain.
fn refused(place: &Place, origin: &str, more: &[&str], code: i32, has: &str) {
    let mut words = place.serve(&["--origin", origin]);
    words.extend(more.iter().map(|&w| w.to_owned()));
    let ended = run(&mut larder(&words));
    assert!(line(&ended, code).contains(has), "'{has}' is missing: {ended:?}");
    assert!(!place.path("nbd").exists() && !place.path("control").exists(), "sockets are left");
}

#[test]
fn devices_that_cannot_be_served_are_refused() {
    let place = Place::new();
    std::fs::create_dir(place.path("dir")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.path("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    place.file("empty", 0);
    for (origin, has) in [
        (place.word("missing"), "no such file"),
        (place.word("dir"), "a directory"),
        (place.word("pipe"), "a pipe"),
        (place.word("empty"), "0 bytes"),
        ("/dev/null".to_owned(), "a character device"),
        (String::new(), "empty"),
        ("mem:0".to_owned(), "0 bytes"),
        ("mem:4EiB".to_owned(), "too large"),
        ("null:lots".to_owned(), "'lots'"),
        ("rbd://pool/image".to_owned(), "'rbd'"),
        ("nbd://host/export".to_owned(), "cannot connect to nbd://host"),
        ("slow+mem:1GiB?profile=floppy".to_owned(), "floppy"),
        ("slow+mem:1GiB".to_owned(), "profile=NAME"),
    ] {
        refused(&place, &origin, &[], 2, has);
    }
}

#[test]
fn flash_that_cannot_be_used_is_refused() {
    let place = Place::new();
    let origin = place.file("origin", 8 << 20).to_str().unwrap().to_owned();
    place.file("small", 1 << 20);
    std::os::unix::fs::symlink(&origin, place.path("link")).unwrap();
    let (small, missing) = (place.word("small"), place.word("missing"));
    refused(&place, &origin, &["--flash", &small], 2, "too small");
    refused(&place, &origin, &["--flash", &missing], 2, "--flash-size SIZE");
    refused(&place, &origin, &["--flash", "mem:4MiB", "--flash-size", "0"], 2, "too small");
    let large = ["--flash", &missing, "--flash-size", "9PiB"];
    refused(&place, &origin, &large, 3, "cannot allocate 9PiB");
    let larger = ["--flash", &missing, "--flash-size", "18446744073709551615"];
    refused(&place, &origin, &larger, 2, "accepted less than 8EiB");
    let nowhere = ["--flash", "/nowhere/flash", "--flash-size", "64MiB"];
    refused(&place, &origin, &nowhere, 2, "/nowhere/flash of 64MiB cannot be created");
    assert!(!place.path("missing").exists(), "what could not be allocated is left behind");
    refused(&place, &origin, &["--flash", &origin], 4, "given twice");
    refused(&place, &origin, &["--flash", &place.word("link")], 4, "given twice");
    assert!(std::fs::read(&origin).unwrap().iter().all(|b| *b == 0), "the origin was written");
}

/// The least size in the error is a size that is accepted.
#[test]
fn a_flash_size_that_is_too_small_states_one_that_is_accepted() {
    for preset in ["sce", "prwc", "slru", "face"] {
        let place = Place::new();
        let origin = place.file("origin", 64 << 20).to_str().unwrap().to_owned();
        let flash = place.word("flash");
        let serve = |size: &str| {
            let words = ["--origin", &origin, "--flash", &flash, "--flash-size", size];
            let state = ["--preset", preset, "--state", &place.word("state")];
            place.serve(&[&words[..], &state].concat())
        };
        let ended = run(&mut larder(serve("4KiB")));
        let error = line(&ended, 2);
        let size = error.rsplit(' ').next().unwrap();
        assert!(error.contains("--flash-size: got 4KiB") && size.ends_with("MiB"), "{error}");
        let mib: u64 = size.trim_end_matches("MiB").parse().unwrap();
        if mib > 1 {
            line(&run(&mut larder(serve(&format!("{}MiB", mib - 1)))), 2);
        }
        Server::start(&serve(size)).stop();
    }
}

#[test]
fn foreign_data_on_flash_is_safe_without_format() {
    let place = Place::new();
    let origin = place.file("origin", 8 << 20).to_str().unwrap().to_owned();
    let (foreign, bytes) = (place.file("foreign", 0), vec![0xa5; 4 << 20]);
    let word = place.word("foreign");
    // Foreign data at the start of the device, or only at its end.
    for from in [0, (4 << 20) - 512] {
        let mut content = bytes.clone();
        content[..from].fill(0);
        std::fs::write(&foreign, &content).unwrap();
        refused(&place, &origin, &["--flash", &word], 4, "--format");
        assert!(std::fs::read(&foreign).unwrap() == content, "foreign data was changed");
        let words = place.serve(&["--origin", &origin, "--flash", &word, "--format"]);
        Server::start(&words).stop();
        // From now on it is ours.
        let words = place.serve(&["--origin", &origin, "--flash", &word]);
        Server::start(&words).stop();
    }
    if ["/usr/sbin/blkid", "/sbin/blkid"].iter().any(|blkid| Path::new(blkid).exists()) {
        // A swap area.
        let mut content = vec![0; 4 << 20];
        content[1024] = 1;
        content[1028..1032].copy_from_slice(&1023_u32.to_le_bytes());
        content[4086..4096].copy_from_slice(b"SWAPSPACE2");
        let ours = std::fs::read(&foreign).unwrap();
        std::fs::write(&foreign, &content).unwrap();
        refused(&place, &origin, &["--flash", &word], 4, "holds swap");
        std::fs::write(&foreign, &ours).unwrap();
    }
    let mut damaged = std::fs::read(&foreign).unwrap();
    // Both copies of the label.
    damaged[40] ^= 1;
    damaged[(64 << 10) + 40] ^= 1;
    std::fs::write(&foreign, &damaged).unwrap();
    let words = place.serve(&["--origin", &origin, "--flash", &word]);
    let ended = run(&mut larder(&words));
    assert!(line(&ended, 4).contains("--format"), "{ended:?}");
}

/// A cache on a device that forgets would serve zeroes in place of data.
#[test]
fn a_flash_that_forgets_is_refused() {
    let place = Place::new();
    command::make_initial(&place.path("origin"), 8 << 20);
    let words = place.serve(&["--origin", &place.word("origin"), "--flash", "null:8MiB"]);
    let Ok(server) = Server::try_start(&words) else { return };
    let mut client = place.client();
    for _ in 0..20 {
        let mut bytes = vec![0; 1 << 20];
        client.read_at(0, &mut bytes).unwrap();
        let right = load::initial(0, 1 << 20);
        assert!(bytes == right, "a null flash was accepted, and wrong bytes served");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    server.stop();
}

#[test]
fn what_does_not_fit_into_memory_is_refused_before_it_starts() {
    let place = Place::new();
    let flash = ["--flash", "mem:1GiB", "--unit", "64KiB"];
    refused(&place, "null:4EiB", &flash, 4, "of memory at worst");
    refused(&place, "null:4EiB", &["--unit", "64KiB"], 2, "use a larger --unit");
    refused(&place, "null:15EiB", &["--unit", "8MiB"], 2, "use a larger --unit");
}

/// `attach` needs the memory that `serve` would have refused.
#[test]
fn what_does_not_fit_into_memory_is_not_attached() {
    let place = Place::new();
    let words = place.serve(&["--origin", "null:1EiB", "--unit", "8MiB", "--workers", "64"]);
    let server = Server::start(&words);
    let ended = place.ask(&["attach"]);
    assert!(ended.code == 2 && ended.err.contains("accepted: larder attach DEV"), "{ended:?}");
    let ended = place.ask(&["attach", "mem:64MiB"]);
    assert_eq!(ended.code, 4, "512 GiB of map were accepted: {ended:?}");
    assert!(line(&ended, 4).contains("memory"), "{ended:?}");
    assert_eq!(place.status()["state"], "pass-through");
    server.stop();
}

#[test]
fn places_that_cannot_be_listened_at_are_refused() {
    let place = Place::new();
    let listen = |spec: &str, control: &str, code: i32, has: &str| {
        let words = ["serve", "--origin", "mem:1MiB", "--listen", spec, "--control", control];
        let ended = larder_says(&words);
        assert!(line(&ended, code).contains(has), "{ended:?}");
    };
    let (control, nbd) = (place.word("control"), format!("nbd+unix:{}", place.word("nbd")));
    std::fs::write(place.path("file"), "precious").unwrap();
    let file = place.word("file");
    listen(&format!("nbd+unix:{file}"), &control, 4, "is not a socket");
    listen(&nbd, &file, 4, "is not a socket");
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    listen(&format!("nbd+unix:{}/none/nbd", place.word("dir")), &control, 2, "cannot listen");
    listen(&format!("nbd+unix:{}", place.word(&"x".repeat(120))), &control, 2, "cannot listen");
    listen("nbd://192.0.2.1:10809", &control, 2, "cannot listen");
    listen(&nbd, &place.word("nbd"), 4, "given twice, as --listen and as --control");
    listen(&nbd, "/proc/nowhere/larder/control", 2, "/proc/nowhere/larder: does not exist");
    for left in ["nbd", "control"] {
        assert!(!place.path(left).exists(), "{left} is left behind");
    }
}

/// A TCP port and a unix socket in use are refused with the same exit code.
#[test]
fn places_in_use_are_refused() {
    let place = Place::new();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let _unix = std::os::unix::net::UnixListener::bind(place.path("busy")).unwrap();
    let (tcp, unix) = (tcp.local_addr().unwrap(), place.word("busy"));
    let control = place.word("control");
    let nbd = format!("nbd+unix:{}", place.word("nbd"));
    let (busy_tcp, busy_unix) = (format!("nbd://{tcp}"), format!("nbd+unix:{unix}"));
    for more in [
        &["--listen", &busy_tcp][..],
        &["--listen", &busy_unix],
        &["--listen", &nbd, "--metrics", &tcp.to_string()],
    ] {
        let words = ["serve", "--origin", "mem:1MiB", "--control", &control];
        let ended = larder_says(&[&words[..], more].concat());
        assert!(line(&ended, 4).contains("another server listens there"), "{ended:?}");
    }
}

/// A directory that is missing is not reported as a directory without permission.
#[test]
fn a_missing_state_directory_is_named_as_missing() {
    let place = Place::new();
    let origin = place.file("origin", 8 << 20).to_str().unwrap().to_owned();
    let flash = ["--flash", &place.word("flash"), "--flash-size", "64MiB"].map(str::to_owned);
    let flash: Vec<&str> = flash.iter().map(String::as_str).collect();
    // Not even root creates a directory there.
    let more = [&flash[..], &["--state", "/proc/sssd/larder"]].concat();
    refused(&place, &origin, &more, 2, "it does not exist and cannot be created");
}

#[test]
fn unix_listeners_are_open_to_whom_they_are_meant_for() {
    use std::os::unix::fs::PermissionsExt;
    for mode in ["0600", "0660", "0666"] {
        let place = Place::new();
        let server = Server::start(&place.serve(&["--origin", "mem:1MiB", "--listen-mode", mode]));
        let of =
            |name: &str| std::fs::metadata(place.path(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(of("nbd"), u32::from_str_radix(mode, 8).unwrap());
        assert_eq!(of("control"), 0o600, "the operator's door is another");
        server.stop();
    }
}

#[test]
fn commands_without_a_server_say_so() {
    let place = Place::new();
    std::fs::write(place.path("file"), "").unwrap();
    drop(std::os::unix::net::UnixListener::bind(place.path("stale")).unwrap());
    for at in ["nothing", "file", "stale"] {
        let at = place.word(at);
        for command in ["status", "stats", "flush", "detach", "attach mem:8MiB"] {
            slip(&format!("{command} --json --control {at}"), 2, &[&at, "no server"]);
        }
    }
}

/// A message states its cause once.
#[test]
fn a_message_says_it_once() {
    let place = Place::new();
    let ended = run(&mut larder(place.serve(&["--origin", &place.word("missing")])));
    let said = line(&ended, 2).matches("no such file").count();
    assert_eq!(said, 1, "{ended:?}");
}

/// Readers that go away and disks that are full are not bugs of ours.
#[test]
fn a_lost_stdout_is_no_panic() {
    for words in [&["presets"][..], &["size", "--origin", "1TiB", "--flash", "1TiB", "--json"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        for out in [OwnedFd::from(writer), OwnedFd::from(full)] {
            let child = larder(words).stdout(Stdio::from(out)).stderr(Stdio::piped()).spawn();
            let output = child.unwrap().wait_with_output().unwrap();
            let err = String::from_utf8(output.stderr).unwrap();
            assert!(!err.contains("panicked") && err.lines().count() <= 1, "{err}");
            assert_ne!(output.status.code(), Some(101));
        }
    }
}

#[test]
fn json_is_one_value_with_the_promised_keys() {
    // `larder` takes two bytes more for each unit of the origin.
    for (preset, full, worst) in [("sce", 0.7, 1.2), ("larder", 0.9, 1.4)] {
        let size = format!("size --origin 100TiB --flash 16TiB --preset {preset} --json");
        let size = one_json(&larder_says(&size.split(' ').collect::<Vec<_>>()).ok());
        let bytes = |key: &str| size[key].as_u64().unwrap() as f64 / f64::from(1 << 30);
        assert!(bytes("memory_full_bytes") <= full && bytes("memory_bytes") <= worst, "{size}");
        assert!(bytes("memory_full_bytes") <= bytes("memory_bytes"), "{size}");
    }
    let presets = one_json(&larder_says(&["presets", "--json"]).ok());
    let sce = presets.as_array().unwrap().iter().find(|p| p["name"] == "sce").unwrap();
    for key in ["unit", "admission", "replacement", "write_policy", "metadata"] {
        assert!(sce[key].is_string(), "{key}: {sce}");
    }
    let table = larder_says(&["presets"]).ok();
    for preset in presets.as_array().unwrap() {
        assert!(table.contains(preset["name"].as_str().unwrap()), "{preset}: {table}");
    }
    assert!(presets.as_array().unwrap().len() >= 5, "{presets}");
    assert!(table.lines().all(|l| l.chars().count() <= 100), "too wide to be read: {table}");
    let place = Place::new();
    let server = Server::start(&place.serve(&["--origin", "mem:8MiB", "--flash", "mem:4MiB"]));
    for command in ["status", "stats", "flush", "detach"] {
        assert!(one_json(&place.ask(&[command, "--json"]).ok()).is_object(), "{command}");
    }
    assert!(one_json(&place.ask(&["attach", "mem:4MiB", "--json"]).ok()).is_object());
    server.stop();
}

#[test]
fn torture_is_the_same_with_any_number_of_threads() {
    let torture = |jobs: &str| {
        let words = ["torture", "--seed", "7", "--runs", "6", "--json", "--jobs", jobs];
        one_json(&larder_says(&words).ok())
    };
    let (one, two) = (torture("1"), torture("2"));
    assert_eq!((&one["seeds"], &one["first_seed"]), (&6.into(), &7.into()));
    for key in ["ops", "crashes", "recoveries", "violations", "undetected_by_contract", "digest"] {
        assert!(!one[key].is_null() && one[key] == two[key], "{key}: {one} {two}");
    }
    assert!(one["seconds"].is_number() && one["violations"] == 0, "{one}");
}

#[test]
#[cfg(not(feature = "mutants"))]
fn mutants_are_not_in_every_build() {
    slip("torture --mutants", 2, &["--mutants", "--features mutants"]);
    slip("torture --mutant fua-ignored --seed 0 --runs 1", 2, &["--mutant", "--features mutants"]);
}

#[test]
#[cfg(feature = "mutants")]
fn a_mutant_is_caught_by_its_seed_and_told() {
    let words = "torture --mutant fua-ignored --seed 0 --runs 1 --json";
    let ended = larder_says(&words.split(' ').collect::<Vec<_>>());
    assert!(ended.code == 1 && ended.err.contains("the history of sector"), "{ended:?}");
    assert!(larder_says(&["torture", "--seed", "0", "--runs", "1"]).code == 0);
    slip("torture --mutant nosuch", 2, &["nosuch", "fua-ignored"]);
}
