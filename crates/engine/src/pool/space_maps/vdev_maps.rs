//! The space maps of one top-level vdev.

use std::sync::Arc;

use ondisk::space_map::{Action, Area, BLOCK_BYTES_DIRECT, BLOCK_BYTES_LOGGED};
use parking_lot::Mutex;

use super::map::SpaceMap;
use crate::alloc::{Changes, Group, RangeTree};
use crate::dmu::{Dnode, ObjectId};
use crate::error::{Result, Within};

/// The space map of one metaslab and what is not in it yet.
#[derive(Default)]
pub(super) struct MetaslabMap {
    /// `None`: the metaslab has never been used.
    pub(super) map: Option<SpaceMap>,
    /// How much of the map there was after the last synced txg.
    pub(super) synced_length: u64,
    /// Ranges that came into use after the last flush; as of the last synced txg.
    pub(super) unflushed_allocated: RangeTree,
    /// Ranges that were given back after the last flush; as of the last synced txg.
    pub(super) unflushed_freed: RangeTree,
    /// The map has everything before this txg; 0: never in a log.
    pub(super) flush_txg: u64,
    /// There are, or will be when this txg is on disk, changes since the last flush.
    pub(super) has_unflushed: bool,
    /// What the syncing txg has put into its log.
    pub(super) logged: Vec<Changes>,
    /// The syncing txg has changed something, so the map's histogram is up to date.
    pub(super) histogram_txg: u64,
    /// The object has an old form, and shall be rewritten.
    pub(super) outdated: bool,
}

impl MetaslabMap {
    /// The net change: a range of `action` in a log.
    pub(super) fn note_unflushed(&mut self, action: Action, offset: u64, size: u64) -> Result<()> {
        let (same, opposite) = match action {
            Action::Allocate => (&mut self.unflushed_allocated, &mut self.unflushed_freed),
            Action::Free => (&mut self.unflushed_freed, &mut self.unflushed_allocated),
        };
        Ok(same.add_or_cancel(opposite, offset, size)?)
    }

    /// Bytes in use after the last synced txg.
    pub(super) fn allocated(&self) -> u64 {
        let in_map = self.map.as_ref().map_or(0, |map| map.header.allocated);
        let since = self.unflushed_allocated.bytes().cast_signed() - self.unflushed_freed.bytes().cast_signed();
        in_map.saturating_add(since).max(0).cast_unsigned()
    }

    /// What was free in `area` after the last synced txg.
    pub(super) fn free(&self, area: Area) -> Result<RangeTree> {
        let mut free = RangeTree::new();
        free.add(area.start, area.size)?;
        if let Some(map) = &self.map {
            map.replay(self.synced_length, |entry| match entry.action {
                Action::Allocate => Ok(free.remove(entry.offset, entry.size)?),
                Action::Free => Ok(free.add(entry.offset, entry.size)?),
            })?;
        }
        let thing = || "changes in log space maps";
        free.remove_all(&self.unflushed_allocated).within(thing)?;
        free.add_all(&self.unflushed_freed).within(thing)?;
        Ok(free)
    }

    /// How many ranges wait to be flushed: what they cost in memory.
    pub(super) fn unflushed_segments(&self) -> usize {
        self.unflushed_allocated.segment_count() + self.unflushed_freed.segment_count()
    }
}

/// The space maps of one top-level vdev.
pub(super) struct VdevMaps {
    pub(super) group: Arc<Group>,
    /// The vdev's own ZAP, which names the array of flush txgs; 0: none.
    pub(super) top_zap: ObjectId,
    /// Numbers of the space map objects; `None`: not made yet.
    pub(super) array: Mutex<Option<Arc<Dnode>>>,
    /// The txgs of the last flushes; `None`: nothing was ever in a log.
    pub(super) flush_txgs: Mutex<Option<Arc<Dnode>>>,
    /// What only a checkpoint keeps; `None`: nothing.
    pub(super) kept: Mutex<Option<SpaceMap>>,
    /// By metaslab. Each locked within the metaslab's `exclude_load`.
    pub(super) maps: Vec<Arc<Mutex<MetaslabMap>>>,
}

impl VdevMaps {
    pub(super) fn vdev(&self) -> u32 {
        self.group.config().vdev
    }

    /// The part of the vdev that metaslab `id` is.
    pub(super) fn area(&self, id: u64) -> Area {
        let config = self.group.config();
        let (start, size) = config.metaslab_area(id);
        Area { start, size, shift: config.ashift }
    }
}

/// Block size of metaslabs' space maps.
pub(super) const fn block_bytes(log_enabled: bool) -> u32 {
    if log_enabled { BLOCK_BYTES_LOGGED } else { BLOCK_BYTES_DIRECT }
}
