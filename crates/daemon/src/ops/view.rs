//! A program's transaction as a file system of its own: FUSE operations onto one [`Transaction`].
//!
//! # Theory
//! The view shows the dataset with the transaction's changes; nobody else sees those. Numbers of files are those of the dataset, new files
//! have numbers from 2^47 on until the commit. The kernel may remember everything for long: who changes files in the view is the kernel, and
//! what others change in the dataset is a conflict.
//!
//! *Syncing* does nothing: what is durable, and when, the commit says. After an error that a script might not look at (too big,
//! conflict, no room, unreadable) there is no commit any more, since half of what was meant would be done.
//!
//! *Listings* are taken when a directory is opened, so that removing entries while one reads does not move the others. Attributes are
//! not given with them: whoever looks at a file depends on it, and a listing should not depend on all that it lists.
//!
//! # Path
//! kernel → `fuse::dispatch` → [`View`] → [`tarnfs::Transaction`]; `crate::transactions` mounts it and ends it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use fuse::{
    Attributes, Context, DirectoryPlusWriter, DirectoryWriter, Entry, EntryKind, Errno, ExtendedAttribute, Fallocate, Filesystem, Ioctl, Opened, Read, Result, SetAttr, StatFs,
    Write, WriteFlags,
};
use parking_lot::Mutex;
use tarnfs::{AclKind, Error, ErrorKind, FileKind, NodeId, RenameMode, SetAttributes, Stat, Transaction, XattrMode};

use super::LONG;
use super::attributes::{attr_of, device_from_kernel, room_at, set_of};
use super::names::credentials;
use super::xattr::check_namespace;

/// Directories that may be open at a time: each holds its listing.
const LISTINGS_MAX: usize = 256;
/// Bits of a mode that change who runs a program.
const SET_UID: u32 = libc::S_ISUID;
const SET_GID: u32 = libc::S_ISGID;
const GROUP_RUNS: u32 = libc::S_IXGRP;

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

/// See the module.
pub struct View {
    state: Mutex<State>,
    /// Whoever has the state is to forget the transaction when they are done with it.
    abandoned: AtomicBool,
    root: NodeId,
    block_size: u32,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View of {}", self.root)
    }
}

/// Does an operation that fails like this leave something undone that a program may not notice?
fn ends_it(kind: ErrorKind) -> bool {
    use ErrorKind::{Checksum, Conflict, Corrupt, Io, NoSpace, Quota, Stale, Suspended, TooBig};
    matches!(kind, TooBig | Conflict | Stale | NoSpace | Quota | Io | Checksum | Corrupt | Suspended)
}

/// The mode without the bits that a change of contents or owner takes away.
fn without_set_id(mode: u32) -> u32 {
    let group = if mode & GROUP_RUNS != 0 { SET_GID } else { 0 };
    mode & !(SET_UID | group)
}

impl View {
    /// Shows a transaction.
    pub fn new(transaction: Transaction, block_size: u32) -> View {
        let root = transaction.root();
        let state = State { transaction: Some(transaction), failed: None, listings: HashMap::new(), next_listing: 1 };
        View { state: Mutex::new(state), abandoned: AtomicBool::new(false), root, block_size: block_size.max(512) }
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
        // New contents have no blocks yet; programs that look for holes must not take all of a file for one.
        attr.blocks = attr.blocks.max(stat.size.div_ceil(512));
        Attributes { attr, valid: LONG }
    }

    fn entry(&self, stat: &Stat) -> Entry {
        let Attributes { attr, valid } = View::attributes(stat);
        Entry { node: self.node(stat.inode), generation: stat.generation, attr, entry_valid: LONG, attr_valid: valid }
    }

    fn made(&self, work: impl FnOnce(&mut Transaction) -> std::result::Result<Stat, Error>) -> Result<Entry> {
        self.with(work).map(|stat| self.entry(&stat))
    }
}

