//! The bytes of writes, for a commit of the intent log.

use std::ops::Deref;

use engine::error::{ErrorKind, Result};
use engine::txg::Txg;
use engine::zil::{LogSource, PlacedBlock, Placing, WantedWrite};
use ondisk::sa::Attribute;

use crate::zpl::file_system::FileSystem;
use crate::zpl::inodes::inode::{Inode, InodeRef};
use crate::zpl::{FileKind, InodeNumber};

/// Where a commit of the log gets the bytes of writes from.
pub struct FileSource<'a> {
    fs: &'a FileSystem,
    /// The file that the commit is for, which need not be looked up.
    known: Option<&'a Inode>,
}

impl<'a> FileSource<'a> {
    /// For a commit of a whole file system.
    pub fn of(fs: &'a FileSystem) -> Self {
        FileSource { fs, known: None }
    }

    /// For a commit of a file that the caller has.
    pub(in crate::zpl) fn knowing(fs: &'a FileSystem, inode: &'a Inode) -> Self {
        FileSource { fs, known: Some(inode) }
    }
}

/// A file that a write went to.
enum FileOfWrite<'a> {
    Known(&'a Inode),
    Found(InodeRef<'a>),
}

impl Deref for FileOfWrite<'_> {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        match self {
            FileOfWrite::Known(inode) => inode,
            FileOfWrite::Found(inode) => inode,
        }
    }
}

impl FileSource<'_> {
    fn find(&self, object: InodeNumber) -> Result<FileOfWrite<'_>> {
        match self.known.filter(|known| known.object == object) {
            Some(known) => Ok(FileOfWrite::Known(known)),
            None => self.fs.inode_even_unlinked(object).map(FileOfWrite::Found),
        }
    }

    /// The file that a write went to, if it is there still; one without a name, too, if somebody has it: that it has none may be logged after the write.
    fn file_of(&self, write: &WantedWrite) -> Result<Option<FileOfWrite<'_>>> {
        let inode = match self.find(write.object) {
            Ok(inode) => inode,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale) => return Ok(None),
            Err(error) => return Err(error),
        };
        let word = |attribute| inode.word(attribute);
        let is_it = inode.kind == FileKind::Regular && word(Attribute::Generation)? == write.generation;
        Ok(is_it.then_some(inode))
    }
}

impl LogSource for FileSource<'_> {
    fn fetch(&self, write: &WantedWrite, out: &mut Vec<u8>) -> Result<()> {
        let Some(inode) = self.file_of(write)? else { return Ok(()) };
        inode.contents.fetch(write, || inode.word(Attribute::Size), out)
    }

    fn block_bytes(&self, object: InodeNumber) -> Option<u64> {
        Some(self.find(object).ok()?.contents.dnode.block_bytes())
    }

    fn place(&self, write: &WantedWrite, txg: Txg, which: Placing) -> Result<Vec<PlacedBlock>> {
        let Some(inode) = self.file_of(write)? else { return Ok(Vec::new()) };
        if inode.word(Attribute::Links)? == 0 {
            return Ok(Vec::new());
        }
        inode.contents.place(&self.fs.objset, write, || inode.word(Attribute::Size), txg, which)
    }
}
