//! Copying a range of a vdev to another, whatever is in it.
//!
//! # Theory
//! A range may hold parts of many blocks, and nobody knows which: so no checksum can tell which side of a mirror is right. Each side of the new place is filled from
//! another side of the old one, as far as there are several. So what one side alone has right is on one side afterwards, too, and a reader finds it.
//!
//! For the same reason nothing is taken from a side that has missed a part of what was ever written there: where there is no other, nothing is copied until a resilver has
//! filled one. A side that has only missed groups in which nothing was written to the vdev any more has everything.
//!
//! No pointer leads to a copy as long as the vdev is there. A device that misses copies gets them all the same in a resilver, with the blocks that are in the old place.
//!
//! # Path
//! Called by the removal of vdevs.

use std::sync::Arc;

use ondisk::dva::Dva;
use ondisk::indirect::Mapping;

use super::worst;
use crate::bail;
use crate::error::Result;
use crate::vdev::map::Side;
use crate::vdev::{BIRTH_UNKNOWN, Class};
use crate::zio::block_io::BlockIo;
use crate::zio::devices::BlockDevice;
use crate::zio::read::ScanTally;

/// So much is held in memory at a time, of each side.
const CHUNK_BYTES: u64 = 1 << 20;

/// The sides of the old place that have everything: what cannot be read of one, another has.
struct Source<'a> {
    device: &'a Arc<dyn BlockDevice>,
    sides: Vec<Side>,
    length: usize,
    /// What was read of each; `None`: it was not read yet.
    read: Vec<Option<Result<Arc<Vec<u8>>>>>,
}

impl<'a> Source<'a> {
    /// `since`: the first group in which nothing was written to the device any more.
    fn new(device: &'a Arc<dyn BlockDevice>, offset: u64, length: usize, since: u64) -> Result<Self> {
        let map = device.io_map(offset, length, BIRTH_UNKNOWN)?;
        if !map.is_plain() {
            bail!(Unsupported, "the sides of a vdev with parity are not the same");
        }
        let sides: Vec<Side> = map.sides().map(|(.., side)| side).filter(|side| device.has_all_before(side.leaf, since)).collect();
        if sides.is_empty() {
            bail!(NoDevice, "no side of the vdev that can be read has everything");
        }
        let read = vec![None; sides.len()];
        Ok(Source { device, sides, length, read })
    }

    fn read_side(&mut self, at: usize) -> Result<Arc<Vec<u8>>> {
        let (device, side, length) = (self.device, self.sides[at], self.length);
        let read = || {
            let mut bytes = vec![0; length];
            device.read_leaf(side.leaf, Class::Scrub, side.offset, &mut bytes).map(|()| Arc::new(bytes))
        };
        self.read[at].get_or_insert_with(read).clone()
    }

    /// What the side of this number of the new place gets.
    fn bytes_for(&mut self, number: usize) -> Result<Arc<Vec<u8>>> {
        let count = self.sides.len();
        let mut failure = None;
        for step in 0..count {
            match self.read_side((number + step) % count) {
                Ok(bytes) => return Ok(bytes),
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(failure) => Err(failure),
            None => bail!(NoDevice, "no side of the vdev can be read"),
        }
    }
}

impl BlockIo {
    /// Copies what lies at `from`, on a vdev to which nothing was written in the group `since` or later, to `to`, which is as long and was allocated in the group `txg`.
    ///
    /// # Errors
    /// `NoDevice`: no side that can be read has everything now. A part of it cannot be read from any such side, or cannot be written so that it can be read again.
    #[doc(alias = "spa_vdev_copy_one_child")]
    pub fn copy(&self, from: Dva, to: Dva, since: u64, txg: u64) -> Result<()> {
        let (old, new) = (self.device(from)?, self.device(to)?);
        let mut done = 0;
        while done < to.allocated {
            let length = (to.allocated - done).min(CHUNK_BYTES) as usize;
            let source = Source::new(&old, from.offset + done, length, since)?;
            copy_chunk(source, &new, to.offset + done, txg)?;
            done += length as u64;
        }
        Ok(())
    }
}

impl BlockIo {
    /// Has a device that can be written missed a copy of a part of what is at this address?
    pub(in crate::zio) fn has_stale_copies(&self, dva: Dva) -> bool {
        self.devices().copies_of(dva).iter().any(|copy| self.stale_sides(copy).is_ok_and(|(_, stale)| !stale.is_empty()))
    }

