//! Making files, and making a file system.
//!
//! # Theory
//! A new file's attributes are laid out in one fixed order, so that practically all files of a dataset share few layouts, and
//! so that mode, size, generation, owner, parent and flags have fixed places (see [`ondisk::sa::owner`]).

use engine::dmu::{Dnode, DnodeSpec, Objset, Tx};
use engine::error::Result;
use engine::zap::{Normalization, Zap, ZapSpec};
use ondisk::acl::{self, AccessEntry};
use ondisk::object_type::ObjectType;
use ondisk::sa::Attribute;
use ondisk::znode;
use std::sync::Arc;

use super::rules::Rules;
use crate::zpl::attributes::acl::read_acl;
use crate::zpl::attributes::sa_tables::SaTables;
use crate::zpl::inodes::file_set::FileSet;
use crate::zpl::attributes::stat::{FileKind, Time};
use crate::zpl::attributes::values::{Attributes, Writing};
use crate::zpl::options::{Credentials, MountOptions};
use crate::zpl::inodes::inode::Inode;
use crate::zpl::{InodeNumber, OwnerKind, QuotaOf, Stat};

const SET_GROUP_ID: u32 = 0o2000;
const TYPE_DIRECTORY: u32 = 0o040_000;
/// As many attributes as a new file may have.
const ATTRIBUTES_MAX: usize = 16;

/// What is decided when a file system is made.
#[derive(Debug, Clone)]
pub struct NewFileSystem {
    /// Property `version`.
    pub version: u64,
    /// Property `normalization`: its flags.
    pub normalization: u64,
    /// Property `utf8only`.
    pub utf8_only: bool,
    /// Property `casesensitivity`: 0 sensitive, 1 insensitive, 2 mixed.
    pub case: u64,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
    /// The pool has the feature project_quota.
    pub project_ids: bool,
    /// Limits for users, groups and projects that have none of their own: of bytes, and of objects.
    pub default_quotas: [[u64; 3]; 2],
}

impl Default for NewFileSystem {
    fn default() -> Self {
        NewFileSystem {
            version: znode::VERSION_SA,
            normalization: 0,
            utf8_only: false,
            case: 0,
            uid: 0,
            gid: 0,
            project_ids: true,
            default_quotas: [[0; 3]; 2],
        }
    }
}

/// What a new file inherits or is given.
#[derive(Debug, Clone)]
pub(in crate::zpl) struct NewNode {
    /// Type and permissions.
    pub(in crate::zpl) mode: u32,
    pub(in crate::zpl) uid: u32,
    pub(in crate::zpl) gid: u32,
    pub(in crate::zpl) device: u64,
    /// `None`: itself (the root).
    pub(in crate::zpl) parent: Option<InodeNumber>,
    /// Flags in addition to the usual ones.
    pub(in crate::zpl) flags: u64,
    pub(in crate::zpl) project: u64,
    pub(in crate::zpl) acl: Vec<AccessEntry>,
    pub(in crate::zpl) links: u64,
    /// What is not to be chosen anew: of a file that a log makes again.
    pub(in crate::zpl) fixed: Option<Fixed>,
    /// Of a directory: the salt of its hashes, if it was chosen before.
    pub(in crate::zpl) salt: Option<u64>,
}

/// What makes a file the same file.
#[derive(Debug, Clone, Copy)]
pub(in crate::zpl) struct Fixed {
    pub(in crate::zpl) object: InodeNumber,
    pub(in crate::zpl) slots: u8,
    pub(in crate::zpl) generation: u64,
    pub(in crate::zpl) created: Time,
}

/// What making a file needs to know of the file system.
pub(in crate::zpl) struct Maker<'a> {
    set: &'a Arc<FileSet>,
    pub(in crate::zpl) project_ids: bool,
    pub(in crate::zpl) normalization: Normalization,
    pub(in crate::zpl) now: Time,
}

impl<'a> Maker<'a> {
    pub(super) fn new(set: &'a Arc<FileSet>, rules: &Rules) -> Self {
        Maker { set, project_ids: set.gives_project_ids(), normalization: rules.normalization(), now: set.now() }
    }

