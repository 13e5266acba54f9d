//! Which group was written when, on disk: for scrubs of what was written in some days.
//!
//! # Theory
//! Now and then the time of a group is noted; how often a tunable says. What is noted goes to disk with a group now and then, and with the last one.
//!
//! # On disk
//! [`ondisk::time_log`]

use ondisk::time_log::{KEYS, Rounding, TimeLog};
use parking_lot::Mutex;

use super::layers::Layers;
use super::sync::writer::GroupWriter;
use crate::dmu::SyncTx;
use crate::dsl::meta::key;
use crate::error::Result;
use crate::tunables::Parameter;

/// What was noted less than so many seconds ago is not written again when a pool is closed: each write takes the place of older groups.
const CLOSE_SECONDS: u64 = 60;
/// The first version of pools that have features.
const VERSION_FEATURES: u64 = 5000;

#[derive(Default)]
struct State {
    log: TimeLog,
    /// When a group was noted last, and which.
    noted: (u64, u64),
    /// When it was written last.
    written: u64,
    /// The next group writes it, whatever the time is.
    is_due: bool,
}

/// What is known of the groups of a pool.
#[derive(Default)]
pub(in crate::pool) struct GroupTimes {
    /// guarded by: itself
    state: Mutex<State>,
}

impl GroupTimes {
    /// The next group writes it down.
    pub(in crate::pool) fn write_soon(&self) {
        self.state.lock().is_due = true;
    }

    /// The group that was written at some time; 0: that is not known.
    pub(in crate::pool) fn find(&self, time: u64, rounding: Rounding) -> u64 {
        self.state.lock().log.find(time, rounding)
    }
}

/// Reads what was noted.
///
/// # Errors
/// The MOS cannot be read.
#[doc(alias = "spa_load_txg_log_time")]
pub(in crate::pool) fn open(writer: &GroupWriter) -> Result<()> {
    let layers = writer.layers();
    let mut words: [Vec<u64>; 3] = Default::default();
    for (words, name) in words.iter_mut().zip(KEYS) {
        *words = layers.mos().zap_get(key::DIRECTORY, name)?.map(|value| value.to_u64s()).unwrap_or_default();
    }
    let log = TimeLog::from_words(&words);
    let last = log.last_time();
    *writer.times().state.lock() = State { log, noted: (last, 0), written: last, is_due: false };
    Ok(())
}

/// Notes the time of this group if it is time for that, in the first pass.
///
/// # Errors
/// The MOS cannot be changed.
#[doc(alias = "spa_sync_time_logger")]
pub(in crate::pool) fn sync(writer: &GroupWriter, tx: &SyncTx<'_>) -> Result<()> {
    let layers: &Layers = writer.layers();
    if layers.meta().version() < VERSION_FEATURES {
        return Ok(());
    }
    let (now, tunables) = (layers.context.host.wall_clock().0, &layers.context.tunables);
    let words = {
        let mut state = writer.times().state.lock();
        let has_passed = |since: u64, parameter| now >= since.saturating_add(tunables.now(parameter));
        let is_old = now >= state.noted.0.saturating_add(CLOSE_SECONDS) || has_passed(state.noted.0, Parameter::NoteTxgTime);
        let is_due = std::mem::take(&mut state.is_due) && is_old;
        if is_due || has_passed(state.noted.0, Parameter::NoteTxgTime) {
            state.noted = (now, tx.txg());
            state.log.add(now, tx.txg());
        }
        if !is_due && !has_passed(state.written, Parameter::FlushTxgTime) {
            return Ok(());
        }
        state.written = now;
        state.log.words()
    };
    KEYS.iter().zip(words).try_for_each(|(name, words)| layers.mos().zap_set_numbers(key::DIRECTORY, name, &words, tx))
}
