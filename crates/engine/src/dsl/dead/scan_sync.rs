//! What a scrub or resilver that is under way has to know of datasets that are destroyed, made and changed.
//!
//! # Theory
//! A scan does a piece of its work in each group, and at the end of the group all that there is to know of it is on disk: where it is, and which
//! datasets are still to be scanned. A change of datasets changes that, and nothing else.
//!
//! # On disk
//! [`ondisk::scan`]

use ondisk::dsl::number_key;
use ondisk::scan::ScanRecord;

use crate::dmu::SyncTx;
use crate::dsl::meta::key;
use crate::dsl::mos::Mos;
use crate::error::Result;

fn load(mos: &Mos) -> Result<Option<ScanRecord>> {
    Ok(mos.zap_get(key::DIRECTORY, key::SCAN)?.and_then(|record| ScanRecord::under_way(&record.to_u64s())))
}

fn queue(scan: &ScanRecord) -> Option<u64> {
    Some(scan.queue).filter(|queue| *queue != 0)
}

/// A head is destroyed: no scan is to look for it.
#[doc(alias = "dsl_scan_ds_destroyed")]
pub(in crate::dsl) fn forget(mos: &Mos, dataset: u64, tx: &SyncTx<'_>) -> Result<()> {
    let Some(mut scan) = load(mos)? else { return Ok(()) };
    if scan.dataset() == dataset {
        scan.leave_dataset();
        mos.zap_set_numbers(key::DIRECTORY, key::SCAN, &scan.words(), tx)?;
    }
    if let Some(queue) = queue(&scan) {
        mos.zap_remove(queue, &number_key(dataset), tx)?;
    }
    Ok(())
}

/// Two heads have changed contents: a scan goes on in the contents where it was.
#[doc(alias = "dsl_scan_ds_clone_swapped")]
pub(in crate::dsl) fn swapped(mos: &Mos, one: u64, other: u64, tx: &SyncTx<'_>) -> Result<()> {
    let Some(mut scan) = load(mos)? else { return Ok(()) };
    let now_in = match scan.dataset() {
        in_one if in_one == one => Some(other),
        in_other if in_other == other => Some(one),
        _ => None,
    };
    if let Some(dataset) = now_in {
        scan.is_now_in(dataset);
        mos.zap_set_numbers(key::DIRECTORY, key::SCAN, &scan.words(), tx)?;
    }
    let Some(queue) = queue(&scan) else { return Ok(()) };
    let (of_one, of_other) = (mos.zap_u64(queue, &number_key(one))?, mos.zap_u64(queue, &number_key(other))?);
    for (dataset, since) in [(one, of_other), (other, of_one)] {
        match since {
            Some(since) => mos.zap_set_u64(queue, &number_key(dataset), since, tx)?,
            None => drop(mos.zap_remove(queue, &number_key(dataset), tx)?),
        }
    }
    Ok(())
}

/// A snapshot is destroyed: a scan looks at the one after it instead.
pub(in crate::dsl) fn replace(mos: &Mos, snapshot: u64, next: u64, tx: &SyncTx<'_>) -> Result<()> {
    let Some(mut scan) = load(mos)? else { return Ok(()) };
    if scan.dataset() == snapshot {
        scan.go_on_in(next);
        mos.zap_set_numbers(key::DIRECTORY, key::SCAN, &scan.words(), tx)?;
    }
    if let Some(queue) = queue(&scan)
        && let Some(since) = mos.zap_u64(queue, &number_key(snapshot))?
    {
        mos.zap_remove(queue, &number_key(snapshot), tx)?;
        mos.zap_set_u64(queue, &number_key(next), since, tx)?;
    }
    Ok(())
}

/// A snapshot of a head was taken: a scan goes on in the snapshot, and comes to the head later.
#[doc(alias = "dsl_scan_ds_snapshotted")]
pub(in crate::dsl) fn snapshotted(mos: &Mos, head: u64, snapshot: u64, tx: &SyncTx<'_>) -> Result<()> {
    let Some(mut scan) = load(mos)? else { return Ok(()) };
    if scan.dataset() == head {
        scan.is_now_in(snapshot);
        mos.zap_set_numbers(key::DIRECTORY, key::SCAN, &scan.words(), tx)?;
    }
    if let Some(queue) = queue(&scan)
        && let Some(since) = mos.zap_u64(queue, &number_key(head))?
    {
        mos.zap_remove(queue, &number_key(head), tx)?;
        mos.zap_set_u64(queue, &number_key(snapshot), since, tx)?;
    }
    Ok(())
}
