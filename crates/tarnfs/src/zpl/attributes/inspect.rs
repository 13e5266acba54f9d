//! What an inspector wants to see of a file beyond its attributes: where its extended attributes are.

use ondisk::nvlist::NvList;
use ondisk::sa::Attribute;

use crate::zpl::{FileSystem, InodeNumber};
use engine::error::Result;

/// Where a file has its extended attributes.
#[derive(Debug, Clone, Default)]
pub struct RawXattrs {
    /// The object of their directory.
    pub directory: Option<u64>,
    /// Bytes of the list among its own attributes, and the list.
    pub listed: Option<(usize, NvList)>,
}

impl FileSystem {
    /// Where a file has its extended attributes.
    ///
    /// # Errors
    /// The file or its list cannot be read.
    pub fn raw_xattrs(&self, inode: InodeNumber) -> Result<RawXattrs> {
        let inode = self.inode(inode)?;
        let mut attributes = inode.attributes.write();
        attributes.load_spill(&inode.contents.dnode)?;
        let directory = attributes.word(Attribute::ExtendedAttributes).filter(|object| *object != 0);
        let listed = match attributes.get(Attribute::ExtendedAttributeList) {
            Some(bytes) if !bytes.is_empty() => Some((bytes.len(), NvList::decode(bytes)?)),
            _ => None,
        };
        Ok(RawXattrs { directory, listed })
    }
}
