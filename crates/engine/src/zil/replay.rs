//! Replay: the operations that a log describes are done again.
//!
//! # Theory
//! The records are handed, one by one and in order, to the layer that knows what they mean ([`Replay`]). Each of its
//! transactions notes, through [`Zil::note`], which record it belongs to, and the header that is written with the same
//! group has the number of the last one. So a crash in the midst of a replay repeats nothing and leaves nothing out.
//! Some records may be in the log although their object is gone, since a file's own records are logged apart from those
//! of names, and since a hidden directory of extended attributes goes with its file: they are passed over.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ondisk::zil::{self, Record, RecordHeader};

use super::Zil;
use super::claim::{claimed_blocks, data_block};
use super::walk::{Extent, LogBlock, bookmark, records, walk};
use crate::dmu::Objset;
use crate::error::{Error, ErrorKind, Result, Within};

/// The layer that knows what records mean (upward call: implemented by the layer of files).
pub trait Replay {
    /// Does what the record says. `data`: the block that a record of a write points to.
    ///
    /// # Errors
    /// It cannot be done. It is tried once more after all removals before it are on disk.
    fn replay(&self, record: Record<'_>, data: Option<&[u8]>) -> Result<()>;
}

/// The result of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Records that were replayed.
    pub records: u64,
    /// Records about objects that are gone.
    pub passed_over: u64,
    /// Which records are lost, and why: the first that could not be replayed or read, and those after it.
    pub lost: Option<String>,
}

impl Replayed {
    fn lose(&mut self, name: &str, lost: String) {
        tracing::warn!("{name}: {lost}");
        self.lost = Some(lost);
    }
}

/// While this lives, a record is being replayed. However the replay ends: what is done afterwards is logged again, and passes for no record.
struct Replaying<'a>(&'a AtomicU64);

impl Drop for Replaying<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

impl Zil {
    /// Whether the log holds something that must be replayed before the object set may be used.
    pub fn needs_replay(&self) -> bool {
        self.chain.lock().header.flags.get() & zil::LOG_FLAG_REPLAY_NEEDED != 0
    }

