//! How a dataset is mounted, and its callers.

use ondisk::acl;

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
