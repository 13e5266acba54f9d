//! One shard of the cache: which blocks it has, and which it gives up next.
//!
//! # Theory
//! Two queues of resident blocks, *recent* and *frequent*, are swept like clocks: the hand takes the block at the front; if
//! it was not used since the hand last passed, it is evicted and leaves a ghost; if it was, it goes to the end of the
//! frequent queue with its flag cleared. `target` is how many bytes the recent queue ought to have. A miss whose ghost is of a
//! recent block says that recent blocks were given too little room, and raises it; a ghost of a frequent block lowers it.
//! (Known as "clock with adaptive replacement", here by bytes rather than by blocks.)
//!
//! Queue entries carry a ticket. An entry whose block is gone, or has moved on and has another ticket, is stale and skipped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use hashbrown::HashMap;

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

const UNUSED: u8 = 0;
const USED: u8 = 1;
/// Read ahead: the first use is what it was read for, and says nothing about a second one.
const AHEAD: u8 = 2;

#[derive(Debug)]
struct Block {
    data: Arc<Vec<u8>>,
    use_flag: AtomicU8,
    metadata: bool,
    list: List,
    ticket: u64,
}

#[derive(Debug)]
struct Ghost {
    list: List,
    bytes: u64,
    ticket: u64,
}

type Queue = VecDeque<(Key, u64)>;

/// How many bytes of which kind.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) recent: u64,
    pub(super) frequent: u64,
    pub(super) metadata: u64,
}

impl Bytes {
    pub(super) fn resident(&self) -> u64 {
        self.recent + self.frequent
    }
}

/// One shard.
#[derive(Debug, Default)]
pub(super) struct Shard {
    blocks: HashMap<Key, Block>,
    recent: Queue,
    frequent: Queue,
    ghosts: HashMap<Key, Ghost>,
    recent_ghosts: Queue,
    frequent_ghosts: Queue,
    recent_ghost_bytes: u64,
    frequent_ghost_bytes: u64,
    bytes: Bytes,
    /// Bytes that the recent queue ought to have.
    target: u64,
    tickets: u64,
}

/// What a block costs beside its contents.
const OVERHEAD_BYTES: u64 = 128;

fn cost(data: &[u8]) -> u64 {
    data.len() as u64 + OVERHEAD_BYTES
}

