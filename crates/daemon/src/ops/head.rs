//! The contents that a mount shows, and how it gets others.
//!
//! # Theory
//! A rollback gives a dataset other contents while it is mounted, and nobody may have it open meanwhile. So calls of the kernel pass a gate; when it
//! is closed and nobody is inside, the file system is let go of, the contents change, and it is opened again. What the kernel was told of
//! passes on: a file of the same number and generation is the same file, and counts as known as often as before, also one that was removed
//! while open: none of these is freed before it is clear which contents are next. A file that is gone is *stale*: calls
//! with its node get `ESTALE` until the kernel has forgotten it, or is told of another file with its number. What the kernel forgets meanwhile, for which it does not
//! wait at the gate, is counted and taken off what passes on: else it would count as known as long as the mount lasts, and its room would not come free. However the
//! change ends, it is opened again; if it cannot be now, as a pool may just be suspended, the next call tries.
//!
//! Of many mounts few are used. What was mounted with many others is opened when the first call needs its files ([`Ops::unopened`]): until then it
//! takes no memory, and none of its blocks was read. Damage to them is the caller's `EIO` then, not a mount that fails.
//!
//! # Locks
//! The gate, before everything else; then `meanwhile`. Neither is held while the kernel is told something: it may wait for a call that waits at the gate.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use fuse::{Errno, Result};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tarnfs::{FileSystem, InodeNumber, MountUse, Stat, Told};

use crate::ops::Ops;
use crate::ops::nodes::node::Node;

/// Opens the contents of a mount that nobody has used yet; also says whether what was left behind in them is to be freed.
pub type Opener = Box<dyn Fn() -> Changed<(Arc<FileSystem>, bool), tarnfs::Error> + Send>;

/// What came of a change, in its own words.
type Changed<T, E> = std::result::Result<T, E>;

/// See the module.
pub(in crate::ops) struct Head {
    /// None while it changes, and until it could be opened after that; or if nobody has used it yet.
    current: Arc<ArcSwapOption<FileSystem>>,
    /// guards: that nobody is at work in the contents while they change
    gate: RwLock<()>,
    root: AtomicU64,
    has_stale: AtomicBool,
    /// guards: files that are gone, and how often the kernel was told of each
    stale: Mutex<HashMap<InodeNumber, u64>>,
    /// How often the kernel has forgotten files since the contents began to change; `None`: they do not change. guards: that nobody forgets while it is found
    /// out what the kernel knows, or passes on
    meanwhile: RwLock<Option<Mutex<HashMap<InodeNumber, u64>>>>,
    /// Until somebody uses it. guards: that it is opened once
    opener: Mutex<Option<Opener>>,
    /// guards: what the kernel knows of the contents that were, until others are opened
    told: Mutex<Vec<Told>>,
    /// guards: what is to be done when it is opened
    when_used: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Head {
    pub(in crate::ops) fn new(filesystem: Arc<FileSystem>) -> Head {
        let root = AtomicU64::new(filesystem.root());
        Head { root, ..Head::of(Some(filesystem), None) }
    }

    /// One that is opened when somebody uses it.
    pub(in crate::ops) fn unopened(opener: Opener) -> Head {
        Head::of(None, Some(opener))
    }

    fn of(filesystem: Option<Arc<FileSystem>>, opener: Option<Opener>) -> Head {
        Head {
            current: Arc::new(ArcSwapOption::new(filesystem)),
            gate: RwLock::default(),
            root: AtomicU64::new(0),
            has_stale: AtomicBool::new(false),
            stale: Mutex::default(),
            meanwhile: RwLock::default(),
            opener: Mutex::new(opener),
            told: Mutex::default(),
            when_used: Mutex::default(),
        }
    }

    /// Nobody will use it any more.
    pub(in crate::ops) fn close_unopened(&self) {
        self.opener.lock().take();
    }

    /// The file system, unless it could not be opened again.
    pub(in crate::ops) fn current(&self) -> Option<Arc<FileSystem>> {
        self.current.load_full()
    }

    /// Finds the file system, as long as the mount is there.
    pub(in crate::ops) fn finder(&self) -> impl Fn() -> Option<Arc<FileSystem>> + Send + Sync + 'static {
        let current = Arc::downgrade(&self.current);
        move || current.upgrade()?.load_full()
    }

    /// The number of the root directory.
    pub(in crate::ops) fn root(&self) -> InodeNumber {
        self.root.load(Ordering::Relaxed)
    }

    fn is_stale(&self, inode: InodeNumber) -> bool {
        self.has_stale.load(Ordering::Acquire) && self.stale.lock().contains_key(&inode)
    }

