//! Writing to cache devices what memory may have no room for soon.
//!
//! # Theory
//! Once in `l2arc_feed_secs`, or sooner after a round that wrote much, up to `l2arc_write_max` bytes are taken from the ends of the lists where blocks leave memory, not
//! further into them than `l2arc_headroom` rounds would write: metadata before data, frequent blocks before recent ones. As long as nothing had to leave memory,
//! `l2arc_write_boost` more, from the other ends.
//!
//! A round writes one stretch of the device, in pieces. What a piece has is in the index, and its log blocks are in the chain, only when it is on the device.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ondisk::algorithm::Compression;
use ondisk::blkptr::{BlockPointer, DataPointer, Protection};
use ondisk::cache_device::{Entry, LOG_BYTES, LogBlock, LogPointer, header_bytes};
use ondisk::dva::{Dva, RawDva};
use ondisk::label;
use transform::checksum::{FLETCHER4, LABEL, embedded, fletcher4};
use transform::compress;

use super::device::{CacheDevice, Stored, Writer};
use crate::arc::cache::Inner;
use crate::arc::copies::Data;
use crate::arc::shard::{Candidate, Key};
use crate::error::Result;
use crate::host::HostRef;
use crate::tunables::{Parameter, Tunables};
use crate::zio::BlockIo;

/// A round is written in pieces of about so many bytes.
const PIECE_BYTES: usize = 1 << 20;
/// Level of LZ4, which has none.
const LEVEL: u8 = 0;

/// Feeds a device in a thread of its own; without threads the caller of [`Inner::feed`] does it.
pub(in crate::arc) fn begin(inner: &Arc<Inner>, device: Arc<CacheDevice>, tunables: &Tunables, host: &HostRef) {
    let (weak, tunables) = (Arc::downgrade(inner), tunables.clone());
    device.begin_thread();
    let (feeding, clock) = (device.clone(), host.clone());
    if !host.spawn("cache-feed", Box::new(move || run(&weak, &feeding, &tunables, &clock))) {
        device.has_no_thread();
    }
}

fn run(inner: &Weak<Inner>, device: &Arc<CacheDevice>, tunables: &Tunables, host: &HostRef) {
    let mut wait = Duration::ZERO;
    while device.pause(wait) {
        let Some(inner) = inner.upgrade() else { break };
        let began = host.now_ns();
        let (written, wanted) = inner.feed(device, tunables);
        drop(inner);
        let is_busy = tunables.now(Parameter::CacheFeedAgain) != 0 && written > wanted / 2;
        let interval = if is_busy {
            Duration::from_millis(tunables.now(Parameter::CacheFeedMinMilliseconds))
        } else {
            Duration::from_secs(tunables.now(Parameter::CacheFeedSeconds))
        };
        wait = interval.saturating_sub(Duration::from_nanos(host.now_ns().saturating_sub(began)));
    }
    device.end_thread();
}

/// A piece of a round.
struct Piece {
    /// Where it begins.
    start: u64,
    bytes: Vec<u8>,
    stored: Vec<(u64, Stored)>,
    logs: usize,
    /// What the device was before it, to be that again if it cannot be written.
    newest: [LogPointer; 2],
    open: Vec<Entry>,
    payload: (u64, u64),
}

impl Piece {
    fn new(writer: &Writer) -> Piece {
        Piece {
            start: writer.hand,
            bytes: Vec::with_capacity(PIECE_BYTES),
            stored: Vec::new(),
            logs: 0,
            newest: writer.header.newest,
            open: writer.open.clone(),
            payload: (writer.payload_start, writer.payload_bytes),
        }
    }

    fn undo(self, writer: &mut Writer) {
        writer.hand = self.start;
        writer.header.newest = self.newest;
        writer.open = self.open;
        (writer.payload_start, writer.payload_bytes) = self.payload;
        writer.logs.drain(..self.logs);
    }
}

