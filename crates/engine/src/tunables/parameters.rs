//! Limits that may change while pools are in use, by the names that OpenZFS's module has for them.
//!
//! # Theory
//! Each is a number that clones share. Code that needs one asks for it each time ([`Tunables::now`]); what nobody has set is what the
//! pool was opened with. The daemon sets them from the files in `TARN_PARAMETERS`, as others write `/sys/module/zfs/parameters`.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Tunables;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // TABLE has the names
pub enum Parameter {
    TxgTimeout,
    DirtyDataMax,
    DirtyDataSyncPercent,
    DelayMinDirtyPercent,
    DelayScale,
    ImmediateWriteSize,
    MultihostInterval,
    MultihostFailIntervals,
    MultihostImportIntervals,
    AggregationLimit,
    ReadGapLimit,
    SyncReadMin,
    SyncReadMax,
    SyncWriteMin,
    SyncWriteMax,
    AsyncReadMin,
    AsyncReadMax,
    AsyncWriteMin,
    AsyncWriteMax,
    ScrubMin,
    ScrubMax,
    RebuildMin,
    RebuildMax,
    TrimMin,
    TrimMax,
    InitializeMin,
    InitializeMax,
    LivelistMaxEntries,
    LivelistMinPercentShared,
    ScanSuspendProgress,
    ScrubMinTime,
    ResilverMinTime,
    ResilverDeferPercent,
    DiscardMemoryLimit,
    InitializeValue,
    InitializeChunkSize,
    TrimExtentBytesMax,
    TrimExtentBytesMin,
    TrimMetaslabSkip,
    TrimTxgBatch,
    ExpandBytesMax,
    ScrubAfterExpand,
    RemovalSuspendProgress,
    RemoveMaxSegment,
    RemovalMaxSpan,
    RemoveMaxCopyBytes,
    CondenseEnable,
    CondenseObsoletePercent,
    CondenseMinMappingBytes,
    CondenseMaxObsoleteBytes,
    CondenseEntryDelay,
    RebuildScrubEnabled,
    RebuildMaxSegment,
    NoteTxgTime,
    FlushTxgTime,
    ScrubErrorBlocks,
    SlowIoMs,
    ReadSitOutSecs,
    OutlierCheckIntervalMs,
    OutlierInsensitivity,
    CacheWriteMax,
    CacheWriteBoost,
    CacheHeadroom,
    CacheFeedSeconds,
    CacheFeedMinMilliseconds,
    CacheFeedAgain,
    CacheNoPrefetch,
    CacheRebuildEnabled,
    CacheRebuildMinBytes,
    CacheMetaPercent,
    PrefetchDisable,
    PrefetchMaxDistance,
    ArcMax,
    ArcMin,
    DirectEnabled,
    DirectStrict,
    ValidateSkip,
}

use Parameter::*;

/// I/Os that may be under way.
const ACTIVE: RangeInclusive<u64> = 1..=u32::MAX as u64;
const PERCENT: RangeInclusive<u64> = 1..=100;
const COUNT: usize = 77;

