//! The first sectors, which are moved through the scratch area.
//!
//! # Theory
//! See [`super`]. The order is what counts: scratch area, flush, uberblock, flush; places, flush, uberblock, flush.

use std::sync::Arc;

use ondisk::uberblock::{RaidzReflow, ScratchState};

use super::copy::Children;
use crate::bail;
use crate::error::{Result, Within};
use crate::pool::devices::dirty_time_log::moved::{has_missed_all, make_durable};
use crate::pool::sync::writer::GroupWriter;
use crate::vdev::label::write_uberblock_everywhere;
use crate::vdev::map::{Reflow, SCRATCH_BYTES};
use crate::vdev::{Class, Moves, TopVdev};

/// The bytes of each child that go through the scratch area.
fn bytes_of_child(ashift: u32) -> u64 {
    SCRATCH_BYTES >> ashift << ashift
}

/// Is the scratch area large enough for so many children?
#[doc(alias = "vdev_raidz_attach_check")]
pub(super) fn is_enough_for(children: u64, ashift: u32) -> bool {
    children << ashift <= SCRATCH_BYTES
}

/// Moves the first sectors, in the sync thread. `false`: not now. The whole of it is done, or the pool stops: between the uberblocks nobody else may write.
///
/// # Errors
/// What stops the pool.
#[doc(alias = "raidz_reflow_scratch_sync")]
pub(super) fn move_first(writer: &GroupWriter, top: &Arc<TopVdev>, moves: &Moves, children: &Children) -> Result<bool> {
    let own = bytes_of_child(top.ashift());
    let bytes = own * children.leaves.len() as u64;
    // With the old places of all of it.
    let Some(moving) = moves.begin(0..2 * bytes) else { return Ok(false) };
    let Ok(sectors) = children.read(0..bytes >> top.ashift(), children.leaves.len() as u64 - 1) else { return Ok(false) };
    for (child, offset, parts) in children.parts(0, &sectors) {
        if children.leaves[child].write(Class::AsyncWrite, offset.wrapping_sub(SCRATCH_BYTES), &parts).is_err() {
            return Ok(false);
        }
    }
    // What is said to be valid there is so on each.
    if children.leaves.iter().any(|leaf| leaf.flush().is_err()) {
        return Ok(false);
    }
    say(writer, ScratchState::Valid, bytes)?;
    put_into_place(writer, top, children, &sectors)?;
    say(writer, ScratchState::Synced, bytes)?;
    moving.set(Some(Reflow { synced: bytes, moved: bytes, in_scratch: false }));
    writer.expansion().set_reflow(ScratchState::SyncedReflow, bytes);
    writer.expansion().change_progress(|progress| progress.moved += bytes);
    Ok(true)
}

/// Writes the places of sectors that are in the scratch area, when a pool is opened.
///
/// # Errors
/// Too many devices are not there, or fail.
#[doc(alias = "vdev_raidz_reflow_copy_scratch")]
pub(super) fn restore(writer: &GroupWriter, top: &Arc<TopVdev>) -> Result<()> {
    let bytes = writer.uberblock().raidz_reflow.offset();
    let children = Children::all(top)?;
    let count = children.leaves.len() as u64;
    if bytes == 0 || !bytes.is_multiple_of(count << top.ashift()) || bytes / count > SCRATCH_BYTES {
        bail!(Corrupt, "vdev {}: {bytes} bytes in the scratch area of {count} devices", top.id());
    }
    let mut failed = 0;
    for leaf in &children.leaves {
        let mut own = vec![0; (bytes / count) as usize];
        let offset = 0_u64.wrapping_sub(SCRATCH_BYTES);
        let done = leaf.read(Class::Scrub, offset, &mut own).and_then(|()| leaf.write(Class::AsyncWrite, 0, &[&own]));
        if done.is_err() {
            failed += 1;
            has_missed_all(writer, leaf);
        }
    }
    check_failures(top, failed)?;
    make_durable(writer, top, &children.leaves)?;
    // First of all: what went to the scratch area afterwards would be lost.
    let Some(moving) = top.moves().and_then(|moves| moves.begin(0..u64::MAX)) else {
        bail!(Busy, "vdev {}: its first sectors are in use all the time, and stay in the scratch area; import the pool again", top.id());
    };
    say(writer, ScratchState::SyncedOnImport, bytes)?;
    moving.set(Some(Reflow { synced: bytes, moved: bytes, in_scratch: false }));
    writer.expansion().set_reflow(ScratchState::SyncedReflow, bytes);
    Ok(())
}

