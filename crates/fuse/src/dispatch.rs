//! One request in, one reply out: decodes, calls the file system, encodes. The same for every transport.
//!
//! # Invariants
//! 1. A request that is too short, or whose names are not ended, is answered `EIO` or `EINVAL`; it never panics.
//! 2. A panic inside an operation becomes `EIO` for that operation.
//! 3. Nothing is written beyond `out`, and a reply never exceeds the size that the kernel asked for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::protocol::*;
use crate::*;

/// Enough for every reply but data, listings, extended attributes and links.
pub const SMALL_REPLY: usize = 512;

/// A request, split into its parts.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The common header.
    pub header: &'a InHeader,
    /// The operation.
    pub opcode: Opcode,
    /// The fixed structure.
    pub fixed: &'a [u8],
    /// Names and data.
    pub payload: &'a [u8],
}

/// What to send back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The number of bytes of `out`.
    Reply(usize),
    /// An error, without bytes.
    Error(Errno),
    /// Nothing: the kernel does not wait.
    Silent,
}

impl<'a> Request<'a> {
    /// Splits a contiguous message, as `/dev/fuse` delivers it. `Err`: answer this.
    pub fn parse(header: &'a InHeader, body: &'a [u8]) -> Result<Request<'a>> {
        let opcode = Opcode::from_number(header.opcode).ok_or(Errno::ENOSYS)?;
        let (fixed, payload) = body.split_at_checked(opcode.fixed_len()).ok_or(Errno::EINVAL)?;
        Ok(Request { header, opcode, fixed, payload })
    }

    /// Whether `out` must be as long as the caller of the system call asked for.
    pub fn has_long_reply(&self) -> bool {
        is_long_reply(self.opcode)
    }

    fn fixed<T: FromBytes + KnownLayout + Immutable + Copy>(&self) -> Result<T> {
        T::read_from_prefix(self.fixed).map(|(value, _)| value).map_err(|_| Errno::EINVAL)
    }

    /// The only name.
    fn name(&self) -> Result<&'a [u8]> {
        split_name(self.payload).map(|(name, _)| name)
    }

    /// Two names.
    fn names(&self) -> Result<(&'a [u8], &'a [u8])> {
        let (first, rest) = split_name(self.payload)?;
        let (second, _) = split_name(rest)?;
        Ok((first, second))
    }
}

/// Operations whose reply has no fixed size.
pub fn is_long_reply(opcode: Opcode) -> bool {
    use Opcode::*;
    matches!(opcode, Read | ReadDir | ReadDirPlus | ReadLink | GetXattr | ListXattr | Ioctl)
}

/// Whether this operation is likely to wait for a disk, or to take long. A hint: transports then make room for the
/// others first.
pub fn is_heavy(request: &Request<'_>) -> bool {
    const LARGE: u32 = 128 << 10;
    match request.opcode {
        Opcode::Fsync | Opcode::FsyncDir | Opcode::SyncFs | Opcode::Fallocate | Opcode::CopyFileRange | Opcode::CopyFileRange64 | Opcode::SetLockWait | Opcode::Ioctl => true,
        Opcode::Write => request.fixed::<WriteIn>().is_ok_and(|write| write.size >= LARGE || write.flags & libc::O_DSYNC as u32 != 0),
        Opcode::Read => request.fixed::<ReadIn>().is_ok_and(|read| read.size >= LARGE),
        _ => false,
    }
}

/// Whether this operation moves so many bytes that it is better done on another CPU than its caller's. True of what the
/// kernel asks for in advance, several requests at a time: write-back and read-ahead.
pub fn is_bulk(request: &Request<'_>) -> bool {
    const LARGE: u32 = 64 << 10;
    match request.opcode {
        Opcode::Write => request.fixed::<WriteIn>().is_ok_and(|write| write.size >= LARGE && write.write_flags & WriteFlags::CACHE.bits() != 0),
        Opcode::Read => request.fixed::<ReadIn>().is_ok_and(|read| read.size > LARGE),
        _ => false,
    }
}

fn split_name(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0).ok_or(Errno::EINVAL)?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}

