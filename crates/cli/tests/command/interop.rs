// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other people's NBD clients against a cached volume whose flash is a quarter of its origin:
//! libnbd's tools and its Python binding, QEMU's, and fio with verification. Over a unix socket
//! and over TCP.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::path::Path;
use std::process::Command;

use larder_testkit::command::{Ended, have, one_json, run, tool};
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use serde_json::json;

const BYTES: u64 = 32 << 20;

/// A cached volume on a unix socket and a TCP port.
struct Rig {
    place: Place,
    server: Server,
}

impl Rig {
    fn new(more: &[&str]) -> Self {
        Self::with_flash(8, more)
    }

    fn with_flash(mib: u64, more: &[&str]) -> Self {
        let place = Place::new();
        place.file("origin", BYTES);
        // Others may keep the disk busy for longer than a flash device would be given.
        let patient = ["--flash-timeout", "2m", "--flash-dead-after", "5m"];
        let mut words = place.serve_cached(mib, &["--listen", "nbd://127.0.0.1:0"]);
        words.extend(patient.map(str::to_owned));
        words.extend(more.iter().map(|&w| w.to_owned()));
        let server = Server::start(&words);
        Self { place, server }
    }

    /// How clients find it: by the socket and by the port.
    fn uris(&self) -> Vec<String> {
        let addresses = self.server.addresses();
        assert_eq!(addresses.len(), 2, "{addresses:?}");
        addresses
    }

    fn word(&self, name: &str) -> String {
        self.place.word(name)
    }

    /// A file of the volume's size, of pseudo-random bytes.
    fn noise(&self, name: &str, seed: u64) -> Vec<u8> {
        use rand::{Rng, SeedableRng};
        let mut bytes = vec![0; BYTES as usize];
        rand_pcg::Pcg64::seed_from_u64(seed).fill_bytes(&mut bytes);
        // Some of it zeroes, so that copies trim and zero.
        bytes[5 << 20..9 << 20].fill(0);
        std::fs::write(self.place.path(name), &bytes).unwrap();
        bytes
    }

    /// What lies on the origin must be this, at the end of the server.
    fn end(self, expected: Option<&[u8]>) {
        let stats = self.place.stats();
        assert_eq!(stats["state"], "caching", "{stats}");
        self.server.stop();
        if let Some(expected) = expected {
            let found = std::fs::read(self.place.path("origin")).unwrap();
            assert!(found == expected, "the origin does not hold what was written");
        }
    }
}

fn same(one: &Path, other: &[u8]) {
    assert!(std::fs::read(one).unwrap() == other, "{} differs", one.display());
}

#[test]
fn nbdinfo_understands_the_export() {
    if !have("nbdinfo", "libnbd-bin") {
        return;
    }
    let rig = Rig::new(&[]);
    for uri in rig.uris() {
        let info = one_json(&tool(&["nbdinfo", "--json", &uri]).ok());
        let export = &info["exports"][0];
        for (key, value) in [
            ("export-size", json!(BYTES)),
            ("is_read_only", json!(false)),
            ("can_flush", json!(true)),
            ("can_fua", json!(true)),
            ("can_multi_conn", json!(true)),
            ("can_trim", json!(true)),
            ("can_zero", json!(true)),
            ("can_df", json!(true)),
            ("block_size_minimum", json!(512)),
            ("block_size_preferred", json!(4096)),
            ("block_size_maximum", json!((32 << 20))),
        ] {
            assert_eq!(export[key], value, "{key}: {info}");
        }
        assert_eq!(info["protocol"], "newstyle-fixed", "{info}");
        assert_eq!(info["structured"], true, "{info}");
        assert_eq!(tool(&["nbdinfo", "--size", &uri]).ok().trim(), BYTES.to_string());
        assert_eq!(tool(&["nbdinfo", "--can", "fua", &uri]).code, 0);
        assert_eq!(tool(&["nbdinfo", "--is", "read-only", &uri]).code, 2);
        assert!(tool(&["nbdinfo", "--list", &uri]).ok().contains("export=\"\""));
    }
    rig.end(None);
}

