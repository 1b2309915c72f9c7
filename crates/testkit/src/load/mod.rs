// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that read, write, trim, zero and flush overlapping ranges over NBD, and a judge that verifies every byte
//! they read: the oracle of linearisability, with real time.

mod file;

use std::collections::HashMap;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use larder_core::request::{Errno, Kind};
use larder_nbd::client::{Client, ClientError, Options, Receiver, Sender};
use larder_nbd::uri::Uri;
use larder_sim::oracle::{Oracle, WriteId, fill, value};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Time limit of any operation; the test then fails instead of hanging.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a sector.
const SECTOR: u64 = 512;
/// Requests per second of all clients together. The oracle's work grows with their square.
const RATE: u64 = 6000;

/// The content of a device before the first write: the values of write 0.
pub fn initial(offset: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    for (i, sector) in bytes.chunks_mut(SECTOR as usize).enumerate() {
        fill(offset / SECTOR + i as u64, 0, sector);
    }
    bytes
}

/// Waits until `done`, within a time limit.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a server accepts connections at `socket`: the socket exists before the server listens.
pub fn accepts(socket: &Path) {
    eventually("a server accepts", || UnixStream::connect(socket).is_ok());
}

/// The errors that clients may see.
#[derive(Clone, Debug)]
pub struct Tolerance {
    /// Requests that touch these bytes ...
    pub range: Range<u64>,
    /// ... and flushes, if set, ...
    pub flushes: bool,
    /// ... may fail with this error.
    pub errno: Errno,
}

/// Verifies what clients read.
pub struct Judge {
    oracle: Mutex<Oracle>,
    begin: Instant,
    wrong: Mutex<Vec<String>>,
    tolerance: Mutex<Option<Tolerance>>,
    errors: AtomicU64,
    /// When the latest acknowledged FLUSH was sent.
    flushed: AtomicU64,
    /// Whether connections may break.
    pub may_break: AtomicBool,
}

impl Judge {
    /// A judge of a device with [`initial`] content.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            oracle: Mutex::default(),
            begin: Instant::now(),
            wrong: Mutex::default(),
            tolerance: Mutex::default(),
            errors: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            may_break: AtomicBool::new(false),
        })
    }

    /// The time of the oracle; 0 is before everything.
    pub fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64 + 1
    }

    /// Sets the errors that requests may return; `None` allows none.
    pub fn tolerate(&self, tolerance: Option<Tolerance>) {
        *self.tolerance.lock().unwrap() = tolerance;
    }

    /// Number of tolerated errors.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::SeqCst)
    }

    fn blame(&self, what: String) {
        self.wrong.lock().unwrap().push(what);
    }

    /// Fails the test if anything was wrong so far.
    pub fn check(&self) {
        let wrong = self.wrong.lock().unwrap();
        assert!(wrong.is_empty(), "{} errors, the first: {}", wrong.len(), wrong[0]);
    }

    /// Verifies bytes read from any source while no client writes.
    pub fn seen(&self, offset: u64, bytes: &[u8]) {
        let now = self.now();
        let result = self.oracle.lock().unwrap().read(offset, bytes, now, self.now() + 1);
        result.unwrap_or_else(|e| panic!("{e}"));
    }

    /// The device lost an unknown part of what no FLUSH or FUA covered, and now holds `found`, which becomes its whole
    /// history.
    pub fn crashed(&self, found: &[u8]) {
        self.verdict();
        let flushed = self.flushed.load(Ordering::SeqCst);
        let mut oracle = self.oracle.lock().unwrap();
        let judged = (0..).zip(found.chunks(SECTOR as usize)).map(|(number, bytes)| {
            let seen = value(number, bytes).map_err(|what| format!("sector {number}: {what}"))?;
            oracle.durable(number, seen, flushed)?;
            oracle.durable_fua(number, seen)?;
            Ok((number, seen))
        });
        let found: Vec<_> = judged.collect::<Result<_, String>>().unwrap_or_else(|e| panic!("{e}"));
        oracle.restart(&found);
    }

    /// Verifies the whole history.
    pub fn verdict(&self) {
        self.check();
        self.oracle.lock().unwrap().judge().unwrap_or_else(|e| panic!("{e}"));
    }

    fn judge_error(&self, op: &Op, errno: Errno) {
        let tolerance = self.tolerance.lock().unwrap().clone();
        let fits = |t: &Tolerance| {
            let touches = op.offset < t.range.end && op.offset + op.len > t.range.start;
            errno == t.errno && if op.kind == Kind::Flush { t.flushes } else { touches }
        };
        if tolerance.as_ref().is_some_and(fits) {
            self.errors.fetch_add(1, Ordering::SeqCst);
        } else {
            self.blame(format!("{:?} at {}+{}: {errno}", op.kind, op.offset, op.len));
        }
    }
}

