//! What a file system has to answer: one method for each operation.
//!
//! # Theory
//! Nodes are numbers that the file system chooses ([`ROOT_NODE`](crate::ROOT_NODE) is the root). Every reply that
//! carries an [`Entry`] gives the kernel one reference to its node; [`Filesystem::forget`] takes references back.
//! Handles are numbers that `open` and `opendir` choose. Methods run on many threads at once and may block.
//! A method that is not overridden answers `ENOSYS`, which for some operations tells the kernel not to ask again.

use std::time::Duration;

use crate::protocol::{OpenedFlags, WriteFlags};
use crate::{DirectoryPlusWriter, DirectoryWriter, Errno, Result};

/// The caller of a request.
#[derive(Debug, Clone, Copy)]
pub struct Context {
    /// Number of the request.
    pub unique: u64,
    /// File-system user id of the caller.
    pub uid: u32,
    /// File-system group id of the caller.
    pub gid: u32,
    /// Thread id of the caller; 0 when it is in no process namespace of ours, or for write-back.
    pub pid: u32,
    /// The group among the caller's further groups that matters when something is made: that of the directory.
    pub other_group: Option<u32>,
}

/// Seconds and nanoseconds since 1970; the seconds may be negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds.
    pub seconds: i64,
    /// 0 to 999 999 999.
    pub nanoseconds: u32,
}

/// Attributes of a node.
#[derive(Debug, Clone, Copy, Default)]
pub struct Attr {
    /// Number shown by `stat`.
    pub inode: u64,
    /// Length in bytes.
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub blocks: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of the attributes.
    pub ctime: Timestamp,
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Number of names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number in the kernel's 32-bit encoding.
    pub device: u32,
    /// Preferred size of an I/O.
    pub block_size: u32,
}

/// Attributes with the time for which the kernel may believe them.
#[derive(Debug, Clone, Copy)]
pub struct Attributes {
    /// The attributes.
    pub attr: Attr,
    /// Time to live.
    pub valid: Duration,
}

/// The answer to a lookup and to everything that makes a name.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The node; 0 says that the name does not exist and that the kernel may remember this.
    pub node: u64,
    /// Tells apart uses of the same node number over time.
    pub generation: u64,
    /// Attributes of the node.
    pub attr: Attr,
    /// How long the name may be believed.
    pub entry_valid: Duration,
    /// How long the attributes may be believed.
    pub attr_valid: Duration,
}

impl Entry {
    /// "There is no such name"; the kernel may remember that for this long.
    pub fn negative(valid: Duration) -> Entry {
        Entry { node: 0, generation: 0, attr: Attr::default(), entry_valid: valid, attr_valid: Duration::ZERO }
    }
}

/// A file was opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct Opened {
    /// Comes back with each operation on the open file.
    pub handle: u64,
    /// How to cache.
    pub flags: OpenedFlags,
}

/// A file was made and opened.
#[derive(Debug, Clone, Copy)]
pub struct Created {
    /// The new name.
    pub entry: Entry,
    /// The open file.
    pub opened: Opened,
}

/// New value of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The present.
    Now,
    /// This time.
    At(Timestamp),
}

/// What `SETATTR` changes.
#[derive(Debug, Clone, Copy, Default)]
pub struct SetAttr {
    /// Through this open file (`ftruncate`).
    pub handle: Option<u64>,
    /// Type and permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Change time (only with a write-back cache).
    pub ctime: Option<Timestamp>,
    /// Set-user-id and set-group-id bits must go.
    pub kill_suidgid: bool,
}

/// A read.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    /// The node.
    pub node: u64,
    /// The handle of the open file.
    pub handle: u64,
    /// The position.
    pub offset: u64,
    /// `O_*` flags of the open file.
    pub flags: u32,
}

/// A write.
#[derive(Debug, Clone, Copy)]
pub struct Write {
    /// The node.
    pub node: u64,
    /// The handle of the open file.
    pub handle: u64,
    /// The position.
    pub offset: u64,
    /// `O_*` flags of the open file.
    pub flags: u32,
    /// Where it comes from and what it implies.
    pub write_flags: WriteFlags,
}

/// The owner of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner(pub u64);

/// A byte-range lock.
#[derive(Debug, Clone, Copy)]
pub struct FileLock {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive.
    pub end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: u32,
    /// Process that holds it.
    pub pid: u32,
}

/// A request about a lock.
#[derive(Debug, Clone, Copy)]
pub struct LockRequest {
    /// Open file.
    pub handle: u64,
    /// The owner of the lock.
    pub owner: Owner,
    /// The lock.
    pub lock: FileLock,
    /// `flock` rather than a byte-range lock.
    pub flock: bool,
    /// Wait until it is free.
    pub wait: bool,
}

