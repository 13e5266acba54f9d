//! Claiming a log: when a pool is opened, the blocks of its logs are kept from being allocated again.
//!
//! # Theory
//! Log blocks are allocated in open context and written at once; the space maps on disk learn of it only with the next
//! group. After a crash, a block at the end of the chain (and a data block that a record points to) is therefore free
//! by the space maps and in use by the log. All such blocks are allocated before anything else is. The header then says
//! how far the log could be followed, so that all later readers see exactly the same log, whatever devices are there
//! then.
//!
//! Blocks that a record shares with a file are in use by that file. They get one more reference, so that an earlier
//! record cannot free them.
//!
//! A pool that goes back in time also gives up its logs. Their blocks were written later, or lie where others wrote
//! later, and the space maps of that time do not have them.
//!
//! # Invariants
//! 1. Claiming is the first thing that allocates.
//! 2. A record whose data were not written ends the log: its commit was never acknowledged. A device that cannot be
//!    read proves nothing of that; then the log is not claimed.
//! 3. What is freed with a log was allocated: by the space maps, or by claiming it.

use std::collections::HashSet;
use std::ops::ControlFlow;

use ondisk::blkptr::BlkPtr;
use ondisk::dva::Dva;
use ondisk::zil::{self, LogHeader, Record, RecordType, WriteRecord};
use zerocopy::FromBytes;

use super::walk::{Extent, LogBlock, bookmark, records, walk};
use super::{Zil, header_of};
use crate::bail;
use crate::error;
use crate::dmu::Objset;
use crate::error::{Error, ErrorKind, Result, Within};
use crate::txg::Txg;
use crate::zio::BlockIo;

/// What following a log has found.
#[derive(Default)]
struct Extents {
    blocks: u64,
    records: u64,
    block_sequence: u64,
    record_sequence: u64,
    /// Blocks that were seen, by the place of their first copy.
    seen: HashSet<(u32, u64)>,
    /// Space that was free by the space maps.
    taken: Vec<Dva>,
    /// Blocks that records share with files.
    shared: Vec<BlkPtr>,
}

/// The block that a record of a write keeps its data in.
pub(super) fn data_block(record: &[u8]) -> Option<BlkPtr> {
    if record.len() != size_of::<WriteRecord>() {
        return None;
    }
    match Record::decode(record) {
        Ok(Record::Write(RecordType::Write, write, _)) => Some(write.block),
        _ => None,
    }
}

/// The blocks that a record shares with a file.
fn shared_blocks(record: &[u8]) -> impl Iterator<Item = BlkPtr> {
    let pointers = match Record::decode(record) {
        Ok(Record::CloneRange(clone, rest)) => {
            let count = usize::try_from(clone.count.get()).unwrap_or(usize::MAX);
            BlkPtr::slice_of(rest.get(..count.saturating_mul(size_of::<BlkPtr>())).unwrap_or_default()).to_vec()
        }
        _ => Vec::new(),
    };
    pointers.into_iter().filter(|pointer| !pointer.is_hole() && !pointer.is_embedded())
}

/// Claims the log of `objset` in `txg`, the first group of this import. Returns whether there is something to replay.
/// `forget_unreadable`: a log whose device is missing is given up.
///
/// # Errors
/// The log cannot be read, or what it leads to is in use.
pub fn claim(objset: &Objset, txg: Txg, forget_unreadable: bool) -> Result<bool> {
    let mut header = header_of(objset);
    if header.log.is_hole() {
        if header.claim_txg.get() != 0 {
            // OpenZFS has given the log up, and the header says still that it was claimed.
            Zil::of(objset).forget_claimed(Vec::new(), txg);
        }
        return Ok(false);
    }
    let io = &objset.context().io;
    let zil = Zil::of(objset);
    if header.claim_txg.get() == 0 {
        let mut found = Extents::default();
        match follow(io, objset.dataset(), &header, txg, &mut found) {
            Ok(()) => {}
            Err(error) if forget_unreadable && is_unreadable(&error) => {
                found.taken.into_iter().try_for_each(|space| io.allocator().unallocate(space, txg))?;
                give_up_unreadable(objset, txg, &error);
                return Ok(false);
            }
            Err(error) if is_unreadable(&error) => return Err(unreadable(objset, &error)),
            Err(error) => return Err(error).within(|| objset.name()),
        }
        if found.blocks == 0 {
            // Not even the first block is its own.
            zil.forget_claimed(Vec::new(), txg);
            return Ok(false);
        }
        zil.refer_to(found.shared, txg);
        header.claim_txg = txg.into();
        header.claim_block_sequence = found.block_sequence.into();
        header.claim_record_sequence = found.record_sequence.into();
        let needed = if found.records > 0 || found.blocks > 1 { zil::LOG_FLAG_REPLAY_NEEDED } else { 0 };
        header.flags = (header.flags.get() | needed | zil::LOG_FLAG_CLAIM_SEQUENCE_VALID).into();
    }
    let needed = header.flags.get() & zil::LOG_FLAG_REPLAY_NEEDED != 0;
    if needed {
        zil.claimed(header, txg);
    } else {
        zil.start_over(header.log, txg);
    }
    Ok(needed)
}

