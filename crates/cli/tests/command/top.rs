// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder top` with a terminal and without: figures of the servers that are there, and an end
//! that leaves the terminal as it was.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::io::{Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use larder_testkit::command::{have, larder, larder_says, one_json, run};
use larder_testkit::place::Place;
use larder_testkit::server::Server;

fn serve(place: &Place, name: &str) -> Server {
    let dir = place.path("larder");
    std::fs::create_dir_all(&dir).unwrap();
    let at = |what: &str| format!("{}/{name}.{what}", dir.display());
    let words = [
        "serve".to_owned(),
        "--origin=mem:8MiB".to_owned(),
        "--flash=mem:4MiB".to_owned(),
        "--listen".to_owned(),
        format!("nbd+unix:{}", at("nbd")),
        format!("--control={}", at("sock")),
        format!("--name={name}"),
    ];
    Server::start(&words)
}

#[test]
fn one_snapshot_without_a_terminal() {
    let place = Place::new();
    let (a, b) = (serve(&place, "a"), serve(&place, "b"));
    let sock = |name: &str| format!("--control={}", place.word(&format!("larder/{name}.sock")));
    let (sock_a, sock_b) = (sock("a"), sock("b"));
    // Standard output of a test is no terminal.
    for more in [&[][..], &["--once"]] {
        let words = [&["top", &sock_a, &sock_b, "--interval=200ms"], more].concat();
        let text = larder_says(&words).ok();
        assert_eq!(text.lines().count(), 14, "{text}");
        assert!(text.starts_with("a  caching\n") && text.contains("\nb  caching\n"), "{text}");
        assert!(text.contains("units 0 of 3") && text.contains("connections 0"), "{text}");
    }
    let value = one_json(&larder_says(&["top", &sock_a, "--json", "--interval=200ms"]).ok());
    assert_eq!(value[0]["name"], "a");
    assert_eq!(value[0]["stats"]["units_total"], 3);
    assert!(value[0]["reads_per_second"].is_number() && value[0]["hit_ratio"].is_null());
    // One is gone: the other is shown, and the gone one named.
    b.stop();
    let ended = larder_says(&["top", &sock_a, &sock_b, "--interval=200ms"]);
    assert!(ended.code == 0 && ended.out.starts_with("a  caching"), "{ended:?}");
    assert!(ended.err.contains("b.sock") && ended.err.lines().count() == 1, "{ended:?}");
    let ended = larder_says(&["top", &sock_b, "--interval=200ms"]);
    assert_eq!((ended.code, ended.err.lines().count()), (2, 1), "{ended:?}");
    a.stop();
}

#[test]
fn all_servers_of_the_default_directory_are_shown() {
    if rustix::process::geteuid().is_root() {
        // The directory of root is the machine's own.
        return;
    }
    let place = Place::new();
    let (a, b) = (serve(&place, "a"), serve(&place, "b"));
    let home = place.word("");
    let ended = run(larder(["top", "--interval=200ms"]).env("XDG_RUNTIME_DIR", &home));
    let text = ended.ok();
    assert!(text.contains("a  caching") && text.contains("b  caching"), "{text}");
    a.stop();
    b.stop();
    let ended = run(larder(["top"]).env("XDG_RUNTIME_DIR", &home));
    assert_eq!((ended.code, ended.err.lines().count()), (2, 1), "{ended:?}");
}

/// Runs it in a terminal; keys are pressed once the figures are there: before that a Control-C is the
/// terminal's own.
fn in_a_terminal(place: &Place, keys: &[u8]) -> String {
    let (mut child, mut screen, mut text) = shown(place);
    child.stdin.as_mut().unwrap().write_all(keys).unwrap();
    screen.read_to_end(&mut text).unwrap();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(child.wait().unwrap().success(), "{text:?}");
    text
}

/// The view in a terminal, and what it has drawn: first its process id, then at least a volume.
fn shown(place: &Place) -> (Child, ChildStdout, Vec<u8>) {
    let control = place.word("larder/a.sock");
    let larder = env!("CARGO_BIN_EXE_larder");
    // Such a terminal begins without a size. SIGHUP is ignored, as under nohup.
    let line = format!(
        "trap '' HUP; stty rows 30 cols 100; echo $$; exec {larder} top --control {control} --interval 200ms"
    );
    let mut child = Command::new("script")
        .args(["-qefc", &line, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut screen = child.stdout.take().unwrap();
    let (mut text, mut part) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&text).contains("caching") {
        let read = screen.read(&mut part).unwrap();
        assert!(read > 0, "nothing is shown: {:?}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&part[..read]);
    }
    (child, screen, text)
}

#[test]
fn it_ends_with_its_terminal() {
    if !have("script", "bsdutils") {
        return;
    }
    let place = Place::new();
    let server = serve(&place, "a");
    let (mut child, screen, text) = shown(&place);
    let text = String::from_utf8_lossy(&text).into_owned();
    let top = format!("/proc/{}/exe", text.lines().next().unwrap().trim());
    assert!(std::fs::read_link(&top).unwrap().ends_with("larder"), "{text:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    drop(screen);
    let begun = Instant::now();
    while std::fs::read_link(&top).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it runs without a terminal");
        std::thread::sleep(Duration::from_millis(20));
    }
    server.stop();
}

#[test]
fn a_terminal_is_used_and_left_as_it_was() {
    if !have("script", "bsdutils") {
        return;
    }
    let place = Place::new();
    let server = serve(&place, "a");
    for keys in [&b"q"[..], b"\x03", b"x\x1b[Bq"] {
        let text = in_a_terminal(&place, keys);
        assert!(text.contains("larder top") && text.contains("caching"), "{text:?}");
        let (enter, leave) = ("\x1b[?1049h", "\x1b[?1049l");
        let (entered, left) = (text.find(enter), text.rfind(leave));
        assert!(entered.is_some() && left > entered, "the screen is not given back: {text:?}");
    }
    server.stop();
}
