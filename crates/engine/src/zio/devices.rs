//! What zio needs of the vdevs.
//!
//! # Theory
//! A top-level vdev presents one space of bytes, and says what an I/O of it is in I/Os of its leaves ([`IoMap`]), which
//! zio makes ([`super::leaf_io`]): only where the checksum is known can be told which answer is right.
//!
//! This is a trait so that the layer can be tested on plain memory.

use std::sync::Arc;

use ondisk::dva::Dva;
use ondisk::indirect::Mapping;

use crate::bail;
use crate::error::{Error, Result};
use crate::sync::Executor;
use crate::vdev::map::{Position, deflated_size};
use crate::vdev::{BIRTH_UNKNOWN, Class, FlushMark, IoMap, LeafId, LogMark, TopVdev, VdevKind, VdevTree, View};

/// Read to find out whether a device can be read: whole sectors of any size.
const PROBE_BYTES: usize = 8 << 10;

/// A top-level vdev.
pub trait BlockDevice: Send + Sync {
    /// What a read of `length` bytes at `offset`, of a block that was written in the group `birth`, is in I/Os of leaves. Where nothing else is said: of one leaf that
    /// has everything.
    fn io_map(&self, offset: u64, length: usize, birth: u64) -> Result<IoMap> {
        let _ = birth;
        Ok(IoMap::mirror([LeafId { vdev: 0, leaf: 0 }], offset, length))
    }
    /// The same of a write.
    fn write_map(&self, offset: u64, length: usize, birth: u64) -> Result<IoMap> {
        self.io_map(offset, length, birth)
    }
    /// What is known of a leaf, for a read of what was written in the group `birth`.
    fn view(&self, leaf: LeafId, birth: u64) -> View {
        let _ = (leaf, birth);
        View::IDLE
    }
    /// Can a leaf be read, and has it all that was written before the group `txg`?
    fn has_all_before(&self, leaf: LeafId, txg: u64) -> bool {
        let _ = txg;
        let view = self.view(leaf, BIRTH_UNKNOWN);
        view.readable && !view.missed && !view.behind
    }
    /// The leaf, for messages.
    fn leaf_name(&self, leaf: LeafId) -> String {
        format!("side {}", leaf.leaf)
    }
    /// Fills `buf` from `offset` of a leaf.
    fn read_leaf(&self, leaf: LeafId, class: Class, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// Writes the buffers one behind the other to a leaf.
    fn write_leaf(&self, leaf: LeafId, class: Class, offset: u64, buffers: &[&[u8]]) -> Result<()>;
    /// As [`BlockDevice::write_leaf`], and makes just that durable.
    fn write_leaf_durable(&self, leaf: LeafId, offset: u64, buffers: &[&[u8]]) -> Result<()> {
        self.write_leaf(leaf, Class::SyncWrite, offset, buffers)
    }
    /// Counts a checksum error against a leaf.
    fn note_checksum_error(&self, leaf: LeafId) {
        let _ = leaf;
    }
    /// Can be read again what was written to these sides? Then the leaves that failed have missed it.
    fn settle_write(&self, map: &IoMap, done: &[(Position, Result<()>)]) -> bool {
        map.is_written(|at| done.iter().any(|(other, done)| *other == at && done.is_ok()))
    }
    /// Counts bytes that were written over what was wrong or missing on a leaf, by a scan or not.
    fn note_repair(&self, leaf: LeafId, bytes: u64, by_scan: bool) {
        let _ = (leaf, bytes, by_scan);
    }
    /// How the leaves are before something is written that is to be durable.
    fn flush_mark(&self) -> FlushMark {
        FlushMark::default()
    }
    /// Is what these leaves did since `mark`, one after the other, enough to make it durable?
    fn is_durable(&self, mark: &FlushMark, done: Vec<(LeafId, Result<()>)>) -> Result<()> {
        let _ = mark;
        done.into_iter().try_for_each(|(_, done)| done)
    }
    /// No leaf took a write: waits until it is worth trying again. `false`: it is not.
    fn wait_after(&self, error: &Error) -> bool {
        let _ = error;
        false
    }
    /// Is it worth while to prepare places for durable writes?
    fn gains_by_preparing(&self) -> bool {
        false
    }
    /// Prepares a range of a leaf, of which nothing is needed, for durable writes.
    fn prepare_leaf(&self, leaf: LeafId, offset: u64, length: u64) -> Result<()> {
        let _ = (leaf, offset, length);
        Ok(())
    }
    /// A read has ended.
    fn after_read(&self) {}
    /// The threads for several reads at a time, if one of the devices is slow enough for that.
    fn beside_reads(&self) -> Option<Arc<Executor>> {
        None
    }
    /// The threads for several writes at a time, if one of the devices is slow enough for that.
    fn beside_writes(&self) -> Option<Arc<Executor>> {
        None
    }
    /// log2 of the smallest unit that is allocated.
    fn ashift(&self) -> u32;
    /// Bytes that `physical` bytes took here when it was made. The smallest blocks take as many ever after.
    fn allocated_size(&self, physical: u64) -> u64 {
        physical.next_multiple_of(1 << self.ashift())
    }
    /// What `allocated` bytes count in quotas and statistics.
    fn deflated_size(&self, allocated: u64) -> u64 {
        deflated_size(allocated, |physical| self.allocated_size(physical))
    }
    /// Bytes of space. A DVA that ends beyond them is corrupt.
    fn size_bytes(&self) -> u64;
}

/// The vdev tree of a pool.
pub trait BlockDevices: Send + Sync {
    /// Where devices are slow, these threads make several I/Os at a time.
    fn set_crew(&self, _crew: &Arc<Executor>) {}
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
    /// Of an address on a vdev that is being removed: what of it has been copied, and to where.
    fn copies_of(&self, _dva: Dva) -> Vec<Mapping> {
        Vec::new()
    }
    /// As [`BlockDevices::resolve`], of an address that is being freed: what it needed of the maps of removed vdevs is not
    /// needed any more. Of a vdev that is being removed, copies come free too.
    fn resolve_to_free(&self, dva: Dva) -> Result<Vec<Dva>> {
        self.resolve(dva)
    }
    /// Nothing is found any more by this address on a removed vdev.
    fn note_obsolete(&self, _dva: Dva) {}
}

impl BlockDevice for TopVdev {
    fn io_map(&self, offset: u64, length: usize, birth: u64) -> Result<IoMap> {
        self.io_map(offset, length, birth)
    }

