//! Redaction lists: which blocks a redaction bookmark leaves out.
//!
//! # On disk
//! [`RedactionListPhys`] in the bonus (or the spill block) of a MOS object, behind it the guids of the redaction snapshots; the object's data are
//! [`RedactBlockPhys`], in the order of objects and blocks.

use ondisk::dnode::OBJECTS_MAX;
use ondisk::dsl::{RedactBlockPhys, RedactionListPhys};
use zerocopy::FromBytes;

use super::item::Blocks;
use crate::bail;
use crate::dsl::{Mos, redaction_bonus};
use crate::error::{Result, Within};

/// Bytes of an entry.
const ENTRY_BYTES: usize = size_of::<RedactBlockPhys>();
/// Entries that are read at a time.
const ENTRIES_AT_A_TIME: u64 = 1024;

/// A list, read from its beginning to its end.
pub(super) struct RedactionList<'a> {
    mos: &'a Mos,
    object: u64,
    entries: u64,
    next: u64,
    /// Object and block of the last entry that was read.
    last: (u64, u64),
    read: Vec<Blocks>,
    resume: Option<(u64, u64)>,
    front: Option<Blocks>,
}

/// The head of a list: how many entries, and the guids of the redaction snapshots.
pub(super) fn head(mos: &Mos, object: u64) -> Result<(u64, Vec<u64>)> {
    let place = || format!("redaction list {object}");
    let bonus = redaction_bonus(mos, object).within(place)?;
    let phys = RedactionListPhys::from_bonus(&bonus).within(place)?;
    if (phys.last_object.get(), phys.last_block.get()) != (u64::MAX, u64::MAX) {
        bail!(Invalid, "{}: it is not complete", place());
    }
    Ok((phys.entries.get(), RedactionListPhys::snapshot_guids(&bonus).within(place)?))
}

impl<'a> RedactionList<'a> {
    /// The list in `object`; what is before `resume`, an object and a block, is left out.
    pub(super) fn open(mos: &'a Mos, object: u64, resume: Option<(u64, u64)>) -> Result<Self> {
        let (entries, _) = head(mos, object)?;
        let mut list = RedactionList { mos, object, entries, next: 0, last: (0, 0), read: Vec::new(), resume, front: None };
        list.advance()?;
        Ok(list)
    }

    /// The first range that was not taken.
    pub(super) fn front(&self) -> Option<Blocks> {
        self.front
    }

    /// Only what is from `block` on is left of the first range.
    pub(super) fn begin_at(&mut self, block: u64) -> Result<()> {
        match &mut self.front {
            Some(front) if block < front.end => front.first = block,
            _ => self.advance()?,
        }
        Ok(())
    }

    /// The next range is the first.
    pub(super) fn advance(&mut self) -> Result<()> {
        loop {
            if self.read.is_empty() {
                self.fetch()?;
            }
            self.front = self.read.pop();
            let is_before = |front: &Blocks| self.resume.is_some_and(|(object, block)| (front.object, front.end) <= (object, block));
            if !self.front.as_ref().is_some_and(is_before) {
                return Ok(());
            }
        }
    }

    fn fetch(&mut self) -> Result<()> {
        let count = (self.entries - self.next).min(ENTRIES_AT_A_TIME);
        if count == 0 {
            return Ok(());
        }
        let bytes = self.mos.read(self.object, self.next * ENTRY_BYTES as u64, count as usize * ENTRY_BYTES)?;
        self.next += count;
        let entries: Vec<RedactBlockPhys> = bytes.chunks_exact(ENTRY_BYTES).filter_map(|bytes| RedactBlockPhys::read_from_bytes(bytes).ok()).collect();
        self.read.clear();
        for entry in entries {
            let (object, first) = (entry.object.get(), entry.block.get());
            // What is not in order would hide what comes behind it: that would be sent.
            if object == 0 || object >= OBJECTS_MAX || (object, first) < self.last {
                bail!(Corrupt, "redaction list {}: object {object}, block {first} is not in its place", self.object);
            }
            self.last = (object, first);
            self.read.push(Blocks { object, first, end: first.saturating_add(entry.count()), bytes: entry.block_bytes() });
        }
        self.read.retain(|blocks| blocks.first < blocks.end);
        self.read.reverse();
        Ok(())
    }
}
