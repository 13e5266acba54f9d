//! A program's transaction as a file system of its own: FUSE operations onto one [`Transaction`].
//!
//! # Theory
//! The view shows the dataset with the transaction's changes, which only it sees. Files have the numbers of the
//! dataset; new files have numbers from 2^47 on until the commit. The kernel may remember everything for long: only it
//! changes files in the view, and a change in the dataset by others is a conflict.
//!
//! *Syncing* does nothing: the commit decides what is durable, and when. After an error that a script might ignore (too
//! big, conflict, no room, unreadable) the transaction cannot be committed, since half of what was meant would be done.
//!
//! *Listings* are taken when a directory is opened, so that removing entries during a listing does not move the others.
//! They come without attributes: a read of attributes makes the transaction depend on the file, and a listing should
//! not depend on all that it lists.
//!
//! # Path
//! kernel → `fuse::dispatch` → [`View`] → [`tarnfs::Transaction`]; `crate::mounting::transactions` mounts it and ends it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fuse::{
    Attributes, Context, DirectoryPlusWriter, DirectoryWriter, Entry, EntryKind, Errno, ExtendedAttribute, Fallocate, Filesystem, Ioctl, Opened, Read, Result, SetAttr, StatFs,
    Write, WriteFlags,
};
use parking_lot::Mutex;
use tarnfs::{Error, ErrorKind, NodeId, RenameMode, SetAttributes, Stat, Transaction};

use super::{LONG, flags};
use super::attributes::{acts_for_its_owner, attr_of, device_from_kernel, room_at, set_of};
use super::nodes::control_directory::CONTROL_NAME;
use super::files::writer;
use super::names::credentials;
use super::rights::{self, Request};
use super::xattr::{XattrsInUse, answer, mode_of};

/// Directories that may be open at a time: each holds its listing.
const LISTINGS_MAX: usize = 256;
/// One name of a listing.
struct Listed {
    inode: u64,
    kind: EntryKind,
    name: Vec<u8>,
}

struct State {
    /// `None`: it is over.
    transaction: Option<Transaction>,
    /// Why there can be no commit.
    failed: Option<Error>,
    listings: HashMap<u64, Vec<Listed>>,
    next_listing: u64,
}

/// A view of one transaction.
pub struct View {
    state: Mutex<State>,
    /// The holder of the state is to forget the transaction when it is done.
    abandoned: AtomicBool,
    root: NodeId,
    block_size: u32,
    xattrs: XattrsInUse,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View of {}", self.root)
    }
}

/// Whether an error of this kind leaves something undone that a program may not notice.
fn ends_it(kind: ErrorKind) -> bool {
    use ErrorKind::{Checksum, Conflict, Corrupt, Io, NoSpace, Quota, Stale, Suspended, TooBig};
    matches!(kind, TooBig | Conflict | Stale | NoSpace | Quota | Io | Checksum | Corrupt | Suspended)
}

impl View {
    /// Shows a transaction.
    pub fn new(transaction: Transaction, block_size: u32, xattrs: XattrsInUse) -> View {
        let root = transaction.root();
        let state = State { transaction: Some(transaction), failed: None, listings: HashMap::new(), next_listing: 1 };
        View { state: Mutex::new(state), abandoned: AtomicBool::new(false), root, block_size: block_size.max(512), xattrs }
    }

    /// Takes the transaction out: from now on every operation fails. The error says why it must not be committed.
    pub fn take(&self) -> (Option<Transaction>, Option<Error>) {
        let mut state = self.state.lock();
        state.listings.clear();
        (state.transaction.take(), state.failed.take())
    }

    /// Forgets the transaction: now, or when an operation that waits for a device has come back. The error is what had failed.
    pub fn abandon(&self) -> Option<Error> {
        self.abandoned.store(true, Ordering::SeqCst);
        let mut state = self.state.try_lock()?;
        state.transaction.take();
        state.failed.take()
    }