/// Runs one request. `out` must hold [`SMALL_REPLY`] bytes, or what the kernel asked for if
/// [`Request::has_long_reply`]; it must not overlap the request.
pub fn handle(filesystem: &dyn Filesystem, request: &Request<'_>, out: &mut [u8]) -> Outcome {
    let result = catch_unwind(AssertUnwindSafe(|| run(filesystem, request, out)));
    match result {
        Ok(Ok(Some(len))) => Outcome::Reply(len),
        Ok(Ok(None)) => Outcome::Silent,
        Ok(Err(errno)) => Outcome::Error(errno),
        Err(_) => {
            tracing::error!(opcode = ?request.opcode, node = request.header.node, "an operation panicked; answered EIO");
            if matches!(request.opcode, Opcode::Forget | Opcode::BatchForget) { Outcome::Silent } else { Outcome::Error(Errno::EIO) }
        }
    }
}

type Handled = Result<Option<usize>>;

fn run(filesystem: &dyn Filesystem, request: &Request<'_>, out: &mut [u8]) -> Handled {
    use Opcode::*;
    match request.opcode {
        Lookup | GetAttr | SetAttr | ReadLink | StatFs | StatX | Access | Forget | BatchForget => nodes(filesystem, request, out),
        SymLink | MkNod | MkDir | Unlink | RmDir | Rename | Rename2 | Link | Create | TmpFile => names(filesystem, request, out),
        Open | Read | Write | Release | Flush | Fsync | Fallocate | Lseek | CopyFileRange | CopyFileRange64 => files(filesystem, request, out),
        OpenDir | ReadDir | ReadDirPlus | ReleaseDir | FsyncDir | SyncFs => directories(filesystem, request, out),
        SetXattr | GetXattr | ListXattr | RemoveXattr => attributes(filesystem, request, out),
        GetLock | SetLock | SetLockWait | Interrupt | Ioctl => control(filesystem, request, out),
        // `umount` waits for the answer, if the mount is on a block device; no other is asked.
        Destroy => filesystem.syncfs(&context(request.header)).or(Ok(())).map(|()| Some(0)),
        NotifyReply => Ok(None),
        Init => Err(Errno::EIO), // once only, before the transport starts
        BlockMap | Poll => Err(Errno::ENOSYS),
    }
}

fn context(header: &InHeader) -> Context {
    Context { unique: header.unique, uid: header.uid, gid: header.gid, pid: header.pid, other_group: None }
}

/// The group among the extensions, which are the end of the payload. The kernel sends one at most.
fn other_group(request: &Request<'_>) -> Option<u32> {
    let length = usize::from(request.header.extension_words) * 8;
    let mut rest = request.payload.get(request.payload.len().checked_sub(length)?..)?;
    while let Ok((head, _)) = ExtensionHead::read_from_prefix(rest) {
        let size = (head.size as usize).max(size_of::<ExtensionHead>());
        let body = rest.get(size_of::<ExtensionHead>()..size)?;
        if head.kind == EXTENSION_GROUPS {
            let (count, groups) = u32::read_from_prefix(body).ok()?;
            let (group, _) = u32::read_from_prefix(groups).ok().filter(|_| count > 0)?;
            return Some(group);
        }
        rest = rest.get(size.checked_next_multiple_of(8)?..)?;
    }
    None
}

fn nodes(filesystem: &dyn Filesystem, request: &Request<'_>, out: &mut [u8]) -> Handled {
    let (cx, node) = (&context(request.header), request.header.node);
    match request.opcode {
        Opcode::Lookup => put(out, &entry_out(&filesystem.lookup(cx, node, request.name()?)?)),
        Opcode::GetAttr => {
            let fixed: GetAttrIn = request.fixed()?;
            let handle = (fixed.flags & GETATTR_HANDLE != 0).then_some(fixed.handle);
            put(out, &attr_out(&filesystem.getattr(cx, node, handle)?))
        }
        Opcode::SetAttr => put(out, &attr_out(&filesystem.setattr(cx, node, &set_attr(&request.fixed()?))?)),
        Opcode::ReadLink => put_bytes(out, &filesystem.readlink(cx, node)?),
        Opcode::StatFs => put(out, &statfs_out(&filesystem.statfs(cx, node)?)),
        Opcode::StatX => {
            let fixed: StatXIn = request.fixed()?;
            let handle = (fixed.getattr_flags & GETATTR_HANDLE != 0).then_some(fixed.handle);
            put(out, &statx_out(&filesystem.statx(cx, node, handle)?))
        }
        Opcode::Access => done(filesystem.access(cx, node, request.fixed::<AccessIn>()?.mask)),
        Opcode::Forget => {
            filesystem.forget(node, request.fixed::<ForgetIn>().map_or(0, |fixed| fixed.count));
            Ok(None)
        }
        _ => {
            let count = request.fixed::<BatchForgetIn>().map_or(0, |fixed| fixed.count) as usize;
            for one in request.payload.chunks_exact(size_of::<ForgetOne>()).take(count) {
                if let Ok(one) = ForgetOne::read_from_bytes(one) {
                    filesystem.forget(one.node, one.count);
                }
            }
            Ok(None)
        }
    }
}

