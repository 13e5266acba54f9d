//! The record of a scrub or resilver.
//!
//! # On disk
//! The entry `scan` of the MOS directory: 24 words. One names a ZAP from datasets (in hexadecimal) to txgs, four say where the scan is.

use std::ops::Range;

/// Places of words in the record.
const STATE: usize = 1;
const QUEUE: usize = 2;
const BOOKMARK: Range<usize> = 19..23;
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

/// The record of a scan that is under way, or paused.
#[doc(alias = "dsl_scan_phys_t")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanRecord(Vec<u64>);

impl ScanRecord {
    /// From the words of the ZAP entry; `None`: no scan is under way.
    pub fn under_way(words: Vec<u64>) -> Option<Self> {
        (words.len() >= WORDS && words[STATE] == SCANNING).then_some(ScanRecord(words))
    }

    /// The words of the ZAP entry.
    pub fn words(&self) -> &[u64] {
        &self.0
    }

    /// The ZAP of datasets that are still to be scanned.
    pub fn queue(&self) -> Option<u64> {
        Some(self.0[QUEUE]).filter(|queue| *queue != 0)
    }

    /// The dataset that it is in.
    pub fn dataset(&self) -> u64 {
        self.0[BOOKMARK.start]
    }

    /// The dataset that it is in was destroyed.
    pub fn leave_destroyed(&mut self) {
        self.0[BOOKMARK].copy_from_slice(&DESTROYED);
    }

    /// What it was looking at is another dataset's now: it goes on there, at the same place.
    pub fn is_now_in(&mut self, dataset: u64) {
        self.0[BOOKMARK.start] = dataset;
    }

    /// A snapshot was taken of the dataset that it is in: it goes on there, at the same place.
    pub fn is_snapshotted(&mut self, snapshot: u64) {
        self.0[BOOKMARK.start] = snapshot;
    }

    /// The dataset that it is in was destroyed; `next` is looked at instead.
    pub fn go_on_in(&mut self, next: u64) {
        self.0[BOOKMARK.start] = next;
        self.0[FLAGS] |= VISIT_AGAIN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_leaves_what_is_destroyed() {
        let mut words = vec![0; WORDS];
        assert_eq!(ScanRecord::under_way(words.clone()), None);
        (words[STATE], words[QUEUE], words[BOOKMARK.start]) = (SCANNING, 7, 21);
        assert_eq!(ScanRecord::under_way(words[..WORDS - 1].to_vec()), None, "it is cut off");
        let mut scan = ScanRecord::under_way(words).unwrap();
        assert_eq!((scan.queue(), scan.dataset()), (Some(7), 21));
        scan.go_on_in(22);
        assert_eq!((scan.dataset(), scan.words()[FLAGS]), (22, VISIT_AGAIN));
        scan.leave_destroyed();
        assert_eq!(scan.words()[BOOKMARK], DESTROYED);
    }
}
