//! One stream: what is sent, and the sending.

use std::io::{Write, sink};
use std::sync::Arc;

use ondisk::dnode::DNODES_PER_BLOCK;
use ondisk::dsl::{BOOKMARK_FLAG_HAS_FREED_BEFORE_NEXT, BookmarkPhys, dataset_field};
use ondisk::nvlist::NvList;
use ondisk::object_type::ObjectType;
use ondisk::stream::{Begin, RecordBody, StreamFeatures};

use super::ahead::Ahead;
use super::begin::{begin, features, key_data, redaction_snapshots};
use super::estimate::estimate;
use super::item::{Blocks, DataBlock, Item};
use super::merge::Merge;
use super::records::Manner;
use super::redaction::{RedactionList, head};
use super::walk::Walk;
use super::writer::{Payload, RecordWriter};
use crate::dmu::Objset;
use crate::dsl::{Dataset, Dsl, SavedState, SentBookmark};
use crate::error::{ErrorKind, Result};
use crate::{bail, error};

/// What is wanted of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SendOptions {
    /// Blocks of more than 128 KiB as they are (`-L`).
    pub large_blocks: bool,
    /// Contents that are in their pointers stay there (`-e`).
    pub embedded: bool,
    /// Compressed as on disk (`-c`).
    pub compressed: bool,
    /// Encrypted as on disk (`-w`).
    pub raw: bool,
    /// Where another stream of the same broke off: object and offset.
    pub resume: Option<(u64, u64)>,
    /// The redaction bookmark of what is to be left out, without the dataset's name.
    pub redact: Option<String>,
    /// What a broken receive has left of the dataset that is named instead of a snapshot.
    pub saved: bool,
    /// A file system or volume itself, which nobody changes meanwhile, is named instead of a snapshot.
    pub head: bool,
}

/// What a stream is incremental from.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pub(super) guid: u64,
    pub(super) txg: u64,
    /// It is of another dataset.
    pub(super) is_clone: bool,
    is_bookmark: bool,
    pub(super) ivset_guid: u64,
    /// The redaction list, or 0.
    pub(super) redaction_list: u64,
    /// The guids of the redaction snapshots, if it was received redacted.
    redacted: Option<Vec<u64>>,
    /// What it referred to, and what was freed since, as a bookmark has it.
    pub(super) bookmark: BookmarkPhys,
}

/// A stream that can be sent. While it lives, the snapshot and the redaction lists cannot be destroyed.
pub struct Sender {
    dsl: Arc<Dsl>,
    dataset: Arc<Dataset>,
    objset: Arc<Objset>,
    from: Option<Origin>,
    begin: Begin,
    list: NvList,
    features: StreamFeatures,
    /// Object and block.
    resume: Option<(u64, u64)>,
    redact: u64,
    /// What a broken receive left: it stays as it is meanwhile.
    saved: Option<SavedState>,
    /// The bookmarks that it is sent by and from.
    _bookmarks: Vec<SentBookmark>,
}

