// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder slow-dir`: the same as the directory below it, operation by operation; as slow as its model; gone in good
//! order, or explained. Needs `/dev/fuse` and the right to mount; where the machine has none, the tests say so and do
//! nothing.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use larder_front::fuse::mounts::below;
use larder_testkit::command::{PATIENCE, one_json, run};
use larder_testkit::fuse::can_mount;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rustix::fs::{Advice, FallocateFlags, FlockOperation, fadvise, fallocate, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A mounted directory below a temporary one.
struct Mounted {
    dir: tempfile::TempDir,
    child: Child,
}

fn command(dir: &Path, device: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command
        .args(["slow-dir", "--read-ahead", "0", "--device", device])
        .arg(dir.join("source"))
        .arg(dir.join("at"));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(dir.join("log")).unwrap());
    command
}

fn serve(dir: &Path, device: &str) -> Child {
    let mut child = command(dir, device).spawn().unwrap();
    let begin = Instant::now();
    while !dir.join("at/.slow-stats").is_file() {
        let log = || fs::read_to_string(dir.join("log")).unwrap();
        assert!(child.try_wait().unwrap().is_none() && begin.elapsed() < PATIENCE, "{}", log());
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

impl Mounted {
    fn new(device: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("source")).unwrap();
        fs::create_dir(dir.path().join("at")).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let child = serve(dir.path(), device);
        Self { dir, child }
    }

    fn at(&self) -> PathBuf {
        self.dir.path().join("at")
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn stats(&self) -> Value {
        one_json(&fs::read_to_string(self.at().join(".slow-stats")).unwrap())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end; what it printed.
    fn ended(&mut self) -> (Option<i32>, String) {
        let begin = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < PATIENCE, "it does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut out = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        (self.child.wait().unwrap().code(), out)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for at in below(self.dir.path()) {
            let _ = Command::new("umount").arg("-l").arg(at).status();
        }
    }
}

/// What is in a directory: kinds, permissions, links, contents.
fn tree(directory: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut next = vec![directory.to_owned()];
    while let Some(at) = next.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let what = match meta.file_type() {
                kind if kind.is_symlink() => format!("{:?}", fs::read_link(&path).unwrap()),
                kind if kind.is_dir() => "directory".to_owned(),
                _ => format!("{} {:?}", meta.nlink(), fs::read(&path).unwrap()),
            };
            if meta.is_dir() {
                next.push(path.clone());
            }
            let name = path.strip_prefix(directory).unwrap().to_owned();
            all.insert(name, format!("{:o} {what}", meta.mode()));
        }
    }
    all
}

/// One operation, the same wherever `top` is; what came of it.
fn operate(top: &Path, open: &mut Vec<File>, random: &mut Pcg64) -> String {
    let mut name = || {
        let number: u32 = random.random_range(0..12);
        top.join(if number < 8 {
            format!("f{number}")
        } else {
            format!("d{}/f{}", number % 2, number / 2)
        })
    };
    let (one, other) = (name(), name());
    let (at, bytes) = (random.random_range(0..300_000_u64), random.random_range(1..40_000_usize));
    let mut data = vec![0; bytes];
    random.fill_bytes(&mut data);
    let handle = random.random_range(0..8_usize);
    let said = |result: std::io::Result<String>| match result {
        Ok(words) => words,
        Err(e) => format!("{:?}", e.raw_os_error()),
    };
    let done = |result: std::io::Result<()>| said(result.map(|()| "done".to_owned()));
    let on = |act: &dyn Fn(&File) -> std::io::Result<String>| {
        open.get(handle).map_or(String::new(), |f| said(act(f)))
    };
    match random.random_range(0..18) {
        0..3 => {
            let options =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).open(one);
            said(options.map(|file| {
                if open.len() > 8 {
                    open.remove(handle);
                }
                open.push(file);
                String::new()
            }))
        }
        3..6 => on(&|file| file.write_all_at(&data, at).map(|()| String::new())),
        6..8 => on(&|file| {
            let mut data = data.clone();
            file.read_at(&mut data, at).map(|n| format!("{n} {:?}", &data[..n]))
        }),
        8 => on(&|file| file.set_len(at).map(|()| String::new())),
        9 => on(&|file| file.metadata().map(|meta| format!("{} {}", meta.len(), meta.nlink()))),
        10 => on(&|file| {
            let zeroed = fallocate(file, FallocateFlags::empty(), at, bytes as u64);
            zeroed.map(|()| String::new()).map_err(Into::into)
        }),
        11 => done(fs::rename(one, other)),
        12 => done(fs::remove_file(one)),
        13 => done(fs::hard_link(one, other)),
        14 => done(symlink("f1", other)),
        15 => done(fs::create_dir(one.with_file_name("d0")).and(fs::create_dir(top.join("d1")))),
        16 => done(fs::remove_dir(one.with_file_name("d0"))),
        _ => done(fs::set_permissions(one, fs::Permissions::from_mode(0o600 + (at % 64) as u32))),
    }
}

