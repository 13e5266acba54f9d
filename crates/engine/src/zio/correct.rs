//! Writing what is right over a block of which no copy is right.
//!
//! # Path
//! A receive that heals has contents from elsewhere. What they were on disk nobody knows but the checksum in the pointer.

use ondisk::blkptr::DataPointer;

use super::block_io::BlockIo;
use super::leaf_io::write_range;
use super::stages::checksum_stage;
use super::Bookmark;
use crate::bail;
use crate::error::{Result, Within};
use crate::vdev::Class;

impl BlockIo {
    /// Writes, over all copies of a block, the first of `candidates` that has its checksum, filled up with zeros. Whether there was one. The block must stay where it is
    /// meanwhile.
    ///
    /// # Errors
    /// Those of the devices; `NotSupported`: it is a gang block.
    pub fn correct(&self, data: &DataPointer, at: &Bookmark, candidates: impl IntoIterator<Item = Vec<u8>>) -> Result<bool> {
        if data.is_gang() {
            bail!(NotSupported, "block {at}: a gang block is not corrected");
        }
        let (salt, length) = (self.salt(), data.physical_size as usize);
        for mut bytes in candidates.into_iter().filter(|bytes| bytes.len() <= length) {
            bytes.resize(length, 0);
            if !checksum_stage::verify(data, &bytes, &salt)? {
                continue;
            }
            for dva in data.dvas() {
                write_range(&self.device(*dva)?, Class::SyncWrite, dva.offset, &[&bytes], data.physical_birth).within(|| format!("block {at}"))?;
            }
            self.counters.healed.add(1);
            self.lost.corrected(at, data.physical_birth);
            return Ok(true);
        }
        Ok(false)
    }
}
