// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of the FUSE tests: loop devices and mounts that are removed when dropped, threads that write and record what
//! they wrote, and load that ends when its device fails.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rustix::fs::{FallocateFlags, fallocate};

use crate::command::{PATIENCE, have, program, run};
use crate::load::{eventually, initial};
use crate::place::Place;

/// Whether this machine permits mounting.
pub fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        println!("skipped: needs root and /dev/fuse");
    }
    can
}

/// Whether it also has loop devices and ext4.
pub fn can_loop() -> bool {
    let there = Path::new("/dev/loop-control").exists();
    if !there {
        println!("skipped: needs loop devices");
    }
    there
        && can_mount()
        && have("mkfs.ext4", "e2fsprogs")
        && have("losetup", "mount")
        && have("fstrim", "util-linux")
}

/// Arguments of `serve` with the sockets of the place and a file.
pub fn fuse_words(place: &Place, path: &str, more: &[&str]) -> Vec<String> {
    let mut words = place.serve(&["--listen", &format!("fuse:{}", place.word(path))]);
    words.extend(more.iter().map(|&w| w.to_owned()));
    words
}

/// Opens a file of the place for reading and writing.
pub fn open(place: &Place, name: &str) -> File {
    File::options().read(true).write(true).open(place.path(name)).unwrap()
}

/// Runs a command as an unprivileged user.
pub const USER: [&str; 4] =
    ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
/// Runs a command as that user with CAP_SYS_ADMIN, as a unit of systemd does that grants it (`AmbientCapabilities=`), and
/// with no program that gains rights.
pub const ADMIN_USER: [&str; 8] = [
    "/usr/bin/setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=-all,+sys_admin",
    "--ambient-caps=-all,+sys_admin",
    "--bounding-set=-all,+sys_admin",
    "--no-new-privs",
];
/// Makes /dev/fuse accessible to every user, as distributions do.
pub const OPEN_DEVICE: &str =
    "mknod node c 10 229 && chmod 666 node && mount --bind node /dev/fuse";

/// A server of `home/vol` in its own mount namespace, after `prepare` as a line of shell; with words before the command
/// that run it as the unprivileged user.
pub fn apart(place: &Place, prepare: &str, user: &[&str]) -> Command {
    let (owner, home) = (if user.is_empty() { 0 } else { 65534 }, place.path("home"));
    std::fs::create_dir(&home).unwrap();
    for dir in [&place.path("."), &home] {
        std::os::unix::fs::chown(dir, Some(owner), Some(owner)).unwrap();
    }
    let copy = place.word("larder");
    std::fs::copy(program(), &copy).unwrap();
    let words = format!(
        "{} {copy} serve --origin mem:1MiB --control {} --listen fuse:{}",
        user.join(" "),
        place.word("home/control"),
        place.word("home/vol"),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("{prepare} && exec {words}")]);
    // The state of a volume is kept in the user's home, which must not be root's.
    command.env("HOME", &home).env_remove("XDG_STATE_HOME");
    command.current_dir(place.path("."));
    command
}

/// The output of a tool that must succeed.
pub fn output(program: &str, words: &[&str]) -> String {
    run(Command::new(program).args(words)).ok().trim().to_owned()
}

/// A checksum of the names and contents of a tree.
pub fn tree_sum(path: &Path) -> String {
    let script = "find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum";
    run(Command::new("sh").args(["-c", script]).current_dir(path)).ok()
}

/// A loop device.
pub struct Loop(String);

impl Loop {
    /// Over a file of the place, with direct I/O.
    pub fn over(place: &Place, name: &str) -> Self {
        Self(output("losetup", &["--direct-io=on", "--show", "-f", &place.word(name)]))
    }

    /// Its device node.
    pub fn path(&self) -> &str {
        &self.0
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run(Command::new("losetup").args(["-d", &self.0]));
    }
}

/// A mounted file system.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Mounts a device.
    pub fn mount(device: &str, at: &Path) -> Self {
        output("mount", &[device, at.to_str().unwrap()]);
        Self(at.to_owned())
    }

    /// Unmounts it, which must succeed. A busy mount is tried again: a child process that another test starts keeps the
    /// files open that were open when it was forked, until it executes its program.
    pub fn unmount(self) {
        eventually("the file system is not in use", || {
            let ended = run(Command::new("umount").arg(&self.0));
            let busy = ended.code == 32 && ended.err.contains("busy");
            assert!(busy || ended.code == 0, "{ended:?}");
            !busy
        });
    }

    /// How many mounts there are at a path.
    pub fn count(at: &Path) -> usize {
        let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        text.lines().filter(|line| line.split(' ').nth(4) == at.to_str()).count()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if Self::count(&self.0) > 0 {
            run(Command::new("umount").arg("-l").arg(&self.0));
        }
    }
}