    fn stale_sides(&self, copy: &Mapping) -> Result<(Arc<dyn BlockDevice>, Vec<Side>)> {
        let device = self.device(copy.target)?;
        let map = device.io_map(copy.target.offset, copy.target.allocated as usize, BIRTH_UNKNOWN)?;
        let is_stale = |side: &Side| {
            let view = device.view(side.leaf, BIRTH_UNKNOWN);
            view.readable && (view.missed || view.behind)
        };
        let stale = map.sides().map(|(.., side)| side).filter(is_stale).collect();
        Ok((device, stale))
    }

    /// Writes what is right at this address, in the sync thread, to devices that have missed copies of it.
    pub(in crate::zio) fn refill_copies(&self, dva: Dva, right: &[u8], birth: u64, tally: &ScanTally) {
        for copy in self.devices().copies_of(dva) {
            let start = (copy.source - dva.offset) as usize;
            let part = right.get(start..right.len().min(start + copy.target.allocated as usize)).unwrap_or_default();
            let Ok((device, stale)) = self.stale_sides(&copy) else { continue };
            for side in stale.iter().filter(|_| !part.is_empty()) {
                let done = device.write_leaf(side.leaf, Class::AsyncWrite, side.offset, &[part]);
                tally.note_repair(side.leaf, birth, done.is_ok().then_some(part.len() as u64));
            }
        }
    }
}

fn copy_chunk(mut source: Source<'_>, new: &Arc<dyn BlockDevice>, offset: u64, txg: u64) -> Result<()> {
    let map = new.write_map(offset, source.length, txg)?;
    if !map.is_plain() {
        bail!(Unsupported, "nothing can be copied to a vdev with parity");
    }
    let mut done = Vec::new();
    for (number, (at, _, side)) in map.sides().enumerate() {
        let bytes = source.bytes_for(number)?;
        done.push((at, new.write_leaf(side.leaf, Class::AsyncWrite, side.offset, &[&bytes])));
    }
    if new.settle_write(&map, &done) { Ok(()) } else { Err(worst(done)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::host::RealHost;
    use crate::vdev::{NewLeaf, NewTop, VdevTree};
    use disk::MemDisk;
    use std::collections::BTreeSet;

    /// Where no side had everything, what a side had that was away for days was taken for what is there.
    #[test]
    fn nothing_is_copied_from_a_side_that_lacks_something() {
        let disk = |name: &str| NewLeaf { disk: Arc::new(MemDisk::new(name, 64 << 20)), path: name.to_owned(), whole_disk: false };
        let new = NewTop { leaves: vec![disk("away"), disk("there")], ..NewTop::default() };
        let tree = VdevTree::create(&RealHost, vec![new], 4).unwrap();
        let top = tree.top(0).unwrap();
        let (leaves, device) = (top.leaves(), top.clone() as Arc<dyn BlockDevice>);
        let sides = || Source::new(&device, 0, 512, 50).map(|source| source.sides.iter().map(|side| side.leaf.leaf).collect::<Vec<u32>>());
        assert_eq!(sides().unwrap(), [0, 1]);
        leaves[0].note_missed(10, 40);
        assert_eq!(sides().unwrap(), [1]);
        leaves[1].note_missed(50, 54);
        assert_eq!(sides().unwrap(), [1], "nothing was written in these groups");
        leaves[1].note_missed(48, 50);
        assert_eq!(sides().err().map(|error| error.kind()), Some(ErrorKind::NoDevice), "it has missed something, too");
        leaves[1].caught_up(60, &BTreeSet::new());
        assert_eq!(sides().unwrap(), [1]);
        leaves[0].caught_up(60, &BTreeSet::new());
        leaves[0].set_behind(true);
        assert_eq!(sides().unwrap(), [1], "it may have missed anything");
    }
}