#[test]
fn random_operations_do_the_same_as_on_a_plain_directory() {
    if !can_mount() {
        return;
    }
    for seed in 0..4 {
        let mounted = Mounted::new("none");
        let plain = tempfile::tempdir().unwrap();
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for step in 0..600 {
            let [mut one, mut same] = [(); 2].map(|()| Pcg64::seed_from_u64(seed << 32 | step));
            let expected = operate(plain.path(), &mut here, &mut one);
            let found = operate(&mounted.at(), &mut there, &mut same);
            assert!(found == expected, "seed {seed}, step {step}");
        }
        assert_eq!(tree(&mounted.at()), tree(plain.path()), "seed {seed}");
        assert_eq!(tree(&mounted.source()), tree(plain.path()), "seed {seed}, below");
    }
}

#[test]
fn it_is_as_slow_as_its_model_and_counts() {
    if !can_mount() {
        return;
    }
    let mut mounted = Mounted::new("cloud");
    fs::create_dir(mounted.at().join("data")).unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(mounted.at().join("data/x"))
        .unwrap();
    file.write_all_at(&[7; 8192 * 20], 0).unwrap();
    file.sync_data().unwrap();
    let begin = Instant::now();
    let mut page = [0; 8192];
    // Twice the same: no cache answers.
    for number in (0..20).chain(0..20) {
        file.read_exact_at(&mut page, number * 8192).unwrap();
        assert_eq!(page, [7; 8192]);
    }
    assert!(begin.elapsed() >= Duration::from_micros(1500) * 40, "{:?}", begin.elapsed());
    // Several at a time are served together.
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                (0..20).for_each(|n| file.read_exact_at(&mut [0; 8192], n * 8192).unwrap());
            });
        }
    });
    assert!(begin.elapsed() < Duration::from_micros(1500) * 100, "{:?}", begin.elapsed());
    let stats = mounted.stats();
    let data = &stats["below"]["data"];
    assert_eq!(
        (&data["reads"], &data["read_bytes"]),
        (&200.into(), &(200 * 8192).into()),
        "{stats}"
    );
    assert_eq!((&data["writes"], &data["flushes"]), (&1.into(), &1.into()), "{stats}");
    assert_eq!((&stats["reads"], &stats["device"]), (&200.into(), &"cloud".into()));
    assert_eq!(fs::read_dir(mounted.at()).unwrap().count(), 1, "the counters are not listed");
    drop(file);
    mounted.signal(Signal::TERM);
    let (code, out) = mounted.ended();
    assert_eq!((code, one_json(&out)), (Some(0), stats));
    assert!(below(mounted.dir.path()).is_empty() && mounted.source().join("data/x").is_file());
}

