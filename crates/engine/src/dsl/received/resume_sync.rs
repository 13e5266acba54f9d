//! How far a resumable receive has come.
//!
//! # Theory
//! Each group that has something of the stream also has, in the dataset's ZAP, the place of the last of it that it has: so whatever
//! group the pool is opened at, the stream can go on from there, once more with that record.
//!
//! # Path
//! `stream::receive` notes places; [`Dataset::sync`](crate::dsl::Dataset::sync) writes them.

use ondisk::dsl::dataset_field as field;
use parking_lot::Mutex;

use crate::dmu::SyncTx;
use crate::dsl::mos::Mos;
use crate::error::Result;
use crate::txg::{TXG_SIZE, Txg, slot};

/// A place in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumePoint {
    /// The object.
    pub object: u64,
    /// Where in it, in bytes.
    pub offset: u64,
    /// Bytes of the stream until there.
    pub bytes: u64,
}

/// The place that each group ends at.
#[derive(Debug, Default)]
pub struct ResumePoints(Mutex<[Option<ResumePoint>; TXG_SIZE]>);

impl ResumePoints {
    /// `txg` has what the stream has up to there.
    pub fn note(&self, txg: Txg, point: ResumePoint) {
        self.0.lock()[slot(txg)] = Some(point);
    }

    /// Writes down where the group ends, in the ZAP of the dataset.
    pub(in crate::dsl) fn write(&self, mos: &Mos, dataset: u64, tx: &SyncTx<'_>) -> Result<()> {
        let point = self.0.lock()[slot(tx.txg())].take();
        let Some(ResumePoint { object, offset, bytes }) = point else { return Ok(()) };
        for (name, number) in [(field::RESUME_OBJECT, object), (field::RESUME_OFFSET, offset), (field::RESUME_BYTES, bytes)] {
            mos.zap_set_u64(dataset, name, number, tx)?;
        }
        Ok(())
    }
}
