//! Doing again what the intent log says.
//!
//! # Theory
//! A record is done with the same functions as the operation that it describes, by the superuser, who may do everything. What must be as it
//! was is in the record: object numbers, generations, times of creation. Modification times are those of the replay, as in OpenZFS.
//! An operation of several transactions notes its record in the last one only.
//!
//! # Path
//! called by the library when a pool is imported, through [`engine::zil::Replay`].

use engine::dmu::OpenTx;
use engine::error::Result;
use engine::logged::{CLONE_METADATA_BYTES, Cloned, METADATA_BYTES, Written};
use engine::zil::Replay;
use engine::{bail, error};
use ondisk::acl;
use ondisk::corruption::Corruption;
use ondisk::sa::Attribute;
use ondisk::zil::{
    AclRecord, AttrEndPhys, AttrPhys, CloneRangeRecord, CreateAclPhys, CreateRecord, Record, RecordType, RenameWhiteoutRecord, SetAttrRecord,
    c_string, object_of, slots_of,
};
use ondisk::znode;
use zerocopy::FromBytes;

use super::records::{Done, mask};
use crate::zpl::InodeNumber;
use crate::zpl::attributes::acl::set_acl;
use crate::zpl::attributes::posix_acl::NewLists;
use crate::zpl::attributes::setattr::{SetAttributes, SetTime};
use crate::zpl::attributes::stat::Time;
use crate::zpl::file_system::FileSystem;
use crate::zpl::options::Credentials;
use crate::zpl::names::create::{Fixed, NewNode};
use crate::zpl::names::rename::{RenameMode, Whiteout};

/// Bits of a record's attributes, and the flags that they stand for.
const FLAGS: [(u64, u64); 8] = [
    (0x02, znode::FLAG_ARCHIVE),
    (0x04, znode::FLAG_SYSTEM),
    (0x08, znode::FLAG_READONLY),
    (0x10, znode::FLAG_HIDDEN),
    (0x20, znode::FLAG_NO_UNLINK),
    (0x40, znode::FLAG_IMMUTABLE),
    (0x80, znode::FLAG_APPEND_ONLY),
    (0x100, znode::FLAG_NO_DUMP),
];
const ATTRIBUTE_PROJECT_INHERIT: u64 = 0x2_0000;
const ATTRIBUTE_PROJECT: u64 = ondisk::zil::ATTRIBUTE_PROJECT as u64;

/// Replays the log of a file system.
pub struct FileReplay<'a>(pub &'a FileSystem);

fn short(what: &'static str, found: usize) -> engine::error::Error {
    Corruption::new("log record", what, found as u64).into()
}

fn id(word: u64) -> Result<u32> {
    u32::try_from(word).map_err(|_| error!(Unsupported, "owner {word:#x} is of a foreign domain"))
}

fn time(words: [zerocopy::little_endian::U64; 2]) -> Time {
    Time { seconds: words[0].get().cast_signed(), nanoseconds: u32::try_from(words[1].get()).unwrap_or(0) }
}

/// What makes a new file the file that it was.
fn fixed(object: u64, generation: u64, created: [zerocopy::little_endian::U64; 2]) -> Fixed {
    Fixed { object: object_of(object), slots: slots_of(object).clamp(1, 32) as u8, generation, created: time(created) }
}

/// Flags that are set and cleared, and the project, of the extended attributes in a record; and what follows them.
type Extended<'a> = ((u64, u64), Option<u64>, &'a [u8]);

fn extended(rest: &[u8]) -> Result<Extended<'_>> {
    let (head, _) = AttrPhys::read_from_prefix(rest).map_err(|_| short("attributes", rest.len()))?;
    let words = usize::try_from(head.mask_words.get()).unwrap_or(usize::MAX).clamp(1, 64);
    let after = rest.get(size_of::<AttrPhys>() + 4 * (words - 1)..).ok_or_else(|| short("attributes", rest.len()))?;
    let (values, rest) = AttrEndPhys::read_from_prefix(after).map_err(|_| short("attributes", after.len()))?;
    let (asked, values_bits) = (u64::from(head.bitmap.get()), values.attributes.get());
    let (mut set, mut cleared) = (0, 0);
    for (bit, flag) in FLAGS.into_iter().chain([(ATTRIBUTE_PROJECT_INHERIT, znode::FLAG_PROJECT_INHERIT)]) {
        match asked & bit != 0 {
            true if values_bits & bit != 0 => set |= flag,
            true => cleared |= flag,
            false => {}
        }
    }
    let project = values.scan_stamp.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    Ok(((set, cleared), project.filter(|_| asked & ATTRIBUTE_PROJECT != 0), rest))
}

