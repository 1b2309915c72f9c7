// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another user of the machine, with a shell, against a server that runs and against one that starts: nothing is read,
//! changed or stopped, and what that user prepared is refused, not used.
//!
//! The server runs as root, and the other user has no rights of its own, so the tests run only as root.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use larder_testkit::certs::Certs;
use larder_testkit::command::{Ended, make_initial, program, run};
use larder_testkit::load::{eventually, initial};
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use larder_volume::StateFile;
use rustix::process::{Gid, Uid};

/// A user and a group without files or rights.
const OTHER: u32 = 65_534;
const BYTES: u64 = 4 << 20;

/// Directories of the test: all users may enter the place, `common` is as `/tmp`, and `theirs` is the other user's.
struct Scene {
    place: Place,
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// What this returns for the other user. The kernel keeps users by thread.
fn as_other<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    let act = || {
        let (user, group) = (Uid::from_raw(OTHER), Gid::from_raw(OTHER));
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_res_gid(group, group, group).unwrap();
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        act()
    };
    std::thread::scope(|scope| scope.spawn(act).join().unwrap())
}

impl Scene {
    /// None where this user cannot become another one.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root, to become another user");
            return None;
        }
        let place = Place::new();
        set_mode(&place.path(""), 0o755);
        for (name, mode) in [("common", 0o1777), ("theirs", 0o755)] {
            fs::create_dir(place.path(name)).unwrap();
            set_mode(&place.path(name), mode);
        }
        chown(place.path("theirs"), Some(OTHER), Some(OTHER)).unwrap();
        make_initial(&place.path("origin"), BYTES);
        // The directory of the build may be closed to others.
        let larder = place.path("larder");
        fs::hard_link(program(), &larder)
            .or_else(|_| fs::copy(program(), &larder).map(drop))
            .unwrap();
        Some(Self { place })
    }

    /// A command of the other user, in the place.
    fn theirs(&self, script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.current_dir(self.place.path("")).args(["-c", script]).uid(OTHER).gid(OTHER);
        command.env("XDG_RUNTIME_DIR", self.place.path("theirs"));
        command
    }

    fn tries(&self, script: &str) -> Ended {
        run(&mut self.theirs(script))
    }

    /// As [`tries`](Self::tries); it succeeds, as the test prepares something so.
    fn prepares(&self, script: &str) {
        let ended = self.tries(script);
        assert_eq!(ended.code, 0, "{script}: {ended:?}");
    }

    /// What the other user does again and again, until it is killed.
    fn repeats(&self, script: &str) -> Repeated {
        let script = format!("while :; do {script}; done");
        let mut command = self.theirs(&script);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Repeated(command.spawn().unwrap())
    }

    /// Arguments of a server whose files are in `dir`.
    fn words(&self, dir: &str, more: &[&str]) -> Vec<String> {
        let at = |name: &str| self.place.path(dir).join(name).to_str().unwrap().to_owned();
        let (flash, state, control) = (at("flash"), at("state"), at("control"));
        let origin = self.place.word("origin");
        let mut words = ["serve", "--origin", &origin, "--flash", &flash, "--state", &state]
            .map(str::to_owned)
            .to_vec();
        words.extend([
            "--control".to_owned(),
            control,
            "--flash-size".to_owned(),
            "4MiB".to_owned(),
        ]);
        words.extend(["--listen".to_owned(), format!("nbd+unix:{}", at("nbd"))]);
        words
            .extend(["--unit", "64KiB", "--name", "v", "--listen-mode", "0600"].map(str::to_owned));
        words.extend(more.iter().map(|&word| word.to_owned()));
        words
    }

    /// A start is refused, with an error in one line that has these words.
    #[track_caller]
    fn refused(&self, words: &[String], has: &[&str]) {
        let Err(ended) = Server::try_start(words) else { panic!("{words:?}: it started") };
        assert!(ended.code == 4 || ended.code == 2, "{ended:?}");
        let error = ended.err.lines().last().unwrap_or_default();
        for word in has {
            assert!(error.contains(word), "{word}: {ended:?}");
        }
    }
}

/// A command that is killed when dropped.
struct Repeated(Child);