#[test]
fn what_was_asked_to_be_ready_is_read_from_the_disk_once() {
    if !can_mount() {
        return;
    }
    const PAGE: u64 = 8192;
    let mounted = Mounted::new("none");
    let path = mounted.at().join("data");
    fs::write(&path, vec![7; 64 * PAGE as usize]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let reads = || mounted.stats()["reads"].as_u64().unwrap();
    let read = |page: u64| {
        let mut bytes = vec![0; PAGE as usize];
        file.read_exact_at(&mut bytes, page * PAGE).unwrap();
        bytes[0]
    };
    let ask = |page: u64| {
        let (before, begin) = (reads(), Instant::now());
        while reads() == before {
            // The kernel forgets what was used soon, not at once.
            fadvise(&file, page * PAGE, NonZeroU64::new(PAGE), Advice::WillNeed).unwrap();
            assert!(begin.elapsed() < PATIENCE, "the disk is not asked");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    for page in [20, 40, 20] {
        ask(page);
        let before = reads();
        assert_eq!((read(page), reads()), (7, before), "it is ready");
        assert_eq!((read(page), reads()), (7, before + 1), "and is no cache");
    }
    ask(30);
    let before = reads();
    file.write_all_at(&[8; PAGE as usize], 30 * PAGE).unwrap();
    assert_eq!((read(30), reads()), (8, before + 1), "another page by now");
}

#[test]
fn others_may_use_what_root_mounts_and_files_are_theirs() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let mounted = Mounted::new("none");
    fs::set_permissions(mounted.source(), fs::Permissions::from_mode(0o777)).unwrap();
    let made = mounted.at().join("made");
    let script = format!("umask 027; echo x > {0}; mkdir {0}.d; ln -s x {0}.l", made.display());
    run(Command::new("sh").args(["-c", &script]).uid(65534).gid(65534)).ok();
    for (name, mode) in [("made", 0o640), ("made.d", 0o750), ("made.l", 0o777)] {
        let meta = mounted.source().join(name).symlink_metadata().unwrap();
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o777), (65534, 65534, mode), "{name}");
    }
    fs::write(mounted.at().join("secret"), "x").unwrap();
    fs::set_permissions(mounted.at().join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let read = run(Command::new("cat").arg(mounted.at().join("secret")).uid(65534).gid(65534));
    assert_ne!(read.code, 0, "permissions count");
}

#[test]
fn open_files_outlive_their_names_and_locks_work() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new("none");
    let path = mounted.at().join("x");
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path).unwrap();
    file.write_all(b"one").unwrap();
    let other = File::open(&path).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    assert!(flock(&other, FlockOperation::NonBlockingLockExclusive).is_err());
    fs::remove_file(&path).unwrap();
    fs::write(&path, "new").unwrap();
    file.write_all(b"two").unwrap();
    let mut all = [0; 6];
    other.read_exact_at(&mut all, 0).unwrap();
    assert_eq!((&all, other.metadata().unwrap().nlink()), (b"onetwo", 0));
    assert_eq!(fs::read(&path).unwrap(), b"new");
}

#[test]
fn an_unmount_ends_it_and_a_killed_one_is_cleared_by_the_next() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let mut mounted = Mounted::new("none");
    run(Command::new("umount").arg(mounted.at())).ok();
    assert_eq!(mounted.ended().0, Some(0));
    mounted.child = serve(mounted.dir.path(), "none");
    fs::write(mounted.at().join("x"), "kept").unwrap();
    // A living one is in the way.
    let dir = mounted.dir.path();
    let second = run(command(dir, "none").stderr(Stdio::piped()));
    assert_eq!(second.code, 4, "{second:?}");
    assert!(second.err.contains("is mounted by another server"), "{second:?}");
    mounted.child.kill().unwrap();
    mounted.child.wait().unwrap();
    assert!(fs::read(mounted.at().join("x")).is_err() && !below(dir).is_empty());
    let next = serve(dir, "none");
    mounted.child = next;
    assert!(mounted.log().contains("removing the mount of a dead server"), "{}", mounted.log());
    assert_eq!(fs::read(mounted.at().join("x")).unwrap(), b"kept");
    // One that is in use waits for its users, but not for a second signal.
    let user = File::open(mounted.at().join("x")).unwrap();
    mounted.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(200));
    assert!(mounted.child.try_wait().unwrap().is_none());
    mounted.signal(Signal::TERM);
    assert_eq!(mounted.ended().0, Some(0));
    assert!(below(mounted.dir.path()).is_empty());
    drop(user);
}

#[test]
fn bad_input_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["source", "at", "full", "source/in"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    fs::write(dir.path().join("full/x"), "precious").unwrap();
    for (device, source, at, words) in [
        ("tape", "source", "at", "unknown device profile"),
        ("none", "nowhere", "at", "cannot be opened"),
        ("none", "full/x", "at", "is not a directory"),
        ("none", "source", "nowhere", "is not there"),
        ("none", "source", "full", "is not empty"),
        ("none", "source", "full/x", "is not empty"),
        ("none", "source", "source/in", "lie in each other"),
    ] {
        let path = |name: &str| dir.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        let command = command
            .args(["slow-dir", "--read-ahead", "0", "--device", device])
            .arg(path(source))
            .arg(path(at));
        let ended = run(command);
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.err.contains(words) && ended.err.lines().count() == 1, "{words}: {ended:?}");
    }
    assert_eq!(fs::read(dir.path().join("full/x")).unwrap(), b"precious");
}
