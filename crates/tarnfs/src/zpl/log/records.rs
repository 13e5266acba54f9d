//! Describing operations to the intent log.
//!
//! # Theory
//! Each operation calls [`Log::note`] once, inside its transaction, when it has been done. What is logged is what somebody who does
//! it again must know: a new file's number, generation and time of creation, so that the file is the same file. While a log is
//! replayed the same call notes instead which record was done.
//!
//! What has no record (a file without a name that gets one, a project) says so: then durability costs a transaction group.
//!
//! # On disk
//! [`ondisk::zil`]. The bits of a change of attributes are Linux's, as OpenZFS writes them there.
//!
//! # Path
//! called by every file here that changes something; calls [`engine::zil`].

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::dmu::Tx;
use engine::error::Result;
use engine::zil::Zil;
use ondisk::blkptr::BlkPtr;
use ondisk::sa::Attribute;
use ondisk::zil::{
    CloneRangeRecord, CreateRecord, LinkRecord, RecordHeader, RecordType, RemoveRecord, RenameRecord, RenameWhiteoutRecord, SetAttrRecord, SetSaXattrRecord, object_with_slots,
};
use ondisk::znode;
use zerocopy::{FromZeros, IntoBytes};

use crate::zpl::attributes::stat::Time;
use crate::zpl::attributes::values::Attributes;
use super::source::FileSource;
use crate::zpl::options::MountOptions;
use crate::zpl::inodes::file_set::FileSet;
use crate::zpl::inodes::inode::Inode;
use crate::zpl::{FileKind, InodeNumber};

/// Bits of `SetAttrRecord::mask`.
pub(in crate::zpl) mod mask {
    pub(in crate::zpl) const MODE: u64 = 1 << 0;
    pub(in crate::zpl) const UID: u64 = 1 << 1;
    pub(in crate::zpl) const GID: u64 = 1 << 2;
    pub(in crate::zpl) const SIZE: u64 = 1 << 3;
    pub(in crate::zpl) const ACCESSED: u64 = 1 << 4;
    pub(in crate::zpl) const MODIFIED: u64 = 1 << 5;
    pub(in crate::zpl) const ACCESSED_SET: u64 = 1 << 7;
    pub(in crate::zpl) const MODIFIED_SET: u64 = 1 << 8;
    /// Attributes as flags follow.
    pub(in crate::zpl) const FLAGS: u64 = ondisk::zil::SET_ATTR_EXTENDED;
}

/// The length of a record is a multiple of this.
const RECORD_ALIGN: usize = 8;
/// Blocks in one record of a clone.
const CLONES_MAX: usize = 512;

/// Attributes that were changed. With an owner, the mode is what this left of it, without the list being changed.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::zpl) struct ChangedAttributes {
    pub(in crate::zpl) mode: Option<u32>,
    pub(in crate::zpl) uid: Option<u32>,
    pub(in crate::zpl) gid: Option<u32>,
    pub(in crate::zpl) accessed: Option<Time>,
    pub(in crate::zpl) modified: Option<Time>,
}

/// What decides how a change of contents or attributes of a file is logged.
#[derive(Debug, Clone, Copy)]
pub(in crate::zpl) struct LogFacts {
    pub(in crate::zpl) links: u64,
    pub(in crate::zpl) flags: u64,
    pub(in crate::zpl) generation: u64,
}

