//! Block devices with nothing behind them, for mounts of type `fuseblk`.
//!
//! # Theory
//! Linux passes `sync`, `syncfs` and the end of a mount on to a FUSE server, and waits for it, if the mount is on a
//! block device (type `fuseblk`; `sync` since 6.18). That device is never read or written. So ours are partitions of a
//! loop device over an empty file in memory: a loop device for each mount would cost forty times the memory.
//!
//! The kernel ends the loop device when its last user is gone: the daemon, or a mount that outlives it.
//!
//! The table of mounts shows a block device's mount by the path that led to the device. So that it shows the name of the file system, the kernel is
//! given that name as a relative path, by a thread whose working directory has a symbolic link of this name ([`stand_apart`]).

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{MemfdFlags, SealFlags};

/// Bytes of a partition.
const PARTITION_BYTES: u64 = 4096;
/// Partitions of a loop device. The kernel allows 255.
const PARTITIONS: u32 = 240;
/// The most tries to get a loop device: another process may take the free one that the kernel named.
const TRIES: usize = 16;

/// `LOOP_CTL_GET_FREE` of `linux/loop.h`.
const GET_FREE: libc::Ioctl = 0x4c82;
/// `LOOP_CONFIGURE` of `linux/loop.h`.
const CONFIGURE: libc::Ioctl = 0x4c0a;
/// `LO_FLAGS_AUTOCLEAR` of `linux/loop.h`: the device ends with its last user.
const AUTOCLEAR: u32 = 4;
/// `LO_FLAGS_PARTSCAN` of `linux/loop.h`: its partitions end with it, and those that an earlier user left are not there.
const PARTSCAN: u32 = 8;
/// `BLKPG` of `linux/fs.h`.
const BLKPG: libc::Ioctl = 0x1269;
/// `BLKPG_ADD_PARTITION` of `linux/blkpg.h`.
const ADD: i32 = 1;
/// `BLKPG_DEL_PARTITION` of `linux/blkpg.h`.
const DELETE: i32 = 2;

/// `struct loop_config` of `linux/loop.h`.
#[repr(C)]
struct LoopConfig {
    file: u32,
    block_size: u32,
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt: [u32; 2],
    flags: u32,
    file_name: [u8; 64],
    crypt: [u8; 96],
    init: [u64; 2],
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopConfig>() == 304);

/// `struct blkpg_partition` of `linux/blkpg.h`.
#[repr(C)]
struct PartitionPlace {
    start: i64,
    length: i64,
    number: i32,
    names: [u8; 128],
}

/// `struct blkpg_ioctl_arg` of `linux/blkpg.h`.
#[repr(C)]
struct PartitionRequest {
    operation: i32,
    flags: i32,
    length: i32,
    place: *mut PartitionPlace,
}

/// The loop devices of this process that have partitions in use.
static DISKS: Mutex<Vec<Weak<Disk>>> = Mutex::new(Vec::new());

/// A loop device of ours.
#[derive(Debug)]
struct Disk {
    device: File,
    path: PathBuf,
    /// guards: the numbers of the partitions in use
    numbers: Mutex<Numbers>,
}

#[derive(Debug, Default)]
struct Numbers {
    used: BTreeSet<u32>,
    /// The kernel still had these mounted when they were dropped.
    leaving: BTreeSet<u32>,
}

/// A partition of one of our loop devices, for one mount.
#[derive(Debug)]
pub(crate) struct Partition {
    disk: Arc<Disk>,
    number: u32,
}

impl Partition {
    /// Takes a free partition. Fails where loop devices cannot be had, as in most containers.
    pub(crate) fn new() -> io::Result<Partition> {
        let mut disks = DISKS.lock().unwrap_or_else(PoisonError::into_inner);
        disks.retain(|disk| disk.strong_count() > 0);
        for disk in disks.iter().filter_map(Weak::upgrade) {
            if let Some(number) = disk.add()? {
                return Ok(Partition { disk, number });
            }
        }
        let disk = Arc::new(Disk::new()?);
        disks.push(Arc::downgrade(&disk));
        let number = disk.add()?.ok_or_else(|| io::Error::other("a new loop device has no free partition"))?;
        Ok(Partition { disk, number })
    }

    /// Its node in `/dev`.
    fn path(&self) -> PathBuf {
        let mut path = self.disk.path.clone().into_os_string();
        path.push(format!("p{}", self.number));
        path.into()
    }

