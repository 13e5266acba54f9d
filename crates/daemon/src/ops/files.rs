//! Contents of files: read, written, synced, allocated, copied.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fuse::{Context, CopyRange, Errno, Fallocate, Opened, OpenedFlags, Read, Result, Write, WriteFlags};
use tarnfs::{CloneRange, Credentials, Direct, FileSystem, InodeNumber, ReadManner, WriteManner, WriteMode};

use super::caller::{CAP_FSETID, Rights};
use super::cache::writeback::WRITER;
use super::cache::teller::Forget;
use super::nodes::node::Node;
use super::{Ops, SyncPolicy};

/// Bytes copied in one step of `copy_file_range`.
const COPY_STEP: usize = 1 << 20;
/// The most bytes copied in one call; the caller asks again for the rest, though not all callers do.
const COPY_MAX: u64 = 1 << 30;
/// A call returns after this time with what it has copied, as no signal ends it.
const COPY_TIME: Duration = Duration::from_secs(10);
const O_DSYNC: u32 = libc::O_DSYNC as u32;
const O_DIRECT: u32 = libc::O_DIRECT as u32;
const O_NOATIME: u32 = libc::O_NOATIME as u32;
/// The kernel knows the end of a file unless another program changed it. Then it asks before it reads, but not before
/// it appends.
const O_APPEND: u32 = libc::O_APPEND as u32;
/// Flag in the handle of an open file: it is served past the kernel's cache.
const PAST_CACHE: u64 = 2;
/// The attribute with the capabilities that a program gives to any user that runs it.
const CAPABILITIES: &[u8] = b"security.capability";
pub(super) const SET_IDS: u32 = libc::S_ISUID | libc::S_ISGID;

/// The credentials with which the library sees a change to a file of this mode: the superuser's if set-id bits may
/// stay. `must_go` is what the kernel says of that; if `None`, the caller's capability decides.
pub(super) fn writer(cx: &Context, mode: u32, must_go: Option<bool>) -> Credentials {
    // Few files have such bits, so only for them more is found out than the request says.
    let rights = (mode & SET_IDS != 0).then(|| Rights::of(cx));
    let may_stay = must_go.map_or_else(|| rights.as_ref().map_or(cx.uid == 0, |rights| rights.has(CAP_FSETID)), |must_go| !must_go);
    if may_stay {
        return Credentials::root();
    }
    Credentials { uid: cx.uid.max(1), gid: cx.gid, groups: rights.map_or(Vec::new(), |rights| rights.groups), umask: 0 }
}

/// Removes the file's capabilities before its contents change. The kernel does so itself for writes through its cache;
/// for writes past it, and for a file that is emptied as it is opened, it leaves that to us.
fn end_capabilities(filesystem: &FileSystem, inode: InodeNumber) -> Result<()> {
    if filesystem.has_xattr(inode, CAPABILITIES).unwrap_or(false) { filesystem.removexattr(inode, CAPABILITIES).map_err(crate::errno::of) } else { Ok(()) }
}

fn may_write(flags: u32) -> bool {
    flags & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32
}

/// Whether a file opened in this way is better served past the kernel's cache.
fn goes_past_cache(flags: u32, is_empty: impl FnOnce() -> bool) -> bool {
    const O_EXCL: u32 = libc::O_EXCL as u32;
    // One request for each write that is to be durable, instead of a write and a sync.
    let durable = may_write(flags) && flags & O_DSYNC != 0;
    // A file that is written from its beginning and cannot be read through this descriptor is copied once instead of
    // twice. Not so a file that must be new (`O_EXCL`): that is how small files of a tree are unpacked, which will be
    // read soon.
    let may_be_poured = flags & libc::O_ACCMODE as u32 == libc::O_WRONLY as u32 && flags & O_EXCL == 0;
    durable || may_be_poured && is_empty()
}

impl Ops {
    /// A file that was made just now.
    pub(super) fn opened_new(&self, node: u64, flags: u32) -> Opened {
        self.opened(node, flags, || true)
    }