#[test]
fn an_export_with_a_name_is_found_by_it() {
    if !have("nbdinfo", "libnbd-bin") {
        return;
    }
    let rig = Rig::new(&["--name", "päckchen 1"]);
    let by_name = format!("nbd+unix:///p%C3%A4ckchen%201?socket={}", rig.word("nbd"));
    assert_eq!(tool(&["nbdinfo", "--size", &by_name]).ok().trim(), BYTES.to_string());
    // The only export is also the default one; another name is none.
    for uri in [rig.uris()[0].clone(), rig.place.uri_word()] {
        assert_eq!(tool(&["nbdinfo", "--size", &uri]).ok().trim(), BYTES.to_string());
    }
    let other = format!("nbd+unix:///other?socket={}", rig.word("nbd"));
    assert_ne!(tool(&["nbdinfo", "--size", &other]).code, 0);
    rig.end(None);
}

#[test]
fn nbdcopy_copies_both_ways() {
    if !have("nbdcopy", "libnbd-bin") {
        return;
    }
    let rig = Rig::new(&["--workers", "2"]);
    let mut last = Vec::new();
    for (seed, uri) in rig.uris().into_iter().enumerate() {
        last = rig.noise("there", seed as u64);
        let (there, back) = (rig.word("there"), rig.word("back"));
        tool(&["nbdcopy", "--flush", "--connections=4", &there, &uri]).ok();
        // Twice: the second time much of it comes from flash.
        for options in [["--connections=4", "--requests=64"], ["--connections=1", "--synchronous"]]
        {
            tool(&["nbdcopy", options[0], options[1], &uri, &back]).ok();
            same(&rig.place.path("back"), &last);
        }
    }
    rig.end(Some(&last));
}

/// The system's Python, which Debian's packages are for, whatever comes first in the path.
const PYTHON: &str = "/usr/bin/python3";

/// Whether libnbd's Python binding is there; else as for [`have`].
fn have_python() -> bool {
    Path::new(PYTHON).exists() && tool(&[PYTHON, "-c", "import nbd"]).code == 0
        || have("libnbd's Python binding", "python3-libnbd")
}

/// What `nbdsh` does with these words.
fn nbdsh(words: &[&str]) -> Ended {
    tool(&[&[PYTHON, "-m", "nbd"], words].concat())
}

/// A script for libnbd's Python binding; `h` is connected.
fn python(uri: &str, script: &str) {
    let uri = format!("h.connect_uri({uri:?})");
    let done = "print('done')";
    let ended = nbdsh(&["-c", &uri, "-c", script, "-c", done]);
    assert_eq!(ended.out.trim(), "done", "{ended:?}");
    assert_eq!(ended.code, 0, "{ended:?}");
}

const PYTHON_REQUESTS: &str = r"
import errno
data = bytes(range(256)) * 256
h.pwrite(data, 4096)
assert h.pread(len(data), 4096) == data
h.pwrite(data, 1 << 20, nbd.CMD_FLAG_FUA)
h.flush()
h.zero(4096, 8192)
assert h.pread(8192, 4096) == data[:4096] + bytearray(4096)
h.zero(4096, 1 << 20, nbd.CMD_FLAG_NO_HOLE)
assert h.pread(4096, 1 << 20) == bytearray(4096)
h.zero(4096, 2 << 20, nbd.CMD_FLAG_FUA)
h.trim(1 << 20, 4 << 20)
h.trim(512, 512, nbd.CMD_FLAG_FUA)
h.pwrite(b'x' * 512, h.get_size() - 512)
assert h.pread(1024, h.get_size() - 1024)[512:] == b'x' * 512
big = bytes(b'big!') * (8 << 20)
h.pwrite(big, 0)
assert h.pread(len(big), 0) == big
";

const PYTHON_ERRORS: &str = r"
import errno
h.set_strict_mode(0)
def fails(number, call):
    try:
        call()
    except nbd.Error as e:
        assert e.errnum == number, (e.errnum, number)
    else:
        assert False, 'no error'
size = h.get_size()
fails(errno.EINVAL, lambda: h.pread(512, 100))
fails(errno.EINVAL, lambda: h.pread(100, 512))
fails(errno.EINVAL, lambda: h.pread(1024, size - 512))
fails(errno.ENOSPC, lambda: h.pwrite(b'x' * 1024, size - 512))
fails(errno.EINVAL, lambda: h.pwrite(b'x' * 100, 0))
fails(errno.EINVAL, lambda: h.zero(100, 0))
fails(errno.ENOSPC, lambda: h.zero(1024, size - 512))
fails(errno.EINVAL, lambda: h.trim(1024, size - 512))
assert h.pread(512, size - 512) == bytearray(512)
";