/// The name of each, and which values it takes: seconds, bytes, percent, milliseconds, numbers of I/Os.
const TABLE: [(Parameter, &str, RangeInclusive<u64>); COUNT] = [
    (TxgTimeout, "zfs_txg_timeout", 1..=1_000_000_000),
    (DirtyDataMax, "zfs_dirty_data_max", 16 << 20..=1 << 48),
    (DirtyDataSyncPercent, "zfs_dirty_data_sync_percent", PERCENT),
    (DelayMinDirtyPercent, "zfs_delay_min_dirty_percent", PERCENT),
    (DelayScale, "zfs_delay_scale", 1..=1_000_000_000),
    (ImmediateWriteSize, "zfs_immediate_write_sz", 512..=1 << 40),
    (MultihostInterval, "zfs_multihost_interval", 100..=86_400_000),
    (MultihostFailIntervals, "zfs_multihost_fail_intervals", 0..=u16::MAX as u64),
    (MultihostImportIntervals, "zfs_multihost_import_intervals", 1..=u16::MAX as u64),
    (AggregationLimit, "zfs_vdev_aggregation_limit", 0..=16 << 20),
    (ReadGapLimit, "zfs_vdev_read_gap_limit", 0..=1 << 20),
    (SyncReadMin, "zfs_vdev_sync_read_min_active", ACTIVE),
    (SyncReadMax, "zfs_vdev_sync_read_max_active", ACTIVE),
    (SyncWriteMin, "zfs_vdev_sync_write_min_active", ACTIVE),
    (SyncWriteMax, "zfs_vdev_sync_write_max_active", ACTIVE),
    (AsyncReadMin, "zfs_vdev_async_read_min_active", ACTIVE),
    (AsyncReadMax, "zfs_vdev_async_read_max_active", ACTIVE),
    (AsyncWriteMin, "zfs_vdev_async_write_min_active", ACTIVE),
    (AsyncWriteMax, "zfs_vdev_async_write_max_active", ACTIVE),
    (ScrubMin, "zfs_vdev_scrub_min_active", ACTIVE),
    (ScrubMax, "zfs_vdev_scrub_max_active", ACTIVE),
    (RebuildMin, "zfs_vdev_rebuild_min_active", ACTIVE),
    (RebuildMax, "zfs_vdev_rebuild_max_active", ACTIVE),
    (TrimMin, "zfs_vdev_trim_min_active", ACTIVE),
    (TrimMax, "zfs_vdev_trim_max_active", ACTIVE),
    (InitializeMin, "zfs_vdev_initializing_min_active", ACTIVE),
    (InitializeMax, "zfs_vdev_initializing_max_active", ACTIVE),
    (LivelistMaxEntries, "zfs_livelist_max_entries", 1..=1 << 22),
    (LivelistMinPercentShared, "zfs_livelist_min_percent_shared", 0..=100),
    (ScanSuspendProgress, "zfs_scan_suspend_progress", 0..=1),
    (ScrubMinTime, "zfs_scrub_min_time_ms", 1..=60_000),
    (ResilverMinTime, "zfs_resilver_min_time_ms", 1..=60_000),
    (ResilverDeferPercent, "zfs_resilver_defer_percent", 0..=100),
    (DiscardMemoryLimit, "zfs_spa_discard_memory_limit", 1..=1 << 30),
    (InitializeValue, "zfs_initialize_value", 0..=u64::MAX - 1),
    (InitializeChunkSize, "zfs_initialize_chunk_size", 512..=16 << 20),
    (TrimExtentBytesMax, "zfs_trim_extent_bytes_max", 1 << 16..=1 << 40),
    (TrimExtentBytesMin, "zfs_trim_extent_bytes_min", 0..=1 << 40),
    (TrimMetaslabSkip, "zfs_trim_metaslab_skip", 0..=1),
    (TrimTxgBatch, "zfs_trim_txg_batch", 1..=1 << 32),
    (ExpandBytesMax, "raidz_expand_max_reflow_bytes", 0..=u64::MAX - 1),
    (ScrubAfterExpand, "zfs_scrub_after_expand", 0..=1),
    (RemovalSuspendProgress, "zfs_removal_suspend_progress", 0..=1),
    (RemoveMaxSegment, "zfs_remove_max_segment", 512..=16 << 20),
    (RemovalMaxSpan, "vdev_removal_max_span", 0..=16 << 20),
    (RemoveMaxCopyBytes, "zfs_remove_max_copy_bytes", 512..=1 << 40),
    (CondenseEnable, "zfs_condense_indirect_vdevs_enable", 0..=1),
    (CondenseObsoletePercent, "zfs_condense_indirect_obsolete_pct", 0..=100),
    (CondenseMinMappingBytes, "zfs_condense_min_mapping_bytes", 0..=1 << 40),
    (CondenseMaxObsoleteBytes, "zfs_condense_max_obsolete_bytes", 0..=1 << 40),
    (CondenseEntryDelay, "zfs_condense_indirect_commit_entry_delay_ms", 0..=60_000),
    (RebuildScrubEnabled, "zfs_rebuild_scrub_enabled", 0..=1),
    (RebuildMaxSegment, "zfs_rebuild_max_segment", 4096..=16 << 20),
    (NoteTxgTime, "spa_note_txg_time", 1..=u32::MAX as u64),
    (FlushTxgTime, "spa_flush_txg_time", 1..=u32::MAX as u64),
    (ScrubErrorBlocks, "zfs_scrub_error_blocks_per_txg", 1..=1 << 20),
    (SlowIoMs, "zio_slow_io_ms", 0..=86_400_000),
    (ReadSitOutSecs, "vdev_read_sit_out_secs", 0..=1 << 32),
    (OutlierCheckIntervalMs, "vdev_raidz_outlier_check_interval_ms", 0..=86_400_000),
    (OutlierInsensitivity, "vdev_raidz_outlier_insensitivity", 0..=u32::MAX as u64),
    (CacheWriteMax, "l2arc_write_max", 1..=1 << 40),
    (CacheWriteBoost, "l2arc_write_boost", 0..=1 << 40),
    (CacheHeadroom, "l2arc_headroom", 0..=1 << 20),
    (CacheFeedSeconds, "l2arc_feed_secs", 1..=86_400),
    (CacheFeedMinMilliseconds, "l2arc_feed_min_ms", 1..=86_400_000),
    (CacheFeedAgain, "l2arc_feed_again", 0..=1),
    (CacheNoPrefetch, "l2arc_noprefetch", 0..=1),
    (CacheRebuildEnabled, "l2arc_rebuild_enabled", 0..=1),
    (CacheRebuildMinBytes, "l2arc_rebuild_blocks_min_l2size", 0..=1 << 60),
    (CacheMetaPercent, "l2arc_meta_percent", 0..=100),
    (PrefetchDisable, "zfs_prefetch_disable", 0..=1),
    (PrefetchMaxDistance, "zfetch_max_distance", 0..=1 << 30),
    (ArcMax, "zfs_arc_max", 0..=1 << 50),
    (ArcMin, "zfs_arc_min", 0..=1 << 50),
    (DirectEnabled, "zfs_dio_enabled", 0..=1),
    (DirectStrict, "zfs_dio_strict", 0..=1),
    (ValidateSkip, "vdev_validate_skip", 0..=1),
];

