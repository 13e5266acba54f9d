//! Quotas of users, groups and projects: what each may use, and what each uses.
//!
//! # Theory
//! What is used is counted when a transaction group is written (`engine::dsl::accounting_sync`), so what is known lags behind by
//! what is not on disk yet. A change is refused once the *known* use has reached the quota, not when it would cross it. By how much files
//! have grown on disk since is remembered for owners with limits: where that may be well beyond the quota the group is waited for, and then the
//! use is known. Writing asks for bytes only; making a file and giving it away ask for bytes and for the number of objects.
//!
//! # On disk
//! The entry `userquota@` (and so on) of the master node names a ZAP from the id in hexadecimal to the limit. An id that is
//! not in it has the default of the dataset, another entry of the master node; 0 and no entry mean no limit.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::dmu::{Membership, Objset, OpenTx, Refusal, Tx, USED_BY_GROUP, USED_BY_PROJECT, USED_BY_USER, ask_for_room};
use engine::error::{ErrorKind, Result};
use engine::sync::{Publish, Published};
use engine::txg::Txg;
use engine::zap::{Zap, ZapSpec};
use engine::{bail, error};
use ondisk::object_type::ObjectType;
use ondisk::objset::{FLAG_PROJECT_QUOTA_COMPLETE, FLAG_USER_ACCOUNTING_COMPLETE, FLAG_USER_OBJECT_ACCOUNTING_COMPLETE};
use ondisk::sa::Attribute;
use ondisk::znode;
use parking_lot::Mutex;

use crate::zpl::inodes::file_set::FileSet;
use crate::zpl::inodes::inode::Inode;
use crate::zpl::names::link::NAME_CHANGE;

/// What is not on disk yet may go beyond a limit by an eighth of it and some blocks: whole blocks are counted, and a file as long as the quota is to fit.
const BEYOND_SHIFT: u32 = 3;
const BEYOND_BYTES: u64 = 256 << 10;
/// Names the number of objects among what is used.
const OBJECTS_PREFIX: &str = "obj-";
/// The project of what has none.
const DEFAULT_PROJECT: u64 = 0;
/// What no project can be.
const INVALID_PROJECT: u64 = u32::MAX as u64;

/// Whose space it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwnerKind {
    /// A user's.
    User,
    /// A group's.
    Group,
    /// A project's.
    Project,
}

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaOf {
    /// Bytes.
    Bytes,
    /// The number of objects.
    Objects,
}

impl OwnerKind {
    /// All of them.
    pub const ALL: [OwnerKind; 3] = [OwnerKind::User, OwnerKind::Group, OwnerKind::Project];

    /// The object that counts what they use.
    fn used_object(self) -> u64 {
        match self {
            OwnerKind::User => USED_BY_USER,
            OwnerKind::Group => USED_BY_GROUP,
            OwnerKind::Project => USED_BY_PROJECT,
        }
    }

    /// The entry of the master node that names their limits. The property's name is this and the id.
    pub fn quota_entry(self, of: QuotaOf) -> &'static str {
        match (self, of) {
            (OwnerKind::User, QuotaOf::Bytes) => "userquota@",
            (OwnerKind::User, QuotaOf::Objects) => "userobjquota@",
            (OwnerKind::Group, QuotaOf::Bytes) => "groupquota@",
            (OwnerKind::Group, QuotaOf::Objects) => "groupobjquota@",
            (OwnerKind::Project, QuotaOf::Bytes) => "projectquota@",
            (OwnerKind::Project, QuotaOf::Objects) => "projectobjquota@",
        }
    }

    /// The entry of the master node, and the property, with the limit of those who have none of their own.
    pub fn default_entry(self, of: QuotaOf) -> &'static str {
        match (self, of) {
            (OwnerKind::User, QuotaOf::Bytes) => "defaultuserquota",
            (OwnerKind::User, QuotaOf::Objects) => "defaultuserobjquota",
            (OwnerKind::Group, QuotaOf::Bytes) => "defaultgroupquota",
            (OwnerKind::Group, QuotaOf::Objects) => "defaultgroupobjquota",
            (OwnerKind::Project, QuotaOf::Bytes) => "defaultprojectquota",
            (OwnerKind::Project, QuotaOf::Objects) => "defaultprojectobjquota",
        }
    }

    fn word(self) -> &'static str {
        match self {
            OwnerKind::User => "user",
            OwnerKind::Group => "group",
            OwnerKind::Project => "project",
        }
    }
}

const BOTH: [QuotaOf; 2] = [QuotaOf::Bytes, QuotaOf::Objects];