fn put_into_place(writer: &GroupWriter, top: &TopVdev, children: &Children, sectors: &[u8]) -> Result<()> {
    let mut failed = 0;
    for (child, offset, parts) in children.parts(0, sectors) {
        if children.leaves[child].write(Class::AsyncWrite, offset, &parts).is_err() {
            failed += 1;
            has_missed_all(writer, &children.leaves[child]);
        }
    }
    check_failures(top, failed)?;
    make_durable(writer, top, &children.leaves).within(|| "the places of sectors in the scratch area")
}

fn check_failures(top: &TopVdev, failed: usize) -> Result<()> {
    let parity = top.layout().columns().1;
    if failed > parity {
        bail!(Suspended, "vdev {}: {failed} devices failed while their first sectors were moved; they are in the scratch area", top.id());
    }
    Ok(())
}

/// The last uberblock says so, on every device.
fn say(writer: &GroupWriter, state: ScratchState, offset: u64) -> Result<()> {
    let mut uberblock = writer.uberblock();
    uberblock.raidz_reflow = RaidzReflow::new(state, offset);
    // Later than what a heartbeat may have written.
    uberblock.timestamp = uberblock.timestamp.max(writer.layers().context.host.wall_clock().0) + 1;
    let tops = writer.layers().vdevs.data_tops();
    // A heartbeat that comes while this is being written has to say the same: it would be newer. What it says is true already.
    writer.replace_uberblock(uberblock.clone());
    write_uberblock_everywhere(&uberblock, &tops, writer.has_heartbeat())
}

#[cfg(test)]
mod tests {
    use ondisk::uberblock::Uberblock;
    use parking_lot::Mutex;

    use super::*;
    use crate::error::ErrorKind;
    use crate::host::RealHost;
    use crate::pool::{NewPool, OpenOptions, Pool};
    use crate::tunables::{Parameter, Tunables};
    use crate::vdev::label::DeviceLabels;
    use crate::vdev::{NewLeaf, NewTop};

    /// A pool at rest whose first sectors are moved, and no more.
    fn resting(disks: &[disk::DiskRef; 4]) -> Arc<Pool> {
        let leaf = |disk: &disk::DiskRef| NewLeaf { disk: disk.clone(), path: format!("/{}", disk::Disk::name(&**disk)), whole_disk: false };
        let new = NewPool {
            name: "expanding".into(),
            vdevs: vec![NewTop { leaves: disks[..3].iter().map(leaf).collect(), parity: 1, ashift: Some(9), ..NewTop::default() }],
            features: ondisk::feature::Feature::for_new_pools().collect(),
            properties: Vec::new(),
            fill: Box::new(|_, _| Ok(())),
            command: "zpool create expanding".into(),
            configure: Box::new(|_| ()),
        };
        // No group ends by itself.
        let tunables = Tunables { txg_timeout_ns: 3_600_000_000_000, ..Tunables::default() };
        tunables.parameters.set(Parameter::ExpandBytesMax, "1").unwrap();
        let options = OpenOptions { host: RealHost::shared(), tunables, read_only: false, file_owner: None, new_name: None, forget_log: false };
        let pool = Pool::create(new, options).unwrap();
        let guid = pool.vdevs.tops()[0].guid();
        pool.expand_raidz(guid, leaf(&disks[3]), Some(9)).unwrap();
        (0..6).for_each(|_| pool.write_group().unwrap());
        assert_eq!(pool.uberblock().raidz_reflow.offset(), 4 * SCRATCH_BYTES);
        pool
    }