/// What the clients do.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The bytes that they use, from 0.
    pub bytes: u64,
    /// Three requests of four go to the first `hot_bytes` bytes.
    pub hot_bytes: u64,
    /// Number of clients, each with a connection.
    pub clients: usize,
    /// Requests in flight of each client.
    pub depth: usize,
    /// Percentage of reads.
    pub reads: u32,
    /// Seed of the random choices.
    pub seed: u64,
}

struct Op {
    kind: Kind,
    offset: u64,
    len: u64,
    id: WriteId,
    start: u64,
}

/// Chooses requests.
struct Chooser {
    random: Pcg64,
    shape: Shape,
    /// Offsets and lengths are multiples of this.
    block: u64,
}

impl Chooser {
    fn next(&mut self) -> (Kind, u64, u64) {
        let roll = self.random.random_range(0..100);
        let fua = self.random.random_ratio(1, 8);
        let may_unmap = self.random.random();
        let kind = match roll {
            n if n < self.shape.reads => Kind::Read,
            n if n < 88 => Kind::Write { fua },
            n if n < 92 => return (Kind::Flush, 0, 0),
            n if n < 95 => Kind::Trim { fua },
            _ => Kind::Zero { fua, may_unmap },
        };
        let (grain, most) = match self.random.random_range(0..100) {
            n if n < 60 => (4096, 4),
            n if n < 85 => (self.block, 16),
            _ => (self.block, (160 << 10) / self.block),
        };
        let area =
            if self.random.random_ratio(3, 4) { self.shape.hot_bytes } else { self.shape.bytes };
        let offset = self.random.random_range(0..area / grain) * grain;
        let len = self.random.random_range(1..=most) * grain;
        (kind, offset, len.min(self.shape.bytes - offset))
    }
}

/// Running clients.
pub struct Load {
    /// The judge that verifies them.
    pub judge: Arc<Judge>,
    stop: Arc<AtomicBool>,
    clients: Vec<(Arc<AtomicU64>, JoinHandle<()>)>,
}

impl Load {
    /// Starts the clients.
    pub fn start(uri: &Uri, shape: &Shape, judge: &Arc<Judge>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let clients = (0..shape.clients).map(|i| {
            let count = Arc::new(AtomicU64::new(0));
            let (judge, stop, counted) = (Arc::clone(judge), Arc::clone(&stop), Arc::clone(&count));
            let options = Options { io_timeout: Some(PATIENCE), ..Options::default() };
            let client = Client::connect(uri, &options).unwrap();
            let chooser = Chooser {
                random: Pcg64::seed_from_u64(shape.seed << 8 | i as u64),
                shape: shape.clone(),
                block: u64::from(client.info().min_block_bytes),
            };
            let (sender, mut receiver) = client.split();
            let window = Arc::new(Window::default());
            let sending = Sending {
                judge: Arc::clone(&judge),
                window: Arc::clone(&window),
                stop,
                count: Arc::clone(&counted),
            };
            let sends = std::thread::spawn(move || {
                let result = sending.run(sender, chooser);
                sending.window.change(|open| open.all_sent = true);
                result
            });
            let thread = std::thread::spawn(move || {
                let received = receive(&mut receiver, &judge, &window, &counted);
                window.change(|open| open.broken = received.is_err());
                for result in [received, sends.join().unwrap()] {
                    let broke = matches!(result, Err(ClientError::Closed | ClientError::Io(_)));
                    match result {
                        Ok(()) => {}
                        Err(_) if broke && judge.may_break.load(Ordering::SeqCst) => {}
                        Err(e) => judge.blame(format!("client {i}: {e}")),
                    }
                }
            });
            (count, thread)
        });
        let clients = clients.collect();
        Self { judge: Arc::clone(judge), stop, clients }
    }

    /// Number of completed requests.
    pub fn answered(&self) -> u64 {
        self.clients.iter().map(|(count, _)| count.load(Ordering::SeqCst)).sum()
    }

    /// Waits until every client has completed `more` requests.
    pub fn progress(&self, more: u64) {
        let counts = || self.clients.iter().map(|(count, _)| count.load(Ordering::SeqCst));
        let before: Vec<u64> = counts().collect();
        eventually("clients are answered", || {
            self.judge.check();
            counts().zip(&before).all(|(now, before)| now >= before + more)
        });
    }

    /// Ends the clients after their last replies.
    pub fn finish(self) -> Arc<Judge> {
        self.stop.store(true, Ordering::SeqCst);
        for (_, thread) in self.clients {
            thread.join().unwrap();
        }
        self.judge.check();
        self.judge
    }
}

