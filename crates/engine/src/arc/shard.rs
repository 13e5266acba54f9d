//! One shard of the cache: which blocks it has, and which it gives up next.
//!
//! # Theory
//! Two queues of resident blocks, *recent* and *frequent*, are swept like clocks: the hand takes the block at the front; if
//! it was not used since the hand last passed, it is evicted and leaves a ghost; if it was, it goes to the end of the
//! frequent queue with its flag cleared. `target` is how many bytes the recent queue ought to have. A miss whose ghost is of a
//! recent block says that recent blocks were given too little room, and raises it; a ghost of a frequent block lowers it.
//! (Known as "clock with adaptive replacement", here by bytes rather than by blocks.)
//!
//! A third hand goes round the blocks of which there are two copies, as on disk and plain. It moves first, while the plain ones of these have more than their part of
//! the shard: one that was not used since it last came goes, so that the block stays as it is on disk. One that was used round after round stays, and
//! the other copy, which nobody needs, goes.
//!
//! Queue entries carry a ticket. An entry whose block is gone, or has moved on and has another ticket, is stale and skipped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use hashbrown::HashMap;
use ondisk::blkptr::BlkPtr;

use super::ahead::Ahead;
use super::copies::{Copies, Data};

/// First DVA's vdev and offset, and when it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) vdev: u32,
    pub(super) offset: u64,
    pub(super) birth: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Recent,
    Frequent,
}

/// Used since the hand of its list was here.
const USED: u8 = 1;
/// Used since the hand of the plain copies was here.
const PLAIN_USED: u8 = 2;
/// Read ahead: the first use is what it was read for, and says nothing about a second one.
const AHEAD: u8 = 4;

#[derive(Debug)]
struct Block {
    copies: Copies,
    /// What it is.
    kind: Kind,
    /// Bits.
    use_flags: AtomicU8,
    list: List,
    ticket: u64,
    /// In the queue of plain copies; 0: it is in none.
    plain_ticket: u64,
    /// The plain copy was used for a round.
    is_hot: bool,
    /// What it is in the pool, if it may be written to a cache device.
    origin: Option<Box<BlkPtr>>,
}

/// A block that may be written to a cache device.
pub(super) struct Candidate {
    pub(super) key: Key,
    pub(super) copies: Copies,
    pub(super) pointer: BlkPtr,
    pub(super) is_frequent: bool,
    /// It was read ahead, and not used yet.
    pub(super) is_ahead: bool,
}

/// Which of them are looked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scan {
    pub(super) metadata: bool,
    pub(super) frequent: bool,
    /// None that were read ahead and not used yet.
    pub(super) skip_ahead: bool,
    /// Begins with those that leave last.
    pub(super) from_back: bool,
}

/// What the shard has to know of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) metadata: bool,
    /// Its size when it is not compressed.
    pub(super) logical_bytes: u64,
}

#[derive(Debug)]
struct Ghost {
    list: List,
    bytes: u64,
    ticket: u64,
}

/// What is known of blocks that left: their bytes, and how often one was asked for again.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Ghosts {
    /// Bytes of blocks that had been seen once.
    pub recent_bytes: u64,
    /// Bytes of blocks that had been seen again.
    pub frequent_bytes: u64,
    /// Of those seen once, came again.
    pub recent_hits: u64,
    /// Of those seen again, came again.
    pub frequent_hits: u64,
}

impl Ghosts {
    pub(super) fn add(&mut self, other: Ghosts) {
        self.recent_bytes += other.recent_bytes;
        self.frequent_bytes += other.frequent_bytes;
        self.recent_hits += other.recent_hits;
        self.frequent_hits += other.frequent_hits;
    }
}

type Queue = VecDeque<(Key, u64)>;

/// How many bytes of which kind.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) recent: u64,
    pub(super) frequent: u64,
    pub(super) metadata: u64,
    /// Copies as on disk.
    pub(super) compressed: u64,
    /// What these would be if they were not compressed.
    pub(super) uncompressed: u64,
    /// Copies that are only as they are used.
    pub(super) overhead: u64,
    /// Of these, copies of blocks that are there as on disk, too.
    spare: u64,
}

impl Bytes {
    pub(super) fn resident(&self) -> u64 {
        self.recent + self.frequent
    }

