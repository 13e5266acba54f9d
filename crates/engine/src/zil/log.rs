//! The log of one object set, and what of it is written with each group.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ondisk::blkptr::{BlkPtr, BlockPointer};
use ondisk::feature::Feature;
use ondisk::objset::ObjsetType;
use ondisk::zil::{self as disk, LogHeader};
use parking_lot::Mutex;
use zerocopy::IntoBytes;

use super::claim::decode_header;
use super::block::Sizes;
use super::commit::Issuer;
use super::empty_header;
use super::commit::flusher::Flusher;
use super::commit::gather::Gathering;
use super::itx::Itxs;
use super::soon::Soon;
use super::commit::waiting::Waiting;
use crate::dmu::{DmuContext, Objset, ObjsetLog, SyncTx, Tx};
use crate::error::Result;
use crate::txg::{TXG_SIZE, Txg, slot};

/// The chain of log blocks on disk, and those that are being written.
pub(super) struct Chain {
    /// The header; its pointer to the first block follows from the chain, unless the log is claimed.
    pub(super) header: LogHeader,
    /// The claimed header, when it was replayed, and the group that forgets it and frees its blocks: groups before that one still have it.
    leaving: Option<(Txg, LogHeader)>,
    /// Blocks to be freed by each group.
    free: [Vec<BlkPtr>; TXG_SIZE],
    /// Blocks that get one more reference with each group.
    shared: [Vec<BlkPtr>; TXG_SIZE],
    /// Commits may use the chain when this group is on disk.
    pub(super) usable_from: Txg,
    /// The blocks that the header leads to; the last one is not written yet.
    pub(super) blocks: VecDeque<ChainBlock>,
    /// The number of the last record.
    pub(super) record_sequence: u64,
    /// How large blocks ought to be.
    pub(super) sizes: Sizes,
    /// Rounds in order: number, how many records had been taken with it, and whether it is stable.
    pub(super) rounds: VecDeque<(u64, u64, bool)>,
    /// The number of records that are stable.
    pub(super) stable: u64,
    /// The round that may be placed.
    pub(super) turn: u64,
    /// Commits under way.
    pub(super) commits: usize,
    /// Whether a commit waits for others first.
    pub(super) gathering: Gathering,
    /// The last records of the commits that may not begin yet, because too many are under way.
    pub(super) candidates: Vec<u64>,
    /// How many rounds were placed in each group and are not written.
    pub(super) placed: [usize; TXG_SIZE],
    /// The first round that could not be written.
    pub(super) broken: Option<u64>,
    /// A bug ended a commit, and the pool has stopped: the records that it had taken will never be placed, written, or
    /// stable.
    pub(super) is_over: bool,
}

/// A block of the chain.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChainBlock {
    pub(super) pointer: BlkPtr,
    /// The group that it was allocated in.
    pub(super) allocated: Txg,
    /// The newest group of its records.
    pub(super) newest: Txg,
    /// The round that it was written by; 0: none.
    pub(super) round: u64,
}

impl Chain {
    fn of(header: LogHeader) -> Self {
        let mut chain = Chain {
            header,
            leaving: None,
            free: Default::default(),
            shared: Default::default(),
            usable_from: 0,
            blocks: VecDeque::new(),
            record_sequence: 0,
            sizes: Sizes::default(),
            rounds: VecDeque::new(),
            stable: 0,
            turn: 1,
            commits: 0,
            gathering: Gathering::default(),
            candidates: Vec::new(),
            placed: [0; TXG_SIZE],
            broken: None,
            is_over: false,
        };
        if !chain.is_claimed() {
            chain.begin_at(header.log);
        }
        chain
    }

    /// Begins the chain with a block that is allocated and not written.
    fn begin_at(&mut self, block: BlkPtr) {
        self.blocks.clear();
        if !block.is_hole() {
            self.blocks.push_back(ChainBlock { pointer: block, allocated: 0, newest: 0, round: 0 });
        }
    }

    /// The number of records that commits have taken.
    pub(super) fn taken(&self) -> u64 {
        self.rounds.back().map_or(self.stable, |(_, taken, _)| *taken)
    }

    /// Whether the log is that of another import, and not replayed yet.
    pub(super) fn is_claimed(&self) -> bool {
        self.header.claim_txg.get() != 0
    }

    /// The claimed log was replayed: `txg` forgets it.
    fn leave(&mut self, txg: Txg) {
        let header = std::mem::replace(&mut self.header, empty_header());
        self.leaving = (header.claim_txg.get() != 0).then_some((txg, header));
        self.blocks.clear();
        self.usable_from = txg;
    }