    fn with<T>(&self, work: impl FnOnce(&mut Transaction) -> std::result::Result<T, Error>) -> Result<T> {
        let mut state = match self.state.try_lock() {
            Some(state) => state,
            None => {
                fuse::before_blocking();
                self.state.lock()
            }
        };
        let state = &mut *state;
        let transaction = state.transaction.as_mut().ok_or(Errno::ESTALE)?;
        let done = work(transaction).map_err(|error| {
            if ends_it(error.kind()) && state.failed.is_none() {
                tracing::info!(dataset = transaction.file_system().objset().name(), "a transaction cannot be committed any more: {error}");
                state.failed = Some(error.clone());
            }
            crate::errno::of(error)
        });
        if self.abandoned.load(Ordering::SeqCst) {
            state.transaction.take();
        }
        done
    }

    fn id(&self, node: u64) -> NodeId {
        if node == fuse::ROOT_NODE { self.root } else { node }
    }

    fn node(&self, id: NodeId) -> u64 {
        if id == self.root { fuse::ROOT_NODE } else { id }
    }

    fn attributes(stat: &Stat) -> Attributes {
        let mut attr = attr_of(stat.inode, stat);
        // New contents have no blocks yet; programs that look for holes must not take the whole file for one.
        attr.blocks = attr.blocks.max(stat.size.div_ceil(512));
        Attributes { attr, valid: if acts_for_its_owner(stat) { Duration::ZERO } else { LONG } }
    }

    fn entry(&self, stat: &Stat) -> Entry {
        let Attributes { attr, valid } = View::attributes(stat);
        Entry { node: self.node(stat.inode), generation: stat.generation, attr, entry_valid: LONG, attr_valid: valid }
    }

    /// Refuses the name `.zfs` in the root directory of the dataset, where `.zfs` would hide the file for ever.
    fn check_name(&self, parent: u64, name: &[u8], refusal: Errno) -> Result<()> {
        if name == CONTROL_NAME && self.id(parent) == self.root { Err(refusal) } else { Ok(()) }
    }

    fn made(&self, work: impl FnOnce(&mut Transaction) -> std::result::Result<Stat, Error>) -> Result<Entry> {
        self.with(work).map(|stat| self.entry(&stat))
    }
}

/// The part of a file that a change concerns, for its set-id bits.
#[derive(Clone, Copy)]
enum Change {
    /// Contents. Whether the bits must go is as the kernel says, or as the caller's capability does.
    Contents(Option<bool>),
    Owner,
}

/// Takes the set-id bits that this change ends.
fn end_set_ids(transaction: &mut Transaction, cx: &Context, id: NodeId, change: Change) -> std::result::Result<(), Error> {
    let stat = transaction.getattr(id)?;
    if !acts_for_its_owner(&stat) {
        return Ok(());
    }
    let ended = match change {
        Change::Contents(must_go) => writer(cx, stat.mode, must_go).set_ids_ended_by_write(stat.mode, stat.gid),
        Change::Owner => writer(cx, stat.mode, None).set_ids_ended_by_chown(stat.mode, stat.gid),
    };
    if ended != 0 {
        transaction.setattr(id, &SetAttributes { mode: Some(stat.mode & 0o7777 & !ended), ..SetAttributes::default() })?;
    }
    Ok(())
}

impl Filesystem for View {
    fn lookup(&self, _: &Context, parent: u64, name: &[u8]) -> Result<Entry> {
        let found = self.with(|transaction| match transaction.lookup(self.id(parent), name) {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        });
        Ok(found?.map_or(Entry::negative(LONG), |stat| self.entry(&stat)))
    }

    fn getattr(&self, _: &Context, node: u64, _: Option<u64>) -> Result<Attributes> {
        self.with(|transaction| transaction.getattr(self.id(node))).map(|stat| View::attributes(&stat))
    }

    fn setattr(&self, cx: &Context, node: u64, changes: &SetAttr) -> Result<Attributes> {
        let id = self.id(node);
        let mut set = set_of(changes);
        set.change_time = None;
        let owner = set.uid.is_some() || set.gid.is_some();
        let stat = self.with(|transaction| {
            // The kernel says for every change of the owner that the bits must go, but not all of them must.
            if owner && set.mode.is_none() {
                end_set_ids(transaction, cx, id, Change::Owner)?;
            } else if changes.kill_suidgid {
                end_set_ids(transaction, cx, id, Change::Contents(Some(true)))?;
            }
            transaction.setattr(id, &set)
        });
        stat.map(|stat| View::attributes(&stat))
    }