    /// What is cached stays cached, since only the kernel changes files.
    fn opened(&self, node: u64, flags: u32, is_empty: impl FnOnce() -> bool) -> Opened {
        let mut opened = Opened { handle: 0, flags: OpenedFlags::KEEP_CACHE | OpenedFlags::NO_FLUSH };
        if may_write(flags) {
            self.writeback.opened(node);
            opened.handle = WRITER;
        }
        if self.may_be_direct.load(Ordering::Relaxed) && (self.goes_past_all(flags) || goes_past_cache(flags, is_empty)) {
            opened.handle |= PAST_CACHE;
            opened.flags |= OpenedFlags::DIRECT_IO | OpenedFlags::PARALLEL_DIRECT_WRITES;
        }
        opened
    }

    /// Whether what is read and written through this descriptor is to go past our own cache, too. If the kernel cached it, we would not be asked.
    fn goes_past_all(&self, flags: u32) -> bool {
        match self.head.current().map(|filesystem| filesystem.direct()) {
            Some(Direct::Always) => true,
            Some(Direct::Standard) => flags & O_DIRECT != 0,
            Some(Direct::Disabled) | None => false,
        }
    }

    /// As [`writer`], of a file that is not known yet.
    pub(super) fn writer_of(&self, cx: &Context, (filesystem, inode): (&FileSystem, InodeNumber), must_go: Option<bool>) -> Result<Credentials> {
        if must_go == Some(false) {
            return Ok(Credentials::root());
        }
        let stat = filesystem.getattr(inode).map_err(crate::errno::of)?;
        Ok(writer(cx, stat.mode, must_go))
    }

    pub(super) fn open_file(&self, cx: &Context, number: u64, flags: u32, kill_suidgid: bool) -> Result<Opened> {
        let node = Node::of(number);
        if may_write(flags) {
            self.check_may_write(node, flags)?;
        }
        if flags & libc::O_TRUNC as u32 != 0 {
            let (filesystem, inode) = self.locate_for_change(node)?;
            end_capabilities(&filesystem, inode)?;
            let whose = self.writer_of(cx, (&filesystem, inode), Some(kill_suidgid))?;
            filesystem.truncate(inode, 0, &whose).map_err(crate::errno::of)?;
        }
        let stat = || self.locate(node).and_then(|(located, inode)| located.filesystem().getattr(inode).map_err(crate::errno::of));
        Ok(self.opened(number, flags, || stat().is_ok_and(|stat| stat.size == 0)))
    }

    pub(super) fn read_file(&self, read: &Read, out: &mut [u8]) -> Result<usize> {
        let (located, inode) = self.locate(Node::of(read.node))?;
        let filesystem = located.filesystem();
        let manner = ReadManner { direct: read.flags & O_DIRECT != 0, unnoticed: read.flags & O_NOATIME != 0 };
        filesystem.read_as(inode, read.offset, out, manner).map_err(crate::errno::of)
    }

    pub(super) fn write_file(&self, cx: &Context, write: &Write, data: &[u8]) -> Result<usize> {
        let (filesystem, inode) = self.locate_for_change(Node::of(write.node))?;
        let kill = write.write_flags.contains(WriteFlags::KILL_SUIDGID);
        let from_cache = write.write_flags.contains(WriteFlags::CACHE);
        // A write from the page cache is synced by the kernel when its writer asked for that.
        let asked = write.flags & O_DSYNC != 0 && !from_cache;
        let is_durable = match self.options.read().sync {
            SyncPolicy::Always => true,
            SyncPolicy::Standard => asked,
            SyncPolicy::Disabled => false,
        };
        if from_cache && self.writeback.is_agreed() {
            let written = filesystem.write(inode, WriteMode::Collected(write.offset), data, &Credentials::root()).map_err(crate::errno::of);
            self.written_back(write.node, data.len(), written.map(|_| ()))?;
            if is_durable {
                self.sync_inode(&filesystem, inode)?;
            }
        } else {
            if write.handle & PAST_CACHE != 0 {
                end_capabilities(&filesystem, inode)?;
            }
            let mode = match write.flags & O_APPEND != 0 {
                _ if from_cache => WriteMode::Mapped(write.offset),
                true => WriteMode::Append,
                false => WriteMode::At(write.offset),
            };
            let whose = self.writer_of(cx, (&filesystem, inode), Some(kill))?;
            if is_durable {
                fuse::before_blocking();
            }
            let manner = WriteManner { direct: write.flags & O_DIRECT != 0, durable: is_durable };
            let went_to = filesystem.write_as(inode, mode, data, manner, &whose).map_err(crate::errno::of)?;
            if went_to != write.offset {
                // The kernel has put the data where it took the end for.
                self.writeback.forget(Forget::Contents(write.node));
            }
        }
        Ok(data.len())
    }