impl Sender {
    /// Looks up what is to be sent: a snapshot, from nothing or from an older snapshot or a bookmark, all by full names.
    ///
    /// # Errors
    /// `NotFound`; `CrossDevice`: what it is to be incremental from is not older; `KeyNotLoaded`; `NotSupported`.
    pub fn new(dsl: &Arc<Dsl>, snapshot: &str, from: Option<&str>, options: &SendOptions) -> Result<Sender> {
        let saved = if options.saved { Some(dsl.receiving().saved_state(snapshot)?) } else { None };
        let dataset = match &saved {
            Some(saved) => saved.dataset.clone(),
            None => dsl.open_dataset(snapshot)?,
        };
        if !dataset.is_snapshot && saved.is_none() && !options.head && !dsl.meta.context.read_only {
            bail!(Invalid, "{snapshot}: only snapshots are sent");
        }
        let objset = dsl.objset(&dataset)?;
        if objset.is_locked() && !options.raw {
            bail!(KeyNotLoaded, "{snapshot}: the encryption key is not loaded");
        }
        let head_name = snapshot.split(['@', '#']).next().unwrap_or(snapshot);
        let mut bookmarks = Vec::new();
        let from = from.map(|from| origin(dsl, &dataset, head_name, from, &mut bookmarks)).transpose()?;
        let redact = match &options.redact {
            Some(name) => kept_bookmark(dsl, head_name, name, &mut bookmarks)?.redaction_list.get(),
            None => 0,
        };
        if options.redact.is_some() && redact == 0 {
            bail!(Invalid, "not a redaction bookmark");
        }
        let features = features(dsl, &dataset, &objset, options)?;
        let name = if let Some(saved) = &saved {
            saved.name.clone()
        } else if dataset.is_snapshot { dataset.name()? } else { format!("{}@--head--", dataset.name()?) };
        let mut begin = begin(&dataset, &objset, from.as_ref(), features, &name)?;
        begin.to_guid = saved.as_ref().map_or(begin.to_guid, |saved| saved.guid);
        let resume = match options.resume {
            Some((object, offset)) => Some((object, offset / objset.hold(object)?.block_bytes().max(1))),
            None => None,
        };
        let list = NvList::new();
        let mut sender = Sender { dsl: dsl.clone(), dataset, objset, from, begin, list, features, resume, redact, saved, _bookmarks: bookmarks };
        sender.list = sender.begin_list(options)?;
        Ok(sender)
    }

    fn begin_list(&self, options: &SendOptions) -> Result<NvList> {
        let mos = &self.dsl.meta.mos;
        let mut list = NvList::new();
        let redacted = if self.redact == 0 { redaction_snapshots(&self.dataset, &self.dsl)? } else { Some(head(mos, self.redact)?.1) };
        if let Some(guids) = redacted {
            list.set("redact_snaps", guids);
        }
        if let Some(from) = &self.from {
            if from.redaction_list != 0 {
                list.set("redact_from_snaps", head(mos, from.redaction_list)?.1);
            } else if let Some(guids) = &from.redacted {
                list.set("redact_from_snaps", guids.clone());
            }
        }
        if let Some((object, offset)) = options.resume {
            list.set("resume_object", object);
            list.set("resume_offset", offset);
        }
        if self.features.contains(StreamFeatures::RAW) {
            let ivset_guid = self.from.as_ref().map_or(0, |from| from.ivset_guid);
            list.set("crypt_keydata", key_data(&self.dsl, &self.dataset, &self.objset, ivset_guid)?);
        }
        Ok(list)
    }

    /// The snapshot's guid.
    pub fn guid(&self) -> u64 {
        self.begin.to_guid
    }

    /// Writes the stream. `is_over` is asked now and then: whether nobody wants it any more.
    ///
    /// # Errors
    /// A block cannot be read, or the stream cannot be written.
    pub fn send(&self, out: &mut dyn Write, is_over: &dyn Fn() -> bool) -> Result<()> {
        self.run(out, false, is_over).map(drop)
    }

    /// How many bytes the stream would have, to the byte; what it is about is read, contents are not.
    ///
    /// # Errors
    /// A block cannot be read.
    pub fn count(&self, is_over: &dyn Fn() -> bool) -> Result<u64> {
        self.run(&mut sink(), true, is_over)
    }