    fn write_map(&self, offset: u64, length: usize, birth: u64) -> Result<IoMap> {
        self.write_map(offset, length, birth)
    }

    fn view(&self, leaf: LeafId, birth: u64) -> View {
        self.view(leaf, birth)
    }

    fn has_all_before(&self, leaf: LeafId, txg: u64) -> bool {
        self.leaf(leaf).is_ok_and(|leaf| leaf.has_all_before(txg))
    }

    fn leaf_name(&self, leaf: LeafId) -> String {
        self.leaf(leaf).map_or_else(|_| format!("leaf {}", leaf.leaf), |leaf| leaf.name().to_owned())
    }

    fn read_leaf(&self, leaf: LeafId, class: Class, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.leaf(leaf)?.read(class, offset, buf)
    }

    fn write_leaf(&self, leaf: LeafId, class: Class, offset: u64, buffers: &[&[u8]]) -> Result<()> {
        self.check_not_ended()?;
        self.open_leaf(leaf)?.write(class, offset, buffers)
    }

    fn write_leaf_durable(&self, leaf: LeafId, offset: u64, buffers: &[&[u8]]) -> Result<()> {
        self.check_not_ended()?;
        self.open_leaf(leaf)?.write_durable(offset, buffers)
    }

    fn after_read(&self) {
        self.after_read();
    }

    fn note_checksum_error(&self, leaf: LeafId) {
        if let Ok(leaf) = self.leaf(leaf) {
            leaf.note_checksum_error();
        }
    }

    fn settle_write(&self, map: &IoMap, done: &[(Position, Result<()>)]) -> bool {
        self.settle_write(map, done)
    }

    fn note_repair(&self, leaf: LeafId, bytes: u64, by_scan: bool) {
        if let Ok(leaf) = self.leaf(leaf) {
            leaf.note_repair(bytes, by_scan);
        }
    }

    fn flush_mark(&self) -> FlushMark {
        self.flush_mark()
    }

    fn is_durable(&self, mark: &FlushMark, done: Vec<(LeafId, Result<()>)>) -> Result<()> {
        // A leaf that got nothing has lost nothing.
        self.is_enough(mark, done.into_iter().map(|(leaf, done)| (leaf.leaf, done)).collect(), "written")
    }

