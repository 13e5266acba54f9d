//! One mounted dataset.

use std::ops::Deref;
use std::sync::Arc;

use engine::dmu::{Membership, Objset, Tx};
use engine::error::{Result, Within};
use engine::zap::Zap;
use engine::{bail, error};
use ondisk::dnode::OBJECTS_MAX;
use ondisk::sa::Attribute;
use ondisk::znode;

use super::attributes::quota::{OwnerKind, QuotaOf, Quotas};
use super::attributes::sa_tables::SaTables;
use super::attributes::stat::Time;
use super::contents::Contents;
use super::inodes::Inodes;
use super::inodes::file_set::FileSet;
use super::inodes::commit_gate::{Alone, Entered};
use super::inodes::inode::InodeRef;
use super::inodes::users::MountUse;
use super::log::Log;
use super::log::records::Done;
use super::log::source::FileSource;
use super::names::Names;
use super::names::entries::Entries;
use super::options::MountOptions;
use super::transaction::{Durability, Transaction};
use super::{InodeNumber, Stat};

/// How much room there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Bytes that the dataset refers to.
    pub referenced: u64,
    /// Bytes that may still be written.
    pub available: u64,
    /// Objects in use.
    pub objects: u64,
    /// Objects that may still be made.
    pub objects_available: u64,
}

/// What an object takes at least.
const OBJECT_BYTES: u64 = 512;

/// Says how many bytes the dataset refers to, and how many it may still write.
pub(super) type SpaceOf = Box<dyn Fn() -> (u64, u64) + Send + Sync>;

/// A mounted dataset. Operations run beside one another in it; the commit of a transaction is alone ([`AloneFileSystem`]).
pub struct FileSystem {
    mounted: Arc<Mounted>,
    /// What all its operations begin with.
    pub(super) membership: Membership,
    /// This is a commit's, which has closed the gate.
    is_alone: bool,
}

impl Deref for FileSystem {
    type Target = Mounted;

    fn deref(&self) -> &Mounted {
        &self.mounted
    }
}

/// What all handles of a mounted dataset share.
pub struct Mounted {
    pub(super) objset: Arc<Objset>,
    pub(super) names: Names,
    pub(super) files: Arc<FileSet>,
    pub(super) inodes: Inodes,
    pub(super) quotas: Quotas,
    space: SpaceOf,
    pub(super) log: Log,
}

/// A file system whose gate is closed: nobody else is inside. All that is done through it joins one group, from [`AloneFileSystem::begin`] on.
pub(super) struct AloneFileSystem<'a> {
    /// Dropped before the gate is opened.
    fs: FileSystem,
    _closed: Alone<'a>,
}

impl Deref for AloneFileSystem<'_> {
    type Target = FileSystem;

    fn deref(&self) -> &FileSystem {
        &self.fs
    }
}

impl AloneFileSystem<'_> {
    /// Joins the open group with all operations to come, which write at most so much. `false`: that would mean to wait.
    pub(super) fn begin(&mut self, room: u64) -> Result<bool> {
        let whole = Membership::try_whole(&self.fs.objset, room)?;
        Ok(whole.map(|whole| self.fs.membership = whole).is_some())
    }

    /// Leaves the group; still nobody else is inside.
    pub(super) fn end(&mut self) {
        self.fs.membership = Membership::single(self.fs.objset.clone());
    }
}

impl std::fmt::Debug for FileSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileSystem({})", self.objset.name())
    }
}

impl FileSystem {
    /// Opens the file system in `objset`. `space` says how many bytes it refers to and how many it may still write.
    ///
    /// # Errors
    /// The object set is no file system, is of a newer version, or cannot be read.
    pub fn open(objset: Arc<Objset>, options: MountOptions, space: impl Fn() -> (u64, u64) + Send + Sync + 'static) -> Result<Self> {
        let name = objset.name();
        Self::open_inner(objset, options, Box::new(space)).within(|| name)
    }

    fn open_inner(objset: Arc<Objset>, options: MountOptions, space: SpaceOf) -> Result<Self> {
        if objset.is_locked() {
            bail!(KeyNotLoaded, "it is encrypted, and its key is not loaded");
        }
        let master = Zap::open(&objset, znode::MASTER_NODE)?;
        let version = master.lookup_u64(znode::VERSION_NAME)?.ok_or_else(|| error!(Corrupt, "the file system has no version"))?;
        if version == 0 || version > znode::VERSION_SA {
            bail!(Unsupported, "file system version {version}");
        }
        let sa_master = if version >= znode::VERSION_SA { Some(master.get_u64(znode::SA_ATTRS_NAME)?) } else { None };
        let files = FileSet::new(objset.clone(), version, SaTables::load(&objset, sa_master)?, options);
        let mounted = Mounted {
            names: Names::load(&files, &master)?,
            inodes: Inodes::new(files.clone()),
            quotas: Quotas::load(&objset, &master)?,
            space,
            log: Log::new(files.clone()),
            files,
            objset: objset.clone(),
        };
        let fs = FileSystem { mounted: Arc::new(mounted), membership: Membership::single(objset), is_alone: false };
        fs.log.obey(&fs.mount_options());
        fs.inode(fs.root())?.check_directory()?;
        Ok(fs)
    }