    /// About how many bytes the stream would have, as OpenZFS reckons it: from what is counted. `None`: only counting says it.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn estimate(&self) -> Result<Option<u64>> {
        let is_bookmark = self.from.as_ref().is_some_and(|from| from.is_bookmark);
        let counts = |from: &Origin| from.bookmark.flags.get() & BOOKMARK_FLAG_HAS_FREED_BEFORE_NEXT != 0 && from.redaction_list == 0;
        if self.redact != 0 || (is_bookmark && !self.from.as_ref().is_some_and(counts)) {
            return Ok(None);
        }
        let compressed = self.features.contains(StreamFeatures::COMPRESSED);
        estimate(&self.dsl, &self.dataset, self.from.as_ref().map(|from| &from.bookmark), compressed).map(Some)
    }

    fn run(&self, out: &mut dyn Write, is_dry: bool, is_over: &dyn Fn() -> bool) -> Result<u64> {
        let context = self.objset.context();
        let manner = Manner {
            features: self.features,
            guid: self.begin.to_guid,
            after_txg: self.from.as_ref().map_or(0, |from| from.txg),
            objects_end: (self.objset.meta().max_block() + 1).saturating_mul(DNODES_PER_BLOCK),
            first_object: self.resume.map_or(0, |(object, _)| object),
            is_dry,
        };
        let mut writer = RecordWriter::new(out, self.begin.to_guid, is_dry);
        let payload = if self.list.is_empty() { Vec::new() } else { self.list.encode_native() };
        writer.record(RecordBody::Begin(Box::new(self.begin.clone())), Payload::Bytes(&payload))?;
        let mut ahead = Ahead::new(&self.objset);
        let mut take = |item: Item| {
            self.looked_up(item, &mut |item| {
                ahead.put(item, |block| manner.form(block));
                while ahead.is_full() {
                    write_next(&mut ahead, &manner, &mut writer)?;
                }
                Ok(())
            })
        };
        let mos = &self.dsl.meta.mos;
        let list = |object: u64| if object == 0 { Ok(None) } else { RedactionList::open(mos, object, self.resume).map(Some) };
        let before = self.from.as_ref().map_or(0, |from| from.redaction_list);
        let mut merge = Merge { redact: list(self.redact)?, before: list(before)?, take: &mut take };
        let walk = Walk {
            context,
            presence: self.objset.presence(),
            objset: self.dataset.object,
            after_txg: manner.after_txg,
            resume: self.resume,
            raw: self.features.contains(StreamFeatures::RAW),
            is_over,
        };
        walk.run(&self.objset.pointer(), &mut |item| merge.put(item))?;
        merge.finish()?;
        while write_next(&mut ahead, &manner, &mut writer)? {}
        writer.finish(self.saved.is_none())?;
        Ok(writer.bytes)
    }

    /// What was redacted before is there now, or a hole, or gone.
    fn looked_up(&self, item: Item, take: &mut dyn FnMut(Item) -> Result<()>) -> Result<()> {
        let Item::RedactedBefore(blocks) = item else { return take(item) };
        let dnode = match self.objset.hold(blocks.object) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            dnode => dnode?,
        };
        let (bytes, object_type): (u64, ObjectType) = (dnode.block_bytes(), dnode.object_type());
        let mut hole: Option<Blocks> = None;
        for block in blocks.first..blocks.end.min(dnode.max_block().saturating_add(1)) {
            let pointer = dnode.block_pointer(block)?;
            if pointer.is_hole() {
                hole = Some(Blocks { object: blocks.object, first: hole.map_or(block, |hole| hole.first), end: block + 1, bytes });
                continue;
            }
            hole.take().map_or(Ok(()), |hole| take(Item::Hole(hole)))?;
            let one = Blocks { object: blocks.object, first: block, end: block + 1, bytes };
            let data = DataBlock { object: blocks.object, block, bytes, object_type, pointer };
            take(if pointer.is_redacted() { Item::Redacted(one) } else { Item::Data(data) })?;
        }
        hole.map_or(Ok(()), |hole| take(Item::Hole(hole)))
    }
}

/// Writes the first part that waits, if there is one.
fn write_next(ahead: &mut Ahead<'_>, manner: &Manner, writer: &mut RecordWriter<'_>) -> Result<bool> {
    let Some(next) = ahead.next() else { return Ok(false) };
    let (item, contents) = next?;
    manner.write(&item, contents.as_ref(), writer)?;
    Ok(true)
}

