//! What lies ahead of the log is prepared before the log gets there.
//!
//! # Theory
//! See [`crate::alloc::LogArea`]. Who allocates a block of the log and finds that the prepared part comes to its end starts a thread that
//! prepares the next piece. A piece is allocated while it is written with zeros, so that nobody else has it, by a group that is held
//! until it has been given back: so nothing on disk ever says that it was.

use std::sync::Arc;

use ondisk::blkptr::BlkPtr;
use ondisk::dva::Dva;

use crate::alloc::LogArea;
use crate::dmu::DmuContext;
use crate::error::Result;
use crate::txg::Txg;

/// `txg` has allocated a block of the log.
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
        // What fails here is met by who writes there.
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
