//! Applying records, as many in one transaction as there are.

use std::collections::VecDeque;
use std::sync::Arc;

use ondisk::blkptr::Secrets;
use ondisk::dnode::OBJECTS_MAX;
use ondisk::stream::{BEGIN_FLAG_SPILL_BLOCK, RECORD_SIZE, RecordBody, StreamFeatures, StreamOrder};

use super::queue::Item;
use crate::dmu::{Dnode, Membership, ObjectId, Objset, OpenTx, Tx};
use crate::dsl::{Meta, ReceivedDataset, ResumePoint, StreamHead};
use crate::error;
use crate::error::{ErrorKind, Result, Within};

/// What an object takes beside its contents.
const OBJECT_BYTES: u64 = 2048;

/// What became of a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is applied.
    Done,
    /// What it freed must be on disk before it can be: once more then.
    AfterSync,
    /// A part of it is applied; the rest is in the next transaction.
    Again,
}

/// Applies the records of one stream.
pub(super) struct Applier<'a> {
    pub(super) meta: Arc<Meta>,
    pub(super) received: &'a ReceivedDataset,
    pub(super) objset: Arc<Objset>,
    pub(super) features: StreamFeatures,
    /// The stream has the other byte order.
    pub(super) is_swapped: bool,
    /// It stands for itself.
    pub(super) is_full: bool,
    /// It stands for itself, and was received on top of another file system's snapshot all the same.
    pub(super) is_clone: bool,
    /// It is of an encrypted dataset, and comes as that is on disk.
    pub(super) is_raw: bool,
    /// OBJECT records say whether there is a spill block.
    pub(super) knows_spill: bool,
    /// The object that the last record was about.
    pub(super) held: Option<Arc<Dnode>>,
    /// The place of the last WRITE record.
    pub(super) last: (ObjectId, u64),
    /// The highest number of an object.
    pub(super) highest: ObjectId,
    /// So many objects were freed in this transaction because they are no more.
    pub(super) freed: usize,
    /// Of a raw stream: the block of dnodes whose objects come now, and what protects it.
    pub(super) range: Option<(u64, Secrets)>,
}

impl<'a> Applier<'a> {
    pub(super) fn new(meta: Arc<Meta>, received: &'a ReceivedDataset, head: &StreamHead, order: StreamOrder) -> Applier<'a> {
        Applier {
            meta,
            received,
            objset: received.objset.clone(),
            features: head.features(),
            is_swapped: order == StreamOrder::Big,
            is_full: head.is_full(),
            is_clone: head.is_full() && received.dataset.origin().is_ok_and(|origin| origin.is_some()),
            is_raw: head.features().contains(StreamFeatures::RAW),
            knows_spill: head.begin.flags & BEGIN_FLAG_SPILL_BLOCK != 0,
            held: None,
            last: (0, 0),
            highest: 0,
            freed: 0,
            range: None,
        }
    }

    /// Applies records in their order.
    pub(super) fn apply_all(&mut self, items: Vec<Item>) -> Result<()> {
        if self.is_raw != self.objset.is_locked() {
            return Err(error!(Corrupt, "{}: what was sent raw goes into encrypted datasets, and nothing else does", self.objset.name()));
        }
        let mut items = VecDeque::from(items);
        let membership = Membership::single(self.objset.clone());
        while let Some(first) = items.front() {
            let bytes = items.iter().map(needed_bytes).sum();
            let (tx, mut most) = match OpenTx::assign(&membership, bytes) {
                Ok(tx) => (tx, usize::MAX),
                Err(error) if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Quota) => (scarce(&membership, first, error)?, 1),
                Err(error) => return Err(error),
            };
            self.freed = 0;
            let mut must_wait = false;
            while most > 0 && let Some(item) = items.front_mut() {
                let place = item.received.place();
                let outcome = self.apply(&tx, item).within(|| &place)?;
                if outcome == Outcome::AfterSync {
                    if std::mem::replace(&mut item.has_waited, true) {
                        return Err(error!(Corrupt, "{place}: the places of its dnode are taken by other objects"));
                    }
                    must_wait = true;
                    break;
                }
                if outcome == Outcome::Again {
                    break;
                }
                items.pop_front();
                most -= 1;
            }
            drop(tx);
            if must_wait {
                self.wait_synced()?;
            }
        }
        Ok(())
    }

    fn wait_synced(&mut self) -> Result<()> {
        self.held = None;
        let groups = &self.objset.context().groups;
        groups.wait_synced(groups.open_txg())
    }

