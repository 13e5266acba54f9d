//! FUSE operations onto one mounted dataset.
//!
//! # Theory
//! The kernel's node number says which file system is meant and which inode of it: the upper 16 bits are a *slot*, the
//! lower 48 the object. Slot 0 is the dataset itself; further slots are snapshots that were entered through
//! `.zfs/snapshot`; the last slot holds the nodes of the `.zfs` directory, which exist nowhere else.
//! Object numbers are below 2^48 by the format. The root is node 1 to FUSE, and object 1 is never a file.
//!
//! We own the pool alone, so what the kernel has learned stays true until the kernel itself changes it, and it may
//! remember names, absent names and attributes for long. Two attributes change by themselves: the space that a file
//! uses, when the transaction group with its last write is synced; so attributes that changed just now live for a
//! second only.
//!
//! The kernel checks permissions (`default_permissions`), keeps file locks, and truncates before it opens.
//! The kernel tells us of each open ([`OpsOptions::announce_opens`]), so that files can be served past its cache where
//! that is better: a durable write (`O_DSYNC`) is one request then, and several of one file are under way at a time; a
//! file that is only filled (`creat`, `>`) is not copied into the cache as well. With a write-back cache
//! ([`cache::writeback`]) it must tell us, so that we know the writers.
//!
//! # Path
//! `fuse::dispatch` → `impl Filesystem for Ops` → one file here for each family → `tarnfs::FileSystem`

mod attributes;
mod cache;
mod caller;
mod directory;
mod files;
mod flags;
mod head;
mod left_behind;
mod names;
mod nodes;
mod rights;
mod view;
mod xattr;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fuse::protocol::{InitFlags, MINOR_DIRECT_IS_COHERENT, MINOR_FORGETS_NAMES};
use fuse::{
    Attributes, Context, CopyRange, Created, DirectoryPlusWriter, DirectoryWriter, Entry, Errno, ExtendedAttribute, Fallocate, Filesystem, Ioctl, Negotiated, Notifier, Opened, Owner, Read,
    Result, SetAttr, StatFs, StatX, Write,
};
use parking_lot::{Mutex, RwLock};
use tarnfs::{FileSystem, MountUse};

pub use rights::{RULES, Rule};
pub use nodes::slots::{OpenSnapshot, SnapshotInfo, Snapshots};
pub use view::View;
pub use xattr::XattrsInUse;

use cache::teller::{Forget, Teller};
use cache::writeback::Writeback;
use head::Head;
pub use head::Opener;
use left_behind::LeftBehind;
use nodes::node::Node;
use cache::replaced::Replaced;
use nodes::slots::Slots;

/// How long the kernel may believe what only it can change.
const LONG: Duration = Duration::from_secs(3600);
/// How long it may believe what is about to change.
const SHORT: Duration = Duration::from_secs(1);
/// For so long after a change the space that a file uses is not final.
const SETTLES_AFTER: i64 = 15;

/// When a write is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncPolicy {
    /// When the program asks.
    #[default]
    Standard,
    /// Before it returns.
    Always,
    /// Some time.
    Disabled,
}

/// Where `.zfs` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SnapDir {
    /// There is none.
    Disabled,
    /// It can be entered, and is not listed.
    #[default]
    Hidden,
    /// It is listed.
    Visible,
}

/// Properties of the dataset that matter here, and choices of the daemon.
#[derive(Debug, Clone)]
pub struct OpsOptions {
    /// Property `sync`.
    pub sync: SyncPolicy,
    /// Property `snapdir`.
    pub snapdir: SnapDir,
    /// Property `xattr` is not `off`.
    pub xattrs: bool,
    /// Property `recordsize`, for `statfs`.
    pub record_bytes: u32,
    /// The kernel was told, when this was mounted, to obey POSIX access control lists.
    pub posix_acls: bool,
    /// Tell us of each open: costs a round trip, allows direct I/O for files where that is better.
    pub announce_opens: bool,
    /// With less room than this no write is left in the kernel's cache.
    pub short_of_room: u64,
}

