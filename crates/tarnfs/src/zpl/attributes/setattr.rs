//! Changing attributes: mode, owner, times, size.

use std::sync::atomic::Ordering;

use engine::bail;
use engine::dmu::{OpenTx, Tx};
use engine::error::Result;
use ondisk::acl::{self, AccessEntry, ModeRule};
use ondisk::sa::Attribute;
use ondisk::znode;

use super::acl::{read_acl, set_acl};
use super::stat::Time;
use crate::zpl::file_system::FileSystem;
use crate::zpl::options::Credentials;
use crate::zpl::inodes::inode::{Editor, Inode};
use crate::zpl::log::records::{ChangedAttributes, Done};
use crate::zpl::names::link::NAME_CHANGE;
use crate::zpl::{FileKind, InodeNumber, Stat};

const TYPE_MASK: u32 = 0o170_000;
const PERMISSIONS: u64 = 0o777;

/// A new time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The present.
    Now,
    /// This one.
    To(Time),
}

/// What to change; `None` stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permissions (the type stays).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes of contents.
    pub size: Option<u64>,
    /// Last read.
    pub access_time: Option<SetTime>,
    /// Last change of the contents.
    pub modification_time: Option<SetTime>,
    /// Last change of anything (a kernel that caches writes sets it).
    pub change_time: Option<Time>,
    /// Bits of `ondisk::znode::FLAG_*` above 32 to be set and to be cleared.
    pub flags: Option<(u64, u64)>,
    /// Project (files and directories of datasets with project ids only).
    pub project: Option<u64>,
}

impl SetAttributes {
    /// The two times that a kernel keeps itself when it collects writes, and nothing else.
    fn is_told_by_kernel(&self) -> bool {
        let (modification_time, change_time) = (self.modification_time, self.change_time);
        change_time.is_some()
            && matches!(modification_time, Some(SetTime::To(_)))
            && *self == SetAttributes { modification_time, change_time, ..SetAttributes::default() }
    }
}

/// Flags that a user may change.
const USER_FLAGS: u64 = !0 << 32 & !(znode::FLAG_PROJECT_ID | znode::FLAG_AV_MODIFIED);
impl FileSystem {
    /// Changes attributes.
    ///
    /// # Errors
    /// `NoSpace`; `Denied` for files that are marked.
    pub fn setattr(&self, inode: InodeNumber, set: &SetAttributes, credentials: &Credentials) -> Result<Stat> {
        self.check_new_owner(&*self.inode(inode)?, set)?;
        self.set_attributes(inode, set, credentials, false)
    }

    /// Does again what a record of a log says: neither quotas nor properties are asked.
    pub(in crate::zpl) fn setattr_again(&self, inode: InodeNumber, set: &SetAttributes) -> Result<()> {
        self.set_attributes(inode, set, &Credentials::root(), true).map(drop)
    }

    fn set_attributes(&self, inode: InodeNumber, set: &SetAttributes, credentials: &Credentials, again: bool) -> Result<Stat> {
        let inode = self.inode(inode)?;
        if set.is_told_by_kernel() && inode.times_owed.swap(false, Ordering::Relaxed) {
            self.files.check_not_frozen()?;
            return self.keep_times(&inode, set);
        }
        self.check_writable()?;
        let times = [set.access_time, set.modification_time];
        let to_a_time = times.iter().any(|time| matches!(time, Some(SetTime::To(_))));
        if again {
            // A record has the time of a `touch`, which may pass by a mark.
        } else if set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || to_a_time {
            inode.check_not_sealed()?;
        } else if times.iter().any(Option::is_some) && inode.word(Attribute::Flags)? & znode::FLAG_IMMUTABLE != 0 {
            bail!(Denied, "inode {} is marked not to be changed", inode.object);
        }
        let only_size = *set == SetAttributes { size: set.size, ..SetAttributes::default() };
        if let Some(size) = set.size {
            self.contents().change_size(&inode, size, false, only_size, credentials)?;
        }
        // A mode changes access control lists, too. And of two changes the later one must be the later one in the log.
        let _xattrs = (!only_size).then(|| inode.xattrs.write());
        if !only_size {
            let entries = self.changed_acl(&inode, set, again)?;
            let tx = OpenTx::assign(&self.membership, NAME_CHANGE)?;
            let mut edit = inode.edit(&tx);
            self.set_owner_and_mode(&inode, &mut edit, set, entries.as_deref(), credentials)?;
            if let Some(project) = set.project {
                self.set_project(&inode, &mut edit, project)?;
            }
            let changed = self.set_times_and_flags(&mut edit, set)?;
            drop(edit);
            self.hidden_directory_follows(&tx, &inode, set)?;
            self.log_attributes(&tx, &inode, set, changed)?;
            drop(tx);
            self.hidden_files_follow(&inode, set)?;
            if let Some(mode) = set.mode.filter(|_| entries.is_some()) {
                self.mode_changed(&inode, mode.into())?;
            }
        }
        inode.stat()
    }

