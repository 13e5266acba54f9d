//! Files that were changed without the kernel, and how it learns of that.
//!
//! # Theory
//! The kernel may remember names, attributes and contents for long, since only it changes them. When something else
//! does (a rollback, the commit of a transaction), the kernel is told to forget. Telling takes a while, and answers
//! that it gets meanwhile would be remembered again: so until it was told everything, answers are not to be remembered.
//! Contents cannot be given out in that way: a page that is read between the first telling and the change stays until
//! the second, an instant after the change.
//!
//! A kernel before Linux 6.16 cannot be told to forget all names. So it may not remember for long that a name is absent: after a rollback a file may be there again. A
//! name that leads to a file which is gone is found out to be stale by the first call with that file. But one may lead to another file that is there as well, and no call
//! would ever fail: so the names that the kernel knows are compared with the contents that come, and it is told of each that leads elsewhere. It is told of no other: a
//! kernel before Linux 6.2 takes the end of a name's life for its end, with what is mounted below.
//!
//! A kernel with a write-back cache keeps its own sizes of files that it knows. So changed files become other files to
//! it, and programs that have one open get errors. Its dirty data must have been written back before the change, or it
//! goes over the new contents.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use fuse::Notifier;
use parking_lot::Mutex;
use tarnfs::{Changed, FileSystem, InodeNumber, KnownName};

use crate::ops::attributes::seconds_now;
use crate::ops::{Ops, SHORT};

/// Tells the kernel to keep the contents.
const ATTRIBUTES_ONLY: i64 = -1;

/// The files that the kernel is to take for other ones, and whether a change is under way.
#[derive(Debug, Default)]
pub(in crate::ops) struct Replaced {
    /// How often all contents were replaced.
    all: AtomicU64,
    /// Some files were replaced alone.
    some: AtomicBool,
    /// How often each of them was.
    files: Mutex<HashMap<InodeNumber, u64>>,
    /// Changes that the kernel is being told of.
    under_way: AtomicU32,
    /// The mount is gone.
    ended: AtomicBool,
    /// The kernel can be told to forget all names.
    forgets_names: AtomicBool,
}

impl Replaced {
    pub(in crate::ops) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    pub(in crate::ops) fn agree(&self, forgets_names: bool) {
        self.forgets_names.store(forgets_names, Ordering::Relaxed);
    }
}

/// While this lives, the kernel does not remember what it is told.
pub(in crate::ops) struct UnderWay<'a>(&'a AtomicU32);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Ops {
    /// Whether the mount is gone. The kernel forgot all of its files then.
    pub fn is_ended(&self) -> bool {
        self.replaced.ended.load(Ordering::Acquire)
    }

    pub(in crate::ops) fn is_being_changed(&self) -> bool {
        self.replaced.under_way.load(Ordering::Acquire) > 0
    }

    /// Whether the kernel can be told to forget all names.
    pub(in crate::ops) fn forgets_names(&self) -> bool {
        self.replaced.forgets_names.load(Ordering::Relaxed)
    }

    /// The number to be added to the generation of a file.
    pub(in crate::ops) fn times_replaced(&self, inode: InodeNumber) -> u64 {
        let all = self.replaced.all.load(Ordering::Relaxed);
        if !self.replaced.some.load(Ordering::Acquire) {
            return all;
        }
        all + self.replaced.files.lock().get(&inode).copied().unwrap_or(0)
    }

    /// A change begins of which the kernel will be told.
    pub(in crate::ops) fn begin_change(&self) -> UnderWay<'_> {
        self.replaced.under_way.fetch_add(1, Ordering::AcqRel);
        UnderWay(&self.replaced.under_way)
    }

    /// The names that the kernel may know, if it has to be told of each that leads elsewhere in other contents.
    pub(in crate::ops) fn names_to_compare(&self, filesystem: &FileSystem) -> Vec<KnownName> {
        // Where names are not exact it remembers none.
        let remembers = self.notifier.lock().is_some() && filesystem.names_are_exact();
        if remembers && !self.forgets_names() { KnownName::all_in(filesystem) } else { Vec::new() }
    }

    /// The kernel looks these names up again. Never to be called by an operation of this mount, nor while one waits at the gate: it may hold the directory's lock.
    pub(in crate::ops) fn forget_names(&self, names: &[KnownName]) {
        let Some(notifier) = self.notifier.lock().clone() else { return };
        for known in names {
            let _ = notifier.expire_entry(self.node_number(0, known.directory), &known.name);
        }
    }

    /// Contents, attributes and names may have changed (rollback, receive, a program with the library): what the kernel has
    /// cached, mapped pages too, goes; names only if it can forget all. Never to be called by an operation of this mount.
    pub fn contents_replaced(&self) {
        self.replaced.all.fetch_add(u64::from(self.has_writeback_cache()), Ordering::Relaxed);
        let Some(notifier) = self.notifier.lock().clone() else { return };
        if self.forgets_names()
            && let Err(error) = notifier.forget_names()
        {
            tracing::warn!(dataset = self.dataset_name(), ?error, "the kernel may show old names for a while");
        }
        for inode in self.known_inodes() {
            // What the kernel does not know it need not forget.
            let _ = notifier.inval_inode(self.node_number(0, inode), 0, 0);
        }
    }

    /// Does `change`, which changes these names and files, and has the kernel forget what it knew of them. Never to be
    /// called by an operation of this mount.
    pub fn change_behind<T>(&self, changed: &Changed, change: impl FnOnce() -> T) -> T {
        let _under_way = self.begin_change();
        let notifier = self.notifier.lock().clone();
        let tell = || notifier.iter().for_each(|notifier| self.forget_changed(notifier, changed));
        tell();
        let done = change();
        if self.has_writeback_cache() {
            let mut files = self.replaced.files.lock();
            for inode in &changed.inodes {
                *files.entry(*inode).or_default() += 1;
            }
            self.replaced.some.store(true, Ordering::Release);
        }
        tell();
        done
    }

    /// Files whose space on disk will change when their group is synced, and those of which the kernel may still
    /// believe an earlier answer.
    pub fn unsettled(&self) -> Vec<InodeNumber> {
        let recent = seconds_now() - SHORT.as_secs().cast_signed() - 1;
        let Some(filesystem) = self.head.current() else { return Vec::new() };
        [filesystem.objset().dirty_objects(), filesystem.changed_since(recent)].concat()
    }

    /// The kernel forgets what it was told of the space of these files.
    pub fn forget_space(&self, inodes: &[InodeNumber]) {
        let Some(notifier) = self.notifier.lock().clone() else { return };
        for inode in inodes {
            let _ = notifier.inval_inode(self.node_number(0, *inode), ATTRIBUTES_ONLY, 0);
        }
    }

    fn forget_changed(&self, notifier: &Notifier, changed: &Changed) {
        for (directory, name) in &changed.names {
            // To be looked up again: if nothing came of the change, it is still the same, and what is mounted below stays.
            let _ = notifier.expire_entry(self.node_number(0, *directory), name);
        }
        for inode in &changed.inodes {
            let _ = notifier.inval_inode(self.node_number(0, *inode), 0, 0);
        }
    }

    /// Whether the kernel has a write-back cache.
    pub fn has_writeback_cache(&self) -> bool {
        self.writeback.is_agreed()
    }
}