fn names(filesystem: &dyn Filesystem, request: &Request<'_>, out: &mut [u8]) -> Handled {
    let (cx, parent) = (&Context { other_group: other_group(request), ..context(request.header) }, request.header.node);
    match request.opcode {
        Opcode::SymLink => {
            let (name, target) = request.names()?;
            put(out, &entry_out(&filesystem.symlink(cx, parent, name, target)?))
        }
        Opcode::MkNod => {
            let fixed: MkNodIn = request.fixed()?;
            put(out, &entry_out(&filesystem.mknod(cx, parent, request.name()?, fixed.mode, fixed.rdev, fixed.umask)?))
        }
        Opcode::MkDir => {
            let fixed: MkDirIn = request.fixed()?;
            put(out, &entry_out(&filesystem.mkdir(cx, parent, request.name()?, fixed.mode, fixed.umask)?))
        }
        Opcode::Unlink => done(filesystem.unlink(cx, parent, request.name()?)),
        Opcode::RmDir => done(filesystem.rmdir(cx, parent, request.name()?)),
        Opcode::Rename => {
            let (name, new_name) = request.names()?;
            done(filesystem.rename(cx, parent, name, request.fixed::<RenameIn>()?.new_parent, new_name, 0))
        }
        Opcode::Rename2 => {
            let (name, new_name) = request.names()?;
            let fixed: Rename2In = request.fixed()?;
            done(filesystem.rename(cx, parent, name, fixed.new_parent, new_name, fixed.flags))
        }
        Opcode::Link => put(out, &entry_out(&filesystem.link(cx, request.fixed::<LinkIn>()?.node, parent, request.name()?)?)),
        opcode => {
            let fixed: CreateIn = request.fixed()?;
            let created = if opcode == Opcode::Create {
                filesystem.create(cx, parent, request.name()?, fixed.mode, fixed.umask, fixed.flags)?
            } else {
                filesystem.tmpfile(cx, parent, fixed.mode, fixed.umask, fixed.flags)?
            };
            let first = put(out, &entry_out(&created.entry))?.unwrap_or(0);
            let second = put(&mut out[first..], &open_out(&created.opened))?.unwrap_or(0);
            Ok(Some(first + second))
        }
    }
}

