//! Prepares the places that the log will write to next.
//!
//! # Theory
//! See [`crate::alloc::LogArea`]. A commit that allocates a block near the end of the prepared part starts a thread
//! that prepares the next piece. That thread allocates the piece while it writes zeros to it, so that nothing else gets
//! it, and holds a group until it has given the piece back. So nothing on disk ever says that the piece was allocated.

use std::sync::Arc;

use ondisk::blkptr::BlkPtr;
use ondisk::dva::Dva;

use crate::alloc::LogArea;
use crate::dmu::DmuContext;
use crate::error::Result;
use crate::txg::Txg;

/// Notes that `txg` has allocated a block of the log, and prepares the next piece if it is time.
pub(super) fn look_ahead(context: &Arc<DmuContext>, block: &BlkPtr, txg: Txg) {
    for dva in block.dvas() {
        let Ok(area) = context.io.allocator().group(dva.vdev).map(|group| group.log_area()) else { continue };
        let Some(area) = area.filter(|area| area.metaslab().contains(dva.offset)) else { continue };
        if area.note_taken(txg, dva.allocated, context.host.now_ns()) {
            context.groups.kick(txg);
        }
        if area.begin_preparing(dva.offset + dva.allocated) {
            start(context, dva.vdev, area);
        }
    }
}

fn start(context: &Arc<DmuContext>, vdev: u32, area: Arc<LogArea>) {
    if !context.io.vdev_gains_by_preparing(vdev) {
        area.end_preparing(true);
        return;
    }
    let (shared, prepared) = (Arc::clone(context), Arc::clone(&area));
    let body = move || {
        // The commit that writes there meets the same failure.
        let done = prepare_piece(&shared, vdev, &prepared).unwrap_or(false);
        prepared.end_preparing(!done);
    };
    if !context.host.spawn("log-ahead", Box::new(body)) {
        area.end_preparing(true);
    }
}

/// Prepares the next piece, if there is one.
fn prepare_piece(context: &DmuContext, vdev: u32, area: &LogArea) -> Result<bool> {
    let hold = context.groups.hold_unless(&|| context.io.devices().suspension())?;
    let Some(piece) = context.io.allocator().group(vdev)?.take_log_piece(area, hold.txg()) else { return Ok(false) };
    // Nothing more may be written to a pool that has stopped: another host may have it.
    let done = match context.groups.failure().or_else(|| context.io.devices().refusal()) {
        Some(refusal) => Err(refusal),
        None => context.io.prepare(vdev, piece.offset, piece.size),
    };
    context.io.allocator().unallocate(Dva::new(vdev, piece.offset, piece.size), hold.txg())?;
    area.piece_prepared(piece);
    done.map(|()| true)
}