/// Nothing proves what the log holds: the device of a block is not there, or does not answer.
fn is_unreadable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NoDevice | ErrorKind::Io)
}

fn unreadable(objset: &Objset, error: &Error) -> Error {
    // Another device may have what one that is there refuses to read: without that one nothing has to be given up.
    let first = if error.kind() == ErrorKind::Io { "disconnect the device that fails if others have what it has, or " } else { "" };
    error!(NoDevice, "{}: its intent log cannot be read ({error}); {first}import with -m to do without what it holds", objset.name())
}

fn give_up_unreadable(objset: &Objset, txg: Txg, error: &Error) {
    tracing::warn!("{}: its intent log cannot be read and is given up: {error}", objset.name());
    Zil::of(objset).give_up(txg);
}

/// Gives up the log of `objset` in `txg`, the first group of this import, because the pool went back in time; `first`
/// is the first group that is no longer on disk. A log that was already claimed then is left to [`claim`]: nothing has
/// been written to it since.
///
/// # Errors
/// The header makes no sense.
pub fn give_up_later(objset: &Objset, first: Txg, txg: Txg) -> Result<()> {
    let header = header_of(objset);
    if header.log.is_hole() || header.claim_txg.get() != 0 {
        return claim(objset, txg, false).map(|_| ());
    }
    let io = &objset.context().io;
    let mut blocks = Vec::new();
    let walked = walk(io, objset.dataset(), &header, Extent::Allocated(first), &mut |block: LogBlock<'_>| {
        if is_free(io, objset.dataset(), block.pointer) {
            return Ok(ControlFlow::Break(()));
        }
        blocks.push(*block.pointer);
        Ok(ControlFlow::Continue(()))
    });
    if let Err(error) = walked {
        tracing::warn!("{}: not all of its intent log can be found and freed: {error}", objset.name());
    }
    Zil::of(objset).forget_claimed(blocks, txg);
    Ok(())
}

/// Whether the space maps lack the block, or part of it.
fn is_free(io: &BlockIo, dataset: u64, pointer: &BlkPtr) -> bool {
    let spaces = io.spaces_of(pointer, &bookmark(dataset, 0)).unwrap_or_default();
    spaces.into_iter().any(|space| io.allocator().is_free(space).unwrap_or(false))
}

/// Refuses a log of an encrypted object set that has something to replay: claiming it takes the key. A first block that was never written and that the
/// space maps do not have is forgotten in `txg`, the first group of this import: others will get its space. `first` is the first group that is not on disk.
/// `forget_unreadable`: a log whose device is missing is given up. The header that led to it stands in the object set's own block, and takes no key.
///
/// # Errors
/// There is something, or the log cannot be read.
pub fn claim_encrypted(objset: &Objset, first: Txg, txg: Txg, forget_unreadable: bool) -> Result<()> {
    let header = header_of(objset);
    let mut written = header.flags.get() & zil::LOG_FLAG_REPLAY_NEEDED != 0;
    let is_unclaimed = header.claim_txg.get() == 0 && !header.log.is_hole();
    let is_of_others = is_unclaimed && (header.log.birth() >= first || is_free(&objset.context().io, objset.dataset(), &header.log));
    let walked = walk(&objset.context().io, objset.dataset(), &header, Extent::Whole, &mut |block: LogBlock<'_>| {
        written |= block.records.is_some();
        Ok(ControlFlow::Continue(()))
    });
    match walked {
        Ok(()) => {}
        Err(error) if is_unreadable(&error) => {
            if !forget_unreadable {
                return Err(unreadable(objset, &error));
            }
            // What is not allocated must not be freed.
            if is_of_others {
                Zil::of(objset).forget_claimed(Vec::new(), txg);
            } else {
                give_up_unreadable(objset, txg, &error);
            }
            return Ok(());
        }
        Err(error) => return Err(error).within(|| objset.name()),
    }
    if written {
        bail!(Unsupported, "dataset {} is encrypted and has an intent log that was not replayed; import the pool with -o readonly=on", objset.name());
    }
    if is_of_others {
        Zil::of(objset).forget_claimed(Vec::new(), txg);
    }
    Ok(())
}