    /// The claimed header that is on disk with `txg`, in which the replay came to the record `replayed`; `None`: no log is claimed then. A later chain
    /// counts its records from 1: the number must not come into its header, or they would pass for replayed.
    fn claimed_header(&mut self, txg: Txg, replayed: u64) -> Option<LogHeader> {
        if self.leaving.is_some_and(|(from, _)| txg >= from) {
            self.leaving = None;
        }
        let header = match &mut self.leaving {
            Some((_, header)) => header,
            None if self.header.claim_txg.get() != 0 => &mut self.header,
            None => return None,
        };
        if replayed > header.replay_sequence.get() {
            header.replay_sequence = replayed.into();
        }
        Some(*header)
    }

    /// Has `txg`, which the caller holds, free the block.
    pub(super) fn free_in(&mut self, txg: Txg, block: BlkPtr) {
        self.free[slot(txg)].push(block);
    }

    /// Whether the block is useless: it could not be written, or is behind one that could not.
    fn is_lost(&self, block: &ChainBlock) -> bool {
        self.broken.is_some_and(|broken| block.round == 0 || block.round >= broken)
    }

    /// The block that the header is to point to. Blocks behind one that could not be written must not be replayed
    /// without that one.
    fn first(&self) -> BlkPtr {
        self.blocks.front().filter(|front| !self.is_lost(front)).map_or(BlkPtr::ZERO, |front| front.pointer)
    }

    /// Whether the block is being written. Its space must not be given away meanwhile, as the write would destroy the
    /// new contents. All its records may be on disk with a group before the one in which the round was placed, and that
    /// group does not wait for the write.
    fn is_being_written(&self, block: &ChainBlock) -> bool {
        block.round != 0 && self.rounds.iter().any(|(round, _, done)| *round == block.round && !done)
    }

    /// Takes out the blocks that are not needed when `txg` is on disk.
    fn drop_blocks(&mut self, txg: Txg) -> Vec<BlkPtr> {
        let mut dropped = Vec::new();
        while let Some(front) = self.blocks.front() {
            let is_tail = self.blocks.len() == 1 && self.broken.is_none();
            let lost = self.is_lost(front);
            if is_tail || front.allocated > txg || (front.newest > txg && !lost) || self.is_being_written(front) {
                break;
            }
            dropped.push(front.pointer);
            self.blocks.pop_front();
        }
        if self.broken.is_none() {
            return dropped;
        }
        // Blocks behind one that could not be written cannot be reached, and would be leaked after a crash.
        let first_lost = self.blocks.iter().position(|block| self.is_lost(block));
        for (index, block) in std::mem::take(&mut self.blocks).into_iter().enumerate() {
            if first_lost.is_none_or(|lost| index <= lost) || block.allocated > txg || self.is_being_written(&block) {
                self.blocks.push_back(block);
            } else {
                dropped.push(block.pointer);
            }
        }
        if self.blocks.is_empty() {
            self.broken = None;
        }
        dropped
    }
}

/// The intent log of one object set.
pub struct Zil {
    pub(super) dataset: u64,
    pub(super) context: Arc<DmuContext>,
    /// The header has to be written with the group.
    dirty: [AtomicBool; TXG_SIZE],
    /// guards: header and blocks
    pub(super) chain: Mutex<Chain>,
    /// The commits that wait for a change of the chain.
    pub(super) waiting: Waiting,
    /// guards: the records that wait to be taken; taken before `chain`
    pub(super) issuer: Issuer,
    pub(super) flusher: Flusher,
    /// The record that is being replayed; 0: none.
    pub(super) replaying: AtomicU64,
    /// The last record that each group replays.
    replayed: [AtomicU64; TXG_SIZE],
    /// Records that are not on disk.
    pub(super) itxs: Itxs,
    /// The last group with a change that has no record.
    pub(super) unlogged: AtomicU64,
    /// What is asked for soon after it was written.
    pub(super) soon: Soon,
    /// Property `sync=disabled`.
    disabled: AtomicBool,
    /// Property `logbias=throughput`.
    throughput: AtomicBool,
}

/// The header as it is in the object set.
pub(crate) fn header_of(objset: &Objset) -> LogHeader {
    decode_header(&objset.zil_header())
}

/// The same block as the first of a new chain, which no block that was written before can belong to.
fn renewed(block: &BlkPtr, dataset: u64, random: impl Fn() -> u64) -> Option<BlkPtr> {
    let Ok(BlockPointer::Data(mut data)) = block.decode() else { return None };
    if !data.little_endian || data.checksum_algorithm.number() != transform::checksum::ZILOG2 {
        return None;
    }
    data.checksum = first_checksum(dataset, random);
    Some(data.encode())
}