impl Drop for Repeated {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// What the other user tries while the server runs; none of it succeeds. PID is the server's process.
const TRIES: [(&str, &str); 29] = [
    ("read the flash", "cat own/flash"),
    ("read the origin", "cat origin"),
    ("write the flash", "dd if=/dev/zero of=own/flash bs=4096 count=1 conv=notrunc"),
    ("truncate the flash", ": > own/flash"),
    ("append to the flash", "echo x >> own/flash"),
    ("lock the flash", "flock -n own/flash true"),
    ("remove the flash", "rm -f own/flash"),
    ("rename the flash", "mv own/flash theirs/flash"),
    ("read the flash by a link", "ln own/flash theirs/flash && cat theirs/flash"),
    ("read the flash by a symbolic link", "ln -sf ../own/flash theirs/link && cat theirs/link"),
    ("change the mode of the flash", "chmod 666 own/flash"),
    ("own the flash", "chown 65534 own/flash"),
    ("change the times of the flash", "touch own/flash"),
    ("list the state files", "ls own/state"),
    ("read a state file", "cat own/state/v.json"),
    ("replace a state file", "echo {} > own/state/v.json"),
    ("add a state file", "echo {} > own/state/w.json"),
    ("read the state by the control socket", "./larder status --control own/control"),
    ("detach the flash", "./larder detach --control own/control"),
    ("attach another flash", "./larder attach mem:8MiB --format --control own/control"),
    ("record requests", "./larder trace record --control own/control --for 1s --out theirs/r.btr"),
    ("remove the sockets", "rm -f own/nbd own/control"),
    ("take the place of a socket", "ln -sf /dev/null own/nbd"),
    ("stop the server", "kill -TERM PID"),
    ("kill the server", "kill -KILL PID"),
    ("halt the server", "kill -STOP PID"),
    ("read its environment", "cat /proc/PID/environ"),
    ("read its memory", "dd if=/proc/PID/mem bs=1 count=1 skip=4096"),
    ("use its open files", "cat /proc/PID/fd/*"),
];

#[test]
fn a_running_server_is_closed_to_another_user() {
    let Some(scene) = Scene::new() else { return };
    let place = &scene.place;
    fs::create_dir(place.path("own")).unwrap();
    set_mode(&place.path("own"), 0o755);
    let server = Server::start(&scene.words("own", &[]));
    let control = place.word("own/control");
    let root = |command: &str| {
        run(Command::new(program()).args([command, "--control", &control, "--json"]))
    };
    let pid = pid_of(&place.path("own/flash"));
    for (what, script) in TRIES {
        let script = script.replace("PID", &pid.to_string());
        let ended = scene.tries(&script);
        assert_ne!(ended.code, 0, "{what}: {script}: {ended:?}");
        assert!(root("status").ok().contains("\"caching\""), "after: {what}");
    }
    let nbd = place.path("own/nbd");
    let connect = || as_other(|| UnixStream::connect(&nbd).map(drop).map_err(|e| e.kind()));
    assert_eq!(connect(), Err(ErrorKind::PermissionDenied));
    // By the mode alone.
    set_mode(&nbd, 0o666);
    assert_eq!(connect(), Ok(()));
    set_mode(&nbd, 0o600);
    for name in ["flash", "control", "nbd", "state/v.json"] {
        let found = fs::symlink_metadata(place.path("own").join(name)).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o777), (0, 0o600), "{name}");
    }
    server.stop();
    assert!(fs::read(place.path("origin")).unwrap() == initial(0, BYTES));
    assert!(!place.path("theirs/r.btr").exists());
}

/// The process that has this file open.
fn pid_of(file: &Path) -> u32 {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut holders = pids.filter(|pid: &u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.into_iter().any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target == file))
    });
    holders.next().unwrap()
}