    fn apply(&mut self, tx: &Tx, item: &mut Item) -> Result<Outcome> {
        let Item { received, payload, .. } = item;
        match &mut received.record.body {
            RecordBody::Object(object) => {
                let outcome = self.object(tx, object, payload)?;
                if outcome == Outcome::Done {
                    self.note(tx, received.position, payload.len(), (object.object, 0));
                }
                return Ok(outcome);
            }
            RecordBody::FreeObjects(free) => return self.free_objects(tx, free),
            RecordBody::Write(write) => {
                let length = payload.len();
                if self.is_raw {
                    self.raw_write(tx, write, payload)?;
                } else {
                    self.write(tx, write, payload)?;
                }
                self.note(tx, received.position, length, (write.object, write.offset));
            }
            RecordBody::WriteEmbedded(_) if self.is_raw => return Err(error!(Corrupt, "no contents of an encrypted dataset are in pointers")),
            RecordBody::WriteEmbedded(write) => {
                self.write_embedded(tx, write, payload)?;
                self.note(tx, received.position, payload.len(), (write.object, write.offset));
            }
            RecordBody::Free(free) => self.free(tx, free.object, free.offset, free.bytes)?,
            RecordBody::Redact(redact) => self.redact(tx, redact)?,
            RecordBody::Spill(spill) if self.is_raw => self.raw_spill(tx, spill, payload)?,
            RecordBody::Spill(spill) => self.spill(tx, spill, payload)?,
            RecordBody::WriteByReference(_) => {
                return Err(error!(NotSupported, "deduplicated streams are not received any more: 'zstream redup' makes others of them"));
            }
            RecordBody::ObjectRange(range) => self.object_range(range)?,
            RecordBody::Begin(_) | RecordBody::End(_) => return Err(error!(Corrupt, "it stands in the middle of a stream")),
        }
        Ok(Outcome::Done)
    }

    /// The group has the stream up to this record.
    fn note(&self, tx: &Tx, position: u64, payload: usize, (object, offset): (ObjectId, u64)) {
        if self.received.is_resumable() {
            // The BEGIN record itself does not count.
            let bytes = self.received.bytes_before + position + payload as u64;
            self.received.dataset.resume_points().note(tx.txg(), ResumePoint { object, offset, bytes });
        }
    }

    /// The object with that number, which must be there. The dnodes themselves, and the accounting, have numbers too: a stream does not get at those.
    pub(super) fn hold(&mut self, object: ObjectId) -> Result<Arc<Dnode>> {
        if object == 0 || object >= OBJECTS_MAX {
            return Err(error!(Corrupt, "object {object} cannot be"));
        }
        self.highest = self.highest.max(object);
        if let Some(held) = self.held.as_ref().filter(|held| held.object() == object) {
            return Ok(held.clone());
        }
        let dnode = self.objset.hold(object).map_err(|error| match error.kind() {
            ErrorKind::NotFound => error!(Corrupt, "there is no object {object}"),
            _ => error,
        })?;
        self.held = Some(dnode.clone());
        Ok(dnode)
    }

    /// All records are applied. A full stream that was received as a clone has no objects beyond those that it speaks of.
    pub(super) fn free_rest(&mut self) -> Result<()> {
        if !self.is_clone {
            return Ok(());
        }
        self.wait_synced()?;
        let membership = Membership::single(self.objset.clone());
        let mut at = self.highest;
        while let Some(object) = self.objset.next_object(at)? {
            let tx = OpenTx::assign_freeing(&membership)?;
            self.objset.free(&tx, object)?;
            at = object;
        }
        Ok(())
    }
}

/// What a record may take on disk.
fn needed_bytes(item: &Item) -> u64 {
    match &item.received.record.body {
        RecordBody::Object(_) => OBJECT_BYTES,
        RecordBody::Write(write) => write.logical_bytes.min(16 << 20),
        RecordBody::WriteEmbedded(_) | RecordBody::Spill(_) => item.payload.len() as u64 + RECORD_SIZE as u64,
        _ => 0,
    }
}

/// There is no room for all of it: a record that frees may make some.
fn scarce<'m>(membership: &'m Membership, first: &Item, error: crate::error::Error) -> Result<OpenTx<'m>> {
    match &first.received.record.body {
        RecordBody::Free(_) | RecordBody::FreeObjects(_) | RecordBody::Redact(_) => OpenTx::assign_freeing(membership),
        _ => match OpenTx::assign(membership, needed_bytes(first)) {
            Ok(tx) => Ok(tx),
            Err(_) => Err(error),
        },
    }
}