/// `SETXATTR`.
#[derive(Debug, Clone, Copy)]
pub struct ExtendedAttribute<'a> {
    /// Full name, with its name space.
    pub name: &'a [u8],
    /// Contents.
    pub value: &'a [u8],
    /// `XATTR_CREATE`, `XATTR_REPLACE` or 0.
    pub flags: u32,
    /// The access ACL changed and the set-group-id bit must go.
    pub kill_sgid: bool,
}

/// `FALLOCATE`.
#[derive(Debug, Clone, Copy)]
pub struct Fallocate {
    /// Open file.
    pub handle: u64,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
    /// `FALLOC_FL_*`.
    pub mode: u32,
}

/// `COPY_FILE_RANGE`.
#[derive(Debug, Clone, Copy)]
pub struct CopyRange {
    /// Source handle; its node is the node of the request.
    pub handle_in: u64,
    /// Source position.
    pub offset_in: u64,
    /// Destination node.
    pub node_out: u64,
    /// Destination handle.
    pub handle_out: u64,
    /// Destination position.
    pub offset_out: u64,
    /// Bytes.
    pub length: u64,
    /// Flags of the system call.
    pub flags: u64,
}

/// `IOCTL`.
#[derive(Debug, Clone, Copy)]
pub struct Ioctl<'a> {
    /// Open file.
    pub handle: u64,
    /// `FUSE_IOCTL_*`.
    pub flags: u32,
    /// The command.
    pub command: u32,
    /// Its argument, an address in the caller.
    pub argument: u64,
    /// What the caller passed.
    pub input: &'a [u8],
}

/// Space and files.
#[derive(Debug, Clone, Copy, Default)]
pub struct StatFs {
    /// All blocks.
    pub blocks: u64,
    /// Free ones.
    pub blocks_free: u64,
    /// Free ones for ordinary users.
    pub blocks_available: u64,
    /// All files.
    pub files: u64,
    /// Files that can still be made.
    pub files_free: u64,
    /// Preferred size of an I/O.
    pub block_size: u32,
    /// Unit of the block counts.
    pub fragment_size: u32,
    /// Longest name.
    pub name_max: u32,
}

/// Attributes that `stat` has no room for.
#[derive(Debug, Clone, Copy)]
pub struct StatX {
    /// The others.
    pub attributes: Attributes,
    /// When the node was made.
    pub birth: Option<Timestamp>,
    /// `STATX_ATTR_*` that are set.
    pub flags: u64,
    /// `STATX_ATTR_*` that are known.
    pub flags_mask: u64,
}

/// What was agreed at `INIT`.
#[derive(Debug, Clone, Copy)]
pub struct Negotiated {
    /// Minor version in use.
    pub minor: u32,
    /// Features in use.
    pub flags: crate::protocol::InitFlags,
    /// Largest write.
    pub max_write: u32,
}

