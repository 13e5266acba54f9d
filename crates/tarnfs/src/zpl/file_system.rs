//! One mounted dataset.

use std::ops::Deref;
use std::sync::Arc;

use engine::dmu::{Membership, Objset};
use engine::error::{Result, Within};
use engine::zap::Zap;
use engine::{bail, error};
use ondisk::dnode::OBJECTS_MAX;
use ondisk::sa::Attribute;
use ondisk::{acl, znode};

use super::attributes::quota::{QuotaOf, Quotas};
use super::attributes::sa_tables::SaTables;
use super::attributes::stat::Time;
use super::inodes::Inodes;
use super::inodes::file_set::FileSet;
use super::inodes::commit_gate::{Alone, Entered};
use super::inodes::inode::InodeRef;
use super::log::Log;
use super::log::source::FileSource;
use super::names::Names;
use super::{InodeNumber, Stat};

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// The caller of an operation. The kernel has checked permissions; this decides the owner of what is made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Other groups.
    pub groups: Vec<u32>,
    /// Permissions that new files do not get, unless the default list of the directory decides.
    pub umask: u32,
}

impl Credentials {
    /// The superuser.
    pub fn root() -> Self {
        Self::default()
    }

    pub(super) fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// The set-id bits that go when the contents of a file of this mode and group are changed: none if the superuser does it.
    pub fn set_ids_ended_by_write(&self, mode: u32, gid: u32) -> u32 {
        if self.uid == 0 { 0 } else { self.set_ids_ended_by_chown(mode, gid) }
    }

    /// Those that go when a file that is no directory is given to another owner, by any caller. Set-group-id without the right for the group to execute
    /// is no such bit, but goes too unless a member of the group or the superuser asks, as Linux has it since 6.2 (xfstests generic/193, 683).
    pub fn set_ids_ended_by_chown(&self, mode: u32, gid: u32) -> u32 {
        let is_kept = mode & GROUP_EXECUTE == 0 && (self.uid == 0 || self.is_in_group(gid));
        mode & (SET_USER_ID | if is_kept { 0 } else { SET_GROUP_ID })
    }
}

/// When a read changes the access time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessTime {
    /// Never.
    Off,
    /// When it is older than the last change or a day.
    Relative,
    /// Always.
    Strict,
}

/// Property `acltype`: which access control lists users see and set. The list in the format of NFSv4 that every file has
/// on disk is kept whatever it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AclType {
    /// None.
    #[default]
    Off,
    /// Those of POSIX, as extended attributes.
    Posix,
    /// Those of NFSv4, which Linux has no interface for.
    Nfsv4,
}

/// What becomes of the list that every file has on disk: the numbers of the properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AclRules {
    /// Property `aclmode`: at a change of the mode.
    pub mode: acl::ModeRule,
    /// Property `aclinherit`: for new files.
    pub inherit: acl::InheritRule,
}

impl Default for AclRules {
    fn default() -> Self {
        AclRules { mode: acl::ModeRule::Discard, inherit: acl::InheritRule::Restricted }
    }
}

/// How a dataset is mounted: properties that may change while it is.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Property `xattr`: new extended attributes go into system attributes (`sa`), else into a hidden directory.
    pub xattr_in_attributes: bool,
    /// Properties `atime` and `relatime`.
    pub access_time: AccessTime,
    /// Reading a directory changes its access time too.
    pub directory_access_time: bool,
    /// Nothing may be changed.
    pub read_only: bool,
    /// The pool has the feature project_quota: new files get a project id.
    pub project_ids: bool,
    /// Names longer than 255 bytes (property `longname`).
    pub long_names: bool,
    /// Property `acltype`.
    pub acl_type: AclType,
    /// Properties `aclmode` and `aclinherit`.
    pub acl_rules: AclRules,
    /// Property `sync=disabled`: nothing is logged, and nobody waits.
    pub sync_disabled: bool,
    /// Property `logbias=throughput`: what is synced goes to its own place at once, not to the log.
    pub log_throughput: bool,
    /// The pool has the feature zilsaxattr: extended attributes among the system attributes are logged.
    pub log_xattrs: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            xattr_in_attributes: true,
            access_time: AccessTime::Relative,
            directory_access_time: true,
            read_only: false,
            project_ids: true,
            long_names: false,
            acl_type: AclType::Off,
            acl_rules: AclRules::default(),
            sync_disabled: false,
            log_throughput: false,
            log_xattrs: false,
        }
    }
}

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
            names: Names::load(&objset, &master)?,
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
        groups.wait_synced(groups.open_txg())
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
}
