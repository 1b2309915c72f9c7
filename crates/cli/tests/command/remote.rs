// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLS and remote origins against other projects: libnbd's and QEMU's clients against our server,
//! and our client against nbdkit, with certificates on both sides.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::path::Path;
use std::process::{Child, Command, Stdio};

use larder_testkit::certs::Certs;
use larder_testkit::command::{have, larder_says, one_json, tool};
use larder_testkit::load::{accepts, eventually};
use larder_testkit::place::Place;
use larder_testkit::server::Server;

const BYTES: u64 = 16 << 20;

/// A server with TLS for clients of the authority, and the words that make it.
fn secure(place: &Place, certs: &Certs) -> Server {
    let path = |name: &str| certs.path(name).to_str().unwrap().to_owned();
    let (cert, key, ca) = (path("server-cert.pem"), path("server-key.pem"), path("ca-cert.pem"));
    place.file("origin", BYTES);
    let origin = place.word("origin");
    let tls = ["--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &ca];
    let more = [&["--origin", &origin, "--listen", "nbd://127.0.0.1:0"][..], &tls].concat();
    Server::start(&place.serve(&more))
}

#[test]
fn other_clients_come_in_with_a_certificate_and_not_without() {
    let tools =
        [("nbdinfo", "libnbd-bin"), ("nbdsh", "python3-libnbd"), ("qemu-img", "qemu-utils")];
    if !tools.iter().all(|(program, package)| have(program, package)) {
        return;
    }
    let (place, certs, strangers) = (Place::new(), Certs::new(), Certs::new());
    let server = secure(&place, &certs);
    let uri = server.addresses().into_iter().find(|a| a.starts_with("nbds://")).unwrap();
    let with = |certs: &Certs| format!("{uri}?tls-certificates={}", certs.dir().display());
    let info = one_json(&tool(&["nbdinfo", "--json", &with(&certs)]).ok());
    assert_eq!((&info["TLS"], &info["structured"]), (&true.into(), &true.into()), "{info}");
    assert_eq!(info["exports"][0]["export-size"], BYTES);
    assert_ne!(tool(&["nbdinfo", &with(&strangers)]).code, 0);
    let plain = tool(&["nbdinfo", &uri.replace("nbds://", "nbd://")]);
    assert!(plain.code != 0 && plain.err.contains("not supported"), "{plain:?}");
    // By the unix socket both are allowed.
    assert_eq!(tool(&["nbdinfo", "--size", &place.uri_word()]).ok().trim(), BYTES.to_string());

    let script = format!(
        "h.set_uri_allow_local_file(True)\n\
         h.connect_uri('{}')\n\
         d = bytes(range(256)) * 16384\n\
         h.pwrite(d, 4096); h.flush()\n\
         assert h.pread(len(d), 4096) == d\n\
         h.zero(65536, 8192)\n\
         assert h.pread(16384, 16384) == bytes(16384)\n\
         h.shutdown()",
        with(&certs)
    );
    tool(&["/usr/bin/python3", "-m", "nbd", "-c", &script]).ok();

    let noise: Vec<u8> = (0..BYTES).map(|i| ((i * 2_654_435_761) >> 7) as u8).collect();
    std::fs::write(place.path("noise"), &noise).unwrap();
    let creds = format!(
        "tls-creds-x509,id=t,endpoint=client,verify-peer=yes,dir={}",
        certs.dir().display()
    );
    let port = uri.trim_end_matches('/').rsplit(':').next().unwrap();
    let image = format!("driver=nbd,host=127.0.0.1,port={port},tls-creds=t");
    let noise_file = place.word("noise");
    tool(&[
        "qemu-img",
        "convert",
        "-n",
        "--object",
        &creds,
        "-f",
        "raw",
        &noise_file,
        "--target-image-opts",
        &image,
    ])
    .ok();
    let raw = format!("driver=raw,file.filename={noise_file}");
    tool(&["qemu-img", "compare", "--object", &creds, "--image-opts", &raw, &image]).ok();
    server.stop();
    assert!(std::fs::read(place.path("origin")).unwrap() == noise);
}

struct Nbdkit(Child);

impl Nbdkit {
    fn start(words: &[&str], socket: &Path) -> Self {
        let mut command = Command::new("nbdkit");
        command.args(["-f", "-U"]).arg(socket).args(words).stderr(Stdio::null());
        let server = Self(command.spawn().unwrap());
        accepts(socket);
        server
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_origin_behind_tls_is_cached() {
    if !have("nbdkit", "nbdkit") {
        return;
    }
    let (place, certs, strangers) = (Place::new(), Certs::new(), Certs::new());
    let remote = place.file("remote", BYTES);
    let dir = format!("--tls-certificates={}", certs.dir().display());
    let words = ["--tls=require", &dir, "--tls-verify-peer", "file", remote.to_str().unwrap()];
    let _nbdkit = Nbdkit::start(&words, &place.path("remote.sock"));
    let uri = |certs: &Certs| {
        let (socket, dir) = (place.word("remote.sock"), certs.dir().display().to_string());
        format!("nbds+unix:///?socket={socket}&tls-certificates={dir}")
    };
    let (flash, good) = (place.word("flash"), uri(&certs));
    let cached = ["--origin", &good, "--flash", &flash, "--flash-size", "8MiB", "--unit", "64KiB"];
    let server = Server::start(&place.serve(&cached));
    let data: Vec<u8> = (0..BYTES).map(|i| ((i * 2_654_435_761) >> 11) as u8).collect();
    let mut client = place.client();
    client.write_at(0, &data, false).unwrap();
    client.flush().unwrap();
    for _ in 0..3 {
        let mut back = vec![0; BYTES as usize];
        client.read_at(0, &mut back).unwrap();
        assert!(back == data);
    }
    client.disconnect().unwrap();
    server.stop();
    assert!(std::fs::read(&remote).unwrap() == data);

    let plain = format!("nbd+unix:///?socket={}", place.word("remote.sock"));
    for (origin, why) in [
        (uri(&strangers), "handshake failed"),
        (plain, "TLS is required"),
        (good.replace("&tls-certificates", "&tls-hostname=example.com&tls-certificates"), "failed"),
        (good.split('&').next().unwrap().to_owned(), "no authority to trust"),
    ] {
        let words = place.serve(&["--origin", &origin]);
        let ended = larder_says(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let line = ended.err.lines().last().unwrap_or_default().to_owned();
        assert!(ended.code == 2 && line.contains(why), "{ended:?}");
    }
}

#[test]
fn what_cannot_be_an_origin_gets_one_line() {
    if !have("nbdkit", "nbdkit") {
        return;
    }
    let place = Place::new();
    let _nbdkit = Nbdkit::start(&["-r", "memory", "16M"], &place.path("remote.sock"));
    let read_only = format!("nbd+unix:///?socket={}", place.word("remote.sock"));
    let there_is_none = format!("nbd+unix:///?socket={}", place.word("none"));
    for (origin, why) in [
        (read_only.as_str(), "read-only"),
        (there_is_none.as_str(), "cannot connect"),
        ("nbd://", "host is missing"),
        ("nbds://x/?tls-psk-file=/k", "unknown query"),
        ("nbd://127.0.0.1:1/x", "cannot connect"),
    ] {
        let words = place.serve(&["--origin", origin]);
        let ended = larder_says(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!((ended.code, ended.err.lines().count()), (2, 1), "{ended:?}");
        assert!(ended.err.contains(why), "{ended:?}");
    }
}

/// Before any client sends a FLUSH.
#[test]
fn a_lost_connection_with_unflushed_writes_is_an_alarm() {
    let (far, place) = (Place::new(), Place::new());
    far.file("origin", BYTES);
    let distant = Server::start(&far.serve(&["--origin", &far.word("origin")]));
    let server = Server::start(&place.serve(&["--origin", &far.uri_word()]));
    place.client().write_at(0, &[7; 4096], false).unwrap();
    assert!(place.status()["alarm"].is_null());
    distant.kill();
    eventually("the alarm", || {
        place.status()["alarm"].as_str().is_some_and(|alarm| alarm.contains("may have lost them"))
    });
    assert!(place.status()["advice"].as_str().unwrap().contains("no FLUSH succeeds"));
    server.kill();
}
