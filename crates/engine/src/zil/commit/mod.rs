//! Making records durable.
//!
//! # Theory
//! A commit takes the queued records in *rounds* of bounded size, fetches the bytes of its writes, and only then asks
//! for its place in the chain. Rounds are placed in the order in which they were taken, so that a record never comes
//! before one that it builds upon. Placing is short: it allocates the round's blocks, and the block after them for the
//! next round. Writing needs no lock: several commits have blocks in flight, each on its own thread, and each ends when
//! its own round and all before it are stable. Of several rounds of one commit all but the last are written by another thread, while the next one's bytes are fetched.
//!
//! ```text
//!  take (issuer) -> fetch bytes (range locks) -> place, in turn (chain, group) -> write, flush -> stable -> answer
//! ```
//!
//! A commit of many megabytes may wait for its group instead ([`crate::zil::commit::cost`]): then the bytes are written once, not
//! twice. Records that cannot be logged (no space, a device that fails, bytes that cannot be read) are durable when
//! their group is on disk, and commits that build upon them wait for that too.
//!
//! # Invariants
//! 1. While a commit holds a group, it waits only for earlier groups.
//! 2. The blocks that a round allocates in a group are written before the group is (`Chain::placed`).
//! 3. Between its place and its end a round waits for devices only. The group waits for it, and the holder of the range
//!    that the next round wants may wait for the group; so a round is made durable before the next one begins, or by another thread, which waits
//!    for nothing else before.

pub(super) mod cost;
pub(super) mod fill;
pub(super) mod flusher;
pub(super) mod gather;
pub(super) mod waiting;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ondisk::zil::WriteRecord;
use parking_lot::Mutex;

use crate::zil::block::{self, LINK_BYTES, LOG_BLOCK_MAX};
use crate::zil::commit::fill::{Filled, LogSource};
use crate::zil::itx::{Content, Itx};
use crate::zil::log::{Chain, ChainBlock, first_checksum};
use crate::zil::Zil;
use crate::canary::Canary;
use crate::dmu::ObjectId;
use crate::bail;
use crate::error::Result;
use crate::txg::{Txg, bug, slot};
use crate::vdev::LogMark;
use ondisk::blkptr::BlkPtr;

/// Bytes that one round fetches at most, about.
const ROUND_BYTES: usize = 4 << 20;
/// The records that a block has room for, in bytes.
const ROOM_MAX: usize = LOG_BLOCK_MAX - LINK_BYTES;
/// A round of so many bytes is made into blocks by several threads: one alone takes longer than the other takes to wake up.
const SHARED_BYTES: usize = 1 << 20;
/// A write that does not fit into one round is cut at a multiple of this.
const CUT_BYTES: u64 = 1 << 20;

/// Records that wait to be taken. guarded by: `Zil::issuer`
#[derive(Debug, Default)]
pub(in crate::zil) struct Queue {
    waiting: VecDeque<Itx>,
    /// How many records have ever been queued.
    queued: u64,
    taken: u64,
    /// Bytes of the waiting records, about.
    bytes: usize,
    /// How many rounds there have been.
    rounds: u64,
}

/// Records on their way to the log.
pub(in crate::zil) struct Round {
    /// Its number: rounds are placed in this order.
    pub(in crate::zil) number: u64,
    /// How many records have been taken with it.
    taken: u64,
    pub(in crate::zil) records: Vec<Itx>,
}

/// A block, the one after it, and its part of the bytes of a round.
type PlacedPart = (BlkPtr, BlkPtr, Range<usize>);

/// A round that has its place in the chain, and is not written.
struct Placed {
    /// Its number.
    round: u64,
    place: Place,
    filled: Filled,
}

/// A round that another thread is to write, until that has begun.
type Handed = Arc<Mutex<Option<Placed>>>;

/// The place of a round.
struct Place {
    blocks: Vec<PlacedPart>,
    first_sequence: u64,
    txg: Txg,
}

fn encoded((pointer, next, part): PlacedPart, bytes: &[u8]) -> Result<(BlkPtr, Vec<u8>)> {
    Ok((pointer, block::encode(&pointer, &next, &bytes[part])?))
}

/// The bytes that a record takes in the log, about.
fn bytes_of(itx: &Itx) -> usize {
    let written = if let Content::Write { length, .. } = &itx.content { *length as usize } else { 0 };
    written + size_of::<WriteRecord>()
}