fn files(filesystem: &dyn Filesystem, request: &Request<'_>, out: &mut [u8]) -> Handled {
    let (cx, node) = (&context(request.header), request.header.node);
    match request.opcode {
        Opcode::Open => {
            let fixed: OpenIn = request.fixed()?;
            put(out, &open_out(&filesystem.open(cx, node, fixed.flags, fixed.open_flags & OPEN_KILL_SUIDGID != 0)?))
        }
        Opcode::Read => {
            let fixed: ReadIn = request.fixed()?;
            let out = asked(out, fixed.size)?;
            let len = filesystem.read(cx, &self::read(node, &fixed), out)?;
            assert!(len <= out.len(), "read returned more than was asked for");
            Ok(Some(len))
        }
        Opcode::Write => {
            let fixed: WriteIn = request.fixed()?;
            let data = request.payload.get(..fixed.size as usize).ok_or(Errno::EINVAL)?;
            let write_flags = WriteFlags::from_bits_truncate(fixed.write_flags);
            let write = self::Write { node, handle: fixed.handle, offset: fixed.offset, flags: fixed.flags, write_flags };
            let written = filesystem.write(cx, &write, data)?;
            put(out, &WriteOut { size: u32::try_from(written.min(data.len())).unwrap_or(u32::MAX), padding: 0 })
        }
        Opcode::Release => {
            let fixed: ReleaseIn = request.fixed()?;
            done(filesystem.release(cx, node, fixed.handle, fixed.flags, Owner(fixed.lock_owner)))
        }
        Opcode::Flush => {
            let fixed: FlushIn = request.fixed()?;
            done(filesystem.flush(cx, node, fixed.handle, Owner(fixed.lock_owner)))
        }
        Opcode::Fsync => {
            let fixed: FsyncIn = request.fixed()?;
            done(filesystem.fsync(cx, node, fixed.handle, fixed.flags & FSYNC_DATA_ONLY != 0))
        }
        Opcode::Fallocate => {
            let fixed: FallocateIn = request.fixed()?;
            let fallocate = self::Fallocate { handle: fixed.handle, offset: fixed.offset, length: fixed.length, mode: fixed.mode };
            done(filesystem.fallocate(cx, node, &fallocate))
        }
        Opcode::Lseek => {
            let fixed: LseekIn = request.fixed()?;
            put(out, &LseekOut { offset: filesystem.lseek(cx, node, fixed.handle, fixed.offset, fixed.whence)? })
        }
        opcode => {
            let fixed: CopyFileRangeIn = request.fixed()?;
            let narrow = opcode == Opcode::CopyFileRange;
            let copied = filesystem.copy_file_range(cx, node, &copy_range(&fixed, narrow))?;
            if narrow { put(out, &WriteOut { size: u32::try_from(copied).unwrap_or(u32::MAX), padding: 0 }) } else { put(out, &CopyFileRangeOut { copied }) }
        }
    }
}

fn directories(filesystem: &dyn Filesystem, request: &Request<'_>, out: &mut [u8]) -> Handled {
    let (cx, node) = (&context(request.header), request.header.node);
    match request.opcode {
        Opcode::OpenDir => put(out, &open_out(&filesystem.opendir(cx, node, request.fixed::<OpenIn>()?.flags)?)),
        Opcode::ReadDir => {
            let fixed: ReadIn = request.fixed()?;
            let mut writer = DirectoryWriter::new(asked(out, fixed.size)?);
            filesystem.readdir(cx, node, fixed.handle, fixed.offset, &mut writer)?;
            Ok(Some(writer.len()))
        }
        Opcode::ReadDirPlus => {
            let fixed: ReadIn = request.fixed()?;
            let mut writer = DirectoryPlusWriter::new(asked(out, fixed.size)?);
            filesystem.readdirplus(cx, node, fixed.handle, fixed.offset, &mut writer)?;
            Ok(Some(writer.len()))
        }
        Opcode::ReleaseDir => done(filesystem.releasedir(cx, node, request.fixed::<ReleaseIn>()?.handle)),
        Opcode::FsyncDir => {
            let fixed: FsyncIn = request.fixed()?;
            done(filesystem.fsyncdir(cx, node, fixed.handle, fixed.flags & FSYNC_DATA_ONLY != 0))
        }
        _ => done(filesystem.syncfs(cx)),
    }
}

fn attributes(filesystem: &dyn Filesystem, request: &Request<'_>, out: &mut [u8]) -> Handled {
    let (cx, node) = (&context(request.header), request.header.node);
    match request.opcode {
        Opcode::SetXattr => {
            let fixed: SetXattrIn = request.fixed()?;
            let (name, rest) = split_name(request.payload)?;
            let value = rest.get(..fixed.size as usize).ok_or(Errno::EINVAL)?;
            let kill_sgid = fixed.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0;
            done(filesystem.setxattr(cx, node, &ExtendedAttribute { name, value, flags: fixed.flags, kill_sgid }))
        }
        Opcode::RemoveXattr => done(filesystem.removexattr(cx, node, request.name()?)),
        opcode => {
            let fixed: GetXattrIn = request.fixed()?;
            let space = asked(out, fixed.size)?;
            let len = if opcode == Opcode::GetXattr { filesystem.getxattr(cx, node, request.name()?, space)? } else { filesystem.listxattr(cx, node, space)? };
            if fixed.size == 0 {
                return put(out, &GetXattrOut { size: u32::try_from(len).map_err(|_| Errno::E2BIG)?, padding: 0 });
            }
            if len > fixed.size as usize { Err(Errno::ERANGE) } else { Ok(Some(len)) }
        }
    }
}

