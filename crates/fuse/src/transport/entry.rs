//! An entry of a queue of FUSE over io_uring: memory that the kernel fills with a request, and we with its answer.

use std::io;
use std::mem::transmute;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{IoUring, cqueue, opcode as ring_opcode, squeue, types};
use zerocopy::{FromBytes, IntoBytes};

use crate::transport::buffer::{Buffer, PAGE};
use crate::dispatch::{self, Outcome, Request, SMALL_REPLY};
use crate::protocol::{InHeader, Opcode, OutHeader, RING_COMMIT_AND_FETCH, RING_REGISTER, RingCommand, RingEntry, RingHeader};
use crate::session::{Seat, Shared};
use crate::transport::uring::RingMount;
use crate::{Errno, Result};

pub(crate) type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

/// Offsets in a submission entry.
const SQE_ADDRESS: usize = 16;
const SQE_LEN: usize = 24;
const SQE_COMMAND: usize = 48;
const _: () = assert!(size_of::<libc::iovec>() == 2 * size_of::<u64>());

/// A ring for one thread.
pub(crate) fn new_ring(entries: u32, completions: u32) -> io::Result<Ring> {
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_cqsize(completions).build(entries)
}

/// One entry of one queue of a mount. Its owner answers the request in it, or waits on its ring for the next one.
pub(crate) struct Entry {
    pub(crate) mount: Arc<RingMount>,
    pub(crate) queue: u16,
    /// The header's page, and behind it the payload.
    area: Buffer,
    /// Address and length of both, as two `struct iovec`, which the kernel reads when the entry is registered.
    segments: Box<[u64; 4]>,
    /// Copy of names that arrive in the payload area when the reply goes there too.
    names: Vec<u8>,
    /// Of the payload, as much as a request or an answer used since it was last given back.
    used: usize,
    _seat: Seat,
}

impl Entry {
    pub(crate) fn new(mount: &Arc<RingMount>, queue: u16) -> io::Result<Entry> {
        let payload = (mount.shared.max_write as usize).max(2 * PAGE);
        let area = Buffer::new(PAGE + payload)?;
        let base = area.as_mut_ptr() as u64;
        let segments = Box::new([base, size_of::<RingHeader>() as u64, base + PAGE as u64, (area.len() - PAGE) as u64]);
        Ok(Entry { mount: Arc::clone(mount), queue, area, segments, names: Vec::new(), used: 0, _seat: Seat::take(&mount.shared) })
    }

    /// Offers the entry to the kernel.
    pub(crate) fn registration(&self) -> squeue::Entry128 {
        command(&self.mount.shared, RING_REGISTER, &RingCommand { queue: self.queue, ..RingCommand::default() }, Some(&self.segments))
    }

    /// Hands over the answer, and waits for the next request.
    pub(crate) fn commit(&self, commit_id: u64) -> squeue::Entry128 {
        command(&self.mount.shared, RING_COMMIT_AND_FETCH, &RingCommand { commit_id, queue: self.queue, ..RingCommand::default() }, None)
    }

    /// The kernel may still write into the memory, now and later.
    pub(crate) fn abandon(mut self) {
        self.area.keep_mapped();
    }

    /// Gives the memory behind the answer back to the system. Only while the kernel has not got the entry.
    pub(crate) fn shrink(&mut self) {
        if self.used <= PAGE {
            return;
        }
        let kept = RingHeader::read_from_prefix(&self.area).map_or(0, |(header, _)| header.entry.payload_size as usize);
        self.area.give_back(PAGE + kept.next_multiple_of(PAGE));
        self.used = kept;
        self.names = Vec::new();
    }

    /// Is the request in the entry better served on another CPU?
    pub(crate) fn is_bulk(&self) -> bool {
        let Ok((ring_header, _)) = RingHeader::read_from_prefix(&self.area) else { return false };
        let Ok((header, _)) = InHeader::read_from_prefix(&ring_header.in_out) else { return false };
        Opcode::from_number(header.opcode).is_some_and(|opcode| {
            dispatch::is_bulk(&Request { header: &header, opcode, fixed: ring_header.fixed.get(..opcode.fixed_len()).unwrap_or(&[]), payload: &[] })
        })
    }

