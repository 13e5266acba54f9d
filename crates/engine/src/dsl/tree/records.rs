//! Records of directories and datasets that are newer than those in the MOS.
//!
//! # Theory
//! A record changes with every block that is counted. It is written into the MOS once per pass, so it is kept here from its first change
//! until then; a caller that opens the directory or dataset meanwhile finds it in memory.
//!
//! [`Dsl`](crate::dsl::Dsl) alone owns this: a dataset, which is kept here, knows it weakly.
//!
//! # Locks
//! The lists, after a record's own lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use zerocopy::IntoBytes;

use super::dir::Dir;
use crate::dmu::SyncTx;
use crate::dsl::Dataset;
use crate::dsl::mos::Mos;
use crate::error::Result;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::dsl) struct Records {
    /// guards: what [`Records::flush`] has to write
    changed: Mutex<Changed>,
    flushes: AtomicU64,
}

#[derive(Debug, Default)]
struct Changed {
    dirs: BTreeMap<u64, Arc<Dir>>,
    datasets: BTreeMap<u64, Arc<Dataset>>,
}

impl Records {
    /// The record of a directory is newer than that in the MOS.
    pub(in crate::dsl) fn note_dir(&self, dir: &Arc<Dir>) {
        self.changed.lock().dirs.insert(dir.object, dir.clone());
    }

    /// The record of a dataset is newer than that in the MOS.
    pub(in crate::dsl) fn note_dataset(&self, dataset: &Arc<Dataset>) {
        self.changed.lock().datasets.insert(dataset.object, dataset.clone());
    }

    /// The directory is destroyed.
    pub(in crate::dsl) fn forget_dir(&self, object: u64) {
        self.changed.lock().dirs.remove(&object);
    }

    /// The dataset is destroyed.
    pub(in crate::dsl) fn forget_dataset(&self, object: u64) {
        self.changed.lock().datasets.remove(&object);
    }

    /// Whether nothing has changed since the last flush.
    pub(in crate::dsl) fn is_empty(&self) -> bool {
        let changed = self.changed.lock();
        changed.dirs.is_empty() && changed.datasets.is_empty()
    }

    /// Writes all records that changed into the MOS.
    pub(in crate::dsl) fn flush(&self, mos: &Mos, tx: &SyncTx<'_>) -> Result<()> {
        let changed = std::mem::take(&mut *self.changed.lock());
        for dir in changed.dirs.values() {
            mos.set_bonus(dir.object, dir.take_record().as_bytes(), tx)?;
        }
        for dataset in changed.datasets.values() {
            mos.set_bonus(dataset.object, dataset.take_record().as_bytes(), tx)?;
        }
        // Before they can leave memory.
        self.flushes.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// How often records were written into the MOS: what was read there before the last time may be old.
    pub(in crate::dsl) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Acquire)
    }

    /// The pool is closed: what is not written is lost.
    pub(in crate::dsl) fn clear(&self) {
        drop(std::mem::take(&mut *self.changed.lock()));
    }
}
