//! What a scrub or resilver that is under way has to know of datasets that are destroyed.
//!
//! # Theory
//! This program scrubs nothing yet, but a pool may come with a scan of OpenZFS that was interrupted or paused, and goes back to
//! go on with it. Which datasets are still to be scanned is on disk, by number: OpenZFS takes for granted that each of them is there.
//!
//! # On disk
//! The entry `scan` of the MOS directory: 24 words. One names a ZAP from datasets (in hexadecimal) to txgs, four say where the scan is.

use ondisk::dsl::number_key;

use crate::dsl::meta::key;
use crate::dsl::tree::tree::Dsl;
use crate::dmu::SyncTx;
use crate::error::Result;

/// Places in the record.
const STATE: usize = 1;
const QUEUE: usize = 2;
const BOOKMARK: std::ops::Range<usize> = 19..23;
/// What a scan is still to do.
const FLAGS: usize = 23;
/// Of the flags: the dataset of the bookmark is to be looked at once more.
const VISIT_AGAIN: u64 = 1;
/// How many words the record has.
const WORDS: usize = 24;
/// A scan is under way, or paused.
const SCANNING: u64 = 1;
/// The place of a scan whose dataset was destroyed: it goes on with the next one.
const DESTROYED: [u64; 4] = [u64::MAX, 0, 0, 0];

impl Dsl {
    /// A head is destroyed: no scan is to look for it.
    #[doc(alias = "dsl_scan_ds_destroyed")]
    pub(in crate::dsl) fn forget_in_scan(&self, dataset: u64, tx: &SyncTx<'_>) -> Result<()> {
        let mos = &self.meta.mos;
        let Some(record) = mos.zap_get(key::DIRECTORY, key::SCAN)? else { return Ok(()) };
        let mut words = record.to_u64s();
        if words.len() < WORDS || words[STATE] != SCANNING {
            return Ok(());
        }
        if words[BOOKMARK.start] == dataset {
            words[BOOKMARK].copy_from_slice(&DESTROYED);
            mos.zap_set_numbers(key::DIRECTORY, key::SCAN, &words, tx)?;
        }
        if words[QUEUE] != 0 {
            mos.zap_remove(words[QUEUE], &number_key(dataset), tx)?;
        }
        Ok(())
    }

    /// A snapshot is destroyed: a scan looks at the one after it instead.
    pub(in crate::dsl) fn replace_in_scan(&self, snapshot: u64, next: u64, tx: &SyncTx<'_>) -> Result<()> {
        let mos = &self.meta.mos;
        let Some(record) = mos.zap_get(key::DIRECTORY, key::SCAN)? else { return Ok(()) };
        let mut words = record.to_u64s();
        if words.len() < WORDS || words[STATE] != SCANNING {
            return Ok(());
        }
        if words[BOOKMARK.start] == snapshot {
            words[BOOKMARK.start] = next;
            words[FLAGS] |= VISIT_AGAIN;
            mos.zap_set_numbers(key::DIRECTORY, key::SCAN, &words, tx)?;
        }
        if words[QUEUE] != 0
            && let Some(since) = mos.zap_u64(words[QUEUE], &number_key(snapshot))?
        {
            mos.zap_remove(words[QUEUE], &number_key(snapshot), tx)?;
            mos.zap_set_u64(words[QUEUE], &number_key(next), since, tx)?;
        }
        Ok(())
    }
}