impl Zil {
    /// Makes durable what was logged before this call: all records of names, and those of the contents of `object` (`None`: of all).
    ///
    /// # Errors
    /// What stopped the pool.
    pub fn commit(self: &Arc<Self>, object: Option<ObjectId>, source: &dyn LogSource) -> Result<()> {
        let groups = &self.context.groups;
        if self.is_disabled() {
            return Ok(());
        }
        if let Some(failure) = groups.failure() {
            return Err(failure);
        }
        let _alarm = Alarm(self);
        self.wait_unlogged()?;
        if self.itxs.is_empty_after(groups.synced_txg()) {
            // Other commits may be writing the earlier records.
            self.wait_stable(self.queued())?;
            return self.wait_unlogged();
        }
        if self.is_cheaper_in_place(object, source) || !self.prepare_chain()? {
            return groups.wait_stuck(groups.open_txg());
        }
        let target = {
            let mut queue = self.issuer.lock();
            self.itxs.bring_forward(object);
            let before = queue.waiting.len();
            self.itxs.take(groups.synced_txg(), &mut queue.waiting);
            queue.queued += (queue.waiting.len() - before) as u64;
            queue.bytes += queue.waiting.range(before..).map(bytes_of).sum::<usize>();
            // These records are on their way and no longer count as dirty: this commit itself holds its callers up.
            queue.waiting.range(before..).for_each(|itx| self.context.dirty.remove(itx.txg, itx.memory()));
            queue.queued
        };
        if self.write_rounds(target, source) {
            let mut chain = self.chain.lock();
            chain.commits -= 1;
            self.waiting.one_may_begin(&mut chain, self.commits_max());
        }
        self.wait_stable(target)?;
        self.wait_unlogged()
    }

    /// Takes and writes what was queued up to `target`, in rounds. `true`: as one of the commits that may be under way.
    fn write_rounds(self: &Arc<Self>, target: u64, source: &dyn LogSource) -> bool {
        let (mut permit, mut beside) = (false, None);
        while let Some(round) = self.next_round(target, &mut permit) {
            let filled = self.fill(&round, source);
            // Where the other threads have not come to it.
            beside.take().iter().for_each(|handed| self.write_handed(handed));
            let is_last = round.taken >= target;
            match self.place_in_turn(&round, filled) {
                None => self.round_done(round.number, None),
                Some(placed) if is_last => self.write_round(placed),
                Some(placed) => beside = Some(self.write_beside(placed)),
            }
        }
        beside.iter().for_each(|handed| self.write_handed(handed));
        permit
    }

    /// Has another thread write a round, while this one fetches the bytes of the next (invariant 3). If there is none, this one writes it.
    fn write_beside(self: &Arc<Self>, placed: Placed) -> Handed {
        let handed = Handed::new(Mutex::new(Some(placed)));
        let (zil, own) = (Arc::clone(self), Arc::clone(&handed));
        let is_given = self.context.io.writers().submit(move || {
            let _alarm = Alarm(&zil);
            zil.write_handed(&own);
        });
        if !is_given {
            self.write_handed(&handed);
        }
        handed
    }

    fn write_handed(&self, handed: &Handed) {
        let placed = handed.lock().take();
        placed.into_iter().for_each(|placed| self.write_round(placed));
    }

    /// Waits for the groups that hold changes without records.
    fn wait_unlogged(&self) -> Result<()> {
        let groups = &self.context.groups;
        match self.unlogged.load(Ordering::Acquire) {
            txg if txg > groups.synced_txg() => groups.wait_stuck(txg),
            _ => Ok(()),
        }
    }

