//! What is known of a file: its attributes, decoded.

use engine::dmu::FileOwner;
use engine::error::Result;
use ondisk::corruption::Corruption;
use ondisk::object_type::ObjectType;
use ondisk::sa::{self, Attribute};
use ondisk::znode;
use parking_lot::RwLockReadGuard;

use super::values::Attributes;
use crate::zpl::InodeNumber;
use crate::zpl::inodes::inode::Inode;
use crate::zpl::log::records::LogFacts;

/// A point in time, since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds beyond them.
    pub nanoseconds: u32,
}

impl Time {
    pub(in crate::zpl) fn from_words((seconds, nanoseconds): (u64, u64)) -> Self {
        Time { seconds: seconds.cast_signed(), nanoseconds: u32::try_from(nanoseconds).unwrap_or(0) }
    }

    pub(in crate::zpl) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.seconds.to_le_bytes());
        bytes[8..].copy_from_slice(&u64::from(self.nanoseconds).to_le_bytes());
        bytes
    }
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // each is its name
pub enum FileKind {
    Fifo,
    CharacterDevice,
    Directory,
    BlockDevice,
    Regular,
    SymbolicLink,
    Socket,
    Unknown,
}

impl FileKind {
    /// From a mode.
    pub fn of_mode(mode: u32) -> Self {
        Self::of_directory_type((mode >> 12 & 0xf) as u8)
    }

    /// From the type number of a directory entry (`DT_*`).
    pub fn of_directory_type(number: u8) -> Self {
        match number {
            1 => FileKind::Fifo,
            2 => FileKind::CharacterDevice,
            4 => FileKind::Directory,
            6 => FileKind::BlockDevice,
            8 => FileKind::Regular,
            10 => FileKind::SymbolicLink,
            12 => FileKind::Socket,
            _ => FileKind::Unknown,
        }
    }

    /// The type number of a directory entry (`DT_*`).
    pub fn directory_type(self) -> u8 {
        match self {
            FileKind::Fifo => 1,
            FileKind::CharacterDevice => 2,
            FileKind::Directory => 4,
            FileKind::BlockDevice => 6,
            FileKind::Regular => 8,
            FileKind::SymbolicLink => 10,
            FileKind::Socket => 12,
            FileKind::Unknown => 0,
        }
    }
}

/// What is known of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Inode number.
    pub inode: InodeNumber,
    /// Tells apart files that had one inode number at different times.
    pub generation: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Number of names.
    pub links: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number (devices only): the major number shifted left by 20 bits, and the minor number.
    pub device: u64,
    /// Bytes of contents; directories: entries.
    pub size: u64,
    /// Bytes allocated, as of the last sync.
    pub allocated: u64,
    /// Bytes of a block.
    pub block_size: u64,
    /// Last read.
    pub access_time: Time,
    /// Last change of the contents.
    pub modification_time: Time,
    /// Last change of contents or attributes.
    pub change_time: Time,
    /// When it was made.
    pub creation_time: Time,
    /// The directory in which it was made or last moved to.
    pub parent: InodeNumber,
    /// `ondisk::znode::FLAG_*`.
    pub flags: u64,
    /// Project.
    pub project: u64,
}

impl Stat {
    /// What the file is.
    pub fn kind(&self) -> FileKind {
        FileKind::of_mode(self.mode)
    }
}

/// Stands for ids above 32 bits, which name users of foreign domains.
const NOBODY: u32 = 65534;

fn local_id(id: u64) -> u32 {
    u32::try_from(id).unwrap_or(NOBODY)
}

/// A look at the attributes of an inode: what is read belongs together.
pub(in crate::zpl) struct Look<'a> {
    inode: &'a Inode,
    attributes: RwLockReadGuard<'a, Attributes>,
}