    /// Makes the object and its attributes.
    pub(in crate::zpl) fn make(&self, tx: &Tx, new: &NewNode) -> Result<Inode> {
        let kind = FileKind::of_mode(new.mode);
        let dnode = self.allocate(tx, kind, new.fixed, new.salt)?;
        let object = dnode.object();
        let writing = Writing { dnode: &dnode, tx };
        let mut attributes = Attributes::empty(self.set);
        let values = self.values(tx, new, object);
        if self.set.uses_attributes() {
            let mut order: Vec<(Attribute, &[u8])> = Vec::with_capacity(ATTRIBUTES_MAX);
            order.extend(values.common());
            if values.flags & znode::FLAG_PROJECT_ID != 0 {
                order.push((Attribute::ProjectId, &values.project));
            }
            if matches!(kind, FileKind::BlockDevice | FileKind::CharacterDevice) {
                order.push((Attribute::Device, &values.device));
            }
            order.push((Attribute::AclCount, &values.acl_count));
            order.push((Attribute::AclEntries, &values.acl));
            attributes.replace_all(&writing, &order)?;
        } else {
            attributes.replace_znode(&writing, &values.znode_fields())?;
        }
        Inode::new(object, dnode, attributes)
    }

    fn allocate(&self, tx: &Tx, kind: FileKind, fixed: Option<Fixed>, salt: Option<u64>) -> Result<Arc<Dnode>> {
        let slots = fixed.map_or((self.set.objset().settings().dnode_bytes / 512).clamp(1, 32) as u8, |fixed| fixed.slots);
        let (bonus_type, bonus_length) = if self.set.uses_attributes() { (ObjectType::SA, 8) } else { (ObjectType::ZNODE, znode::ZNODE_SIZE) };
        let object_type = if kind == FileKind::Directory { ObjectType::DIRECTORY_CONTENTS } else { ObjectType::PLAIN_FILE_CONTENTS };
        let dnode = DnodeSpec { slots, ..DnodeSpec::new(object_type, 0).with_bonus(bonus_type, bonus_length) };
        if kind == FileKind::Directory {
            let spec = ZapSpec { dnode, normalization: self.normalization, flags: 0, salt };
            let zap = match fixed {
                Some(fixed) => Zap::create_at(self.set.objset(), tx, fixed.object, &spec)?,
                None => Zap::create(self.set.objset(), tx, &spec)?,
            };
            return Ok(zap.dnode().clone());
        }
        match fixed {
            Some(fixed) => self.set.objset().claim(tx, fixed.object, &dnode),
            None => self.set.objset().allocate(tx, &dnode),
        }
    }

    fn values(&self, tx: &Tx, new: &NewNode, object: InodeNumber) -> Values {
        let kind = FileKind::of_mode(new.mode);
        let directory = kind == FileKind::Directory;
        let has_fuids = self.set.version() >= znode::VERSION_FUID;
        let mut flags = new.flags;
        if has_fuids {
            flags |= znode::FLAG_ARCHIVE | znode::FLAG_AV_MODIFIED;
        }
        if self.set.uses_attributes() && self.project_ids {
            flags |= znode::FLAG_PROJECT_ID;
        }
        if acl::is_trivial(&new.acl) {
            flags |= znode::FLAG_ACL_TRIVIAL;
        }
        if directory && new.acl.iter().any(|entry| entry.flags & (acl::FILE_INHERIT | acl::DIRECTORY_INHERIT) != 0) {
            flags |= znode::FLAG_INHERIT_ACE;
        }
        let (_, everyone_executes) = acl::mode(&new.acl, new.uid.into(), new.gid.into());
        if self.set.uses_attributes() && everyone_executes {
            flags |= znode::FLAG_NO_EXECUTE_DENIED;
        }
        let acl_version = if has_fuids { acl::VERSION_1 } else { acl::VERSION_0 };
        let word = u64::to_le_bytes;
        Values {
            time: new.fixed.map_or(self.now, |fixed| fixed.created).to_bytes(),
            generation: word(new.fixed.map_or(tx.txg(), |fixed| fixed.generation)),
            mode: word(new.mode.into()),
            size: word(if directory { 2 } else { 0 }),
            parent: word(new.parent.unwrap_or(object)),
            links: word(new.links),
            device: word(new.device),
            flags,
            flag_bytes: word(flags),
            uid: word(new.uid.into()),
            gid: word(new.gid.into()),
            project: word(new.project),
            acl_count: word(new.acl.len() as u64),
            acl: acl::encode(acl_version, &new.acl),
            znode_acl: if self.set.uses_attributes() { Vec::new() } else { znode_acl(acl_version, &new.acl) },
        }
    }
}

