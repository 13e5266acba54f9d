//! The log of damaged blocks, on disk.
//!
//! # Theory
//! A block of which no copy was right is written down with the next group. While a scan is under way that is in a log of its own, which takes the place of
//! the other one at the end of the scan: what a scan has not found any more is not damaged any more, or is gone. A log that is damaged itself begins anew.
//!
//! # On disk
//! Two ZAPs that the MOS's directory names. Without `head_errlog` a key is `dataset:object:level:block` in hexadecimal digits. With it
//! a key is the head's number, and its value another ZAP, whose keys are `object:level:block:birth`. The value of a block is an empty text.

use std::collections::BTreeSet;

use ondisk::dsl::number_key;
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;

use super::layers::Layers;
use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::meta::key;
use crate::error::{Error, ErrorKind, Result};
use crate::zap::Integers;
use crate::zio::Bookmark;

/// Keys of the MOS's directory: what was found since the end of the last scan and by it, and what is found by the one under way.
#[doc(alias = "DMU_POOL_ERRLOG_LAST")]
pub const LAST: &str = "errlog_last";
/// See [`LAST`].
#[doc(alias = "DMU_POOL_ERRLOG_SCRUB")]
pub const OF_SCAN: &str = "errlog_scrub";
/// A log that is longer than this is none.
const BLOCKS_MAX: u64 = 1 << 24;
/// An empty text.
const NO_NAME: &[u8] = &[0];

/// A block that is written down.
pub struct Damaged {
    /// Where it is; its object set is the head.
    pub at: Bookmark,
    /// Its birth; 0: not known.
    pub birth: u64,
}

type Blocks = BTreeSet<(Bookmark, u64)>;

/// Whether a block has to be written down, or is right again.
pub(in crate::pool) fn has_work(layers: &Layers) -> bool {
    layers.context.io.lost.has_any()
}

/// Writes down what was found since this was last done. `scanning`: a scan is under way.
#[doc(alias = "spa_errlog_sync")]
pub(in crate::pool) fn sync(layers: &Layers, scanning: bool, tx: &SyncTx<'_>) -> Result<()> {
    if !has_work(layers) {
        return Ok(());
    }
    let (lost, corrected) = layers.context.io.lost.take();
    let written = [LAST, OF_SCAN].into_iter().try_for_each(|log| {
        let is_right_one = scanning == (log == OF_SCAN);
        let write = || -> Result<()> {
            remove(layers, log, &corrected, tx)?;
            if is_right_one { add(layers, log, &lost, tx) } else { Ok(()) }
        };
        write().or_else(|error| {
            begin_anew(layers, log, error, tx)?;
            write()
        })
    });
    let Err(error) = written else { return Ok(()) };
    layers.context.io.lost.put_back(lost, corrected);
    if error.is_loss() {
        tracing::warn!("what is damaged cannot be written down now: {error}");
        return Ok(());
    }
    Err(error)
}

/// A log that cannot be read is no reason to stop: what it named is found again by the next scrub.
fn begin_anew(layers: &Layers, log: &str, error: Error, tx: &SyncTx<'_>) -> Result<()> {
    // What is not there now may come back.
    if !layers.context.io.is_lost(&error) && error.kind() != ErrorKind::NotFound {
        return Err(error);
    }
    tracing::warn!("a log of damaged blocks ({log}) begins anew, as it cannot be read: {error}");
    let old = object(layers, log)?;
    layers.mos().zap_set_u64(key::DIRECTORY, log, 0, tx)?;
    free(layers, old, tx)
}

/// Frees a log. What cannot be read of it stays, and nothing leads there.
fn free(layers: &Layers, log: u64, tx: &SyncTx<'_>) -> Result<()> {
    if log == 0 {
        return Ok(());
    }
    let mos = layers.mos();
    let blocks_of_heads = || -> Result<()> {
        let heads = if is_by_head(layers) { mos.zap_entries(log)? } else { Vec::new() };
        heads.iter().try_for_each(|(_, blocks)| free_object(layers, blocks.first(), tx))
    };
    for freed in [blocks_of_heads(), free_object(layers, log, tx)] {
        match freed {
            Err(error) if error.is_loss() || error.kind() == ErrorKind::NotFound => tracing::warn!("not all of a log of damaged blocks comes free: {error}"),
            freed => freed?,
        }
    }
    Ok(())
}