fn follow(io: &BlockIo, dataset: u64, header: &LogHeader, txg: Txg, found: &mut Extents) -> Result<()> {
    walk(io, dataset, header, Extent::Whole, &mut |block: LogBlock<'_>| {
        // A chain that was given up, because a block of it could not be written, may go on behind that if it was written after all.
        let was_freed = block.pointer.birth() < txg && is_free(io, dataset, block.pointer);
        if was_freed || claim_block(io, dataset, block.pointer, txg, found)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        found.blocks += 1;
        found.block_sequence = block.sequence;
        for record in records(&block) {
            let Ok((head, bytes)) = record else { return Ok(ControlFlow::Break(())) };
            // Embedded data is there if the pointer is.
            if let Some(pointer) = data_block(bytes)
                && pointer.birth() >= txg
                && !pointer.is_embedded()
            {
                match io.read_if_written(&pointer, &bookmark(dataset, block.sequence)) {
                    Ok(_) => {}
                    // As with the log's own blocks, it is unknown whether the data are there.
                    Err(error) if matches!(error.kind(), ErrorKind::NoDevice | ErrorKind::Io) => return Err(error),
                    Err(_) => return Ok(ControlFlow::Break(())),
                }
                if claim_block(io, dataset, &pointer, txg, found)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            let shared: Vec<BlkPtr> = shared_blocks(bytes).collect();
            // What was itself cloned has the birth of that clone, which may be as young as the record; the block is on disk.
            if shared.iter().any(|pointer| pointer.physical_birth() >= txg) {
                return Ok(ControlFlow::Break(()));
            }
            found.shared.extend(shared);
            found.records += 1;
            found.record_sequence = head.sequence.get();
        }
        Ok(ControlFlow::Continue(()))
    })
}

/// Allocates the space of a block that is not on disk. `Break`: the space is in use, so the log ends before this block.
fn claim_block(io: &BlockIo, dataset: u64, pointer: &BlkPtr, txg: Txg, found: &mut Extents) -> Result<ControlFlow<()>> {
    if pointer.is_hole() || pointer.is_embedded() || pointer.birth() < txg {
        return Ok(ControlFlow::Continue(()));
    }
    if pointer.first_dva().is_some_and(|first| !found.seen.insert((first.vdev, first.offset))) {
        return Ok(ControlFlow::Continue(()));
    }
    let mut taken = Vec::new();
    for space in io.spaces_of(pointer, &bookmark(dataset, 0))? {
        match io.allocator().claim(space, txg) {
            Ok(()) => taken.push(space),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                taken.into_iter().try_for_each(|space| io.allocator().unallocate(space, txg))?;
                return Ok(ControlFlow::Break(()));
            }
            Err(error) => return Err(error),
        }
    }
    found.taken.append(&mut taken);
    Ok(ControlFlow::Continue(()))
}

/// The blocks that a claimed log keeps allocated, each once: its own, and those of data that were claimed; and the blocks that its
/// records share with files, as often as they do.
///
/// # Errors
/// The log cannot be read.
pub fn claimed_blocks(io: &BlockIo, dataset: u64, header: &LogHeader) -> Result<Vec<BlkPtr>> {
    let (claim_txg, last) = (header.claim_txg.get(), header.claim_record_sequence.get());
    let has_last = header.flags.get() & zil::LOG_FLAG_CLAIM_SEQUENCE_VALID != 0;
    let mut seen = HashSet::new();
    let (mut blocks, mut shared) = (Vec::new(), Vec::new());
    let mut add = |pointer: &BlkPtr| {
        if let Some(first) = pointer.first_dva().filter(|_| !pointer.is_hole() && !pointer.is_embedded())
            && seen.insert((first.vdev, first.offset))
        {
            blocks.push(*pointer);
        }
    };
    walk(io, dataset, header, Extent::Whole, &mut |block: LogBlock<'_>| {
        add(block.pointer);
        for record in records(&block) {
            let Ok((head, bytes)) = record else { return Ok(ControlFlow::Break(())) };
            if has_last && head.sequence.get() > last {
                return Ok(ControlFlow::Break(()));
            }
            if let Some(pointer) = data_block(bytes).filter(|pointer| pointer.birth() >= claim_txg) {
                add(&pointer);
            }
            shared.extend(shared_blocks(bytes));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    blocks.extend(shared);
    Ok(blocks)
}

/// What is in the header of an object set whose bytes are `bytes`.
pub(super) fn decode_header(bytes: &[u8]) -> LogHeader {
    LogHeader::read_from_prefix(bytes).map_or_else(|_| super::empty_header(), |(header, _)| header)
}