/// The limits of one kind of owner.
#[derive(Default)]
struct Limits {
    zap: Option<Zap>,
    default: u64,
}

impl Limits {
    pub(in crate::zpl) fn exist(&self) -> bool {
        self.zap.is_some() || self.default != 0
    }

    fn of(&self, id: u64) -> Result<u64> {
        let own = self.zap.as_ref().map(|zap| zap.lookup_u64(format!("{id:x}"))).transpose()?.flatten();
        Ok(own.unwrap_or(self.default))
    }
}

/// All limits of a file system.
#[derive(Default)]
struct AllLimits {
    limits: [[Limits; 2]; 3],
    /// There is any.
    exist: bool,
    growth: Growth,
}

/// By how many bytes the files of an owner have grown in groups that are not on disk yet.
#[derive(Default)]
struct Growth(Mutex<HashMap<(OwnerKind, u64), Vec<(Txg, u64)>>>);

impl Growth {
    /// `synced` is on disk, and counted.
    fn add(&self, owner: (OwnerKind, u64), txg: Txg, bytes: u64, synced: Txg) {
        let mut owners = self.0.lock();
        if !owners.contains_key(&owner) {
            owners.retain(|_, groups| groups.iter().any(|(group, _)| *group > synced));
        }
        let groups = owners.entry(owner).or_default();
        groups.retain(|(group, _)| *group > synced);
        match groups.iter_mut().find(|(group, _)| *group == txg) {
            Some((_, sum)) => *sum = sum.saturating_add(bytes),
            None => groups.push((txg, bytes)),
        }
    }

    fn of(&self, owner: (OwnerKind, u64), synced: Txg) -> u64 {
        let owners = self.0.lock();
        let groups = owners.get(&owner).into_iter().flatten();
        groups.filter(|(group, _)| *group > synced).fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }
}

impl Publish for AllLimits {
    /// There is any.
    type Published = AtomicBool;

    fn publish(&self, exist: &AtomicBool) {
        exist.store(self.exist, Ordering::Release);
    }
}

impl AllLimits {
    fn load(objset: &Objset, master: &Zap) -> Result<Self> {
        let mut quotas = AllLimits::default();
        for kind in OwnerKind::ALL {
            for of in BOTH {
                let limits = &mut quotas.limits[kind as usize][of as usize];
                limits.zap = match master.lookup_u64(kind.quota_entry(of))? {
                    Some(object) if object != 0 => Some(Zap::open(objset, object)?),
                    _ => None,
                };
                limits.default = master.lookup_u64(kind.default_entry(of))?.unwrap_or(0);
            }
        }
        quotas.note();
        Ok(quotas)
    }

    fn note(&mut self) {
        self.exist = self.limits.iter().flatten().any(Limits::exist);
    }
}