impl Shard {
    /// The block, which is marked as used.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Vec<u8>>> {
        let block = self.blocks.get(key)?;
        // Written only when it changes, so that the cache lines of hot blocks stay shared.
        match block.use_flag.load(Ordering::Relaxed) {
            USED => {}
            AHEAD => block.use_flag.store(UNUSED, Ordering::Relaxed),
            _ => block.use_flag.store(USED, Ordering::Relaxed),
        }
        Some(Arc::clone(&block.data))
    }

    /// Whether the block is here; does not count as a use.
    pub(super) fn contains(&self, key: &Key) -> bool {
        self.blocks.contains_key(key)
    }

    pub(super) fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Bytes of blocks here.
    pub(super) fn resident(&self) -> u64 {
        self.bytes.resident()
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// Keeps a block; replaces one of the same key. `share` is how many bytes this shard ought to have.
    pub(super) fn insert(&mut self, key: Key, data: Arc<Vec<u8>>, metadata: bool, ahead: bool, share: u64) {
        if let Some(block) = self.blocks.get_mut(&key) {
            let (old, new) = (cost(&block.data), cost(&data));
            block.data = data;
            let (list, was_metadata) = (block.list, block.metadata);
            block.metadata = metadata;
            self.account(list, was_metadata, 0, old);
            self.account(list, metadata, new, 0);
            return;
        }
        let list = self.adapt(&key, share);
        let ticket = self.ticket();
        let use_flag = AtomicU8::new(if ahead { AHEAD } else { UNUSED });
        self.account(list, metadata, cost(&data), 0);
        self.blocks.insert(key, Block { data, use_flag, metadata, list, ticket });
        self.queue(list).push_back((key, ticket));
        self.drop_stale();
    }

    /// Learns from the ghost of `key`, if there is one; returns the list in which the block goes.
    fn adapt(&mut self, key: &Key, share: u64) -> List {
        let Some(ghost) = self.ghosts.remove(key) else { return List::Recent };
        let (recent, frequent) = (self.recent_ghost_bytes.max(1), self.frequent_ghost_bytes.max(1));
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

    fn account(&mut self, list: List, metadata: bool, more: u64, less: u64) {
        let bytes = match list {
            List::Recent => &mut self.bytes.recent,
            List::Frequent => &mut self.bytes.frequent,
        };
        *bytes = *bytes + more - less;
        if metadata {
            self.bytes.metadata = self.bytes.metadata + more - less;
        }
    }

    /// Forgets a block, without a ghost: it was freed.
    pub(super) fn remove(&mut self, key: &Key) {
        if let Some(block) = self.blocks.remove(key) {
            self.account(block.list, block.metadata, 0, cost(&block.data));
        }
    }

    /// Moves a hand by one block. `false`: nothing is left. What was evicted is pushed to `evicted`, to be dropped without
    /// the lock. `share` is how many bytes this shard ought to have.
    pub(super) fn evict_one(&mut self, share: u64, evicted: &mut Vec<Arc<Vec<u8>>>) -> bool {
        let from_recent = self.bytes.recent > 0 && (self.bytes.recent > self.target.min(share) || self.bytes.frequent == 0);
        let list = if from_recent { List::Recent } else { List::Frequent };
        let Some((key, ticket)) = self.queue(list).pop_front() else { return self.resident() > 0 };
        let fresh = self.tickets + 1;
        let Some(block) = self.blocks.get_mut(&key).filter(|block| block.ticket == ticket) else { return true };
        if block.use_flag.swap(UNUSED, Ordering::Relaxed) == USED {
            self.tickets = fresh;
            block.ticket = fresh;
            block.list = List::Frequent;
            let (bytes, metadata) = (cost(&block.data), block.metadata);
            self.account(list, metadata, 0, bytes);
            self.account(List::Frequent, metadata, bytes, 0);
            self.frequent.push_back((key, fresh));
            return true;
        }
        if let Some(block) = self.blocks.remove(&key) {
            let bytes = cost(&block.data);
            self.account(list, block.metadata, 0, bytes);
            self.haunt(key, list, bytes, share);
            evicted.push(block.data);
        }
        true
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

    fn block(size: usize) -> Arc<Vec<u8>> {
        Arc::new(vec![7; size])
    }

    fn shrink(shard: &mut Shard, share: u64) {
        let mut evicted = Vec::new();
        while shard.resident() > share && shard.evict_one(share, &mut evicted) {}
    }

    impl Shard {
        fn check(&self) {
            let sum = |list| self.blocks.values().filter(|b| b.list == list).map(|b| cost(&b.data)).sum::<u64>();
            assert_eq!(self.bytes.recent, sum(List::Recent));
            assert_eq!(self.bytes.frequent, sum(List::Frequent));
            let metadata = self.blocks.values().filter(|b| b.metadata).map(|b| cost(&b.data)).sum::<u64>();
            assert_eq!(self.bytes.metadata, metadata);
            let ghosts = |list| self.ghosts.values().filter(|g| g.list == list).map(|g| g.bytes).sum::<u64>();
            assert_eq!(self.recent_ghost_bytes, ghosts(List::Recent));
            assert_eq!(self.frequent_ghost_bytes, ghosts(List::Frequent));
            for (key, block) in &self.blocks {
                let queue = if block.list == List::Recent { &self.recent } else { &self.frequent };
                assert_eq!(queue.iter().filter(|entry| **entry == (*key, block.ticket)).count(), 1);
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
                    shard.insert(key(n), block(1000), round == 0, false, share);
                    shrink(&mut shard, share);
                }
            }
        }
        for n in 1000..11_000 {
            shard.insert(key(n), block(1000), false, false, share);
            shrink(&mut shard, share);
        }
        let kept = (0..50).filter(|&n| shard.contains(&key(n))).count();
        assert_eq!(kept, 50, "a scan pushed out blocks that are used again and again");
        shard.check();
    }

    #[test]
    fn a_block_read_ahead_counts_from_its_second_use() {
        let mut shard = Shard::default();
        let share = 10 * (100 + OVERHEAD_BYTES);
        for n in 0..10 {
            shard.insert(key(n), block(100), false, true, share);
        }
        shard.get(&key(0));
        shard.get(&key(1));
        shard.get(&key(1));
        for n in 10..19 {
            shard.insert(key(n), block(100), false, true, share);
            shrink(&mut shard, share);
        }
        assert!(!shard.contains(&key(0)));
        assert!(shard.contains(&key(1)));
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
                    shard.insert(at, block(random.random_range(0..2000)), random.random(), random.random(), share);
                    shrink(&mut shard, share);
                    assert!(shard.resident() <= share);
                }
                _ => shard.remove(&at),
            }
            if step % 100 == 0 {
                shard.check();
            }
        }
        assert!(shard.recent.len() < 1000 && shard.frequent.len() < 1000);
        while shard.evict_one(share, &mut Vec::new()) {}
        assert_eq!(shard.bytes(), Bytes::default());
        shard.check();
    }
}