const PYTHON_STRUCTURED: &str = r"
assert h.get_structured_replies_negotiated()
seen = []
def chunk(buf, offset, status, error):
    seen.append((offset, len(buf), status))
h.pwrite(b'y' * (256 << 10), 0)
data = h.pread_structured(256 << 10, 0, chunk)
assert data == b'y' * (256 << 10)
assert sum(n for _, n, _ in seen) == 256 << 10, seen
seen.clear()
data = h.pread_structured(128 << 10, 64 << 10, chunk, nbd.CMD_FLAG_DF)
assert len(seen) == 1 and data == b'y' * (128 << 10), seen
";

const PYTHON_MULTI_CONN: &str = r"
assert h.can_multi_conn()
others = [nbd.NBD() for _ in range(8)]
for o in others: o.connect_uri(h.get_uri())
for i, o in enumerate(others):
    o.pwrite(bytes([i + 1]) * 65536, i * 65536)
h.flush()
for i in range(8):
    for o in others: assert o.pread(65536, i * 65536) == bytes([i + 1]) * 65536
cookies = [(o, [o.aio_pwrite(nbd.Buffer.from_bytearray(bytes([i]) * 4096), (i * 64 + n) * 4096)
    for n in range(64)]) for i, o in enumerate(others)]
for o, list in cookies:
    for cookie in list:
        while not o.aio_command_completed(cookie): o.poll(-1)
for i in range(8): assert h.pread(64 * 4096, i * 64 * 4096) == bytes([i]) * (64 * 4096)
for o in others: o.shutdown()
";

#[test]
fn libnbd_does_all_that_it_can_from_python() {
    if !have_python() {
        return;
    }
    for uri in 0..2 {
        for script in [PYTHON_REQUESTS, PYTHON_ERRORS, PYTHON_STRUCTURED, PYTHON_MULTI_CONN] {
            let rig = Rig::new(&["--workers", "2"]);
            python(&rig.uris()[uri], script);
            rig.end(None);
        }
    }
}

#[test]
fn simple_replies_serve_old_clients() {
    if !have_python() {
        return;
    }
    let rig = Rig::new(&[]);
    let uri = &rig.uris()[0];
    let script = format!(
        "h.set_request_structured_replies(False)\nh.connect_uri({uri:?})\n\
         assert not h.get_structured_replies_negotiated()\n{PYTHON_REQUESTS}"
    );
    nbdsh(&["-c", &script]).ok();
    // Export names of the oldest kind.
    let old = format!(
        "h.set_opt_mode(False)\nh.set_handshake_flags(0)\nh.connect_uri({uri:?})\n\
         assert h.get_protocol() == 'newstyle'\nh.pwrite(b'z' * 512, 0)\n\
         assert h.pread(512, 0) == b'z' * 512\n"
    );
    nbdsh(&["-c", &old]).ok();
    rig.end(None);
}

#[test]
fn qemu_img_converts_and_compares() {
    if !have("qemu-img", "qemu-utils") {
        return;
    }
    let rig = Rig::new(&["--workers", "2"]);
    let mut last = Vec::new();
    for (seed, uri) in rig.uris().into_iter().enumerate() {
        let info = one_json(&tool(&["qemu-img", "info", "--output=json", &uri]).ok());
        assert_eq!(info["virtual-size"], BYTES, "{info}");
        rig.noise("raw", seed as u64);
        let (raw, qcow2) = (rig.word("raw"), rig.word("qcow2"));
        let all = ["qemu-img", "convert", "-n", "-m", "16", "-W", "-f", "raw", "-O", "raw"];
        tool(&[&all[..], &[&raw, &uri]].concat()).ok();
        tool(&["qemu-img", "compare", "-f", "raw", "-F", "raw", &raw, &uri]).ok();
        tool(&["qemu-img", "convert", "-f", "raw", "-O", "qcow2", &uri, &qcow2]).ok();
        tool(&["qemu-img", "compare", "-f", "qcow2", "-F", "raw", &qcow2, &uri]).ok();
        tool(&["qemu-img", "compare", "-f", "qcow2", "-F", "raw", &qcow2, &raw]).ok();
        // And the other way, from qcow2 onto the volume, which held something else.
        last = rig.noise("raw", 100 + seed as u64);
        tool(&["qemu-img", "convert", "-f", "raw", "-O", "qcow2", &raw, &qcow2]).ok();
        tool(&["qemu-img", "convert", "-n", "-f", "qcow2", "-O", "raw", &qcow2, &uri]).ok();
        tool(&["qemu-img", "compare", "-f", "raw", "-F", "raw", &raw, &uri]).ok();
    }
    rig.end(Some(&last));
}