impl Look<'_> {
    /// A word that every file has.
    pub(in crate::zpl) fn word(&mut self, attribute: Attribute) -> Result<u64> {
        self.maybe_word(attribute)?.ok_or_else(|| {
            let field = ondisk::sa::ATTRIBUTES[attribute as usize].name;
            Corruption::new("file attributes", field, self.inode.object).into()
        })
    }

    /// A word that a file may have.
    pub(in crate::zpl) fn maybe_word(&mut self, attribute: Attribute) -> Result<Option<u64>> {
        let word = self.attributes.word(attribute);
        if word.is_some() || !self.attributes.spill_unread() {
            return Ok(word);
        }
        RwLockReadGuard::unlocked(&mut self.attributes, || self.inode.attributes.write().load_spill(&self.inode.contents.dnode))?;
        Ok(self.attributes.word(attribute))
    }

    /// All that was read so far.
    pub(in crate::zpl) fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn time(&self, attribute: Attribute) -> Time {
        self.attributes.two_words(attribute).map_or(Time::default(), Time::from_words)
    }

    /// The project that the file belongs to; 0 if it says none.
    pub(in crate::zpl) fn project(&mut self) -> Result<u64> {
        let has_one = self.word(Attribute::Flags)? & znode::FLAG_PROJECT_ID != 0;
        Ok(if has_one { self.maybe_word(Attribute::ProjectId)?.unwrap_or(0) } else { 0 })
    }

    /// Fails if something is missing or cannot be read that every file has.
    pub(in crate::zpl) fn check_all(&mut self) -> Result<()> {
        const ALL: [Attribute; 8] =
            [Attribute::Mode, Attribute::Size, Attribute::Links, Attribute::Flags, Attribute::Generation, Attribute::Uid, Attribute::Gid, Attribute::Parent];
        ALL.into_iter().try_for_each(|attribute| self.word(attribute).map(drop))
    }

    /// What the intent log wants to know.
    pub(in crate::zpl) fn facts(&mut self) -> Result<LogFacts> {
        let links = self.word(Attribute::Links)?;
        Ok(LogFacts { links, flags: self.word(Attribute::Flags)?, generation: self.word(Attribute::Generation)? })
    }
}

impl Inode {
    /// Looks at the attributes.
    pub(in crate::zpl) fn look(&self) -> Look<'_> {
        Look { inode: self, attributes: self.attributes.read() }
    }

    /// A word that every file has.
    pub(in crate::zpl) fn word(&self, attribute: Attribute) -> Result<u64> {
        self.look().word(attribute)
    }

    /// A word that a file may have.
    pub(in crate::zpl) fn maybe_word(&self, attribute: Attribute) -> Result<Option<u64>> {
        self.look().maybe_word(attribute)
    }

    /// The project that the file belongs to; 0 if it says none.
    pub(in crate::zpl) fn project(&self) -> Result<u64> {
        self.look().project()
    }

    /// Everything that `stat` says.
    pub(in crate::zpl) fn stat(&self) -> Result<Stat> {
        // To the nearest sector, as OpenZFS: what counts of a block on RAID-Z is no whole number of them.
        let allocated = (self.contents.dnode.used_bytes() + 256) / 512 * 512 + u64::from(self.contents.dnode.slots()) * 512;
        let mut look = self.look();
        let mode = look.word(Attribute::Mode)? as u32;
        let kind = FileKind::of_mode(mode);
        let device = match kind {
            FileKind::BlockDevice | FileKind::CharacterDevice => look.maybe_word(Attribute::Device)?.unwrap_or(0),
            _ => 0,
        };
        Ok(Stat {
            inode: self.object,
            generation: look.word(Attribute::Generation)?,
            mode,
            links: look.word(Attribute::Links)?,
            uid: local_id(look.word(Attribute::Uid)?),
            gid: local_id(look.word(Attribute::Gid)?),
            device,
            size: look.word(Attribute::Size)?,
            allocated,
            block_size: self.contents.dnode.block_bytes(),
            access_time: look.time(Attribute::AccessTime),
            modification_time: look.time(Attribute::ModificationTime),
            change_time: look.time(Attribute::ChangeTime),
            creation_time: look.time(Attribute::CreationTime),
            parent: look.word(Attribute::Parent)?,
            flags: look.word(Attribute::Flags)?,
            project: look.project()?,
        })
    }
}

/// The owner of the file with this bonus: for the accounting of used space, done where no table of attributes is at hand.
#[doc(alias = "zpl_get_file_info")]
pub fn file_owner(bonus_type: ObjectType, bonus: &[u8]) -> Option<FileOwner> {
    let owner = match bonus_type {
        ObjectType::ZNODE => znode::owner(bonus).ok()?,
        // A new file whose attributes are not there yet belongs to root, as in OpenZFS.
        ObjectType::SA => sa::owner(bonus).ok()?.unwrap_or_default(),
        _ => return None,
    };
    Some(FileOwner { user: owner.uid, group: owner.gid, project: owner.project })
}