    fn stale(&self) -> Vec<InodeNumber> {
        if self.has_stale.load(Ordering::Acquire) { self.stale.lock().keys().copied().collect() } else { Vec::new() }
    }

    /// The kernel is told of a file that may have the number of one that is gone: what it knew of that one is this one's.
    pub(in crate::ops) fn told_of(&self, stat: &Stat) {
        if !self.has_stale.load(Ordering::Acquire) {
            return;
        }
        if let Some(count) = self.stale.lock().remove(&stat.inode)
            && let Some(filesystem) = self.current()
        {
            filesystem.take_over(stat.inode, stat.generation, count);
        }
    }

    /// The kernel forgets a file `count` times.
    pub(in crate::ops) fn forget(&self, inode: InodeNumber, count: u64) {
        let meanwhile = self.meanwhile.read();
        match &*meanwhile {
            Some(forgotten) => *forgotten.lock().entry(inode).or_default() += count,
            None => self.forget_in(self.current().as_deref(), inode, count),
        }
    }

    fn forget_in(&self, filesystem: Option<&FileSystem>, inode: InodeNumber, count: u64) {
        if self.has_stale.load(Ordering::Acquire) {
            let mut stale = self.stale.lock();
            if let Some(left) = stale.get_mut(&inode) {
                *left = left.saturating_sub(count);
                if *left == 0 {
                    stale.remove(&inode);
                }
                return;
            }
        }
        if let Some(filesystem) = filesystem {
            filesystem.forget(inode, count);
        }
    }

    /// The contents are there: they get what the kernel has forgotten meanwhile, and from now on what it forgets.
    fn show(&self, filesystem: Arc<FileSystem>) {
        let mut meanwhile = self.meanwhile.write();
        let forgotten = meanwhile.take().map(Mutex::into_inner).unwrap_or_default();
        forgotten.into_iter().for_each(|(inode, count)| self.forget_in(Some(&filesystem), inode, count));
        self.current.store(Some(filesystem));
    }
}

impl Ops {
    /// The file system.
    ///
    /// # Errors
    /// It could not be opened.
    pub fn filesystem(&self) -> Result<Arc<FileSystem>> {
        self.head.current().map_or_else(|| self.open_unused(), Ok)
    }

    fn open_unused(&self) -> Result<Arc<FileSystem>> {
        fuse::before_blocking();
        self.open_contents().map_err(crate::errno::of)?;
        self.head.current().ok_or(Errno::EIO)
    }

    /// Opens what nobody has used yet. What cannot be opened is tried again by the next call.
    ///
    /// # Errors
    /// It cannot be read, or is not there any more.
    pub fn open_contents(&self) -> Changed<(), tarnfs::Error> {
        let mut opener = self.head.opener.lock();
        let Some((filesystem, frees_left_behind)) = opener.as_ref().map(|open| open()).transpose()? else { return Ok(()) };
        self.go_on_in(filesystem);
        *opener = None;
        drop(opener);
        if frees_left_behind {
            self.free_left_behind();
        }
        Ok(())
    }

    /// Does something once the contents are open: now, or when somebody uses them.
    pub fn when_used(&self, action: Box<dyn FnOnce() + Send>) {
        let opener = self.head.opener.lock();
        if opener.is_some() {
            *self.head.when_used.lock() = Some(action);
            return;
        }
        drop(opener);
        action();
    }

    /// Changes how it is to be opened. `false`: it is open already, or will not be.
    pub fn is_to_be_opened_by(&self, opener: Opener) -> bool {
        self.head.opener.lock().as_mut().map(|waiting| *waiting = opener).is_some()
    }

    /// Nobody has used it since it was mounted. Contents that could not be opened again were used.
    pub fn is_unused(&self) -> bool {
        let opener = self.head.opener.lock();
        opener.is_some() && self.head.meanwhile.read().is_none()
    }

    /// The file system, for a call about a file of it.
    pub(in crate::ops) fn filesystem_of(&self, inode: InodeNumber) -> Result<Arc<FileSystem>> {
        if self.head.is_stale(inode) { Err(Errno::ESTALE) } else { self.filesystem() }
    }

    /// What its messages call it.
    pub(in crate::ops) fn dataset_name(&self) -> String {
        self.head.current().map_or_else(String::new, |filesystem| filesystem.objset().name())
    }

