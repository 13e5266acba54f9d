//! What zio needs of the vdevs.
//!
//! # Theory
//! A top-level vdev presents one space of bytes, and one or more ways to read the same bytes: the sides of a mirror, or
//! the combinations of columns from which a RAIDZ row can be computed. Only the one who knows the checksum can tell which of
//! them is right, so they are numbered and zio asks for them one by one when the ordinary read gave the wrong bytes.
//!
//! This is a trait so that the layer can be tested on plain memory.

use std::sync::Arc;

use ondisk::dva::Dva;

use crate::bail;
use crate::error::{Error, Result};
use crate::host::HostRef;
use crate::vdev::{LogMark, RemovedVdev, TopVdev, VdevKind, VdevTree};

/// Read to find out whether a device can be read: whole sectors of any size.
const PROBE_BYTES: usize = 8 << 10;

/// A top-level vdev.
pub trait BlockDevice: Send + Sync {
    /// Fills `buf` from `offset`, where something was written in the group `birth`, in the way that is best just now, and says which it was.
    /// Mirrors and RAIDZ get around disks that fail, or missed that.
    fn read(&self, offset: u64, buf: &mut [u8], birth: u64) -> Result<usize>;
    /// How many ways there are to read `length` bytes at `offset`.
    fn copies(&self, offset: u64, length: usize) -> usize;
    /// Should there be what was written in the group `birth`, in this way? Not on a device that is not there, or has missed it.
    fn has_copy(&self, copy: usize, birth: u64) -> bool {
        let _ = (copy, birth);
        true
    }
    /// The device of this way, for messages.
    fn copy_name(&self, copy: usize) -> String {
        format!("copy {copy}")
    }
    /// Fills `buf` from `offset` in the given way.
    fn read_copy(&self, copy: usize, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// Writes all of the buffers, one behind the other, to every side.
    fn write(&self, offset: u64, buffers: &[&[u8]]) -> Result<()>;
    /// As [`BlockDevice::write`], but a failure is an answer: nobody waits until the pool is repaired.
    fn try_write(&self, offset: u64, buffers: &[&[u8]]) -> Result<()> {
        self.write(offset, buffers)
    }
    /// As `write`, and makes just that durable.
    fn write_durable(&self, offset: u64, buffers: &[&[u8]]) -> Result<()> {
        self.write(offset, buffers)
    }
    /// Is it worth while to prepare places for durable writes?
    fn gains_by_preparing(&self) -> bool {
        false
    }
    /// Prepares a range, of which nothing is needed, for durable writes.
    fn prepare(&self, offset: u64, length: u64) -> Result<()> {
        let _ = (offset, length);
        Ok(())
    }
    /// Writes what is right over what `read_copy` in the given way has read.
    fn repair_copy(&self, copy: usize, offset: u64, data: &[u8]) -> Result<()>;
    /// Counts a checksum error against the disks of the given way.
    fn note_checksum_error(&self, copy: usize);
    /// Who starts threads for several writes at a time, if one of the devices is slow enough for that.
    fn beside_writes(&self) -> Option<&HostRef> {
        None
    }
    /// log2 of the smallest unit that is allocated.
    fn ashift(&self) -> u32;
    /// Bytes that `physical` bytes take here.
    fn allocated_size(&self, physical: u64) -> u64;
    /// Bytes of space. A DVA that ends beyond them is corrupt.
    fn size_bytes(&self) -> u64;
}

/// The vdev tree of a pool.
pub trait BlockDevices: Send + Sync {
    /// The top-level vdev with the given id.
    fn device(&self, vdev: u32) -> Option<Arc<dyn BlockDevice>>;
    /// Makes durable what was written before.
    fn flush(&self) -> Result<()>;
    /// Do the devices that are there let anything be read at all?
    fn answer(&self) -> bool {
        true
    }
    /// Is every device there, and has it all that was written? What cannot be read then is lost.
    fn is_whole(&self) -> bool {
        true
    }
    /// Writes take so long that it is worth while to have several under way.
    fn is_slow(&self) -> bool {
        false
    }
    /// Is what a device has written perhaps not durable before a flush?
    fn has_write_cache(&self) -> bool {
        true
    }
    /// Why new writes are refused just now, if they are.
    fn refusal(&self) -> Option<Error> {
        None
    }
    /// Why the pool waits for somebody to repair it, if it does.
    fn suspension(&self) -> Option<Error> {
        None
    }
    /// As `flush`, where devices for the intent log alone may not fail.
    fn flush_with_logs(&self) -> Result<()> {
        self.flush()
    }
    /// For who is about to write what [`BlockDevices::flush_with_logs`] is to make durable.
    fn log_mark(&self) -> LogMark {
        LogMark::default()
    }
    /// The places where the bytes of an address are: others, if its vdev was removed.
    fn resolve(&self, dva: Dva) -> Result<Vec<Dva>> {
        Ok(vec![dva])
    }
    /// Was something moved from a removed vdev to where an address begins?
    fn was_moved_to(&self, _dva: Dva) -> bool {
        false
    }
    /// As [`BlockDevices::resolve`], of an address that is being freed: what it needed of the maps of removed vdevs is not
    /// needed any more.
    fn resolve_to_free(&self, dva: Dva) -> Result<Vec<Dva>> {
        self.resolve(dva)
    }
}

impl BlockDevice for TopVdev {
    fn read(&self, offset: u64, buf: &mut [u8], birth: u64) -> Result<usize> {
        self.read(offset, buf, birth)
    }

    fn copies(&self, _offset: u64, _length: usize) -> usize {
        self.copies()
    }

