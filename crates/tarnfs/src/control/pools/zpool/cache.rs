//! What the caches of pools have and have done, by the names that OpenZFS's `arcstats` has for it. What it has no name for begins with `tarn_`.

use engine::arc::Foreseen;

use crate::control::pools::beside::{Table, select};
use crate::control::pools::{Failure, Imported};

/// The counters of each pool.
pub(in crate::control::pools) fn counters(table: &Table, name: Option<&str>) -> Result<Vec<(String, Vec<(String, u64)>)>, Failure> {
    Ok(select(table, name)?.into_iter().map(|(name, imported)| (name.clone(), of(imported))).collect())
}

fn of(imported: &Imported) -> Vec<(String, u64)> {
    let cache = &imported.pool.engine().context.cache;
    let (first, second) = (cache.stats(), cache.second_stats());
    let size = first.recent_bytes + first.frequent_bytes;
    let reads = |what: Foreseen| first.ahead.reads[what as usize];
    let all = [
        ("hits", first.hits),
        ("iohits", first.joined),
        ("misses", first.misses),
        ("size", size),
        ("c", first.limit_bytes),
        ("c_max", first.limit_bytes_max),
        ("c_min", first.limit_bytes_min),
        ("mru_size", first.recent_bytes),
        ("mfu_size", first.frequent_bytes),
        ("mru_hits", first.recent_hits),
        ("mfu_hits", first.frequent_hits),
        ("mru_ghost_size", first.ghosts.recent_bytes),
        ("mfu_ghost_size", first.ghosts.frequent_bytes),
        ("mru_ghost_hits", first.ghosts.recent_hits),
        ("mfu_ghost_hits", first.ghosts.frequent_hits),
        ("metadata_size", first.metadata_bytes),
        ("data_size", size.saturating_sub(first.metadata_bytes)),
        ("compressed_size", first.compressed_bytes),
        ("uncompressed_size", first.uncompressed_bytes),
        ("overhead_size", first.overhead_bytes),
        ("predictive_prefetch", first.ahead.issued),
        ("demand_hit_predictive_prefetch", first.ahead.used.saturating_sub(first.ahead.used_in_flight)),
        ("demand_iohit_predictive_prefetch", first.ahead.used_in_flight),
        ("tarn_prefetch_unused", first.ahead.unused),
        ("tarn_prefetch_refused", first.ahead.refused),
        ("zfetch_hits", reads(Foreseen::Hit)),
        ("zfetch_future", reads(Foreseen::Future)),
        ("zfetch_stride", reads(Foreseen::Stride)),
        ("zfetch_past", reads(Foreseen::Past)),
        ("zfetch_misses", reads(Foreseen::Miss)),
        ("zfetch_max_streams", reads(Foreseen::Full)),
        ("zfetch_io_issued", first.ahead.issued),
        ("zfetch_io_active", first.ahead.active),
        ("tarn_evictions", first.evictions),
        ("tarn_held_size", first.held_bytes),
        ("direct_read_count", first.past.reads),
        ("direct_read_bytes", first.past.read_bytes),
        ("direct_write_count", first.past.writes),
        ("direct_write_bytes", first.past.write_bytes),
        ("l2_hits", second.hits),
        ("l2_misses", second.misses),
        ("l2_feeds", second.feeds),
        ("l2_read_bytes", second.read_bytes),
        ("l2_write_bytes", second.write_bytes),
        ("l2_writes_sent", second.writes_sent),
        ("l2_writes_done", second.writes_done),
        ("l2_writes_error", second.writes_error),
        ("l2_cksum_bad", second.cksum_bad),
        ("l2_io_error", second.io_error),
        ("l2_size", second.size),
        ("l2_asize", second.asize),
        ("l2_hdr_size", second.hdr_size),
        ("l2_log_blk_writes", second.log_blk_writes),
        ("l2_log_blk_asize", second.log_blk_asize),
        ("l2_log_blk_count", second.log_blk_count),
        ("l2_rebuild_success", second.rebuild_success),
        ("l2_rebuild_log_blks", second.rebuild_log_blks),
        ("l2_rebuild_bufs", second.rebuild_bufs),
        ("l2_rebuild_lowmem", second.rebuild_abort_lowmem),
        ("l2_rebuild_unsupported", second.rebuild_abort_unsupported),
        ("l2_rebuild_cksum_lb_errors", second.rebuild_abort_cksum_lb_errors),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