/// The requests in flight of a client.
#[derive(Default)]
struct Open {
    ops: HashMap<u64, Op>,
    all_sent: bool,
    broken: bool,
}

/// State shared by the sending and the receiving thread of a client.
#[derive(Default)]
struct Window {
    open: Mutex<Open>,
    changed: Condvar,
}

impl Window {
    fn change<R>(&self, change: impl FnOnce(&mut Open) -> R) -> R {
        let result = change(&mut self.open.lock().unwrap());
        self.changed.notify_all();
        result
    }

    /// Waits until `ready`, which is also polled.
    fn wait(&self, ready: impl Fn(&Open) -> bool) {
        let mut open = self.open.lock().unwrap();
        while !ready(&open) {
            open = self.changed.wait_timeout(open, Duration::from_millis(20)).unwrap().0;
        }
    }
}

/// The sending thread of a client. Another thread receives, so that neither end blocks the other.
struct Sending {
    judge: Arc<Judge>,
    window: Arc<Window>,
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
}

impl Sending {
    fn run(&self, mut sender: Sender, mut chooser: Chooser) -> Result<(), ClientError> {
        let (began, depth) = (Instant::now(), chooser.shape.depth);
        let pause = Duration::from_secs(chooser.shape.clients as u64) / RATE as u32;
        loop {
            // A client that is ahead of its rate lets all requests complete, then sends a full window.
            let ahead = pause * self.count.load(Ordering::SeqCst) as u32;
            let rest = ahead.saturating_sub(began.elapsed());
            let most = if rest > 8 * pause { 0 } else { depth - 1 };
            let over = |open: &Open| open.broken || self.stop.load(Ordering::SeqCst);
            self.window.wait(|open| open.ops.len() <= most || over(open));
            if most == 0 {
                std::thread::sleep(rest);
            }
            if self.window.change(|open| over(open)) {
                break;
            }
            let (kind, offset, len) = chooser.next();
            let (id, data, start) = begin(&self.judge, kind, offset, len);
            let cookie = sender.submit(kind, offset, len, &data)?;
            let op = Op { kind, offset, len, id, start };
            self.window.change(|open| open.ops.insert(cookie, op));
        }
        // The connection is kept until the last reply.
        self.window.wait(|open| open.ops.is_empty() || open.broken);
        sender.disconnect()
    }
}

fn receive(
    receiver: &mut Receiver,
    judge: &Judge,
    window: &Window,
    count: &AtomicU64,
) -> Result<(), ClientError> {
    loop {
        window.wait(|open| !open.ops.is_empty() || open.all_sent);
        if window.change(|open| open.ops.is_empty()) {
            return Ok(());
        }
        let completion = receiver.wait()?;
        let end = judge.now();
        // The reply may arrive before the sender has recorded the request.
        window.wait(|open| open.ops.contains_key(&completion.cookie) || open.all_sent);
        let op = window.change(|open| open.ops.remove(&completion.cookie));
        let op = op.ok_or(ClientError::Protocol("a reply that matches no request"))?;
        match completion.result {
            Ok(data) => answered(judge, &op, &data, end),
            Err(errno) => judge.judge_error(&op, errno),
        }
        count.fetch_add(1, Ordering::SeqCst);
    }
}

fn begin(judge: &Judge, kind: Kind, offset: u64, len: u64) -> (WriteId, Vec<u8>, u64) {
    let mut oracle = judge.oracle.lock().unwrap();
    let start = judge.now();
    match kind {
        Kind::Write { .. } => {
            let (id, data) = oracle.write_begins(offset, len, start);
            (id, data, start)
        }
        Kind::Trim { .. } | Kind::Zero { .. } => {
            (oracle.zero_begins(offset, len, start), Vec::new(), start)
        }
        Kind::Read | Kind::Flush => (0, Vec::new(), start),
    }
}

fn answered(judge: &Judge, op: &Op, data: &[u8], end: u64) {
    let mut oracle = judge.oracle.lock().unwrap();
    match op.kind {
        Kind::Read => {
            if let Err(e) = oracle.read(op.offset, data, op.start, end) {
                judge.blame(e.to_string());
            }
        }
        Kind::Flush => drop(judge.flushed.fetch_max(op.start, Ordering::SeqCst)),
        Kind::Write { fua: true } | Kind::Trim { fua: true } | Kind::Zero { fua: true, .. } => {
            oracle.answered(op.id, op.offset, op.len, end);
            oracle.answered_fua(op.id, op.offset, op.len);
        }
        _ => oracle.answered(op.id, op.offset, op.len, end),
    }
}