    /// Has the file system alone: waits until nobody is inside.
    pub(super) fn alone(&self) -> AloneFileSystem<'_> {
        let closed = self.inodes.close();
        let fs = FileSystem { mounted: self.mounted.clone(), membership: Membership::single(self.objset.clone()), is_alone: true };
        AloneFileSystem { fs, _closed: closed }
    }

    /// The gate is closed: nobody else is inside.
    pub(super) fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// For an operation: passes the gate.
    pub(super) fn enter(&self) -> Entered<'_> {
        if self.is_alone { Entered::alone() } else { self.inodes.enter() }
    }

    /// The root directory.
    pub fn root(&self) -> InodeNumber {
        self.names.root()
    }

    /// The object set.
    pub fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }

    /// The file system's version.
    pub fn version(&self) -> u64 {
        self.files.version()
    }

    /// How it is mounted.
    pub fn options(&self) -> MountOptions {
        MountOptions::clone(&self.files.options())
    }

    /// How it is mounted, without a copy. To be given back soon.
    pub(super) fn mount_options(&self) -> arc_swap::Guard<Arc<MountOptions>> {
        self.files.options()
    }

    /// A property changed.
    pub fn set_options(&self, options: MountOptions) {
        self.files.set_options(options);
        self.log.obey(&self.mount_options());
    }

    /// Nothing may be changed.
    pub fn is_read_only(&self) -> bool {
        self.files.is_read_only()
    }

    pub(super) fn check_writable(&self) -> Result<()> {
        self.files.check_writable()
    }

    /// How much room there is.
    pub fn space(&self) -> Space {
        let (referenced, available) = (self.space)();
        let objects = self.objset.objects_used();
        let objects_available = (available / OBJECT_BYTES).min(OBJECTS_MAX - objects.min(OBJECTS_MAX));
        Space { referenced, available, objects, objects_available }
    }

    /// How many bytes writers would still be let in with: what others were let in with and is not on disk yet is taken off, which [`FileSystem::space`] does not do.
    pub fn room(&self) -> u64 {
        self.space().available.min(self.objset.owner().room_left())
    }

    /// As [`FileSystem::space`], seen from a file: in a directory whose children inherit a project with a quota, the quota is all the
    /// room there is.
    ///
    /// # Errors
    /// There is no such file, or quotas cannot be read.
    pub fn space_at(&self, inode: InodeNumber) -> Result<Space> {
        let mut space = self.space();
        let inode = self.inode(inode)?;
        let project = inode.project()?;
        if project == 0 || inode.word(Attribute::Flags)? & znode::FLAG_PROJECT_INHERIT == 0 {
            return Ok(space);
        }
        if let Some((used, quota)) = self.quotas.room_of_project(QuotaOf::Bytes, project)? {
            space.available = quota.saturating_sub(used);
            space.referenced = quota - space.available;
        }
        if let Some((used, quota)) = self.quotas.room_of_project(QuotaOf::Objects, project)? {
            space.objects_available = quota.saturating_sub(used);
            space.objects = quota - space.objects_available;
        }
        Ok(space)
    }

    /// What is known of a file.
    ///
    /// # Errors
    /// There is no such file.
    pub fn getattr(&self, inode: InodeNumber) -> Result<Stat> {
        self.inode(inode)?.stat()
    }

    /// Whether new files say which project they belong to.
    pub(super) fn gives_project_ids(&self) -> bool {
        self.files.gives_project_ids()
    }

    pub(super) fn now(&self) -> Time {
        self.files.now()
    }

    /// Waits until everything that was done to the file is safe: in the intent log, or on disk.
    ///
    /// # Errors
    /// What stopped the pool.
    pub fn fsync(&self, inode: InodeNumber) -> Result<()> {
        self.commit_file(&self.inode(inode)?)
    }

    /// As [`FileSystem::fsync`], of a file that the caller has. No transaction is committed meanwhile, as the reference has passed the gate: what comes
    /// after it must not be in the log before its group is on disk.
    pub(super) fn commit_file(&self, inode: &InodeRef<'_>) -> Result<()> {
        // Whether this file is on disk does not matter: as in OpenZFS, all names that were changed before become safe too.
        self.log.commit(Some(inode.object), &FileSource::knowing(self, inode))
    }

    /// Waits until everything that was done to the file system is safe: in the intent log, or on disk.
    ///
    /// # Errors
    /// What stopped the pool.
    pub fn commit(&self) -> Result<()> {
        let _entered = self.enter();
        self.log.commit(None, &FileSource::of(self))
    }

    /// Waits until everything that was done to the file system is on disk, by a group that is written in any case: then what is used is counted, too.
    ///
    /// # Errors
    /// What stopped the pool.
    pub fn sync_group(&self) -> Result<()> {
        if self.files.never_writes() {
            return Ok(());
        }
        let groups = &self.objset.context().groups;
        groups.wait_stuck(groups.open_txg())
    }

    /// Waits until everything that was done to the file system is on disk, for `sync(2)` and `umount(2)`: where nothing was changed it is over at once, and a suspended pool is not waited for, since
    /// the caller of `sync` may have nothing to do with it.
    ///
    /// # Errors
    /// What stopped the pool, or what it waits for.
    #[doc(alias = "zfs_sync")]
    pub fn sync_changes(&self) -> Result<()> {
        if self.files.never_writes() {
            return Ok(());
        }
        let context = self.objset.context();
        let open = context.groups.open_txg();
        // Older groups are waited for in any case: one that is being written may have what was changed before.
        let newest = if self.objset.is_dirty(open) { open } else { open - 1 };
        if newest <= context.groups.synced_txg() {
            return Ok(());
        }
        context.groups.wait_synced_unless(newest, &|| context.io.devices().suspension())
    }

    /// Has what was changed written at once, if anything was, and does not wait for that: a mount has ended.
    #[doc(alias = "zfsvfs_teardown")]
    pub fn write_soon(&self) {
        let groups = &self.objset.context().groups;
        let newest = groups.open_txg();
        if !self.files.never_writes() && (groups.synced_txg() + 1..=newest).any(|txg| self.objset.is_dirty(txg)) {
            groups.kick(newest);
        }
    }

    pub(super) fn touched_flags(&self, flags: u64, modified: bool) -> u64 {
        self.files.touched_flags(flags, modified)
    }

    /// What operations on entries need.
    pub(super) fn entries(&self) -> Entries<'_> {
        self.names.entries()
    }

    /// What operations on contents need.
    pub(super) fn contents(&self) -> Contents<'_> {
        Contents { files: &self.files, membership: &self.membership, quotas: &self.quotas, log: &self.log, is_alone: self.is_alone }
    }

    /// Remembers for the intent log what was done in `tx`.
    pub(super) fn log(&self, tx: &Tx, done: Done<'_>) -> Result<()> {
        self.log.note(tx, self.is_alone, done)
    }

    /// Fails if an owner of a new file may have no more. To be asked before joining a transaction.
    pub(super) fn check_quota_to_own(&self, user: Option<u64>, group: Option<u64>, project: Option<u64>) -> Result<()> {
        self.quotas.ask_to_own(user, group, project, self.is_alone)
    }

    /// Names that differ at all are different names: no property asks for case or normalisation to be ignored.
    pub fn names_are_exact(&self) -> bool {
        self.names.rules().are_exact()
    }

    /// Longest name in bytes.
    pub fn name_max(&self) -> usize {
        self.names.rules().name_max()
    }

    /// Whether users, groups or projects have limits here.
    pub fn has_owner_quotas(&self) -> bool {
        self.quotas.exist()
    }

    /// The limit set for an owner, or the default; 0: none.
    ///
    /// # Errors
    /// The limits cannot be read.
    pub fn quota_of(&self, kind: OwnerKind, of: QuotaOf, id: u64) -> Result<u64> {
        self.quotas.of(kind, of, id)
    }

    /// Sets the limit of an owner; 0 takes it away.
    ///
    /// # Errors
    /// `NotSupported` where such use is not counted; `NoSpace`.
    #[doc(alias = "zfs_set_userquota")]
    pub fn set_quota(&self, kind: OwnerKind, of: QuotaOf, id: u64, limit: u64) -> Result<()> {
        self.quotas.set(&self.files, &self.membership, kind, of, id, limit)
    }

    /// Sets the limit of owners that have none of their own; 0 takes it away.
    ///
    /// # Errors
    /// `NoSpace`; `ReadOnly`.
    pub fn set_default_quota(&self, kind: OwnerKind, of: QuotaOf, limit: u64) -> Result<()> {
        self.quotas.set_default(&self.files, &self.membership, kind, of, limit)
    }

    /// A mount is about to tell its kernel of inodes.
    pub fn use_mounted(self: &Arc<Self>) -> MountUse {
        MountUse::begin(self)
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// `ReadOnly`; `NotSupported` where `A` and `a` are one name: the view would take them for two, and its commit could not be done.
    pub fn begin(self: &Arc<Self>) -> Result<Transaction> {
        Transaction::begin(self)
    }

    /// Does what `body` does, all of it or nothing: nothing if it fails, or if the commit does.
    ///
    /// # Errors
    /// Those of `body`; `Conflict` if somebody was faster, which is a reason to try again; those of [`Transaction::commit`].
    pub fn transaction<T>(self: &Arc<Self>, durability: Durability, body: impl FnOnce(&mut Transaction) -> Result<T>) -> Result<T> {
        let mut transaction = self.begin()?;
        let result = body(&mut transaction)?;
        transaction.commit(durability)?;
        Ok(result)
    }
}
