//! Several writes at the same time, by one thread.
//!
//! # Theory
//! Whoever has several writes to make, as the sides of a mirror, gives them to the kernel with one call, through an
//! io_uring of the thread's own, and waits for all. What cannot go that way, and all where there is no io_uring, is made one after the
//! other by plain calls; so is what came back in part or was to be tried again: all of it again, which is the same bytes at the same place.
//!
//! Measured on files on a virtual disk, with two busy processors, against plain calls one after the other: sides of 1 MiB 0.5 to 0.8 times
//! as fast, of 128 KiB 0.5 to 1.05, of 4 KiB 1.1 to 1.2, three copies of 4 KiB 0.4 to 0.6. So it is a tunable, and off (`tarn_vdev_io_uring`).

#![allow(unsafe_code)] // each block says why

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

use crate::Disk;

/// Writes under way of one thread.
const ENTRIES: u32 = 32;
/// How long to wait after the kernel refused to be waited in.
const PAUSE: Duration = Duration::from_millis(1);

/// One of several writes.
#[derive(Clone, Copy)]
pub struct BatchWrite<'a> {
    /// Where to.
    pub disk: &'a dyn Disk,
    /// The place.
    pub offset: u64,
    /// The bytes, one buffer behind the other.
    pub bufs: &'a [&'a [u8]],
}

impl BatchWrite<'_> {
    fn length(&self) -> usize {
        self.bufs.iter().map(|buf| buf.len()).sum()
    }

    fn plain(&self) -> io::Result<()> {
        self.disk.write_vectored_at(self.bufs, self.offset)
    }

    /// What the kernel answered, if it was asked, decides.
    fn settle(&self, answer: Option<i32>) -> io::Result<()> {
        match answer {
            Some(written) if usize::try_from(written).is_ok_and(|written| written == self.length()) => Ok(()),
            Some(error) if error < 0 && !matches!(-error, libc::EAGAIN | libc::EINTR | libc::EINVAL | libc::EOPNOTSUPP | libc::ECANCELED) => {
                Err(io::Error::from_raw_os_error(-error))
            }
            _ => self.plain(),
        }
    }
}

/// The io_uring of a thread.
enum Ring {
    Untried,
    /// There is none.
    None,
    Some(Box<IoUring>),
}

thread_local! {
    static RING: RefCell<Ring> = const { RefCell::new(Ring::Untried) };
}

/// Makes all writes, and returns when all are done, each with its result. With `ring` through io_uring, where that can be.
pub fn write_batch(writes: &[BatchWrite<'_>], ring: bool) -> Vec<io::Result<()>> {
    if writes.len() < 2 || !ring {
        return writes.iter().map(BatchWrite::plain).collect();
    }
    let targets: Vec<_> = writes.iter().map(|write| write.disk.direct_target(write.bufs, write.offset)).collect();
    let mut results = Vec::with_capacity(writes.len());
    for (writes, targets) in writes.chunks(ENTRIES as usize).zip(targets.chunks(ENTRIES as usize)) {
        let answers = RING.with_borrow_mut(|ring| ring.write(writes, targets));
        results.extend(writes.iter().zip(answers).map(|(write, answer)| write.settle(answer)));
    }
    results
}

impl Ring {
    /// What the kernel answers to those that have a target. None: it was not asked, or refused.
    fn write(&mut self, writes: &[BatchWrite<'_>], targets: &[Option<(BorrowedFd<'_>, u64)>]) -> Vec<Option<i32>> {
        let mut answers = vec![None; writes.len()];
        if targets.iter().flatten().count() < 2 {
            return answers;
        }
        if let Ring::Untried = self {
            let made = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(ENTRIES);
            *self = made.map_or(Ring::None, |ring| Ring::Some(Box::new(ring)));
        }
        let Ring::Some(ring) = self else { return answers };
        if submit_all(ring, writes, targets, &mut answers).is_err() {
            *self = Ring::None;
        }
        answers
    }
}

