//! What a cache device has from before: its header, and the chain of its log blocks.
//!
//! # Theory
//! Nothing of it is believed: a header must be of this pool and device, as large as the device is now, and have its checksum; a log block must lie where it
//! can, and have the checksum that its pointer says; an entry must lie within the device. The first thing that is not so ends the chain. No log block is looked at twice, so
//! the chain ends, and the index has no more entries than memory is given to it. What the entries say of blocks is verified when these are read.

use std::collections::BTreeSet;

use ondisk::cache_device::{Header, LOG_BYTES, LogBlock, LogPointer, header_bytes};
use ondisk::label;
use transform::checksum::{LABEL, embedded, fletcher4};
use transform::compress;

use super::SecondLevel;
use super::device::{CacheDevice, Stored, Writer};
use crate::arc::cache::Inner;
use crate::arc::shard::Key;
use crate::error::{Error, ErrorKind, Result};
use crate::tunables::{Parameter, Tunables};
use crate::bail;

/// The largest block of a pool.
const BLOCK_BYTES_MAX: u64 = 16 << 20;

impl CacheDevice {
    /// Finds out what is there, or begins anew.
    pub(super) fn open(&self, inner: &Inner, writer: &mut Writer, tunables: &Tunables) {
        writer.header.entries = self.area.entries(tunables.now(Parameter::CacheRebuildMinBytes));
        let counters = &inner.second.counters;
        match self.read_header() {
            Ok(header) if self.is_ours(&header, writer.header.entries) => {
                writer.header = header;
                writer.header.evicted = header.evicted.max(self.area.start);
                writer.hand = header.hand().min(self.area.end);
                if tunables.now(Parameter::CacheRebuildEnabled) == 0 {
                    return;
                }
                match self.rebuild(inner, writer, tunables) {
                    Ok(()) if !writer.logs.is_empty() => {
                        counters.rebuilt.add(1);
                        return self.note_logs(writer);
                    }
                    Ok(()) => {}
                    Err(error) => {
                        tracing::info!(%error, "not all of what is on a cache device is found again");
                        counters.rebuild_wrong.add(1);
                        if !writer.logs.is_empty() {
                            return self.note_logs(writer);
                        }
                    }
                }
            }
            _ => counters.rebuild_none.add(1),
        }
        self.begin_anew(inner, writer);
    }

    fn begin_anew(&self, inner: &Inner, writer: &mut Writer) {
        let header = &mut writer.header;
        (header.pool_guid, header.vdev_guid, header.area) = (self.pool_guid, self.leaf.guid(), self.area);
        (header.evicted, header.is_first_round, header.newest) = (self.area.start, true, [LogPointer::default(); 2]);
        writer.hand = self.area.start;
        writer.logs.clear();
        self.note_logs(writer);
        if inner.io.is_writable()
            && let Err(error) = self.write_header(writer)
        {
            tracing::debug!(%error, "the header of a cache device cannot be written");
        }
    }

    fn is_ours(&self, header: &Header, entries: u64) -> bool {
        let is_same = header.pool_guid == self.pool_guid && header.vdev_guid == self.leaf.guid() && header.entries == entries && entries > 0;
        is_same && header.area == self.area && (self.area.start..=self.area.end).contains(&header.evicted)
    }

    fn read_header(&self) -> Result<Header> {
        let bytes = self.read(label::START_BYTES, header_bytes(self.ashift) as u64)?;
        if !embedded::verify_embedded(LABEL, &bytes, [label::START_BYTES, 0, 0, 0]) {
            bail!(Checksum, "{}: no header of a cache device", self.leaf.name());
        }
        Ok(Header::decode(&bytes)?)
    }

    /// Follows the chain. What is found before something is wrong stays.
    fn rebuild(&self, inner: &Inner, writer: &mut Writer, tunables: &Tunables) -> Result<()> {
        let header = writer.header;
        let mut seen = BTreeSet::new();
        let [mut this, mut next] = header.newest;
        while header.has(&this, writer.hand) && seen.insert(this.address) && !self.is_asked_to_end() {
            let block = self.read_log(&this, header.entries)?;
            if !inner.second.has_room(inner.limit_bytes(), tunables) {
                inner.second.counters.rebuild_no_memory.add(1);
                return Ok(());
            }
            // The newest is right where two entries name a block.
            block.entries.iter().rev().for_each(|entry| self.restore(&inner.second, entry));
            writer.logs.push_back(this);
            inner.second.counters.rebuilt_logs.add(1);
            if header.has_come_round(&this, &next) {
                break;
            }
            (this, next) = (next, block.previous);
        }
        Ok(())
    }

    fn read_log(&self, pointer: &LogPointer, entries: u64) -> Result<LogBlock> {
        let name = self.leaf.name();
        if self.sectors(pointer.bytes) != pointer.bytes || self.sectors(pointer.address) != pointer.address {
            bail!(Corrupt, "{name}: a log block at {:#x} that fills no sectors", pointer.address);
        }
        let bytes = self.read(pointer.address, pointer.bytes)?;
        if fletcher4(&bytes, false) != pointer.checksum {
            bail!(Checksum, "{name}: the log block at {:#x} is not what it was", pointer.address);
        }
        let plain = match pointer.compression {
            compress::OFF => bytes,
            compress::LZ4 => compress::decompress(compress::LZ4, &bytes, LOG_BYTES)
                .map_err(|error| Error::new(ErrorKind::Corrupt, format!("{name}: the log block at {:#x}: {error}", pointer.address)))?,
            other => bail!(Corrupt, "{name}: a log block with compression {other}"),
        };
        Ok(LogBlock::decode(&plain, entries)?)
    }

    fn restore(&self, second: &SecondLevel, entry: &ondisk::cache_device::Entry) {
        let dva = entry.dva.decode();
        let bytes = self.sectors(entry.physical_bytes);
        let is_inside = entry.address >= self.area.start && entry.address.checked_add(bytes).is_some_and(|end| end <= self.area.end);
        let makes_sense = entry.birth > 0 && !entry.dva.is_empty() && !dva.gang && entry.physical_bytes <= BLOCK_BYTES_MAX;
        if !is_inside || !makes_sense || self.sectors(entry.address) != entry.address {
            return;
        }
        let key = Key { vdev: dva.vdev, offset: dva.offset, birth: entry.birth };
        let narrow = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let stored = Stored { key, physical_bytes: narrow(entry.physical_bytes), logical_bytes: narrow(entry.logical_bytes), bytes: narrow(bytes) };
        if second.insert(self, entry.address, stored, false) {
            second.counters.rebuilt_blocks.add(1);
        }
    }
}
