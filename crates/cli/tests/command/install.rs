// SPDX-License-Identifier: MIT OR Apache-2.0
//! The installed files: a manual page for each command, completions, and a unit whose process notifies the service
//! manager.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use larder_testkit::command::{PATIENCE, have, larder, larder_says, run};
use larder_testkit::load;
use larder_testkit::place::Place;
use larder_testkit::server::Server;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The commands of `larder --help`.
fn commands() -> Vec<String> {
    let help = larder_says(&["--help"]).ok();
    let listed = |line: &str| {
        let name = line.strip_prefix("  ")?.split(' ').next()?;
        name.starts_with(|c: char| c.is_ascii_lowercase()).then(|| name.to_owned())
    };
    help.lines().filter_map(listed).collect()
}

/// Each command that is shown has its page, and no other has.
fn check_manual(manual: &Path) {
    let names = commands();
    assert!(names.len() > 8 && names.contains(&"serve".to_owned()), "{names:?}");
    for name in names.iter().map(|n| format!("larder-{n}")).chain(["larder".to_owned()]) {
        let path = manual.join(format!("{name}.1"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        for section in [".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH \"EXIT STATUS\""] {
            assert!(text.contains(section), "{name}: {section} is missing");
        }
    }
    let pages = std::fs::read_dir(manual).unwrap().map(|entry| entry.unwrap());
    let pages: Vec<_> = pages.map(|entry| entry.file_name().into_string().unwrap()).collect();
    for page in &pages {
        let shown = |n: &String| {
            let rest = page.strip_prefix(&format!("larder-{n}"));
            rest.is_some_and(|rest| rest.starts_with(['-', '.']))
        };
        assert!(page == "larder.1" || names.iter().any(shown), "{page}: its command is hidden");
    }
    for page in ["larder-trace-record.1", "larder-trace-gen-tpcc.1"] {
        assert!(pages.iter().any(|p| p == page), "{page} is missing");
    }
    let serve = std::fs::read_to_string(manual.join("larder-serve.1")).unwrap();
    for section in [".SH EXAMPLES", ".SH FILES", "/var/lib/larder/NAME.json", "$ larder serve"] {
        assert!(serve.contains(section.trim_start_matches("$ ")), "{section} is missing: {serve}");
    }
    for flag in
        ["origin", "nbds", "flash\\-timeout", "metrics", "fuse:PATH", "tls\\-cert", "replacement"]
    {
        assert!(serve.contains(flag), "{flag} is not in the manual");
    }
}

#[test]
fn make_install_puts_everything_in_its_place() {
    let place = Place::new();
    let dest = place.word("dest");
    let ended = run(Command::new("make").current_dir(root()).args([
        "install",
        &format!("LARDER={}", env!("CARGO_BIN_EXE_larder")),
        &format!("DESTDIR={dest}"),
        "PREFIX=/opt/larder",
    ]));
    ended.ok();
    let at = |name: &str| place.path("dest/opt/larder").join(name);
    check_manual(&at("share/man/man1"));
    for file in [
        "share/bash-completion/completions/larder",
        "share/zsh/site-functions/_larder",
        "share/fish/vendor_completions.d/larder.fish",
        "share/doc/larder/larder.toml",
        "share/doc/larder/fuse.conf",
    ] {
        assert!(std::fs::metadata(at(file)).unwrap().len() > 500, "{file}");
    }
    for program in ["larder-origin", "larder-name"] {
        run(Command::new("sh").arg("-n").arg(at("lib/udev").join(program))).ok();
    }
    for (file, has) in [
        ("lib/udev/rules.d/61-larder.rules", "PROGRAM!=\"/opt/larder/lib/udev/larder-origin "),
        ("lib/udev/rules.d/61-larder-volume.rules", "PROGRAM==\"/opt/larder/lib/udev/larder-name "),
        ("share/doc/larder/network.conf", "IPAddressAllow="),
        ("share/doc/larder/ublk.conf", "DeviceAllow=char-ublk-char rw"),
        ("share/doc/larder/larder-server", "\n  /opt/larder/bin/larder mr,"),
        ("lib/sysusers.d/larder.conf", "u larder "),
        ("lib/tmpfiles.d/larder.conf", "/etc/larder "),
        (
            "lib/systemd/system/larder@.service",
            "ExecStart=/opt/larder/bin/larder serve /etc/larder/%i.toml",
        ),
    ] {
        let text = std::fs::read_to_string(at(file)).unwrap();
        assert!(text.contains(has), "{file}: {text}");
    }
    let version = run(Command::new(at("bin/larder")).arg("--version"));
    assert!(version.ok().starts_with("larder "));
    if have("bash", "bash") {
        let file = at("share/bash-completion/completions/larder");
        run(Command::new("bash").arg("-n").arg(file)).ok();
    }
}

/// The files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let below = |entry: std::fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => files(&entry.path()),
        false => vec![entry.path()],
    };
    entries.flat_map(below).collect()
}