/// The list of an old znode; only what fits into it.
pub(in crate::zpl) fn znode_acl(version: u16, entries: &[AccessEntry]) -> Vec<u8> {
    let mut bytes = acl::encode(version, entries);
    bytes.truncate(72);
    let (size, count) = match version {
        acl::VERSION_0 => (entries.len() as u32, bytes.len() as u16),
        _ => (bytes.len() as u32, entries.len() as u16),
    };
    let mut acl = vec![0; 8];
    acl.extend_from_slice(&size.to_le_bytes());
    acl.extend_from_slice(&version.to_le_bytes());
    acl.extend_from_slice(&count.to_le_bytes());
    bytes.resize(72, 0);
    acl.extend_from_slice(&bytes);
    acl
}

/// The values of a new file's attributes.
struct Values {
    time: [u8; 16],
    generation: [u8; 8],
    mode: [u8; 8],
    size: [u8; 8],
    parent: [u8; 8],
    links: [u8; 8],
    device: [u8; 8],
    flags: u64,
    flag_bytes: [u8; 8],
    uid: [u8; 8],
    gid: [u8; 8],
    project: [u8; 8],
    acl_count: [u8; 8],
    acl: Vec<u8>,
    znode_acl: Vec<u8>,
}

impl Values {
    /// The attributes that every file has, in their order.
    fn common(&self) -> [(Attribute, &[u8]); 12] {
        [
            (Attribute::Mode, &self.mode),
            (Attribute::Size, &self.size),
            (Attribute::Generation, &self.generation),
            (Attribute::Uid, &self.uid),
            (Attribute::Gid, &self.gid),
            (Attribute::Parent, &self.parent),
            (Attribute::Flags, &self.flag_bytes),
            (Attribute::AccessTime, &self.time),
            (Attribute::ModificationTime, &self.time),
            (Attribute::ChangeTime, &self.time),
            (Attribute::CreationTime, &self.time),
            (Attribute::Links, &self.links),
        ]
    }

    /// The fields of an old znode, in their order.
    fn znode_fields(&self) -> [&[u8]; 16] {
        const ZERO: &[u8] = &[0; 32];
        [
            &self.time,
            &self.time,
            &self.time,
            &self.time,
            &self.generation,
            &self.mode,
            &self.size,
            &self.parent,
            &self.links,
            &ZERO[..8],
            &self.device,
            &self.flag_bytes,
            &self.uid,
            &self.gid,
            ZERO,
            &self.znode_acl,
        ]
    }
}

impl NewNode {
    /// What a file with `mode`, made in `parent` by `credentials`, is given and inherits.
    pub(in crate::zpl) fn inherit(files: &FileSet, parent: &Inode, mode: u32, device: u64, credentials: &Credentials) -> Result<NewNode> {
        let stat = parent.stat()?;
        let directory = FileKind::of_mode(mode) == FileKind::Directory;
        let (mut mode, gid) = inherited_group((stat.mode, stat.gid), mode, credentials);
        let inherits = stat.flags & znode::FLAG_INHERIT_ACE != 0 && stat.flags & znode::FLAG_XATTR == 0;
        let from = if inherits { read_acl(files, parent)? } else { Vec::new() };
        let child = match FileKind::of_mode(mode) {
            FileKind::Directory => acl::Child::Directory,
            FileKind::Regular => acl::Child::Regular,
            FileKind::SymbolicLink => acl::Child::SymbolicLink,
            _ => acl::Child::Other,
        };
        let rules = files.options().acl_rules;
        let (acl, mode_decides) = acl::begin(&from, child, mode.into(), rules.inherit, rules.mode);
        if inherits {
            mode = mode & !0o777 | acl::mode(&acl, credentials.uid.into(), gid.into()).0 as u32;
        }
        let (inherit, project) = inherited_project(files, &stat, FileKind::of_mode(mode));
        let flags = stat.flags & znode::FLAG_XATTR | inherit | if directory && mode_decides { znode::FLAG_ACL_AUTO_INHERIT } else { 0 };
        Ok(NewNode {
            mode,
            uid: credentials.uid,
            gid,
            device,
            parent: Some(parent.object),
            flags,
            project,
            acl,
            links: if directory { 2 } else { 1 },
            fixed: None,
            salt: None,
        })
    }
}