/// Passes over the names of domains before a name.
fn after_domains(mut rest: &[u8], count: u64) -> Result<&[u8]> {
    for _ in 0..count.min(rest.len() as u64) {
        rest = c_string(rest)?.1;
    }
    Ok(rest)
}

fn domains_of(uid: u64, gid: u64) -> u64 {
    let (user, group) = (uid >> 32, gid >> 32);
    u64::from(user != 0) + u64::from(group != 0 && group != user)
}

impl Replay for FileReplay<'_> {
    fn replay(&self, record: Record<'_>, data: Option<&[u8]>) -> Result<()> {
        match record {
            Record::Create(kind, record, rest) => self.create(kind, &record, rest),
            Record::Remove(kind, record, rest) => {
                let (directory, (name, _)) = (record.dir.get(), c_string(rest)?);
                if kind == RecordType::RemoveDir { self.0.rmdir(directory, name) } else { self.0.unlink(directory, name) }
            }
            Record::Link(record, rest) => {
                let stat = self.0.link(record.object.get(), record.dir.get(), c_string(rest)?.0)?;
                self.0.forget(stat.inode, 1);
                Ok(())
            }
            Record::Rename(kind, record, rest) => {
                let (name, rest) = c_string(rest)?;
                let mode = if kind == RecordType::RenameExchange { RenameMode::Exchange } else { RenameMode::Replace };
                self.0.rename(record.from_dir.get(), name, record.to_dir.get(), c_string(rest)?.0, mode)
            }
            Record::RenameWhiteout(record, rest) => self.rename_whiteout(&record, rest),
            Record::Write(RecordType::Write2, record, _) => self.lengthen(record.object.get(), record.offset.get().saturating_add(record.length.get())),
            Record::Write(_, record, rest) => self.write(record.object.get(), &Written::of(&record, rest, data)?, true),
            Record::Truncate(record) => self.truncate(record.object.get(), record.offset.get(), record.length.get()),
            Record::SetAttr(record, rest) => self.set_attributes(&record, rest),
            Record::SetSaXattr(record, rest) => {
                let (name, rest) = c_string(rest)?;
                let size = usize::try_from(record.size.get()).unwrap_or(usize::MAX);
                let value = rest.get(..size).ok_or_else(|| short("value", rest.len()))?;
                let inode = self.0.inode(record.object.get())?;
                self.0.replay_listed(&inode, name, Some(value).filter(|value| !value.is_empty()))
            }
            Record::AclV0(record, rest) => self.set_acl(record.object.get(), record.entries.get(), rest),
            Record::Acl(record, rest) => {
                let AclRecord { object, entries, .. } = record;
                self.set_acl(object.get(), entries.get(), rest)
            }
            Record::CloneRange(record, rest) => self.clone_range(&record, rest),
            Record::Commit => bail!(Corrupt, "a record that is never written"),
        }
    }
}