/// A file system that can be mounted. See the module's theory.
#[allow(unused_variables)]
pub trait Filesystem: Send + Sync + 'static {
    /// The mount is ready to be used.
    fn init(&self, negotiated: &Negotiated) {}

    /// The kernel has ended the mount; operations may be under way still. Called once, and must not wait.
    fn ended(&self) {}

    /// The mount is gone; called once, after the last operation.
    fn destroy(&self) {}

    /// Resolve a name. "." and ".." come from NFS servers only.
    fn lookup(&self, context: &Context, parent: u64, name: &[u8]) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// The kernel drops `count` references to `node`.
    fn forget(&self, node: u64, count: u64) {}

    /// Attributes.
    fn getattr(&self, context: &Context, node: u64, handle: Option<u64>) -> Result<Attributes> {
        Err(Errno::ENOSYS)
    }

    /// Attributes with birth time.
    fn statx(&self, context: &Context, node: u64, handle: Option<u64>) -> Result<StatX> {
        Err(Errno::ENOSYS)
    }

    /// Change attributes.
    fn setattr(&self, context: &Context, node: u64, changes: &SetAttr) -> Result<Attributes> {
        Err(Errno::ENOSYS)
    }

    /// Target of a symbolic link.
    fn readlink(&self, context: &Context, node: u64) -> Result<Vec<u8>> {
        Err(Errno::ENOSYS)
    }

    /// Make a symbolic link.
    fn symlink(&self, context: &Context, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Make a file of any type but directory and symbolic link.
    fn mknod(&self, context: &Context, parent: u64, name: &[u8], mode: u32, device: u32, umask: u32) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Make a directory.
    fn mkdir(&self, context: &Context, parent: u64, name: &[u8], mode: u32, umask: u32) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Remove a name that is not a directory.
    fn unlink(&self, context: &Context, parent: u64, name: &[u8]) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Remove an empty directory.
    fn rmdir(&self, context: &Context, parent: u64, name: &[u8]) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Rename; `flags` as in `renameat2`.
    fn rename(&self, context: &Context, parent: u64, name: &[u8], new_parent: u64, new_name: &[u8], flags: u32) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Give a node one more name.
    fn link(&self, context: &Context, node: u64, new_parent: u64, new_name: &[u8]) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Open a file; `ENOSYS` makes the kernel open files without asking.
    fn open(&self, context: &Context, node: u64, flags: u32, kill_suidgid: bool) -> Result<Opened> {
        Err(Errno::ENOSYS)
    }

    /// Make and open a file; `ENOSYS` makes the kernel use `mknod` and `open`.
    fn create(&self, context: &Context, parent: u64, name: &[u8], mode: u32, umask: u32, flags: u32) -> Result<Created> {
        Err(Errno::ENOSYS)
    }

    /// Make and open a file without a name.
    fn tmpfile(&self, context: &Context, parent: u64, mode: u32, umask: u32, flags: u32) -> Result<Created> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Fill `out` from its start and return how many bytes there are; fewer than asked means the end of the file.
    fn read(&self, context: &Context, read: &Read, out: &mut [u8]) -> Result<usize> {
        Err(Errno::ENOSYS)
    }

    /// Write all of `data`, or return how much was written.
    fn write(&self, context: &Context, write: &Write, data: &[u8]) -> Result<usize> {
        Err(Errno::ENOSYS)
    }

    /// A descriptor was closed; `ENOSYS` stops these calls.
    fn flush(&self, context: &Context, node: u64, handle: u64, owner: Owner) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// The last descriptor was closed.
    fn release(&self, context: &Context, node: u64, handle: u64, flags: u32, owner: Owner) -> Result<()> {
        Ok(())
    }

    /// Make a file durable.
    fn fsync(&self, context: &Context, node: u64, handle: u64, data_only: bool) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Open a directory; `ENOSYS` makes the kernel open directories without asking.
    fn opendir(&self, context: &Context, node: u64, flags: u32) -> Result<Opened> {
        Err(Errno::ENOSYS)
    }

    /// List a directory from the cookie `offset` on, until `out` is full.
    fn readdir(&self, context: &Context, node: u64, handle: u64, offset: u64, out: &mut DirectoryWriter<'_>) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// List a directory with the attributes of its entries; each accepted entry gives a reference, but "." and "..".
    fn readdirplus(&self, context: &Context, node: u64, handle: u64, offset: u64, out: &mut DirectoryPlusWriter<'_>) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// The last descriptor of a directory was closed.
    fn releasedir(&self, context: &Context, node: u64, handle: u64) -> Result<()> {
        Ok(())
    }

    /// Make a directory durable.
    fn fsyncdir(&self, context: &Context, node: u64, handle: u64, data_only: bool) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Make everything durable.
    fn syncfs(&self, context: &Context) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Space.
    fn statfs(&self, context: &Context, node: u64) -> Result<StatFs> {
        Err(Errno::ENOSYS)
    }

    /// Set an extended attribute.
    fn setxattr(&self, context: &Context, node: u64, attribute: &ExtendedAttribute<'_>) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// An extended attribute: its length; written into `out` unless that is empty. Too long for `out`: `ERANGE`.
    fn getxattr(&self, context: &Context, node: u64, name: &[u8], out: &mut [u8]) -> Result<usize> {
        Err(Errno::ENOSYS)
    }

    /// Names of the extended attributes that the caller may know, each ended by a zero byte, as [`Filesystem::getxattr`] returns a value.
    fn listxattr(&self, context: &Context, node: u64, out: &mut [u8]) -> Result<usize> {
        Err(Errno::ENOSYS)
    }

    /// Remove an extended attribute.
    fn removexattr(&self, context: &Context, node: u64, name: &[u8]) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// May the caller do this? Not asked when the kernel checks permissions itself.
    fn access(&self, context: &Context, node: u64, mask: u32) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Which lock is in the way; only when locks were negotiated.
    fn getlock(&self, context: &Context, node: u64, request: &LockRequest) -> Result<FileLock> {
        Err(Errno::ENOSYS)
    }

    /// Take or drop a lock.
    fn setlock(&self, context: &Context, node: u64, request: &LockRequest) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// The request of this number should give up; `ENOSYS` stops these messages.
    fn interrupt(&self, unique: u64) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Device control: the result of the system call and the number of bytes put into `out`.
    fn ioctl(&self, context: &Context, node: u64, ioctl: &Ioctl<'_>, out: &mut [u8]) -> Result<(i32, usize)> {
        Err(Errno::ENOTTY)
    }

    /// Allocate, zero or punch.
    fn fallocate(&self, context: &Context, node: u64, fallocate: &Fallocate) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    /// `SEEK_DATA` and `SEEK_HOLE`.
    fn lseek(&self, context: &Context, node: u64, handle: u64, offset: u64, whence: u32) -> Result<u64> {
        Err(Errno::ENOSYS)
    }

    /// Copy or clone; returns the number of bytes.
    fn copy_file_range(&self, context: &Context, node_in: u64, copy: &CopyRange) -> Result<u64> {
        Err(Errno::ENOSYS)
    }
}