fn control(filesystem: &dyn Filesystem, request: &Request<'_>, out: &mut [u8]) -> Handled {
    let (cx, node) = (&context(request.header), request.header.node);
    match request.opcode {
        Opcode::GetLock => {
            let lock = filesystem.getlock(cx, node, &lock_request(&request.fixed()?, false))?;
            put(out, &LockWire { start: lock.start, end: lock.end, kind: lock.kind, pid: lock.pid })
        }
        Opcode::SetLock | Opcode::SetLockWait => done(filesystem.setlock(cx, node, &lock_request(&request.fixed()?, request.opcode == Opcode::SetLockWait))),
        Opcode::Interrupt => match filesystem.interrupt(request.fixed::<InterruptIn>()?.unique) {
            Ok(()) => Ok(None),
            Err(errno) => Err(errno),
        },
        _ => {
            let fixed: IoctlIn = request.fixed()?;
            let input = request.payload.get(..fixed.in_size as usize).ok_or(Errno::EINVAL)?;
            let head = size_of::<IoctlOut>();
            let (first, rest) = out.split_at_mut_checked(head).ok_or(Errno::EIO)?;
            let ioctl = self::Ioctl { handle: fixed.handle, flags: fixed.flags, command: fixed.command, argument: fixed.argument, input };
            let room = asked(rest, fixed.out_size)?;
            let (result, len) = filesystem.ioctl(cx, node, &ioctl, room)?;
            put(first, &IoctlOut { result, flags: 0, in_iovs: 0, out_iovs: 0 })?;
            Ok(Some(head + len.min(fixed.out_size as usize)))
        }
    }
}

/// The part of `out` that the kernel has room for.
fn asked(out: &mut [u8], size: u32) -> Result<&mut [u8]> {
    out.get_mut(..size as usize).ok_or(Errno::EINVAL)
}

fn done(result: Result<()>) -> Handled {
    result.map(|()| Some(0))
}

fn put<T: IntoBytes + Immutable>(out: &mut [u8], value: &T) -> Handled {
    put_bytes(out, value.as_bytes())
}

fn put_bytes(out: &mut [u8], bytes: &[u8]) -> Handled {
    out.get_mut(..bytes.len()).ok_or(Errno::EIO)?.copy_from_slice(bytes);
    Ok(Some(bytes.len()))
}

fn read(node: u64, fixed: &ReadIn) -> Read {
    Read { node, handle: fixed.handle, offset: fixed.offset, flags: fixed.flags }
}

fn copy_range(fixed: &CopyFileRangeIn, narrow: bool) -> CopyRange {
    // The narrow reply counts in 32 bits, so no more than that may be copied.
    let length = if narrow { fixed.length.min(u64::from(u32::MAX) & !0xfffff) } else { fixed.length };
    CopyRange {
        handle_in: fixed.handle_in,
        offset_in: fixed.offset_in,
        node_out: fixed.node_out,
        handle_out: fixed.handle_out,
        offset_out: fixed.offset_out,
        length,
        flags: fixed.flags,
    }
}

fn lock_request(fixed: &LockIn, wait: bool) -> LockRequest {
    let lock = FileLock { start: fixed.lock.start, end: fixed.lock.end, kind: fixed.lock.kind, pid: fixed.lock.pid };
    LockRequest { handle: fixed.handle, owner: Owner(fixed.owner), lock, flock: fixed.flags & LOCK_FLOCK != 0, wait }
}