    /// Times of contents that the kernel has taken and handed over: they are due even if the file was marked meanwhile.
    fn keep_times(&self, inode: &Inode, set: &SetAttributes) -> Result<Stat> {
        // On a full disk too: it takes no room, and would make `close` fail although all contents are stored.
        let tx = OpenTx::assign_freeing(&self.membership)?;
        let changed = self.set_times_and_flags(&mut inode.edit(&tx), set)?;
        self.log_attributes(&tx, inode, set, changed)?;
        drop(tx);
        inode.stat()
    }

    /// Fails if the file would come to belong to an owner that has reached a quota.
    fn check_new_owner(&self, inode: &Inode, set: &SetAttributes) -> Result<()> {
        let other = |attribute, id: Option<u32>| -> Result<Option<u64>> {
            let old = inode.word(attribute)?;
            Ok(id.map(u64::from).filter(|id| *id != old))
        };
        self.check_quota_to_own(other(Attribute::Uid, set.uid)?, other(Attribute::Gid, set.gid)?, set.project)
    }

    /// A list that says more than a mode stays, if the property says so.
    pub(in crate::zpl) fn check_mode_may_change(&self, inode: InodeNumber, flags: u64) -> Result<()> {
        if self.options().acl_rules.mode == ModeRule::Restricted && flags & znode::FLAG_ACL_TRIVIAL == 0 {
            bail!(Denied, "inode {inode} has an access control list that its mode would not say (property aclmode)");
        }
        Ok(())
    }

    /// The list on disk after the change that `set` asks for; `None`: it stays. `again`: by a record of a log.
    fn changed_acl(&self, inode: &Inode, set: &SetAttributes, again: bool) -> Result<Option<Vec<AccessEntry>>> {
        let Some(mode) = set.mode else { return Ok(None) };
        // A record with an owner has the mode that this left (`log_attributes`).
        if again && (set.uid.is_some() || set.gid.is_some()) && (inode.word(Attribute::Mode)? ^ u64::from(mode)) & PERMISSIONS == 0 {
            return Ok(None);
        }
        let rule = self.options().acl_rules.mode;
        let directory = inode.kind == FileKind::Directory;
        if rule == ModeRule::Discard {
            return Ok(Some(acl::trivial(mode.into(), directory)));
        }
        // The commit of a transaction has asked before its first change, and what is in a log was allowed.
        if !self.is_alone() && !again {
            self.check_mode_may_change(inode.object, inode.word(Attribute::Flags)?)?;
        }
        Ok(Some(acl::change_mode(&read_acl(&self.files, inode)?, mode.into(), directory, true, rule == ModeRule::GroupMask)))
    }

    /// The hidden directory of extended attributes has its file's owner.
    fn hidden_directory_follows(&self, tx: &Tx, inode: &Inode, set: &SetAttributes) -> Result<()> {
        if set.uid.is_none() && set.gid.is_none() && set.project.is_none() {
            return Ok(());
        }
        let Some(directory) = self.xattr_directory(inode)? else { return Ok(()) };
        let mut edit = directory.edit(tx);
        for (attribute, id) in [(Attribute::Uid, set.uid), (Attribute::Gid, set.gid)] {
            if let Some(id) = id {
                edit.set(&[(attribute, &u64::from(id).to_le_bytes())])?;
            }
        }
        match set.project {
            Some(project) => self.set_project(&directory, &mut edit, project),
            None => Ok(()),
        }
    }

    /// And so do the files in it, which count towards its quotas.
    #[doc(alias = "zfs_setattr_dir")]
    fn hidden_files_follow(&self, inode: &Inode, set: &SetAttributes) -> Result<()> {
        if set.uid.is_none() && set.gid.is_none() && set.project.is_none() {
            return Ok(());
        }
        let Some(directory) = self.xattr_directory(inode)? else { return Ok(()) };
        let whose = directory.stat()?;
        for entry in directory.directory_zap()?.entries()? {
            let file = self.inode(znode::entry_object(entry.value.first()))?;
            let stat = file.stat()?;
            if (stat.uid, stat.gid, stat.project) == (whose.uid, whose.gid, whose.project) {
                continue;
            }
            let tx = OpenTx::assign(&self.membership, NAME_CHANGE)?;
            let mut edit = file.edit(&tx);
            edit.set(&[(Attribute::Uid, &u64::from(whose.uid).to_le_bytes()), (Attribute::Gid, &u64::from(whose.gid).to_le_bytes())])?;
            if stat.project != whose.project {
                self.set_project(&file, &mut edit, whose.project)?;
            }
        }
        Ok(())
    }

