//! The operations of the file system in memory.
//!
//! # Theory
//!
//! What the kernel is told is what the daemon tells it of a mounted dataset (`daemon/src/ops`): which files are served past the page
//! cache, that names, absent names and attributes are believed for long, that directories need not be opened, and that there are no
//! extended attributes. One thing differs: the daemon lets attributes live for a second only while the space that a file uses is not
//! final; here it is final at once. A request that comes of this is the daemon's loss, and no part of the ceiling.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fuse::protocol::{InitFlags, MINOR_DIRECT_IS_COHERENT};
use fuse::{
    Attributes, Context, Created, DirectoryPlusWriter, DirectoryWriter, Entry, EntryKind, Errno, ExtendedAttribute, Fallocate, Filesystem,
    Negotiated, Opened, OpenedFlags, Owner, Read, Result, SetAttr, SetTime, StatFs, StatX, Write, WriteFlags,
};

use super::contents::Memory;
use super::nodes::{NAME_MAX, Name, Names, Node, State, Table, is_directory, now};

/// How long the kernel may believe what only it can change.
const LONG: Duration = Duration::from_secs(3600);
const BLOCK: u64 = 128 << 10;
/// Of a directory entry.
const DIRECTORY: EntryKind = EntryKind(4);

/// A file system whose files are memory of this process.
pub(super) struct MemoryFs {
    table: Table,
    memory: Memory,
    no_opens: bool,
    /// Files may be served past the kernel's cache; see `daemon/src/ops/mod.rs`.
    may_be_direct: AtomicBool,
    /// The kernel keeps times.
    collects: AtomicBool,
}

/// Whether a file opened in this way is served past the kernel's cache: the daemon's choice (`daemon/src/ops/files.rs`).
fn goes_past_cache(flags: u32, is_empty: impl FnOnce() -> bool) -> bool {
    let (access, has) = (flags & libc::O_ACCMODE as u32, |flag: i32| flags & flag as u32 != 0);
    let durable = access != libc::O_RDONLY as u32 && has(libc::O_DSYNC);
    let may_be_poured = access == libc::O_WRONLY as u32 && !has(libc::O_EXCL);
    durable || may_be_poured && is_empty()
}

impl MemoryFs {
    /// An empty one, whose files may take so many bytes, some of which it touches at once. `no_opens`: the kernel is not to tell of opens.
    pub(super) fn new(limit: u64, touched: u64, no_opens: bool) -> MemoryFs {
        let table = Table::new();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        // The kernel's reference to the root is not counted: the root does not go.
        let root = State { mode: libc::S_IFDIR | 0o755, uid, gid, links: 2, lookups: 1, ..State::default() };
        table.make(root, fuse::ROOT_NODE, &[]);
        MemoryFs { table, memory: Memory::new(limit, touched), no_opens, may_be_direct: AtomicBool::new(false), collects: AtomicBool::new(false) }
    }

    fn opened(&self, flags: u32, is_empty: impl FnOnce() -> bool) -> Opened {
        let mut opened = Opened { handle: 0, flags: OpenedFlags::KEEP_CACHE | OpenedFlags::NO_FLUSH };
        if self.may_be_direct.load(Ordering::Relaxed) && goes_past_cache(flags, is_empty) {
            opened.flags |= OpenedFlags::DIRECT_IO | OpenedFlags::PARALLEL_DIRECT_WRITES;
        }
        opened
    }

    /// An answer with a node, to which the kernel has one more reference then.
    fn entry(node: &Node) -> Entry {
        let _ = node.count(|state| state.lookups += 1);
        Entry { node: node.number, generation: node.generation, attr: node.attr(), entry_valid: LONG, attr_valid: LONG }
    }

    /// The state of a new node in a directory.
    fn state(cx: &Context, parent: &Node, mode: u32) -> State {
        let above = *parent.state.lock();
        let inherits = above.mode & libc::S_ISGID != 0;
        let mode = if inherits && is_directory(mode) { mode | libc::S_ISGID } else { mode };
        let links = if is_directory(mode) { 2 } else { 1 };
        State { mode, uid: cx.uid, gid: if inherits { above.gid } else { cx.gid }, links, ..State::default() }
    }

    fn make(&self, cx: &Context, parent: u64, name: &[u8], state: impl FnOnce(State) -> State, mode: u32, target: &[u8]) -> Result<Entry> {
        let parent = self.table.get(parent)?;
        let mut names = parent.names.lock();
        if names.find(name).is_some() {
            return Err(Errno::EEXIST);
        }
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let node = self.table.make(state(Self::state(cx, &parent, mode)), parent.number, target);
        names.add(name, node.number, mode)?;
        let mut above = parent.state.lock();
        above.links += u32::from(is_directory(mode));
        above.touch();
        drop(above);
        Ok(Self::entry(&node))
    }