impl Default for OpsOptions {
    fn default() -> OpsOptions {
        OpsOptions {
            sync: SyncPolicy::Standard,
            snapdir: SnapDir::Hidden,
            xattrs: true,
            record_bytes: 128 << 10,
            posix_acls: false,
            announce_opens: false,
            short_of_room: cache::writeback::SHORT_BYTES,
        }
    }
}

/// One mounted dataset.
pub struct Ops {
    head: Head,
    /// Until the mount is gone.
    in_use: Mutex<Option<MountUse>>,
    slots: Slots,
    options: RwLock<OpsOptions>,
    notifier: Mutex<Option<Notifier>>,
    left_behind: Mutex<Option<LeftBehind>>,
    writeback: Writeback,
    /// Tells the kernel which names to forget.
    names: Teller,
    replaced: Replaced,
    /// Files may be served past the kernel's cache. Not by a kernel that may have old contents in its cache afterwards,
    /// and not with a write-back cache, where the kernel keeps the times, which direct writes would not change.
    may_be_direct: AtomicBool,
}

impl std::fmt::Debug for Ops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ops({:?})", self.head.current())
    }
}

impl Ops {
    /// Serves `filesystem`; `snapshots` fills `.zfs/snapshot`.
    pub fn new(filesystem: Arc<FileSystem>, snapshots: Option<Box<dyn Snapshots>>, options: OpsOptions) -> Ops {
        // The kernel never looks the root up, so it would be loaded anew for each call.
        let _ = filesystem.lookup_inode(filesystem.root());
        let in_use = Mutex::new(Some(filesystem.use_mounted()));
        Ops { in_use, ..Ops::of(Head::new(filesystem), snapshots, options) }
    }

    /// The same, of a file system that is opened when somebody uses it.
    pub fn unopened(opener: Opener, snapshots: Option<Box<dyn Snapshots>>, options: OpsOptions) -> Ops {
        Ops::of(Head::unopened(opener), snapshots, options)
    }

    fn of(head: Head, snapshots: Option<Box<dyn Snapshots>>, options: OpsOptions) -> Ops {
        Ops {
            head,
            in_use: Mutex::default(),
            slots: Slots::new(snapshots),
            options: RwLock::new(options),
            notifier: Mutex::default(),
            left_behind: Mutex::default(),
            writeback: Writeback::default(),
            names: Teller::default(),
            replaced: Replaced::default(),
            may_be_direct: AtomicBool::new(false),
        }
    }

    /// Properties changed.
    pub fn set_options(&self, options: OpsOptions) {
        let now = options.snapdir;
        let before = std::mem::replace(&mut *self.options.write(), options).snapdir;
        if before == now {
            return;
        }
        // What the kernel remembers of the root directory has `.zfs` in it, or has not.
        if let Some(notifier) = self.notifier.lock().clone()
            && let Err(error) = notifier.inval_inode(fuse::ROOT_NODE, 0, 0)
        {
            tracing::debug!(%error, "the kernel was not told that .zfs is shown or is not");
        }
        if before == SnapDir::Disabled || now == SnapDir::Disabled {
            self.forget_name(fuse::ROOT_NODE, nodes::control_directory::CONTROL_NAME);
        }
    }

    /// With what to tell the kernel of changes that it did not make.
    pub fn set_notifier(&self, notifier: Notifier) {
        let find = self.head.finder();
        self.writeback.start(notifier.clone(), move || find().map_or(Vec::new(), |filesystem| cache::writeback::nodes_of(&filesystem)));
        self.names.start(notifier.clone(), Vec::new);
        *self.notifier.lock() = Some(notifier);
    }

    /// Begins to free files that were removed while open, and that nobody has open any more. Called before the mount, or before calls go on in other contents.
    pub fn free_left_behind(&self) {
        *self.left_behind.lock() = self.head.current().and_then(|filesystem| LeftBehind::start(&filesystem));
    }

    /// Closes snapshots that have not been used for a while.
    pub fn tidy(&self) {
        self.slots.close_idle();
    }

