//! A file system in memory: what the transport is tested and measured with.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuse::{
    Attr, Attributes, Context, Created, DirectoryPlusWriter, DirectoryWriter, Entry, EntryKind, Errno, ExtendedAttribute, Fallocate, Filesystem, Opened, OpenedFlags, Owner, Read,
    Result, SetAttr, SetTime, StatFs, Timestamp, Write,
};

const LONG: Duration = Duration::from_secs(3600);

#[derive(Default)]
struct Meta {
    mode: u32,
    uid: u32,
    gid: u32,
    device: u32,
    links: u32,
    parent: u64,
    atime: Timestamp,
    mtime: Timestamp,
    ctime: Timestamp,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Name to node and cookie.
    names: HashMap<Vec<u8>, (u64, u64)>,
    cookies: BTreeMap<u64, Vec<u8>>,
    cookie_next: u64,
}

#[derive(Default)]
struct Node {
    meta: Mutex<Meta>,
    data: RwLock<Vec<u8>>,
    lookups: AtomicU64,
}

/// Operations that come wait until it is opened.
#[derive(Default)]
pub(crate) struct Gate {
    /// How many wait; whether it is open.
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        self.changed.notify_all();
        let (mut state, _) = self.changed.wait_timeout_while(state, Duration::from_secs(300), |state| !state.1).unwrap();
        state.0 -= 1;
    }

    /// Waits until so many wait at once. `false`: that does not happen.
    pub(crate) fn has_gathered(&self, count: usize) -> bool {
        let state = self.state.lock().unwrap();
        let (state, _) = self.changed.wait_timeout_while(state, Duration::from_secs(100), |state| state.0 < count).unwrap();
        state.0 >= count
    }

    pub(crate) fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

pub(crate) struct MemoryFs {
    nodes: RwLock<HashMap<u64, Arc<Node>>>,
    next: AtomicU64,
    /// Serialises changes of the name space.
    names: Mutex<()>,
    pub(crate) forgotten: AtomicU64,
    pub(crate) destroyed: AtomicU64,
    /// Times that all was made durable.
    pub(crate) synced: AtomicU64,
    /// Reads of files that begin with "slow" wait here.
    pub(crate) gate: Gate,
    /// Answers `ENOSYS` to opens.
    no_opens: bool,
}

#[allow(clippy::disallowed_methods)] // outside the engine there is no other clock
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: since.as_secs().cast_signed(), nanoseconds: since.subsec_nanos() }
}

impl Default for MemoryFs {
    fn default() -> MemoryFs {
        let fs = MemoryFs {
            nodes: RwLock::default(),
            next: AtomicU64::new(1),
            names: Mutex::default(),
            forgotten: AtomicU64::new(0),
            destroyed: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            gate: Gate::default(),
            no_opens: false,
        };
        fs.make(&Context { unique: 0, uid: 0, gid: 0, pid: 0, other_group: None }, 1, libc::S_IFDIR | 0o777, 0, &[]);
        fs
    }
}

impl MemoryFs {
    pub(crate) fn new(no_opens: bool) -> MemoryFs {
        MemoryFs { no_opens, ..MemoryFs::default() }
    }

    fn node(&self, number: u64) -> Result<Arc<Node>> {
        self.nodes.read().unwrap().get(&number).cloned().ok_or(Errno::ESTALE)
    }