#[test]
fn qemu_io_reads_what_it_wrote() {
    if !have("qemu-io", "qemu-utils") {
        return;
    }
    let rig = Rig::new(&["--workers", "2"]);
    for uri in rig.uris() {
        let io = |commands: &[&str]| {
            let mut words = vec!["qemu-io", "-f", "raw", "-t", "none"];
            commands.iter().for_each(|c| words.extend(["-c", *c]));
            words.push(&uri);
            let ended = tool(&words);
            let bad = ["failed", "rror", "mismatch"].iter().any(|w| ended.out.contains(w));
            assert!(ended.code == 0 && !bad, "{ended:?}");
        };
        io(&["write -P 0x11 0 8M", "read -P 0x11 0 8M", "flush", "read -P 0x11 4k 4M"]);
        io(&["write -z 1M 1M", "read -P 0 1M 1M", "read -P 0x11 0 1M", "read -P 0x11 2M 1M"]);
        io(&["write -z -u 2M 512k", "read -P 0 2M 512k", "discard 3M 1M", "flush"]);
        io(&["write -f -P 0x22 512 1k", "read -P 0x22 512 1k", "read -P 0x11 0 512"]);
        io(&["writev -P 0x33 16k 4k 8k 512", "readv -P 0x33 16k 512 8k 4k"]);
        io(&[
            "aio_write -P 0x44 1M 64k",
            "aio_write -P 0x55 1088k 64k",
            "aio_write -z 1152k 64k",
            "aio_read 0 1M",
            "aio_flush",
            "read -P 0x44 1M 64k",
            "read -P 0x55 1088k 64k",
            "read -P 0 1152k 64k",
        ]);
        io(&["read -P 0x44 1M 64k", "read -P 0 2M 512k", "read -P 0x11 5M 3M"]);
    }
    rig.end(None);
}

/// The working set is sixteen times as large as flash: units are admitted and evicted under verification.
#[test]
fn fio_verifies_what_it_wrote() {
    if !have("fio", "fio") {
        return;
    }
    let rig = Rig::with_flash(3, &["--workers", "2", "--populate-share", "1"]);
    for uri in rig.uris() {
        let uri = format!("--uri={uri}");
        let common = [
            "fio",
            "--ioengine=nbd",
            &uri,
            "--group_reporting",
            "--output-format=json",
            "--randrepeat=1",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--do_verify=1",
        ];
        let several = [
            "--name=several",
            "--rw=randrw",
            "--bs=4k",
            "--iodepth=32",
            "--numjobs=4",
            "--size=8M",
            "--offset_increment=8M",
            "--io_size=16M",
        ];
        // Each block once: rewritten out of order, fio's own verification errs.
        let mixed = [
            "--name=mixed",
            "--rw=randrw",
            "--bsrange=512-128k",
            "--iodepth=32",
            "--size=32M",
            "--fsync=64",
            "--loops=2",
        ];
        for job in [&several[..], &mixed[..]] {
            // It leaves files where it runs.
            let mut fio = Command::new("fio");
            let fio = fio.args(&common[1..]).args(job).current_dir(rig.place.path(""));
            let ended = run(fio);
            assert_eq!(ended.code, 0, "{ended:?}");
            let json = ended.out.find('{').map(|at| one_json(&ended.out[at..])).unwrap();
            assert_eq!(json["jobs"][0]["error"], 0, "{ended:?}");
            assert!(!ended.err.contains("verify"), "{ended:?}");
        }
    }
    let stats = rig.place.stats();
    for key in ["read_hits", "populations", "evictions"] {
        assert!(stats[key].as_u64().unwrap() > 0, "{key}: {stats}");
    }
    rig.end(None);
}