    /// Closes a snapshot, so that it can be destroyed or renamed; its users get `ESTALE`.
    pub fn close_snapshot(&self, name: &str) {
        self.slots.close(name);
        self.forget_snapshot(name);
    }

    /// A snapshot has another name. A program that is in it stays there.
    pub fn snapshot_renamed(&self, from: &str, to: &str) {
        self.slots.renamed(from, to);
        self.forget_snapshot(from);
    }

    /// The caller may have the turn of administrative verbs, and a call in `.zfs/snapshot` may wait for a device: so it is not waited for.
    fn forget_snapshot(&self, name: &str) {
        self.names.forget(Forget::Name(nodes::node::SNAPSHOT_DIRECTORY, name.as_bytes().to_vec()));
        self.snapshots_changed();
    }

    /// Snapshots were made, renamed or destroyed: the kernel has an old listing of them.
    pub fn snapshots_changed(&self) {
        if let Some(notifier) = self.notifier.lock().clone() {
            let _ = notifier.inval_inode(nodes::node::SNAPSHOT_DIRECTORY, 0, 0);
        }
    }

    fn forget_name(&self, parent: u64, name: &[u8]) {
        if let Some(notifier) = self.notifier.lock().clone() {
            let _ = notifier.inval_entry(parent, name);
        }
    }

    pub(crate) fn has_posix_acls(&self) -> bool {
        self.options.read().posix_acls
    }

    /// With the property `sync=always` a change is safe before it is answered.
    fn settled<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_ok() && self.options.read().sync == SyncPolicy::Always {
            fuse::before_blocking();
            self.filesystem()?.commit().map_err(crate::errno::of)?;
        }
        result
    }

    /// As [`Ops::settled`], of a change in a directory. In `.zfs` snapshots are changed: they are safe by then, and the gate was not passed for them.
    fn settled_in<T>(&self, directory: u64, result: Result<T>) -> Result<T> {
        if Node::of(directory) == Node::Snapshots { result } else { self.settled(result) }
    }

    pub(crate) fn announces_opens(&self) -> bool {
        self.options.read().announce_opens
    }
}

impl Filesystem for Ops {
    fn init(&self, negotiated: &Negotiated) {
        let collects = negotiated.flags.contains(InitFlags::WRITEBACK_CACHE);
        self.writeback.agree(collects);
        self.replaced.agree(negotiated.minor >= MINOR_FORGETS_NAMES);
        self.may_be_direct.store(!collects && negotiated.minor >= MINOR_DIRECT_IS_COHERENT, Ordering::Relaxed);
    }

    fn ended(&self) {
        if let Some(filesystem) = self.head.current() {
            filesystem.write_soon();
        }
    }

    fn destroy(&self) {
        self.writeback.end();
        self.names.end();
        self.replaced.end();
        self.slots.close_all();
        self.head.close_unopened();
        self.left_behind.lock().take();
        // Another mount of the file system may have begun meanwhile: what that one's kernel knows stays.
        self.in_use.lock().take();
        *self.notifier.lock() = None;
    }

    fn lookup(&self, _: &Context, parent: u64, name: &[u8]) -> Result<Entry> {
        let _inside = self.enter(parent);
        self.look_up(Node::of(parent), name)
    }

    fn forget(&self, node: u64, count: u64) {
        self.forget_node(Node::of(node), count);
    }

    fn getattr(&self, _: &Context, node: u64, handle: Option<u64>) -> Result<Attributes> {
        if handle.is_some_and(|handle| handle & cache::writeback::WRITER != 0) && self.writeback.is_agreed() {
            self.before_write(node)?;
        }
        let _inside = self.enter(node);
        self.attributes(Node::of(node))
    }

    fn statx(&self, _: &Context, node: u64, _: Option<u64>) -> Result<StatX> {
        let _inside = self.enter(node);
        self.extended_stat(Node::of(node))
    }

    fn setattr(&self, cx: &Context, node: u64, changes: &SetAttr) -> Result<Attributes> {
        let _inside = self.enter(node);
        let changed = self.settled(self.change_attributes(cx, Node::of(node), changes));
        if changes.size.is_some() { self.forgotten_if_failed(node, changed) } else { changed }
    }