    fn make(&self, cx: &Context, parent: u64, mode: u32, device: u32, target: &[u8]) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let time = now();
        let links = if mode & libc::S_IFMT == libc::S_IFDIR { 2 } else { 1 };
        let meta = Meta { mode, uid: cx.uid, gid: cx.gid, device, links, parent, atime: time, mtime: time, ctime: time, target: target.to_vec(), cookie_next: 3, ..Meta::default() };
        self.nodes.write().unwrap().insert(number, Arc::new(Node { meta: Mutex::new(meta), ..Node::default() }));
        number
    }

    fn attr(number: u64, node: &Node) -> Attr {
        let size = node.data.read().unwrap().len() as u64;
        let meta = node.meta.lock().unwrap();
        Attr {
            inode: number,
            size: size.max(meta.target.len() as u64),
            blocks: size.div_ceil(512),
            atime: meta.atime,
            mtime: meta.mtime,
            ctime: meta.ctime,
            mode: meta.mode,
            links: meta.links,
            uid: meta.uid,
            gid: meta.gid,
            device: meta.device,
            block_size: 128 << 10,
        }
    }

    fn entry(&self, number: u64) -> Result<Entry> {
        let node = self.node(number)?;
        node.lookups.fetch_add(1, Ordering::Relaxed);
        Ok(Entry { node: number, generation: 1, attr: Self::attr(number, &node), entry_valid: LONG, attr_valid: LONG })
    }

    fn add(&self, parent: u64, name: &[u8], child: u64) -> Result<()> {
        let directory = self.node(parent)?;
        let mut meta = directory.meta.lock().unwrap();
        if meta.names.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        let cookie = meta.cookie_next;
        meta.cookie_next += 1;
        meta.names.insert(name.to_vec(), (child, cookie));
        meta.cookies.insert(cookie, name.to_vec());
        meta.mtime = now();
        Ok(())
    }

    fn remove(&self, parent: u64, name: &[u8]) -> Result<u64> {
        let directory = self.node(parent)?;
        let mut meta = directory.meta.lock().unwrap();
        let (child, cookie) = meta.names.remove(name).ok_or(Errno::ENOENT)?;
        meta.cookies.remove(&cookie);
        meta.mtime = now();
        Ok(child)
    }

    fn find(&self, parent: u64, name: &[u8]) -> Result<u64> {
        self.node(parent)?.meta.lock().unwrap().names.get(name).map(|(node, _)| *node).ok_or(Errno::ENOENT)
    }

    fn create_named(&self, cx: &Context, parent: u64, name: &[u8], mode: u32, device: u32, target: &[u8]) -> Result<Entry> {
        let _names = self.names.lock().unwrap();
        if self.find(parent, name).is_ok() {
            return Err(Errno::EEXIST);
        }
        let child = self.make(cx, parent, mode, device, target);
        self.add(parent, name, child)?;
        self.entry(child)
    }

    fn drop_link(&self, number: u64, count: u32) {
        if let Ok(node) = self.node(number) {
            let mut meta = node.meta.lock().unwrap();
            meta.links = meta.links.saturating_sub(count);
            let gone = meta.links == 0 && node.lookups.load(Ordering::Relaxed) == 0;
            drop(meta);
            if gone {
                self.nodes.write().unwrap().remove(&number);
            }
        }
    }

    fn is_directory(&self, number: u64) -> Result<bool> {
        Ok(self.node(number)?.meta.lock().unwrap().mode & libc::S_IFMT == libc::S_IFDIR)
    }

    fn is_empty(&self, number: u64) -> Result<bool> {
        Ok(self.node(number)?.meta.lock().unwrap().names.is_empty())
    }

    fn opened() -> Opened {
        Opened { handle: 0, flags: OpenedFlags::KEEP_CACHE | OpenedFlags::NO_FLUSH }
    }

    /// Name, child and cookie of the entries after a cookie.
    fn list(&self, number: u64, offset: u64) -> Result<(u64, Vec<(Vec<u8>, u64, u64)>)> {
        let node = self.node(number)?;
        let meta = node.meta.lock().unwrap();
        let entries = meta.cookies.range(offset + 1..).take(1024).map(|(cookie, name)| (name.clone(), meta.names[name].0, *cookie)).collect();
        Ok((meta.parent, entries))
    }
}

impl Filesystem for MemoryFs {
    fn destroy(&self) {
        self.destroyed.fetch_add(1, Ordering::Relaxed);
    }