impl Inner {
    /// One round for a device: how many bytes were written, and how many could have been.
    pub(in crate::arc) fn feed(&self, device: &CacheDevice, tunables: &Tunables) -> (u64, u64) {
        let mut writer = device.writer();
        if !writer.is_open {
            device.open(self, &mut writer, tunables);
            writer.is_open = true;
        }
        let wanted = self.round_bytes(device, &writer, tunables);
        if !device.answers() || !self.io.is_writable() || !self.second.has_room(self.limit_bytes(), tunables) {
            return (0, wanted);
        }
        let candidates = self.candidates(wanted, tunables);
        self.second.counters.feeds.add(1);
        if candidates.is_empty() {
            return (0, wanted);
        }
        device.evict_ahead(&self.second, &mut writer, wanted);
        let written = self.write_round(device, &mut writer, &candidates, wanted);
        let mut pending = self.second.pending.lock();
        for candidate in &candidates {
            pending.remove(&candidate.key);
        }
        drop(pending);
        if written > 0
            && let Err(error) = device.write_header(&writer)
        {
            tracing::debug!(%error, "the header of a cache device cannot be written");
        }
        (written, wanted)
    }

    /// The most that a round writes, log blocks and all.
    fn round_bytes(&self, device: &CacheDevice, writer: &Writer, tunables: &Tunables) -> u64 {
        let boost = if self.has_evicted() { 0 } else { tunables.now(Parameter::CacheWriteBoost) };
        let bytes = tunables.now(Parameter::CacheWriteMax).saturating_add(boost);
        let logs = if writer.header.entries == 0 { 0 } else { (bytes >> 9).div_ceil(writer.header.entries) };
        let all = bytes.saturating_add(logs.saturating_mul(LOG_BYTES as u64)).min(device.area.bytes() / 4);
        all >> device.ashift << device.ashift
    }

    /// Blocks that are on no device, as many as fit a round. They are noted as pending.
    fn candidates(&self, wanted: u64, tunables: &Tunables) -> Vec<Candidate> {
        let headroom = wanted.saturating_mul(tunables.now(Parameter::CacheHeadroom));
        let skip_ahead = tunables.now(Parameter::CacheNoPrefetch) != 0;
        let mut pending = self.second.pending.lock();
        let mut left = wanted;
        let mut accept = |key: &Key, bytes: u64| {
            let is_new = left >= bytes && !self.second.has(key) && pending.insert(*key);
            left -= if is_new { bytes } else { 0 };
            is_new
        };
        let mut found = Vec::new();
        for (metadata, frequent) in [(true, true), (true, false), (false, true), (false, false)] {
            let scan = crate::arc::shard::Scan { metadata, frequent, skip_ahead, from_back: !self.has_evicted() };
            self.scan(scan, headroom, &mut accept, &mut found);
        }
        found
    }

    fn write_round(&self, device: &CacheDevice, writer: &mut Writer, candidates: &[Candidate], wanted: u64) -> u64 {
        let end = writer.hand + wanted;
        let mut written = 0;
        let mut piece = Piece::new(writer);
        for candidate in candidates {
            let Ok(BlockPointer::Data(pointer)) = candidate.pointer.decode() else { continue };
            if device.is_asked_to_end() {
                break;
            }
            let Some(bytes) = physical_of(candidate, &pointer, &self.io) else { continue };
            if writer.hand + device.sectors(pointer.physical_size) + LOG_BYTES as u64 > end {
                break;
            }
            put(device, writer, &mut piece, candidate, &pointer, &bytes);
            if piece.bytes.len() >= PIECE_BYTES {
                let full = std::mem::replace(&mut piece, Piece::new(writer));
                let Some(bytes) = self.write_piece(device, writer, full) else { return written };
                written += bytes;
            }
        }
        written + self.write_piece(device, writer, piece).unwrap_or(0)
    }

    /// `None`: it could not be written, and the device is what it was.
    fn write_piece(&self, device: &CacheDevice, writer: &mut Writer, piece: Piece) -> Option<u64> {
        if piece.bytes.is_empty() {
            return Some(0);
        }
        let counters = &self.second.counters;
        counters.writes_sent.add(1);
        if let Err(error) = device.write(piece.start, &piece.bytes) {
            tracing::debug!(%error, "a cache device cannot be written");
            counters.writes_error.add(1);
            piece.undo(writer);
            return None;
        }
        counters.writes_done.add(1);
        counters.write_bytes.add(piece.bytes.len() as u64);
        counters.log_writes.add(piece.logs as u64);
        for (address, stored) in piece.stored {
            self.second.insert(device, address, stored, true);
        }
        device.note_logs(writer);
        Some(piece.bytes.len() as u64)
    }
}