/// Names in a directory as /tmp, which the other user takes before the server starts.
#[test]
fn names_that_another_user_took_are_refused_and_not_used() {
    let Some(scene) = Scene::new() else { return };
    let secret = scene.place.file("secret", 4 << 20);
    fs::write(&secret, vec![7; 4 << 20]).unwrap();
    let words = scene.words("common", &["--format"]);
    for (what, script, has) in [
        ("a file as flash", "truncate -s 4M common/flash", "65534"),
        ("a file for all as flash", "truncate -s 4M common/flash; chmod 666 common/flash", "65534"),
        ("a link as flash", "ln -s ../secret common/flash", "65534"),
        (
            "a link to their own file",
            "truncate -s 4M theirs/f; ln -s ../theirs/f common/flash",
            "65534",
        ),
        ("a dangling link as flash", "ln -s ../theirs/new common/flash", "65534"),
        ("a pipe as flash", "mkfifo -m 666 common/flash", "pipe"),
        ("a directory of state files", "mkdir -m 777 common/state", "65534"),
        ("a link as directory of state files", "ln -s ../theirs common/state", "65534"),
        ("a file as control socket", "echo > common/control", "not a socket"),
        ("a link as control socket", "ln -s ../theirs/s common/control", "not a socket"),
        ("a file as listener", "echo > common/nbd", "not a socket"),
    ] {
        scene.prepares(script);
        println!("{what}");
        scene.refused(&words, &[has]);
        assert!(fs::read(&secret).unwrap().iter().all(|b| *b == 7), "{what}");
        assert!(!scene.place.path("theirs/new").exists(), "{what}");
        for name in ["flash", "state", "control", "nbd"] {
            let path = scene.place.path("common").join(name);
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
    }
    let server = Server::start(&words);
    server.stop();
    // What the server left is root's.
    for script in ["rm -f common/flash", "mv common/state theirs/s", "cat common/flash"] {
        assert_ne!(scene.tries(script).code, 0, "{script}");
    }
    Server::start(&scene.words("common", &[])).stop();
}

/// State files that decide which flash is current.
#[test]
fn a_state_file_of_another_user_does_not_count() {
    let Some(scene) = Scene::new() else { return };
    let state = scene.place.path("common/state");
    fs::create_dir(&state).unwrap();
    set_mode(&state, 0o1777);
    let words = scene.words("common", &[]);
    let origin = scene.place.word("origin");
    // Of this volume, and of another one that claims this origin.
    scene.prepares(&format!("echo '{{\"origin\": \"{origin}\"}}' > common/state/w.json"));
    Server::start(&words).stop();
    fs::remove_file(state.join("v.json")).unwrap();
    scene.prepares("echo {} > common/state/v.json");
    scene.refused(&words, &["v.json", "65534"]);
    fs::remove_file(state.join("v.json")).unwrap();
    scene.prepares("ln -s ../../secret common/state/v.json");
    scene.refused(&words, &["v.json", "not a regular file"]);
}

/// The user of the server can neither read nor remove it.
#[test]
fn a_state_file_that_cannot_be_read_is_unusable_by_itself() {
    let Some(scene) = Scene::new() else { return };
    let state = scene.place.path("common/state");
    fs::create_dir(&state).unwrap();
    set_mode(&state, 0o1777);
    let foreign = state.join("x.json");
    fs::write(&foreign, "{\"origin\": \"/san\"}").unwrap();
    set_mode(&foreign, 0o600);
    chown(&foreign, Some(OTHER - 1), None).unwrap();
    let of = |name: &str| StateFile::new(&state, name, "/san");
    let others = as_other(|| of("v").put_out_of_use(None).map_err(|e| e.to_string()));
    assert_eq!(others, Ok(()));
    let own = as_other(|| of("x").load().map_err(|e| (e.exit_code(), e.to_string())));
    let (code, text) = own.unwrap_err();
    assert!(code == 4 && text.contains("belongs to the user with id 65533"), "{text}");
}

/// A directory in which the other user could exchange files after the check.
#[test]
fn a_directory_that_all_can_write_is_refused() {
    let Some(scene) = Scene::new() else { return };
    let open = scene.place.path("open");
    fs::create_dir(&open).unwrap();
    set_mode(&open, 0o777);
    let own = scene.place.path("own");
    fs::create_dir(&own).unwrap();
    for (flag, name) in [("--flash", "flash"), ("--state", "state"), ("--control", "control")] {
        let mut words = scene.words("own", &[]);
        let at = words.iter().position(|word| word == flag).unwrap() + 1;
        words[at] = scene.place.path("open").join(name).to_str().unwrap().to_owned();
        scene.refused(&words, &["open has mode 0777", "accepted"]);
        assert_eq!(fs::read_dir(&open).unwrap().count(), 0, "{flag}");
    }
}

/// The other user puts a link at a name between any two steps of the server.
#[test]
fn a_race_for_a_name_makes_no_file_elsewhere() {
    let Some(scene) = Scene::new() else { return };
    let words = scene.words("common", &[]);
    let racing = scene.repeats(
        "ln -s ../theirs/new common/flash; ln -s ../theirs/made common/control; rm -f common/flash common/control",
    );
    let mut started = 0;
    for _ in 0..15 {
        if let Ok(server) = Server::try_start(&words) {
            started += 1;
            let found = fs::symlink_metadata(scene.place.path("common/flash")).unwrap();
            assert!(found.is_file() && found.uid() == 0 && found.mode() & 0o777 == 0o600);
            server.stop();
            fs::remove_file(scene.place.path("common/flash")).unwrap();
        }
    }
    drop(racing);
    println!("{started} of 15 starts won");
    assert!(!scene.place.path("theirs/new").exists() && !scene.place.path("theirs/made").exists());
}

/// The control socket is closed to others at every moment of a start.
#[test]
fn a_socket_is_never_open_to_another_user() {
    let Some(scene) = Scene::new() else { return };
    let words = scene.words("common", &["--control-group", "daemon"]);
    let (control, seen) = ("common/control", scene.place.path("theirs/seen"));
    let watching = scene.repeats(&format!(
        "stat -c '%a %g' {control} >> theirs/seen; ./larder status --control {control} >> theirs/got"
    ));
    for _ in 0..5 {
        let server = Server::start(&words);
        eventually("its mode was seen", || {
            fs::read_to_string(&seen).is_ok_and(|s| s.contains("660"))
        });
        server.stop();
        fs::write(&seen, fs::read_to_string(&seen).unwrap().replace("660", "six")).unwrap();
    }
    drop(watching);
    let daemon = number_of_daemon();
    let seen = fs::read_to_string(seen).unwrap();
    for line in seen.lines() {
        let right = [format!("six {daemon}"), format!("600 {daemon}"), "600 0".to_owned()];
        assert!(right.iter().any(|r| r == line), "{line}");
    }
    assert_eq!(fs::read_to_string(scene.place.path("theirs/got")).unwrap(), "");
}

/// The number of the group `daemon`.
fn number_of_daemon() -> u32 {
    let groups = fs::read_to_string("/etc/group").unwrap();
    let line = groups.lines().find(|line| line.starts_with("daemon:")).unwrap();
    line.split(':').nth(2).unwrap().parse().unwrap()
}

/// A member of the group of `--control-group` reads, and changes nothing.
#[test]
fn the_control_group_reads_only() {
    let Some(scene) = Scene::new() else { return };
    let group = OTHER.to_string();
    let server = Server::start(&scene.words("common", &["--control-group", &group]));
    for (command, allowed) in [
        ("status", true),
        ("stats", true),
        ("top --once --interval 200ms", true),
        ("flush", false),
        ("detach", false),
        ("attach mem:8MiB", false),
        ("trace record --out theirs/r.btr --for 1s", false),
    ] {
        let ended = scene.tries(&format!("./larder {command} --control common/control"));
        assert_eq!(ended.code == 0, allowed, "{command}: {ended:?}");
        assert!(allowed || ended.err.contains("may run status, stats and top"), "{ended:?}");
    }
    server.stop();
}

/// Places for control clients are shared out by user.
#[test]
fn members_of_the_control_group_do_not_keep_out_the_owner() {
    let Some(scene) = Scene::new() else { return };
    let group = OTHER.to_string();
    let server = Server::start(&scene.words("common", &["--control-group", &group]));
    let control = scene.place.path("common/control");
    // The server accepts a later client after them.
    let connect = || (0..40).map(|_| UnixStream::connect(&control).unwrap()).collect::<Vec<_>>();
    let silent = as_other(connect);
    for _ in 0..3 {
        let mut status = Command::new(program());
        run(status.args(["status", "--control"]).arg(&control)).ok();
    }
    drop(silent);
    server.stop();
}

#[test]
fn a_private_key_that_others_can_read_is_refused() {
    let Some(scene) = Scene::new() else { return };
    let certs = Certs::new();
    let word = |name: &str| certs.path(name).to_str().unwrap().to_owned();
    let (cert, key) = (word("server-cert.pem"), word("server-key.pem"));
    let words = scene.words("common", &["--tls-cert", &cert, "--tls-key", &key]);
    set_mode(&certs.path("server-key.pem"), 0o604);
    scene.refused(&words, &["private key", "0604"]);
    chown(certs.path("server-key.pem"), Some(OTHER), None).unwrap();
    set_mode(&certs.path("server-key.pem"), 0o600);
    scene.refused(&words, &["private key", "65534"]);
    chown(certs.path("server-key.pem"), Some(0), None).unwrap();
    // As a system shares a key between services.
    set_mode(&certs.path("server-key.pem"), 0o640);
    Server::start(&words).stop();
}

/// The name of an unfinished trace is known.
#[test]
fn a_trace_is_not_written_through_a_link_of_another_user() {
    let Some(scene) = Scene::new() else { return };
    let secret = scene.place.file("secret", 0);
    fs::write(&secret, "precious").unwrap();
    scene.prepares("ln -s ../secret common/t.btr.part");
    let out: PathBuf = scene.place.path("common/t.btr");
    let made = run(Command::new(program())
        .args(["trace", "gen", "zipf", "--requests", "10", "--out"])
        .arg(&out));
    made.ok();
    assert_eq!(fs::read(&secret).unwrap(), b"precious");
    assert!(fs::symlink_metadata(&out).unwrap().is_file());
}
