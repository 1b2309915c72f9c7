// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes, split anywhere, with results and sends at any time: a session never panics, keeps its bounds at every
//! moment, replies once to each request, and ends.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use larder_core::buf::Buf;
use larder_core::request::{Errno, Kind};
use larder_front::nbd::export::Export;
use larder_front::nbd::session::{Limits, Session, State, Why};
use larder_io::SendBatch;
use larder_nbd::codec::{RequestHeader, cmd};
use larder_testkit::sent::{Batch, take_send};
use larder_volume::session::{ClientRequest, Session as _, Source as _, What};
use proptest::collection::vec;
use proptest::prelude::*;

const BYTES: u64 = 64 << 20;
const LIMITS: Limits =
    Limits { requests: 6, payload_bytes: 1 << 20, recv_bytes: 8192, skip_bytes: 4 << 20 };

/// Writes of at least this length are announced but their payload is not sent.
const LONGEST_SENT: u32 = 2 << 20;

/// A header with its payload (for a write of moderate length), or junk.
#[derive(Clone, Debug)]
enum Step {
    Request(RequestHeader),
    Junk(Vec<u8>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let flags = prop_oneof![8 => Just(0u16), 2 => 0u16..32, 1 => any::<u16>()];
    let command = prop_oneof![8 => 0u16..2, 8 => 3u16..8, 1 => any::<u16>(), 1 => Just(cmd::DISC)];
    let offset = prop_oneof![
        12 => (0u64..BYTES / 512).prop_map(|s| s * 512),
        1 => BYTES - 4096..BYTES + 4096,
        1 => any::<u64>(),
    ];
    let len = prop_oneof![
        12 => (0u32..300).prop_map(|s| s * 512),
        2 => (0u32..20 << 11).prop_map(|s| s * 512),
        1 => any::<u32>(),
    ];
    let request =
        (flags, command, 0u64..4, offset, len).prop_map(|(flags, command, cookie, offset, len)| {
            Step::Request(RequestHeader { flags, command, cookie, offset, len })
        });
    let junk = vec(any::<u8>(), 1..100).prop_map(Step::Junk);
    vec(prop_oneof![60 => request, 1 => junk], 0..60)
}

fn stream_of(steps: &[Step]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for step in steps {
        match step {
            Step::Request(header) => {
                bytes.extend(header.encode());
                if header.command == cmd::WRITE && header.len < LONGEST_SENT {
                    bytes.resize(bytes.len() + header.len as usize, 0xa5);
                }
            }
            Step::Junk(junk) => bytes.extend(junk),
        }
    }
    bytes
}

struct World {
    session: Session,
    input: Vec<u8>,
    at: usize,
    open: Vec<ClientRequest>,
    sending: Option<Batch>,
    handed: usize,
    answered: usize,
}

impl World {
    /// Takes requests; checks them and the bounds.
    fn take_requests(&mut self) -> Result<(), TestCaseError> {
        while let Some(r) = self.session.next_request() {
            let payload = r.bufs.iter().map(|b| b.len() as u64).sum::<u64>();
            let want = if matches!(r.what, What::Io(Kind::Write { .. })) { r.len } else { 0 };
            prop_assert_eq!(payload, want);
            // A longer write has consumed what followed it as its payload.
            let whole = r.bufs.iter().all(|b| b.iter().all(|byte| *byte == 0xa5));
            prop_assert!(whole || r.len >= LONGEST_SENT.into());
            prop_assert!(r.offset + r.len <= BYTES && (r.offset | r.len) % 512 == 0);
            self.handed += 1;
            self.open.push(r);
        }
        prop_assert!(self.session.in_flight() <= LIMITS.requests);
        let moves =
            |r: &&ClientRequest| matches!(r.what, What::Io(Kind::Read | Kind::Write { .. }));
        let lens = self.open.iter().filter(moves);
        let lens: Vec<u64> = lens.map(|r| r.len).collect();
        prop_assert!(lens.len() < 2 || lens.iter().sum::<u64>() <= LIMITS.payload_bytes);
        Ok(())
    }

    fn answer(&mut self, which: usize, errno: Option<Errno>) {
        let request = self.open.swap_remove(which % self.open.len());
        self.answered += 1;
        let data = match request.what {
            What::Io(Kind::Read) | What::PassiveRead => vec![Buf::with_len(request.len as usize)],
            _ => request.bufs,
        };
        self.session.reply(request.ticket, errno.map_or(Ok(()), Err), data);
    }

    fn receive(&mut self, most: usize) {
        let Some((mut buf, from)) = self.session.take_recv() else { return };
        let n = most.min(buf.len() - from).min(self.input.len() - self.at);
        buf[from..from + n].copy_from_slice(&self.input[self.at..self.at + n]);
        self.at += n;
        self.session.received(buf, from, n);
    }
}

fn live(mut w: World, dice: Vec<u8>) -> Result<(), TestCaseError> {
    let mut dice = dice.into_iter().map(usize::from).cycle();
    let mut roll = move || dice.next().unwrap();
    let mut rounds = 0;
    while !matches!(w.session.state(), State::Closed(_)) {
        rounds += 1;
        prop_assert!(rounds < 1_000_000, "stuck in {:?}", w.session.state());
        w.take_requests()?;
        match (roll() + rounds) % 4 {
            0 if !w.open.is_empty() => {
                let (which, fate) = (roll(), roll());
                w.answer(which, (fate < 32).then_some(Errno(fate as i32)));
            }
            1 => {
                if w.sending.take().is_some() {
                    w.session.sent(SendBatch::default(), Ok(()));
                }
            }
            2 if w.sending.is_none() => w.sending = take_send(&mut w.session),
            _ => {
                let most = 1 + roll() * roll();
                w.receive(most);
            }
        }
    }
    let cut = matches!(w.session.state(), State::Closed(Why::BadMagic(_) | Why::Oversize(_)));
    prop_assert!(cut || (w.open.is_empty() && w.handed == w.answered));
    while !w.open.is_empty() {
        w.answer(0, None);
    }
    if w.sending.take().is_some() {
        w.session.sent(SendBatch::default(), Err(Errno(32)));
    }
    prop_assert!(w.session.in_flight() == 0 && !w.session.memory_out());
    prop_assert!(w.session.take_recv().is_none() && take_send(&mut w.session).is_none());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests_and_junk(
        steps in steps(),
        dice in vec(any::<u8>(), 64..512),
        structured in any::<bool>(),
    ) {
        let export = Export::new("", BYTES);
        let session = Session::new(&export, structured, 64 << 10, LIMITS);
        let (open, input) = (Vec::new(), stream_of(&steps));
        live(World { session, input, at: 0, open, sending: None, handed: 0, answered: 0 }, dice)?;
    }

    #[test]
    fn any_bytes(input in vec(any::<u8>(), 0..4096), dice in vec(any::<u8>(), 64)) {
        let export = Export::new("", BYTES);
        let session = Session::new(&export, true, 4096, LIMITS);
        let open = Vec::new();
        live(World { session, input, at: 0, open, sending: None, handed: 0, answered: 0 }, dice)?;
    }
}
