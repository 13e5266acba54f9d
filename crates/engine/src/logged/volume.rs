//! A volume: an object of fixed size that programs take for a disk.
//!
//! # On disk
//! Object 1 is the contents, in blocks of one size (`volblocksize`); object 2 is a ZAP with the entry `size`. The log has writes, truncations (a discarded
//! range) and clones, all of object 1.

use std::ops::Range;
use std::sync::Arc;

use ondisk::object_type::ObjectType;
use ondisk::zil::{CloneRangeRecord, Record, RecordType};

use super::{CLONE_METADATA_BYTES, Cloned, LoggedObject, METADATA_BYTES, NewBytes, Written, clone_blocks};
use crate::bail;
use crate::dmu::{Caching, DnodeSpec, Membership, ObjectId, Objset, OpenTx, Tx};
use crate::error::{Result, Within};
use crate::txg::Txg;
use crate::zap::{Zap, ZapSpec};
use crate::zil::{LogSource, PlacedBlock, Placing, Replay, WantedWrite, Zil};

/// The contents.
#[doc(alias = "ZVOL_OBJ")]
const CONTENTS: ObjectId = 1;
/// What is known of them.
#[doc(alias = "ZVOL_ZAP_OBJ")]
const FACTS: ObjectId = 2;
const SIZE: &str = "size";
/// An object number of a volume is never given to another object.
const GENERATION: u64 = 0;

/// Makes the objects of a new volume.
///
/// # Errors
/// The object set has them.
pub fn create_volume_objects(objset: &Objset, tx: &Tx, bytes: u64, block_bytes: u64) -> Result<()> {
    objset.claim(tx, CONTENTS, &DnodeSpec::new(ObjectType::ZVOL, block_bytes))?;
    Zap::create_at(objset, tx, FACTS, &ZapSpec::new(ObjectType::ZVOL_PROP))?.add_u64(tx, SIZE, bytes)
}

/// A volume.
pub struct Volume {
    membership: Membership,
    contents: LoggedObject,
    zil: Arc<Zil>,
    size: u64,
}

impl Volume {
    /// The volume in `objset`.
    ///
    /// # Errors
    /// It is none, or cannot be read.
    pub fn open(objset: Arc<Objset>) -> Result<Self> {
        let name = || objset.name();
        let size = Zap::open(&objset, FACTS).within(name)?.get_u64(SIZE).within(name)?;
        let contents = LoggedObject::new(objset.hold(CONTENTS).within(name)?);
        Ok(Volume { contents, zil: Zil::of(&objset), size, membership: Membership::single(objset) })
    }

    /// How many bytes it has.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        self.contents.dnode.block_bytes()
    }

    fn check(&self, offset: u64, length: u64) -> Result<Range<u64>> {
        match offset.checked_add(length) {
            Some(end) if end <= self.size => Ok(offset..end),
            _ => bail!(Invalid, "{}: {length} bytes at {offset} are not in a volume of {} bytes", self.membership.objset().name(), self.size),
        }
    }

    /// Reads.
    ///
    /// # Errors
    /// `Invalid` beyond the end; a block cannot be read.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(offset, buffer.len() as u64)?;
        self.contents.read(offset, buffer, Caching::Usual, || Ok(self.size)).map(drop)
    }

    /// Writes.
    ///
    /// # Errors
    /// `Invalid` beyond the end; `NoSpace`, `Quota`, `ReadOnly`.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let range = self.check(offset, data.len() as u64)?;
        let lock = self.contents.lock_range(range);
        self.contents.write(&lock, &self.membership, self.size, NewBytes { offset, data, caching: Caching::Usual }, |tx, range| {
            self.log(tx, || {
                self.zil.log_write(tx, Some(CONTENTS), CONTENTS, GENERATION, range.start, range.end - range.start);
            });
            Ok(())
        })
    }

    /// Makes a range zeros, which take no space.
    ///
    /// # Errors
    /// `Invalid` beyond the end; `NoSpace`, `Quota`, `ReadOnly`.
    pub fn discard(&self, offset: u64, length: u64) -> Result<()> {
        let range = self.check(offset, length)?;
        // To the log, no bytes would be all to the end.
        if range.is_empty() {
            return Ok(());
        }
        let lock = self.contents.lock_range(range.clone());
        self.contents.punch(&lock, &self.membership, range, self.size, |tx, range| {
            self.log(tx, || self.contents.log_freed(&self.zil, tx, Some(CONTENTS), range.start, range.end - range.start));
            Ok(())
        })
    }

    /// Waits until everything that was written is safe: in the intent log, or on disk.
    ///
    /// # Errors
    /// What stopped the pool.
    pub fn commit(&self) -> Result<()> {
        self.zil.commit(Some(CONTENTS), self)
    }

    fn log(&self, tx: &Tx, describe: impl FnOnce()) {
        if self.zil.note(tx) {
            return;
        }
        if self.zil.is_disabled() { self.zil.unlogged(tx) } else { describe() }
    }
}