    fn wait_after(&self, error: &Error) -> bool {
        self.wait_after(error)
    }

    fn gains_by_preparing(&self) -> bool {
        self.gains_by_preparing()
    }

    fn prepare_leaf(&self, leaf: LeafId, offset: u64, length: u64) -> Result<()> {
        let leaf = self.leaf(leaf)?;
        if leaf.is_open() { leaf.prepare(offset, length) } else { Ok(()) }
    }

    fn beside_reads(&self) -> Option<Arc<Executor>> {
        self.beside_reads()
    }

    fn beside_writes(&self) -> Option<Arc<Executor>> {
        self.beside_writes()
    }

    fn ashift(&self) -> u32 {
        self.ashift()
    }

    fn allocated_size(&self, physical: u64) -> u64 {
        self.layout().allocated_size(physical, 0)
    }

    fn size_bytes(&self) -> u64 {
        self.asize()
    }
}

/// A removed vdev, read through its map: its leaves are those of other vdevs.
struct Removed {
    tree: Arc<VdevTree>,
    top: Arc<TopVdev>,
}

impl Removed {
    fn owner(&self, leaf: LeafId) -> Result<Arc<TopVdev>> {
        let Some(top) = self.tree.top(leaf.vdev.into()) else { bail!(Corrupt, "there is no vdev {}", leaf.vdev) };
        Ok(top)
    }
}

impl BlockDevice for Removed {
    fn io_map(&self, offset: u64, length: usize, birth: u64) -> Result<IoMap> {
        self.tree.map_removed(&self.top, offset, length, birth)
    }

    fn view(&self, leaf: LeafId, birth: u64) -> View {
        let view = self.owner(leaf).map_or(View { readable: false, ..View::IDLE }, |top| top.view(leaf, birth));
        // What was moved there was written later than it was born.
        View { missed: view.missed || view.behind, ..view }
    }

    fn leaf_name(&self, leaf: LeafId) -> String {
        self.owner(leaf).map_or_else(|error| error.to_string(), |top| BlockDevice::leaf_name(&*top, leaf))
    }

    fn read_leaf(&self, leaf: LeafId, class: Class, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.owner(leaf)?.read_leaf(leaf, class, offset, buf)
    }

    /// Only what is right may be written over what is wrong.
    fn write_leaf(&self, leaf: LeafId, class: Class, offset: u64, buffers: &[&[u8]]) -> Result<()> {
        self.owner(leaf)?.write_leaf(leaf, class, offset, buffers)
    }

    fn note_checksum_error(&self, leaf: LeafId) {
        if let Ok(top) = self.owner(leaf) {
            BlockDevice::note_checksum_error(&*top, leaf);
        }
    }

    fn note_repair(&self, leaf: LeafId, bytes: u64, by_scan: bool) {
        if let Ok(top) = self.owner(leaf) {
            BlockDevice::note_repair(&*top, leaf, bytes, by_scan);
        }
    }

    fn ashift(&self) -> u32 {
        self.top.ashift()
    }

    fn allocated_size(&self, physical: u64) -> u64 {
        self.top.layout().allocated_size(physical, 0)
    }

    fn size_bytes(&self) -> u64 {
        self.top.asize()
    }
}

/// The tree, shared.
pub struct SharedVdevs(pub Arc<VdevTree>);

impl BlockDevices for SharedVdevs {
    fn set_crew(&self, crew: &Arc<Executor>) {
        self.0.set_crew(crew);
    }

    fn device(&self, vdev: u32) -> Option<Arc<dyn BlockDevice>> {
        let top = self.0.top(vdev.into())?;
        if top.kind() == VdevKind::Indirect {
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
        self.0.leaves().iter().any(|leaf| leaf.has_write_cache())
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

    fn copies_of(&self, dva: Dva) -> Vec<Mapping> {
        let top = self.0.top(dva.vdev.into()).filter(|top| top.kind() != VdevKind::Indirect);
        top.and_then(|top| top.map()).map_or_else(Vec::new, |map| map.copies_of(dva.offset, dva.allocated))
    }

    fn resolve_to_free(&self, dva: Dva) -> Result<Vec<Dva>> {
        self.0.resolve_to_free(dva)
    }

    fn note_obsolete(&self, dva: Dva) {
        self.0.note_obsolete(dva);
    }
}
