//! Regular files and block devices.
//!
//! # Theory
//! Both are read and written at explicit offsets, past the page cache where that can be ([`crate::direct`]); `flush` is
//! `fdatasync`, which for a block device empties the drive's own cache too. A discard punches a hole, which Linux passes on to
//! a device as an unmap. A user that reads or writes a disk, and does not merely look at it, has it claimed ([`crate::claim`]).
//!
//! A file can be emptied while it is written: writes succeed, as they make it longer again, and what was in it is gone. So nothing is called durable
//! before the file was seen to be as long as it was (an `fstat`: a hundredth of what the durable write takes), and a file that was cut once takes no more.
//! (Only the last bytes of the last label could make it as long again, and before labels there is a flush.)

use crate::behind::drive_of;
use crate::claim::{Claim, in_use};
use crate::direct::Direct;
use crate::room::Room;
use crate::{Disk, DiskKind, check_range, failed_flush};
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate, fstat, seek};
use rustix::io::{ReadWriteFlags, pwritev2};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Most buffers of one vectored write.
pub(crate) const VECTORS_MAX: usize = 1024;

/// What is prepared with one write.
const PREPARED_BYTES: usize = 4 << 20;

/// How often a claim is tried for again, and how long apart: a second in all, never at quite the same moments as another user.
const CLAIM_TRIES: u32 = 50;
const CLAIM_PAUSE_MS: u64 = 15;

/// What a disk is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To look at it, whatever users it has: no claim.
    Inspect,
    /// To read a pool that nobody may write meanwhile.
    Read,
    /// To write, alone.
    Write,
}

/// A regular file or a block device.
#[derive(Debug)]
pub struct FileDisk {
    file: File,
    name: String,
    kind: DiskKind,
    size: AtomicU64,
    sector: u64,
    physical_sector: u64,
    has_write_cache: bool,
    /// See [`Disk::drive`].
    drive: u64,
    /// The file was found to be shorter than it was.
    is_cut: AtomicBool,
    /// Its requests go past the page cache.
    direct: Option<Direct>,
    /// Of a file that is written past the cache.
    room: Option<Room>,
    _claim: Claim,
}

impl FileDisk {
    /// Opens the file or device at `path`. `ResourceBusy` if somebody else has it, by whatever name.
    pub fn open(path: &Path, access: Access) -> io::Result<FileDisk> {
        FileDisk::open_part(path, 0..u64::MAX, access)
    }

