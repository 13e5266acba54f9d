//! Claims: a user of a disk says so to the kernel before it reads a byte, in every way that another user could notice.
//!
//! # Theory
//! A block device is opened `O_EXCL`, which keeps out mounts, swap, the device mapper and all else that does so. That is no claim on what lies below a loop device,
//! so on each file down there, and on a file that is itself the disk, a lock is taken: on the bytes that are used, so that parts of an image can
//! have different users, by an open file description (`F_OFD_SETLK`; an emulator locks its images so, too), and by `flock`
//! on the whole file, shared by those who use a part. All of these end with the process, however it ends.
//!
//! A user that has the loop device of a file mounted has no lock on the file: so nobody may hold a loop device over what is claimed. And a claim of a loop
//! device whose file cannot be reached from here (another mount namespace, a removed name) at least looks whether somebody else has locked it.
//!
//! Readers share. A reader's claim on a block device is a lock on its node, and that nobody has it `O_EXCL` now; a writer asks for that lock too.
//!
//! # Invariants
//! 1. Of two claims on the same bytes, one of them a writer's, at most one succeeds, whatever the names: each takes its own before it looks for the other's.
//! 2. A claim that is refused holds nothing while it waits to try again, so that of two at the same moment one succeeds.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::Access;
use crate::behind::{Base, Extent, Footprint, Machine};

/// What is held beside the disk itself, to be dropped with it.
#[derive(Debug)]
pub(crate) struct Claim {
    below: Vec<File>,
}

/// How a range is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    Shared,
    Alone,
}

fn busy(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(ErrorKind::ResourceBusy, format!("in use by another program{what}"))
}

/// What of it is in use, where that is not the disk itself.
fn named(what: &str, path: &Path) -> String {
    format!(", which has {what} {}", path.display())
}

impl Claim {
    /// Claims a disk that was just opened for what `access` says, or what of it lies in `range`.
    pub(crate) fn new(file: &File, path: &Path, range: Range<u64>, access: Access) -> io::Result<Claim> {
        let mut claim = Claim { below: Vec::new() };
        if access == Access::Inspect {
            return Ok(claim);
        }
        let machine = Machine::default();
        let Footprint(extents) = Footprint::of(&file.metadata()?, range, path);
        let own: Vec<u64> =
            extents.iter().filter_map(|extent| if let Base::Block(number) = extent.base { Some(number) } else { None }).collect();
        for (depth, extent) in extents.iter().enumerate() {
            let hold = if access == Access::Write && extent.exact { Hold::Alone } else { Hold::Shared };
            match extent.base {
                Base::File { .. } if depth == 0 => lock(file, &extent.range, hold).map_err(in_use)?,
                Base::File { .. } => claim.below.extend(lock_backing(extent, hold)?),
                Base::Block(_) if depth == 0 => claim_node(file, &machine, extent, access)?,
                Base::Block(number) if extent.below_loop => claim.below.extend(claim_device(&machine, number, access)?),
                // A partition's disk, a volume's devices: the kernel has claimed them for what is over them.
                Base::Block(_) => {}
            }
            for over in machine.loops_over(extent) {
                if !own.contains(&over) {
                    is_free(&machine, over)
                        .map_err(|error| told(error, named("the loop device over it,", &machine.node(over))))?;
                }
            }
        }
        Ok(claim)
    }
}

/// The kernel's words for it are ours.
fn told(error: io::Error, what: String) -> io::Error {
    match error.kind() {
        ErrorKind::ResourceBusy | ErrorKind::WouldBlock => busy(what),
        _ => error,
    }
}

/// The error of a disk that somebody else has, in our words.
pub(crate) fn in_use(error: io::Error) -> io::Error {
    told(error, String::new())
}

/// Is nobody holding a device exclusively?
fn is_free(machine: &Machine, number: u64) -> io::Result<()> {
    machine.open(number, libc::O_EXCL).map(|_| ())
}

/// The disk is a block device. A writer opened it `O_EXCL`.
fn claim_node(file: &File, machine: &Machine, extent: &Extent, access: Access) -> io::Result<()> {
    lock(file, &(0..u64::MAX), if access == Access::Write { Hold::Alone } else { Hold::Shared }).map_err(in_use)?;
    match extent.base {
        Base::Block(number) if access == Access::Read => is_free(machine, number).map_err(in_use),
        _ => Ok(()),
    }
}

/// A block device below a loop device, of which only this claim keeps others away.
fn claim_device(machine: &Machine, number: u64, access: Access) -> io::Result<Option<File>> {
    let refused = |error| told(error, named("the device behind it,", &machine.node(number)));
    match access {
        Access::Write => machine.open(number, libc::O_EXCL).map_err(refused),
        _ => is_free(machine, number).map_err(refused).map(|()| None),
    }
}

/// The file below a loop device.
fn lock_backing(extent: &Extent, hold: Hold) -> io::Result<Option<File>> {
    let what = || named("the file behind it,", &extent.path);
    let is_it = |found: &fs::Metadata| extent.base == Base::File { device: found.dev(), inode: found.ino() };
    let open = |write: bool| {
        // The look before keeps us from opening, on a false track, what does things when it is opened.
        fs::metadata(&extent.path).ok().filter(is_it)?;
        let file = OpenOptions::new().read(true).write(write).custom_flags(libc::O_NONBLOCK).open(&extent.path).ok()?;
        file.metadata().is_ok_and(|found| is_it(&found)).then_some(file)
    };
    let (file, hold) = match (hold == Hold::Alone).then(|| open(true)).flatten() {
        Some(file) => (Some(file), Hold::Alone),
        None => (open(false), hold),
    };
    match file {
        Some(file) => lock(&file, &extent.range, hold).map_err(|error| told(error, what())).map(|()| Some(file)),
        None if is_locked(extent, hold) => Err(busy(what())),
        None => Ok(None),
    }
}