    fn syncfs(&self, _: &Context) -> Result<()> {
        // A test that does not wait for the answer looks before this is over.
        std::thread::sleep(std::time::Duration::from_millis(100));
        self.synced.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn lookup(&self, _: &Context, parent: u64, name: &[u8]) -> Result<Entry> {
        assert!(name != b"panic", "asked to");
        match self.find(parent, name) {
            Ok(child) => self.entry(child),
            Err(Errno::ENOENT) => Ok(Entry::negative(LONG)),
            Err(errno) => Err(errno),
        }
    }

    fn forget(&self, number: u64, count: u64) {
        self.forgotten.fetch_add(count, Ordering::Relaxed);
        if let Ok(node) = self.node(number) {
            node.lookups.fetch_sub(count, Ordering::Relaxed);
            self.drop_link(number, 0);
        }
    }

    fn getattr(&self, _: &Context, number: u64, _: Option<u64>) -> Result<Attributes> {
        Ok(Attributes { attr: Self::attr(number, &*self.node(number)?), valid: LONG })
    }

    fn setattr(&self, _: &Context, number: u64, changes: &SetAttr) -> Result<Attributes> {
        let node = self.node(number)?;
        if let Some(size) = changes.size {
            node.data.write().unwrap().resize(usize::try_from(size).map_err(|_| Errno::EFBIG)?, 0);
        }
        let pick = |time: SetTime| if let SetTime::At(time) = time { time } else { now() };
        {
            let mut meta = node.meta.lock().unwrap();
            meta.mode = changes.mode.map_or(meta.mode, |mode| meta.mode & libc::S_IFMT | mode & 0o7777);
            meta.uid = changes.uid.unwrap_or(meta.uid);
            meta.gid = changes.gid.unwrap_or(meta.gid);
            meta.atime = changes.atime.map_or(meta.atime, pick);
            meta.mtime = changes.mtime.or(changes.size.map(|_| SetTime::Now)).map_or(meta.mtime, pick);
            meta.ctime = now();
        }
        Ok(Attributes { attr: Self::attr(number, &node), valid: LONG })
    }

    fn readlink(&self, _: &Context, number: u64) -> Result<Vec<u8>> {
        Ok(self.node(number)?.meta.lock().unwrap().target.clone())
    }

    fn symlink(&self, cx: &Context, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        self.create_named(cx, parent, name, libc::S_IFLNK | 0o777, 0, target)
    }

    fn mknod(&self, cx: &Context, parent: u64, name: &[u8], mode: u32, device: u32, _: u32) -> Result<Entry> {
        self.create_named(cx, parent, name, mode, device, &[])
    }

    fn mkdir(&self, cx: &Context, parent: u64, name: &[u8], mode: u32, _: u32) -> Result<Entry> {
        self.create_named(cx, parent, name, libc::S_IFDIR | mode & 0o7777, 0, &[])
    }

    fn unlink(&self, _: &Context, parent: u64, name: &[u8]) -> Result<()> {
        let _names = self.names.lock().unwrap();
        let child = self.remove(parent, name)?;
        self.drop_link(child, 1);
        Ok(())
    }

    fn rmdir(&self, _: &Context, parent: u64, name: &[u8]) -> Result<()> {
        let _names = self.names.lock().unwrap();
        let child = self.find(parent, name)?;
        if !self.is_empty(child)? {
            return Err(Errno::ENOTEMPTY);
        }
        self.remove(parent, name)?;
        self.drop_link(child, 2);
        Ok(())
    }

    fn rename(&self, _: &Context, parent: u64, name: &[u8], new_parent: u64, new_name: &[u8], flags: u32) -> Result<()> {
        let _names = self.names.lock().unwrap();
        if flags & libc::RENAME_EXCHANGE != 0 {
            return Err(Errno::EINVAL);
        }
        let child = self.find(parent, name)?;
        if let Ok(old) = self.find(new_parent, new_name) {
            if flags & libc::RENAME_NOREPLACE != 0 {
                return Err(Errno::EEXIST);
            }
            let directory = self.is_directory(old)?;
            if directory && !self.is_empty(old)? {
                return Err(Errno::ENOTEMPTY);
            }
            self.remove(new_parent, new_name)?;
            self.drop_link(old, if directory { 2 } else { 1 });
        }
        self.remove(parent, name)?;
        self.add(new_parent, new_name, child)?;
        self.node(child)?.meta.lock().unwrap().parent = new_parent;
        Ok(())
    }

    fn link(&self, _: &Context, number: u64, new_parent: u64, new_name: &[u8]) -> Result<Entry> {
        let _names = self.names.lock().unwrap();
        self.add(new_parent, new_name, number)?;
        self.node(number)?.meta.lock().unwrap().links += 1;
        self.entry(number)
    }

    fn open(&self, _: &Context, number: u64, flags: u32, _: bool) -> Result<Opened> {
        if self.no_opens {
            return Err(Errno::ENOSYS);
        }
        if flags & libc::O_TRUNC as u32 != 0 {
            self.node(number)?.data.write().unwrap().clear();
        }
        Ok(Self::opened())
    }

    fn create(&self, cx: &Context, parent: u64, name: &[u8], mode: u32, _: u32, _: u32) -> Result<Created> {
        if self.no_opens {
            return Err(Errno::ENOSYS);
        }
        Ok(Created { entry: self.create_named(cx, parent, name, mode, 0, &[])?, opened: Self::opened() })
    }

    fn tmpfile(&self, cx: &Context, parent: u64, mode: u32, _: u32, _: u32) -> Result<Created> {
        let child = self.make(cx, parent, mode, 0, &[]);
        self.node(child)?.meta.lock().unwrap().links = 0;
        Ok(Created { entry: self.entry(child)?, opened: Self::opened() })
    }

    fn read(&self, _: &Context, read: &Read, out: &mut [u8]) -> Result<usize> {
        let node = self.node(read.node)?;
        let data = node.data.read().unwrap();
        if data.starts_with(b"slow") {
            self.gate.pass();
        }
        let rest = data.get(usize::try_from(read.offset).map_err(|_| Errno::EFBIG)?..).unwrap_or(&[]);
        let len = rest.len().min(out.len());
        out[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write(&self, _: &Context, write: &Write, bytes: &[u8]) -> Result<usize> {
        let node = self.node(write.node)?;
        let mut data = node.data.write().unwrap();
        let start = usize::try_from(write.offset).map_err(|_| Errno::EFBIG)?;
        let end = start + bytes.len();
        if data.len() < end {
            data.resize(end, 0);
        }
        data[start..end].copy_from_slice(bytes);
        drop(data);
        let mut meta = node.meta.lock().unwrap();
        meta.mtime = now();
        meta.ctime = meta.mtime;
        Ok(bytes.len())
    }

    fn release(&self, _: &Context, _: u64, _: u64, _: u32, _: Owner) -> Result<()> {
        Ok(())
    }

    fn fsync(&self, _: &Context, _: u64, _: u64, _: bool) -> Result<()> {
        Ok(())
    }

    fn readdir(&self, _: &Context, number: u64, _: u64, offset: u64, out: &mut DirectoryWriter<'_>) -> Result<()> {
        let (parent, entries) = self.list(number, offset.max(2))?;
        if offset < 1 && !out.push(number, 1, EntryKind(4), b".") || offset < 2 && !out.push(parent, 2, EntryKind(4), b"..") {
            return Ok(());
        }
        for (name, child, cookie) in entries {
            let mode = self.node(child)?.meta.lock().unwrap().mode;
            if !out.push(child, cookie, EntryKind::from_mode(mode), &name) {
                break;
            }
        }
        Ok(())
    }

    fn readdirplus(&self, _: &Context, number: u64, _: u64, offset: u64, out: &mut DirectoryPlusWriter<'_>) -> Result<()> {
        let (parent, entries) = self.list(number, offset.max(2))?;
        if offset < 1 && !out.push_bare(number, 1, EntryKind(4), b".") || offset < 2 && !out.push_bare(parent, 2, EntryKind(4), b"..") {
            return Ok(());
        }
        for (name, child, cookie) in entries {
            if !out.has_room(name.len()) {
                break;
            }
            assert!(out.push(cookie, &name, &self.entry(child)?));
        }
        Ok(())
    }

    fn statfs(&self, _: &Context, _: u64) -> Result<StatFs> {
        Ok(StatFs { blocks: 1 << 20, blocks_free: 1 << 19, blocks_available: 1 << 19, files: 1000, files_free: 900, block_size: 4096, fragment_size: 4096, name_max: 255 })
    }

    fn setxattr(&self, _: &Context, number: u64, attribute: &ExtendedAttribute<'_>) -> Result<()> {
        self.node(number)?.meta.lock().unwrap().xattrs.insert(attribute.name.to_vec(), attribute.value.to_vec());
        Ok(())
    }

    fn getxattr(&self, _: &Context, number: u64, name: &[u8], out: &mut [u8]) -> Result<usize> {
        let node = self.node(number)?;
        let meta = node.meta.lock().unwrap();
        let value = meta.xattrs.get(name).ok_or(Errno::ENODATA)?;
        if let Some(out) = out.get_mut(..value.len()) {
            out.copy_from_slice(value);
        }
        Ok(value.len())
    }

    fn listxattr(&self, _: &Context, number: u64, out: &mut [u8]) -> Result<usize> {
        let names: Vec<u8> = self.node(number)?.meta.lock().unwrap().xattrs.keys().flat_map(|name| name.iter().copied().chain([0])).collect();
        if let Some(out) = out.get_mut(..names.len()) {
            out.copy_from_slice(&names);
        }
        Ok(names.len())
    }

    fn removexattr(&self, _: &Context, number: u64, name: &[u8]) -> Result<()> {
        self.node(number)?.meta.lock().unwrap().xattrs.remove(name).map(|_| ()).ok_or(Errno::ENODATA)
    }

    fn fallocate(&self, _: &Context, number: u64, fallocate: &Fallocate) -> Result<()> {
        if fallocate.mode != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let end = usize::try_from(fallocate.offset + fallocate.length).map_err(|_| Errno::EFBIG)?;
        let node = self.node(number)?;
        let mut data = node.data.write().unwrap();
        if data.len() < end {
            data.resize(end, 0);
        }
        Ok(())
    }
}