/// The checksum words of the first block of a new chain.
pub(super) fn first_checksum(dataset: u64, random: impl Fn() -> u64) -> [u64; 4] {
    let mut words = [0; 4];
    words[disk::CHECKSUM_GUID_0] = random();
    words[disk::CHECKSUM_GUID_1] = random();
    words[disk::CHECKSUM_OBJSET] = dataset;
    words[disk::CHECKSUM_SEQUENCE] = 1;
    words
}

impl Zil {
    /// The log of an object set, made on first use.
    pub fn of(objset: &Objset) -> Arc<Zil> {
        objset.log_or(|| {
            Arc::new(Zil {
                dataset: objset.dataset(),
                context: objset.context().clone(),
                dirty: Default::default(),
                chain: Mutex::new(Chain::of(header_of(objset))),
                waiting: Waiting::default(),
                issuer: Issuer::default(),
                flusher: Flusher::default(),
                replaying: AtomicU64::new(0),
                replayed: Default::default(),
                itxs: Itxs::default(),
                unlogged: AtomicU64::new(0),
                soon: Soon::default(),
                disabled: AtomicBool::new(false),
                throughput: AtomicBool::new(false),
            })
        })
    }

    /// Sets that nothing is logged and no call waits (property `sync`).
    pub fn set_disabled(&self, disabled: bool) {
        self.disabled.store(disabled, Ordering::Release);
    }

    /// Nothing is to be logged.
    pub fn is_disabled(&self) -> bool {
        self.disabled.load(Ordering::Acquire)
    }

    /// All writes go to their own place at once (property `logbias=throughput`).
    pub fn set_throughput(&self, throughput: bool) {
        self.throughput.store(throughput, Ordering::Release);
    }

    pub(super) fn prefers_throughput(&self) -> bool {
        self.throughput.load(Ordering::Acquire)
    }

    pub(super) fn set_dirty(&self, txg: Txg) {
        self.dirty[slot(txg)].store(true, Ordering::Release);
    }

    /// The log was claimed in `txg`, or before, and must be replayed.
    pub(super) fn claimed(&self, header: LogHeader, txg: Txg) {
        let mut chain = self.chain.lock();
        chain.header = header;
        chain.blocks.clear();
        drop(chain);
        self.set_dirty(txg);
    }

    /// With `txg` these blocks are referred to by the log too.
    pub(super) fn refer_to(&self, blocks: Vec<BlkPtr>, txg: Txg) {
        self.chain.lock().shared[slot(txg)].extend(blocks);
    }

    /// There is nothing to replay: from `txg` on the block begins a new chain.
    pub(super) fn start_over(&self, block: BlkPtr, txg: Txg) {
        let mut chain = self.chain.lock();
        chain.header = empty_header();
        match renewed(&block, self.dataset, || self.context.host.random()) {
            Some(first) => chain.begin_at(first),
            None => {
                chain.blocks.clear();
                chain.free_in(txg, block);
            }
        }
        chain.usable_from = txg;
        drop(chain);
        self.set_dirty(txg);
    }

    /// The log is lost: the header forgets it. Its first block is allocated all the same, if it is older than `txg`.
    pub(super) fn give_up(&self, txg: Txg) {
        let mut chain = self.chain.lock();
        let block = std::mem::replace(&mut chain.header, empty_header()).log;
        chain.blocks.clear();
        if block.birth() < txg {
            chain.free_in(txg, block);
        }
        chain.usable_from = txg;
        drop(chain);
        self.set_dirty(txg);
    }

    /// A log of another import is done with: `txg`, which the caller holds, frees its blocks.
    pub(super) fn forget_claimed(&self, blocks: Vec<BlkPtr>, txg: Txg) {
        let mut chain = self.chain.lock();
        chain.leave(txg);
        chain.free[slot(txg)].extend(blocks);
        drop(chain);
        self.set_dirty(txg);
    }

    /// Whether a record is being replayed.
    pub fn is_replaying(&self) -> bool {
        self.replaying.load(Ordering::Acquire) != 0
    }

    /// If a record is being replayed, notes that `tx` did it. `true`: so the operation is not to be logged.
    pub fn note(&self, tx: &Tx) -> bool {
        let sequence = self.replaying.load(Ordering::Acquire);
        if sequence == 0 {
            return false;
        }
        self.replayed[slot(tx.txg())].fetch_max(sequence, Ordering::AcqRel);
        self.set_dirty(tx.txg());
        true
    }
}

impl ObjsetLog for Zil {
    fn is_dirty(&self, txg: Txg) -> bool {
        self.dirty[slot(txg)].load(Ordering::Acquire)
    }