    /// Flags and projects have no record of ours.
    fn log_attributes(&self, tx: &Tx, inode: &Inode, set: &SetAttributes, changed: ChangedAttributes) -> Result<()> {
        if set.flags.is_some() || set.project.is_some() {
            self.log(tx, Done::Other)?;
        }
        let has_owner = set.uid.is_some() || set.gid.is_some();
        // A change of the owner may take set-id bits away.
        let mode = if set.mode.is_some() || has_owner { Some(inode.word(Attribute::Mode)? as u32) } else { None };
        self.log(tx, Done::Set { inode, changed: ChangedAttributes { mode, uid: set.uid, gid: set.gid, ..changed } })?;
        // In a record with an owner the mode does not say that somebody changed it, and the list with it.
        if set.mode.is_some() && has_owner {
            self.log(tx, Done::Set { inode, changed: ChangedAttributes { mode, ..ChangedAttributes::default() } })?;
        }
        Ok(())
    }

    fn set_owner_and_mode(&self, inode: &Inode, edit: &mut Editor<'_>, set: &SetAttributes, entries: Option<&[AccessEntry]>, whose: &Credentials) -> Result<()> {
        let old_mode = edit.word(Attribute::Mode)? as u32;
        let old_gid = edit.word(Attribute::Gid)? as u32;
        let mut mode = set.mode.map_or(old_mode, |mode| old_mode & TYPE_MASK | mode & !TYPE_MASK);
        if let Some(uid) = set.uid {
            edit.set(&[(Attribute::Uid, &u64::from(uid).to_le_bytes())])?;
        }
        if let Some(gid) = set.gid {
            edit.set(&[(Attribute::Gid, &u64::from(gid).to_le_bytes())])?;
        }
        if set.mode.is_none() && (set.uid.is_some() || set.gid.is_some()) && inode.kind != FileKind::Directory {
            mode &= !whose.set_ids_ended_by_chown(mode, old_gid);
        }
        match entries {
            Some(entries) => set_acl(&self.files, edit, mode, entries),
            None if mode == old_mode => Ok(()),
            None => edit.set(&[(Attribute::Mode, &u64::from(mode).to_le_bytes())]),
        }
    }

    fn set_project(&self, inode: &Inode, edit: &mut Editor<'_>, project: u64) -> Result<()> {
        if !self.gives_project_ids() || edit.attributes.is_znode() || !matches!(inode.kind, FileKind::Regular | FileKind::Directory) {
            bail!(NotSupported, "inode {} cannot belong to a project", inode.object);
        }
        let flags = edit.word(Attribute::Flags)?;
        if flags & znode::FLAG_PROJECT_ID != 0 {
            return edit.set(&[(Attribute::ProjectId, &project.to_le_bytes())]);
        }
        let writing = edit.writing;
        edit.attributes.insert_after(&writing, Attribute::Links, Attribute::ProjectId, &project.to_le_bytes())?;
        edit.set(&[(Attribute::Flags, &(flags | znode::FLAG_PROJECT_ID).to_le_bytes())])
    }

    fn set_times_and_flags(&self, edit: &mut Editor<'_>, set: &SetAttributes) -> Result<ChangedAttributes> {
        let now = self.now();
        let resolve = |time| match time {
            SetTime::Now => now,
            SetTime::To(time) => time,
        };
        if let Some(time) = set.access_time {
            edit.set(&[(Attribute::AccessTime, &resolve(time).to_bytes())])?;
        }
        let mut flags = edit.word(Attribute::Flags)?;
        if let Some((added, removed)) = set.flags {
            flags = flags & !(removed & USER_FLAGS) | added & USER_FLAGS;
        }
        flags = self.touched_flags(flags, set.modification_time.is_some());
        if let Some(time) = set.modification_time {
            edit.set(&[(Attribute::ModificationTime, &resolve(time).to_bytes())])?;
        }
        let change = set.change_time.unwrap_or(now);
        edit.set(&[(Attribute::ChangeTime, &change.to_bytes()), (Attribute::Flags, &flags.to_le_bytes())])?;
        let (accessed, modified) = (set.access_time.map(resolve), set.modification_time.map(resolve));
        Ok(ChangedAttributes { accessed, modified, ..ChangedAttributes::default() })
    }
}