    /// For a call of the kernel about a node: passes the gate. Snapshots and `.zfs` do not change with the dataset.
    pub(in crate::ops) fn enter(&self, node: u64) -> Option<RwLockReadGuard<'_, ()>> {
        matches!(Node::of(node), Node::Root | Node::Head(_)).then(|| self.head.gate.read())
    }

    /// As [`Ops::enter`], for a call about two nodes, one of which may be behind the gate alone. It is passed once: a second time would wait for a change
    /// that waits for the first.
    pub(in crate::ops) fn enter_either(&self, node: u64, other: u64) -> Option<RwLockReadGuard<'_, ()>> {
        self.enter(node).or_else(|| self.enter(other))
    }

    /// As [`Ops::enter`], for a write, which another call may wait for that is inside.
    pub(in crate::ops) fn enter_to_write(&self) -> RwLockReadGuard<'_, ()> {
        self.head.gate.read_recursive()
    }

    /// Has the dataset get other contents by `change`, while nobody is inside, and goes on in what `opener` then opens. Never to be called by an
    /// operation of this mount.
    ///
    /// # Errors
    /// That of `change` (the contents are the old ones), else that of `opener`, as `failed` says it (the next call tries again).
    pub fn replace_contents<E>(&self, change: impl FnOnce() -> Changed<(), E>, opener: Opener, failed: impl FnOnce(tarnfs::Error) -> E) -> Changed<(), E> {
        // Until the kernel was told of the new contents it remembers nothing.
        let _under_way = self.begin_change();
        self.left_behind.lock().take();
        // What the kernel holds of mapped files comes now, not into the new contents.
        self.contents_replaced();
        let closed = self.head.gate.write();
        self.head.meanwhile.write().get_or_insert_default();
        let mut names = Vec::new();
        if let Some(filesystem) = self.head.current() {
            *self.head.told.lock() = filesystem.told();
            names = self.names_to_compare(&filesystem);
        }
        // Files that were removed while open stay: they pass on, too.
        let ended = self.in_use.lock().take();
        ended.into_iter().for_each(MountUse::leave);
        self.head.close_unopened();
        self.head.current.store(None);
        let mut reopening = Reopening { ops: self, opener: Some(opener), frees: false };
        let changed = change();
        // What a snapshot or a stream brings is left as it is until the next mount: the next stream is for that.
        reopening.frees = changed.is_err();
        let opened = reopening.now();
        if let Some(filesystem) = self.head.current() {
            names.retain(|name| name.leads_elsewhere(&filesystem));
        }
        drop(closed);
        self.forget_names(&names);
        self.contents_replaced();
        changed.and(opened.map_err(failed))
    }

    fn go_on_in(&self, filesystem: Arc<FileSystem>) {
        *self.in_use.lock() = Some(filesystem.use_mounted());
        let _ = filesystem.lookup_inode(filesystem.root());
        self.head.root.store(filesystem.root(), Ordering::Relaxed);
        let told = std::mem::take(&mut *self.head.told.lock());
        let mut stale = self.head.stale.lock();
        for told in told.into_iter().filter(|told| told.count > 0) {
            let is_there = told.generation.is_some_and(|generation| filesystem.take_over(told.inode, generation, told.count));
            if !is_there && told.inode != filesystem.root() {
                *stale.entry(told.inode).or_default() += told.count;
            }
        }
        self.head.has_stale.store(!stale.is_empty(), Ordering::Release);
        drop(stale);
        self.head.show(filesystem);
        let action = self.head.when_used.lock().take();
        action.into_iter().for_each(|action| action());
    }

    /// Files that the kernel may know.
    pub(in crate::ops) fn known_inodes(&self) -> Vec<InodeNumber> {
        let mut known = self.head.current().map_or_else(Vec::new, |filesystem| filesystem.known_inodes());
        known.extend(self.head.stale());
        // Of contents that could not be opened again.
        known.extend(self.head.told.lock().iter().map(|told| told.inode));
        known
    }
}

/// Contents that are to be opened, even if what changes them panics.
struct Reopening<'o> {
    ops: &'o Ops,
    opener: Option<Opener>,
    /// Files left behind are freed.
    frees: bool,
}

impl Reopening<'_> {
    fn now(mut self) -> Changed<(), tarnfs::Error> {
        self.open()
    }

    fn open(&mut self) -> Changed<(), tarnfs::Error> {
        let Some(opener) = self.opener.take() else { return Ok(()) };
        match opener() {
            Ok((filesystem, frees_left_behind)) => {
                self.ops.go_on_in(filesystem);
                if frees_left_behind && self.frees {
                    self.ops.free_left_behind();
                }
            }
            Err(error) => {
                *self.ops.head.opener.lock() = Some(opener);
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Drop for Reopening<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.open() {
            tracing::warn!(%error, "the contents of a mount are not open until the next call needs them");
        }
    }
}