#[test]
fn make_uninstall_removes_what_make_install_installed() {
    let place = Place::new();
    let config = place.path("pg_config");
    std::fs::write(&config, "#!/bin/sh\necho \"/pg$1\"\n").unwrap();
    std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(place.path("library"), "").unwrap();
    let settings = [
        format!("LARDER={}", env!("CARGO_BIN_EXE_larder")),
        format!("LARDER_PG={}", place.word("library")),
        format!("PG_CONFIG={}", place.word("pg_config")),
        format!("DESTDIR={}", place.word("dest")),
    ];
    for (suffix, installed) in
        [("", "usr/local/bin/larder"), ("-postgres", "pg--pkglibdir/larder.so")]
    {
        let make = |target: &str| {
            let target = format!("{target}{suffix}");
            run(Command::new("make").current_dir(root()).arg(target).args(&settings)).ok();
        };
        make("install");
        let dest = place.path("dest");
        assert!(files(&dest).contains(&dest.join(installed)), "{:?}", files(&dest));
        make("uninstall");
        assert_eq!(files(&dest), Vec::<PathBuf>::new());
    }
}

#[test]
fn nothing_built_is_one_line() {
    let place = Place::new();
    let words = ["install", "LARDER=/nowhere/larder", &format!("DESTDIR={}", place.word("d"))];
    let ended = run(Command::new("make").current_dir(root()).arg("-s").args(words));
    assert!(ended.code != 0 && ended.err.contains("run make build first"), "{ended:?}");
}

#[test]
fn the_units_are_understood() {
    if !have("systemd-analyze", "systemd") {
        return;
    }
    let place = Place::new();
    let units = place.path("units");
    std::fs::create_dir(&units).unwrap();
    let instance = |name: &str| {
        let text = std::fs::read_to_string(root().join("dist/systemd").join(name)).unwrap();
        // Programs that this machine need not have.
        let text = text.replace("/usr/local/bin/larder", env!("CARGO_BIN_EXE_larder"));
        let text = text.replace("/usr/sbin/nbd-client", "/bin/true");
        let path = units.join(name);
        let text = text.replace("/usr/bin/udevadm", "/bin/true");
        std::fs::write(&path, text.replace("/sbin/modprobe", "/bin/true")).unwrap();
    };
    instance("larder@.service");
    instance("larder-nbd@.service");
    instance("larder-loop@.service");
    instance("larder-ublk.service");
    // The instances of files, of TCP and of block devices have what these need.
    for (name, file) in [("file", "fuse.conf"), ("tcp", "network.conf"), ("block", "ublk.conf")] {
        let drop_in = units.join(format!("larder@{name}.service.d"));
        std::fs::create_dir(&drop_in).unwrap();
        std::fs::copy(root().join("dist/systemd").join(file), drop_in.join(file)).unwrap();
    }
    for name in [
        "larder@db.service",
        "larder@file.service",
        "larder@tcp.service",
        "larder@block.service",
        "larder-nbd@db.service",
        "larder-loop@db.service",
    ] {
        let path = units.join(name);
        let mut verify = Command::new("systemd-analyze");
        let ended = run(verify.args(["verify", "--man=no"]).arg(&path));
        // It also reports other units of this machine.
        let ours: Vec<&str> = ended.err.lines().filter(|l| l.contains("larder")).collect();
        assert!(ended.code == 0 && ours.is_empty(), "{ended:?}");
    }
}

/// The rights that the unit leaves to the server, as systemd rates them: 0 is none, 10 is everything.
#[test]
fn the_unit_leaves_few_rights() {
    if !have("systemd-analyze", "systemd") {
        return;
    }
    let place = Place::new();
    let text = std::fs::read_to_string(root().join("dist/systemd/larder@.service")).unwrap();
    let unit = place.path("larder@db.service");
    std::fs::write(&unit, text).unwrap();
    let mut rating = Command::new("systemd-analyze");
    rating.args(["security", "--offline=true", "--threshold=15", "--no-pager"]);
    let ended = run(rating.arg(&unit));
    assert!(ended.out.contains("Overall exposure level"), "{ended:?}");
    assert_eq!(ended.code, 0, "above 1.5: {ended:?}");
}