    /// Takes a node out, with what it holds, if `change` leaves it neither a name nor a reference.
    fn count(&self, node: &Node, change: impl FnOnce(&mut State)) {
        if node.count(change) {
            node.contents.write().set_len(&self.memory, 0);
            self.table.remove(node.number);
        }
    }

    /// One of a node's names is gone.
    fn unlinked(&self, node: &Node) {
        self.count(node, |state| {
            state.links = if is_directory(state.mode) { 0 } else { state.links.saturating_sub(1) };
            state.ctime = now();
        });
    }

    fn remove(&self, parent: u64, name: &[u8]) -> Result<()> {
        let parent = self.table.get(parent)?;
        let mut names = parent.names.lock();
        let found = names.find(name).ok_or(Errno::ENOENT)?;
        let (node, mode) = (self.table.get(found.node)?, found.mode);
        if is_directory(mode) && !node.names.lock().is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        names.remove(name)?;
        let mut above = parent.state.lock();
        above.links -= u32::from(is_directory(mode));
        above.touch();
        drop(above);
        self.unlinked(&node);
        Ok(())
    }

    /// Takes the place of what is there, or changes places with it.
    fn rename_in(&self, (from, old): (&Node, &[u8]), (to, new): (&Node, &[u8]), (names, others): (&mut Names, Option<&mut Names>), flags: u32) -> Result<()> {
        let moved = names.find(old).cloned().ok_or(Errno::ENOENT)?;
        let mut others = others;
        let there = others.as_deref().unwrap_or(names).find(new).cloned();
        let exchanges = flags & libc::RENAME_EXCHANGE != 0;
        let replaced = match there {
            Some(_) if flags & libc::RENAME_NOREPLACE != 0 => return Err(Errno::EEXIST),
            None if exchanges => return Err(Errno::ENOENT),
            Some(there) if there.node == moved.node => return Ok(()),
            other => other,
        };
        if let Some(there) = replaced.as_ref().filter(|_| !exchanges) {
            if is_directory(there.mode) && !self.table.get(there.node)?.names.lock().is_empty() {
                return Err(Errno::ENOTEMPTY);
            }
        }
        names.remove(old)?;
        if let Some(there) = &replaced {
            others.as_deref_mut().unwrap_or(names).remove(new)?;
            if exchanges {
                names.add(old, there.node, there.mode)?;
                self.moved(there, to, from)?;
            } else {
                to.state.lock().links -= u32::from(is_directory(there.mode));
                self.unlinked(&*self.table.get(there.node)?);
            }
        }
        others.unwrap_or(names).add(new, moved.node, moved.mode)?;
        self.moved(&moved, from, to)
    }

    /// What a rename changes beside names.
    fn moved(&self, name: &Name, from: &Node, to: &Node) -> Result<()> {
        let node = self.table.get(name.node)?;
        node.state.lock().ctime = now();
        if is_directory(name.mode) && from.number != to.number {
            node.names.lock().parent = to.number;
            from.state.lock().links -= 1;
            to.state.lock().links += 1;
        }
        Ok(())
    }

    fn set_len(&self, node: &Node, len: u64) {
        node.contents.write().set_len(&self.memory, len);
        node.state.lock().touch();
    }
}

impl Filesystem for MemoryFs {
    fn init(&self, negotiated: &Negotiated) {
        let collects = negotiated.flags.contains(InitFlags::WRITEBACK_CACHE);
        self.collects.store(collects, Ordering::Relaxed);
        self.may_be_direct.store(!collects && negotiated.minor >= MINOR_DIRECT_IS_COHERENT, Ordering::Relaxed);
    }

    fn lookup(&self, _: &Context, parent: u64, name: &[u8]) -> Result<Entry> {
        let parent = self.table.get(parent)?;
        let names = parent.names.lock();
        match names.find(name) {
            Some(found) => Ok(Self::entry(&*self.table.get(found.node)?)),
            None if name == b"." => Ok(Self::entry(&parent)),
            None => Ok(Entry::negative(LONG)),
        }
    }

    fn forget(&self, node: u64, count: u64) {
        if let Ok(node) = self.table.get(node)
            && node.number != fuse::ROOT_NODE
        {
            self.count(&node, |state| state.lookups = state.lookups.saturating_sub(count));
        }
    }

    fn getattr(&self, _: &Context, node: u64, _: Option<u64>) -> Result<Attributes> {
        Ok(Attributes { attr: self.table.get(node)?.attr(), valid: LONG })
    }

