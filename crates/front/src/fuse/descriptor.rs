// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages with a descriptor, over a unix socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Sends bytes, with or without a descriptor.
///
/// # Errors
/// Those of the socket.
pub fn send(socket: impl AsFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map_or(vec![], |fd| vec![fd]);
    if !fds.is_empty() {
        // There is space for one.
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let parts = [IoSlice::new(bytes)];
    retry_on_intr(|| sendmsg(&socket, &parts, &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives bytes, and the descriptor that comes with them. Returns their number: 0 at the end.
///
/// # Errors
/// Those of the socket; a message with more bytes or descriptors than there is room for.
pub fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = retry_on_intr(|| recvmsg(&socket, &mut parts, &mut control, flags))?;
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
    }
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok((received.bytes, fd))
}