fn set_attr(fixed: &SetAttrIn) -> self::SetAttr {
    let valid = SetAttrValid::from_bits_truncate(fixed.valid);
    let time = |given: SetAttrValid, now: SetAttrValid, seconds: u64, nanoseconds: u32| {
        if valid.contains(now) {
            Some(SetTime::Now)
        } else {
            valid.contains(given).then_some(SetTime::At(Timestamp { seconds: seconds.cast_signed(), nanoseconds }))
        }
    };
    self::SetAttr {
        handle: valid.contains(SetAttrValid::HANDLE).then_some(fixed.handle),
        mode: valid.contains(SetAttrValid::MODE).then_some(fixed.mode),
        uid: valid.contains(SetAttrValid::UID).then_some(fixed.uid),
        gid: valid.contains(SetAttrValid::GID).then_some(fixed.gid),
        size: valid.contains(SetAttrValid::SIZE).then_some(fixed.size),
        atime: time(SetAttrValid::ATIME, SetAttrValid::ATIME_NOW, fixed.atime, fixed.atime_ns),
        mtime: time(SetAttrValid::MTIME, SetAttrValid::MTIME_NOW, fixed.mtime, fixed.mtime_ns),
        ctime: valid.contains(SetAttrValid::CTIME).then_some(Timestamp { seconds: fixed.ctime.cast_signed(), nanoseconds: fixed.ctime_ns }),
        kill_suidgid: valid.contains(SetAttrValid::KILL_SUIDGID),
    }
}

fn attr_wire(attr: &Attr) -> AttrWire {
    AttrWire {
        ino: attr.inode,
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.seconds.cast_unsigned(),
        mtime: attr.mtime.seconds.cast_unsigned(),
        ctime: attr.ctime.seconds.cast_unsigned(),
        atime_ns: attr.atime.nanoseconds,
        mtime_ns: attr.mtime.nanoseconds,
        ctime_ns: attr.ctime.nanoseconds,
        mode: attr.mode,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.device,
        blksize: attr.block_size,
        flags: 0,
    }
}

pub(crate) fn entry_out(entry: &Entry) -> EntryOut {
    EntryOut {
        node: entry.node,
        generation: entry.generation,
        entry_valid: entry.entry_valid.as_secs(),
        attr_valid: entry.attr_valid.as_secs(),
        entry_valid_ns: entry.entry_valid.subsec_nanos(),
        attr_valid_ns: entry.attr_valid.subsec_nanos(),
        attr: attr_wire(&entry.attr),
    }
}

fn attr_out(attributes: &Attributes) -> AttrOut {
    AttrOut { valid: attributes.valid.as_secs(), valid_ns: attributes.valid.subsec_nanos(), dummy: 0, attr: attr_wire(&attributes.attr) }
}

fn open_out(opened: &Opened) -> OpenOut {
    OpenOut { handle: opened.handle, open_flags: opened.flags.bits(), backing: 0 }
}

fn statfs_out(stat: &self::StatFs) -> StatFsOut {
    StatFsOut {
        blocks: stat.blocks,
        bfree: stat.blocks_free,
        bavail: stat.blocks_available,
        files: stat.files,
        ffree: stat.files_free,
        bsize: stat.block_size,
        namelen: stat.name_max,
        frsize: stat.fragment_size,
        padding: 0,
        spare: [0; 6],
    }
}

fn statx_out(stat: &self::StatX) -> StatXOut {
    let attr = &stat.attributes.attr;
    let time = |time: Timestamp| StatXTime { seconds: time.seconds, nanoseconds: time.nanoseconds, reserved: 0 };
    let mask = libc::STATX_BASIC_STATS | if stat.birth.is_some() { libc::STATX_BTIME } else { 0 };
    let valid: Duration = stat.attributes.valid;
    let device = u64::from(attr.device);
    StatXOut {
        valid: valid.as_secs(),
        valid_ns: valid.subsec_nanos(),
        flags: 0,
        spare: [0; 2],
        stat: StatXWire {
            mask,
            blksize: attr.block_size,
            attributes: stat.flags,
            nlink: attr.links,
            uid: attr.uid,
            gid: attr.gid,
            mode: (attr.mode & 0xffff) as u16,
            ino: attr.inode,
            size: attr.size,
            blocks: attr.blocks,
            attributes_mask: stat.flags_mask,
            atime: time(attr.atime),
            btime: time(stat.birth.unwrap_or_default()),
            ctime: time(attr.ctime),
            mtime: time(attr.mtime),
            rdev_major: libc::major(device),
            rdev_minor: libc::minor(device),
            ..StatXWire::default()
        },
    }
}

#[cfg(test)]
mod tests;