    /// Replays a claimed log, then frees it, and waits until both are on disk. As in OpenZFS, a record that cannot be done is
    /// the end of the replay: what follows it is lost, and the result says so. Not so if a device is to blame: then nothing is lost.
    ///
    /// # Errors
    /// The pool stopped, or the log cannot be read.
    pub fn replay(self: &Arc<Self>, objset: &Objset, wait_synced: &dyn Fn() -> Result<()>, replay: &dyn Replay) -> Result<Replayed> {
        let mut done = Replayed::default();
        let header = self.chain.lock().header;
        if header.flags.get() & zil::LOG_FLAG_REPLAY_NEEDED == 0 {
            return Ok(done);
        }
        let name = objset.name();
        let (claim_txg, last) = (header.claim_txg.get(), header.claim_record_sequence.get());
        let has_last = header.flags.get() & zil::LOG_FLAG_CLAIM_SEQUENCE_VALID != 0;
        let is_last = |head: &RecordHeader| has_last && head.sequence.get() > last;
        wait_synced()?;
        let replaying = Replaying(&self.replaying);
        let (mut seen, mut is_cut) = (header.replay_sequence.get(), false);
        walk(&self.context.io, self.dataset, &header, Extent::Whole, &mut |block: LogBlock<'_>| {
            is_cut |= block.records.is_none() && block.sequence < header.claim_block_sequence.get();
            for record in records(&block) {
                let Ok((head, bytes)) = record else { return Ok(ControlFlow::Break(())) };
                if is_last(&head) {
                    return Ok(ControlFlow::Break(()));
                }
                let sequence = head.sequence.get();
                seen = seen.max(sequence);
                if sequence <= header.replay_sequence.get() || head.txg.get() < claim_txg {
                    continue;
                }
                replaying.0.store(sequence, Ordering::Release);
                let attempt = || self.replay_record(objset, bytes, block.sequence, replay);
                let result = attempt().or_else(|_| wait_synced().and_then(|()| attempt()));
                match result {
                    Ok(true) => done.records += 1,
                    Ok(false) => done.passed_over += 1,
                    // The log stays as it is, for an import that can read it.
                    Err(error) if matches!(error.kind(), ErrorKind::NoDevice | ErrorKind::Io | ErrorKind::Suspended) => return Err(error),
                    Err(error) => {
                        done.lose(&name, format!("record {sequence} of the intent log cannot be replayed, and those after it are lost: {error}"));
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
            Ok(ControlFlow::Continue(()))
        })
        .within(|| format!("{name}: replay of the intent log"))?;
        drop(replaying);
        // All of it was there when it was claimed.
        let is_short = if has_last { seen < last } else { is_cut };
        if is_short && done.lost.is_none() {
            done.lose(&name, format!("the intent log is damaged behind record {seen}, and those after it are lost; its space there stays allocated"));
        }
        self.free_claimed(objset)?;
        wait_synced()?;
        Ok(done)
    }

    /// Gives up what is left of a claimed log that cannot be replayed, because of `why`. Space of it that cannot be found stays allocated.
    pub fn give_up_claimed(&self, objset: &Objset, why: &Error) -> Replayed {
        let lost = format!("what is left of the intent log cannot be replayed and is given up: {why}");
        tracing::warn!("{}: {lost}", objset.name());
        let header = self.chain.lock().header;
        let blocks = claimed_blocks(&self.context.io, self.dataset, &header).unwrap_or_else(|error| {
            tracing::warn!("{}: not all of its intent log can be found and freed: {error}", objset.name());
            Vec::new()
        });
        let hold = self.context.groups.hold();
        self.forget_claimed(blocks, hold.txg());
        Replayed { lost: Some(lost), ..Replayed::default() }
    }

    /// `false`: its object is gone.
    fn replay_record(&self, objset: &Objset, bytes: &[u8], block: u64, replay: &dyn Replay) -> Result<bool> {
        let record = Record::decode(bytes)?;
        for object in needed_by(&record).into_iter().flatten() {
            match objset.hold(zil::object_of(object)) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
                other => drop(other?),
            }
        }
        let data = match data_block(bytes) {
            Some(pointer) if pointer.is_hole() => Some(Arc::new(Vec::new())),
            Some(pointer) => Some(self.context.io.read(&pointer, &bookmark(self.dataset, block))?),
            None => None,
        };
        replay.replay(record, data.as_ref().map(|data| data.as_slice()))?;
        Ok(true)
    }

    /// Frees a claimed log, replayed or not, in the open group.
    fn free_claimed(&self, objset: &Objset) -> Result<()> {
        let header = self.chain.lock().header;
        let blocks = claimed_blocks(&self.context.io, self.dataset, &header).within(|| objset.name())?;
        let hold = self.context.groups.hold();
        self.forget_claimed(blocks, hold.txg());
        Ok(())
    }
}

/// The objects that must be there for a record: whose contents it is about, or the directories that it names.
fn needed_by(record: &Record<'_>) -> [Option<u64>; 2] {
    match record {
        Record::Write(_, write, _) => [Some(write.object.get()), None],
        Record::Truncate(truncate) => [Some(truncate.object.get()), None],
        Record::SetAttr(set, _) => [Some(set.object.get()), None],
        Record::SetSaXattr(set, _) => [Some(set.object.get()), None],
        Record::AclV0(acl, _) => [Some(acl.object.get()), None],
        Record::Acl(acl, _) => [Some(acl.object.get()), None],
        Record::CloneRange(clone, _) => [Some(clone.object.get()), None],
        Record::Create(_, create, _) => [Some(create.dir.get()), None],
        Record::Remove(_, remove, _) => [Some(remove.dir.get()), None],
        Record::Link(link, _) => [Some(link.dir.get()), None],
        Record::Rename(_, rename, _) => [Some(rename.from_dir.get()), Some(rename.to_dir.get())],
        Record::RenameWhiteout(rename, _) => [Some(rename.from_dir.get()), Some(rename.to_dir.get())],
        Record::Commit => [None, None],
    }
}
