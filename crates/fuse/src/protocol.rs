//! The messages of the kernel's FUSE protocol, version 7.45, as checked views of bytes.
//!
//! # Theory
//! A request is a [`InHeader`], then one fixed structure that depends on the operation, then bytes: names (each ended
//! by a zero byte) or data. A reply is an [`OutHeader`], then a fixed structure or bytes.
//! Integers are in the machine's own byte order, because both ends run on the same machine.
//! Every structure is a multiple of eight bytes long and has no hidden padding, which `zerocopy` proves.

#![allow(missing_docs)] // where a name is the kernel's, it is the documentation

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Protocol version that we speak.
pub const MAJOR: u32 = 7;
/// Newest minor version that we know; the kernel takes the smaller of ours and its own.
pub const MINOR: u32 = 45;
/// Oldest minor version that we accept (Linux 5.17): 64-bit flags and long `SETXATTR` are taken for granted.
pub const MINOR_MIN: u32 = 36;
/// From here on (Linux 6.16) the kernel can be told to look all names up again.
pub const MINOR_FORGETS_NAMES: u32 = 44;
/// From here on (Linux 6.18) a direct write takes what it replaces out of the page cache *after* it was answered too. Before, a reader
/// through the cache could meanwhile put the old bytes back there, for good; until 6.6 they were not even taken out before.
pub const MINOR_DIRECT_IS_COHERENT: u32 = 45;
/// Node id of the root directory.
pub const ROOT_NODE: u64 = 1;
/// The smallest buffer with which the kernel lets us read a request.
pub const READ_BUFFER_MIN: usize = 8192;

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $fixed:expr;)*) => {
        /// What the kernel wants.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        #[allow(missing_docs)] // the names are the documentation
        pub enum Opcode { $($(#[$doc])* $name = $number,)* }

        impl Opcode {
            /// The operation of this number, if we know it.
            pub const fn from_number(number: u32) -> Option<Opcode> {
                match number { $($number => Some(Opcode::$name),)* _ => None }
            }

            /// Length of the fixed structure that follows the request header.
            pub const fn fixed_len(self) -> usize {
                match self { $(Opcode::$name => $fixed,)* }
            }
        }
    };
}

opcodes! {
    Lookup = 1, 0;
    Forget = 2, size_of::<ForgetIn>();
    GetAttr = 3, size_of::<GetAttrIn>();
    SetAttr = 4, size_of::<SetAttrIn>();
    ReadLink = 5, 0;
    SymLink = 6, 0;
    MkNod = 8, size_of::<MkNodIn>();
    MkDir = 9, size_of::<MkDirIn>();
    Unlink = 10, 0;
    RmDir = 11, 0;
    Rename = 12, size_of::<RenameIn>();
    Link = 13, size_of::<LinkIn>();
    Open = 14, size_of::<OpenIn>();
    Read = 15, size_of::<ReadIn>();
    Write = 16, size_of::<WriteIn>();
    StatFs = 17, 0;
    Release = 18, size_of::<ReleaseIn>();
    Fsync = 20, size_of::<FsyncIn>();
    SetXattr = 21, size_of::<SetXattrIn>();
    GetXattr = 22, size_of::<GetXattrIn>();
    ListXattr = 23, size_of::<GetXattrIn>();
    RemoveXattr = 24, 0;
    Flush = 25, size_of::<FlushIn>();
    Init = 26, size_of::<InitIn>();
    OpenDir = 27, size_of::<OpenIn>();
    ReadDir = 28, size_of::<ReadIn>();
    ReleaseDir = 29, size_of::<ReleaseIn>();
    FsyncDir = 30, size_of::<FsyncIn>();
    GetLock = 31, size_of::<LockIn>();
    SetLock = 32, size_of::<LockIn>();
    SetLockWait = 33, size_of::<LockIn>();
    Access = 34, size_of::<AccessIn>();
    Create = 35, size_of::<CreateIn>();
    Interrupt = 36, size_of::<InterruptIn>();
    BlockMap = 37, size_of::<BlockMapIn>();
    Destroy = 38, 0;
    Ioctl = 39, size_of::<IoctlIn>();
    Poll = 40, size_of::<PollIn>();
    NotifyReply = 41, 40;
    BatchForget = 42, size_of::<BatchForgetIn>();
    Fallocate = 43, size_of::<FallocateIn>();
    ReadDirPlus = 44, size_of::<ReadIn>();
    Rename2 = 45, size_of::<Rename2In>();
    Lseek = 46, size_of::<LseekIn>();
    CopyFileRange = 47, size_of::<CopyFileRangeIn>();
    SyncFs = 50, size_of::<SyncFsIn>();
    TmpFile = 51, size_of::<CreateIn>();
    StatX = 52, size_of::<StatXIn>();
    CopyFileRange64 = 53, size_of::<CopyFileRangeIn>();
}

/// Defines plain structures of the protocol, with their sizes checked at compile time.
macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident: $size:literal { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        #[allow(missing_docs)] // the field names are the kernel's, written out
        pub struct $name { $(pub $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

wire! {
    /// Opens every request.
    InHeader: 40 { len: u32, opcode: u32, unique: u64, node: u64, uid: u32, gid: u32, pid: u32, extension_words: u16, padding: u16, }
    /// Opens every reply; a notification has `unique` 0 and its code in `error`.
    OutHeader: 16 { len: u32, error: i32, unique: u64, }
    /// What `stat` shows.
    AttrWire: 88 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atime_ns: u32, mtime_ns: u32, ctime_ns: u32,
        mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    /// `statfs`.
    StatFsOut: 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32, padding: u32, spare: [u32; 6],
    }
    /// A byte-range lock.
    LockWire: 24 { start: u64, end: u64, kind: u32, pid: u32, }
    /// A name was resolved or made.
    EntryOut: 128 { node: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_ns: u32, attr_valid_ns: u32, attr: AttrWire, }
    /// Attributes.
    AttrOut: 104 { valid: u64, valid_ns: u32, dummy: u32, attr: AttrWire, }
    /// The kernel drops `count` references to the node.
    ForgetIn: 8 { count: u64, }
    /// One of many forgotten nodes.
    ForgetOne: 16 { node: u64, count: u64, }
    /// Head of a list of [`ForgetOne`].
    BatchForgetIn: 8 { count: u32, dummy: u32, }
    /// `GETATTR`.
    GetAttrIn: 16 { flags: u32, dummy: u32, handle: u64, }
    /// `SETATTR`.
    SetAttrIn: 88 {
        valid: u32, padding: u32, handle: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atime_ns: u32, mtime_ns: u32, ctime_ns: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    /// Head of what may follow the names of a request that makes something, padded to eight bytes.
    ExtensionHead: 8 { size: u32, kind: u32, }
    /// `MKNOD`.
    MkNodIn: 16 { mode: u32, rdev: u32, umask: u32, padding: u32, }
    /// `MKDIR`.
    MkDirIn: 8 { mode: u32, umask: u32, }
    /// `RENAME`.
    RenameIn: 8 { new_parent: u64, }
    /// `RENAME2`.
    Rename2In: 16 { new_parent: u64, flags: u32, padding: u32, }
    /// `LINK`.
    LinkIn: 8 { node: u64, }
    /// `OPEN`, `OPENDIR`.
    OpenIn: 8 { flags: u32, open_flags: u32, }
    /// `CREATE`, `TMPFILE`.
    CreateIn: 16 { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    /// Reply to an open.
    OpenOut: 16 { handle: u64, open_flags: u32, backing: i32, }
    /// `RELEASE`, `RELEASEDIR`.
    ReleaseIn: 24 { handle: u64, flags: u32, release_flags: u32, lock_owner: u64, }
    /// `FLUSH`.
    FlushIn: 24 { handle: u64, unused: u32, padding: u32, lock_owner: u64, }
    /// `READ`, `READDIR`, `READDIRPLUS`.
    ReadIn: 40 { handle: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32, }
    /// `WRITE`.
    WriteIn: 40 { handle: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32, }
    /// Reply to `WRITE` and to `COPY_FILE_RANGE`.
    WriteOut: 8 { size: u32, padding: u32, }
    /// Reply to the 64-bit `COPY_FILE_RANGE`.
    CopyFileRangeOut: 8 { copied: u64, }
    /// `FSYNC`, `FSYNCDIR`.
    FsyncIn: 16 { handle: u64, flags: u32, padding: u32, }
    /// `SETXATTR`, in the extended form that we negotiate.
    SetXattrIn: 16 { size: u32, flags: u32, setxattr_flags: u32, padding: u32, }
    /// `GETXATTR`, `LISTXATTR`.
    GetXattrIn: 8 { size: u32, padding: u32, }
    /// Length of an attribute, when only that was asked.
    GetXattrOut: 8 { size: u32, padding: u32, }
    /// `GETLK`, `SETLK`, `SETLKW`.
    LockIn: 48 { handle: u64, owner: u64, lock: LockWire, flags: u32, padding: u32, }
    /// `ACCESS`.
    AccessIn: 8 { mask: u32, padding: u32, }
    /// `INIT`.
    InitIn: 64 { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11], }
    /// Our answer to `INIT`.
    InitOut: 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16, max_write: u32, time_granularity: u32,
        max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32, request_timeout: u16, unused: [u16; 11],
    }
    /// `INTERRUPT`.
    InterruptIn: 8 { unique: u64, }
    /// `BMAP`.
    BlockMapIn: 16 { block: u64, block_size: u32, padding: u32, }
    /// Reply to `BMAP`.
    BlockMapOut: 8 { block: u64, }
    /// `IOCTL`.
    IoctlIn: 32 { handle: u64, flags: u32, command: u32, argument: u64, in_size: u32, out_size: u32, }
    /// Head of the reply to `IOCTL`.
    IoctlOut: 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, }
    /// `POLL`.
    PollIn: 24 { handle: u64, kernel_handle: u64, flags: u32, events: u32, }
    /// Reply to `POLL`.
    PollOut: 8 { ready: u32, padding: u32, }
    /// `FALLOCATE`.
    FallocateIn: 32 { handle: u64, offset: u64, length: u64, mode: u32, padding: u32, }
    /// `LSEEK`.
    LseekIn: 24 { handle: u64, offset: u64, whence: u32, padding: u32, }
    /// Reply to `LSEEK`.
    LseekOut: 8 { offset: u64, }
    /// `COPY_FILE_RANGE`.
    CopyFileRangeIn: 56 { handle_in: u64, offset_in: u64, node_out: u64, handle_out: u64, offset_out: u64, length: u64, flags: u64, }
    /// `SYNCFS`.
    SyncFsIn: 8 { padding: u64, }
    /// `STATX`.
    StatXIn: 24 { getattr_flags: u32, reserved: u32, handle: u64, flags: u32, mask: u32, }
    /// A time in `STATX`.
    StatXTime: 16 { seconds: i64, nanoseconds: u32, reserved: i32, }
    /// What `statx` shows.
    StatXWire: 256 {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64,
        atime: StatXTime, btime: StatXTime, ctime: StatXTime, mtime: StatXTime, rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32,
        spare2: [u64; 14],
    }
    /// Reply to `STATX`.
    StatXOut: 288 { valid: u64, valid_ns: u32, flags: u32, spare: [u64; 2], stat: StatXWire, }
    /// Head of one directory entry.
    DirEntryHead: 24 { ino: u64, offset: u64, name_len: u32, kind: u32, }
    /// Notification: drop cached attributes and data.
    InvalInodeOut: 24 { node: u64, offset: i64, length: i64, }
    /// Notification: drop a cached name.
    InvalEntryOut: 16 { parent: u64, name_len: u32, flags: u32, }
    /// Notification: this name is gone.
    DeleteOut: 24 { parent: u64, child: u64, name_len: u32, padding: u32, }
    /// io_uring: where a request sits in a queue.
    RingEntry: 32 { flags: u64, commit_id: u64, payload_size: u32, padding: u32, reserved: u64, }
    /// io_uring: the command part of a submission.
    RingCommand: 24 { flags: u64, commit_id: u64, queue: u16, padding: [u8; 6], }
}

/// io_uring: the header area that is shared with the kernel, one for each entry of a queue.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RingHeader {
    /// [`InHeader`] on the way in, [`OutHeader`] on the way out.
    pub in_out: [u8; 128],
    /// The fixed structure of the request.
    pub fixed: [u8; 128],
    /// Which request this is.
    pub entry: RingEntry,
}
const _: () = assert!(size_of::<RingHeader>() == 288);

/// io_uring command: offer an entry to a queue.
pub const RING_REGISTER: u32 = 1;
/// io_uring command: reply, and wait for the next request.
pub const RING_COMMIT_AND_FETCH: u32 = 2;

/// Notification codes.
pub const NOTIFY_INVAL_INODE: i32 = 2;
/// See [`NOTIFY_INVAL_INODE`].
pub const NOTIFY_INVAL_ENTRY: i32 = 3;
/// See [`NOTIFY_INVAL_INODE`].
pub const NOTIFY_DELETE: i32 = 6;
/// See [`NOTIFY_INVAL_INODE`].
pub const NOTIFY_INC_EPOCH: i32 = 8;
/// Flag of [`InvalEntryOut`]: only end the name's time to live.
pub const EXPIRE_ONLY: u32 = 1;

bitflags! {
    /// What kernel and server agree on at `INIT`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    #[allow(missing_docs)] // the names are the kernel's
    pub struct InitFlags: u64 {
        const ASYNC_READ = 1;
        const POSIX_LOCKS = 1 << 1;
        const ATOMIC_O_TRUNC = 1 << 3;
        const EXPORT_SUPPORT = 1 << 4;
        const BIG_WRITES = 1 << 5;
        const DONT_MASK = 1 << 6;
        const SPLICE_WRITE = 1 << 7;
        const SPLICE_MOVE = 1 << 8;
        const SPLICE_READ = 1 << 9;
        const FLOCK_LOCKS = 1 << 10;
        const HAS_IOCTL_DIR = 1 << 11;
        const AUTO_INVAL_DATA = 1 << 12;
        const DO_READDIRPLUS = 1 << 13;
        const READDIRPLUS_AUTO = 1 << 14;
        const ASYNC_DIO = 1 << 15;
        const WRITEBACK_CACHE = 1 << 16;
        const NO_OPEN_SUPPORT = 1 << 17;
        const PARALLEL_DIROPS = 1 << 18;
        const HANDLE_KILLPRIV = 1 << 19;
        const POSIX_ACL = 1 << 20;
        const ABORT_ERROR = 1 << 21;
        const MAX_PAGES = 1 << 22;
        const CACHE_SYMLINKS = 1 << 23;
        const NO_OPENDIR_SUPPORT = 1 << 24;
        const EXPLICIT_INVAL_DATA = 1 << 25;
        const SUBMOUNTS = 1 << 27;
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        const SETXATTR_EXT = 1 << 29;
        const INIT_EXT = 1 << 30;
        const SECURITY_CONTEXT = 1 << 32;
        const CREATE_SUPP_GROUP = 1 << 34;
        const HAS_EXPIRE_ONLY = 1 << 35;
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        const NO_EXPORT_SUPPORT = 1 << 38;
        const HAS_RESEND = 1 << 39;
        const OVER_IO_URING = 1 << 41;
    }

    /// Which fields of [`SetAttrIn`] count.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct SetAttrValid: u32 {
        const MODE = 1;
        const UID = 1 << 1;
        const GID = 1 << 2;
        const SIZE = 1 << 3;
        const ATIME = 1 << 4;
        const MTIME = 1 << 5;
        const HANDLE = 1 << 6;
        const ATIME_NOW = 1 << 7;
        const MTIME_NOW = 1 << 8;
        const LOCK_OWNER = 1 << 9;
        const CTIME = 1 << 10;
        const KILL_SUIDGID = 1 << 11;
    }

    /// How the kernel shall treat an open file.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct OpenedFlags: u32 {
        /// Every read and write comes to us; nothing is cached.
        const DIRECT_IO = 1;
        /// What is cached stays cached.
        const KEEP_CACHE = 1 << 1;
        /// No file position may be chosen.
        const NONSEEKABLE = 1 << 2;
        /// The entries of this directory may be cached.
        const CACHE_DIR = 1 << 3;
        /// No file position at all.
        const STREAM = 1 << 4;
        /// No `FLUSH` when a descriptor is closed.
        const NO_FLUSH = 1 << 5;
        /// Direct writes to one file may run side by side.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
    }

    /// Flags of a write.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct WriteFlags: u32 {
        /// Comes from the page cache, later than the `write(2)` that made it; uid and handle are guesses.
        const CACHE = 1;
        /// `lock_owner` is meant.
        const LOCK_OWNER = 1 << 1;
        /// Set-user-id and set-group-id bits must go.
        const KILL_SUIDGID = 1 << 2;
    }
}

/// Flag of [`GetAttrIn`]: the handle is meant.
pub const GETATTR_HANDLE: u32 = 1;
/// Kind of [`ExtensionHead`]: groups of the caller, as a number of them and their ids.
pub const EXTENSION_GROUPS: u32 = 32;
/// Flag of [`FsyncIn`]: data only.
pub const FSYNC_DATA_ONLY: u32 = 1;
/// Flag in `open_flags` of [`OpenIn`]: truncation must clear set-user-id and set-group-id bits.
pub const OPEN_KILL_SUIDGID: u32 = 1;
/// Flag of [`SetXattrIn`]: a changed access ACL must clear the set-group-id bit.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1;
/// Flag of [`LockIn`]: `flock`, not a POSIX lock.
pub const LOCK_FLOCK: u32 = 1;
/// `ioctl` on the device file: make this descriptor a second queue of the same mount.
pub const DEV_IOC_CLONE: u64 = 0x8004_e500;