impl LogSource for Volume {
    fn fetch(&self, write: &WantedWrite, out: &mut Vec<u8>) -> Result<()> {
        self.contents.fetch(write, || Ok(self.size), out)
    }

    fn block_bytes(&self, _object: ObjectId) -> Option<u64> {
        Some(self.contents.dnode.block_bytes())
    }

    fn place(&self, write: &WantedWrite, txg: Txg, which: Placing) -> Result<Vec<PlacedBlock>> {
        self.contents.place(self.membership.objset(), write, || Ok(self.size), txg, which)
    }
}

/// Replays the log of a volume.
pub struct VolumeReplay<'a>(pub &'a Volume);

impl VolumeReplay<'_> {
    fn check_object(object: u64) -> Result<()> {
        if object == CONTENTS { Ok(()) } else { bail!(Corrupt, "a record of object {object}, which a volume has not") }
    }

    fn write(&self, written: &Written<'_>) -> Result<()> {
        let Volume { contents, membership, zil, .. } = self.0;
        let whole = contents.lock_whole();
        // A volume's block never grows, as that of contents that long would not.
        contents.replay_write(&whole, membership, u64::MAX, written, |tx| {
            zil.note(tx);
            Ok(())
        })
    }

    /// Blocks are shared again where the volume's have the same size, else copied.
    fn clone_range(&self, record: &CloneRangeRecord, rest: &[u8]) -> Result<()> {
        let Volume { contents, membership, zil, .. } = self.0;
        let cloned = Cloned::of(record, rest)?;
        let _whole = contents.lock_whole();
        let is_shared = cloned.is_whole() && contents.dnode.block_bytes() == cloned.block;
        let bytes = if is_shared { CLONE_METADATA_BYTES } else { cloned.length.saturating_add(METADATA_BYTES) };
        let tx = OpenTx::assign(membership, bytes)?;
        if is_shared {
            clone_blocks(&contents.dnode, &tx, cloned.offset, cloned.pointers)?;
        } else {
            for index in 0..cloned.pointers.len() {
                let (offset, data) = cloned.read(membership.objset(), CONTENTS, index)?;
                contents.dnode.write(&tx, offset, &data)?;
            }
        }
        zil.note(&tx);
        Ok(())
    }
}

impl Replay for VolumeReplay<'_> {
    fn replay(&self, record: Record<'_>, data: Option<&[u8]>) -> Result<()> {
        let Volume { contents, membership, zil, .. } = self.0;
        match record {
            Record::Write(RecordType::Write, record, rest) => {
                Self::check_object(record.object.get())?;
                self.write(&Written::of(&record, rest, data)?)
            }
            Record::Truncate(record) => {
                Self::check_object(record.object.get())?;
                let (start, whole) = (record.offset.get(), contents.lock_whole());
                contents.punch(&whole, membership, start..start.saturating_add(record.length.get()), u64::MAX, |tx, _| {
                    zil.note(tx);
                    Ok(())
                })
            }
            Record::CloneRange(record, rest) => {
                Self::check_object(record.object.get())?;
                self.clone_range(&record, rest)
            }
            _ => bail!(Corrupt, "a record that a volume cannot have"),
        }
    }
}
