//! What is received, and where.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
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
    /// Whether what is sent raw is encrypted with the key of what is above it, if that is encrypted, or with its own. `None`: what is new has its own, and what is
    /// there stays as it is.
    pub inherits_key: Option<bool>,
    /// The property `keylocation` of what is sent raw, if it has a key of its own.
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
    pub(super) _under_way: UnderWay,
}

/// What a broken receive has left, while it is sent on: nobody goes on with it or gives it up meanwhile.
pub struct SavedState {
    /// The dataset: the one that was named, or the hidden child.
    pub dataset: Arc<Dataset>,
    /// The guid of the snapshot that it was to become.
    pub guid: u64,
    /// What the sender called that.
    pub name: String,
    pub(super) _under_way: UnderWay,
}

/// The receives that are under way, and the rollbacks: their datasets are not to be taken for what a crash left. Another one has the redaction lists that are sent by.
#[derive(Debug, Default)]
pub(in crate::dsl) struct Receives {
    /// guards: the datasets' or lists' objects, and how many owners each has: the number of one that was destroyed may be given to another before its owner hears of it
    under_way: Mutex<BTreeMap<u64, usize>>,
}

impl Receives {
    /// Whether a dataset is being received into.
    pub(in crate::dsl) fn is_under_way(&self, dataset: u64) -> bool {
        self.under_way.lock().contains_key(&dataset)
    }

    /// A dataset is new, or it was just looked, under the lock of names, that it is not under way.
    pub(in crate::dsl) fn begin(self: &Arc<Self>, dataset: u64) -> UnderWay {
        *self.under_way.lock().entry(dataset).or_default() += 1;
        UnderWay { receives: self.clone(), dataset }
    }

    /// `None`: it is under way already.
    pub(in crate::dsl) fn begin_alone(self: &Arc<Self>, dataset: u64) -> Option<UnderWay> {
        match self.under_way.lock().entry(dataset) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(place) => place.insert(1),
        };
        Some(UnderWay { receives: self.clone(), dataset })
    }
}

/// A dataset is under way as long as this is there.
#[derive(Debug)]
pub(in crate::dsl) struct UnderWay {
    receives: Arc<Receives>,
    dataset: u64,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Entry::Occupied(mut owners) = self.receives.under_way.lock().entry(self.dataset) {
            *owners.get_mut() -= 1;
            if *owners.get() == 0 {
                owners.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A resume and a `send -S` both had it, and the one that ended first gave it free for the other.
    #[test]
    fn a_dataset_is_under_way_until_the_last_owner_ends() {
        let receives = Arc::new(Receives::default());
        let first = receives.begin_alone(7).unwrap();
        assert!(receives.is_under_way(7) && receives.begin_alone(7).is_none());
        let second = receives.begin(7);
        drop(first);
        assert!(receives.is_under_way(7) && receives.begin_alone(7).is_none());
        drop(second);
        assert!(!receives.is_under_way(7) && receives.begin_alone(7).is_some());
    }
}