/// A part of a file that belongs to one thread, and what it must hold.
struct Part {
    at: u64,
    bytes: Vec<u8>,
}

/// Divides the file into parts of random length and assigns them to the threads in turn.
fn deal(bytes: u64, threads: usize, random: &mut Pcg64) -> Vec<Vec<Part>> {
    let all = initial(0, bytes);
    let mut hands: Vec<Vec<Part>> = (0..threads).map(|_| Vec::new()).collect();
    let (mut at, mut turn) = (0, 0);
    while at < bytes {
        let len = match random.random_range(0..4) {
            0 => random.random_range(1..600),
            1 => random.random_range(1..9000),
            2 => 512 * random.random_range(1..20),
            _ => random.random_range(1..200_000),
        };
        let len = len.min(bytes - at);
        let part = &all[at as usize..(at + len) as usize];
        hands[turn % threads].push(Part { at, bytes: part.to_vec() });
        (at, turn) = (at + len, turn + 1);
    }
    hands
}

/// Reads, writes, zeroes and syncs at random in several threads; returns the expected content of the file.
pub fn hammer(file: &File, bytes: u64, threads: usize, span: Duration) -> Vec<u8> {
    let mut random = Pcg64::seed_from_u64(threads as u64);
    let hands = deal(bytes, threads, &mut random);
    let until = Instant::now() + span;
    let mut model = vec![0; bytes as usize];
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..)
            .zip(hands)
            .map(|(seed, mut hand)| {
                scope.spawn(move || {
                    let (mut random, mut count) = (Pcg64::seed_from_u64(seed), 0u64);
                    while Instant::now() < until {
                        let pick = random.random_range(0..hand.len());
                        touch(file, &mut hand[pick], &mut random);
                        count += 1;
                    }
                    assert!(count > 100, "only {count} operations");
                    hand
                })
            })
            .collect();
        for part in threads.into_iter().flat_map(|t| t.join().unwrap()) {
            let at = part.at as usize;
            model[at..at + part.bytes.len()].copy_from_slice(&part.bytes);
        }
    });
    model
}

/// One operation on a range of a part.
fn touch(file: &File, part: &mut Part, random: &mut Pcg64) {
    let from = random.random_range(0..part.bytes.len());
    let to = random.random_range(from..part.bytes.len()) + 1;
    let (offset, len) = (part.at + from as u64, (to - from) as u64);
    let held = &mut part.bytes[from..to];
    match random.random_range(0..100) {
        0..50 => {
            random.fill(held);
            file.write_all_at(held, offset).unwrap();
        }
        50..60 => {
            held.fill(0);
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(file, mode, offset, len).unwrap();
        }
        60..68 => {
            held.fill(0);
            fallocate(file, FallocateFlags::ZERO_RANGE, offset, len).unwrap();
        }
        68..70 => file.sync_data().unwrap(),
        _ => {
            let mut seen = vec![0; held.len()];
            file.read_exact_at(&mut seen, offset).unwrap();
            assert!(seen == held, "{len} bytes at {offset} are not what was written last");
        }
    }
}

/// Load on a mounted loop device and the file below it, until it fails.
pub struct Busy {
    threads: Vec<std::thread::JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Busy {
    /// Threads write and sync files in the file system, and read the device and the volume.
    pub fn start(place: &Place, device: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for n in 0..3 {
            let (path, stop) = (place.path("mnt").join(format!("busy{n}")), Arc::clone(&stop));
            threads.push(std::thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    let written = File::create(&path).and_then(|file| {
                        file.write_all_at(&[n; 100_000], 0)?;
                        file.sync_all()
                    });
                    if written.is_err() {
                        return;
                    }
                }
            }));
        }
        for path in [PathBuf::from(device), place.path("vol")] {
            for n in 0..4 {
                let (file, stop) = (File::open(&path).unwrap(), Arc::clone(&stop));
                threads.push(std::thread::spawn(move || {
                    let mut at = n << 20;
                    while !stop.load(Ordering::SeqCst)
                        && file.read_exact_at(&mut [0; 4096], at).is_ok()
                    {
                        at = (at + (1 << 20) + 4096) % (100 << 20);
                    }
                }));
            }
        }
        Self { threads, stop }
    }

    /// Waits until every thread has failed or has no request in flight; returns how long that took.
    pub fn finish(self) -> Duration {
        let begin = Instant::now();
        // The page cache may answer reads of the device indefinitely.
        let patience = begin + Duration::from_secs(2);
        while Instant::now() < patience && !self.threads.iter().all(|t| t.is_finished()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.stop.store(true, Ordering::SeqCst);
        while !self.threads.iter().all(|t| t.is_finished()) {
            assert!(begin.elapsed() < PATIENCE, "a request hangs");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        begin.elapsed()
    }
}
