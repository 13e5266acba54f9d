//! One mount as the kernel knows it: by its number, wherever it is and whatever lies on it.
//!
//! # Theory
//! A path leads to the mount that was made there last, which may be another user's. To change a mount one needs a
//! descriptor inside it, and keeping one would make every `umount` by others fail. So it is opened when it is needed:
//! through the path, if the mount there has the number; else, as something lies on it, through a process inside, in
//! whose directory or file the root of the mount can be opened by its handle. If no process is inside, none can tell
//! the difference either: the change is kept, and made when what lies on the mount goes away, which the kernel reports
//! as a change of its table of mounts.
//!
//! Only the mount is changed (`mount_setattr`), not the file system: nothing is written back for it, and copies of the
//! mount in containers keep their options.

use std::ffi::{CStr, c_int, c_uint};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, open, statx};
use rustix::mount::MountAttrFlags;

use crate::mounting::mount::MountOptions;
use crate::mounting::mount_table;

/// Longest handle of a file that the kernel gives.
const HANDLE_BYTES: usize = 128;

/// The number of the call `listmount`, on all architectures.
const LISTMOUNT: libc::c_long = 458;

/// The kernel reports changes of its table. The table is read again after this time even so, in case a report was
/// missed.
const LOOK_AGAIN_AFTER: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// The kernel's name for a file: `struct file_handle`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Handle {
    bytes: c_uint,
    kind: c_int,
    handle: [u8; HANDLE_BYTES],
}

/// What `mount_setattr` is told: `struct mount_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Change {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// A mount of ours.
#[derive(Debug, Clone)]
pub struct Standing {
    id: u64,
    device: (u32, u32),
    path: PathBuf,
    root: Option<Handle>,
    /// The change to be made as soon as possible.
    waiting: Arc<Mutex<Option<Change>>>,
}

impl Standing {
    /// The mount of a descriptor, which was mounted at `path`.
    pub(crate) fn of(descriptor: &OwnedFd, path: &Path) -> io::Result<Standing> {
        let (id, device) = number(descriptor.as_fd(), c"").ok_or(io::ErrorKind::Unsupported)?;
        Ok(Standing { id, device, path: path.to_owned(), root: handle(descriptor).ok(), waiting: Arc::default() })
    }

    /// The mount at a path now.
    pub(crate) fn at(path: &Path) -> io::Result<Standing> {
        Standing::of(&open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?, path)
    }

    /// Device number of the file system.
    pub(crate) fn device(&self) -> (u32, u32) {
        self.device
    }

    /// Where it was mounted, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the mount still exists.
    pub fn is_there(&self) -> bool {
        mount_table::own().is_ok_and(|table| table.iter().any(|entry| entry.id == self.id && entry.device == self.device))
    }

    /// Whether it is visible at its place, with nothing mounted in it. `false` where that takes reading the table of
    /// all mounts.
    pub(crate) fn is_alone(&self) -> bool {
        let unique = rustix::path::Arg::into_with_c_str(self.path.as_path(), |path| Ok(number_with(CWD, path, unique_number())));
        let is_on_top = rustix::path::Arg::into_with_c_str(self.path.as_path(), |path| Ok(number(CWD, path))).ok().flatten() == Some((self.id, self.device));
        let unique = unique.ok().flatten().map(|(id, _)| id);
        is_on_top && unique.is_some_and(|id| has_mounts_below(id).is_ok_and(|has| !has))
    }

    /// Gives the mount other options: now, or when what lies on it is gone.
    pub fn change(&self, options: &MountOptions) -> io::Result<()> {
        let change = Change::to(options);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(root) = self.reach() {
            *waiting = None;
            return change.make(&root);
        }
        // The waiting thread makes this change instead of its own.
        if waiting.replace(change).is_none() {
            let own = self.clone();
            std::thread::Builder::new().name("fuse-covered".to_owned()).spawn(move || own.wait())?;
        }
        Ok(())
    }