    /// As [`FileDisk::open`], where of a file only a range is used: others may have the rest.
    pub(crate) fn open_part(path: &Path, range: Range<u64>, access: Access) -> io::Result<FileDisk> {
        // A child between fork and exec still has our descriptors, and so holds the claim of a disk that was closed a moment
        // ago; others may just be looking whether they can have it. A user that finds a disk in use looks again before it believes that.
        let mut tries = 0;
        loop {
            match FileDisk::try_open(path, &range, access) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && tries < CLAIM_TRIES => {
                    tries += 1;
                    let own_pace = u64::from(std::process::id() % 11);
                    std::thread::sleep(std::time::Duration::from_millis(CLAIM_PAUSE_MS + own_pace));
                }
                result => return result,
            }
        }
    }

    fn try_open(path: &Path, range: &Range<u64>, access: Access) -> io::Result<FileDisk> {
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::Write);
        let kind = kind_of(&std::fs::metadata(path)?)?;
        let (mut file, is_direct) = match kind {
            DiskKind::File => (options.open(path)?, false),
            DiskKind::Block => open_device(&mut options, path, if access == Access::Write { libc::O_EXCL } else { 0 })?,
        };
        // The path may name another thing by now: what counts is what was opened.
        if kind_of(&file.metadata()?)? != kind {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "the file was replaced while it was opened"));
        }
        // Before anything of it is read.
        let claim = Claim::new(&file, path, range.clone(), access)?;
        // The reader decides what to read ahead: the kernel would read twice as much as is asked for at random places.
        let _ = fadvise(&file, 0, None, Advice::Random);
        let size = file.seek(SeekFrom::End(0))?;
        let (sector, physical_sector) = match kind {
            DiskKind::File => (512, 512),
            DiskKind::Block => sector_sizes(&file)?,
        };
        let name = path.to_string_lossy().into_owned();
        let direct = match kind {
            DiskKind::Block => is_direct.then(|| Direct::new(&file, sector)),
            // A caller that only looks reads what others have just written, and little of it twice.
            DiskKind::File if access == Access::Inspect => None,
            DiskKind::File => Direct::of_file(&file, sector),
        };
        let has_write_cache = !is_direct || has_write_cache(&file);
        // Half a sector at the end cannot be written.
        let size = direct.as_ref().map_or(size, |direct| size - size % direct.sector());
        let room = (kind == DiskKind::File && direct.is_some() && access == Access::Write).then(|| Room::new(size));
        let is_cut = AtomicBool::new(false);
        let drive = drive_of(&file.metadata()?);
        let size = AtomicU64::new(size);
        Ok(FileDisk { file, name, kind, size, sector, physical_sector, has_write_cache, drive, is_cut, direct, room, _claim: claim })
    }

    /// Fails if the file was made shorter since it was opened.
    fn check_length(&self) -> io::Result<()> {
        if self.kind == DiskKind::File && !self.is_cut.load(Ordering::Relaxed) {
            let length = fstat(&self.file)?.st_size.unsigned_abs();
            self.is_cut.store(length < self.size_bytes(), Ordering::Relaxed);
        }
        self.check_not_cut()
    }

    fn check_not_cut(&self) -> io::Result<()> {
        match self.is_cut.load(Ordering::Relaxed) {
            true => Err(io::Error::other(format!("the file has been made shorter than its {} bytes while it was in use: what was in it is lost", self.size_bytes()))),
            false => Ok(()),
        }
    }

    /// So many bytes will be written at `offset`.
    fn ask_for_room(&self, offset: u64, length: usize) {
        if let Some(room) = &self.room {
            room.ask(&self.file, offset, length);
        }
    }

    /// Do its requests go past the page cache?
    #[cfg(test)]
    pub(crate) fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Creates a file of `size` bytes, all a hole, and opens it for writing. The file must not be there.
    pub fn create(path: &Path, size: u64) -> io::Result<FileDisk> {
        File::create_new(path)?.set_len(size)?;
        FileDisk::open(path, Access::Write)
    }
}

/// Past the page cache, if the device's driver lets one.
fn open_device(options: &mut OpenOptions, path: &Path, flags: i32) -> io::Result<(File, bool)> {
    let opened = match options.custom_flags(flags | libc::O_DIRECT).open(path) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            options.custom_flags(flags).open(path).map(|file| (file, false))
        }
        opened => opened.map(|file| (file, true)),
    };
    opened.map_err(in_use)
}

/// What the kernel says of the queue of a block device.
fn setting(device: &File, name: &str) -> Option<String> {
    let number = device.metadata().ok()?.rdev();
    let place = format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    // A partition has the queue of its disk.
    let settings = ["queue", "../queue"].map(|queue| std::fs::read_to_string(format!("{place}/{queue}/{name}")));
    settings.into_iter().flatten().next().map(|setting| setting.trim().to_owned())
}

/// Does the kernel send flushes to a block device? Where it does not say: yes.
fn has_write_cache(device: &File) -> bool {
    setting(device, "write_cache").is_none_or(|setting| setting != "write through")
}

/// `BLKDISCARD`. To punch a hole would ask the device for zeros, which not all have.
#[expect(unsafe_code, reason = "rustix has not this request")]
fn discard_of_device(device: &File, offset: u64, length: u64) -> io::Result<()> {
    const BLKDISCARD: libc::c_ulong = 0x1277;
    let range = [offset, length];
    // SAFETY: the request reads two numbers of 64 bits, and keeps no pointer to them; the descriptor is open.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
    match io::Error::last_os_error() {
        _ if done == 0 => Ok(()),
        error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        error => Err(error),
    }
}

fn kind_of(metadata: &std::fs::Metadata) -> io::Result<DiskKind> {
    let kind = metadata.file_type();
    if kind.is_file() {
        Ok(DiskKind::File)
    } else if kind.is_block_device() {
        Ok(DiskKind::Block)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a regular file nor a block device"))
    }
}

