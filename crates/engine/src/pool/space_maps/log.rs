//! The log space maps: one for each txg that changed something, until nobody needs it.

use std::collections::BTreeMap;

use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use ondisk::space_map::{Area, BLOCK_BYTES_LOGGED};

use super::map::SpaceMap;
use super::open::{FeatureCounts, LOG_TABLE, MOS_DIRECTORY};
use crate::dmu::{ObjectId, Objset, SyncTx};
use crate::error::Result;
use crate::zap::{Zap, ZapSpec, int_name};

/// The log may have as many blocks as this many for each metaslab with unflushed changes, within bounds.
const BLOCKS_PER_METASLAB: u64 = 4;
const BLOCKS_MIN: u64 = 1000;
const BLOCKS_MAX: u64 = 1 << 17;
/// Logs that may be kept.
const LOGS_MAX: u64 = 1000;
/// Ranges that may be kept in memory because they are unflushed.
const SEGMENTS_MAX: u64 = 4 << 20;

/// The log of one txg.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogInfo {
    pub(super) object: ObjectId,
    pub(super) blocks: u64,
}

/// All logs.
#[derive(Default)]
pub(super) struct Log {
    /// The ZAP from txg to log; `None`: there has never been one.
    pub(super) table: Option<ObjectId>,
    pub(super) logs: BTreeMap<u64, LogInfo>,
    /// The log of the syncing txg.
    pub(super) current: Option<SpaceMap>,
}

impl Log {
    /// The log of the syncing txg, made when first needed.
    pub(super) fn current(
        &mut self,
        mos: &Objset,
        tx: &SyncTx<'_>,
        features: &dyn FeatureCounts,
    ) -> Result<&mut SpaceMap> {
        let current = match self.current.take() {
            Some(current) => current,
            None => self.begin(mos, tx, features)?,
        };
        Ok(self.current.insert(current))
    }

    fn begin(&mut self, mos: &Objset, tx: &SyncTx<'_>, features: &dyn FeatureCounts) -> Result<SpaceMap> {
        let table = match self.table {
            Some(table) => table,
            None => {
                let table = Zap::create(mos, tx, &ZapSpec::new(ObjectType::ZAP_METADATA))?.object();
                Zap::open(mos, MOS_DIRECTORY)?.add_u64(tx, LOG_TABLE, table)?;
                features.add(tx, Feature::LogSpacemap, 1)?;
                *self.table.insert(table)
            }
        };
        let map = SpaceMap::create(mos, tx, features, Area::LOG, BLOCK_BYTES_LOGGED)?;
        Zap::open(mos, table)?.add_u64(tx, int_name(tx.txg()), map.object())?;
        self.logs.insert(tx.txg(), LogInfo { object: map.object(), blocks: 0 });
        Ok(map)
    }

    /// The txg is on disk.
    pub(super) fn end(&mut self, txg: u64) {
        if let (Some(current), Some(info)) = (self.current.take(), self.logs.get_mut(&txg)) {
            info.blocks = current.blocks();
        }
    }

    /// Frees the logs of txgs before `oldest`: all metaslabs have been flushed after them.
    pub(super) fn free_before(
        &mut self,
        mos: &Objset,
        tx: &SyncTx<'_>,
        features: &dyn FeatureCounts,
        oldest: u64,
    ) -> Result<()> {
        let Some(table) = self.table else { return Ok(()) };
        while let Some((txg, info)) = self.logs.first_key_value().map(|(txg, info)| (*txg, *info))
            && txg < oldest.min(tx.txg())
        {
            SpaceMap::open(mos, info.object, Area::LOG)?.destroy(mos, tx, features)?;
            Zap::open(mos, table)?.remove(tx, int_name(txg))?;
            self.logs.remove(&txg);
        }
        Ok(())
    }

    /// How many of `unflushed` metaslabs should be flushed in this txg: one always, so that logs go away; more as the
    /// log or the memory for it nears its limit.
    pub(super) fn flushes_wanted(&self, unflushed: u64, segments: u64) -> u64 {
        let blocks: u64 = self.logs.values().map(|info| info.blocks).sum();
        let blocks_max = (unflushed * BLOCKS_PER_METASLAB).clamp(BLOCKS_MIN, BLOCKS_MAX);
        let percent = [(blocks, blocks_max), (self.logs.len() as u64, LOGS_MAX), (segments, SEGMENTS_MAX)];
        match percent.iter().map(|(part, whole)| part * 100 / whole).max() {
            Some(100..) => unflushed / 2 + 1,
            Some(75..) => unflushed / 8 + 1,
            Some(50..) => unflushed / 32 + 1,
            _ => 1,
        }
    }
}