impl Parameter {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Parameter> {
        TABLE.iter().map(|(parameter, ..)| *parameter)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }
}

/// What nobody has set.
const UNSET: u64 = u64::MAX;

/// Their values. Clones are the same.
#[derive(Debug, Clone)]
pub struct Parameters(Arc<[AtomicU64; COUNT]>);

impl Default for Parameters {
    fn default() -> Self {
        Parameters(Arc::new(std::array::from_fn(|_| AtomicU64::new(UNSET))))
    }
}

impl Parameters {
    /// Sets one.
    ///
    /// # Errors
    /// The values that it takes, in words.
    pub fn set(&self, parameter: Parameter, text: &str) -> Result<(), String> {
        let (_, name, values) = &TABLE[parameter as usize];
        let value = text.trim().parse().ok().filter(|value| values.contains(value));
        let value: u64 = value.ok_or_else(|| format!("{name}: a number from {} to {} is expected, not {text:?}", values.start(), values.end()))?;
        self.0[parameter as usize].store(value, Relaxed);
        Ok(())
    }

    /// Lets one be what it was at first.
    pub fn unset(&self, parameter: Parameter) {
        self.0[parameter as usize].store(UNSET, Relaxed);
    }

    /// What it was set to.
    pub(super) fn get(&self, parameter: Parameter) -> Option<u64> {
        Some(self.0[parameter as usize].load(Relaxed)).filter(|value| *value != UNSET)
    }
}

impl Tunables {
    /// What it is at this moment.
    pub fn now(&self, parameter: Parameter) -> u64 {
        self.parameters.get(parameter).unwrap_or_else(|| self.at_first(parameter))
    }

    /// A transaction group stays open no longer than this, in nanoseconds.
    pub fn txg_timeout_ns(&self) -> u64 {
        self.parameters.get(TxgTimeout).map_or(self.txg_timeout_ns, |seconds| seconds * 1_000_000_000)
    }

    /// Most bytes of changes that are not on disk yet, within what may be in memory.
    pub fn dirty_bytes_max(&self) -> u64 {
        self.parameters.get(DirtyDataMax).map_or(self.dirty_bytes_max, |bytes| bytes.min(self.cache_bytes_max))
    }

    /// The caches of all pools may have so many bytes, but for other memory of the process.
    pub fn cache_bytes_now(&self) -> u64 {
        let set = self.parameters.get(ArcMax).filter(|bytes| *bytes > 0);
        set.unwrap_or(self.cache_bytes_max).min(self.memory_pressure.cap())
    }

    /// Has the caches follow what was set.
    pub fn obey_cache_limits(&self) {
        let least = self.parameters.get(ArcMin).filter(|bytes| *bytes > 0);
        self.memory_pressure.set_bounds(self.cache_bytes_now(), least, self.cache_bytes_max);
    }

    /// Blocks that a write of so many bytes covers are written to their own place, where durable writes gain by preparing places or not.
    pub fn log_indirect_min(&self, gains_by_preparing: bool) -> u64 {
        let at_first = if gains_by_preparing { self.log_indirect_unprepared_min } else { self.log_indirect_min };
        self.parameters.get(ImmediateWriteSize).unwrap_or(at_first)
    }