impl FileReplay<'_> {
    fn create(&self, kind: RecordType, record: &CreateRecord, rest: &[u8]) -> Result<()> {
        use RecordType as T;
        let fixed = fixed(record.object.get(), record.generation.get(), record.created);
        if kind == T::MakeXattrDir {
            let owner = self.0.inode(record.dir.get())?;
            return self.0.make_xattr_directory(&owner, Some(fixed), None).map(drop);
        }
        let (uid, gid) = (record.uid.get(), record.gid.get());
        let (mut rest, mut flags, mut entries) = (rest, None, None);
        let mut domains = if kind == T::Symlink { 0 } else { domains_of(uid, gid) };
        let has_acl = matches!(kind, T::CreateAcl | T::CreateAclAttr | T::MakeDirAcl | T::MakeDirAclAttr);
        let list = if has_acl {
            let (list, after) = CreateAclPhys::read_from_prefix(rest).map_err(|_| short("ACL", rest.len()))?;
            rest = after;
            domains = list.domains.get();
            Some(list)
        } else {
            None
        };
        if matches!(kind, T::CreateAttr | T::CreateAclAttr | T::MakeDirAttr | T::MakeDirAclAttr) {
            let (found, _, after) = extended(rest)?;
            (flags, rest) = (Some(found), after);
        }
        if let Some(list) = list {
            let count = usize::try_from(list.entries.get()).unwrap_or(usize::MAX);
            entries = Some(acl::decode_logged(count, rest)?);
            let used = list.acl_bytes.get().next_multiple_of(8).saturating_add(list.fuids.get().saturating_mul(8));
            rest = usize::try_from(used).ok().and_then(|used| rest.get(used..)).ok_or_else(|| short("ACL", rest.len()))?;
        }
        let (name, rest) = c_string(after_domains(rest, domains)?)?;
        let target = if kind == T::Symlink { Some(c_string(rest)?.0) } else { None };
        let fs = self.0;
        let directory = fs.inode(record.dir.get())?;
        directory.check_directory()?;
        let _names = directory.names.write();
        if fs.entries().find_entry(&directory, name)?.is_some() {
            bail!(Exists, "{:?} exists in directory {}", String::from_utf8_lossy(name), directory.object);
        }
        let mode = u32::try_from(record.mode.get()).map_err(|_| short("mode", 0))?;
        let credentials = Credentials { uid: id(uid)?, gid: id(gid)?, ..Credentials::root() };
        let mut new = NewNode::inherit(&fs.files, &directory, mode, record.device.get(), &credentials)?;
        (new.mode, new.uid, new.gid, new.fixed) = (mode, credentials.uid, credentials.gid, Some(fixed));
        if let Some((set, cleared)) = flags {
            new.flags = new.flags & !cleared | set;
        }
        if let Some(entries) = entries {
            new.acl = entries;
        }
        fs.make_entry(&directory, name, &new, target, &NewLists::default()).map(drop)
    }

    fn rename_whiteout(&self, record: &RenameWhiteoutRecord, rest: &[u8]) -> Result<()> {
        let (name, rest) = c_string(rest)?;
        let (new_name, _) = c_string(rest)?;
        let fixed = fixed(record.object.get(), record.generation.get(), record.created);
        let credentials = Credentials { uid: id(record.uid.get())?, gid: id(record.gid.get())?, ..Credentials::root() };
        let whiteout = Whiteout { credentials: &credentials, fixed: Some(fixed) };
        self.0.rename_with(record.from_dir.get(), name, record.to_dir.get(), new_name, RenameMode::Replace, Some(&whiteout))
    }

    /// `is_last`: then the record is done.
    fn write(&self, object: InodeNumber, written: &Written<'_>, is_last: bool) -> Result<()> {
        let fs = self.0;
        let inode = fs.inode(object)?;
        inode.check_regular()?;
        let whole = inode.contents.lock_whole();
        let size = inode.word(Attribute::Size)?;
        inode.contents.replay_write(&whole, &fs.membership, size, written, |tx| {
            let mut edit = inode.edit(tx);
            let _ = fs.contents().changed(&mut edit, size.max(written.end), &Credentials::root())?;
            drop(edit);
            if is_last { fs.log(tx, Done::Wrote { inode: &inode, offset: written.offset, length: 0 }) } else { Ok(()) }
        })
    }

    fn lengthen(&self, object: InodeNumber, end: u64) -> Result<()> {
        let inode = self.0.inode(object)?;
        let _guard = inode.contents.lock_whole();
        let tx = OpenTx::assign(&self.0.membership, METADATA_BYTES)?;
        let mut edit = inode.edit(&tx);
        let size = edit.word(Attribute::Size)?.max(end);
        edit.set(&[(Attribute::Size, &size.to_le_bytes())])?;
        drop(edit);
        self.0.log(&tx, Done::Wrote { inode: &inode, offset: 0, length: 0 })
    }

    fn truncate(&self, object: InodeNumber, offset: u64, length: u64) -> Result<()> {
        let root = Credentials::root();
        let size = self.0.getattr(object)?.size;
        if length == 0 || offset > size {
            return self.0.truncate(object, offset, &root);
        }
        self.0.punch_hole(object, offset, length, &root)
    }

    fn set_attributes(&self, record: &SetAttrRecord, rest: &[u8]) -> Result<()> {
        let has = |bit: u64| record.mask.get() & bit != 0;
        let mut set = SetAttributes {
            mode: has(mask::MODE).then_some(record.mode.get() as u32),
            uid: if has(mask::UID) { Some(id(record.uid.get())?) } else { None },
            gid: if has(mask::GID) { Some(id(record.gid.get())?) } else { None },
            size: has(mask::SIZE).then_some(record.size.get()),
            access_time: has(mask::ACCESSED).then(|| SetTime::To(time(record.accessed))),
            modification_time: has(mask::MODIFIED).then(|| SetTime::To(time(record.modified))),
            ..SetAttributes::default()
        };
        if has(mask::FLAGS) {
            let ((added, removed), project, _) = extended(rest)?;
            set.flags = Some((added, removed)).filter(|flags| *flags != (0, 0));
            set.project = project;
        }
        self.0.setattr_again(record.object.get(), &set)
    }

    fn set_acl(&self, object: InodeNumber, count: u64, rest: &[u8]) -> Result<()> {
        let entries = acl::decode_logged(usize::try_from(count).unwrap_or(usize::MAX), rest)?;
        let inode = self.0.inode(object)?;
        let tx = OpenTx::assign(&self.0.membership, METADATA_BYTES)?;
        let mut edit = inode.edit(&tx);
        let (mode, uid, gid) = (edit.word(Attribute::Mode)?, edit.word(Attribute::Uid)?, edit.word(Attribute::Gid)?);
        let (permissions, _) = acl::mode(&entries, uid, gid);
        set_acl(&self.0.files, &mut edit, (mode & !0o777 | permissions & 0o777) as u32, &entries)?;
        edit.set(&[(Attribute::ChangeTime, &self.0.now().to_bytes())])?;
        drop(edit);
        self.0.log(&tx, Done::Other)
    }

    /// Blocks are shared again where the file's blocks have the same size, else copied.
    fn clone_range(&self, record: &CloneRangeRecord, rest: &[u8]) -> Result<()> {
        let (fs, object) = (self.0, record.object.get());
        let cloned = Cloned::of(record, rest)?;
        if cloned.is_whole() {
            let inode = fs.inode(object)?;
            inode.check_regular()?;
            let _guard = inode.contents.lock_whole();
            let size = inode.word(Attribute::Size)?;
            let tx = OpenTx::assign(&fs.membership, CLONE_METADATA_BYTES)?;
            if fs.contents().share_blocks(&tx, &inode, size, cloned.offset, cloned.block, cloned.pointers)? {
                let mut edit = inode.edit(&tx);
                let _ = fs.contents().changed(&mut edit, size.max(cloned.end), &Credentials::root())?;
                drop(edit);
                return fs.log(&tx, Done::Other);
            }
        }
        let count = cloned.pointers.len();
        for index in 0..count {
            let (offset, data) = cloned.read(&fs.objset, object, index)?;
            let end = offset.saturating_add(data.len() as u64);
            self.write(object, &Written { offset, data: data.into(), end }, index + 1 == count)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use engine::dmu::ObjsetSettings;
    use ondisk::acl::{AccessEntry, ModeRule};
    use zerocopy::FromZeros;

    use super::*;
    use crate::zpl::attributes::acl::read_acl;
    use crate::zpl::tests::rig::Rig;
    use crate::zpl::{AclRules, MountOptions, NewFileSystem};

    /// A record of a chown, or of a write that ended set-id bits, has a mode. It was replayed as a chmod: that replaced the list, or was refused and ended the
    /// replay (property `aclmode`).
    #[test]
    fn the_mode_in_a_record_with_an_owner_leaves_the_list() {
        let (_rig, fs) = Rig::new(&NewFileSystem::default(), ObjsetSettings::dataset_default(true));
        let file = fs.create(fs.root(), b"f", 0o100_755, 0, &Credentials::root()).unwrap().inode;
        let mut entries = acl::trivial(0o755, false);
        entries.insert(0, AccessEntry { kind: acl::ALLOW, flags: 0, mask: 2, who: 1000, object_types: None });
        let give_list = || {
            let inode = fs.inode(file).unwrap();
            let tx = OpenTx::assign(&fs.membership, METADATA_BYTES).unwrap();
            set_acl(&fs.files, &mut inode.edit(&tx), 0o104_755, &entries).unwrap();
        };
        let replay = |bits: u64, mode: u64| {
            let mut record = SetAttrRecord::new_zeroed();
            record.object = file.into();
            record.mask = bits.into();
            record.mode = mode.into();
            FileReplay(&fs).replay(Record::SetAttr(record, &[]), None).unwrap();
            let keeps_list = read_acl(&fs.files, &fs.inode(file).unwrap()).unwrap() == entries;
            (fs.getattr(file).unwrap().mode, keeps_list)
        };
        let obey = |mode| fs.set_options(MountOptions { acl_rules: AclRules { mode, ..AclRules::default() }, ..fs.options() });
        for rule in [ModeRule::Discard, ModeRule::Restricted] {
            obey(rule);
            for bits in [mask::MODE | mask::UID, mask::MODE | mask::GID] {
                give_list();
                assert_eq!(replay(bits, 0o100_755), (0o100_755, true), "{rule:?}");
            }
        }
        assert_eq!(replay(mask::MODE, 0o100_700).0, 0o100_700, "what is in a log was allowed");
        give_list();
        obey(ModeRule::Discard);
        assert_eq!(replay(mask::MODE, 0o104_755), (0o104_755, false), "a chmod to the same mode");
    }
}