    /// Ensures that there is a chain and that its header is on disk. `false`: there can be none.
    fn prepare_chain(&self) -> Result<bool> {
        if self.context.io.features().old_log {
            return Ok(false);
        }
        loop {
            let (usable_from, exists) = {
                let chain = self.chain.lock();
                if chain.is_claimed() || chain.broken.is_some() {
                    return Ok(false);
                }
                (chain.usable_from, !chain.blocks.is_empty())
            };
            if !exists {
                let hold = self.context.groups.hold();
                let words = first_checksum(self.dataset, || self.context.host.random());
                let Ok(first) = block::allocate(&self.context, block::block_bytes(0), words, hold.txg()) else { return Ok(false) };
                let mut chain = self.chain.lock();
                if chain.blocks.is_empty() && chain.broken.is_none() {
                    chain.blocks.push_back(ChainBlock { pointer: first, allocated: hold.txg(), newest: 0, round: 0 });
                    chain.usable_from = hold.txg();
                } else {
                    chain.free_in(hold.txg(), first);
                }
                drop(chain);
                self.set_dirty(hold.txg());
                continue;
            }
            if usable_from <= self.context.groups.synced_txg() {
                return Ok(true);
            }
            self.context.groups.wait_synced(usable_from)?;
        }
    }

    /// Takes the next round of the records queued before `target`. The first round waits until few enough commits are
    /// under way, and perhaps for more records.
    fn next_round(&self, target: u64, permit: &mut bool) -> Option<Round> {
        if *permit {
            return self.take_round(target);
        }
        *permit = self.waiting.for_permit(target, self.commits_max(), &self.chain);
        if !*permit {
            return None;
        }
        let has_gathered = self.gather();
        let round = self.take_round(target);
        self.gathered(has_gathered);
        round
    }

    /// How many records have ever been queued.
    pub(in crate::zil) fn queued(&self) -> u64 {
        self.issuer.lock().queued
    }

    /// Whether the waiting records fill a block.
    pub(in crate::zil) fn fills_a_block(&self) -> bool {
        self.issuer.lock().bytes >= ROOM_MAX
    }

    fn take_round(&self, target: u64) -> Option<Round> {
        let streams = self.chain.lock().gathering.streams > 0;
        let mut queue = self.issuer.lock();
        if queue.taken >= target {
            return None;
        }
        let (mut records, mut bytes) = (Vec::new(), 0);
        while bytes < ROUND_BYTES {
            // A full block goes at once, and the records after it go beside it.
            let is_full = |next: &Itx| streams && bytes > 0 && bytes + bytes_of(next) > ROOM_MAX;
            if queue.waiting.front().is_some_and(is_full) {
                break;
            }
            let Some(mut itx) = queue.waiting.pop_front() else { break };
            if let Content::Write { object, generation, offset, length } = &mut itx.content {
                let room = (ROUND_BYTES - bytes) as u64;
                // Blocks are not cut if that can be avoided.
                let room = room - Some((*offset + room) % CUT_BYTES).filter(|over| *over < room).unwrap_or(0);
                if *length > room {
                    let rest = Content::Write { object: *object, generation: *generation, offset: *offset + room, length: *length - room };
                    *length = room;
                    queue.waiting.push_front(Itx { txg: itx.txg, content: rest });
                } else {
                    queue.taken += 1;
                }
                bytes += *length as usize + size_of::<WriteRecord>();
            } else {
                queue.taken += 1;
                bytes += size_of::<WriteRecord>();
            }
            records.push(itx);
        }
        queue.bytes = if queue.waiting.is_empty() { 0 } else { queue.bytes.saturating_sub(bytes) };
        queue.rounds += 1;
        let (number, taken) = (queue.rounds, queue.taken);
        self.chain.lock().rounds.push_back((number, taken, false));
        Some(Round { number, taken, records })
    }

    /// Whether nothing is logged after this round's records, of names or of `object`.
    pub(in crate::zil) fn is_last_word(&self, round: &Round, object: ObjectId) -> bool {
        let queue = self.issuer.lock();
        queue.rounds == round.number && queue.waiting.is_empty() && !self.itxs.is_pending(object)
    }

    /// Whether a group after `synced` has a change without a record.
    pub(in crate::zil) fn has_unlogged_after(&self, synced: Txg) -> bool {
        self.unlogged.load(Ordering::Acquire) > synced
    }

    pub(in crate::zil) fn note_unlogged(&self, txg: Txg) {
        self.unlogged.fetch_max(txg, Ordering::AcqRel);
    }