    /// Calls `mount` while the relative path `name` leads to the partition. The table of mounts shows the path that it was given.
    pub(crate) fn named(&self, name: &str, mount: impl FnOnce(&str) -> io::Result<()> + Send) -> io::Result<()> {
        if STANDING.with_borrow(Option::is_some) {
            return self.named_here(name, mount);
        }
        // A thread of its own, because the others must keep their working directory.
        std::thread::scope(|scope| {
            let there = std::thread::Builder::new().name("fuse-mount".to_owned()).spawn_scoped(scope, || {
                stand_apart()?;
                self.named_here(name, mount)
            })?;
            there.join().unwrap_or_else(|_| Err(io::Error::other("the thread that mounts has panicked")))
        })
    }

    /// As [`Partition::named`], by a thread that stands apart.
    fn named_here(&self, name: &str, mount: impl FnOnce(&str) -> io::Result<()>) -> io::Result<()> {
        STANDING.with_borrow(|standing| {
            let directory = standing.as_ref().ok_or_else(|| io::Error::other("the thread does not stand apart"))?.path();
            let link = directory.join(name);
            if !link.starts_with(directory) || link.components().any(|part| part == Component::ParentDir) {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("'{name}' is not the name of a file system")));
            }
            let target = self.path();
            let made = std::os::unix::fs::symlink(&target, &link).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => {
                    std::fs::create_dir_all(link.parent().unwrap_or(directory))?;
                    std::os::unix::fs::symlink(&target, &link)
                }
                // One that lies in this one was mounted before it, somewhere else: its name left a directory.
                io::ErrorKind::AlreadyExists => {
                    std::fs::remove_dir_all(&link)?;
                    std::os::unix::fs::symlink(&target, &link)
                }
                _ => Err(error),
            });
            let mounted = made.and_then(|()| mount(name));
            let _ = std::fs::remove_file(&link);
            mounted
        })
    }
}

thread_local! {
    /// Where the thread stands, if it stands apart.
    static STANDING: RefCell<Option<tempfile::TempDir>> = const { RefCell::new(None) };
}

/// Gives the calling thread a working directory of its own, until it ends: it makes many mounts, and does nothing else. Where that cannot be had, each mount
/// is made by another thread.
///
/// # Errors
/// The directory cannot be made, or the kernel refuses.
pub fn stand_apart() -> io::Result<()> {
    // In memory, where that is possible: on a disk this is a tenth of what a mount costs.
    let within = |parent: &Path| tempfile::Builder::new().prefix("tarn-mount-").tempdir_in(parent);
    let directory = within(Path::new("/dev/shm")).or_else(|_| within(&std::env::temp_dir()))?;
    // SAFETY: only what says where this thread stands is no longer shared with the others.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }?;
    rustix::process::chdir(directory.path())?;
    STANDING.set(Some(directory));
    Ok(())
}

impl Drop for Partition {
    fn drop(&mut self) {
        let mut numbers = self.disk.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.used.remove(&self.number);
        if self.disk.request(DELETE, self.number).is_err() {
            numbers.leaving.insert(self.number);
        }
    }
}