    fn statx(&self, _: &Context, node: u64, _: Option<u64>) -> Result<StatX> {
        let node = self.table.get(node)?;
        let birth = node.state.lock().birth;
        Ok(StatX { attributes: Attributes { attr: node.attr(), valid: LONG }, birth: Some(birth), flags: 0, flags_mask: 0 })
    }

    fn setattr(&self, _: &Context, node: u64, changes: &SetAttr) -> Result<Attributes> {
        let node = self.table.get(node)?;
        if let Some(len) = changes.size {
            self.set_len(&node, len);
        }
        let pick = |time: SetTime| if let SetTime::At(time) = time { time } else { now() };
        let mut state = node.state.lock();
        if changes.uid.is_some() || changes.gid.is_some() || changes.kill_suidgid {
            state.end_set_ids();
        }
        state.mode = changes.mode.map_or(state.mode, |mode| state.mode & libc::S_IFMT | mode & 0o7777);
        state.uid = changes.uid.unwrap_or(state.uid);
        state.gid = changes.gid.unwrap_or(state.gid);
        state.atime = changes.atime.map_or(state.atime, pick);
        state.mtime = changes.mtime.map_or(state.mtime, pick);
        state.ctime = changes.ctime.unwrap_or_else(now);
        drop(state);
        Ok(Attributes { attr: node.attr(), valid: LONG })
    }

    fn readlink(&self, _: &Context, node: u64) -> Result<Vec<u8>> {
        Ok(self.table.get(node)?.target.clone())
    }

    fn symlink(&self, cx: &Context, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        self.make(cx, parent, name, |state| state, libc::S_IFLNK | 0o777, target)
    }

    fn mknod(&self, cx: &Context, parent: u64, name: &[u8], mode: u32, device: u32, _: u32) -> Result<Entry> {
        let mode = if mode & libc::S_IFMT == 0 { mode | libc::S_IFREG } else { mode };
        self.make(cx, parent, name, |state| State { device, ..state }, mode, &[])
    }

    fn mkdir(&self, cx: &Context, parent: u64, name: &[u8], mode: u32, _: u32) -> Result<Entry> {
        self.make(cx, parent, name, |state| state, libc::S_IFDIR | mode & 0o7777, &[])
    }

    fn unlink(&self, _: &Context, parent: u64, name: &[u8]) -> Result<()> {
        self.remove(parent, name)
    }

    fn rmdir(&self, _: &Context, parent: u64, name: &[u8]) -> Result<()> {
        self.remove(parent, name)
    }