    fn readlink(&self, _: &Context, node: u64) -> Result<Vec<u8>> {
        let _inside = self.enter(node);
        self.link_target(Node::of(node))
    }

    fn symlink(&self, cx: &Context, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        let _inside = self.enter(parent);
        self.settled(self.make_link(cx, Node::of(parent), name, target))
    }

    fn mknod(&self, cx: &Context, parent: u64, name: &[u8], mode: u32, device: u32, umask: u32) -> Result<Entry> {
        let _inside = self.enter(parent);
        self.settled(self.make_file(cx, Node::of(parent), name, mode, umask, device))
    }

    fn mkdir(&self, cx: &Context, parent: u64, name: &[u8], mode: u32, umask: u32) -> Result<Entry> {
        let _inside = self.enter(parent);
        self.settled_in(parent, self.make_directory(cx, Node::of(parent), name, mode, umask))
    }

    fn unlink(&self, _: &Context, parent: u64, name: &[u8]) -> Result<()> {
        let _inside = self.enter(parent);
        self.settled(self.remove_file(Node::of(parent), name))
    }

    fn rmdir(&self, cx: &Context, parent: u64, name: &[u8]) -> Result<()> {
        let _inside = self.enter(parent);
        self.settled_in(parent, self.remove_directory(cx, Node::of(parent), name))
    }

    fn rename(&self, cx: &Context, parent: u64, name: &[u8], new_parent: u64, new_name: &[u8], flags: u32) -> Result<()> {
        let _inside = self.enter(parent);
        self.settled_in(parent, self.rename_entry(cx, (Node::of(parent), name), (Node::of(new_parent), new_name), flags))
    }

    fn link(&self, _: &Context, node: u64, new_parent: u64, new_name: &[u8]) -> Result<Entry> {
        let _inside = self.enter_either(node, new_parent);
        self.settled(self.add_link(Node::of(node), Node::of(new_parent), new_name))
    }

    fn open(&self, cx: &Context, node: u64, flags: u32, kill_suidgid: bool) -> Result<Opened> {
        let _inside = self.enter(node);
        if !self.announces_opens() {
            return Err(Errno::ENOSYS);
        }
        let opened = self.open_file(cx, node, flags, kill_suidgid);
        if flags & libc::O_TRUNC as u32 != 0 { self.forgotten_if_failed(node, self.settled(opened)) } else { opened }
    }

    fn create(&self, cx: &Context, parent: u64, name: &[u8], mode: u32, umask: u32, flags: u32) -> Result<Created> {
        let _inside = self.enter(parent);
        if !self.announces_opens() {
            return Err(Errno::ENOSYS);
        }
        self.look_for_room_to_write_back();
        let entry = self.settled(self.make_file(cx, Node::of(parent), name, mode, umask, 0))?;
        Ok(Created { entry, opened: self.opened_new(entry.node, flags) })
    }

    fn tmpfile(&self, cx: &Context, parent: u64, mode: u32, umask: u32, flags: u32) -> Result<Created> {
        let _inside = self.enter(parent);
        self.look_for_room_to_write_back();
        let entry = self.settled(self.make_unnamed(cx, Node::of(parent), mode, umask))?;
        Ok(Created { entry, opened: self.opened_new(entry.node, flags) })
    }

    fn read(&self, _: &Context, read: &Read, out: &mut [u8]) -> Result<usize> {
        let _inside = self.enter(read.node);
        self.read_file(read, out)
    }

    fn write(&self, cx: &Context, write: &Write, data: &[u8]) -> Result<usize> {
        let _inside = self.enter_to_write();
        self.write_file(cx, write, data)
    }

    fn release(&self, _: &Context, node: u64, handle: u64, _: u32, _: Owner) -> Result<()> {
        if handle & cache::writeback::WRITER != 0 {
            self.writeback.closed(node);
        }
        Ok(())
    }

    fn fsync(&self, _: &Context, node: u64, _: u64, _: bool) -> Result<()> {
        let _inside = self.enter(node);
        self.sync_node(Node::of(node))
    }

