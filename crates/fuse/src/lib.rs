//! The kernel's FUSE protocol and its transports; knows nothing of ZFS.
//!
//! # Theory
//! The kernel turns system calls on a mounted file system into numbered requests. A *transport* fetches them and
//! carries the replies back: [`listener`] and [`devfuse`] by `read` and `writev` on `/dev/fuse`, [`uring`] through one io_uring queue
//! for each CPU. The [`crew`] has the threads for all mounts of the process. All call the same function, [`dispatch::handle`], which decodes the request, calls one method of the
//! [`Filesystem`] and encodes what it returns. A [`Session`] is one mounted file system with its transport.
//!
//! Operations run on the thread that fetched them, because two wake-ups of another thread cost more than most
//! operations. An operation that waits for a disk must not stop the others: see the theory in each transport.
//!
//! # Path
//! kernel → `listener`/`porter` → `crew` → `dispatch::handle` → `Filesystem::{lookup, read, ...}` → kernel
#![warn(missing_docs)]
#![allow(unsafe_code)] // system calls, and memory shared with the kernel

mod backing;
mod buffer;
mod courtesy;
mod crew;
pub mod devfuse;
mod directory;
pub mod dispatch;
mod entry;
mod errno;
pub mod errand;
mod filesystem;
mod heat;
mod listener;
pub mod mount;
mod notify;
mod partition;
mod peer;
mod porter;
pub mod protocol;
mod session;
mod standing;
mod table;
pub mod uring;
mod users;
pub mod witness;

pub use backing::HELD_BYTES;
pub use courtesy::claim_cpu;
pub use devfuse::before_blocking;
pub use directory::{DirectoryPlusWriter, DirectoryWriter, EntryKind};
pub use errno::{Errno, Result};
pub use filesystem::{
    Attr, Attributes, Context, CopyRange, Created, Entry, ExtendedAttribute, Fallocate, FileLock, Filesystem, Ioctl, LockRequest, Negotiated, Opened, Owner, Read, SetAttr,
    SetTime, StatFs, StatX, Timestamp, Write,
};
pub use mount::{Mount, MountOptions};
pub use notify::Notifier;
pub use peer::{Peer, peer};
pub use protocol::{OpenedFlags, ROOT_NODE, WriteFlags};
pub use session::{Session, SessionOptions, TransportChoice, TransportKind};
pub use standing::Standing;
pub use table::Sight;