impl Disk {
    fn new() -> io::Result<Disk> {
        let contents = empty_file()?;
        let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
        let mut tries = 0;
        loop {
            tries += 1;
            // SAFETY: LOOP_CTL_GET_FREE takes no argument.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), GET_FREE) };
            if number < 0 {
                return Err(io::Error::last_os_error());
            }
            let path = PathBuf::from(format!("/dev/loop{number}"));
            match Disk::configure(&path, &contents) {
                Ok(device) => return Ok(Disk { device, path, numbers: Mutex::default() }),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && tries < TRIES => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn configure(path: &Path, contents: &OwnedFd) -> io::Result<File> {
        let device = OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(path)?;
        let mut file_name = [0; 64];
        file_name[..4].copy_from_slice(b"tarn");
        let config = LoopConfig {
            file: contents.as_raw_fd().cast_unsigned(),
            block_size: 0,
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt: [0; 2],
            flags: AUTOCLEAR | PARTSCAN,
            file_name,
            crypt: [0; 96],
            init: [0; 2],
            reserved: [0; 8],
        };
        // SAFETY: the kernel reads a `loop_config`, which lives during the call.
        if unsafe { libc::ioctl(device.as_raw_fd(), CONFIGURE, &raw const config) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(device)
    }

    /// Makes a partition. `None`: all are in use.
    fn add(&self) -> io::Result<Option<u32>> {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.leaving.retain(|number| self.request(DELETE, *number).is_err());
        if numbers.used.len() + numbers.leaving.len() >= PARTITIONS as usize {
            return Ok(None);
        }
        let Some(number) = (1..=PARTITIONS).find(|number| !numbers.used.contains(number) && !numbers.leaving.contains(number))
        else {
            return Ok(None);
        };
        self.request(ADD, number)?;
        numbers.used.insert(number);
        Ok(Some(number))
    }

    fn request(&self, operation: i32, number: u32) -> io::Result<()> {
        let place = i64::from(number) * PARTITION_BYTES.cast_signed();
        let mut place =
            PartitionPlace { start: place, length: PARTITION_BYTES.cast_signed(), number: number.cast_signed(), names: [0; 128] };
        let request = PartitionRequest { operation, flags: 0, length: size_of::<PartitionPlace>() as i32, place: &raw mut place };
        // SAFETY: the kernel reads a `blkpg_ioctl_arg` and what it points to; both live during the call.
        if unsafe { libc::ioctl(self.device.as_raw_fd(), BLKPG, &raw const request) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

/// A file in memory that has no memory, and that nobody can change.
fn empty_file() -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("tarn", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, u64::from(PARTITIONS + 1) * PARTITION_BYTES)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than one loop device has, and all are gone afterwards.
    #[test]
    #[allow(clippy::disallowed_methods)] // the real clock: the kernel lets go in it
    fn partitions_come_and_go() {
        let first = match Partition::new() {
            Ok(partition) => partition,
            Err(error) => {
                eprintln!("SKIPPED: no loop devices here: {error}");
                return;
            }
        };
        let more: Vec<Partition> = (0..PARTITIONS).map(|_| Partition::new().unwrap()).collect();
        let paths: BTreeSet<PathBuf> = more.iter().chain([&first]).map(Partition::path).collect();
        assert_eq!(paths.len(), more.len() + 1);
        assert!(paths.iter().all(|path| path.exists()));
        let disks: BTreeSet<PathBuf> = more.iter().chain([&first]).map(|partition| partition.disk.path.clone()).collect();
        assert_eq!(disks.len(), 2);
        drop(first);
        let again = Partition::new().unwrap();
        assert!(paths.contains(&again.path()), "what was given back is used again");
        drop((more, again));
        let is_in_use =
            |disk: &PathBuf| Path::new("/sys/block").join(disk.file_name().unwrap()).join("loop/backing_file").exists();
        let begun = std::time::Instant::now();
        while disks.iter().any(is_in_use) {
            assert!(begun.elapsed().as_secs() < 60, "{disks:?} are still there");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    #[test]
    fn names_do_not_lead_elsewhere() {
        let Ok(partition) = Partition::new() else {
            eprintln!("SKIPPED: no loop devices here");
            return;
        };
        for name in ["/etc/passwd", "../x", "a/../../x"] {
            assert!(partition.named(name, |_| panic!("was called")).is_err(), "{name}");
        }
        partition.named("tank/a b", |name| std::fs::metadata(name).map(|_| ())).unwrap();
    }

    /// One thread makes many mounts, whose names may lie in one another, in any order.
    #[test]
    fn one_thread_names_many() {
        let Ok(partition) = Partition::new() else {
            eprintln!("SKIPPED: no loop devices here");
            return;
        };
        let before = std::env::current_dir().unwrap();
        let mounting = || {
            stand_apart().unwrap();
            let stands = std::env::current_dir().unwrap();
            for name in ["tank/a/b", "tank/a", "tank", "tank/a/b", "tank/a", "tank/c", "tank/c"] {
                let seen = |name: &str| std::fs::read_link(name).map(|target| assert_eq!(target, partition.path()));
                partition.named(name, seen).unwrap();
            }
            assert!(partition.named("tank", |_| Err(io::ErrorKind::ResourceBusy.into())).is_err());
            partition.named("tank", |_| Ok(())).unwrap();
            stands
        };
        let stands = std::thread::scope(|scope| scope.spawn(mounting).join().unwrap());
        assert!(stands != before && !stands.exists(), "{stands:?} is left");
        assert_eq!(std::env::current_dir().unwrap(), before);
    }
}