    fn sync_inode(&self, filesystem: &FileSystem, inode: InodeNumber) -> Result<()> {
        fuse::before_blocking();
        filesystem.fsync(inode).map_err(crate::errno::of)
    }

    pub(super) fn sync_node(&self, node: Node) -> Result<()> {
        if matches!(node, Node::Snapshot(..) | Node::Control | Node::Snapshots) || self.options.read().sync == SyncPolicy::Disabled {
            return Ok(());
        }
        let (filesystem, inode) = self.locate_for_change(node)?;
        self.sync_inode(&filesystem, inode)
    }

    pub(super) fn allocate(&self, cx: &Context, node: Node, fallocate: &Fallocate) -> Result<()> {
        const KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
        const PUNCH: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32 | KEEP_SIZE;
        const ZERO: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;
        const ZERO_KEEP: u32 = ZERO | KEEP_SIZE;
        let (filesystem, inode) = self.locate_for_change(node)?;
        let (offset, length) = (fallocate.offset, fallocate.length);
        let cx = self.writer_of(cx, (&filesystem, inode), None)?;
        let result = match fallocate.mode {
            0 | KEEP_SIZE => filesystem.allocate(inode, offset, length, fallocate.mode == KEEP_SIZE, &cx),
            PUNCH | ZERO_KEEP => filesystem.punch_hole(inode, offset, length, &cx),
            ZERO => filesystem.punch_hole(inode, offset, length, &cx).and_then(|()| filesystem.extend(inode, offset.saturating_add(length), &cx)),
            _ => return Err(Errno::EOPNOTSUPP),
        };
        result.map_err(crate::errno::of)
    }

    #[allow(clippy::disallowed_methods)] // how long a caller waits is no matter of replay
    pub(super) fn copy_range(&self, cx: &Context, from: Node, copy: &CopyRange) -> Result<u64> {
        let (located, source) = self.locate(from)?;
        let (filesystem, target) = self.locate_for_change(Node::of(copy.node_out))?;
        let cx = self.writer_of(cx, (&filesystem, target), None)?;
        let wanted = copy.length.min(COPY_MAX);
        // Blocks that can be shared need not be copied. A failure is met again by the copy.
        let range = CloneRange { source, from: copy.offset_in, target, to: copy.offset_out, length: wanted };
        let shared = filesystem.clone_range(located.filesystem(), &range, &cx);
        let mut is_unclear = shared.is_err();
        let mut copied = shared.unwrap_or(0);
        let begun = Instant::now();
        while copied < wanted {
            if copied > 0 && begun.elapsed() >= COPY_TIME {
                is_unclear = true;
                break;
            }
            let step = usize::try_from(wanted - copied).unwrap_or(COPY_STEP).min(COPY_STEP);
            let done = located
                .filesystem()
                .read(source, copy.offset_in.saturating_add(copied), step)
                .and_then(|bytes| filesystem.write(target, WriteMode::At(copy.offset_out.saturating_add(copied)), &bytes, &cx).map(|_| bytes.len()));
            match done {
                Ok(0) => break,
                Ok(count) => copied += count as u64,
                // What was copied before the failure counts; the next call meets the failure again.
                Err(_) if copied > 0 => {
                    is_unclear = true;
                    break;
                }
                Err(error) => return Err(crate::errno::of(error)),
            }
        }
        if is_unclear {
            // More may have changed than is said to be copied.
            self.writeback.forget(Forget::Contents(copy.node_out));
        }
        Ok(copied)
    }

    /// What came of a change of contents that the kernel has cached: it forgets by itself what was changed, but not if it hears of a failure. Some of it may be done.
    pub(super) fn forgotten_if_failed<T>(&self, node: u64, result: Result<T>) -> Result<T> {
        result.inspect_err(|_| self.writeback.forget(Forget::Contents(node)))
    }
}