    fn readlink(&self, _: &Context, node: u64) -> Result<Vec<u8>> {
        self.with(|transaction| transaction.readlink(self.id(node)))
    }

    fn symlink(&self, cx: &Context, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        self.check_name(parent, name, Errno::EEXIST)?;
        self.made(|transaction| transaction.symlink(self.id(parent), name, target, &credentials(cx, 0)))
    }

    fn mknod(&self, cx: &Context, parent: u64, name: &[u8], mode: u32, device: u32, umask: u32) -> Result<Entry> {
        self.check_name(parent, name, Errno::EEXIST)?;
        let mode = if mode & libc::S_IFMT == 0 { mode | libc::S_IFREG } else { mode };
        self.made(|transaction| transaction.create(self.id(parent), name, mode, device_from_kernel(device), &credentials(cx, umask)))
    }

    fn mkdir(&self, cx: &Context, parent: u64, name: &[u8], mode: u32, umask: u32) -> Result<Entry> {
        self.check_name(parent, name, Errno::EEXIST)?;
        self.made(|transaction| transaction.mkdir(self.id(parent), name, mode, &credentials(cx, umask)))
    }

    fn unlink(&self, _: &Context, parent: u64, name: &[u8]) -> Result<()> {
        self.with(|transaction| transaction.unlink(self.id(parent), name))
    }

    fn rmdir(&self, _: &Context, parent: u64, name: &[u8]) -> Result<()> {
        self.with(|transaction| transaction.rmdir(self.id(parent), name))
    }

