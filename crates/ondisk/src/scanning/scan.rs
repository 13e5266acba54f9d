//! The record of a scrub or resilver.
//!
//! # On disk
//! The entry `scan` of the MOS directory: 24 words. One names a ZAP from datasets (in hexadecimal) to txgs, four say where the scan is.

use crate::bpobj::BlockBookmarkPhys;

/// How many words the record has.
const WORDS: usize = 24;
/// Of the flags: the dataset of the bookmark is to be looked at once more.
const VISIT_AGAIN: u64 = 1;
/// Of the flags: somebody has paused it.
const PAUSED: u64 = 2;
/// The dataset of a place whose dataset was destroyed, or of one behind the last.
const DESTROYED: u64 = u64::MAX;

/// What a scan does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "pool_scan_func_t")]
pub enum ScanFunction {
    /// Reads and checks everything.
    Scrub,
    /// Writes what devices missed.
    Resilver,
}

/// How far a scan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "dsl_scan_state_t")]
pub enum ScanState {
    /// Under way, or paused.
    Scanning,
    /// At its end.
    Finished,
    /// Given up.
    Canceled,
}

impl ScanFunction {
    /// Its number.
    pub fn number(self) -> u64 {
        match self {
            ScanFunction::Scrub => 1,
            ScanFunction::Resilver => 2,
        }
    }
}

impl ScanState {
    fn number(self) -> u64 {
        match self {
            ScanState::Scanning => 1,
            ScanState::Finished => 2,
            ScanState::Canceled => 3,
        }
    }
}

/// The record of a scan.
#[doc(alias = "dsl_scan_phys_t")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanRecord {
    /// What it does.
    pub function: ScanFunction,
    /// How far it is.
    pub state: ScanState,
    /// The ZAP of datasets that are still to be scanned; 0: none.
    #[doc(alias = "scn_queue_obj")]
    pub queue: u64,
    /// Only what was born after this txg,
    pub min_txg: u64,
    /// and before this one.
    pub max_txg: u64,
    /// Of the dataset that it is in: only what was born after this txg,
    #[doc(alias = "scn_cur_min_txg")]
    pub dataset_min_txg: u64,
    /// and up to this one.
    #[doc(alias = "scn_cur_max_txg")]
    pub dataset_max_txg: u64,
    /// When it began, in seconds since 1970.
    pub start_time: u64,
    /// When it ended.
    pub end_time: u64,
    /// Bytes that were allocated when it began.
    pub to_examine: u64,
    /// Bytes of blocks that were found.
    pub examined: u64,
    /// Bytes of blocks that need no reading.
    pub skipped: u64,
    /// Bytes that were written.
    pub processed: u64,
    /// Blocks that could not be repaired.
    pub errors: u64,
    /// Blocks of deduplication that are scanned first: those of classes up to this one.
    pub ddt_class_max: u64,
    /// How far that is: class, kind, checksum, cursor.
    pub ddt_bookmark: [u64; 4],
    /// Where it is.
    pub bookmark: BlockBookmarkPhys,
    /// `VISIT_AGAIN`, `PAUSED`
    flags: u64,
}

impl ScanRecord {
    /// A scan that begins.
    pub fn new(function: ScanFunction, queue: u64, min_txg: u64, max_txg: u64) -> Self {
        ScanRecord {
            function,
            state: ScanState::Scanning,
            queue,
            min_txg,
            max_txg,
            dataset_min_txg: 0,
            dataset_max_txg: 0,
            start_time: 0,
            end_time: 0,
            to_examine: 0,
            examined: 0,
            skipped: 0,
            processed: 0,
            errors: 0,
            ddt_class_max: 0,
            ddt_bookmark: [0; 4],
            bookmark: BlockBookmarkPhys::default(),
            flags: 0,
        }
    }

    /// From the words of the ZAP entry; `None`: nothing was ever scanned, or it makes no sense.
    pub fn from_words(words: &[u64]) -> Option<Self> {
        let words: &[u64; WORDS] = words.get(..WORDS)?.try_into().ok()?;
        let function = [ScanFunction::Scrub, ScanFunction::Resilver].into_iter().find(|function| function.number() == words[0])?;
        let state = [ScanState::Scanning, ScanState::Finished, ScanState::Canceled].into_iter().find(|state| state.number() == words[1])?;
        Some(ScanRecord {
            function,
            state,
            queue: words[2],
            min_txg: words[3],
            max_txg: words[4],
            dataset_min_txg: words[5],
            dataset_max_txg: words[6],
            start_time: words[7],
            end_time: words[8],
            to_examine: words[9],
            examined: words[10],
            skipped: words[11],
            processed: words[12],
            errors: words[13],
            ddt_class_max: words[14],
            ddt_bookmark: [words[15], words[16], words[17], words[18]],
            bookmark: BlockBookmarkPhys {
                objset: words[19].into(),
                object: words[20].into(),
                level: words[21].cast_signed().into(),
                block: words[22].into(),
            },
            flags: words[23],
        })
    }

    /// As [`ScanRecord::from_words`]; `None` also if it is at its end.
    pub fn under_way(words: &[u64]) -> Option<Self> {
        ScanRecord::from_words(words).filter(|scan| scan.state == ScanState::Scanning)
    }