/// Frees an object to all blocks of which there is a way: what is lost when its blocks come free stops the pool.
fn free_object(layers: &Layers, object: u64, tx: &SyncTx<'_>) -> Result<()> {
    let mos = layers.mos();
    let info = mos.info(object)?;
    let blocks = info.length / info.block_bytes.max(1);
    if blocks > BLOCKS_MAX {
        bail!(Corrupt, "object {object} of the MOS: a log of damaged blocks has {blocks} blocks");
    }
    let dnode = mos.0.hold(object)?;
    (0..blocks).try_for_each(|block| dnode.block_pointer(block).map(drop))?;
    mos.free(object, tx)
}

/// A scan is at its end: what it found takes the place of what was known before.
#[doc(alias = "spa_errlog_rotate")]
pub(in crate::pool) fn rotate(layers: &Layers, tx: &SyncTx<'_>) -> Result<()> {
    sync(layers, true, tx)?;
    let mos = layers.mos();
    let (last, of_scan) = (object(layers, LAST)?, object(layers, OF_SCAN)?);
    free(layers, last, tx)?;
    if last != of_scan {
        mos.zap_set_u64(key::DIRECTORY, LAST, of_scan, tx)?;
        mos.zap_set_u64(key::DIRECTORY, OF_SCAN, 0, tx)?;
    }
    Ok(())
}

/// What is known to be damaged, but for what the scan that is under way has found.
///
/// # Errors
/// The log cannot be read.
pub(in crate::pool) fn damaged(layers: &Layers) -> Result<Vec<Damaged>> {
    logged(layers, &[LAST])
}

/// What either log names.
///
/// # Errors
/// The logs cannot be read.
pub(in crate::pool) fn all_damaged(layers: &Layers) -> Result<Vec<Damaged>> {
    logged(layers, &[LAST, OF_SCAN])
}

fn logged(layers: &Layers, logs: &[&str]) -> Result<Vec<Damaged>> {
    let mut found = Vec::new();
    for log in logs {
        each(layers, log, &mut |damaged| {
            found.push(damaged);
            true
        })?;
    }
    Ok(found)
}

