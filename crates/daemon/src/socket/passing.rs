//! Descriptors that go along with a message of the control socket.
//!
//! # Theory
//! A descriptor is sent with the first byte of a message, and arrives with it. One message has at most one; the kernel closes what is
//! more.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg, sendmsg};

/// Reads messages, and keeps the descriptor that came with the last one.
pub(crate) struct Receiving<'a> {
    pub(crate) stream: &'a UnixStream,
    pub(crate) descriptor: Option<OwnedFd>,
}

impl Read for Receiving<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(self.stream, &mut [IoSliceMut::new(bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptor = descriptors.last().or(self.descriptor.take());
            }
        }
        Ok(received.bytes)
    }
}

/// Writes messages, the first byte with a descriptor.
pub(crate) struct Sending<'a> {
    pub(crate) stream: &'a UnixStream,
    pub(crate) descriptor: Option<BorrowedFd<'a>>,
}

impl Write for Sending<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(descriptor) = self.descriptor else { return (&mut &*self.stream).write(bytes) };
        let descriptors = [descriptor];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::Error::new(ErrorKind::InvalidInput, "a descriptor does not fit into a message"));
        }
        let sent = sendmsg(self.stream, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
        self.descriptor = None;
        Ok(sent)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