/// Mode and group of a new file, from those of its directory: one with set-group-id passes its group on, and to directories that it does so.
pub(in crate::zpl) fn inherited_group((parent_mode, parent_gid): (u32, u32), mode: u32, credentials: &Credentials) -> (u32, u32) {
    let directory = FileKind::of_mode(mode) == FileKind::Directory;
    let passes_on = parent_mode & SET_GROUP_ID != 0;
    let gid = if passes_on { parent_gid } else { credentials.gid };
    match directory {
        true if passes_on => (mode | SET_GROUP_ID, gid),
        false if credentials.uid != 0 && !credentials.is_in_group(gid) => (mode & !SET_GROUP_ID, gid),
        _ => (mode, gid),
    }
}

/// What a new file of this kind has of its directory: the mark that passes the project on, if it can have that, and the project. Links and
/// devices belong to it as well: else they could not be moved within it.
pub(in crate::zpl) fn inherited_project(files: &FileSet, directory: &Stat, kind: FileKind) -> (u64, u64) {
    let inherits = directory.flags & znode::FLAG_PROJECT_INHERIT;
    if inherits == 0 {
        return (0, 0);
    }
    let mark = if matches!(kind, FileKind::Directory | FileKind::Regular) { inherits } else { 0 };
    (mark, if files.gives_project_ids() { directory.project } else { 0 })
}

/// Makes the file system in a new, empty object set: master node, delete queue, root directory.
///
/// # Errors
/// Objects cannot be made.
#[doc(alias = "zfs_create_fs")]
pub fn initialize(objset: &Arc<Objset>, tx: &Tx, new: &NewFileSystem) -> Result<()> {
    let master = Zap::create_at(objset, tx, znode::MASTER_NODE, &ZapSpec::new(ObjectType::MASTER_NODE))?;
    // As OpenZFS does, so that the root directory is object 34, and a file system takes as much: the master node has a block of dnodes for itself, until files come.
    objset.allocate_from(1);
    let words = [("normalization", new.normalization), ("utf8only", new.utf8_only.into()), ("casesensitivity", new.case)];
    for (name, word) in words {
        master.update_u64(tx, name, word)?;
    }
    for (of, limits) in [QuotaOf::Bytes, QuotaOf::Objects].into_iter().zip(new.default_quotas) {
        for (kind, limit) in OwnerKind::ALL.into_iter().zip(limits) {
            master.update_u64(tx, kind.default_entry(of), limit)?;
        }
    }
    master.update_u64(tx, znode::VERSION_NAME, new.version)?;
    let mut sa_master = None;
    if new.version >= znode::VERSION_SA {
        let zap = Zap::create(objset, tx, &ZapSpec::new(ObjectType::SA_MASTER_NODE))?;
        master.add_u64(tx, znode::SA_ATTRS_NAME, zap.object())?;
        sa_master = Some(zap.object());
    }
    let delete_queue = Zap::create(objset, tx, &ZapSpec::new(ObjectType::UNLINKED_SET))?;
    master.add_u64(tx, znode::DELETE_QUEUE_NAME, delete_queue.object())?;

    let mut normalization = Normalization::from_flags(new.normalization)?;
    if new.case != 0 {
        normalization = normalization.ignoring_case();
    }
    let set = FileSet::new(objset.clone(), new.version, SaTables::load(objset, sa_master)?, MountOptions::default());
    let maker = Maker {
        set: &set,
        project_ids: new.project_ids,
        normalization,
        now: set.now(),
    };
    let mode = TYPE_DIRECTORY | 0o755;
    let root = maker.make(
        tx,
        &NewNode {
            mode,
            uid: new.uid,
            gid: new.gid,
            device: 0,
            parent: None,
            flags: znode::FLAG_ACL_AUTO_INHERIT,
            project: 0,
            acl: acl::trivial(mode.into(), true),
            links: 2,
            fixed: None,
            salt: None,
        },
    )?;
    objset.allocate_from(0);
    master.add_u64(tx, znode::ROOT_NAME, root.object)
}
