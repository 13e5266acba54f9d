//! Writes records: their checksums, and ranges that are put together.
//!
//! # Theory
//! Neighbouring ranges that are free make one record, and so do redacted ones: a record of that kind waits until another one
//! comes that does not continue it.

use std::io::Write;

use ondisk::stream::{End, Free, FreeObjects, RECORD_CHECKSUM_OFFSET, RECORD_SIZE, Record, RecordBody, Redact, StreamOrder};
use transform::checksum::Fletcher4;

use crate::error;
use crate::error::Result;

/// All that is behind an offset.
pub(super) const TO_THE_END: u64 = u64::MAX;
/// Records and small payloads are written together, so much at a time.
const GATHERED_BYTES: usize = 64 << 10;
/// A payload that is not copied.
const LARGE_PAYLOAD: usize = 8 << 10;

/// The contents behind a record.
#[derive(Debug, Clone, Copy)]
pub(super) enum Payload<'a> {
    Bytes(&'a [u8]),
    /// Of a dry run: only so many.
    Count(u64),
}

/// See the module.
pub(super) struct RecordWriter<'a> {
    out: &'a mut dyn Write,
    gathered: Vec<u8>,
    sum: Fletcher4,
    guid: u64,
    waiting: Option<RecordBody>,
    /// Bytes of the stream until now.
    pub(super) bytes: u64,
    /// Nothing is written.
    is_dry: bool,
}

impl<'a> RecordWriter<'a> {
    /// Of the stream of the snapshot with this guid.
    pub(super) fn new(out: &'a mut dyn Write, guid: u64, is_dry: bool) -> Self {
        RecordWriter { out, gathered: Vec::with_capacity(2 * GATHERED_BYTES), sum: Fletcher4::new(false), guid, waiting: None, bytes: 0, is_dry }
    }

    /// A record that nothing continues.
    pub(super) fn record(&mut self, body: RecordBody, payload: Payload<'_>) -> Result<()> {
        self.settle()?;
        self.put(body, payload)
    }

    /// What waits is complete.
    fn settle(&mut self) -> Result<()> {
        self.waiting.take().map_or(Ok(()), |body| self.put(body, Payload::Count(0)))
    }

    /// Nothing of an object from `offset` on, for so many bytes.
    pub(super) fn free(&mut self, object: u64, offset: u64, bytes: u64) -> Result<()> {
        if let Some(RecordBody::Free(free)) = &mut self.waiting
            && free.object == object
            && free.offset.wrapping_add(free.bytes) == offset
        {
            let ends = offset.checked_add(bytes).is_none() || bytes == TO_THE_END;
            free.bytes = if ends { TO_THE_END } else { free.bytes.wrapping_add(bytes) };
            return Ok(());
        }
        self.settle()?;
        let is_last = bytes == TO_THE_END;
        let bytes = if offset.checked_add(bytes).is_none() { TO_THE_END } else { bytes };
        let body = RecordBody::Free(Free { object, offset, bytes, to_guid: self.guid });
        if is_last {
            return self.put(body, Payload::Count(0));
        }
        self.waiting = Some(body);
        Ok(())
    }

    /// No such objects.
    pub(super) fn free_objects(&mut self, first: u64, count: u64) -> Result<()> {
        if let Some(RecordBody::FreeObjects(free)) = &mut self.waiting
            && free.first_object.wrapping_add(free.objects) == first
        {
            free.objects = free.objects.saturating_add(count);
            return Ok(());
        }
        self.settle()?;
        self.waiting = Some(RecordBody::FreeObjects(FreeObjects { first_object: first, objects: count, to_guid: self.guid }));
        Ok(())
    }

    /// Contents that the receiver is not to have.
    pub(super) fn redact(&mut self, object: u64, offset: u64, bytes: u64) -> Result<()> {
        if let Some(RecordBody::Redact(redact)) = &mut self.waiting
            && redact.object == object
            && redact.offset.wrapping_add(redact.bytes) == offset
        {
            redact.bytes = redact.bytes.saturating_add(bytes);
            return Ok(());
        }
        self.settle()?;
        self.waiting = Some(RecordBody::Redact(Redact { object, offset, bytes, to_guid: self.guid }));
        Ok(())
    }

    /// Writes what waits, and END unless the stream is to look broken off.
    pub(super) fn finish(&mut self, with_end: bool) -> Result<()> {
        self.settle()?;
        if with_end {
            self.put(RecordBody::End(End { checksum: self.sum.words(), to_guid: self.guid }), Payload::Count(0))?;
        }
        self.hand_over()
    }

    fn put(&mut self, body: RecordBody, payload: Payload<'_>) -> Result<()> {
        let length = match payload {
            Payload::Bytes(bytes) => bytes.len() as u64,
            Payload::Count(count) => count,
        };
        self.bytes += RECORD_SIZE as u64 + length;
        if self.is_dry {
            return Ok(());
        }
        let is_begin = matches!(body, RecordBody::Begin(_));
        let mut record = Record { body, begin_payload_bytes: if is_begin { length as u32 } else { 0 }, checksum: [0; 4] };
        let mut bytes = record.encode(StreamOrder::Little);
        self.sum.update(&bytes[..RECORD_CHECKSUM_OFFSET]);
        if !is_begin {
            record.checksum = self.sum.words();
            bytes = record.encode(StreamOrder::Little);
        }
        self.sum.update(&bytes[RECORD_CHECKSUM_OFFSET..]);
        self.gathered.extend_from_slice(&bytes);
        let Payload::Bytes(contents) = payload else { return self.hand_over_if_much() };
        self.sum.update(contents);
        if contents.len() < LARGE_PAYLOAD {
            self.gathered.extend_from_slice(contents);
            return self.hand_over_if_much();
        }
        self.hand_over()?;
        self.out.write_all(contents).map_err(|error| cannot_write(&error))
    }

    fn hand_over_if_much(&mut self) -> Result<()> {
        if self.gathered.len() < GATHERED_BYTES { Ok(()) } else { self.hand_over() }
    }

    fn hand_over(&mut self) -> Result<()> {
        let written = self.out.write_all(&self.gathered);
        self.gathered.clear();
        written.map_err(|error| cannot_write(&error))
    }
}

fn cannot_write(error: &std::io::Error) -> crate::error::Error {
    error!(Io, "the stream cannot be written: {error}")
}
