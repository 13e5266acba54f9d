//! What a device's ZAP says of work on it.

use ondisk::label;

use super::work::WorkKind;
use crate::dmu::{ObjectId, SyncTx};
use crate::dsl::Mos;
use crate::error::Result;

/// How work on a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(alias("vdev_initializing_state_t", "vdev_trim_state_t"))]
pub enum WorkState {
    /// It was never asked for, or forgotten.
    #[default]
    None,
    /// Under way.
    Active,
    /// Given up.
    Canceled,
    /// It stands still until somebody asks for it.
    Suspended,
    /// Done.
    Complete,
}

impl WorkState {
    const ALL: [WorkState; 5] = [WorkState::None, WorkState::Active, WorkState::Canceled, WorkState::Suspended, WorkState::Complete];
}

/// The record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Record {
    pub(super) state: WorkState,
    /// When it got this state, or began before it was suspended; in seconds since 1970.
    pub(super) time: u64,
    /// Up to where it is done, in the device's space for data.
    pub(super) done: u64,
    /// Bytes in a second, at the most; 0: no matter. Of a trim.
    pub(super) rate: u64,
    /// Metaslabs that were never used are left out. Of a trim.
    pub(super) partial: bool,
}

/// The names of its fields: state, time, offset.
const fn names(kind: WorkKind) -> [&'static str; 3] {
    match kind {
        WorkKind::Initialize => ["com.delphix:vdev_initialize_state", "com.delphix:vdev_initialize_action_time", "com.delphix:next_offset_to_initialize"],
        WorkKind::Trim => ["org.zfsonlinux:vdev_trim_state", "org.zfsonlinux:vdev_trim_action_time", "org.zfsonlinux:next_offset_to_trim"],
    }
}
const RATE: &str = "org.zfsonlinux:vdev_trim_rate";
const PARTIAL: &str = "org.zfsonlinux:vdev_trim_partial";
const SECURE: &str = "org.zfsonlinux:vdev_trim_secure";

impl Record {
    /// That in the ZAP of a device.
    pub(super) fn load(mos: &Mos, zap: ObjectId, kind: WorkKind) -> Result<Record> {
        let number = |name: &str| Ok::<u64, crate::error::Error>(mos.zap_u64(zap, name)?.unwrap_or(0));
        let [state, time, done] = names(kind);
        let is_trim = kind == WorkKind::Trim;
        Ok(Record {
            state: WorkState::ALL.get(usize::try_from(number(state)?).unwrap_or(usize::MAX)).copied().unwrap_or_default(),
            time: number(time)?,
            done: number(done)?.saturating_sub(label::START_BYTES),
            rate: if is_trim { number(RATE)? } else { 0 },
            partial: is_trim && number(PARTIAL)? != 0,
        })
    }

    /// Writes it; of work that was never asked for nothing is left.
    pub(super) fn store(&self, mos: &Mos, zap: ObjectId, kind: WorkKind, tx: &SyncTx<'_>) -> Result<()> {
        let [state, time, done] = names(kind);
        if self.state == WorkState::None {
            return [state, time, done].into_iter().try_for_each(|name| mos.zap_remove(zap, name, tx).map(drop));
        }
        mos.zap_set_u64(zap, state, self.state as u64, tx)?;
        mos.zap_set_u64(zap, time, self.time, tx)?;
        if self.done > 0 || mos.zap_contains(zap, done)? {
            let stored = if self.done == 0 { 0 } else { self.done + label::START_BYTES };
            mos.zap_set_u64(zap, done, stored, tx)?;
        }
        if kind == WorkKind::Trim {
            for (name, value) in [(RATE, self.rate), (PARTIAL, self.partial.into()), (SECURE, 0)] {
                mos.zap_set_u64(zap, name, value, tx)?;
            }
        }
        Ok(())
    }
}
