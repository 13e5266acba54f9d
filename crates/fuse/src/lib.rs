//! The kernel's FUSE protocol and its transports; knows nothing of ZFS.
//!
//! # Theory
//! The kernel turns system calls on a mounted file system into numbered requests. A *transport* fetches them and
//! carries the replies back: [`listener`](transport::listener) and [`devfuse`] by `read` and `writev` on `/dev/fuse`, [`uring`] through one io_uring queue
//! for each CPU. The [`crew`](transport::crew) has the threads for all mounts of the process. All call the same function, [`dispatch::handle`], which decodes the request, calls one method of the
//! [`Filesystem`] and encodes what it returns. A [`Session`] is one mounted file system with its transport.
//!
//! Operations run on the thread that fetched them, because two wake-ups of another thread cost more than most
//! operations. An operation that waits for a disk must not stop the others: see the theory in each transport.
//!
//! # Path
//! kernel → `listener`/`porter` → `crew` → `dispatch::handle` → `Filesystem::{lookup, read, ...}` → kernel
#![warn(missing_docs)]
#![allow(unsafe_code)] // system calls, and memory shared with the kernel

mod directory;
pub mod dispatch;
mod errno;
mod filesystem;
mod mounting;
mod notify;
mod peer;
pub mod project;
pub mod protocol;
mod session;
mod transport;

pub use mounting::{errand, mount, mount_table, witness};
pub use transport::{devfuse, uring};

pub use mounting::backing::HELD_BYTES;
pub use transport::courtesy::claim_cpu;
pub use devfuse::before_blocking;
pub use directory::{DirectoryPlusWriter, DirectoryWriter, EntryKind};
pub use errno::{Errno, Result};
pub use filesystem::{
    Attr, Attributes, Context, CopyRange, Created, Entry, ExtendedAttribute, Fallocate, FileLock, Filesystem, Ioctl, LockRequest, Negotiated, Opened, Owner, Read, SetAttr,
    SetTime, StatFs, StatX, Timestamp, Write,
};
pub use mount::{Mount, MountOptions};
pub use mount_table::MountPoints;
pub use notify::Notifier;
pub use peer::{Peer, peer, peer_groups};
pub use protocol::{OpenedFlags, ROOT_NODE, WriteFlags};
pub use session::{Session, SessionOptions, TransportChoice, TransportKind};
pub use mounting::partition::stand_apart;
pub use mounting::standing::Standing;