    /// Makes the kept change when the mount can be reached, or gives it up with the mount.
    fn wait(self) {
        let Ok(table) = open("/proc/self/mountinfo", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else { return };
        loop {
            {
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(change) = *waiting else { return };
                let reached = self.reach();
                if reached.is_some() || !self.is_there() {
                    *waiting = None;
                    if let Some(Err(error)) = reached.map(|root| change.make(&root)) {
                        tracing::warn!(path = %self.path.display(), %error, "the options of the mount could not be changed");
                    }
                    return;
                }
            }
            let mut fds = [PollFd::new(&table, PollFlags::PRI)];
            let _ = poll(&mut fds, Some(&LOOK_AGAIN_AFTER));
        }
    }

    /// A descriptor of the root of the mount.
    fn reach(&self) -> Option<OwnedFd> {
        let is_this = |there: &OwnedFd| number(there.as_fd(), c"") == Some((self.id, self.device));
        open(&self.path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .ok()
            .filter(is_this)
            .or_else(|| self.reach_through_others())
    }

    fn reach_through_others(&self) -> Option<OwnedFd> {
        let root = self.root.as_ref()?;
        // The present place, if the mount has been moved.
        let moved =
            mount_table::own().ok()?.into_iter().find(|entry| entry.id == self.id && entry.device == self.device).map(|entry| entry.mount_point);
        moved.into_iter().chain(crate::mounting::users::open_files()).find_map(|file| {
            let inside = rustix::path::Arg::into_with_c_str(file.as_path(), |file| Ok(number(CWD, file))).ok()?;
            let is_inside = inside == Some((self.id, self.device)) && is_harmless(&file);
            let opened = is_inside
                .then(|| open(&file, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).ok())
                .flatten()?;
            let found = open_by_handle(&opened, root).ok()?;
            (number(found.as_fd(), c"") == Some((self.id, self.device))).then_some(found)
        })
    }
}

impl Change {
    fn to(options: &MountOptions) -> Change {
        let set = attributes(options);
        let managed = MountAttrFlags::MOUNT_ATTR_RDONLY
            | MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC
            | MountAttrFlags::MOUNT_ATTR_NODIRATIME;
        // The kernel wants all flags for access times to be cleared together.
        let clear = managed.difference(set) | MountAttrFlags::MOUNT_ATTR__ATIME;
        Change { set: u64::from(set.bits()), clear: u64::from(clear.bits()), ..Change::default() }
    }

    /// Files that are open for writing keep a mount from becoming read-only, but not from the rest.
    fn make(self, root: &OwnedFd) -> io::Result<()> {
        let read_only = u64::from(MountAttrFlags::MOUNT_ATTR_RDONLY.bits());
        let result = set_attributes(root, self);
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy) {
            set_attributes(root, Change { set: self.set & !read_only, ..self })?;
        }
        result
    }
}

/// How the kernel is told of options.
pub(crate) fn attributes(options: &MountOptions) -> MountAttrFlags {
    let mut attributes = MountAttrFlags::empty();
    for (given, attribute) in [
        (options.read_only, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (options.no_suid, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (options.no_dev, MountAttrFlags::MOUNT_ATTR_NODEV),
        (options.no_exec, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (options.no_atime, MountAttrFlags::MOUNT_ATTR_NOATIME),
        (options.no_directory_atime, MountAttrFlags::MOUNT_ATTR_NODIRATIME),
    ] {
        attributes.set(attribute, given);
    }
    attributes
}

/// The mount and the file system of a file. Nothing else is asked for, so that no server is asked.
fn number(directory: rustix::fd::BorrowedFd<'_>, path: &CStr) -> Option<(u64, (u32, u32))> {
    number_with(directory, path, StatxFlags::MNT_ID)
}

fn number_with(directory: rustix::fd::BorrowedFd<'_>, path: &CStr, wanted: StatxFlags) -> Option<(u64, (u32, u32))> {
    let flags = AtFlags::STATX_DONT_SYNC | if path.is_empty() { AtFlags::EMPTY_PATH } else { AtFlags::empty() };
    let found = statx(directory, path, flags, wanted).ok()?;
    (found.stx_mask & wanted.bits() != 0).then_some((found.stx_mnt_id, (found.stx_dev_major, found.stx_dev_minor)))
}

/// The number of a mount that is never used again (Linux 6.8): `STATX_MNT_ID_UNIQUE`.
fn unique_number() -> StatxFlags {
    StatxFlags::from_bits_retain(0x4000)
}

/// What `listmount` is asked: `struct mnt_id_req`.
#[repr(C)]
struct Question {
    size: u32,
    namespace_descriptor: u32,
    mount: u64,
    last: u64,
    namespace: u64,
}

/// Whether anything is mounted in a mount, by its unique number. Linux says so since 6.8.
fn has_mounts_below(mount: u64) -> io::Result<bool> {
    let question = Question { size: size_of::<Question>() as u32, namespace_descriptor: 0, mount, last: 0, namespace: 0 };
    let mut found = [0u64; 1];
    // SAFETY: the kernel reads as many bytes of the question as that says, and writes one number at most, for which there is room.
    let count = unsafe { libc::syscall(LISTMOUNT, &raw const question, found.as_mut_ptr(), found.len(), 0) };
    check(count).map(|count| count > 0)
}

/// Whether to open it for reading has no effect: true of a directory or a file. Opening a device may do anything.
fn is_harmless(file: &Path) -> bool {
    let kind =
        statx(CWD, file, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).map(|found| FileType::from_raw_mode(found.stx_mode.into()));
    matches!(kind, Ok(FileType::Directory | FileType::RegularFile))
}

fn check(result: i64) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { c_int::try_from(result).map_err(io::Error::other) }
}

fn handle(descriptor: &OwnedFd) -> io::Result<Handle> {
    let mut handle = Handle { bytes: HANDLE_BYTES as c_uint, kind: 0, handle: [0; HANDLE_BYTES] };
    let mut mount: c_int = 0;
    let path = c"".as_ptr();
    // SAFETY: the kernel writes at most `bytes` bytes behind the header, which are there, and one number; the path is empty, and ends.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            descriptor.as_raw_fd(),
            path,
            &raw mut handle,
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    check(result).map(|_| handle)
}

fn open_by_handle(inside: &OwnedFd, handle: &Handle) -> io::Result<OwnedFd> {
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: the kernel reads the header of the handle and as many bytes as that says, which the kernel had written.
    let result = unsafe { libc::syscall(libc::SYS_open_by_handle_at, inside.as_raw_fd(), std::ptr::from_ref(handle), flags) };
    let number = check(result)?;
    // SAFETY: a descriptor that was just opened, and that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn set_attributes(root: &OwnedFd, change: Change) -> io::Result<()> {
    let path = c"".as_ptr();
    // SAFETY: the kernel reads as many bytes of the structure as it is told there are; the path is empty, and ends.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            root.as_raw_fd(),
            path,
            libc::AT_EMPTY_PATH,
            &raw const change,
            size_of::<Change>(),
        )
    };
    check(result).map(|_| ())
}