    fn rename(&self, _: &Context, parent: u64, name: &[u8], new_parent: u64, new_name: &[u8], flags: u32) -> Result<()> {
        if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) != 0 {
            return Err(Errno::EINVAL);
        }
        if new_name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let (from, to) = (self.table.get(parent)?, self.table.get(new_parent)?);
        if parent == new_parent {
            self.rename_in((&from, name), (&to, new_name), (&mut from.names.lock(), None), flags)?;
        } else {
            let (first, second) = if parent < new_parent { (&from, &to) } else { (&to, &from) };
            let (mut first, mut second) = (first.names.lock(), second.names.lock());
            let (names, others) = if parent < new_parent { (&mut first, &mut second) } else { (&mut second, &mut first) };
            self.rename_in((&from, name), (&to, new_name), (names, Some(others)), flags)?;
        }
        [from, to].iter().for_each(|directory| directory.state.lock().touch());
        Ok(())
    }

    fn link(&self, _: &Context, node: u64, new_parent: u64, new_name: &[u8]) -> Result<Entry> {
        let (node, parent) = (self.table.get(node)?, self.table.get(new_parent)?);
        let mode = node.state.lock().mode;
        parent.names.lock().add(new_name, node.number, mode)?;
        parent.state.lock().touch();
        self.count(&node, |state| {
            state.links += 1;
            state.ctime = now();
        });
        Ok(Self::entry(&node))
    }

    fn open(&self, _: &Context, node: u64, flags: u32, kill_suidgid: bool) -> Result<Opened> {
        if self.no_opens {
            return Err(Errno::ENOSYS);
        }
        let node = self.table.get(node)?;
        if flags & libc::O_TRUNC as u32 != 0 {
            self.set_len(&node, 0);
            if kill_suidgid {
                node.state.lock().end_set_ids();
            }
        }
        Ok(self.opened(flags, || node.contents.read().len() == 0))
    }

    fn create(&self, cx: &Context, parent: u64, name: &[u8], mode: u32, _: u32, flags: u32) -> Result<Created> {
        if self.no_opens {
            return Err(Errno::ENOSYS);
        }
        let entry = self.make(cx, parent, name, |state| state, libc::S_IFREG | mode & 0o7777, &[])?;
        Ok(Created { entry, opened: self.opened(flags, || true) })
    }

    fn tmpfile(&self, cx: &Context, parent: u64, mode: u32, _: u32, flags: u32) -> Result<Created> {
        let state = Self::state(cx, &*self.table.get(parent)?, libc::S_IFREG | mode & 0o7777);
        let node = self.table.make(State { links: 0, ..state }, parent, &[]);
        Ok(Created { entry: Self::entry(&node), opened: self.opened(flags, || true) })
    }

    fn read(&self, _: &Context, read: &Read, out: &mut [u8]) -> Result<usize> {
        Ok(self.table.get(read.node)?.contents.read().read(read.offset, out))
    }

    fn write(&self, _: &Context, write: &Write, data: &[u8]) -> Result<usize> {
        let node = self.table.get(write.node)?;
        node.contents.write().write(&self.memory, write.offset, data)?;
        let mut state = node.state.lock();
        if write.write_flags.contains(WriteFlags::KILL_SUIDGID) {
            state.end_set_ids();
        }
        // With a write-back cache the kernel sends the times.
        if !(self.collects.load(Ordering::Relaxed) && write.write_flags.contains(WriteFlags::CACHE)) {
            state.touch();
        }
        Ok(data.len())
    }

    fn release(&self, _: &Context, _: u64, _: u64, _: u32, _: Owner) -> Result<()> {
        Ok(())
    }

    fn fsync(&self, _: &Context, _: u64, _: u64, _: bool) -> Result<()> {
        Ok(())
    }

    fn fsyncdir(&self, _: &Context, _: u64, _: u64, _: bool) -> Result<()> {
        Ok(())
    }

    fn syncfs(&self, _: &Context) -> Result<()> {
        Ok(())
    }

    fn readdir(&self, _: &Context, node: u64, _: u64, offset: u64, out: &mut DirectoryWriter<'_>) -> Result<()> {
        let directory = self.table.get(node)?;
        let names = directory.names.lock();
        if offset < 1 && !out.push(node, 1, DIRECTORY, b".") || offset < 2 && !out.push(names.parent, 2, DIRECTORY, b"..") {
            return Ok(());
        }
        for (cookie, entry) in names.after(offset) {
            if !out.push(entry.node, cookie, EntryKind::from_mode(entry.mode), &entry.name) {
                break;
            }
        }
        Ok(())
    }

    fn readdirplus(&self, _: &Context, node: u64, _: u64, offset: u64, out: &mut DirectoryPlusWriter<'_>) -> Result<()> {
        let directory = self.table.get(node)?;
        let names = directory.names.lock();
        if offset < 1 && !out.push_bare(node, 1, DIRECTORY, b".") || offset < 2 && !out.push_bare(names.parent, 2, DIRECTORY, b"..") {
            return Ok(());
        }
        for (cookie, entry) in names.after(offset) {
            if !out.has_room(entry.name.len()) || !out.push(cookie, &entry.name, &Self::entry(&*self.table.get(entry.node)?)) {
                break;
            }
        }
        Ok(())
    }

    fn statfs(&self, _: &Context, _: u64) -> Result<StatFs> {
        let free = self.memory.limit.saturating_sub(self.memory.used()) / BLOCK;
        Ok(StatFs {
            blocks: self.memory.limit / BLOCK,
            blocks_free: free,
            blocks_available: free,
            files: self.table.count() + (1 << 20),
            files_free: 1 << 20,
            block_size: BLOCK as u32,
            fragment_size: BLOCK as u32,
            name_max: NAME_MAX as u32,
        })
    }

    fn setxattr(&self, _: &Context, _: u64, _: &ExtendedAttribute<'_>) -> Result<()> {
        // Not "unknown": then the kernel would not ask again, as it does elsewhere.
        Err(Errno::EOPNOTSUPP)
    }

    fn getxattr(&self, _: &Context, _: u64, _: &[u8], _: &mut [u8]) -> Result<usize> {
        Err(Errno::ENODATA)
    }

    fn listxattr(&self, _: &Context, _: u64, _: &mut [u8]) -> Result<usize> {
        Ok(0)
    }

    fn removexattr(&self, _: &Context, _: u64, _: &[u8]) -> Result<()> {
        Err(Errno::ENODATA)
    }

    fn fallocate(&self, _: &Context, node: u64, fallocate: &Fallocate) -> Result<()> {
        const KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
        let node = self.table.get(node)?;
        match fallocate.mode {
            0 => {
                let end = fallocate.offset.saturating_add(fallocate.length);
                let len = node.contents.read().len();
                self.set_len(&node, len.max(end));
                Ok(())
            }
            KEEP_SIZE => Ok(()),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}
