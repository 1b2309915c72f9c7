// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scripted NBD server: it serves memory, and on command drops connections, stalls or sends garbage. Its memory
//! survives a restart.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use larder_nbd::codec::{
    CHUNK_MAGIC, ChunkHeader, FIXED_NEWSTYLE, Greeting, NO_ZEROES, OptionHeader, OptionReply,
    RequestHeader, SimpleReply, can, chunk, cmd, info, opt, rep,
};

/// What the server does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Serve,
    /// The connection ends before the request is executed.
    Drop,
    /// The request is executed, and the connection ends within the reply.
    DropInReply,
    /// The request is executed at [`Server::release`]; the connection continues.
    Stall,
    WrongMagic,
    WrongCookie,
    TwiceTheSame,
    Outside,
    Overlapping,
    Missing,
    Oversized,
    SimpleRead,
    Error(u32),
}

type Script = Box<dyn FnMut(&RequestHeader) -> Act + Send>;

struct Shared {
    memory: Mutex<Vec<u8>>,
    script: Mutex<Option<Script>>,
    stalled: Mutex<Vec<(UnixStream, RequestHeader, Vec<u8>)>>,
    connections: Mutex<Vec<UnixStream>>,
    accepted: AtomicUsize,
    bytes: AtomicU64,
    flags: AtomicU16,
    stop: AtomicBool,
    payload: Option<u32>,
}

/// The server.
pub struct Server {
    shared: Arc<Shared>,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

pub const FLAGS: u16 = can::HAS_FLAGS | can::FLUSH | can::TRIM | can::WRITE_ZEROES | can::FUA;

impl Server {
    pub fn start(bytes: u64, flags: u16, payload: Option<u32>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let shared = Arc::new(Shared {
            memory: Mutex::new(vec![0; bytes as usize]),
            script: Mutex::default(),
            stalled: Mutex::default(),
            connections: Mutex::default(),
            accepted: AtomicUsize::new(0),
            bytes: AtomicU64::new(bytes),
            flags: AtomicU16::new(flags),
            stop: AtomicBool::new(false),
            payload,
        });
        let server = Self { shared, path: dir.path().join("s"), _dir: dir };
        server.up();
        server
    }

    /// Listens, possibly again.
    pub fn up(&self) {
        self.shared.stop.store(false, Ordering::SeqCst);
        let _ = std::fs::remove_file(&self.path);
        let listener = UnixListener::bind(&self.path).unwrap();
        let shared = Arc::clone(&self.shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if shared.stop.load(Ordering::SeqCst) {
                    return;
                }
                shared.accepted.fetch_add(1, Ordering::SeqCst);
                shared.connections.lock().unwrap().push(stream.try_clone().unwrap());
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    let end = stream.try_clone().unwrap();
                    let _ = serve(&shared, stream);
                    let _ = end.shutdown(std::net::Shutdown::Both);
                });
            }
        });
    }

    /// Ends every connection and stops listening.
    pub fn down(&self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        let _ = UnixStream::connect(&self.path);
        let _ = std::fs::remove_file(&self.path);
        self.cut();
    }

    /// Ends every connection.
    pub fn cut(&self) {
        for stream in self.shared.connections.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    pub fn script(&self, script: impl FnMut(&RequestHeader) -> Act + Send + 'static) {
        *self.shared.script.lock().unwrap() = Some(Box::new(script));
    }

    /// Applies `act` to the next `count` requests of this kind.
    pub fn next(&self, command: u16, count: usize, act: Act) {
        let mut left = count;
        self.script(move |request| {
            if request.command != command || left == 0 {
                return Act::Serve;
            }
            left -= 1;
            act
        });
    }

    pub fn stalled(&self) -> usize {
        self.shared.stalled.lock().unwrap().len()
    }

    /// Executes and answers the stalled requests.
    pub fn release(&self) {
        for (mut stream, request, data) in self.shared.stalled.lock().unwrap().drain(..) {
            let reply = carry_out(&self.shared, &request, &data);
            let _ = stream.write_all(&reply);
        }
    }

    pub fn resize(&self, bytes: u64) {
        self.shared.bytes.store(bytes, Ordering::SeqCst);
    }

    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    pub fn memory(&self) -> Vec<u8> {
        self.shared.memory.lock().unwrap().clone()
    }

    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", Path::display(&self.path))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.down();
    }
}

fn answer(stream: &mut UnixStream, option: u32, kind: u32, data: &[u8]) -> std::io::Result<()> {
    let header = OptionReply { option, kind, len: data.len() as u32 }.encode();
    stream.write_all(&[&header[..], data].concat())
}