/// What is 0 has no entry, and the whole ZAP may not be there.
fn used_zap(objset: &Objset, kind: OwnerKind) -> Result<Option<Zap>> {
    match Zap::open(objset, kind.used_object()) {
        Ok(zap) => Ok(Some(zap)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// How much an owner uses in the file system of `objset`, as of the last sync.
///
/// # Errors
/// The counts cannot be read.
pub fn space_used_by(objset: &Objset, kind: OwnerKind, of: QuotaOf, id: u64) -> Result<u64> {
    let prefix = if of == QuotaOf::Objects { OBJECTS_PREFIX } else { "" };
    match used_zap(objset, kind)? {
        Some(zap) => Ok(zap.lookup_u64(format!("{prefix}{id:x}"))?.unwrap_or(0)),
        None => Ok(0),
    }
}

/// The limit set for an owner in the file system of `objset`; 0: none, and the default counts.
///
/// # Errors
/// The limits cannot be read.
pub fn own_quota_of(objset: &Objset, kind: OwnerKind, of: QuotaOf, id: u64) -> Result<u64> {
    match Zap::open(objset, znode::MASTER_NODE)?.lookup_u64(kind.quota_entry(of))? {
        Some(object) if object != 0 => Ok(Zap::open(objset, object)?.lookup_u64(format!("{id:x}"))?.unwrap_or(0)),
        _ => Ok(0),
    }
}

/// The quotas of a mounted file system.
pub(in crate::zpl) struct Quotas {
    objset: Arc<Objset>,
    /// guards: the limits; taken for moments, inside a transaction too
    limits: Published<AllLimits>,
}

impl Quotas {
    pub(in crate::zpl) fn load(objset: &Arc<Objset>, master: &Zap) -> Result<Self> {
        Ok(Quotas { objset: objset.clone(), limits: Published::new(AllLimits::load(objset, master)?) })
    }

    /// There is a limit for somebody.
    pub(in crate::zpl) fn exist(&self) -> bool {
        self.limits.published().load(Ordering::Acquire)
    }

    fn counts(&self, kind: OwnerKind, of: QuotaOf) -> bool {
        let flags = self.objset.flags();
        let needed = FLAG_USER_ACCOUNTING_COMPLETE
            | if kind == OwnerKind::Project { FLAG_PROJECT_QUOTA_COMPLETE } else { 0 }
            | if of == QuotaOf::Objects { FLAG_USER_OBJECT_ACCOUNTING_COMPLETE } else { 0 };
        flags & needed == needed
    }

    /// The limit of an owner, and what is known to be used of it.
    fn known(&self, quotas: &AllLimits, kind: OwnerKind, of: QuotaOf, id: u64) -> Result<Option<(u64, u64)>> {
        let limits = &quotas.limits[kind as usize][of as usize];
        if !limits.exist() || !self.counts(kind, of) {
            return Ok(None);
        }
        match limits.of(id)? {
            0 => Ok(None),
            limit => Ok(Some((limit, space_used_by(&self.objset, kind, of, id)?))),
        }
    }

    /// By how much a file grows on disk if these bytes are written, where anybody has a limit.
    pub(in crate::zpl) fn growth(&self, inode: &Inode, range: Range<u64>) -> u64 {
        if !self.exist() {
            return 0;
        }
        let dnode = &inode.contents.dnode;
        let would_grow = inode.contents.block_would_grow(&self.objset, range.end);
        let block = if would_grow { self.objset.settings().record_bytes } else { dnode.block_bytes() };
        let blocks = range.start / block..range.end.div_ceil(block);
        // Of an object whose block grows there is one block.
        let holes = blocks.filter(|number| if would_grow { *number > 0 } else { dnode.is_hole(*number).unwrap_or(false) }).count() as u64;
        holes.saturating_mul(block).max(if would_grow { range.end - range.start } else { 0 })
    }

    /// A file grows by `bytes` in `txg`.
    pub(in crate::zpl) fn note_growth(&self, inode: &Inode, txg: Txg, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let quotas = self.limits.read();
        if !quotas.exist {
            return Ok(());
        }
        let synced = self.objset.context().groups.synced_txg();
        let user = inode.word(Attribute::Uid)?;
        let group = inode.word(Attribute::Gid)?;
        let project = inode.project()?;
        for (kind, id) in [(OwnerKind::User, user), (OwnerKind::Group, group), (OwnerKind::Project, project)] {
            if quotas.limits[kind as usize][QuotaOf::Bytes as usize].exist() {
                quotas.growth.add((kind, id), txg, bytes, synced);
            }
        }
        Ok(())
    }

    /// What a project uses and may use, if that is limited.
    pub(in crate::zpl) fn room_of_project(&self, of: QuotaOf, project: u64) -> Result<Option<(u64, u64)>> {
        let quota = self.limits.read().limits[OwnerKind::Project as usize][of as usize].of(project)?;
        if quota == 0 || !self.counts(OwnerKind::Project, of) {
            return Ok(None);
        }
        Ok(Some((space_used_by(&self.objset, OwnerKind::Project, of, project)?, quota)))
    }

    /// What was freed or written is counted when its group is on disk.
    fn check_owner(&self, kind: OwnerKind, id: u64, what: &[QuotaOf]) -> Result<(), Refusal> {
        let quotas = self.limits.read();
        for of in what {
            let Some((limit, used)) = self.known(&quotas, kind, *of, id)? else { continue };
            let over = || error!(Quota, "{}: {} {id} has reached its quota", self.objset.name(), kind.word());
            if let Some(beyond) = used.checked_sub(limit) {
                let freeing = self.objset.owner().coming_free();
                let may_suffice = freeing > if *of == QuotaOf::Bytes { beyond } else { 0 };
                return Err(if may_suffice { Refusal::ForNow(over()) } else { over().into() });
            }
            let synced = self.objset.context().groups.synced_txg();
            if *of == QuotaOf::Bytes && used.saturating_add(quotas.growth.of((kind, id), synced)) >= limit.saturating_add(limit >> BEYOND_SHIFT).saturating_add(BEYOND_BYTES) {
                return Err(Refusal::ForNow(over()));
            }
        }
        Ok(())
    }

    pub(in crate::zpl) fn check_to_own(&self, user: Option<u64>, group: Option<u64>, project: Option<u64>) -> Result<(), Refusal> {
        if !self.exist() {
            return Ok(());
        }
        let project = project.filter(|project| !matches!(*project, DEFAULT_PROJECT | INVALID_PROJECT));
        for (kind, id) in [(OwnerKind::User, user), (OwnerKind::Group, group), (OwnerKind::Project, project)] {
            if let Some(id) = id {
                self.check_owner(kind, id, &BOTH)?;
            }
        }
        Ok(())
    }

    /// Fails if an owner of the file may write no more. To be asked before joining a transaction; the commit of a program's has asked
    /// before its first change.
    pub(in crate::zpl) fn ask_to_write(&self, inode: &Inode, is_alone: bool) -> Result<()> {
        if is_alone { Ok(()) } else { ask_for_room(&self.objset.context().groups, || self.check_to_write(inode)) }
    }

    pub(in crate::zpl) fn check_to_write(&self, inode: &Inode) -> Result<(), Refusal> {
        if !self.exist() {
            return Ok(());
        }
        let project = inode.project()?;
        self.check_owner(OwnerKind::User, inode.word(Attribute::Uid)?, &[QuotaOf::Bytes])?;
        self.check_owner(OwnerKind::Group, inode.word(Attribute::Gid)?, &[QuotaOf::Bytes])?;
        match project {
            DEFAULT_PROJECT => Ok(()),
            project => self.check_owner(OwnerKind::Project, project, &[QuotaOf::Bytes]),
        }
    }

    /// The limit set for an owner, or the default; 0: none.
    pub(in crate::zpl) fn of(&self, kind: OwnerKind, of: QuotaOf, id: u64) -> Result<u64> {
        self.limits.read().limits[kind as usize][of as usize].of(id)
    }

    /// Sets the limit of an owner; 0 takes it away.
    pub(in crate::zpl) fn set(&self, files: &FileSet, membership: &Membership, kind: OwnerKind, of: QuotaOf, id: u64, limit: u64) -> Result<()> {
        files.check_writable()?;
        if files.version() < znode::VERSION_USERSPACE || (kind == OwnerKind::Project && !files.gives_project_ids()) {
            bail!(NotSupported, "{}: use by {}s is not counted", self.objset.name(), kind.word());
        }
        if kind == OwnerKind::Project && id >= INVALID_PROJECT {
            bail!(Invalid, "{id} is no project");
        }
        let tx = OpenTx::assign(membership, NAME_CHANGE)?;
        let mut quotas = self.limits.write();
        let limits = &mut quotas.limits[kind as usize][of as usize];
        let zap = match &limits.zap {
            Some(zap) => zap,
            None => &*limits.zap.insert(self.make_zap(&tx, kind, of)?),
        };
        let name = format!("{id:x}");
        match limit {
            0 => match zap.remove(&tx, &name) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                other => other?,
            },
            limit => zap.update_u64(&tx, &name, limit)?,
        }
        quotas.note();
        Ok(())
    }

    fn make_zap(&self, tx: &Tx, kind: OwnerKind, of: QuotaOf) -> Result<Zap> {
        let zap = Zap::create(&self.objset, tx, &ZapSpec::new(ObjectType::USERGROUP_QUOTA))?;
        Zap::open(&self.objset, znode::MASTER_NODE)?.add_u64(tx, kind.quota_entry(of), zap.object())?;
        Ok(zap)
    }

    /// Sets the limit of those who have none of their own; 0 takes it away.
    pub(in crate::zpl) fn set_default(&self, files: &FileSet, membership: &Membership, kind: OwnerKind, of: QuotaOf, limit: u64) -> Result<()> {
        files.check_writable()?;
        let tx = OpenTx::assign(membership, NAME_CHANGE)?;
        let mut quotas = self.limits.write();
        let master = Zap::open(&self.objset, znode::MASTER_NODE)?;
        match limit {
            0 => match master.remove(&tx, kind.default_entry(of)) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                other => other?,
            },
            limit => master.update_u64(&tx, kind.default_entry(of), limit)?,
        }
        quotas.limits[kind as usize][of as usize].default = limit;
        quotas.note();
        Ok(())
    }

    /// Fails if an owner of a new file may have no more. To be asked before joining a transaction; the commit of a program's has asked
    /// before its first change.
    pub(in crate::zpl) fn ask_to_own(&self, user: Option<u64>, group: Option<u64>, project: Option<u64>, is_alone: bool) -> Result<()> {
        if is_alone { Ok(()) } else { ask_for_room(&self.objset.context().groups, || self.check_to_own(user, group, project)) }
    }
}
