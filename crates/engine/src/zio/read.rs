//! Reading one block.
//!
//! # Path
//! Called by `arc`. A hole reads as zeros, an embedded pointer is unpacked; else each copy is tried until one has the right
//! checksum. While none is wrong nothing else is read. Once one is, all others of the block are looked at too: what damages one place seldom
//! damages it alone. The wrong ones are counted and written over with what is right.

use std::sync::Arc;

use ondisk::blkptr::{BlkPtr, BlockPointer, DataPointer};
use ondisk::dva::Dva;
use parking_lot::Mutex;

use super::block_io::BlockIo;
use super::stages::encrypt_stage::{check_key, needs_key};
use super::stages::{self, checksum_stage};
use super::Bookmark;
use super::leaf_io::{Damage, PlaceRead};
use crate::bail;
use crate::error::{Error, ErrorKind, Result, Within};
use crate::vdev::{Class, LeafId};

mod run;
mod scan;

pub use run::Run;
pub use scan::{NotRight, ScanTally, Tallied};
use scan::is_log_block;

/// Calls what it is given if the block is still there, and keeps it from being freed meanwhile.
pub type WhileThere<'a> = &'a dyn Fn(&mut dyn FnMut());

/// What is to be done about copies that are wrong.
#[derive(Clone, Copy)]
pub(super) enum Intent<'a> {
    /// They are counted, and written over.
    Needed,
    /// As far as the block is still there when it is known. The place of one that is freed meanwhile is somebody else's some groups later.
    NeededWhile(WhileThere<'a>),
    /// The same for reading ahead. If the block is not there any more, what was read is an error: nobody may keep it.
    Ahead(WhileThere<'a>),
    /// They are noted here, nothing else; all copies are looked at, whether one is wrong or not.
    Inspect(&'a Mutex<Vec<WrongCopy>>),
    /// All copies are looked at, or only those written that a device has missed, as the tally says. What is wrong is counted and written over, and
    /// noted there.
    Scan(&'a ScanTally),
    /// If no copy is right, the block was never written; if only some are, its writing was cut off. Nobody is to blame for either. Where a device
    /// that is there refuses to read one, it is not known which it is.
    PerhapsUnwritten,
}

impl Intent<'_> {
    fn class(self) -> Class {
        match self {
            Intent::Needed | Intent::NeededWhile(_) | Intent::PerhapsUnwritten => Class::SyncRead,
            Intent::Ahead(_) => Class::AsyncRead,
            Intent::Inspect(_) | Intent::Scan(_) => Class::Scrub,
        }
    }

    /// Are all copies to be read, whether one is wrong or not?
    fn reads_all(self) -> bool {
        match self {
            Intent::Inspect(_) => true,
            Intent::Scan(tally) => tally.reads_all(),
            Intent::Needed | Intent::NeededWhile(_) | Intent::Ahead(_) | Intent::PerhapsUnwritten => false,
        }
    }

    /// Are sides to be written that were not there when the block was?
    fn fills(self) -> bool {
        matches!(self, Intent::Scan(_))
    }
}

/// A copy of a block that is not what it should be, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongCopy {
    /// The device and the address.
    pub place: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// Does `verify` hold for what was read?
type Verify<'a> = &'a dyn Fn(&[u8]) -> Result<bool>;

/// What is wrong in one place of a block, where the right bytes are known or where there are none.
struct Damaged<'a> {
    place: &'a PlaceRead,
    sides: Vec<Damage>,
}

impl BlockIo {
    /// The contents of a block: verified, decompressed, little-endian; its length is the logical size.
    ///
    /// # Errors
    /// `Checksum` or `Io` when no copy is right, `Corrupt` when the pointer or the compressed data makes no sense,
    /// `KeyNotLoaded` when the block is encrypted.
    pub fn read(&self, bp: &BlkPtr, at: &Bookmark) -> Result<Arc<Vec<u8>>> {
        self.read_with(bp, at, Intent::Needed)
    }

    /// As [`BlockIo::read`], and says which copies are wrong, of all that there should be. Nothing is counted or repaired. Of what is encrypted
    /// the contents are left out.
    ///
    /// # Errors
    /// As [`BlockIo::read`].
    pub fn inspect(&self, bp: &BlkPtr, at: &Bookmark) -> Result<(Arc<Vec<u8>>, Vec<WrongCopy>)> {
        let wrong = Mutex::default();
        let contents = match bp.decode().within(|| format!("pointer to block {at}"))? {
            BlockPointer::Data(data) if needs_key(&data) => self.read_data(&data, at, Intent::Inspect(&wrong)).map(|_| Arc::default())?,
            _ => self.read_with(bp, at, Intent::Inspect(&wrong))?,
        };
        Ok((contents, wrong.into_inner()))
    }

    fn read_with(&self, bp: &BlkPtr, at: &Bookmark, intent: Intent<'_>) -> Result<Arc<Vec<u8>>> {
        match bp.decode().within(|| format!("pointer to block {at}"))? {
            BlockPointer::Hole(hole) => Ok(Arc::new(vec![0; hole.logical_size as usize])),
            BlockPointer::Redacted(_) => bail!(Io, "block {at} was redacted when the dataset was sent"),
            BlockPointer::Embedded(embedded) => stages::unpack(&embedded, at).map(Arc::new),
            BlockPointer::Data(data) => {
                Self::check_key(&data, at)?;
                let physical = self.read_data(&data, at, intent)?;
                Self::opened(&data, physical, at).map(Arc::new)
            }
        }
    }

    /// The verified bytes as they are on disk: compressed, perhaps encrypted, in the byte order of the writer. For raw
    /// streams and scrubs. Of a block in its pointer, what is there.
    ///
    /// # Errors
    /// As [`BlockIo::read`], but for `KeyNotLoaded`; `Invalid` when the pointer leads to no block.
    pub fn read_physical(&self, bp: &BlkPtr, at: &Bookmark) -> Result<Vec<u8>> {
        self.read_physical_with(bp, at, Intent::Needed)
    }

    /// As [`BlockIo::read`], or with `physical` as [`BlockIo::read_physical`], of a block that may be freed meanwhile: damage is seen to only as far as
    /// `while_there` allows.
    ///
    /// # Errors
    /// As of these.
    pub fn read_block_while(&self, bp: &BlkPtr, at: &Bookmark, physical: bool, while_there: WhileThere<'_>) -> Result<Arc<Vec<u8>>> {
        let intent = Intent::NeededWhile(while_there);
        if physical { self.read_physical_with(bp, at, intent).map(Arc::new) } else { self.read_with(bp, at, intent) }
    }

    fn read_physical_with(&self, bp: &BlkPtr, at: &Bookmark, intent: Intent<'_>) -> Result<Vec<u8>> {
        match bp.decode().within(|| format!("pointer to block {at}"))? {
            BlockPointer::Data(data) => self.read_data(&data, at, intent),
            BlockPointer::Embedded(embedded) => Ok(embedded.payload().to_vec()),
            BlockPointer::Hole(_) | BlockPointer::Redacted(_) => bail!(Invalid, "block {at} has nothing on disk"),
        }
    }

    /// The same of a block that may be freed meanwhile: damage is seen to only as far as `while_there` allows.
    ///
    /// # Errors
    /// As [`BlockIo::read_physical`].
    pub fn read_physical_while(&self, data: &DataPointer, at: &Bookmark, while_there: WhileThere<'_>) -> Result<Vec<u8>> {
        self.read_data(data, at, Intent::NeededWhile(while_there))
    }

    /// The same of a block that nobody needs yet.
    ///
    /// # Errors
    /// As [`BlockIo::read_physical`], also if some copy is wrong and the block is not there any more.
    pub fn read_physical_ahead(&self, data: &DataPointer, at: &Bookmark, while_there: WhileThere<'_>) -> Result<Vec<u8>> {
        self.read_data(data, at, Intent::Ahead(while_there))
    }

    /// Whether bytes from elsewhere are what a pointer means.
    ///
    /// # Errors
    /// The pointer has a checksum that no block can have.
    pub fn is_right(&self, data: &DataPointer, physical: &[u8]) -> Result<bool> {
        checksum_stage::verify(data, physical, &self.salt())
    }

    /// Is what is on disk of a block what is used?
    pub fn is_same(data: &DataPointer) -> bool {
        stages::is_same(data)
    }

    /// The contents of a block, from its verified bytes as they are on disk.
    ///
    /// # Errors
    /// `Corrupt` when the compressed data makes no sense, `KeyNotLoaded` when the block is encrypted.
    pub fn open(data: &DataPointer, physical: &[u8], at: &Bookmark) -> Result<Vec<u8>> {
        stages::open(data, physical, at)
    }

    /// As [`BlockIo::open`], of bytes that may be what is used.
    ///
    /// # Errors
    /// As [`BlockIo::open`].
    pub fn opened(data: &DataPointer, physical: Vec<u8>, at: &Bookmark) -> Result<Vec<u8>> {
        if Self::is_same(data) { Ok(physical) } else { Self::open(data, &physical, at) }
    }

    /// The same of a block of pointers, without the zeros at its end.
    ///
    /// # Errors
    /// As [`BlockIo::open`].
    pub fn open_trimmed(data: &DataPointer, physical: &[u8], at: &Bookmark) -> Result<Vec<u8>> {
        stages::open_trimmed(data, physical, at)
    }

    /// Fails if [`BlockIo::open`] would for want of a key.
    ///
    /// # Errors
    /// `KeyNotLoaded`.
    pub fn check_key(data: &DataPointer, at: &Bookmark) -> Result<()> {
        check_key(data, at)
    }

    /// As [`BlockIo::read_physical`] of a block that may never have been written, as the last one of an intent log: then that is no
    /// error of a device.
    pub fn read_if_written(&self, bp: &BlkPtr, at: &Bookmark) -> Result<Vec<u8>> {
        match bp.decode().within(|| format!("pointer to block {at}"))? {
            BlockPointer::Data(data) if !data.is_gang() => {
                self.count_read(&data);
                self.read_plain(&data, at, Intent::PerhapsUnwritten)
            }
            _ => self.read_physical(bp, at),
        }
    }

    pub(super) fn read_data(&self, data: &DataPointer, at: &Bookmark, intent: Intent<'_>) -> Result<Vec<u8>> {
        self.count_read(data);
        if data.is_gang() { self.read_gang(data, at, intent) } else { self.read_plain(data, at, intent) }
    }

    fn count_read(&self, data: &DataPointer) {
        self.counters.reads.add(1);
        self.counters.read_bytes.add(data.physical_size);
    }

    /// The verified physical bytes of a block that is no gang block.
    pub(super) fn read_plain(&self, data: &DataPointer, at: &Bookmark, intent: Intent<'_>) -> Result<Vec<u8>> {
        let salt = self.salt();
        let verify = |bytes: &[u8]| checksum_stage::verify(data, bytes, &salt);
        self.read_verified(data, data.physical_size as usize, &verify, at, intent)
    }

    /// `size` bytes from the first place of `data` that has some for which `verify` holds. Heals the others, as far as that is intended.
    pub(super) fn read_verified(&self, data: &DataPointer, size: usize, verify: Verify<'_>, at: &Bookmark, intent: Intent<'_>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; size];
        let mut places: Vec<PlaceRead> = Vec::new();
        let mut worst: Option<Error> = None;
        let is_perhaps_unwritten = matches!(intent, Intent::PerhapsUnwritten);
        // A wrong checksum says more than a missing disk. That a block was never written it says only if all that may have it were read.
        let weight = |error: &Error| match error.kind() {
            ErrorKind::Io if is_perhaps_unwritten => 2,
            ErrorKind::Checksum => 1,
            _ => 0,
        };
        for dva in data.dvas() {
            let found = self.place(*dva, size, data, intent).and_then(|mut place| {
                let found = place.find_right(&mut bytes, &mut |bytes| verify(bytes));
                places.push(place);
                found
            });
            let error = match found {
                Ok(true) => {
                    let is_suspicious = places.len() > 1 || places.iter().any(PlaceRead::is_suspicious);
                    if is_suspicious || intent.reads_all() || intent.fills() {
                        self.look_at_all(&mut places, data, &bytes, verify, at, intent)?;
                    }
                    if let Intent::Scan(tally) = intent
                        && self.is_writable()
                    {
                        data.dvas().iter().for_each(|dva| self.refill_copies(*dva, &bytes, data.physical_birth, tally));
                    }
                    return Ok(bytes);
                }
                Ok(false) => match places.last().and_then(PlaceRead::unread).filter(|_| is_perhaps_unwritten) {
                    Some(unread) => unread.clone().within(format!("block {at} at {dva}")),
                    None => crate::error!(Checksum, "block {at}: no copy at {dva} has the right checksum"),
                },
                Err(error) => error.within(format!("block {at} at {dva}")),
            };
            if worst.as_ref().is_none_or(|worst| weight(worst) <= weight(&error)) {
                worst = Some(error);
            }
        }
        let mut lost = || {
            self.blame(&damaged(&places, None, verify, false));
            self.counters.lost_blocks.add(1);
            self.lost.note(at, data.physical_birth);
        };
        match intent {
            Intent::Needed => lost(),
            Intent::NeededWhile(while_there) => while_there(&mut lost),
            // The caller notes the block, of which this may be a piece.
            Intent::Scan(_) if !is_log_block(at) => self.blame(&damaged(&places, None, verify, false)),
            // A block that is lost is lost to all that ask for it: each finds out, and it counts once.
            Intent::Ahead(_) | Intent::Inspect(_) | Intent::Scan(_) | Intent::PerhapsUnwritten => {}
        }
        Err(worst.unwrap_or_else(|| crate::error!(Corrupt, "block {at}: a pointer without addresses")))
    }

    fn place(&self, dva: Dva, size: usize, data: &DataPointer, intent: Intent<'_>) -> Result<PlaceRead> {
        PlaceRead::new(self.device(dva)?, intent.class(), dva, size, data.physical_birth)
    }

    /// Something may be wrong: reads every copy that there should be, and sees to those that are not right.
    fn look_at_all(&self, places: &mut Vec<PlaceRead>, data: &DataPointer, right: &[u8], verify: Verify<'_>, at: &Bookmark, intent: Intent<'_>) -> Result<()> {
        for dva in data.dvas() {
            if places.iter().all(|place| place.dva != *dva)
                && let Ok(place) = self.place(*dva, right.len(), data, intent)
            {
                places.push(place);
            }
        }
        let fills = intent.fills();
        let found = |places: &Vec<PlaceRead>| places.iter().any(|place| !place.damages(Some(right), &mut |bytes| verify(bytes), false).is_empty());
        if intent.reads_all() || found(places) {
            places.iter_mut().for_each(PlaceRead::look_at_others);
        }
        self.see_to(&damaged(places, Some(right), verify, fills), right, data.physical_birth, at, intent)
    }

    /// Some copies are wrong, and these are the right bytes.
    fn see_to(&self, damaged: &[Damaged<'_>], right: &[u8], birth: u64, at: &Bookmark, intent: Intent<'_>) -> Result<()> {
        match intent {
            Intent::Scan(tally) => {
                self.blame(damaged);
                self.heal(damaged, right, at, &|leaf, healed| tally.note_repair(leaf, birth, healed));
            }
            Intent::Needed => self.mend(damaged, right, at),
            Intent::NeededWhile(while_there) => while_there(&mut || self.mend(damaged, right, at)),
            Intent::Ahead(while_there) => {
                let mut is_there = false;
                while_there(&mut || {
                    is_there = true;
                    self.mend(damaged, right, at);
                });
                if !is_there {
                    bail!(Checksum, "block {at}: a copy of it is wrong, and it may have been freed");
                }
            }
            Intent::PerhapsUnwritten => self.heal(damaged, right, at, &|_, _| ()),
            Intent::Inspect(found) => found.lock().extend(damaged.iter().flat_map(|Damaged { place, sides }| {
                sides.iter().map(|side| WrongCopy {
                    place: format!("{}, address {}", place.device.leaf_name(side.leaf), place.dva),
                    reason: if side.was_read { "wrong checksum" } else { "cannot be read" },
                })
            })),
        }
        Ok(())
    }

    fn mend(&self, damaged: &[Damaged<'_>], right: &[u8], at: &Bookmark) {
        self.blame(damaged);
        self.heal(damaged, right, at, &|_, _| ());
    }

    /// Counts sides that gave what is wrong, and have not just missed it.
    fn blame(&self, damaged: &[Damaged<'_>]) {
        for Damaged { place, sides } in damaged {
            for side in sides.iter().filter(|side| side.was_read && !side.has_missed) {
                place.device.note_checksum_error(side.leaf);
                self.counters.checksum_errors.add(1);
                tracing::warn!(dva = %place.dva, leaf = place.device.leaf_name(side.leaf), "wrong checksum");
            }
        }
    }

    /// Writes what is right over what is wrong, where the pool may be written, and says of each how many bytes were written. A failure to do so is
    /// not the reader's.
    fn heal(&self, damaged: &[Damaged<'_>], right: &[u8], at: &Bookmark, note: &dyn Fn(LeafId, Option<u64>)) {
        if !self.is_writable() {
            return;
        }
        for Damaged { place, sides } in damaged {
            for side in sides {
                match place.repair(side, right) {
                    Ok(bytes) => {
                        self.counters.healed.add(1);
                        place.device.note_repair(side.leaf, bytes, place.is_scan());
                        note(side.leaf, Some(bytes));
                    }
                    Err(error) => {
                        tracing::warn!(%error, block = %at, "a damaged copy could not be repaired");
                        note(side.leaf, None);
                    }
                }
            }
        }
    }
}

/// The places where something is wrong; with `missed`, also where it was not written and can be.
fn damaged<'a>(places: &'a [PlaceRead], right: Option<&[u8]>, verify: Verify<'_>, missed: bool) -> Vec<Damaged<'a>> {
    let of = |place: &'a PlaceRead| Damaged { place, sides: place.damages(right, &mut |bytes| verify(bytes), missed) };
    places.iter().map(of).filter(|damaged| !damaged.sides.is_empty()).collect()
}