    /// Those of one block.
    fn of(list: List, kind: Kind, copies: &Copies) -> Bytes {
        let (all, compressed) = (cost(copies), copies.physical().map(|data| data.len() as u64));
        Bytes {
            recent: if list == List::Recent { all } else { 0 },
            frequent: if list == List::Frequent { all } else { 0 },
            metadata: if kind.metadata { all } else { 0 },
            compressed: compressed.unwrap_or(0),
            uncompressed: compressed.map_or(0, |_| kind.logical_bytes),
            overhead: copies.bytes() - compressed.unwrap_or(0),
            spare: if let Copies::Both { plain, .. } = copies { plain.len() as u64 } else { 0 },
        }
    }

    fn change(&mut self, other: Bytes, operation: fn(u64, u64) -> u64) {
        let change = |own: &mut u64, other| *own = operation(*own, other);
        change(&mut self.recent, other.recent);
        change(&mut self.frequent, other.frequent);
        change(&mut self.metadata, other.metadata);
        change(&mut self.compressed, other.compressed);
        change(&mut self.uncompressed, other.uncompressed);
        change(&mut self.overhead, other.overhead);
        change(&mut self.spare, other.spare);
    }

    pub(super) fn add(&mut self, other: Bytes) {
        self.change(other, |own, other| own + other);
    }

    fn subtract(&mut self, other: Bytes) {
        self.change(other, |own, other| own - other);
    }
}

impl Block {
    fn bytes(&self) -> Bytes {
        Bytes::of(self.list, self.kind, &self.copies)
    }

    /// Somebody used it. Written only when it changes, so that the cache lines of hot blocks stay shared.
    fn mark(&self, ahead: &Ahead) {
        match self.use_flags.load(Ordering::Relaxed) {
            flags if flags & AHEAD != 0 => drop(self.use_ahead(ahead)),
            flags if flags != USED | PLAIN_USED => self.use_flags.store(USED | PLAIN_USED, Ordering::Relaxed),
            _ => {}
        }
    }

    /// The first use of what was read ahead.
    fn use_ahead(&self, ahead: &Ahead) -> bool {
        let is_first = self.use_flags.swap(PLAIN_USED, Ordering::Relaxed) & AHEAD != 0;
        if is_first {
            ahead.used();
        }
        is_first
    }

    fn is_ahead(&self) -> bool {
        self.use_flags.load(Ordering::Relaxed) & AHEAD != 0
    }

    /// Was it used since this was last asked?
    fn take_use(&self, flag: u8) -> bool {
        self.use_flags.fetch_and(!flag, Ordering::Relaxed) & flag != 0
    }
}

/// One shard.
#[derive(Debug, Default)]
pub(super) struct Shard {
    blocks: HashMap<Key, Block>,
    recent: Queue,
    frequent: Queue,
    /// Blocks of which there are two copies.
    plains: Queue,
    ghosts: HashMap<Key, Ghost>,
    recent_ghosts: Queue,
    frequent_ghosts: Queue,
    recent_ghost_bytes: u64,
    frequent_ghost_bytes: u64,
    ghost_hits: [u64; 2],
    /// Of blocks seen once, and of others.
    hits: [AtomicU64; 2],
    bytes: Bytes,
    /// Bytes that the recent queue ought to have.
    target: u64,
    tickets: u64,
    /// Blocks that may be written to cache devices.
    origins: u64,
    ahead: Arc<Ahead>,
}

/// What part of the share plain copies may have of blocks that are there as on disk, too.
const SPARE_PART: u64 = 2;
/// A larger part of the share than this one of them cannot have.
const LARGE_PART: u64 = 4;
/// What a block costs beside its contents.
const OVERHEAD_BYTES: u64 = 128;
/// What one costs that may be written to a cache device, beside that.
const ORIGIN_BYTES: u64 = size_of::<BlkPtr>() as u64 + 16;

fn cost(copies: &Copies) -> u64 {
    copies.bytes() + OVERHEAD_BYTES
}

impl Shard {
    /// An empty one, that tells what became of blocks that were read ahead.
    pub(super) fn new(ahead: &Arc<Ahead>) -> Shard {
        Shard { ahead: Arc::clone(ahead), ..Shard::default() }
    }

    /// Somebody got the block otherwise; it may have been read ahead.
    pub(super) fn use_ahead(&self, key: &Key) -> bool {
        self.blocks.get(key).filter(|block| block.is_ahead()).is_some_and(|block| block.use_ahead(&self.ahead))
    }

