// SPDX-License-Identifier: MIT OR Apache-2.0
//! As much of an HTTP server as a scrape needs: `GET /metrics`, one request a connection.
//!
//! Invariants: at most [`MOST_CLIENTS`] at a time; beyond that the listener disconnects the oldest, as in a [`Lobby`],
//! so that slow clients keep no other out. Each has [`BOUND`] to ask and as long to take the answer, and [`MOST_HEAD`]
//! bytes to ask with. Nothing that a client sends is kept, and no client waits for another that is slow.
//!
//! Why not an HTTP library: those that bound slow clients bring a runtime and dozens of crates
//! along, the small ones bound nothing, and this is one page.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larder_front::lobby::Lobby;
use larder_nbd::deadline::Deadlined;
use larder_volume::peer::Peer;

use super::format::Format;

/// Clients at a time, and those of one address.
const MOST_CLIENTS: usize = 16;
const MOST_EACH: usize = 8;
/// How long a client may take to ask, and again to take the answer.
const BOUND: Duration = Duration::from_secs(5);
/// The longest request.
const MOST_HEAD: usize = 8 << 10;

/// A running server; dropping it stops it.
pub struct Server {
    listener: Arc<TcpListener>,
    stop: Arc<AtomicBool>,
}

impl Server {
    /// Answers with `body` until dropped.
    pub(super) fn start(
        listener: TcpListener,
        body: impl Fn(Format) -> String + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let (listener, stop) = (Arc::new(listener), Arc::new(AtomicBool::new(false)));
        let (accepting, stopped) = (Arc::clone(&listener), Arc::clone(&stop));
        let (body, lobby) = (Arc::new(body), Lobby::new(MOST_CLIENTS, MOST_EACH));
        let accept = move || {
            while !stopped.load(Ordering::SeqCst) {
                match accepting.accept() {
                    Ok((client, from)) => receive(client, from, &lobby, &body),
                    Err(_) if stopped.load(Ordering::SeqCst) => break,
                    // Out of descriptors, most likely: others will close theirs.
                    Err(_) => std::thread::sleep(Duration::from_millis(100)),
                }
            }
        };
        std::thread::Builder::new().name("larder-metrics".to_owned()).spawn(accept)?;
        Ok(Self { listener, stop })
    }

    /// Where it listens: with the port that the system chose for port 0.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Ends an accept that is waiting.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
    }
}

fn receive<B>(client: TcpStream, from: SocketAddr, lobby: &Lobby, body: &Arc<B>)
where
    B: Fn(Format) -> String + Send + Sync + 'static,
{
    let Ok(place) = lobby.enter(Peer::of(from.ip()), &client) else { return };
    let body = Arc::clone(body);
    let serve = move || {
        // A client that went away has no use for an answer.
        let _ = answer(&client, &*body);
        drop(place);
    };
    // Without a thread the client is closed, which it will understand.
    let _ = std::thread::Builder::new().name("larder-metrics".to_owned()).spawn(serve);
}

fn answer(client: &TcpStream, body: &impl Fn(Format) -> String) -> io::Result<()> {
    let head = read_head(Deadlined::new(client, BOUND))?;
    let head = String::from_utf8_lossy(&head);
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let plain = "text/plain; charset=utf-8";
    let (status, kind, text) = match (method, path) {
        _ if !head.ends_with("\n\n") && !head.ends_with("\n\r\n") => {
            ("431 Request Header Fields Too Large", plain, "accepted: GET /metrics\n".to_owned())
        }
        ("GET" | "HEAD", "/metrics") => {
            let format = Format::accepted(&head);
            ("200 OK", format.content(), body(format))
        }
        ("GET" | "HEAD", _) => ("404 Not Found", plain, "accepted: /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", plain, "accepted: GET /metrics\n".to_owned()),
    };
    let length = text.len();
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nVary: Accept\r\nAllow: GET, HEAD\r\nConnection: close\r\n\r\n"
    );
    if method != "HEAD" {
        answer += &text;
    }
    Deadlined::new(client, BOUND).write_all(answer.as_bytes())?;
    client.shutdown(Shutdown::Write)
}

/// Reads up to the empty line, or as much as is taken.
fn read_head(mut client: impl Read) -> io::Result<Vec<u8>> {
    let (mut head, mut chunk) = (Vec::new(), [0; 1024]);
    while head.len() < MOST_HEAD && !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"\n\n") {
        let got = client.read(&mut chunk)?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend(chunk.iter().take(got));
    }
    Ok(head)
}