    fn has_copy(&self, copy: usize, birth: u64) -> bool {
        self.leaves().get(copy).is_some_and(|leaf| leaf.is_open() && !leaf.has_missed(birth))
    }

    fn copy_name(&self, copy: usize) -> String {
        self.leaves().get(copy).map_or_else(|| format!("side {copy}"), |leaf| leaf.name().to_owned())
    }

    fn read_copy(&self, copy: usize, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_copy(copy, offset, buf)
    }

    fn write(&self, offset: u64, buffers: &[&[u8]]) -> Result<()> {
        loop {
            match self.write_vectored(offset, buffers) {
                Err(error) if self.wait_after(&error) => {}
                done => return done,
            }
        }
    }

    fn try_write(&self, offset: u64, buffers: &[&[u8]]) -> Result<()> {
        self.write_vectored(offset, buffers)
    }

    fn write_durable(&self, offset: u64, buffers: &[&[u8]]) -> Result<()> {
        self.write_durable(offset, buffers)
    }

    fn gains_by_preparing(&self) -> bool {
        self.gains_by_preparing()
    }

    fn prepare(&self, offset: u64, length: u64) -> Result<()> {
        self.prepare(offset, length)
    }

    fn repair_copy(&self, copy: usize, offset: u64, data: &[u8]) -> Result<()> {
        self.repair_copy(copy, offset, data)
    }

    fn note_checksum_error(&self, copy: usize) {
        self.note_checksum_error(copy);
    }

    fn beside_writes(&self) -> Option<&HostRef> {
        self.beside_writes()
    }

    fn ashift(&self) -> u32 {
        self.ashift()
    }

    fn allocated_size(&self, physical: u64) -> u64 {
        self.allocated_size(physical)
    }

    fn size_bytes(&self) -> u64 {
        self.asize()
    }
}

/// A removed vdev, read through its map.
struct Removed {
    tree: Arc<VdevTree>,
    top: Arc<TopVdev>,
}

impl Removed {
    fn vdev(&self) -> RemovedVdev<'_> {
        self.tree.removed(&self.top)
    }
}

impl BlockDevice for Removed {
    fn read(&self, offset: u64, buf: &mut [u8], birth: u64) -> Result<usize> {
        self.vdev().read(offset, buf, birth)
    }

    fn copies(&self, offset: u64, length: usize) -> usize {
        self.vdev().ways(offset, length)
    }

    fn read_copy(&self, copy: usize, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.vdev().read_way(copy, offset, buf)
    }

    fn write(&self, offset: u64, _buffers: &[&[u8]]) -> Result<()> {
        bail!(Io, "vdev {} was removed: nothing can be written at {offset:#x}", self.top.id())
    }

    fn repair_copy(&self, copy: usize, offset: u64, data: &[u8]) -> Result<()> {
        self.vdev().repair_way(copy, offset, data)
    }

    /// Which of the parts was wrong is not known.
    fn note_checksum_error(&self, _copy: usize) {}

    fn ashift(&self) -> u32 {
        self.top.ashift()
    }

    fn allocated_size(&self, physical: u64) -> u64 {
        self.top.allocated_size(physical)
    }

    fn size_bytes(&self) -> u64 {
        self.top.asize()
    }
}

/// The tree, shared.
pub struct SharedVdevs(pub Arc<VdevTree>);

impl BlockDevices for SharedVdevs {
    fn device(&self, vdev: u32) -> Option<Arc<dyn BlockDevice>> {
        let top = self.0.top(vdev.into())?;
        if *top.kind() == VdevKind::Indirect {
            return Some(Arc::new(Removed { tree: self.0.clone(), top }));
        }
        Some(top)
    }

    fn flush(&self) -> Result<()> {
        loop {
            match self.0.flush_all() {
                // To flush again would say nothing of what the first one has lost.
                Err(error) if self.0.has_lost_writes() => {
                    self.0.gate().end_after(&error);
                    return Err(error);
                }
                Err(error) if self.0.gate().wait_after(&error) => {}
                done => return done,
            }
        }
    }

    fn answer(&self) -> bool {
        self.0.leaves().iter().filter_map(|leaf| leaf.disk()).all(|disk| disk.read_at(&mut [0; PROBE_BYTES], 0).is_ok())
    }

    fn is_whole(&self) -> bool {
        self.0.leaves().iter().all(|leaf| leaf.is_open() && !leaf.is_behind())
    }

    fn is_slow(&self) -> bool {
        self.0.data_tops().iter().any(|top| top.beside_writes().is_some())
    }

    fn has_write_cache(&self) -> bool {
        self.0.data_tops().iter().flat_map(|top| top.leaves()).any(|leaf| leaf.has_write_cache())
    }

    fn refusal(&self) -> Option<Error> {
        self.0.gate().refusal()
    }

    fn suspension(&self) -> Option<Error> {
        self.0.gate().failure()
    }

    fn flush_with_logs(&self) -> Result<()> {
        self.0.flush_with_logs()
    }

    fn log_mark(&self) -> LogMark {
        self.0.log_mark()
    }

    fn resolve(&self, dva: Dva) -> Result<Vec<Dva>> {
        self.0.resolve(dva, &mut |_, _| ())
    }

    fn was_moved_to(&self, dva: Dva) -> bool {
        self.0.was_moved_to(dva)
    }

    fn resolve_to_free(&self, dva: Dva) -> Result<Vec<Dva>> {
        self.0.resolve(dva, &mut |top, range| top.note_obsolete(range.offset, range.allocated))
    }
}