    /// The plain block, if it is here; then it is marked as used.
    pub(super) fn get(&self, key: &Key) -> Option<Data> {
        let block = self.blocks.get(key)?;
        let plain = block.copies.plain()?;
        block.mark(&self.ahead);
        self.hits[block.list as usize].fetch_add(1, Ordering::Relaxed);
        Some(Arc::clone(plain))
    }

    /// What there is of the block, which is marked as used if that is one.
    pub(super) fn copies(&self, key: &Key, is_use: bool) -> Option<Copies> {
        let block = self.blocks.get(key)?;
        if is_use {
            block.mark(&self.ahead);
        }
        Some(block.copies.clone())
    }

    /// Whether the plain block is here; does not count as a use.
    pub(super) fn has_plain(&self, key: &Key) -> bool {
        self.blocks.get(key).is_some_and(|block| block.copies.plain().is_some())
    }

    /// Whether the block is here in any form; does not count as a use.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.blocks.contains_key(key)
    }

    /// A read found the block, though not as it wanted it.
    pub(super) fn hit(&self, key: &Key) {
        if let Some(block) = self.blocks.get(key) {
            self.hits[block.list as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Reads that found their block, seen once or seen again.
    pub(super) fn hits(&self) -> [u64; 2] {
        self.hits.each_ref().map(|hits| hits.load(Ordering::Relaxed))
    }

    pub(super) fn ghosts(&self) -> Ghosts {
        let [recent_hits, frequent_hits] = self.ghost_hits;
        Ghosts { recent_bytes: self.recent_ghost_bytes, frequent_bytes: self.frequent_ghost_bytes, recent_hits, frequent_hits }
    }

    pub(super) fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Bytes of blocks here.
    pub(super) fn resident(&self) -> u64 {
        self.bytes.resident() + self.origins * ORIGIN_BYTES
    }

    /// A block may be written to cache devices, or may not.
    pub(super) fn set_origin(&mut self, key: &Key, origin: Option<BlkPtr>) {
        let Some(block) = self.blocks.get_mut(key) else { return };
        self.origins -= u64::from(block.origin.is_some());
        block.origin = origin.map(Box::new);
        self.origins += u64::from(block.origin.is_some());
    }

    /// Looks through a list, no further than `headroom` bytes, for blocks that `accept` takes, which is told how many bytes they are on disk.
    pub(super) fn scan(&self, scan: Scan, headroom: u64, accept: &mut dyn FnMut(&Key, u64) -> bool, found: &mut Vec<Candidate>) {
        let queue = if scan.frequent { &self.frequent } else { &self.recent };
        let mut left = headroom;
        for at in 0..queue.len() {
            let (key, ticket) = queue[if scan.from_back { queue.len() - 1 - at } else { at }];
            let Some(block) = self.blocks.get(&key).filter(|block| block.ticket == ticket && block.kind.metadata == scan.metadata) else { continue };
            if left == 0 {
                break;
            }
            left = left.saturating_sub(block.kind.logical_bytes);
            let is_ahead = block.is_ahead();
            let Some(pointer) = block.origin.as_deref().filter(|_| !(is_ahead && scan.skip_ahead)) else { continue };
            if accept(&key, pointer.physical_size()) {
                found.push(Candidate { key, copies: block.copies.clone(), pointer: *pointer, is_frequent: scan.frequent, is_ahead });
            }
        }
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// Keeps a block; replaces one of the same key. `share` is how many bytes this shard ought to have.
    pub(super) fn insert(&mut self, key: Key, copies: Copies, kind: Kind, ahead: bool, share: u64) {
        let is_both = matches!(copies, Copies::Both { .. });
        let plain_ticket = if is_both { self.ticket() } else { 0 };
        if let Some(block) = self.blocks.get_mut(&key) {
            self.bytes.subtract(block.bytes());
            (block.copies, block.kind, block.plain_ticket, block.is_hot) = (copies, kind, plain_ticket, false);
            self.bytes.add(block.bytes());
        } else {
            let list = self.adapt(&key, share);
            let ticket = self.ticket();
            let use_flags = AtomicU8::new(if ahead { AHEAD } else { 0 });
            let block = Block { copies, kind, use_flags, list, ticket, plain_ticket, is_hot: false, origin: None };
            self.bytes.add(block.bytes());
            self.blocks.insert(key, block);
            self.queue(list).push_back((key, ticket));
        }
        if is_both {
            self.plains.push_back((key, plain_ticket));
        }
        self.drop_stale();
    }

    /// Learns from the ghost of `key`, if there is one; returns the list in which the block goes.
    fn adapt(&mut self, key: &Key, share: u64) -> List {
        let Some(ghost) = self.ghosts.remove(key) else { return List::Recent };
        let (recent, frequent) = (self.recent_ghost_bytes.max(1), self.frequent_ghost_bytes.max(1));
        self.ghost_hits[ghost.list as usize] += 1;
        match ghost.list {
            List::Recent => {
                self.target = (self.target + ghost.bytes * (frequent / recent).max(1)).min(share);
                self.recent_ghost_bytes -= ghost.bytes;
            }
            List::Frequent => {
                self.target = self.target.saturating_sub(ghost.bytes * (recent / frequent).max(1));
                self.frequent_ghost_bytes -= ghost.bytes;
            }
        }
        List::Frequent
    }

    fn queue(&mut self, list: List) -> &mut Queue {
        match list {
            List::Recent => &mut self.recent,
            List::Frequent => &mut self.frequent,
        }
    }

    /// Forgets a block, without a ghost: it was freed.
    pub(super) fn remove(&mut self, key: &Key) {
        if let Some(block) = self.blocks.remove(key) {
            self.origins -= u64::from(block.origin.is_some());
            self.bytes.subtract(block.bytes());
        }
    }

    /// Moves a hand by one block. `false`: nothing is left. What was evicted is pushed to `evicted`, to be dropped without
    /// the lock. `share` is how many bytes this shard ought to have.
    pub(super) fn evict_one(&mut self, share: u64, evicted: &mut Vec<Data>) -> bool {
        if self.bytes.spare > share / SPARE_PART
            && let Some((key, ticket)) = self.plains.pop_front()
        {
            self.evict_copy(key, ticket, share, evicted);
            return true;
        }
        let from_recent = self.bytes.recent > 0 && (self.bytes.recent > self.target.min(share) || self.bytes.frequent == 0);
        let list = if from_recent { List::Recent } else { List::Frequent };
        let Some((key, ticket)) = self.queue(list).pop_front() else { return self.resident() > 0 };
        let fresh = self.tickets + 1;
        let Some(block) = self.blocks.get_mut(&key).filter(|block| block.ticket == ticket) else { return true };
        let bytes = block.bytes();
        if block.take_use(USED) {
            self.tickets = fresh;
            block.ticket = fresh;
            block.list = List::Frequent;
            let now = block.bytes();
            self.bytes.subtract(bytes);
            self.bytes.add(now);
            self.frequent.push_back((key, fresh));
        } else if let Some(block) = self.blocks.remove(&key) {
            self.origins -= u64::from(block.origin.is_some());
            self.bytes.subtract(bytes);
            if block.is_ahead() {
                self.ahead.unused();
            }
            self.haunt(key, list, cost(&block.copies), share);
            evicted.extend(block.copies.into_data());
        }
        true
    }

    /// The hand of the plain copies is at a block.
    fn evict_copy(&mut self, key: Key, ticket: u64, share: u64, evicted: &mut Vec<Data>) {
        let Some(block) = self.blocks.get_mut(&key).filter(|block| block.plain_ticket == ticket) else { return };
        let before = block.bytes();
        let is_wanted = block.take_use(PLAIN_USED) && block.copies.plain().is_some_and(|plain| plain.len() as u64 <= share / LARGE_PART);
        if is_wanted && !block.is_hot {
            block.is_hot = true;
            self.plains.push_back((key, ticket));
            return;
        }
        evicted.extend(if is_wanted { block.copies.give_up_physical() } else { block.copies.give_up_plain() });
        (block.plain_ticket, block.is_hot) = (0, false);
        let after = block.bytes();
        self.bytes.subtract(before);
        self.bytes.add(after);
    }

    /// Leaves a ghost, and forgets the oldest ones beyond one share of each kind.
    fn haunt(&mut self, key: Key, list: List, bytes: u64, share: u64) {
        let ticket = self.ticket();
        let (queue, total) = match list {
            List::Recent => (&mut self.recent_ghosts, &mut self.recent_ghost_bytes),
            List::Frequent => (&mut self.frequent_ghosts, &mut self.frequent_ghost_bytes),
        };
        queue.push_back((key, ticket));
        *total += bytes;
        self.ghosts.insert(key, Ghost { list, bytes, ticket });
        while *total > share
            && let Some((oldest, ticket)) = queue.pop_front()
        {
            if self.ghosts.get(&oldest).is_some_and(|ghost| ghost.ticket == ticket)
                && let Some(ghost) = self.ghosts.remove(&oldest)
            {
                *total -= ghost.bytes;
            }
        }
    }

    /// Keeps the queues from filling with stale entries when blocks are freed faster than the hands move.
    fn drop_stale(&mut self) {
        const SLACK: usize = 64;
        if self.recent.len() + self.frequent.len() > 2 * self.blocks.len() + SLACK {
            let blocks = &self.blocks;
            let current = |entry: &(Key, u64)| blocks.get(&entry.0).is_some_and(|block| block.ticket == entry.1);
            self.recent.retain(current);
            self.frequent.retain(current);
        }
        if self.plains.len() > 2 * self.blocks.len() + SLACK {
            let blocks = &self.blocks;
            self.plains.retain(|entry| blocks.get(&entry.0).is_some_and(|block| block.plain_ticket == entry.1));
        }
        if self.recent_ghosts.len() + self.frequent_ghosts.len() > 2 * self.ghosts.len() + SLACK {
            let ghosts = &self.ghosts;
            let current = |entry: &(Key, u64)| ghosts.get(&entry.0).is_some_and(|ghost| ghost.ticket == entry.1);
            self.recent_ghosts.retain(current);
            self.frequent_ghosts.retain(current);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn key(offset: u64) -> Key {
        Key { vdev: 0, offset, birth: 1 }
    }

    fn data(size: usize) -> Data {
        Arc::new(vec![7; size])
    }

    fn block(size: usize) -> Copies {
        Copies::Plain(data(size))
    }

    fn kind(metadata: bool) -> Kind {
        Kind { metadata, logical_bytes: 4096 }
    }

    fn shrink(shard: &mut Shard, share: u64) {
        let mut evicted = Vec::new();
        while shard.resident() > share && shard.evict_one(share, &mut evicted) {}
    }

    impl Shard {
        fn check(&self) {
            let sum = |of: &dyn Fn(&Block) -> u64| self.blocks.values().map(of).sum::<u64>();
            let if_so = |is_so: bool, bytes: u64| if is_so { bytes } else { 0 };
            assert_eq!(self.bytes.recent, sum(&|b| if_so(b.list == List::Recent, cost(&b.copies))));
            assert_eq!(self.bytes.frequent, sum(&|b| if_so(b.list == List::Frequent, cost(&b.copies))));
            assert_eq!(self.bytes.metadata, sum(&|b| if_so(b.kind.metadata, cost(&b.copies))));
            assert_eq!(self.bytes.compressed, sum(&|b| b.copies.physical().map_or(0, |data| data.len() as u64)));
            assert_eq!(self.bytes.uncompressed, sum(&|b| if_so(b.copies.physical().is_some(), b.kind.logical_bytes)));
            let all = sum(&|b| b.copies.bytes());
            assert_eq!(self.bytes.overhead, all - self.bytes.compressed);
            assert_eq!(self.resident(), all + self.blocks.len() as u64 * OVERHEAD_BYTES);
            assert_eq!(self.bytes.spare, sum(&|b| if let Copies::Both { plain, .. } = &b.copies { plain.len() as u64 } else { 0 }));
            let ghosts = |list| self.ghosts.values().filter(|g| g.list == list).map(|g| g.bytes).sum::<u64>();
            assert_eq!(self.recent_ghost_bytes, ghosts(List::Recent));
            assert_eq!(self.frequent_ghost_bytes, ghosts(List::Frequent));
            for (key, block) in &self.blocks {
                let queue = if block.list == List::Recent { &self.recent } else { &self.frequent };
                assert_eq!(queue.iter().filter(|entry| **entry == (*key, block.ticket)).count(), 1);
                let (is_both, plain) = (matches!(block.copies, Copies::Both { .. }), (*key, block.plain_ticket));
                assert_eq!(self.plains.iter().filter(|entry| **entry == plain).count(), usize::from(is_both));
                assert!(!self.ghosts.contains_key(key));
            }
        }
    }

    #[test]
    fn the_working_set_survives_a_scan() {
        let mut shard = Shard::default();
        let share = 100 * (1000 + OVERHEAD_BYTES);
        for round in 0..3 {
            for n in 0..50 {
                if shard.get(&key(n)).is_none() {
                    shard.insert(key(n), block(1000), kind(round == 0), false, share);
                    shrink(&mut shard, share);
                }
            }
        }
        for n in 1000..11_000 {
            shard.insert(key(n), block(1000), kind(false), false, share);
            shrink(&mut shard, share);
        }
        let kept = (0..50).filter(|&n| shard.blocks.contains_key(&key(n))).count();
        assert_eq!(kept, 50, "a scan pushed out blocks that are used again and again");
        shard.check();
    }

    #[test]
    fn a_block_read_ahead_counts_from_its_second_use() {
        let mut shard = Shard::default();
        let share = 10 * (100 + OVERHEAD_BYTES);
        for n in 0..10 {
            shard.insert(key(n), block(100), kind(false), true, share);
        }
        shard.get(&key(0));
        shard.get(&key(1));
        shard.get(&key(1));
        for n in 10..19 {
            shard.insert(key(n), block(100), kind(false), true, share);
            shrink(&mut shard, share);
        }
        assert!(!shard.blocks.contains_key(&key(0)));
        assert!(shard.blocks.contains_key(&key(1)));
    }

    fn both(shard: &mut Shard, number: u64) {
        shard.insert(key(number), Copies::Both { physical: data(100), plain: data(1000) }, kind(false), false, 1 << 20);
    }

    #[test]
    fn of_two_copies_the_plain_one_goes_first() {
        let mut shard = Shard::default();
        (0..10).for_each(|number| both(&mut shard, number));
        // Room for all of them as they are on disk, and one that is plain.
        shrink(&mut shard, 10 * (100 + OVERHEAD_BYTES) + 1000);
        let is_physical = |number| matches!(shard.copies(&key(number), false), Some(Copies::Physical(data)) if data.len() == 100);
        assert_eq!((shard.blocks.len(), (0..10).filter(|&number| is_physical(number)).count()), (10, 9));
        assert!(shard.ghosts.is_empty());
        shrink(&mut shard, 5 * (100 + OVERHEAD_BYTES));
        assert_eq!(shard.blocks.len(), 5);
        shard.check();
    }

    #[test]
    fn what_is_used_again_and_again_stays_plain() {
        let mut shard = Shard::default();
        (0..10).for_each(|number| both(&mut shard, number));
        for steps in [10, 8] {
            assert!((0..10).all(|number| shard.get(&key(number)).is_some()));
            (0..steps).for_each(|_| assert!(shard.evict_one(4000, &mut Vec::new())));
            shard.check();
        }
        for number in 0..8 {
            assert!(matches!(shard.copies(&key(number), false), Some(Copies::Plain(data)) if data.len() == 1000), "{number}");
        }
    }

    #[test]
    fn accounts_are_right_whatever_happens() {
        let seed = 0x7a71;
        println!("seed {seed:#x}");
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut shard = Shard::default();
        let share = 40_000;
        for step in 0..30_000 {
            let at = key(random.random_range(0..120));
            match random.random_range(0..10) {
                0..5 => drop(shard.get(&at)),
                5..9 => {
                    let (small, large) = (random.random_range(0..500), random.random_range(500..2000));
                    let copies = match random.random_range(0..4) {
                        0 => Copies::Same(data(large)),
                        1 => Copies::Plain(data(large)),
                        2 => Copies::Physical(data(small)),
                        _ => Copies::Both { physical: data(small), plain: data(large) },
                    };
                    shard.insert(at, copies, Kind { metadata: random.random(), logical_bytes: large as u64 }, random.random(), share);
                    shrink(&mut shard, share);
                    assert!(shard.resident() <= share);
                }
                _ => shard.remove(&at),
            }
            if step % 100 == 0 {
                shard.check();
            }
        }
        assert!(shard.recent.len() < 1000 && shard.frequent.len() < 1000 && shard.plains.len() < 1000);
        while shard.evict_one(share, &mut Vec::new()) {}
        assert_eq!(shard.bytes(), Bytes::default());
        shard.check();
    }
}