    /// Places a round, after waiting for its turn. `None`: it gets no place.
    fn place_in_turn(&self, round: &Round, filled: Filled) -> Option<Placed> {
        self.waiting.for_turn(round.number, &mut self.chain.lock());
        // A round before this one may have got no place since this one was filled: what came later is not to be in the log without it.
        let may_be_placed = !filled.lengths.is_empty() && !self.has_unlogged_after(self.context.groups.synced_txg());
        let place = if may_be_placed { self.place(round.number, &filled) } else { None };
        if place.is_none() && !filled.lengths.is_empty() {
            // Before the next one has its turn.
            self.note_unlogged(filled.newest);
        }
        {
            let mut chain = self.chain.lock();
            chain.turn += 1;
            self.waiting.turn_came(chain.turn);
        }
        place.map(|place| Placed { round: round.number, place, filled })
    }

    /// Writes a round durably.
    fn write_round(&self, placed: Placed) {
        let Placed { round, place, mut filled } = placed;
        block::number(&mut filled.bytes, &filled.lengths, place.first_sequence);
        let careless = self.context.tunables.canary == Some(Canary::NoFlushOfLog);
        let may_be_durable = !filled.has_placed && !careless;
        let is_one = place.blocks.len() == 1;
        let blocks = self.encode(place.blocks, filled.bytes);
        let began = self.context.host.now_ns();
        // One block is durable by itself.
        let mark = if may_be_durable && is_one { LogMark::default() } else { self.context.io.log_mark() };
        let durable = blocks.and_then(|blocks| self.context.io.write_log(&blocks, may_be_durable)).unwrap_or_else(|error| {
            self.note_unlogged(filled.newest);
            self.break_chain(round, &error);
            false
        });
        if !durable && !careless && let Err(error) = self.flusher.flush(|| self.context.io.flush_log()).and_then(|()| mark.check()) {
            self.break_chain(round, &error);
        }
        let took = self.context.host.now_ns().saturating_sub(began);
        self.chain.lock().gathering.note(took);
        self.round_done(round, Some(place.txg));
    }

    /// The blocks of a round with their bytes: of many, other threads make some.
    fn encode(&self, blocks: Vec<PlacedPart>, bytes: Vec<u8>) -> Result<Vec<(BlkPtr, Vec<u8>)>> {
        if bytes.len() < SHARED_BYTES {
            return blocks.into_iter().map(|block| encoded(block, &bytes)).collect();
        }
        let bytes = Arc::new(bytes);
        self.context.io.writers().map(blocks, move |block| encoded(block, &bytes)).into_iter().collect()
    }

    /// Gives a round its blocks, and the chain its next one. It is this round's turn. `None`: there is no room.
    fn place(&self, round: u64, filled: &Filled) -> Option<Place> {
        let synced = self.context.groups.synced_txg();
        let (tail, predicted) = {
            let mut chain = self.chain.lock();
            // Since this commit saw a chain, that one may have been given up and another begun, to which a header leads
            // only when its group is on disk.
            if chain.broken.is_some() || chain.usable_from > synced || chain.is_over {
                return None;
            }
            chain.sizes.note(filled.bytes.len());
            (chain.blocks.back()?.pointer, chain.sizes.predicted())
        };
        let room = (tail.logical_size() as usize).saturating_sub(LINK_BYTES);
        let parts = block::divide(&filled.lengths, room);
        let hold = self.context.groups.hold();
        let txg = hold.txg();
        let mut pointers = vec![tail];
        let sizes = parts.iter().skip(1).map(|part| block::block_bytes(part.len())).chain([predicted]);
        for bytes in sizes {
            let words = block::following(pointers.last().map_or([0; 4], BlkPtr::checksum_words));
            match block::allocate(&self.context, bytes, words, txg) {
                Ok(pointer) => pointers.push(pointer),
                Err(_) => {
                    self.give_back(&mut self.chain.lock(), &pointers[1..], txg);
                    return None;
                }
            }
        }
        let mut chain = self.chain.lock();
        // Meanwhile the chain may have been given up, and its last block with it.
        if chain.broken.is_some() || chain.blocks.back().is_none_or(|last| last.pointer != tail) {
            self.give_back(&mut chain, &pointers[1..], txg);
            return None;
        }
        let first_sequence = chain.record_sequence;
        chain.record_sequence += filled.lengths.len() as u64;
        if let Some(tail) = chain.blocks.back_mut() {
            (tail.newest, tail.round) = (filled.newest, round);
        }
        let count = pointers.len();
        for (index, pointer) in pointers.iter().enumerate().skip(1) {
            let is_tail = index + 1 == count;
            let (newest, round) = if is_tail { (0, 0) } else { (filled.newest, round) };
            chain.blocks.push_back(ChainBlock { pointer: *pointer, allocated: txg, newest, round });
        }
        chain.placed[slot(txg)] += 1;
        drop(chain);
        self.set_dirty(txg);
        let blocks = parts.into_iter().enumerate().map(|(index, part)| (pointers[index], pointers[index + 1], part)).collect();
        Some(Place { blocks, first_sequence, txg })
    }

