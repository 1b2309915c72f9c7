// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a serving process dropped: files and system calls that it does not use, and programs that it might execute.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use larder_nbd::client::{Client, Options};
use larder_nbd::uri::{Names, Uri};
use larder_testkit::certs::Certs;
use larder_testkit::command::make_initial;
use larder_testkit::load::eventually;
use larder_testkit::place::Place;
use larder_testkit::server::{Server, of_threads};
use rustix::process::Signal;

const BYTES: u64 = 4 << 20;

/// Whether the kernel restricts files: the first version of Landlock is in Linux 5.13, and it can be switched off.
fn has_landlock() -> bool {
    let names = std::fs::read_to_string("/sys/kernel/security/lsm");
    let has = match names {
        Ok(names) => names.contains("landlock"),
        // Not mounted, or closed to this user.
        Err(_) => {
            let release = rustix::system::uname().release().to_string_lossy().into_owned();
            let mut parts = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
            (parts.next(), parts.next()) >= (Some(5), Some(13))
        }
    };
    if !has {
        println!("skipped: the kernel has no Landlock");
    }
    has
}

#[test]
fn a_server_uses_only_its_own_files() {
    if !has_landlock() {
        return;
    }
    let (place, elsewhere) = (Place::new(), Place::new());
    make_initial(&place.path("origin"), BYTES);
    let other = elsewhere.file("flash", 4 << 20).to_str().unwrap().to_owned();
    for unrestricted in [false, true] {
        let more = ["--unrestricted"];
        let more = if unrestricted { &more[..] } else { &[] };
        let server = Server::start(&place.serve_cached(4, more));
        let pid = place.status()["pid"].as_u64().unwrap();
        let expected = if unrestricted { "0" } else { "1" };
        let threads = of_threads(pid, "NoNewPrivs");
        let given_up = threads.iter().filter(|value| *value == expected).count();
        assert!(threads.len() > 3 && given_up == threads.len(), "{threads:?}");
        // A container may filter system calls too.
        let filtered = of_threads(pid, "Seccomp");
        assert!(unrestricted || filtered.iter().all(|value| value == "2"), "{filtered:?}");
        place.ask(&["detach"]).ok();
        let attached = place.ask(&["attach", &other, "--format"]);
        if unrestricted {
            attached.ok();
        } else {
            assert_eq!(attached.code, 2, "{attached:?}");
            assert!(attached.err.contains("Permission denied"), "{attached:?}");
            assert!(attached.err.contains("--unrestricted"), "{attached:?}");
            assert!(std::fs::read(&other).unwrap().iter().all(|b| *b == 0));
            // Its own flash returns, and its state is written as before.
            place.ask(&["attach", &place.word("flash")]).ok();
            place.client().write_at(0, &[7; 4096], true).unwrap();
            assert_eq!(place.status()["state"], "caching");
        }
        server.stop();
        for left in ["nbd", "control"] {
            assert!(!place.path(left).exists(), "{left} is left behind");
        }
    }
}

/// A server without a flash accepts any device later.
#[test]
fn a_server_without_flash_accepts_a_file_later() {
    let (place, elsewhere) = (Place::new(), Place::new());
    make_initial(&place.path("origin"), BYTES);
    let other = elsewhere.file("flash", 4 << 20).to_str().unwrap().to_owned();
    let server = Server::start(&place.serve(&["--origin", &place.word("origin"), "--unit=64KiB"]));
    place.ask(&["attach", &other]).ok();
    assert_eq!(place.status()["state"], "caching");
    server.stop();
}

/// The server uses the file to which the link leads.
#[test]
fn a_flash_that_was_given_by_a_link_returns() {
    let (place, elsewhere) = (Place::new(), Place::new());
    make_initial(&place.path("origin"), BYTES);
    let file = elsewhere.file("flash", 4 << 20);
    std::os::unix::fs::symlink(file, place.path("flash")).unwrap();
    let server = Server::start(&place.serve_cached(4, &[]));
    place.ask(&["detach"]).ok();
    place.ask(&["attach", &place.word("flash")]).ok();
    assert_eq!(place.status()["state"], "caching");
    server.stop();
}

/// The file of the authority is a link to a file elsewhere, which is replaced before the connection is made again.
#[test]
fn a_flash_of_another_server_returns() {
    let (far, place, certs) = (Place::new(), Place::new(), Certs::new());
    far.file("flash", 4 << 20);
    make_initial(&place.path("origin"), BYTES);
    let path = |name: &str| certs.path(name).to_str().unwrap().to_owned();
    let (cert, key, ca) = (path("server-cert.pem"), path("server-key.pem"), path("ca-cert.pem"));
    let words = ["--origin", &far.word("flash"), "--tls-cert", &cert, "--tls-key", &key];
    let distant = Server::start(&far.serve(&[&words[..], &["--tls-require"]].concat()));
    let (linked, socket) = (place.word("ca.pem"), far.word("nbd"));
    std::os::unix::fs::symlink(&ca, &linked).unwrap();
    let flash = format!("nbds+unix:///?socket={socket}&tls-ca={linked}");
    let words = ["--origin", &place.word("origin"), "--flash", &flash, "--unit", "64KiB"];
    let server = Server::start(&place.serve(&words));
    place.ask(&["detach"]).ok();
    std::fs::copy(&ca, certs.path("new")).unwrap();
    std::fs::rename(certs.path("new"), &ca).unwrap();
    place.ask(&["attach", &flash]).ok();
    assert_eq!(place.status()["state"], "caching");
    server.stop();
    distant.stop();
}

/// Certificates and lists are read again by a server that is restricted.
#[test]
fn a_client_is_revoked_while_the_server_runs() {
    let (place, certs) = (Place::new(), Certs::new());
    certs.revoke(&[]);
    let path = |name: &str| certs.path(name).to_str().unwrap().to_owned();
    let (cert, key, ca) = (path("server-cert.pem"), path("server-key.pem"), path("ca-cert.pem"));
    let words = ["--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &ca];
    let crl = path("crl.pem");
    let words = [&words[..], &["--tls-client-crl", &crl, "--tls-require"]].concat();
    let words = [&["--origin", "mem:4MiB", "--flash", "mem:4MiB"], &words[..]].concat();
    let mut server = Server::start(&place.serve(&words));
    let names = Names { certificates: Some(certs.dir().to_owned()), ..Names::default() };
    let uri = Uri { tls: Some(names), ..place.uri() };
    let is_served = || {
        let client = Client::connect(&uri, &Options::default());
        client.and_then(|mut client| client.read_at(0, &mut [0; 512])).is_ok()
    };
    assert!(is_served());
    // Replaced, as programs do that renew it.
    certs.revoke(&["client"]);
    std::fs::copy(certs.path("crl.pem"), certs.path("new")).unwrap();
    std::fs::rename(certs.path("new"), certs.path("crl.pem")).unwrap();
    server.signal(Signal::HUP);
    eventually("the client is refused", || !is_served());
    std::fs::write(certs.path("crl.pem"), "nothing").unwrap();
    server.signal(Signal::HUP);
    eventually("a warning", || server.log().contains("crl.pem: has no revocation list"));
    assert_eq!(server.log().matches("stay in use").count(), 1, "{}", server.log());
    assert!(!is_served() && server.is_alive());
    certs.revoke(&[]);
    server.signal(Signal::HUP);
    eventually("the client is served again", is_served);
    server.stop();
}