/// A bookmark of a dataset, which stays as long as `kept` lives.
fn kept_bookmark(dsl: &Arc<Dsl>, head_name: &str, name: &str, kept: &mut Vec<SentBookmark>) -> Result<BookmarkPhys> {
    let found = dsl.snapshot_verbs().bookmark_to_send(head_name, name)?;
    let phys = found.phys;
    kept.push(found);
    Ok(phys)
}

/// What a stream of `to` is to be incremental from.
fn origin(dsl: &Arc<Dsl>, to: &Arc<Dataset>, head_name: &str, from: &str, kept: &mut Vec<SentBookmark>) -> Result<Origin> {
    let not_earlier = || error!(CrossDevice, "not an earlier snapshot from the same fs");
    let is_clone = from.split(['@', '#']).next() != Some(head_name);
    if let Some((head, name)) = from.split_once('#') {
        let phys = kept_bookmark(dsl, head, name, kept)?;
        let is_same = phys.redaction_list.get() != 0 && phys.guid.get() == to.phys().guid.get();
        if !is_same && !is_before(dsl, to, &dsl.open_dataset(head)?, phys.creation_txg.get())? {
            return Err(not_earlier());
        }
        return Ok(Origin {
            guid: phys.guid.get(),
            txg: phys.creation_txg.get(),
            is_clone,
            is_bookmark: true,
            ivset_guid: phys.ivset_guid.get(),
            redaction_list: phys.redaction_list.get(),
            redacted: None,
            bookmark: phys,
        });
    }
    let snapshot = dsl.open_dataset(from)?;
    if !snapshot.is_snapshot {
        bail!(Invalid, "{from}: it is no snapshot");
    }
    let phys = snapshot.phys();
    if !is_before(dsl, to, &snapshot, phys.creation_txg.get())? {
        return Err(not_earlier());
    }
    let mos = &dsl.meta.mos;
    let has_fields = mos.info(snapshot.object)?.object_type == ObjectType::ZAP_METADATA;
    let ivset_guid = if has_fields { mos.zap_u64(snapshot.object, dataset_field::IVSET_GUID)?.unwrap_or(0) } else { 0 };
    let redacted = redaction_snapshots(&snapshot, dsl)?;
    let mut bookmark: BookmarkPhys = zerocopy::FromZeros::new_zeroed();
    bookmark.creation_txg = phys.creation_txg;
    bookmark.referenced_bytes = phys.referenced_bytes;
    bookmark.compressed_bytes = phys.compressed_bytes;
    bookmark.uncompressed_bytes = phys.uncompressed_bytes;
    Ok(Origin { guid: phys.guid.get(), txg: phys.creation_txg.get(), is_clone, is_bookmark: false, ivset_guid, redaction_list: 0, redacted, bookmark })
}

/// Whether `later` comes from what the directory of `earlier` was in `txg`.
#[doc(alias = "dsl_dataset_is_before")]
pub(in crate::stream) fn is_before(dsl: &Arc<Dsl>, later: &Arc<Dataset>, earlier: &Arc<Dataset>, txg: u64) -> Result<bool> {
    let mut at = later.clone();
    // Each origin is older: a damaged pool cannot make it endless.
    let mut newest = u64::MAX;
    loop {
        let created = at.phys().creation_txg.get();
        if at.is_snapshot && (txg >= created || created >= newest) {
            return Ok(false);
        }
        if at.dir.object == earlier.dir.object {
            return Ok(true);
        }
        newest = if at.is_snapshot { created } else { newest };
        let object = at.dir.phys().origin.get();
        if object == 0 || Some(object) == dsl.origin_snapshot() {
            return Ok(false);
        }
        let origin = dsl.dataset(object)?;
        if origin.dir.object == earlier.dir.object && origin.phys().creation_txg.get() == txg {
            return Ok(true);
        }
        at = origin;
    }
}