    /// Has `txg`, which the caller holds, free blocks that it allocated and that are in no chain.
    fn give_back(&self, chain: &mut Chain, blocks: &[BlkPtr], txg: Txg) {
        blocks.iter().for_each(|block| chain.free_in(txg, *block));
        self.set_dirty(txg);
    }

    /// Ends the chain with its present records; it is freed when they are on disk, and the next commit begins another.
    /// Until then commits wait for groups. For a device that is to be emptied: one of the next groups frees all that
    /// the log has there.
    ///
    /// # Errors
    /// The log is that of another import and was not replayed.
    pub fn begin_anew(&self) -> Result<()> {
        let hold = self.context.groups.hold();
        let mut chain = self.chain.lock();
        if chain.is_claimed() {
            bail!(Busy, "dataset {}: its intent log was not replayed", self.dataset);
        }
        if !chain.blocks.is_empty() {
            let next = chain.turn + 1;
            chain.broken = Some(chain.broken.map_or(next, |broken| broken.min(next)));
        }
        drop(chain);
        self.set_dirty(hold.txg());
        Ok(())
    }

    /// Gives up a round that could not be written: the chain ends before it, and a new one begins when no record before
    /// it is needed.
    fn break_chain(&self, round: u64, error: &crate::error::Error) {
        tracing::warn!("dataset {}: the intent log cannot be written, transaction groups are waited for instead: {error}", self.dataset);
        let mut chain = self.chain.lock();
        chain.broken = Some(chain.broken.map_or(round, |broken| broken.min(round)));
        let newest = chain.blocks.iter().map(|block| block.newest).max().unwrap_or(0);
        drop(chain);
        self.note_unlogged(newest);
    }

    /// The most commits that may be under way at a time.
    pub(in crate::zil) fn commits_max(&self) -> usize {
        self.context.tunables.log_commits_max.max(1)
    }

    /// Notes that a round is written and flushed, or given up. `placed`: the group that it was placed in.
    fn round_done(&self, number: u64, placed: Option<Txg>) {
        let mut chain = self.chain.lock();
        if let Some(round) = chain.rounds.iter_mut().find(|(other, ..)| *other == number) {
            round.2 = true;
        }
        if let Some(txg) = placed {
            chain.placed[slot(txg)] -= 1;
            if chain.placed[slot(txg)] == 0 {
                self.waiting.group_written();
            }
        }
        let before = chain.stable;
        while let Some(&(_, taken, true)) = chain.rounds.front() {
            chain.stable = chain.stable.max(taken);
            chain.rounds.pop_front();
        }
        let stable = before + 1..=chain.stable;
        drop(chain);
        self.waiting.became_stable(stable);
    }

    fn wait_stable(&self, target: u64) -> Result<()> {
        if !self.waiting.for_stable(target) {
            return Err(self.context.groups.failure().unwrap_or_else(|| bug(format_args!("ended the log of dataset {}", self.dataset))));
        }
        Ok(())
    }

    /// Waits until all that was placed in `txg` is written (invariant 2).
    pub(in crate::zil) fn wait_written<'a>(&'a self, txg: Txg) -> parking_lot::MutexGuard<'a, Chain> {
        let mut chain = self.chain.lock();
        self.waiting.for_written(slot(txg), &mut chain);
        chain
    }
}

/// Stops the pool if its owner panics, before those that wait for the owner go on.
struct Alarm<'a>(&'a Zil);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.context.groups.fail(bug(format_args!("ended a thread that wrote the log of dataset {}", self.0.dataset)));
            self.0.chain.lock().is_over = true;
            self.0.waiting.is_over();
        }
    }
}

/// The lock of what waits to be taken.
pub(in crate::zil) type Issuer = Mutex<Queue>;
