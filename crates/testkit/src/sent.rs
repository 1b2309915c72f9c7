// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a session sends, for tests that drive it without a worker.

use std::ops::Range;

use larder_core::buf::Buf;
use larder_front::nbd::session::Session;

/// The buffers of a batch, each with the range to send.
pub type Batch = Vec<(Buf, Range<usize>)>;

/// The next batch, if there is one.
pub fn take_send(session: &mut Session) -> Option<Batch> {
    let mut batch = Batch::new();
    session.take_send_with(|buf, used| batch.push((buf, used))).then_some(batch)
}
