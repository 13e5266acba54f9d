//! What is received, and where.

use std::collections::BTreeSet;
use std::sync::Arc;

use ondisk::nvlist::NvList;
use ondisk::stream::{Begin, StreamFeatures};
use parking_lot::Mutex;

use crate::dmu::Objset;
use crate::dsl::dataset::Dataset;
use crate::dsl::keys::wrapped_key::WrappedKey;
use crate::error::Result;

/// What a stream's first record says.
#[derive(Debug, Clone)]
pub struct StreamHead {
    /// The record.
    pub begin: Begin,
    /// Its payload.
    pub list: NvList,
}

impl StreamHead {
    /// What a receiver must know.
    pub fn features(&self) -> StreamFeatures {
        self.begin.features()
    }

    /// Whether it stands for itself: not incremental.
    pub fn is_full(&self) -> bool {
        self.begin.from_guid == 0
    }

    /// Whether it goes on where another broke off.
    pub fn is_resuming(&self) -> bool {
        self.features().contains(StreamFeatures::RESUMING)
    }

    /// The key that comes with it; `None`: it was not sent raw, of an encrypted dataset.
    ///
    /// # Errors
    /// `Corrupt`: it makes no sense.
    pub(super) fn key(&self) -> Result<Option<WrappedKey>> {
        if self.features().contains(StreamFeatures::RAW) { WrappedKey::parse(&self.list).map(Some) } else { Ok(None) }
    }

    /// The guids of the snapshots that it is redacted with respect to.
    pub(super) fn redact_snapshots(&self) -> Option<&[u64]> {
        self.list.u64_array("redact_snaps")
    }

    /// Those of the bookmark that it begins at.
    pub(super) fn redact_from_snapshots(&self) -> Option<&[u64]> {
        self.list.u64_array("redact_from_snaps")
    }
}

/// Where a stream goes.
#[derive(Debug, Clone, Default)]
pub struct ReceiveTarget {
    /// The file system or volume: `pool/a/b`.
    pub dataset: String,
    /// The name of the snapshot, without the `@`.
    pub snapshot: String,
    /// The snapshot that a new dataset is a clone of.
    pub origin: Option<String>,
    /// Newer snapshots and changes of the dataset are given up for it.
    pub force: bool,
    /// What is there when it breaks off is kept.
    pub resumable: bool,
    /// What is sent raw and new is encrypted with the key of what is above it, if that is encrypted.
    pub inherits_key: bool,
    /// The property `keylocation` of what is sent raw and new, if it has a key of its own.
    pub key_location: Option<String>,
    /// What is sent plain and new stays so, below what is encrypted too (`encryption=off`).
    pub stays_plain: bool,
}

/// A dataset that is being received into.
pub struct ReceivedDataset {
    /// The dataset: new, or the hidden child.
    pub dataset: Arc<Dataset>,
    /// Its objects.
    pub objset: Arc<Objset>,
    /// It is new, and no hidden child.
    pub is_new: bool,
    /// Bytes of the stream that were received before it was resumed.
    pub bytes_before: u64,
    /// When it ends here, something is there already that was received in vain otherwise.
    pub(super) should_save: bool,
    pub(super) target: ReceiveTarget,
    pub(super) receives: Arc<Receives>,
}

impl Drop for ReceivedDataset {
    fn drop(&mut self) {
        self.receives.end(self.dataset.object);
    }
}

/// What a broken receive has left, while it is sent on: nobody goes on with it or gives it up meanwhile.
pub struct SavedState {
    /// The dataset: the one that was named, or the hidden child.
    pub dataset: Arc<Dataset>,
    /// The guid of the snapshot that it was to become.
    pub guid: u64,
    /// What the sender called that.
    pub name: String,
    pub(super) receives: Arc<Receives>,
}

impl Drop for SavedState {
    fn drop(&mut self) {
        self.receives.end(self.dataset.object);
    }
}

/// The receives that are under way, and the rollbacks: their datasets are not to be taken for what a crash left.
#[derive(Debug, Default)]
pub(in crate::dsl) struct Receives {
    /// guards: the datasets' objects
    under_way: Mutex<BTreeSet<u64>>,
}

impl Receives {
    /// Whether a dataset is being received into.
    pub(in crate::dsl) fn is_under_way(&self, dataset: u64) -> bool {
        self.under_way.lock().contains(&dataset)
    }

    pub(in crate::dsl) fn begin(&self, dataset: u64) {
        self.under_way.lock().insert(dataset);
    }

    pub(in crate::dsl) fn end(&self, dataset: u64) {
        self.under_way.lock().remove(&dataset);
    }
}