fn negotiate(shared: &Shared, stream: &mut UnixStream) -> std::io::Result<()> {
    stream.write_all(&Greeting { flags: FIXED_NEWSTYLE | NO_ZEROES }.encode())?;
    stream.read_exact(&mut [0; 4])?;
    loop {
        let mut header = [0; OptionHeader::LEN];
        stream.read_exact(&mut header)?;
        let OptionHeader { option, len } = OptionHeader::decode(&header).unwrap();
        stream.read_exact(&mut vec![0; len as usize])?;
        if option != opt::GO {
            answer(stream, option, rep::ACK, &[])?;
            continue;
        }
        let bytes = shared.bytes.load(Ordering::SeqCst).to_be_bytes();
        let flags = shared.flags.load(Ordering::SeqCst).to_be_bytes();
        let fact = [&info::EXPORT.to_be_bytes()[..], &bytes, &flags].concat();
        answer(stream, option, rep::INFO, &fact)?;
        if let Some(payload) = shared.payload {
            let sizes = [512, 4096, payload].map(u32::to_be_bytes);
            let fact = [&info::BLOCK_SIZE.to_be_bytes()[..], sizes.as_flattened()].concat();
            answer(stream, option, rep::INFO, &fact)?;
        }
        return answer(stream, option, rep::ACK, &[]);
    }
}

fn serve(shared: &Shared, mut stream: UnixStream) -> std::io::Result<()> {
    negotiate(shared, &mut stream)?;
    loop {
        let mut header = [0; RequestHeader::LEN];
        stream.read_exact(&mut header)?;
        let request = RequestHeader::decode(&header).unwrap();
        if request.command == cmd::DISC {
            return Ok(());
        }
        let mut data =
            vec![0; if request.command == cmd::WRITE { request.len as usize } else { 0 }];
        stream.read_exact(&mut data)?;
        let act = shared.script.lock().unwrap().as_mut().map_or(Act::Serve, |s| s(&request));
        let reply = match act {
            Act::Drop => return Ok(()),
            Act::Stall => {
                let item = (stream.try_clone()?, request, data);
                shared.stalled.lock().unwrap().push(item);
                continue;
            }
            Act::Error(error) => error_chunk(request.cookie, error),
            act => spoil(act, &request, carry_out(shared, &request, &data)),
        };
        stream.write_all(&reply)?;
        if act == Act::DropInReply {
            return Ok(());
        }
    }
}

fn piece(flags: u16, kind: u16, cookie: u64, body: &[u8]) -> Vec<u8> {
    [&ChunkHeader { flags, kind, cookie, len: body.len() as u32 }.encode()[..], body].concat()
}

fn error_chunk(cookie: u64, error: u32) -> Vec<u8> {
    let body = [&error.to_be_bytes()[..], &[0, 0]].concat();
    piece(chunk::FLAG_DONE, chunk::ERROR, cookie, &body)
}

/// Executes a request and returns the complete reply.
fn carry_out(shared: &Shared, request: &RequestHeader, data: &[u8]) -> Vec<u8> {
    let RequestHeader { command, cookie, offset, len, .. } = *request;
    let mut memory = shared.memory.lock().unwrap();
    let place = offset as usize..offset as usize + len as usize;
    match command {
        cmd::READ => {
            let body = [&offset.to_be_bytes()[..], &memory[place]].concat();
            return piece(chunk::FLAG_DONE, chunk::OFFSET_DATA, cookie, &body);
        }
        cmd::WRITE => memory[place].copy_from_slice(data),
        cmd::TRIM | cmd::WRITE_ZEROES => memory[place].fill(0),
        _ => {}
    }
    piece(chunk::FLAG_DONE, chunk::NONE, cookie, &[])
}

/// Damages a reply.
fn spoil(act: Act, request: &RequestHeader, mut reply: Vec<u8>) -> Vec<u8> {
    let RequestHeader { cookie, offset, len, .. } = *request;
    let content = |flags, offset: u64, len: u32| {
        let body = [&offset.to_be_bytes()[..], &vec![0xBD; len as usize]].concat();
        piece(flags, chunk::OFFSET_DATA, cookie, &body)
    };
    let half = len / 2;
    match act {
        Act::DropInReply => reply.truncate(reply.len() / 2),
        Act::WrongMagic => reply[0] ^= 0xFF,
        Act::WrongCookie => reply[8] ^= 0xFF,
        Act::TwiceTheSame => reply.extend_from_within(..),
        Act::Outside => return content(chunk::FLAG_DONE, offset + u64::from(half), len),
        Act::Overlapping => {
            return [content(0, offset, len), content(chunk::FLAG_DONE, offset, half)].concat();
        }
        Act::Missing => return content(chunk::FLAG_DONE, offset, half),
        Act::Oversized => {
            reply.truncate(ChunkHeader::LEN);
            reply[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
        }
        Act::SimpleRead => {
            reply = SimpleReply { error: 0, cookie }.encode().to_vec();
            reply.extend(vec![0xBD; len as usize]);
        }
        _ => assert_eq!(reply[..4], CHUNK_MAGIC.to_be_bytes()),
    }
    reply
}

/// Waits until `done`, within a time limit.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..4000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("timed out: {what}");
}