    /// The words of the ZAP entry.
    pub fn words(&self) -> [u64; WORDS] {
        let [class, kind, checksum, cursor] = self.ddt_bookmark;
        let at = &self.bookmark;
        [
            self.function.number(),
            self.state.number(),
            self.queue,
            self.min_txg,
            self.max_txg,
            self.dataset_min_txg,
            self.dataset_max_txg,
            self.start_time,
            self.end_time,
            self.to_examine,
            self.examined,
            self.skipped,
            self.processed,
            self.errors,
            self.ddt_class_max,
            class,
            kind,
            checksum,
            cursor,
            at.objset.get(),
            at.object.get(),
            at.level.get().cast_unsigned(),
            at.block.get(),
            self.flags,
        ]
    }

    /// The dataset that it is in; 0: the MOS, or not begun.
    pub fn dataset(&self) -> u64 {
        self.bookmark.objset.get()
    }

    /// Is it in no dataset, as the one that it was in was destroyed, or as there are no more?
    pub fn is_between_datasets(&self) -> bool {
        self.dataset() == DESTROYED
    }

    /// It looks at datasets, and so at all blocks, those of deduplication tables among them: OpenZFS takes a scan that has a place in a dataset to have gone through
    /// the tables before.
    pub fn enter_datasets(&mut self) {
        let after = self.ddt_class_max.saturating_add(1);
        if self.ddt_bookmark[0] < after {
            self.ddt_bookmark = [after, 0, 0, 0];
        }
    }

    /// The dataset that it is in was destroyed, or is done.
    pub fn leave_dataset(&mut self) {
        self.bookmark = BlockBookmarkPhys { objset: DESTROYED.into(), ..BlockBookmarkPhys::default() };
        self.flags &= !VISIT_AGAIN;
    }

    /// What it was looking at is another dataset's now: it goes on there, at the same place.
    pub fn is_now_in(&mut self, dataset: u64) {
        self.bookmark.objset = dataset.into();
    }

    /// The dataset that it is in was destroyed; `next` is looked at instead.
    pub fn go_on_in(&mut self, next: u64) {
        self.bookmark.objset = next.into();
        self.flags |= VISIT_AGAIN;
    }

    /// The dataset that it is in is to be looked at once more, for what it gets after the group `since`, unless it is for more already. What is young enough for the
    /// scan was written before that: so nothing is left out until then.
    pub fn visit_again_since(&mut self, since: u64) {
        if self.flags & VISIT_AGAIN == 0 {
            self.flags |= VISIT_AGAIN;
            self.dataset_max_txg = since;
        }
    }

    /// Was the dataset that it is in looked at for another one? Then it is to be looked at once more; asked once.
    pub fn take_visit_again(&mut self) -> bool {
        let again = self.flags & VISIT_AGAIN != 0;
        self.flags &= !VISIT_AGAIN;
        again
    }

    /// Has somebody paused it?
    pub fn is_paused(&self) -> bool {
        self.flags & PAUSED != 0
    }

    /// Pauses it, or lets it go on.
    pub fn set_paused(&mut self, paused: bool) {
        self.flags = if paused { self.flags | PAUSED } else { self.flags & !PAUSED };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_its_words() {
        let mut words: Vec<u64> = (100..124).collect();
        assert_eq!(ScanRecord::from_words(&words), None, "no such function");
        (words[0], words[1]) = (2, 1);
        let scan = ScanRecord::from_words(&words).unwrap();
        assert_eq!(scan.words().as_slice(), words);
        assert_eq!((scan.function, scan.queue, scan.errors, scan.bookmark.block.get()), (ScanFunction::Resilver, 102, 113, 122));
        assert_eq!(ScanRecord::from_words(&words[..23]), None, "it is cut off");
        words[1] = 2;
        assert_eq!(ScanRecord::under_way(&words), None, "it is over");
    }

    /// OpenZFS asserts it, and else goes through the tables anew.
    #[test]
    fn a_scan_with_a_place_in_a_dataset_is_behind_the_tables() {
        let mut scan = ScanRecord::new(ScanFunction::Scrub, 7, 0, 9);
        scan.enter_datasets();
        assert!(scan.words()[15] > scan.words()[14]);
        (scan.ddt_class_max, scan.ddt_bookmark) = (1, [1, 2, 3, 4]);
        scan.enter_datasets();
        scan.enter_datasets();
        assert_eq!(scan.words()[14..19], [1, 2, 0, 0, 0]);
    }

    #[test]
    fn a_scan_leaves_what_is_destroyed() {
        let mut scan = ScanRecord::new(ScanFunction::Scrub, 7, 0, 9);
        scan.is_now_in(21);
        scan.go_on_in(22);
        assert_eq!((scan.dataset(), scan.words()[23]), (22, VISIT_AGAIN));
        assert!(scan.take_visit_again() && !scan.take_visit_again());
        scan.visit_again_since(8);
        scan.visit_again_since(10);
        assert_eq!((scan.dataset_max_txg, scan.take_visit_again()), (8, true), "the first is for more");
        scan.leave_dataset();
        assert_eq!((scan.is_between_datasets(), &scan.words()[19..23]), (true, [u64::MAX, 0, 0, 0].as_slice()));
        scan.set_paused(true);
        assert!(scan.is_paused());
        scan.set_paused(false);
        assert_eq!(scan.words()[23], 0);
    }
}