    /// The uberblock said that the sectors are in their places, and what was written to them went on to the scratch area.
    #[test]
    fn an_import_that_cannot_keep_users_away_leaves_the_scratch_area_valid() {
        let disks = [0, 1, 2, 3].map(|number| Arc::new(disk::MemDisk::new(format!("scratch-{number}"), 96 << 20)) as disk::DiskRef);
        let pool = resting(&disks);
        let (writer, top) = (pool.groups(), pool.vdevs.tops()[0].clone());
        say(writer, ScratchState::Valid, 4 * SCRATCH_BYTES).unwrap();
        let used = top.moves().unwrap().begin(0..1).unwrap();
        let error = restore(writer, &top).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        assert!(writer.uberblock().raidz_reflow.is_in_scratch());
        drop(used);
        restore(writer, &top).unwrap();
        assert!(!writer.uberblock().raidz_reflow.is_in_scratch());
        pool.abandon();
    }

    /// A disk that does something else at the next write.
    struct MeddlingDisk(disk::MemDisk, Mutex<Option<Box<dyn FnOnce() + Send>>>);

    impl disk::Disk for MeddlingDisk {
        fn read_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
            self.0.read_at(buf, offset)
        }
        fn write_at(&self, buf: &[u8], offset: u64) -> std::io::Result<()> {
            let meddle = self.1.lock().take();
            if let Some(meddle) = meddle {
                meddle();
            }
            self.0.write_at(buf, offset)
        }
        fn flush(&self) -> std::io::Result<()> {
            self.0.flush()
        }
        fn discard(&self, offset: u64, length: u64) -> std::io::Result<()> {
            self.0.discard(offset, length)
        }
        fn size_bytes(&self) -> u64 {
            self.0.size_bytes()
        }
        fn sector_bytes(&self) -> u64 {
            self.0.sector_bytes()
        }
        fn kind(&self) -> disk::DiskKind {
            self.0.kind()
        }
        fn name(&self) -> &str {
            self.0.name()
        }
    }

    /// Heartbeats went on with the last uberblock until the next was on every device. One of these was found after a crash, as it was newer, and said that the first sectors
    /// are where they were, which were being written over.
    #[test]
    #[allow(clippy::disallowed_methods)] // a heartbeat has the time of its clock
    fn a_heartbeat_says_what_is_being_written_of_the_scratch_area() {
        let meddling = [0, 1, 2, 3].map(|number| Arc::new(MeddlingDisk(disk::MemDisk::new(format!("beaten-{number}"), 96 << 20), Mutex::default())));
        let disks = meddling.each_ref().map(|disk| disk.clone() as disk::DiskRef);
        let pool = resting(&disks);
        let writer = pool.groups().clone();
        let beating = writer.clone();
        *meddling[0].1.lock() = Some(Box::new(move || {
            std::thread::sleep(std::time::Duration::from_secs(3));
            beating.beat(0);
        }));
        say(&writer, ScratchState::Valid, 4 * SCRATCH_BYTES).unwrap();
        assert!(meddling[0].1.lock().is_none(), "there was no heartbeat");
        let found = disks.iter().flat_map(|disk| DeviceLabels::read(&**disk).uberblocks(9));
        let newest = found.map(|found| found.uberblock).max_by(Uberblock::compare_age).unwrap();
        assert!(newest.multihost.is_some_and(|multihost| multihost.delay_ns != 0), "the heartbeat is not the newest: {newest:?}");
        assert!(newest.raidz_reflow.is_in_scratch(), "{:?}", newest.raidz_reflow);
        pool.abandon();
    }
}