/// Shows what a log names, block by block, until `visit` wants no more: several heads may have the same list, so that there is no end to it.
///
/// # Errors
/// The log cannot be read.
pub(in crate::pool) fn each(layers: &Layers, log: &str, visit: &mut dyn FnMut(Damaged) -> bool) -> Result<()> {
    let (mos, log) = (layers.mos(), object(layers, log)?);
    if log == 0 {
        return Ok(());
    }
    for (name, value) in mos.zap_entries(log)? {
        if !is_by_head(layers) {
            let found = parse_key(&name).map(|[objset, object, level, block]| Damaged { at: bookmark([objset, object, level, block]), birth: 0 });
            if found.is_some_and(|damaged| !visit(damaged)) {
                return Ok(());
            }
            continue;
        }
        let Ok(head) = u64::from_str_radix(&name, 16) else { continue };
        for (name, _) in mos.zap_entries(value.first())? {
            let found = parse_key(&name).map(|[object, level, block, birth]| Damaged { at: bookmark([head, object, level, block]), birth });
            if found.is_some_and(|damaged| !visit(damaged)) {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn bookmark([objset, object, level, block]: [u64; 4]) -> Bookmark {
    Bookmark { objset, object, level: i8::try_from(level.cast_signed()).unwrap_or(0), block }
}

/// The four numbers of a key.
fn parse_key(name: &str) -> Option<[u64; 4]> {
    let numbers: Vec<u64> = name.split(':').map(|part| u64::from_str_radix(part, 16).ok()).collect::<Option<_>>()?;
    numbers.try_into().ok()
}

/// How many blocks are written down; of a log that cannot be read none.
///
/// # Errors
/// The MOS cannot be read.
#[doc(alias = "spa_approx_errlog_size")]
pub(in crate::pool) fn count(layers: &Layers) -> Result<u64> {
    let mut count = layers.context.io.lost.all().len() as u64;
    for log in [LAST, OF_SCAN] {
        count += match count_in(layers, object(layers, log)?) {
            Err(error) if error.is_loss() => {
                tracing::warn!("a log of damaged blocks ({log}) cannot be read: {error}");
                0
            }
            counted => counted?,
        };
    }
    Ok(count)
}

fn count_in(layers: &Layers, log: u64) -> Result<u64> {
    let mos = layers.mos();
    match log {
        0 => Ok(0),
        log if is_by_head(layers) => mos.zap_entries(log)?.iter().map(|(_, blocks)| mos.zap_count(blocks.first())).sum(),
        log => mos.zap_count(log),
    }
}

fn is_by_head(layers: &Layers) -> bool {
    layers.meta().features.is_enabled(Feature::HeadErrlog)
}

fn object(layers: &Layers, log: &str) -> Result<u64> {
    Ok(layers.mos().zap_u64(key::DIRECTORY, log)?.unwrap_or(0))
}

/// The key of a block in a log, or below its head.
fn block_key(at: &Bookmark, birth: u64, by_head: bool) -> String {
    let level = i64::from(at.level).cast_unsigned();
    let Bookmark { objset, object, block, .. } = at;
    if by_head { format!("{object:x}:{level:x}:{block:x}:{birth:x}") } else { format!("{objset:x}:{object:x}:{level:x}:{block:x}") }
}

/// The head of a dataset; of what is none any more, its own number.
fn head_of(layers: &Layers, dataset: u64) -> u64 {
    let found = if dataset == 0 { None } else { layers.dsl.dataset(dataset).ok() };
    found.map(|dataset| dataset.dir.phys().head_dataset.get()).filter(|head| *head != 0).unwrap_or(dataset)
}

fn add(layers: &Layers, log: &str, blocks: &Blocks, tx: &SyncTx<'_>) -> Result<()> {
    if blocks.is_empty() {
        return Ok(());
    }
    let (mos, by_head) = (layers.mos(), is_by_head(layers));
    let mut object = object(layers, log)?;
    if object == 0 {
        object = mos.zap_create(ObjectType::ERROR_LOG, tx)?;
        mos.zap_set_u64(key::DIRECTORY, log, object, tx)?;
        let other = if log == LAST { OF_SCAN } else { LAST };
        if !mos.zap_contains(key::DIRECTORY, other)? {
            mos.zap_set_u64(key::DIRECTORY, other, 0, tx)?;
        }
    }
    for (at, birth) in blocks {
        let mut place = object;
        if by_head {
            let head = number_key(head_of(layers, at.objset));
            place = match mos.zap_u64(object, &head)? {
                Some(there) => there,
                None => {
                    let made = mos.zap_create(ObjectType::ERROR_LOG, tx)?;
                    mos.zap_set_u64(object, &head, made, tx)?;
                    made
                }
            };
        }
        mos.zap(place)?.update(tx, block_key(at, *birth, by_head), Integers::U8(NO_NAME))?;
    }
    Ok(())
}

fn remove(layers: &Layers, log: &str, blocks: &Blocks, tx: &SyncTx<'_>) -> Result<()> {
    let (mos, by_head, object) = (layers.mos(), is_by_head(layers), object(layers, log)?);
    if object == 0 {
        return Ok(());
    }
    for (at, birth) in blocks {
        let place = if by_head { mos.zap_u64(object, &number_key(head_of(layers, at.objset)))? } else { Some(object) };
        if let Some(place) = place {
            mos.zap_remove(place, &block_key(at, *birth, by_head), tx)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_a_negative_level_as_a_large_number() {
        let at = Bookmark { objset: 54, object: 0x8f, level: -1, block: 16 };
        assert_eq!(block_key(&at, 100, true), "8f:ffffffffffffffff:10:64");
        assert_eq!(block_key(&Bookmark { level: 1, ..at }, 100, false), "36:8f:1:10");
        assert_eq!(parse_key("8f:ffffffffffffffff:10:64").map(|[object, level, block, _]| bookmark([54, object, level, block])), Some(at));
        assert_eq!(["", "1:2:3", "1:2:3:4:5", "1:2:3:x"].map(parse_key), [None; 4]);
    }
}