    /// What it was when the pool was opened.
    fn at_first(&self, parameter: Parameter) -> u64 {
        // A large I/O counts as four.
        let (few, large) = (1, 4);
        match parameter {
            TxgTimeout => self.txg_timeout_ns.div_ceil(1_000_000_000),
            DirtyDataMax => self.dirty_bytes_max,
            DirtyDataSyncPercent => self.dirty_sync_percent,
            DelayMinDirtyPercent => self.delay_min_percent,
            DelayScale => self.delay_scale_ns,
            ImmediateWriteSize => self.log_indirect_min,
            MultihostInterval => self.multihost_interval_ms.into(),
            MultihostFailIntervals => self.multihost_fail_intervals.into(),
            MultihostImportIntervals => self.multihost_import_intervals.into(),
            AggregationLimit => 1 << 20,
            ReadGapLimit => 32 << 10,
            // Somebody waits for each.
            SyncReadMin | SyncReadMax | SyncWriteMin | SyncWriteMax => *ACTIVE.end(),
            // As many as there are readers ahead.
            AsyncReadMax => 4 * large,
            AsyncWriteMax | ScrubMax | RebuildMax => 2 * large,
            AsyncReadMin | AsyncWriteMin => large,
            ScrubMin | RebuildMin | TrimMin | InitializeMin => few,
            TrimMax | InitializeMax => 2 * few,
            LivelistMaxEntries => 500_000,
            LivelistMinPercentShared => 75,
            ScanSuspendProgress => 0,
            ScrubMinTime => 100,
            // Until a resilver is done a further loss may be one too many.
            ResilverMinTime => 300,
            ResilverDeferPercent => 10,
            DiscardMemoryLimit => 16 << 20,
            InitializeValue => 0xdead_beef_dead_beee,
            InitializeChunkSize => 1 << 20,
            TrimExtentBytesMax => 128 << 20,
            TrimExtentBytesMin => 32 << 10,
            TrimMetaslabSkip => 0,
            TrimTxgBatch => 32,
            ExpandBytesMax => 0,
            ScrubAfterExpand | RebuildScrubEnabled => 1,
            RebuildMaxSegment => 1 << 20,
            NoteTxgTime | FlushTxgTime => 600,
            ScrubErrorBlocks => 1 << 12,
            SlowIoMs => 30_000,
            ReadSitOutSecs => 600,
            OutlierCheckIntervalMs => 1000,
            OutlierInsensitivity => 50,
            RemovalSuspendProgress | ValidateSkip => 0,
            RemoveMaxSegment => 16 << 20,
            RemovalMaxSpan => 32 << 10,
            RemoveMaxCopyBytes => 64 << 20,
            CondenseEnable => 1,
            CondenseObsoletePercent => 25,
            CondenseMinMappingBytes => 128 << 10,
            CondenseMaxObsoleteBytes => 1 << 30,
            CondenseEntryDelay => 0,
            CacheWriteMax | CacheWriteBoost => 32 << 20,
            CacheHeadroom => 8,
            CacheFeedSeconds | CacheFeedAgain | CacheNoPrefetch | CacheRebuildEnabled | DirectEnabled => 1,
            CacheFeedMinMilliseconds => 200,
            CacheRebuildMinBytes => 1 << 30,
            CacheMetaPercent => 33,
            // Of the two that are 0: what it is without them.
            PrefetchDisable | ArcMax | ArcMin | DirectStrict => 0,
            PrefetchMaxDistance => 8 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_place_and_takes_its_value() {
        let tunables = Tunables::default();
        for (at, (parameter, name, values)) in TABLE.iter().enumerate() {
            assert_eq!((*parameter as usize, parameter.name()), (at, *name));
            assert!(values.contains(&tunables.now(*parameter)), "{name}: {}", tunables.now(*parameter));
            for value in [*values.start(), *values.end()] {
                tunables.parameters.set(*parameter, &format!("{value}\n")).unwrap();
                assert_eq!(tunables.clone().now(*parameter), value, "{name}");
            }
            let error = tunables.parameters.set(*parameter, &(values.end() + 1).to_string()).unwrap_err();
            assert!(error.contains(name) && tunables.now(*parameter) == *values.end(), "{error}");
        }
        for text in ["", "-1", "5s", "1.5", "99999999999999999999999"] {
            assert!(tunables.parameters.set(TxgTimeout, text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_nobody_set_is_what_the_pool_was_opened_with() {
        let tunables = Tunables { txg_timeout_ns: 20_000_000, ..Tunables::default() };
        assert_eq!((tunables.txg_timeout_ns(), tunables.now(TxgTimeout)), (20_000_000, 1));
        tunables.parameters.set(TxgTimeout, "7").unwrap();
        assert_eq!((tunables.txg_timeout_ns(), tunables.now(TxgTimeout)), (7_000_000_000, 7));
    }
}