/// The profile of AppArmor that the unit names. It is not loaded: that takes a kernel with AppArmor.
#[test]
fn the_profile_is_understood() {
    let parser = "/usr/sbin/apparmor_parser";
    let unit = std::fs::read_to_string(root().join("dist/systemd/larder@.service")).unwrap();
    let text = std::fs::read_to_string(root().join("dist/apparmor/larder-server")).unwrap();
    assert!(unit.contains("AppArmorProfile=-larder-server\n"), "{unit}");
    assert!(text.contains("\nprofile larder-server "), "{text}");
    for line in unit.lines().filter_map(|line| line.strip_prefix("ReadWritePaths=")) {
        for path in line.split(' ').map(|path| path.trim_start_matches('-')) {
            assert!(text.contains(&format!("\n  {path}/** rwk,")), "{path}: {text}");
        }
    }
    if !have(parser, "apparmor") {
        return;
    }
    let profile = root().join("dist/apparmor/larder-server");
    run(Command::new(parser).args(["--skip-kernel-load", "--skip-cache"]).arg(profile)).ok();
}

/// The program by which udev recognises the origin of a volume.
#[test]
fn an_origin_is_recognised_by_its_names() {
    let place = Place::new();
    let text = "drain = \"5s\"\n[volume.a]\norigin = \"/dev/mapper/san-db\"  # a disk\n\
        flash = \"/dev/nvme0n1\"\n[volume.b]\n  origin='/dev/disk/by-id/wwn-1'\n";
    std::fs::write(place.path("db.toml"), text).unwrap();
    let recognised = |names: &[&str]| {
        let mut command = Command::new(root().join("dist/udev/larder-origin"));
        let command = command.args(names).env("LARDER_CONFIGURATIONS", place.path(""));
        match run(command).code {
            0 => true,
            1 => false,
            code => panic!("{code}"),
        }
    };
    assert!(recognised(&["dm-3", "disk/by-id/dm-name-san-db", "mapper/san-db"]));
    assert!(recognised(&["sdb", "disk/by-id/wwn-1"]));
    for other in [&["nvme0n1"][..], &["sdc", "mapper/san-db2"], &["mapper/san"], &[]] {
        assert!(!recognised(other), "{other:?}");
    }
}

/// The program by which udev learns the name of a volume's block device.
#[test]
fn a_block_device_has_the_name_of_its_volume() {
    let place = Place::new();
    let node = place.path("ublkc3");
    std::fs::write(&node, "").unwrap();
    let inode = std::fs::metadata(&node).unwrap().ino();
    let name = |device: &str, record: &str| {
        std::fs::write(place.path("ublkb3.volume"), record).unwrap();
        let mut command = Command::new(root().join("dist/udev/larder-name"));
        let command = command.arg(device).env("LARDER_RECORDS", place.path(""));
        let ended = run(command.env("LARDER_DEVICES", place.path("")));
        (ended.code == 0).then(|| ended.out.trim_end().to_owned())
    };
    for given in ["db", "a\\x2fb\\x20c", "a-b_c@1.x"] {
        assert_eq!(name("ublkb3", &format!("{inode} {given}\n")).as_deref(), Some(given));
    }
    let earlier = format!("{} db\n", inode + 1);
    assert_eq!(name("ublkb3", &earlier), None, "a record of an earlier device");
    assert_eq!(name("ublkb4", &format!("{inode} db\n")), None, "there is no record");
    for bad in ["", "..", "../sda", "a b", ".x", "$name", "a/b", "a;b"] {
        assert_eq!(name("ublkb3", &format!("{inode} {bad}\n")), None, "{bad:?}");
    }
    assert_eq!(name("sda", "0 db\n"), None);
}

/// The end of a server's life as its manager hears of it.
#[test]
fn the_service_manager_is_told() {
    let place = Place::new();
    let socket = UnixDatagram::bind(place.path("notify")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let heard = || {
        let mut bytes = [0; 512];
        let len = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    let words = place.serve(&["--origin", "mem:8MiB", "--name", "db"]);
    let mut child = larder(&words)
        .env("NOTIFY_SOCKET", place.path("notify"))
        .env("WATCHDOG_USEC", "400000")
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(heard(), "READY=1\nSTATUS=serving 'db'\n");
    assert!(place.path("nbd").exists(), "it is ready when clients can come");
    assert_eq!((heard(), heard()), ("WATCHDOG=1\n".to_owned(), "WATCHDOG=1\n".to_owned()));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    load::eventually("it stops", || heard().starts_with("STOPPING=1\nSTATUS="));
    assert!(child.wait().unwrap().success());
    // Without a listener, or with an invalid path, the server serves all the same.
    for path in [place.word("nothing"), "@".to_owned(), "x".repeat(300)] {
        let mut command = larder(&words);
        command.env("NOTIFY_SOCKET", path).stderr(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        load::eventually("it is ready", || place.ask(&["status"]).code == 0);
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(child.wait().unwrap().success());
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = Server::start(&words).stop();
}