/// Puts a block behind the others, and a log block behind it where it is time for one.
fn put(device: &CacheDevice, writer: &mut Writer, piece: &mut Piece, candidate: &Candidate, pointer: &DataPointer, bytes: &[u8]) {
    let sectors = device.sectors(pointer.physical_size);
    let address = writer.hand;
    append(piece, bytes, sectors);
    writer.hand += sectors;
    let narrow = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    let (physical_bytes, logical_bytes) = (narrow(pointer.physical_size), narrow(pointer.logical_size));
    piece.stored.push((address, Stored { key: candidate.key, physical_bytes, logical_bytes, bytes: narrow(sectors) }));
    if writer.header.entries == 0 {
        return;
    }
    if writer.open.is_empty() {
        (writer.payload_start, writer.payload_bytes) = (address, 0);
    }
    writer.payload_bytes += sectors;
    writer.open.push(Entry {
        dva: pointer.dvas().first().map_or_else(RawDva::default, Dva::encode),
        birth: pointer.physical_birth,
        address,
        logical_bytes: pointer.logical_size,
        physical_bytes: pointer.physical_size,
        compression: pointer.compression.number(),
        compression_level: if pointer.compression == Compression::Zstd { bytes.get(7).copied().unwrap_or(0) } else { 0 },
        is_metadata: candidate.pointer.is_metadata(),
        is_protected: pointer.protection != Protection::None,
        is_prefetched: candidate.is_ahead,
        is_frequent: candidate.is_frequent,
    });
    if writer.open.len() as u64 >= writer.header.entries {
        put_log(device, writer, piece);
    }
}

fn put_log(device: &CacheDevice, writer: &mut Writer, piece: &mut Piece) {
    let entries = std::mem::take(&mut writer.open);
    let plain = LogBlock { previous: writer.header.newest[1], entries }.encode();
    let mut packed = vec![0; LOG_BYTES - (1 << device.ashift)];
    let length = compress::compress(compress::LZ4, LEVEL, &plain, &mut packed);
    let (mut bytes, compression) = match length {
        Some(length) => (packed[..length].to_vec(), compress::LZ4),
        None => (plain, compress::OFF),
    };
    bytes.resize(device.sectors(bytes.len() as u64) as usize, 0);
    let pointer = LogPointer {
        address: writer.hand,
        payload_bytes: writer.payload_bytes,
        payload_start: writer.payload_start,
        bytes: bytes.len() as u64,
        compression,
        checksum_algorithm: FLETCHER4,
        checksum: fletcher4(&bytes, false),
    };
    writer.hand += pointer.bytes;
    writer.header.newest = [pointer, writer.header.newest[0]];
    writer.logs.push_front(pointer);
    piece.logs += 1;
    append(piece, &bytes, pointer.bytes);
}

fn append(piece: &mut Piece, bytes: &[u8], sectors: u64) {
    piece.bytes.extend_from_slice(bytes);
    piece.bytes.resize(piece.bytes.len() + (sectors as usize - bytes.len()), 0);
}

/// The bytes of a block as they are in the pool. One that is there only as it is used is compressed again, and the checksum tells whether that is the same.
fn physical_of(candidate: &Candidate, pointer: &DataPointer, io: &BlockIo) -> Option<Data> {
    let length = pointer.physical_size as usize;
    if let Some(physical) = candidate.copies.physical() {
        return (physical.len() == length).then(|| Arc::clone(physical));
    }
    let plain = candidate.copies.plain()?;
    if !pointer.little_endian || pointer.protection != Protection::None {
        return None;
    }
    let mut contents = plain.to_vec();
    contents.resize(pointer.logical_size as usize, 0);
    let bytes = if pointer.compression == Compression::Off {
        contents
    } else {
        let mut packed = vec![0; length];
        let used = compress::compress(pointer.compression.number(), compress::LEVEL_DEFAULT, &contents, &mut packed)?;
        packed[used..].fill(0);
        packed
    };
    (bytes.len() == length && io.is_right(pointer, &bytes).unwrap_or(false)).then(|| Arc::new(bytes))
}

impl CacheDevice {
    /// Writes what the header says now.
    pub(super) fn write_header(&self, writer: &Writer) -> Result<()> {
        let mut bytes = writer.header.encode(self.ashift);
        assert_eq!(bytes.len(), header_bytes(self.ashift), "a header fills its sector");
        if embedded::seal(LABEL, &mut bytes, [label::START_BYTES, 0, 0, 0]).is_err() {
            crate::bail!(Invalid, "{}: the header has no room for its checksum", self.leaf.name());
        }
        self.write(label::START_BYTES, &bytes)
    }
}
