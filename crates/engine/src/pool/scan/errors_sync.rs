//! Error scrubs: what is known to be damaged is read again, and nothing else (`zpool scrub -e`).
//!
//! # Theory
//! The log of damaged blocks says where they are. Each is looked for in its file system and in the snapshots of that, as it may be written over since; what is right now, since a device is back
//! or another copy was repaired, leaves the log. A piece is done in each group; after an import it begins with the first block again, which finds nothing to do where
//! the log has become shorter.

use ondisk::blkptr::BlockPointer;
use ondisk::error_scrub::{ErrorScrubRecord, ErrorScrubState};

use super::event::ScanEvent;
use super::is_resilvering;
use crate::dmu::SyncTx;
use crate::dsl::meta::key;
use crate::error::Result;
use crate::pool::error_log_sync::{self, Damaged};
use crate::pool::layers::Layers;
use crate::pool::sync::writer::GroupWriter;
use crate::tunables::Parameter;
use crate::zio::{Bookmark, ScanTally};

/// The record on disk.
pub(super) fn load(layers: &Layers) -> Result<Option<ErrorScrubRecord>> {
    Ok(layers.mos().zap_get(key::DIRECTORY, key::ERROR_SCRUB)?.and_then(|record| ErrorScrubRecord::from_words(&record.to_u64s())))
}

pub(super) fn store(writer: &GroupWriter, record: ErrorScrubRecord, tx: &SyncTx<'_>) -> Result<()> {
    writer.scans().set_error_scrub(Some(record));
    writer.layers().mos().zap_set_numbers(key::DIRECTORY, key::ERROR_SCRUB, &record.words(), tx)
}

/// Begins one.
#[doc(alias = "dsl_errorscrub_setup_sync")]
pub(super) fn begin(writer: &GroupWriter, tx: &SyncTx<'_>) -> Result<()> {
    let layers = writer.layers();
    let left = known(layers)?.unwrap_or_default();
    let record = ErrorScrubRecord::new(layers.context.host.wall_clock().0, left.len() as u64);
    writer.scans().set_errors_left(Some(left));
    writer.scans().note_event(ScanEvent::of_scrub("errorscrub_start"));
    store(writer, record, tx)
}

/// What is known to be damaged; `None`: that is damaged itself.
fn known(layers: &Layers) -> Result<Option<Vec<Damaged>>> {
    match error_log_sync::damaged(layers) {
        Err(error) if error.is_loss() => {
            tracing::warn!("what an error scrub is to read again is not known: {error}");
            Ok(None)
        }
        known => known.map(Some),
    }
}

/// Ends the one that is under way.
#[doc(alias = "dsl_errorscrub_done")]
pub(super) fn end(writer: &GroupWriter, mut record: ErrorScrubRecord, state: ErrorScrubState, tx: &SyncTx<'_>) -> Result<()> {
    record.state = state;
    record.is_paused = false;
    record.end_time = writer.layers().context.host.wall_clock().0;
    writer.scans().set_errors_left(None);
    writer.scans().note_event(ScanEvent::of_scrub(if state == ErrorScrubState::Finished { "errorscrub_finish" } else { "errorscrub_abort" }));
    store(writer, record, tx)
}

/// Does a piece of the one that is under way, in the first pass.
///
/// # Errors
/// The MOS cannot be changed.
#[doc(alias = "dsl_errorscrub_sync")]
pub(in crate::pool) fn sync(writer: &GroupWriter, tx: &SyncTx<'_>) -> Result<()> {
    let (layers, scans) = (writer.layers(), writer.scans());
    if !scans.is_scrubbing_errors() || scans.is_ending() {
        return Ok(());
    }
    let Some(mut record) = scans.error_scrub() else { return Ok(()) };
    // Devices that need something go first.
    if is_resilvering(writer) || writer.rebuilds().is_active() {
        return end(writer, record, ErrorScrubState::Canceled, tx);
    }
    if layers.context.tunables.now(Parameter::ScanSuspendProgress) != 0 {
        layers.context.host.sleep(super::piece_sync::SUSPENDED);
        return Ok(());
    }
    let mut left = match scans.take_errors_left() {
        Some(left) => left,
        None => match known(layers)? {
            Some(left) => left,
            None => return end(writer, record, ErrorScrubState::Canceled, tx),
        },
    };
    let most = layers.context.tunables.now(Parameter::ScrubErrorBlocks) as usize;
    for damaged in left.split_off(left.len().saturating_sub(most)) {
        record.errors += u64::from(!read_again(layers, &damaged));
        record.examined += 1;
        record.to_examine = record.to_examine.saturating_sub(1);
    }
    if left.is_empty() {
        return end(writer, record, ErrorScrubState::Finished, tx);
    }
    scans.set_errors_left(Some(left));
    store(writer, record, tx)
}

/// Reads a block wherever it is in use; whether that is right now, or it is nowhere.
fn read_again(layers: &Layers, damaged: &Damaged) -> bool {
    let at = damaged.at;
    // Of other blocks nothing but the place is known.
    if at.level != 0 || at.objset == 0 {
        return false;
    }
    let Ok(head) = layers.dsl.dataset(at.objset) else { return true };
    let snapshots = head.snapshots().unwrap_or_default().into_iter().map(|(_, object)| object);
    let (mut is_right, mut is_there) = (true, false);
    for dataset in std::iter::once(at.objset).chain(snapshots) {
        let pointer = layers.dsl.dataset(dataset).and_then(|dataset| layers.dsl.objset(&dataset)?.hold(at.object)?.block_pointer(at.block));
        let Some(BlockPointer::Data(data)) = pointer.ok().and_then(|pointer| pointer.decode().ok()) else { continue };
        if damaged.birth != 0 && data.physical_birth != damaged.birth {
            continue;
        }
        is_there = true;
        let tally = ScanTally::new(true);
        layers.context.io.scan(&data, &Bookmark { objset: dataset, ..at }, &tally);
        is_right &= tally.lost() == 0;
    }
    if is_right && is_there {
        layers.context.io.lost.corrected(&at, damaged.birth);
    }
    is_right
}