/// An operation that was done.
#[derive(Clone, Copy)]
pub(in crate::zpl) enum Done<'a> {
    /// A file of any type was made.
    Made { kind: RecordType, directory: &'a Inode, inode: &'a Inode, name: &'a [u8], target: Option<&'a [u8]> },
    /// A name was removed; `gone`: it was the file's last.
    Removed { directory: &'a Inode, name: &'a [u8], inode: &'a Inode, gone: bool },
    /// A file got one more name.
    Linked { directory: &'a Inode, inode: &'a Inode, name: &'a [u8] },
    /// A name was moved, or exchanged with another.
    Renamed { kind: RecordType, from: &'a Inode, name: &'a [u8], to: &'a Inode, new_name: &'a [u8], moved: &'a Inode },
    /// A name was moved, and `left` is in its old place.
    LeftWhiteout { from: &'a Inode, name: &'a [u8], to: &'a Inode, new_name: &'a [u8], moved: &'a Inode, left: &'a Inode },
    /// Contents were written.
    Wrote { inode: &'a Inode, offset: u64, length: u64 },
    /// Contents were freed; to the end if `length` is 0.
    Freed { inode: &'a Inode, offset: u64, length: u64 },
    /// Contents are the blocks of another file, each of `block` bytes, from now on.
    Cloned { inode: &'a Inode, offset: u64, length: u64, block: u64, pointers: &'a [BlkPtr] },
    /// Attributes were changed.
    Set { inode: &'a Inode, changed: ChangedAttributes },
    /// An extended attribute among the system attributes was set, or removed.
    SetXattr { inode: &'a Inode, name: &'a [u8], value: Option<&'a [u8]> },
    /// As above, as part of making the file.
    SetXattrOfNew { inode: &'a Inode, name: &'a [u8], value: &'a [u8] },
    /// Something for which there is no record.
    Other,
}

impl LogFacts {
    /// The list of the log's records that the file's go in. Nobody syncs an extended attribute: what one is goes with the names.
    fn list_of(&self, inode: &Inode) -> Option<InodeNumber> {
        (self.flags & znode::FLAG_XATTR == 0).then_some(inode.object)
    }
}

/// The intent log of a mounted file system.
pub(in crate::zpl) struct Log {
    /// `None` where nothing can be changed.
    zil: Option<Arc<Zil>>,
    files: Arc<FileSet>,
    /// Extended attributes among the system attributes have records.
    logs_xattrs: AtomicBool,
}

impl Log {
    pub(in crate::zpl) fn new(files: Arc<FileSet>) -> Self {
        let objset = files.objset();
        let is_writable = !objset.is_snapshot() && !objset.context().read_only;
        Log { zil: is_writable.then(|| Zil::of(objset)), files, logs_xattrs: AtomicBool::new(false) }
    }

    /// Learns what the properties say.
    pub(in crate::zpl) fn obey(&self, options: &MountOptions) {
        self.logs_xattrs.store(options.log_xattrs, Ordering::Relaxed);
        if let Some(zil) = &self.zil {
            zil.set_disabled(options.sync_disabled);
            zil.set_throughput(options.log_throughput);
        }
    }

    /// Waits until what was logged is safe; of one file, and of all names, if one is given.
    pub(in crate::zpl) fn commit(&self, object: Option<InodeNumber>, source: &FileSource<'_>) -> Result<()> {
        self.zil.as_ref().map_or(Ok(()), |zil| zil.commit(object, source))
    }

    /// What is logged of a file that is gone need not be written.
    pub(in crate::zpl) fn forget(&self, object: InodeNumber) {
        if let Some(zil) = &self.zil {
            zil.forget(object);
        }
    }

    /// What is logged of a file comes before what is logged from now on.
    pub(in crate::zpl) fn bring_forward(&self, object: InodeNumber) {
        if let Some(zil) = &self.zil {
            zil.bring_forward(object);
        }
    }

    /// A record of the log is being done again.
    pub(in crate::zpl) fn is_replaying(&self) -> bool {
        self.zil.as_ref().is_some_and(|zil| zil.is_replaying())
    }

    /// Remembers what was done in `tx`. `is_alone`: by the commit of a program's transaction.
    pub(in crate::zpl) fn note(&self, tx: &Tx, is_alone: bool, done: Done<'_>) -> Result<()> {
        self.note_if_wanted(tx, is_alone, |zil| self.log_done(zil, tx, done))
    }

    /// As [`Log::note`] of a write to `inode`, of which these facts are known, and which took so much of its mode.
    pub(in crate::zpl) fn note_write(
        &self,
        tx: &Tx,
        is_alone: bool,
        inode: &Inode,
        facts: &LogFacts,
        changed: ChangedAttributes,
        range: Range<u64>,
    ) -> Result<()> {
        if changed.mode.is_some() {
            self.note(tx, is_alone, Done::Set { inode, changed })?;
        }
        self.note_if_wanted(tx, is_alone, |zil| {
            if self.is_to_be_logged(inode, facts)? {
                let soon = zil.log_write(tx, facts.list_of(inode), inode.object, facts.generation, range.start, range.end - range.start);
                soon.iter().for_each(|soon| inode.contents.place_soon(self.files.objset(), tx, soon));
            }
            Ok(())
        })
    }

    fn note_if_wanted(&self, tx: &Tx, is_alone: bool, describe: impl FnOnce(&Zil) -> Result<()>) -> Result<()> {
        let Some(zil) = &self.zil else { return Ok(()) };
        if zil.note(tx) {
            return Ok(());
        }
        // A transaction of a program is whole with its group. In the log it could be there by halves; so an `fsync`
        // after it waits for the group.
        if zil.is_disabled() || is_alone {
            zil.unlogged(tx);
            return Ok(());
        }
        if let Err(error) = describe(zil) {
            // It was done all the same, and what comes after it builds upon it: an `fsync` waits for the group.
            tracing::warn!("{}: an operation cannot be described to the log: {error}", self.files.objset().name());
            zil.unlogged(tx);
        }
        Ok(())
    }

    fn log_done(&self, zil: &Zil, tx: &Tx, done: Done<'_>) -> Result<()> {
        match done {
            Done::Made { kind, directory, inode, name, target } => {
                if self.is_of_removed(directory)? {
                    return Ok(());
                }
                // What somebody did to the last one of this number while it was being removed is not to be done to this one.
                zil.forget(inode.object);
                let bytes = self.made(directory, inode, name, target)?;
                zil.log(tx, kind as u64, None, bytes);
            }
            Done::Removed { directory, name, inode, gone } => {
                if !self.is_of_removed(directory)? {
                    let kind = if inode.kind == FileKind::Directory { RecordType::RemoveDir } else { RecordType::Remove };
                    let record = RemoveRecord { header: RecordHeader::new_zeroed(), dir: directory.object.into() };
                    zil.log(tx, kind as u64, None, with_names(record.as_bytes(), &[name]));
                }
                // Not before: an `fsync` of the file meanwhile finds the one or the other.
                if gone {
                    zil.forget(inode.object);
                }
            }
            Done::Linked { directory, inode, name } => {
                // Some publish a file by a link instead of a rename.
                zil.bring_forward(inode.object);
                let record = LinkRecord { header: RecordHeader::new_zeroed(), dir: directory.object.into(), object: inode.object.into() };
                zil.log(tx, RecordType::Link as u64, None, with_names(record.as_bytes(), &[name]));
            }
            Done::Renamed { kind, from, name, to, new_name, moved } => {
                // A file that replaces another by a rename must not be found empty.
                zil.bring_forward(moved.object);
                let record = RenameRecord { header: RecordHeader::new_zeroed(), from_dir: from.object.into(), to_dir: to.object.into() };
                zil.log(tx, kind as u64, None, with_names(record.as_bytes(), &[name, new_name]));
            }
            Done::LeftWhiteout { from, name, to, new_name, moved, left } => {
                zil.bring_forward(moved.object);
                zil.log(tx, RecordType::RenameWhiteout as u64, None, self.left_whiteout(from, name, to, new_name, left)?);
            }
            Done::SetXattrOfNew { inode, name, value } => match self.set_xattr_record(inode.object, name, Some(value)) {
                Some(bytes) => zil.log(tx, RecordType::SetSaXattr as u64, None, bytes),
                None => zil.unlogged(tx),
            },
            Done::Other => zil.unlogged(tx),
            Done::Cloned { inode, offset, length, block, pointers } => {
                if !self.is_of_removed(inode)? {
                    self.log_clone(tx, inode.object, (offset, length), block, pointers);
                }
            }
            Done::Wrote { inode, .. } | Done::Freed { inode, .. } | Done::Set { inode, .. } | Done::SetXattr { inode, .. } => {
                let facts = inode.look().facts()?;
                if self.is_to_be_logged(inode, &facts)? {
                    self.log_contents(tx, inode, &facts, done)?;
                }
            }
        }
        Ok(())
    }

    /// Whether what was done to the contents or attributes of a file is to be logged: not where nobody will look for it again.
    fn is_to_be_logged(&self, inode: &Inode, facts: &LogFacts) -> Result<bool> {
        Ok(facts.links != 0 && (facts.flags & znode::FLAG_XATTR == 0 || !self.is_of_removed(inode)?))
    }

    /// Operations on one file that has a name.
    fn log_contents(&self, tx: &Tx, inode: &Inode, facts: &LogFacts, done: Done<'_>) -> Result<()> {
        let Some(zil) = &self.zil else { return Ok(()) };
        let object = inode.object;
        let list = facts.list_of(inode);
        match done {
            Done::Wrote { offset, length, .. } => {
                zil.log_write(tx, list, object, facts.generation, offset, length);
            }
            Done::Freed { offset, length, .. } => {
                inode.contents.log_freed(zil, tx, list, offset, length);
            }
            Done::Set { changed, .. } => {
                zil.log(tx, RecordType::SetAttr as u64, list, set_attributes(object, &changed).as_bytes().to_vec());
            }
            Done::SetXattr { name, value, .. } => {
                match self.set_xattr_record(object, name, value) {
                    Some(bytes) => zil.log(tx, RecordType::SetSaXattr as u64, list, bytes),
                    None => zil.unlogged(tx),
                }
            }
            Done::Made { .. }
            | Done::Removed { .. }
            | Done::Linked { .. }
            | Done::Renamed { .. }
            | Done::LeftWhiteout { .. }
            | Done::SetXattrOfNew { .. }
            | Done::Cloned { .. }
            | Done::Other => {}
        }
        Ok(())
    }

    /// Among the names, and the file's other records before it: the source may be removed later, or written over.
    fn log_clone(&self, tx: &Tx, object: InodeNumber, (mut offset, mut length): (u64, u64), block: u64, pointers: &[BlkPtr]) {
        let Some(zil) = &self.zil else { return };
        // A block of a group that is not on disk yet is nothing to the replay of the log.
        let synced = self.files.objset().context().groups.synced_txg();
        if pointers.iter().any(|pointer| !pointer.is_hole() && pointer.birth() > synced) {
            return zil.unlogged(tx);
        }
        zil.bring_forward(object);
        for part in pointers.chunks(CLONES_MAX) {
            let bytes = (part.len() as u64 * block).min(length);
            let record = CloneRangeRecord {
                header: RecordHeader::new_zeroed(),
                object: object.into(),
                offset: offset.into(),
                length: bytes.into(),
                block_size: block.into(),
                count: (part.len() as u64).into(),
            };
            zil.log(tx, RecordType::CloneRange as u64, None, [record.as_bytes(), part.as_bytes()].concat());
            (offset, length) = (offset + bytes, length - bytes);
        }
    }

    /// `None`: this pool has no such records, or they cannot say it: an empty value means none.
    fn set_xattr_record(&self, object: InodeNumber, name: &[u8], value: Option<&[u8]>) -> Option<Vec<u8>> {
        if !self.logs_xattrs.load(Ordering::Relaxed) || value.is_some_and(<[u8]>::is_empty) {
            return None;
        }
        let size = value.map_or(0, <[u8]>::len) as u64;
        let record = SetSaXattrRecord { header: RecordHeader::new_zeroed(), object: object.into(), size: size.into() };
        let mut bytes = with_names(record.as_bytes(), &[name]);
        bytes.extend_from_slice(value.unwrap_or_default());
        Some(bytes)
    }

    fn left_whiteout(&self, from: &Inode, name: &[u8], to: &Inode, new_name: &[u8], left: &Inode) -> Result<Vec<u8>> {
        let stat = left.stat()?;
        let created = stat.creation_time;
        let record = RenameWhiteoutRecord {
            header: RecordHeader::new_zeroed(),
            from_dir: from.object.into(),
            to_dir: to.object.into(),
            object: object_with_slots(left.object, left.contents.dnode.slots().into()).into(),
            mode: u64::from(stat.mode).into(),
            uid: u64::from(stat.uid).into(),
            gid: u64::from(stat.gid).into(),
            generation: stat.generation.into(),
            created: [created.seconds.cast_unsigned().into(), u64::from(created.nanoseconds).into()],
            device: 0.into(),
        };
        Ok(with_names(record.as_bytes(), &[name, new_name]))
    }

    fn made(&self, directory: &Inode, inode: &Inode, name: &[u8], target: Option<&[u8]>) -> Result<Vec<u8>> {
        let stat = inode.stat()?;
        let created = stat.creation_time;
        let record = CreateRecord {
            header: RecordHeader::new_zeroed(),
            dir: directory.object.into(),
            object: object_with_slots(inode.object, inode.contents.dnode.slots().into()).into(),
            mode: u64::from(stat.mode).into(),
            uid: u64::from(stat.uid).into(),
            gid: u64::from(stat.gid).into(),
            generation: stat.generation.into(),
            created: [created.seconds.cast_unsigned().into(), u64::from(created.nanoseconds).into()],
            device: stat.device.into(),
        };
        Ok(match target {
            Some(target) => with_names(record.as_bytes(), &[name, target]),
            None => with_names(record.as_bytes(), &[name]),
        })
    }

    /// Whether a file was removed, or is a hidden directory or file of extended attributes of one that was: nobody will look for it again.
    fn is_of_removed(&self, inode: &Inode) -> Result<bool> {
        let facts = inode.look().facts()?;
        if facts.flags & znode::FLAG_XATTR == 0 {
            return Ok(facts.links == 0);
        }
        // Read past the table of inodes: a reference given up here might free a file, inside a transaction.
        let word = |object: InodeNumber, attribute| {
            let dnode = self.files.objset().hold(object)?;
            Ok::<_, engine::error::Error>(Attributes::load(&dnode, &self.files)?.word(attribute).unwrap_or(0))
        };
        let parent = inode.word(Attribute::Parent)?;
        let owner = if inode.kind == FileKind::Directory { parent } else { word(parent, Attribute::Parent)? };
        Ok(word(owner, Attribute::Links).unwrap_or(0) == 0)
    }
}

fn set_attributes(object: InodeNumber, changed: &ChangedAttributes) -> SetAttrRecord {
    let mut record = SetAttrRecord::new_zeroed();
    let mut bits = 0;
    record.object = object.into();
    if let Some(mode) = changed.mode {
        bits |= mask::MODE;
        record.mode = u64::from(mode).into();
    }
    if let Some(uid) = changed.uid {
        bits |= mask::UID;
        record.uid = u64::from(uid).into();
    }
    if let Some(gid) = changed.gid {
        bits |= mask::GID;
        record.gid = u64::from(gid).into();
    }
    let words = |time: Time| [time.seconds.cast_unsigned().into(), u64::from(time.nanoseconds).into()];
    if let Some(time) = changed.accessed {
        bits |= mask::ACCESSED | mask::ACCESSED_SET;
        record.accessed = words(time);
    }
    if let Some(time) = changed.modified {
        bits |= mask::MODIFIED | mask::MODIFIED_SET;
        record.modified = words(time);
    }
    record.mask = bits.into();
    record
}

/// A record followed by names, each ended by a zero byte. There is room for what the log puts behind them.
fn with_names(record: &[u8], names: &[&[u8]]) -> Vec<u8> {
    let length = record.len() + names.iter().map(|name| name.len() + 1).sum::<usize>();
    let mut bytes = Vec::with_capacity(length.next_multiple_of(RECORD_ALIGN));
    bytes.extend_from_slice(record);
    for name in names {
        bytes.extend_from_slice(name);
        bytes.push(0);
    }
    bytes
}