    fn fsyncdir(&self, _: &Context, node: u64, _: u64, _: bool) -> Result<()> {
        let _inside = self.enter(node);
        self.sync_node(Node::of(node))
    }

    fn syncfs(&self, _: &Context) -> Result<()> {
        fuse::before_blocking();
        let _inside = self.enter(fuse::ROOT_NODE);
        if self.is_unused() {
            return Ok(());
        }
        self.filesystem()?.sync_changes().map_err(crate::errno::of)
    }

    fn opendir(&self, _: &Context, _: u64, _: u32) -> Result<Opened> {
        // The kernel then caches listings, and does not ask again.
        Err(Errno::ENOSYS)
    }

    fn readdir(&self, _: &Context, node: u64, _: u64, offset: u64, out: &mut DirectoryWriter<'_>) -> Result<()> {
        let _inside = self.enter(node);
        self.list(Node::of(node), offset, out)
    }

    fn readdirplus(&self, _: &Context, node: u64, _: u64, offset: u64, out: &mut DirectoryPlusWriter<'_>) -> Result<()> {
        let _inside = self.enter(node);
        self.list_plus(Node::of(node), offset, out)
    }

    fn statfs(&self, _: &Context, node: u64) -> Result<StatFs> {
        // `.zfs` has no room of its own: the answer is that of the root.
        let _inside = self.enter_either(node, fuse::ROOT_NODE);
        self.space(Node::of(node))
    }

    fn setxattr(&self, cx: &Context, node: u64, attribute: &ExtendedAttribute<'_>) -> Result<()> {
        let _inside = self.enter(node);
        self.settled(self.set_xattr(cx, Node::of(node), attribute))
    }

    fn getxattr(&self, cx: &Context, node: u64, name: &[u8], out: &mut [u8]) -> Result<usize> {
        let _inside = self.enter(node);
        self.get_xattr(cx, Node::of(node), name, out)
    }

    fn listxattr(&self, cx: &Context, node: u64, out: &mut [u8]) -> Result<usize> {
        let _inside = self.enter(node);
        self.list_xattrs(cx, Node::of(node), out)
    }

    fn removexattr(&self, cx: &Context, node: u64, name: &[u8]) -> Result<()> {
        let _inside = self.enter(node);
        self.settled(self.remove_xattr(cx, Node::of(node), name))
    }

    fn ioctl(&self, cx: &Context, node: u64, ioctl: &Ioctl<'_>, out: &mut [u8]) -> Result<(i32, usize)> {
        let _inside = self.enter(node);
        let done = self.control(cx, Node::of(node), ioctl, out).map(|len| (0, len));
        if !flags::changes(ioctl.command) {
            return done;
        }
        if done.is_ok() {
            // The change time is another one, of which the kernel does not think here.
            self.writeback.forget(Forget::One(node));
        }
        self.settled(done)
    }

    fn fallocate(&self, cx: &Context, node: u64, fallocate: &Fallocate) -> Result<()> {
        let _inside = self.enter(node);
        rights::check(cx, rights::Request::Fallocate)?;
        self.forgotten_if_failed(node, self.settled(self.allocate(cx, Node::of(node), fallocate)))
    }

    fn lseek(&self, cx: &Context, node: u64, _: u64, offset: u64, whence: u32) -> Result<u64> {
        // The gate is passed for each look: between them the kernel is told something.
        rights::check(cx, rights::Request::Seek)?;
        if !self.fetch_writes(node) {
            // The kernel does not ask again: all is data then, up to the size that it knows. Better than a hole where data is.
            return Err(Errno::ENOSYS);
        }
        self.seek_in(node, offset, whence)
    }

    fn copy_file_range(&self, cx: &Context, node_in: u64, copy: &CopyRange) -> Result<u64> {
        let _inside = self.enter_either(node_in, copy.node_out);
        rights::check(cx, rights::Request::CopyRange)?;
        self.forgotten_if_failed(copy.node_out, self.settled(self.copy_range(cx, Node::of(node_in), copy)))
    }
}
