//! Beginning, ending and giving up the receiving of one stream.

use std::sync::Arc;

use ondisk::dsl::dataset_field as field;
use parking_lot::Mutex;

use super::RECEIVED_BELOW;
use super::begin_sync::begin_sync;
use super::checks::{check_begin, has_resume_state};
use super::end_sync::Ending;
use super::target::{ReceiveTarget, ReceivedDataset, SavedState, StreamHead};
use crate::canary::Canary;
use crate::dsl::dataset::Dataset;
use crate::dsl::dsl::Dsl;
use crate::dsl::snapshots::rollback_sync::ROLLBACK_NAME;
use crate::dsl::space::room::SpaceCheck;
use crate::error;
use crate::error::{Error, ErrorKind, Result};

/// So often a stream asks again for a dataset that is in use.
const BUSY_TRIES: u32 = 4;

fn busy(name: &str) -> Error {
    error!(Busy, "'{name}': dataset is busy")
}

/// What can be done with a dataset that a stream is received into.
#[derive(Debug)]
pub struct ReceiveVerbs<'d>(pub(in crate::dsl) &'d Arc<Dsl>);

impl ReceiveVerbs<'_> {
    /// Makes the dataset that a stream is received into, or finds the one that it goes on with, and waits until it is on disk.
    ///
    /// # Errors
    /// `Exists`, `NotFound`, `Busy`, `Mismatch` (there is no snapshot that it is incremental from), `Modified` (changed since), `NotSupported`,
    /// `Unsupported`, `Invalid`, `NoSpace`.
    pub fn begin_receive(&self, target: ReceiveTarget, head: &StreamHead) -> Result<ReceivedDataset> {
        self.destroy_unwanted(&target.dataset)?;
        let head = Arc::new(head.clone());
        let (checked, checked_head) = (target.clone(), head.clone());
        let check = move |dsl: &Arc<Dsl>| check_begin(&dsl.parts, &checked, &checked_head).map(drop);
        self.0.run_task(5, SpaceCheck::Normal, check, move |dsl, tx| begin_sync(&dsl.parts, target, &head, tx))
    }

    /// All of a stream is there: it becomes a snapshot, and the dataset what it was received for.
    ///
    /// # Errors
    /// `Busy` (somebody uses what is replaced), `Exists`, `Modified`, `Quota`, `NoSpace`, `Suspended`. Then nothing is changed, and [`ReceiveVerbs::abandon_receive`]
    /// cleans up what comes with the error. Nothing comes if the pool stopped in the middle: it may be there or not when the pool goes on.
    pub fn end_receive(&self, received: ReceivedDataset, head: &StreamHead) -> Result<(), (Error, Option<ReceivedDataset>)> {
        let received = Arc::new(Mutex::new(Some(received)));
        let head = Arc::new(head.clone());
        let mut left = BUSY_TRIES;
        loop {
            let (kept, head) = (received.clone(), head.clone());
            let change = move |dsl: &Arc<Dsl>, tx: &crate::dmu::SyncTx<'_>| {
                let received = kept.lock();
                let Some(received) = received.as_ref() else { return Ok(Err(error!(Suspended, "the pool goes on after the receive was given up"))) };
                let ending = Ending { target: &received.target, head: &head, dataset: &received.dataset, is_new: received.is_new };
                match ending.check(&dsl.parts, Some(tx.txg())) {
                    Ok(()) => ending.end_sync(&dsl.parts, tx).map(Ok),
                    Err(refused) => Ok(Err(refused)),
                }
            };
            let answer = self.0.run_task(3, SpaceCheck::Normal, |_| Ok(()), change).and_then(|answer| answer);
            match answer {
                Ok(()) => return Ok(()),
                // Another snapshot of this dataset is of the same group.
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                // Somebody may just be looking at it.
                Err(error) if error.kind() == ErrorKind::Busy && left > 0 => left -= 1,
                // Where nobody waits for the change any more it may still be queued: then it finds nothing to do. One that is being made is left to be made.
                Err(error) => return Err((error, received.try_lock().and_then(|mut received| received.take()))),
            }
        }
    }

    /// The stream broke off. What is there of it is kept, if it was to be, and else destroyed.
    ///
    /// # Errors
    /// It cannot be destroyed; the next import does it.
    #[doc(alias = "dmu_recv_cleanup_ds")]
    pub fn abandon_receive(&self, received: ReceivedDataset) -> Result<()> {
        let context = &self.0.meta.context;
        context.groups.wait_synced_unless(context.groups.open_txg(), &|| context.io.devices().suspension())?;
        let has_any = !received.dataset.phys().block.is_hole();
        if received.target.resumable && received.should_save && has_any && has_resume_state(&self.0.parts, received.dataset.object)? {
            return Ok(());
        }
        let left = received.dataset.clone();
        drop(received);
        self.0.destroy_unfinished(&left)
    }

    /// What an interrupted receive has left of a file system or volume, to be sent on.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` (there is nothing), `Busy` (it is being received).
    pub fn saved_state(&self, name: &str) -> Result<SavedState> {
        let (dataset, under_way) = {
            // One that is resumed is taken by the sync thread, with all names for itself.
            let _names = self.0.lock_names();
            let dataset = self.leftover(name)?;
            let under_way = self.0.parts.receives.begin_alone(dataset.object).ok_or_else(|| busy(name))?;
            (dataset, under_way)
        };
        let mos = &self.0.meta.mos;
        let guid = mos.zap_u64(dataset.object, field::RESUME_TO_GUID)?;
        let sent = mos.zap_get(dataset.object, field::RESUME_TO_NAME)?.map(|value| value.to_text());
        let (Some(guid), Some(sent)) = (guid, sent) else { return Err(error!(Corrupt, "'{name}': nothing says what was received")) };
        Ok(SavedState { dataset, guid, name: sent, _under_way: under_way })
    }

    /// What a stream goes into, or would: the hidden child, if there is one, or the dataset. The caller holds the lock of names.
    fn receiver_of(&self, name: &str) -> Result<Arc<Dataset>> {
        let dataset = self.0.dataset_by_name(name)?;
        match self.0.find_child(&dataset.dir, RECEIVED_BELOW)? {
            Some(below) => self.0.dataset(below.phys().head_dataset.get()),
            None => Ok(dataset),
        }
    }

    /// What an interrupted receive has left to be resumed. The caller holds the lock of names.
    fn leftover(&self, name: &str) -> Result<Arc<Dataset>> {
        let target = self.receiver_of(name)?;
        if target.is_snapshot || !target.is_inconsistent() || !has_resume_state(&self.0.parts, target.object)? {
            return Err(error!(Invalid, "'{name}' does not have any resumable receive state to abort"));
        }
        if self.0.parts.receives.is_under_way(target.object) {
            return Err(busy(name));
        }
        Ok(target)
    }

    /// What a receive left that ended while the pool was stopped, and is not to be resumed, is not in the way of the next one. The next import would destroy it.
    fn destroy_unwanted(&self, name: &str) -> Result<()> {
        let unwanted = {
            let _names = self.0.lock_names();
            let Ok(dataset) = self.receiver_of(name) else { return Ok(()) };
            let is_unwanted = !dataset.is_snapshot && dataset.is_inconsistent() && !has_resume_state(&self.0.parts, dataset.object)?;
            if !is_unwanted || self.0.parts.receives.is_under_way(dataset.object) {
                return Ok(());
            }
            dataset
        };
        self.0.destroy_unfinished(&unwanted)
    }

    /// Gives up what an interrupted receive has left to be resumed.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` (there is nothing), `Busy` (it is being received).
    pub fn abort_receive(&self, name: &str) -> Result<()> {
        let left = {
            let _names = self.0.lock_names();
            self.leftover(name)?
        };
        self.0.destroy_unfinished(&left)
    }

    /// A dataset is to be destroyed: what an interrupted receive or rollback has left below it, where nobody sees it, is not in the way.
    pub(in crate::dsl) fn destroy_leftovers(&self, name: &str) -> Result<()> {
        [RECEIVED_BELOW, ROLLBACK_NAME].into_iter().try_for_each(|below| self.destroy_leftover(name, below))
    }

    /// As [`ReceiveVerbs::destroy_leftovers`], of one name.
    pub(in crate::dsl) fn destroy_leftover(&self, name: &str, below: &str) -> Result<()> {
        let leftover = {
            let _names = self.0.lock_names();
            let Ok(dir) = self.0.dir_by_name(name) else { return Ok(()) };
            let Some(below) = self.0.find_child(&dir, below)? else { return Ok(()) };
            self.0.dataset(below.phys().head_dataset.get())?
        };
        if self.0.parts.receives.is_under_way(leftover.object) {
            return Err(busy(name));
        }
        let leftover = leftover.name()?;
        self.0.destroy_dataset(&leftover)
    }

    /// Destroys what receives and rollbacks left that broke off with the pool, and are not to be resumed. When a pool is opened.
    ///
    /// # Errors
    /// The tree cannot be read.
    #[doc(alias = "dsl_destroy_inconsistent")]
    pub fn destroy_inconsistent(&self) -> Result<()> {
        if self.0.meta.context.tunables.canary == Some(Canary::HalfReceivedStays) {
            return Ok(());
        }
        let mut waiting = vec![self.0.root_dir()?];
        while let Some(dir) = waiting.pop() {
            waiting.extend(self.0.children(&dir)?.into_iter().map(|(_, child)| child));
            let Some(below) = Some(dir.phys().head_dataset.get()).filter(|head| *head != 0) else { continue };
            let head = self.0.dataset(below)?;
            if !head.is_inconsistent() || has_resume_state(&self.0.parts, head.object)? || self.0.parts.receives.is_under_way(head.object) {
                continue;
            }
            let name = head.name()?;
            drop(head);
            if let Err(error) = self.0.destroy_dataset(&name) {
                tracing::warn!("what is left of a receive that broke off is not destroyed: {error}");
            }
        }
        Ok(())
    }
}

impl ReceivedDataset {
    /// The stream makes sense so far: from now on it is worth being resumed.
    pub fn save_from_now_on(&mut self) {
        self.should_save = true;
    }

    /// Whether places are to be noted.
    pub fn is_resumable(&self) -> bool {
        self.target.resumable
    }
}
