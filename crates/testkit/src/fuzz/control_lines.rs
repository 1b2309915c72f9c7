// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arbitrary bytes as one side of a control connection.
//!
//! The first byte selects the side: a client's request to the server, or a server's answers to the client of a command
//! or of a recording. Required: no panic, no endless loop. An accepted request is the same when it is sent again; its
//! device is parsed, not opened. An error is reported once, and a client ends when the server closes the connection.

use std::cell::OnceCell;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::ops::ControlFlow;
use std::os::unix::net::UnixListener;
use std::path::Path;

use larder_front::control::client::{Failed, ask};
use larder_front::control::record::record;
use larder_front::control::wire::{Answer, Command, read_command};
use larder_io::DevSpec;
use tempfile::TempDir;

/// Short enough that a socket accepts it at once, whatever the client does.
const MOST_SENT: usize = 32 << 10;

thread_local! {
    static SERVER: OnceCell<(TempDir, UnixListener)> = const { OnceCell::new() };
}

/// A socket to which the client connects.
fn server() -> (TempDir, UnixListener) {
    let dir = tempfile::tempdir().expect("a directory for temporary files");
    let listener = UnixListener::bind(dir.path().join("control")).expect("a socket");
    (dir, listener)
}

/// Checks one input.
pub fn check(data: &[u8]) {
    let Some((setup, bytes)) = data.split_first() else { return };
    if setup & 1 == 0 {
        return request(bytes);
    }
    SERVER.with(|of| {
        let (dir, listener) = of.get_or_init(server);
        client(&dir.path().join("control"), listener, *setup, bytes);
    });
}

fn request(bytes: &[u8]) {
    let command = match read_command(bytes) {
        Ok(command) => command,
        Err(message) => {
            let answer = serde_json::to_string(&Answer::Error { code: 2, message });
            assert!(!answer.expect("an answer is JSON").contains('\n'));
            return;
        }
    };
    let line = serde_json::to_string(&command).expect("a request is JSON");
    assert!(!line.contains('\n'));
    assert_eq!(read_command(line.as_bytes()), Ok(command.clone()));
    if let Command::Attach { flash, .. } = command
        && let Ok(spec) = flash.parse::<DevSpec>()
    {
        let again = spec.to_string().parse::<DevSpec>().map(|spec| spec.to_string());
        assert_eq!(again.expect("a device's name is one"), spec.to_string());
    }
}

/// A client whose server sends the bytes and closes the connection.
fn client(path: &Path, listener: &UnixListener, setup: u8, bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(MOST_SENT)];
    std::thread::scope(|scope| {
        let client = scope.spawn(|| match setup & 2 == 0 {
            true => ask(path, &Command::Status, |_| ()).map(drop),
            false => record(path, |_| match setup & 4 == 0 {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })
            .map(drop),
        });
        let (mut stream, _) = listener.accept().expect("a client");
        let mut first = [0];
        assert_eq!(stream.read(&mut first).expect("a request"), 1);
        let sent = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
        let result = client.join().expect("the client does not panic");
        drop((stream, sent));
        if let Err(Failed { message, .. }) = result {
            assert!(!message.is_empty() || !bytes.is_empty());
        }
    });
}