    fn sync(&self, objset: &Objset, tx: &SyncTx<'_>) -> Result<()> {
        self.dirty[slot(tx.txg())].store(false, Ordering::Release);
        let mut chain = self.wait_written(tx.txg());
        let claimed = chain.claimed_header(tx.txg(), self.replayed[slot(tx.txg())].swap(0, Ordering::AcqRel));
        for block in std::mem::take(&mut chain.shared[slot(tx.txg())]) {
            self.context.io.add_reference(&block, objset.dataset())?;
        }
        for block in std::mem::take(&mut chain.free[slot(tx.txg())]) {
            tx.free(&block);
        }
        if !chain.is_claimed() {
            chain.drop_blocks(tx.txg()).iter().for_each(|block| tx.free(block));
            chain.header.log = chain.first();
        }
        let has_chain = !chain.header.log.is_hole() && !chain.is_claimed();
        if has_chain && objset.objset_type() == ObjsetType::FileSystem {
            objset.owner().uses(Feature::Zilsaxattr);
        }
        let mut bytes = [0; ondisk::objset::ZIL_HEADER_BYTES];
        bytes.copy_from_slice(claimed.unwrap_or(chain.header).as_bytes());
        drop(chain);
        objset.set_zil_header(tx, bytes);
        Ok(())
    }

    fn synced(&self, txg: Txg) {
        self.itxs.clear(txg);
    }

    fn waits_for_replay(&self) -> bool {
        self.needs_replay()
    }

    fn is_being_replayed(&self) -> bool {
        self.is_replaying()
    }

    fn destroy(&self, objset: &Objset, tx: &SyncTx<'_>) -> Result<()> {
        let mut chain = self.chain.lock();
        // Nothing of a claimed log is to be replayed here: it has its first block alone, which is not among those of the chain.
        let claimed = if chain.is_claimed() { chain.header.log } else { BlkPtr::ZERO };
        if !claimed.is_hole() {
            tx.free(&claimed);
        }
        (chain.header, chain.leaving) = (empty_header(), None);
        for block in std::mem::take(&mut chain.blocks) {
            tx.free(&block.pointer);
        }
        drop(chain);
        objset.set_zil_header(tx, [0; ondisk::objset::ZIL_HEADER_BYTES]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(round: u64, newest: Txg) -> ChainBlock {
        ChainBlock { pointer: BlkPtr::ZERO, allocated: 5, newest, round }
    }

    fn chain(blocks: &[ChainBlock], under_way: &[u64]) -> Chain {
        let mut chain = Chain::of(empty_header());
        chain.blocks.extend(blocks);
        chain.rounds.extend((1..=3).map(|round| (round, round, !under_way.contains(&round))));
        chain
    }

    /// The records of group 5 are written by a round that was placed in group 6. When 5 is on disk the block is not needed, but it is still being written: in
    /// a pool that is nearly full, where what is freed can be used at once, it was written over what others had put there.
    #[test]
    fn a_block_that_is_being_written_stays() {
        let blocks = [block(1, 5), block(2, 5), block(3, 5), block(0, 0)];
        let left = |under_way: &[u64], broken| {
            let mut chain = chain(&blocks, under_way);
            chain.broken = broken;
            let dropped = chain.drop_blocks(5).len();
            (dropped, chain.blocks.iter().map(|block| block.round).collect::<Vec<_>>())
        };
        assert_eq!(left(&[], None), (3, vec![0]));
        assert_eq!(left(&[1], None), (0, vec![1, 2, 3, 0]));
        assert_eq!(left(&[2], None), (1, vec![2, 3, 0]));
        // The second round could not be written. What is behind it goes, when it is written.
        assert_eq!(left(&[], Some(2)), (4, vec![]));
        assert_eq!(left(&[3], Some(2)), (3, vec![3]));
        assert_eq!(left(&[1, 3], Some(2)), (1, vec![1, 2, 3]));
    }
    /// A group was being written while a replay ended: it had the new header, with the number of the last record that was replayed. After a kill the next
    /// log, whose records count from 1, was passed over up to that number; and what was replayed in the group after it was in no log any more.
    #[test]
    fn a_replayed_log_is_on_disk_until_the_group_that_frees_it() {
        let mut header = empty_header();
        header.claim_txg = 10.into();
        let mut chain = Chain::of(header);
        let on_disk = |chain: &mut Chain, txg, replayed| chain.claimed_header(txg, replayed).map(|header| header.replay_sequence.get());
        assert_eq!(on_disk(&mut chain, 10, 3), Some(3));
        chain.leave(12);
        assert_eq!(on_disk(&mut chain, 11, 7), Some(7), "it is freed with 12");
        assert_eq!(on_disk(&mut chain, 12, 9), None);
        assert_eq!(on_disk(&mut chain, 13, 0), None);
        assert_eq!((chain.header.claim_txg.get(), chain.header.replay_sequence.get()), (0, 0));
    }
}