fn sector_sizes(file: &File) -> io::Result<(u64, u64)> {
    let logical = u64::from(rustix::fs::ioctl_blksszget(file)?);
    let physical = u64::from(rustix::fs::ioctl_blkpbszget(file)?);
    Ok((logical, physical.max(logical)))
}

/// What is left to do when a write that was to be durable at once is done (`false`: in part). Where the kernel or the file system does not know the flag: all of
/// it, in two steps. Not after an error: the kernel may have told us what became of somebody else's write, and would not say so again.
fn settle(at_once: io::Result<bool>, write: impl FnOnce() -> io::Result<()>, flush: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let failure = match at_once {
        Ok(true) => return Ok(()),
        Ok(false) => None,
        Err(error) => Some(error).filter(|error| !matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS | libc::EINTR))),
    };
    // What cannot be written was not written before either: then nothing was flushed.
    write()?;
    match failure {
        Some(error) => Err(failed_flush(error)),
        None => flush().map_err(failed_flush),
    }
}

impl Disk for FileDisk {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        check_range(offset, buf.len(), self.size_bytes())?;
        match &self.direct {
            Some(direct) => direct.read(&self.file, buf, offset),
            None => self.file.read_exact_at(buf, offset),
        }
    }

    fn read_vectored_at(&self, bufs: &mut [&mut [u8]], mut offset: u64) -> io::Result<()> {
        check_range(offset, bufs.iter().map(|b| b.len()).sum(), self.size_bytes())?;
        if let Some(direct) = &self.direct {
            return direct.read_vectored(&self.file, bufs, offset);
        }
        for buf in bufs {
            self.file.read_exact_at(buf, offset)?;
            offset += buf.len() as u64;
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        check_range(offset, buf.len(), self.size_bytes())?;
        self.check_not_cut()?;
        self.ask_for_room(offset, buf.len());
        match &self.direct {
            Some(direct) => direct.write(&self.file, &[buf], offset, ReadWriteFlags::empty()),
            None => self.file.write_all_at(buf, offset),
        }
    }

    fn write_vectored_at(&self, bufs: &[&[u8]], mut offset: u64) -> io::Result<()> {
        let total = bufs.iter().map(|b| b.len()).sum();
        check_range(offset, total, self.size_bytes())?;
        self.check_not_cut()?;
        self.ask_for_room(offset, total);
        if let Some(direct) = &self.direct {
            return direct.write(&self.file, bufs, offset, ReadWriteFlags::empty());
        }
        for group in bufs.chunks(VECTORS_MAX) {
            let slices: Vec<io::IoSlice<'_>> = group.iter().map(|b| io::IoSlice::new(b)).collect();
            let length: usize = group.iter().map(|b| b.len()).sum();
            let mut written = match rustix::io::pwritev(&self.file, &slices, offset) {
                Ok(written) => written,
                Err(rustix::io::Errno::INTR) => 0,
                Err(errno) => return Err(errno.into()),
            };
            // A short write is rare: finish it buffer by buffer.
            if written < length {
                let mut at = offset;
                for buf in group {
                    let done = written.min(buf.len());
                    written -= done;
                    self.file.write_all_at(&buf[done..], at + done as u64)?;
                    at += buf.len() as u64;
                }
            }
            offset += length as u64;
        }
        Ok(())
    }

    /// One system call, and the file's other dirty pages are left alone.
    fn write_durable_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        let total: usize = bufs.iter().map(|b| b.len()).sum();
        check_range(offset, total, self.size_bytes())?;
        self.check_not_cut()?;
        let at_once = match &self.direct {
            Some(direct) => direct.write(&self.file, bufs, offset, ReadWriteFlags::DSYNC).map(|()| true),
            None => {
                let slices: Vec<io::IoSlice<'_>> = bufs.iter().map(|b| io::IoSlice::new(b)).collect();
                pwritev2(&self.file, &slices, offset, ReadWriteFlags::DSYNC).map(|written| written == total).map_err(io::Error::from)
            }
        };
        settle(at_once, || self.write_vectored_at(bufs, offset), || self.flush())?;
        self.check_length().map_err(failed_flush)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()?;
        self.check_length()
    }

    fn has_write_cache(&self) -> bool {
        self.has_write_cache
    }

    fn gains_by_preparing(&self) -> bool {
        self.kind == DiskKind::File
    }

    /// What the file system has not given room to yet, or has never written, is written with zeros.
    fn prepare(&self, offset: u64, length: u64) -> io::Result<()> {
        check_range(offset, usize::try_from(length).unwrap_or(usize::MAX), self.size_bytes())?;
        let (mut at, end) = (offset, offset + length);
        while at < end {
            // Where the next hole begins, and where it ends; places that are reserved count as holes until they are written.
            let hole = seek(&self.file, rustix::fs::SeekFrom::Hole(at))?.max(at);
            let data = match seek(&self.file, rustix::fs::SeekFrom::Data(hole)) {
                Err(rustix::io::Errno::NXIO) => end,
                found => found?.min(end),
            };
            at = hole;
            while at < data {
                let zeros = &vec![0; ((data - at) as usize).min(PREPARED_BYTES)];
                self.write_durable_at(&[zeros], at)?;
                at += zeros.len() as u64;
            }
        }
        Ok(())
    }

    /// A file system that makes no holes says so when it is asked for one.
    fn can_discard(&self) -> bool {
        self.kind == DiskKind::File || setting(&self.file, "discard_max_bytes").is_some_and(|most| most != "0")
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        check_range(offset, usize::try_from(length).unwrap_or(usize::MAX), self.size_bytes())?;
        self.check_not_cut()?;
        if self.kind == DiskKind::Block {
            return discard_of_device(&self.file, offset, length);
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, offset, length) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn size_bytes(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    fn look_at_size(&self) {
        let mut file = &self.file;
        if let Ok(size) = file.seek(SeekFrom::End(0)) {
            let whole = self.direct.as_ref().map_or(size, |direct| size - size % direct.sector());
            self.size.fetch_max(whole, Ordering::Relaxed);
        }
    }

    fn sector_bytes(&self) -> u64 {
        self.sector
    }

    fn physical_sector_bytes(&self) -> u64 {
        self.physical_sector
    }

    fn drive(&self) -> Option<u64> {
        Some(self.drive)
    }

    fn kind(&self) -> DiskKind {
        self.kind
    }

    fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("d0");
        let disk = FileDisk::create(&path, 1 << 20).unwrap();
        assert_eq!((disk.size_bytes(), disk.sector_bytes(), disk.kind()), (1 << 20, 512, DiskKind::File));
        disk.write_at(&[7; 4096], 8192).unwrap();
        let pieces: Vec<Vec<u8>> = (0..1500u32).map(|i| vec![i as u8; 1 + i as usize % 7]).collect();
        let slices: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        disk.write_vectored_at(&slices, 100_001).unwrap();
        disk.flush().unwrap();
        let mut back = vec![0; 4096];
        disk.read_at(&mut back, 8192).unwrap();
        assert_eq!(back, [7; 4096]);
        let all = pieces.concat();
        let mut back = vec![0; all.len()];
        disk.read_at(&mut back, 100_001).unwrap();
        assert_eq!(back, all);
        disk.discard(8192, 4096).unwrap();
    }

    #[test]
    fn holes_are_prepared_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let disk = FileDisk::create(&directory.path().join("d0"), 16 << 20).unwrap();
        disk.write_durable_at(&[&[7; 8192]], 1 << 20).unwrap();
        disk.prepare(512 << 10, 6 << 20).unwrap();
        let place = |from| seek(&disk.file, from).unwrap();
        assert_eq!(place(rustix::fs::SeekFrom::Data(0)), 512 << 10);
        assert_eq!(place(rustix::fs::SeekFrom::Hole(512 << 10)), (512 << 10) + (6 << 20));
        let mut back = vec![1; 6 << 20];
        disk.read_at(&mut back, 512 << 10).unwrap();
        let written = (512 << 10)..(512 << 10) + 8192;
        assert!(back.iter().enumerate().all(|(at, byte)| *byte == if written.contains(&at) { 7 } else { 0 }));
        disk.prepare(10 << 20, 0).unwrap();
        assert_eq!(disk.prepare(15 << 20, 2 << 20).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    /// The kernel reports once, to the first caller that asks, what it could not write. A durable write that was told so was made again, and flushed, and
    /// nobody ever knew: what it had been told of was the data of a group.
    #[test]
    fn an_error_of_a_durable_write_is_passed_on() {
        let errno = io::Error::from_raw_os_error;
        let done = || Ok(());
        assert!(settle(Ok(true), || unreachable!(), || unreachable!()).is_ok());
        assert!(settle(Ok(false), done, done).is_ok());
        assert!(settle(Err(errno(libc::EOPNOTSUPP)), done, done).is_ok());
        for number in [libc::EIO, libc::ENOSPC, libc::EDQUOT] {
            let error = settle(Err(errno(number)), done, || unreachable!("it would say that all is well")).unwrap_err();
            assert!(crate::is_failed_flush(&error), "{error}");
            // It was the write that failed.
            let error = settle(Err(errno(number)), || Err(errno(number)), || unreachable!()).unwrap_err();
            assert!(!crate::is_failed_flush(&error), "{error}");
        }
        assert!(crate::is_failed_flush(&settle(Ok(false), done, || Err(errno(libc::EIO))).unwrap_err()));
    }

    #[test]
    fn past_the_end_is_an_error_and_the_file_does_not_grow() {
        let directory = tempfile::tempdir().unwrap();
        let disk = FileDisk::create(&directory.path().join("d0"), 8192).unwrap();
        let end = io::ErrorKind::UnexpectedEof;
        assert_eq!(disk.read_at(&mut [0; 2], 8191).unwrap_err().kind(), end);
        assert_eq!(disk.write_at(&[0; 2], 8191).unwrap_err().kind(), end);
        assert_eq!(disk.write_vectored_at(&[&[0], &[0]], 8191).unwrap_err().kind(), end);
        assert_eq!(disk.read_at(&mut [0; 2], u64::MAX).unwrap_err().kind(), end);
        assert_eq!(disk.file.metadata().unwrap().len(), 8192);
    }

    /// A file that was emptied while it was in use took every write, made longer by each, and said that all of it is durable: so did the log of a pool, and
    /// what had been acknowledged before was lost with the next crash.
    #[test]
    fn a_file_that_was_cut_makes_nothing_durable_any_more() {
        for at_once in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("d0");
            let disk = FileDisk::create(&path, 1 << 20).unwrap();
            disk.write_durable_at(&[&[1; 4096]], 4096).unwrap();
            disk.flush().unwrap();
            OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
            let error = if at_once {
                disk.write_durable_at(&[&[2; 4096]], 8192).unwrap_err()
            } else {
                disk.write_at(&[2; 4096], 8192).unwrap();
                disk.flush().unwrap_err()
            };
            assert!(error.to_string().contains("shorter than its 1048576 bytes"), "{error}");
            assert_eq!(crate::is_failed_flush(&error), at_once);
            // As long as it was again, and still without what was in it.
            OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
            assert!(disk.write_at(&[3; 512], 0).is_err() && disk.flush().is_err());
        }
        // One that grows has lost nothing.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("d0");
        let disk = FileDisk::create(&path, 1 << 20).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(2 << 20).unwrap();
        disk.write_durable_at(&[&[1; 4096]], 4096).unwrap();
        disk.flush().unwrap();
    }

    #[test]
    fn a_writer_is_alone_but_can_be_looked_at() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("d0");
        let writer = FileDisk::create(&path, 8192).unwrap();
        for access in [Access::Read, Access::Write] {
            assert_eq!(FileDisk::open(&path, access).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        }
        FileDisk::open(&path, Access::Inspect).unwrap();
        drop(writer);
        let reader = FileDisk::open(&path, Access::Read).unwrap();
        FileDisk::open(&path, Access::Read).unwrap();
        assert!(FileDisk::open(&path, Access::Write).is_err());
        assert!(reader.write_at(&[1], 0).is_err());
    }

    #[test]
    fn a_directory_is_no_disk() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(
            FileDisk::open(directory.path(), Access::Inspect).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }
}