/// Returns when nothing is under way any more. An error: the ring is of no use.
fn submit_all(
    ring: &mut IoUring,
    writes: &[BatchWrite<'_>],
    targets: &[Option<(BorrowedFd<'_>, u64)>],
    answers: &mut [Option<i32>],
) -> io::Result<()> {
    let vectors: Vec<Vec<libc::iovec>> = writes.iter().map(|write| write.bufs.iter().map(|buf| vector(buf)).collect()).collect();
    let mut pushed = 0;
    for (index, (vectors, target)) in vectors.iter().zip(targets).enumerate() {
        let Some((file, offset)) = target else { continue };
        let entry = opcode::Writev::new(types::Fd(file.as_raw_fd()), vectors.as_ptr(), vectors.len() as u32).offset(*offset);
        // SAFETY: the vectors, and the bytes that they name, stay as they are until this function returns, which is when every entry that the
        // kernel took has been answered (below), or none was taken; the file is borrowed as long. Nothing in between panics.
        if unsafe { ring.submission().push(&entry.build().user_data(index as u64)) }.is_ok() {
            pushed += 1;
        }
    }
    let mut answered = 0;
    while answered < pushed {
        let waited = ring.submit_and_wait(1);
        for completion in ring.completion() {
            if let Some(answer) = answers.get_mut(completion.user_data() as usize) {
                *answer = Some(completion.result());
            }
            answered += 1;
        }
        if let Err(error) = waited {
            // What the kernel has not taken it will never see: the ring is dropped, and with it these entries.
            let taken = pushed - ring.submission().len();
            if answered == taken && !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) {
                return Err(error);
            }
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

fn vector(buf: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: buf.len() }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{DiskKind, FileDisk, MemDisk};

    /// Notes plain writes.
    struct Plain(MemDisk, Mutex<usize>);

    impl Disk for Plain {
        fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
            self.0.read_at(buf, offset)
        }

        fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
            *self.1.lock().unwrap() += 1;
            self.0.write_at(buf, offset)
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }

        fn discard(&self, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }

        fn size_bytes(&self) -> u64 {
            self.0.size_bytes()
        }

        fn sector_bytes(&self) -> u64 {
            512
        }

        fn kind(&self) -> DiskKind {
            DiskKind::File
        }

        fn name(&self) -> &str {
            "plain"
        }
    }

    /// A short write, one that is to be tried again, one that the kernel does not know, and none at all: by a plain call. An error is one.
    #[test]
    fn what_the_kernel_does_not_do_is_done() {
        let disk = Plain(MemDisk::new("d", 1 << 20), Mutex::new(0));
        let bytes = [7; 1024];
        let write = BatchWrite { disk: &disk, offset: 0, bufs: &[&bytes] };
        for (answer, plain) in [(Some(1024), 0), (Some(512), 1), (Some(0), 1), (Some(-libc::EAGAIN), 1), (Some(-libc::EINTR), 1), (Some(-libc::EINVAL), 1), (None, 1)] {
            *disk.1.lock().unwrap() = 0;
            write.settle(answer).unwrap();
            assert_eq!(*disk.1.lock().unwrap(), plain, "{answer:?}");
        }
        *disk.1.lock().unwrap() = 0;
        for errno in [libc::EIO, libc::ENOSPC, libc::EBADF] {
            assert_eq!(write.settle(Some(-errno)).unwrap_err().raw_os_error(), Some(errno));
        }
        assert_eq!(*disk.1.lock().unwrap(), 0);
    }

    /// More than a ring has entries, aligned and not, to two files and to memory, with and without a ring.
    #[test]
    fn all_are_written_however_many_there_are() {
        let scratch = tempfile::tempdir().unwrap();
        for ring in [true, false] {
            let files = [0, 1].map(|number| FileDisk::create(&scratch.path().join(format!("{ring}{number}")), 1 << 20).unwrap());
            let memory = MemDisk::new("d", 1 << 20);
            let disks: [&dyn Disk; 3] = [&files[0], &files[1], &memory];
            let blocks: Vec<Vec<u8>> = (0..100_u8).map(|number| vec![number + 1; 4096 + 4096]).collect();
            let aligned: Vec<&[u8]> = blocks.iter().map(|block| &block[block.as_ptr().align_offset(4096)..][..4096]).collect();
            let skewed: Vec<&[u8]> = blocks.iter().map(|block| &block[1..][..4096]).collect();
            let bufs: Vec<[&[u8]; 2]> = (0..100).map(|at| [aligned[at], if at % 5 == 0 { skewed[at] } else { aligned[at] }]).collect();
            let write = |at: usize| BatchWrite { disk: disks[at % 3], offset: at as u64 * 8192, bufs: &bufs[at] };
            let writes: Vec<BatchWrite<'_>> = (0..100).map(write).collect();
            assert!(write_batch(&writes, ring).into_iter().all(|done| done.is_ok()));
            for (at, write) in writes.iter().enumerate() {
                let mut back = [0; 8192];
                write.disk.read_at(&mut back, write.offset).unwrap();
                assert_eq!(back, [at as u8 + 1; 8192], "write {at}");
            }
            // One that cannot be made does not keep others from it.
            let past = BatchWrite { offset: 1 << 20, ..writes[0] };
            let done = write_batch(&[writes[3], past, writes[4]], ring);
            assert_eq!(done.iter().map(|done| done.is_ok()).collect::<Vec<_>>(), [true, false, true]);
        }
    }

    /// What the kernel refuses is an error of that write alone, and the ring goes on.
    #[test]
    fn an_error_of_one_is_not_that_of_others() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("d0");
        let written = std::fs::File::create(&path).unwrap();
        written.set_len(1 << 20).unwrap();
        let file = std::fs::OpenOptions::new().read(true).open(&path).unwrap();
        let bytes = [5; 4096];
        let disk = MemDisk::new("d", 1 << 20);
        let bufs: [&[u8]; 1] = [&bytes];
        let writes = [BatchWrite { disk: &disk, offset: 0, bufs: &bufs }; 3];
        use std::os::fd::AsFd;
        let targets = [Some((written.as_fd(), 0)), Some((file.as_fd(), 8192)), Some((written.as_fd(), 4096))];
        let mut ring = Ring::Untried;
        for _ in 0..2 {
            let answers = ring.write(&writes, &targets);
            if let Ring::None = ring {
                return;
            }
            assert_eq!(answers, [Some(4096), Some(-libc::EBADF), Some(4096)]);
        }
        assert_eq!(Ring::None.write(&writes, &targets), [None; 3]);
    }
}