/// Contents or owner are changed by somebody for whom set-id bits must go.
fn drop_set_id(transaction: &mut Transaction, id: NodeId) -> std::result::Result<(), Error> {
    let stat = transaction.getattr(id)?;
    let mode = without_set_id(stat.mode);
    if stat.kind() != FileKind::Directory && mode != stat.mode {
        transaction.setattr(id, &SetAttributes { mode: Some(mode & 0o7777), ..SetAttributes::default() })?;
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

    fn setattr(&self, _: &Context, node: u64, changes: &SetAttr) -> Result<Attributes> {
        let id = self.id(node);
        let mut set = set_of(changes);
        set.change_time = None;
        let owner = set.uid.is_some() || set.gid.is_some();
        let stat = self.with(|transaction| {
            if changes.kill_suidgid || (owner && set.mode.is_none()) {
                drop_set_id(transaction, id)?;
            }
            transaction.setattr(id, &set)
        });
        stat.map(|stat| View::attributes(&stat))
    }

    fn readlink(&self, _: &Context, node: u64) -> Result<Vec<u8>> {
        self.with(|transaction| transaction.readlink(self.id(node)))
    }

    fn symlink(&self, cx: &Context, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        self.made(|transaction| transaction.symlink(self.id(parent), name, target, &credentials(cx, 0)))
    }

    fn mknod(&self, cx: &Context, parent: u64, name: &[u8], mode: u32, device: u32, umask: u32) -> Result<Entry> {
        let mode = if mode & libc::S_IFMT == 0 { mode | libc::S_IFREG } else { mode };
        self.made(|transaction| transaction.create(self.id(parent), name, mode, device_from_kernel(device), &credentials(cx, umask)))
    }

    fn mkdir(&self, cx: &Context, parent: u64, name: &[u8], mode: u32, umask: u32) -> Result<Entry> {
        self.made(|transaction| transaction.mkdir(self.id(parent), name, mode, &credentials(cx, umask)))
    }

    fn unlink(&self, _: &Context, parent: u64, name: &[u8]) -> Result<()> {
        self.with(|transaction| transaction.unlink(self.id(parent), name))
    }

    fn rmdir(&self, _: &Context, parent: u64, name: &[u8]) -> Result<()> {
        self.with(|transaction| transaction.rmdir(self.id(parent), name))
    }

    fn rename(&self, _: &Context, parent: u64, name: &[u8], new_parent: u64, new_name: &[u8], flags: u32) -> Result<()> {
        let mode = match flags {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Errno::EINVAL),
        };
        self.with(|transaction| transaction.rename(self.id(parent), name, self.id(new_parent), new_name, mode))
    }

    fn link(&self, _: &Context, node: u64, new_parent: u64, new_name: &[u8]) -> Result<Entry> {
        self.made(|transaction| transaction.link(self.id(node), self.id(new_parent), new_name))
    }

    fn read(&self, _: &Context, read: &Read, out: &mut [u8]) -> Result<usize> {
        let data = self.with(|transaction| transaction.read(self.id(read.node), read.offset, out.len()))?;
        out[..data.len()].copy_from_slice(&data);
        Ok(data.len())
    }

    fn write(&self, _: &Context, write: &Write, data: &[u8]) -> Result<usize> {
        let id = self.id(write.node);
        self.with(|transaction| {
            if write.write_flags.contains(WriteFlags::KILL_SUIDGID) {
                drop_set_id(transaction, id)?;
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

    fn setxattr(&self, _: &Context, node: u64, attribute: &ExtendedAttribute<'_>) -> Result<()> {
        let mode = match attribute.flags.cast_signed() {
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Errno::EINVAL),
        };
        // Access control lists cannot be changed in a transaction.
        check_namespace(attribute.name)?;
        self.with(|transaction| transaction.setxattr(self.id(node), attribute.name, attribute.value, mode))
    }

    fn getxattr(&self, _: &Context, node: u64, name: &[u8], out: &mut [u8]) -> Result<usize> {
        if AclKind::of_name(name).is_none() {
            check_namespace(name)?;
        }
        let value = self.with(|transaction| transaction.getxattr(self.id(node), name))?;
        super::xattr::answer(&value, out)
    }

    fn listxattr(&self, _: &Context, node: u64, out: &mut [u8]) -> Result<usize> {
        let names = self.with(|transaction| transaction.listxattr(self.id(node)))?;
        let list: Vec<u8> = names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect();
        super::xattr::answer(&list, out)
    }

    fn removexattr(&self, _: &Context, node: u64, name: &[u8]) -> Result<()> {
        check_namespace(name)?;
        self.with(|transaction| transaction.removexattr(self.id(node), name))
    }

    fn ioctl(&self, _: &Context, _: u64, _: &Ioctl<'_>, _: &mut [u8]) -> Result<(i32, usize)> {
        Err(Errno::ENOTTY)
    }

    fn fallocate(&self, _: &Context, node: u64, fallocate: &Fallocate) -> Result<()> {
        const KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
        const PUNCH: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32;
        const ZERO: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;
        let (id, zeroes) = (self.id(node), fallocate.mode & (PUNCH | ZERO) != 0);
        if !matches!(fallocate.mode, 0 | KEEP_SIZE | ZERO) && fallocate.mode != PUNCH | KEEP_SIZE && fallocate.mode != ZERO | KEEP_SIZE {
            return Err(Errno::EOPNOTSUPP);
        }
        let end = fallocate.offset.checked_add(fallocate.length).ok_or(Errno::EFBIG)?;
        self.with(|transaction| {
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