    fn rename(&self, _: &Context, parent: u64, name: &[u8], new_parent: u64, new_name: &[u8], flags: u32) -> Result<()> {
        self.check_name(new_parent, new_name, Errno::EPERM)?;
        let mode = match flags {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Errno::EINVAL),
        };
        self.with(|transaction| transaction.rename(self.id(parent), name, self.id(new_parent), new_name, mode))
    }

    fn link(&self, _: &Context, node: u64, new_parent: u64, new_name: &[u8]) -> Result<Entry> {
        self.check_name(new_parent, new_name, Errno::EEXIST)?;
        self.made(|transaction| transaction.link(self.id(node), self.id(new_parent), new_name))
    }

    fn read(&self, _: &Context, read: &Read, out: &mut [u8]) -> Result<usize> {
        let data = self.with(|transaction| transaction.read(self.id(read.node), read.offset, out.len()))?;
        out[..data.len()].copy_from_slice(&data);
        Ok(data.len())
    }

    fn write(&self, cx: &Context, write: &Write, data: &[u8]) -> Result<usize> {
        let id = self.id(write.node);
        self.with(|transaction| {
            if write.write_flags.contains(WriteFlags::KILL_SUIDGID) {
                end_set_ids(transaction, cx, id, Change::Contents(Some(true)))?;
            }
            transaction.write(id, write.offset, data)
        })?;
        Ok(data.len())
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

    fn opendir(&self, _: &Context, node: u64, _: u32) -> Result<Opened> {
        let id = self.id(node);
        let (parent, entries) = self.with(|transaction| Ok((transaction.lookup(id, b"..")?.inode, transaction.list(id)?)))?;
        let directory = EntryKind::from_mode(libc::S_IFDIR);
        let mut listing = vec![Listed { inode: id, kind: directory, name: b".".to_vec() }, Listed { inode: parent, kind: directory, name: b"..".to_vec() }];
        listing.extend(entries.into_iter().map(|entry| Listed { inode: entry.node, kind: EntryKind(entry.kind.directory_type()), name: entry.name }));
        let mut state = self.state.lock();
        if state.listings.len() >= LISTINGS_MAX {
            return Err(Errno::ENFILE);
        }
        let handle = state.next_listing;
        state.next_listing += 1;
        state.listings.insert(handle, listing);
        Ok(Opened { handle, ..Opened::default() })
    }

    fn readdir(&self, _: &Context, _: u64, handle: u64, offset: u64, out: &mut DirectoryWriter<'_>) -> Result<()> {
        self.each_listed(handle, offset, |entry, next| out.push(entry.inode, next, entry.kind, &entry.name))
    }

    fn readdirplus(&self, _: &Context, _: u64, handle: u64, offset: u64, out: &mut DirectoryPlusWriter<'_>) -> Result<()> {
        self.each_listed(handle, offset, |entry, next| out.push_bare(entry.inode, next, entry.kind, &entry.name))
    }

    fn releasedir(&self, _: &Context, _: u64, handle: u64) -> Result<()> {
        self.state.lock().listings.remove(&handle);
        Ok(())
    }

    fn statfs(&self, _: &Context, _: u64) -> Result<StatFs> {
        let filesystem = self.state.lock().transaction.as_ref().ok_or(Errno::ESTALE)?.file_system().clone();
        room_at(&filesystem, self.root, self.block_size)
    }

    fn setxattr(&self, cx: &Context, node: u64, attribute: &ExtendedAttribute<'_>) -> Result<()> {
        self.xattrs.check(cx, attribute.name, true)?;
        let mode = mode_of(attribute)?;
        self.with(|transaction| transaction.setxattr(self.id(node), attribute.name, attribute.value, mode))
    }

    fn getxattr(&self, cx: &Context, node: u64, name: &[u8], out: &mut [u8]) -> Result<usize> {
        self.xattrs.check(cx, name, false)?;
        let value = self.with(|transaction| transaction.getxattr(self.id(node), name))?;
        answer(&value, out)
    }

    fn listxattr(&self, cx: &Context, node: u64, out: &mut [u8]) -> Result<usize> {
        let names = self.with(|transaction| transaction.listxattr(self.id(node)))?;
        answer(&self.xattrs.list(cx, names), out)
    }

    fn removexattr(&self, cx: &Context, node: u64, name: &[u8]) -> Result<()> {
        self.xattrs.check(cx, name, true)?;
        self.with(|transaction| transaction.removexattr(self.id(node), name))
    }

    /// Marks are shown, but cannot be changed in a transaction.
    fn ioctl(&self, cx: &Context, node: u64, ioctl: &Ioctl<'_>, out: &mut [u8]) -> Result<(i32, usize)> {
        rights::check(cx, Request::Control(ioctl.command))?;
        if flags::changes(ioctl.command) {
            return Err(Errno::EOPNOTSUPP);
        }
        let stat = self.with(|transaction| transaction.getattr(self.id(node)))?;
        flags::say(ioctl.command, &stat, out).map(|length| (0, length))
    }

    fn fallocate(&self, cx: &Context, node: u64, fallocate: &Fallocate) -> Result<()> {
        rights::check(cx, Request::Fallocate)?;
        const KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
        const PUNCH: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32;
        const ZERO: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;
        let (id, zeroes) = (self.id(node), fallocate.mode & (PUNCH | ZERO) != 0);
        if !matches!(fallocate.mode, 0 | KEEP_SIZE | ZERO) && fallocate.mode != PUNCH | KEEP_SIZE && fallocate.mode != ZERO | KEEP_SIZE {
            return Err(Errno::EOPNOTSUPP);
        }
        let end = fallocate.offset.checked_add(fallocate.length).ok_or(Errno::EFBIG)?;
        self.with(|transaction| {
            transaction.check_changeable(id)?;
            end_set_ids(transaction, cx, id, Change::Contents(None))?;
            if zeroes {
                transaction.zero(id, fallocate.offset, fallocate.length)?;
            }
            let size = transaction.getattr(id)?.size;
            if fallocate.mode & KEEP_SIZE == 0 && end > size { transaction.truncate(id, end) } else { Ok(()) }
        })
    }
}

impl View {
    fn each_listed(&self, handle: u64, offset: u64, mut push: impl FnMut(&Listed, u64) -> bool) -> Result<()> {
        let state = self.state.lock();
        let listing = state.listings.get(&handle).ok_or(Errno::ESTALE)?;
        let first = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, entry) in listing.iter().enumerate().skip(first) {
            if !push(entry, at as u64 + 1) {
                break;
            }
        }
        Ok(())
    }
}