    /// Runs the request in the entry and leaves the reply there. Returns the number to commit it by.
    pub(crate) fn answer(&mut self) -> u64 {
        let Ok((ring_header, _)) = RingHeader::read_from_prefix(&self.area) else { return 0 };
        let Ok((header, _)) = InHeader::read_from_prefix(&ring_header.in_out) else { return 0 };
        let (error, len) = match self.run_request(&header, &ring_header) {
            Outcome::Reply(len) => (0, len),
            Outcome::Error(errno) => (errno.raw(), 0),
            Outcome::Silent => (0, 0),
        };
        let mut reply = ring_header;
        let out = OutHeader { len: (size_of::<OutHeader>() + len) as u32, error: -error, unique: header.unique };
        reply.in_out[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
        reply.entry = RingEntry { payload_size: len as u32, ..ring_header.entry };
        self.area[..size_of::<RingHeader>()].copy_from_slice(reply.as_bytes());
        self.used = self.used.max(len).max(ring_header.entry.payload_size as usize);
        ring_header.entry.commit_id
    }

    fn run_request(&mut self, header: &InHeader, ring_header: &RingHeader) -> Outcome {
        let filesystem = &*self.mount.shared.filesystem;
        let len = ring_header.entry.payload_size as usize;
        let area = &mut self.area[PAGE..];
        let result = (|| -> Result<Outcome> {
            let opcode = Opcode::from_number(header.opcode).ok_or(Errno::ENOSYS)?;
            let fixed = ring_header.fixed.get(..opcode.fixed_len()).ok_or(Errno::EINVAL)?;
            let payload = area.get(..len).ok_or(Errno::EINVAL)?;
            if dispatch::is_long_reply(opcode) {
                // Request and reply share the payload area; what came in is short.
                self.names.clear();
                self.names.extend_from_slice(payload);
                let request = Request { header, opcode, fixed, payload: &self.names };
                return Ok(dispatch::handle(filesystem, &request, area));
            }
            let mut out = [0u8; SMALL_REPLY];
            let request = Request { header, opcode, fixed, payload };
            let outcome = dispatch::handle(filesystem, &request, &mut out);
            if let Outcome::Reply(len) = outcome {
                area[..len].copy_from_slice(&out[..len]);
            }
            Ok(outcome)
        })();
        result.unwrap_or_else(Outcome::Error)
    }
}

/// A command for the kernel's side of a mount.
pub(crate) fn command(shared: &Shared, operation: u32, command: &RingCommand, segments: Option<&[u64; 4]>) -> squeue::Entry128 {
    let entry = ring_opcode::UringCmd80::new(types::Fd(shared.device.as_raw_fd()), operation).build();
    // SAFETY: both types are 128 plain bytes (the compiler checks the size) without invalid values.
    let mut bytes: [u8; 128] = unsafe { transmute::<squeue::Entry128, [u8; 128]>(entry) };
    if let Some(segments) = segments {
        bytes[SQE_ADDRESS..SQE_ADDRESS + 8].copy_from_slice((segments.as_ptr() as u64).as_bytes());
        bytes[SQE_LEN..SQE_LEN + 4].copy_from_slice(2u32.as_bytes());
    }
    bytes[SQE_COMMAND..SQE_COMMAND + size_of::<RingCommand>()].copy_from_slice(command.as_bytes());
    // SAFETY: as above; the kernel checks what the fields say.
    unsafe { transmute::<[u8; 128], squeue::Entry128>(bytes) }
}

/// Queues a submission; it is not submitted yet.
pub(crate) fn push(ring: &mut Ring, submission: &squeue::Entry128) -> io::Result<()> {
    // SAFETY: the areas that an entry names are unmapped only after the kernel has given the entry back, or never ([`Entry::abandon`]); the
    // list of segments lives as long as the entry. Other submissions of ours name no memory.
    unsafe { ring.submission().push(submission) }.map_err(|_| io::Error::other("io_uring submission queue full"))
}

/// Has the kernel ended the connection, by what it says of an entry?
pub(crate) fn is_end(result: i32) -> bool {
    [-libc::ENOTCONN, -libc::ECANCELED, -libc::ECONNABORTED].contains(&result)
}

/// An error that passes by itself.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    [Some(libc::EINTR), Some(libc::EAGAIN), Some(libc::EBUSY), Some(libc::ETIME)].contains(&error.raw_os_error())
}

/// Submits what there is to submit, and waits for one completion; its result.
pub(crate) fn wait(ring: &mut Ring) -> io::Result<i32> {
    loop {
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
        if let Some(completion) = ring.completion().next() {
            return Ok(completion.result());
        }
    }
}