/// Locks a range of a file; `WouldBlock` if somebody else has. All of it: also what it may grow by.
#[expect(unsafe_code, reason = "rustix has not locks of an open file description")]
fn lock(file: &File, range: &Range<u64>, hold: Hold) -> io::Result<()> {
    let is_whole = *range == (0..u64::MAX);
    let whole_file = if hold == Hold::Alone && is_whole {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    flock(file, whole_file)?;
    let length = if range.end == u64::MAX { 0 } else { range.end.saturating_sub(range.start) };
    let clip = |number: u64| libc::off_t::try_from(number).unwrap_or(libc::off_t::MAX);
    for kind in [if hold == Hold::Alone { libc::F_WRLCK } else { libc::F_RDLCK }, libc::F_RDLCK] {
        let wanted = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: clip(range.start),
            l_len: clip(length),
            l_pid: 0,
        };
        // SAFETY: the descriptor is open, and the request reads a `flock` that lives until it returns.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const wanted) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => return Err(ErrorKind::WouldBlock.into()),
            // A file that is open to be read only takes no other lock of this kind.
            Some(libc::EBADF) if kind == libc::F_WRLCK as libc::c_int => {}
            // There are file systems that have not these locks; the other one was taken.
            Some(libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL) => return Ok(()),
            _ => return Err(error),
        }
    }
    Ok(())
}

/// Has somebody locked these bytes, as far as the kernel's list tells?
fn is_locked(extent: &Extent, hold: Hold) -> bool {
    let Base::File { device, inode } = extent.base else { return false };
    let place = format!("{:02x}:{:02x}:{inode}", rustix::fs::major(device), rustix::fs::minor(device));
    let list = fs::read_to_string("/proc/locks").unwrap_or_default();
    list.lines().any(|line| stands_in_the_way(line, &place, &extent.range, hold))
}

fn stands_in_the_way(line: &str, place: &str, range: &Range<u64>, hold: Hold) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, "OFDLCK", _, kind, _, at, first, last] = words[..] else { return false };
    let first: u64 = first.parse().unwrap_or(0);
    let last: u64 = last.parse().unwrap_or(u64::MAX);
    at == place && first < range.end && range.start <= last && (kind == "WRITE" || hold == Hold::Alone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(directory: &Path) -> std::path::PathBuf {
        let path = directory.join("image");
        fs::write(&path, [0; 8192]).unwrap();
        path
    }

    fn open(path: &Path) -> File {
        OpenOptions::new().read(true).write(true).open(path).unwrap()
    }

    fn claim(path: &Path, range: Range<u64>, access: Access) -> io::Result<(File, Claim)> {
        let file = open(path);
        let claim = Claim::new(&file, path, range, access)?;
        Ok((file, claim))
    }

    #[test]
    fn parts_of_a_file_have_users_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let path = image(directory.path());
        let all = 0..u64::MAX;
        let first = claim(&path, 0..4096, Access::Write).unwrap();
        let second = claim(&path, 4096..8192, Access::Write).unwrap();
        for (range, access) in
            [(all.clone(), Access::Write), (all.clone(), Access::Read), (4000..5000, Access::Write), (0..10, Access::Read)]
        {
            assert_eq!(claim(&path, range, access).unwrap_err().kind(), ErrorKind::ResourceBusy);
        }
        drop(first);
        let reader = claim(&path, 0..10, Access::Read).unwrap();
        claim(&path, 0..4096, Access::Read).unwrap();
        assert!(claim(&path, 0..4096, Access::Write).is_err());
        drop((reader, second));
        claim(&path, all, Access::Write).unwrap();
    }

    /// Whose file cannot be reached looks into the kernel's list of locks.
    #[test]
    fn locks_are_seen_from_elsewhere() {
        let directory = tempfile::tempdir().unwrap();
        let path = image(directory.path());
        let found = fs::metadata(&path).unwrap();
        let base = Base::File { device: found.dev(), inode: found.ino() };
        let unreachable = |range: Range<u64>| Extent { base, range, exact: true, below_loop: true, path: "/nowhere".into() };
        assert!(lock_backing(&unreachable(0..8192), Hold::Alone).unwrap().is_none());
        let held = claim(&path, 4096..8192, Access::Write).unwrap();
        assert!(lock_backing(&unreachable(0..4096), Hold::Alone).unwrap().is_none());
        // Not where the file system has other numbers in the list than it tells of files.
        if fs::read_to_string("/proc/locks").is_ok_and(|list| list.contains(&format!(":{} ", found.ino()))) {
            assert_eq!(lock_backing(&unreachable(0..4097), Hold::Shared).unwrap_err().kind(), ErrorKind::ResourceBusy);
        }
        drop(held);
        let line = "12: OFDLCK ADVISORY  READ -1 fe:01:77 4096 8191";
        assert!(stands_in_the_way(line, "fe:01:77", &(0..5000), Hold::Alone));
        assert!(!stands_in_the_way(line, "fe:01:77", &(0..5000), Hold::Shared));
        assert!(
            !stands_in_the_way(line, "fe:01:77", &(8192..9000), Hold::Alone)
                && !stands_in_the_way(line, "fe:01:78", &(0..5000), Hold::Alone)
        );
        assert!(stands_in_the_way("1: OFDLCK ADVISORY WRITE -1 fe:01:77 0 EOF", "fe:01:77", &(9000..9001), Hold::Shared));
        assert!(!stands_in_the_way("1: POSIX ADVISORY WRITE 7 fe:01:77 0 EOF", "fe:01:77", &(0..1), Hold::Alone));
    }
}
