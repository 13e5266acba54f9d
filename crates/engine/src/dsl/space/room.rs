//! How much may still be written: quotas, reservations, and what the pool keeps back.
//!
//! # Theory
//! A directory may use what its parent leaves it and its own quota allows, and what it has reserved on top of what the parent
//! gives it. At the root stands the pool's size, of which a part (*slop*) is kept back, so that a full pool can still be
//! emptied.
//!
//! Transactions ask before they write ([`reserve`](crate::dmu::SpaceOwner::reserve)). What they were promised counts against
//! the limits until their txg is on disk; since a promise is a worst case, a limit that only promises exceed is no
//! reason to fail: the caller is told to wait ([`Refusal::ForNow`]) for the txg, and to try again. The same goes for space that a
//! transaction has freed, which counts as used until its txg is on disk: what is noted of it is a guess (a snapshot may keep the blocks), so it
//! may be waited for, but lets nobody in.
//!
//! Space is not only counted: there must be a place for each block when its group is written. So what a group frees counts as used until it is on disk and known
//! to wait or not, and promises that a reservation pays for, which no limit above sees, are held against what is free ([`Room::check_place`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::dmu::Refusal;
use crate::dsl::dead::frees_sync::Frees;
use crate::dsl::meta::Meta;
use crate::dsl::space::in_flight::InFlight;
use crate::dsl::tree::dir::{Dir, beyond_reservation};
use crate::error;
use crate::error::Result;
use crate::txg::Txg;

/// Part of the pool that is kept back: 1/32.
const SLOP_SHIFT: u32 = 5;
/// At least this much, if that is not more than half the pool.
const SLOP_MIN: u64 = 128 << 20;
/// At most this much.
const SLOP_MAX: u64 = 128 << 30;
/// How far beyond a limit promises may go: 1/32 of it.
const OVERCOMMIT_SHIFT: u32 = 5;
/// At the pool's own limit promises may take a fourth of what is kept back, so that the last writers need not wait for a group each.
/// (Half of it is for what frees.)
const SLOP_PARTS_PROMISED: u64 = 4;
/// Promises take no more than this of what is kept back: others have reserved it.
const BEYOND_MAX: u64 = 8 << 20;
/// A pool in which so much is left writes groups early.
const ROOMY: u64 = 64 << 20;
/// For fewer promised bytes no group is written early.
const KNOWN_MIN: u64 = 4 << 20;
/// A block in the smallest pieces takes twice its size: a header for each two pieces, with one copy more.
const PIECES_FACTOR: u64 = 2;

/// Promises that a reservation pays for may go this much further beyond a limit above it: they count the worst for each indirect block.
const RESERVED_BEYOND: u64 = 2 << 20;
/// Space that an administrative change may need, for each block that it modifies: three copies of a block and of its parents.
const BYTES_PER_BLOCK: u64 = (128 << 10) * 3 * 2;

/// What a dataset knows of its directory's numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::dsl) struct Share {
    /// What of the space that is used a refreservation pays for.
    pub(in crate::dsl) refreserved: u64,
    /// How much of what is wanted it pays for.
    pub(in crate::dsl) paid: u64,
    /// Promises have taken a part of a reservation, which may pay for this when they are on disk, and were less.
    pub(in crate::dsl) reservation_is_promised: bool,
}

/// How much of the slop an operation may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceCheck {
    /// None: what makes data.
    Normal,
    /// Half: what needs little and helps to free.
    Reserved,
    /// Three quarters: what frees.
    ExtraReserved,
    /// All: what must be possible always.
    None,
}

/// See the module.
pub(in crate::dsl) struct Room {
    meta: Arc<Meta>,
    frees: Arc<Frees>,
    size: PoolSize,
    /// Of what is promised, what reservations pay for: the root's sum is without it.
    paid: InFlight,
}

/// The pool's size, as `pool` last told it.
#[derive(Debug, Default)]
struct PoolSize {
    capacity: AtomicU64,
    elsewhere: AtomicU64,
    embedded_log: AtomicU64,
    withheld: AtomicU64,
    deferred: AtomicU64,
    free: AtomicU64,
    /// What all datasets used when the last group was on disk.
    used: AtomicU64,
}

/// What `pool` tells about its size. All without the share of parity.
#[derive(Debug, Clone, Copy, Default)]
pub struct PoolSpace {
    /// All space of the normal class where new blocks may go, without what is set aside for the intent log.
    pub capacity: u64,
    /// Space that is used beyond that: what is allocated in other classes, what dedup and cloning save.
    pub elsewhere: u64,
    /// Space set aside for the intent log on normal vdevs.
    pub embedded_log: u64,
    /// Space in the normal class that the DSL does not know is used: the checkpoint, frees put off to the next txg.
    pub withheld: u64,
    /// Freed, but not to be allocated again before some more txgs.
    pub deferred: u64,
    /// What data can be allocated in: without what waits, and without what is set aside for the intent log.
    pub free: u64,
}

fn slop(capacity: u64, embedded_log: u64) -> u64 {
    let part = (capacity >> SLOP_SHIFT).min(SLOP_MAX);
    let part = part - embedded_log.min(part >> 1);
    part.max((capacity >> 1).min(SLOP_MIN))
}

impl Room {
    /// Of a pool whose size is not known yet.
    pub(in crate::dsl) fn new(meta: Arc<Meta>, frees: Arc<Frees>) -> Self {
        Room { meta, frees, size: PoolSize::default(), paid: InFlight::default() }
    }

    /// The pool's size changed. Called when the pool is opened and after each txg.
    pub(in crate::dsl) fn set_pool_space(&self, space: PoolSpace) {
        self.size.capacity.store(space.capacity, Ordering::Relaxed);
        self.size.elsewhere.store(space.elsewhere, Ordering::Relaxed);
        self.size.embedded_log.store(space.embedded_log, Ordering::Relaxed);
        self.size.withheld.store(space.withheld, Ordering::Relaxed);
        self.size.deferred.store(space.deferred, Ordering::Relaxed);
        self.size.free.store(space.free, Ordering::Relaxed);
    }

    /// `txg` is on disk, and what the pool has told of its size has what that freed.
    pub(in crate::dsl) fn group_done(&self, root: &Dir, txg: Txg) {
        self.size.used.store(root.limits().used(), Ordering::Relaxed);
        self.paid.clear(txg);
    }

    /// What the group that is being written has freed: nobody uses it any more, but it cannot be allocated either, and the pool has not told yet whether it waits.
    fn freed_meanwhile(&self, root: &Dir) -> u64 {
        self.size.used.load(Ordering::Relaxed).saturating_sub(root.limits().used())
    }

    /// The space that datasets may use altogether.
    pub(in crate::dsl) fn usable_space(&self, check: SpaceCheck) -> u64 {
        let capacity = self.size.capacity.load(Ordering::Relaxed);
        let slop = slop(capacity, self.size.embedded_log.load(Ordering::Relaxed));
        let kept_back = match check {
            SpaceCheck::Normal => slop,
            SpaceCheck::Reserved => slop >> 1,
            SpaceCheck::ExtraReserved => slop >> 2,
            SpaceCheck::None => 0,
        };
        let all = capacity.saturating_add(self.size.elsewhere.load(Ordering::Relaxed));
        all.saturating_sub(self.size.withheld.load(Ordering::Relaxed)).saturating_sub(kept_back)
    }

    /// What a directory may still use. With `on_disk_only`, promises are not counted.
    pub(in crate::dsl) fn available(&self, dir: &Arc<Dir>, on_disk_only: bool) -> u64 {
        self.available_with(dir, on_disk_only, 0, None)
    }

    /// The same if `freed` bytes that it and all above it use came free, and if its own quota were another one (0: none).
    pub(in crate::dsl) fn available_with(&self, dir: &Arc<Dir>, on_disk_only: bool, freed: u64, own_quota: Option<u64>) -> u64 {
        let mut path = vec![dir.clone()];
        while let Some(parent) = path.last().and_then(|dir| dir.parent()) {
            path.push(parent);
        }
        let mut from_above = u64::MAX;
        for (index, dir) in path.iter().rev().enumerate() {
            let phys = dir.phys();
            let mut used = phys.used_bytes.get().saturating_add(if on_disk_only { 0 } else { dir.promised() });
            let quota = own_quota.filter(|_| index + 1 == path.len()).unwrap_or(phys.quota.get());
            let mut limit = if quota == 0 { u64::MAX } else { quota };
            if index == 0 {
                limit = limit.min(self.usable_space(SpaceCheck::Normal));
            }
            if from_above != u64::MAX {
                from_above = from_above.saturating_add(phys.reserved.get().saturating_sub(used));
            }
            if index + 1 == path.len() {
                used = used.saturating_sub(freed);
                from_above = from_above.saturating_add(freed);
            }
            from_above = if used > limit { 0 } else { from_above.min(limit - used) };
        }
        from_above
    }

    /// Freed, but counted as used until one of the next groups is on disk: by transactions, and what is left of destroyed datasets.
    fn being_freed(&self, root: &Dir) -> u64 {
        root.freeing().saturating_add(self.frees.being_freed())
    }

    /// Promises `bytes` in `dir` and above. `share` has what is known below of its share.
    pub(in crate::dsl) fn promise(&self, dir: &Dir, txg: Txg, bytes: u64, share: Share) -> Result<(), Refusal> {
        let (limits, promised) = (dir.limits(), dir.promised());
        let (used, reserved) = (limits.used().saturating_sub(share.refreserved), limits.reserved());
        let for_now = |refusal: Refusal| if share.reservation_is_promised { Refusal::ForNow(refusal.into()) } else { refusal };
        if let Some(limit) = limits.quota() {
            self.keep_known(used, promised, limit, txg);
            let beyond = if share.reservation_is_promised { RESERVED_BEYOND } else { 0 };
            check_quota(dir, used, promised, limit, beyond).map_err(for_now)?;
        }
        if dir.is_root() {
            let limit = self.usable_space(SpaceCheck::Normal);
            // Where little is left, the last promises go beyond the limit, and the more groups there are the further.
            if limit.saturating_sub(used) >= ROOMY {
                self.keep_known(used, promised.saturating_mul(PIECES_FACTOR), limit, txg);
            }
            self.check_pool(dir, used, promised, bytes, SpaceCheck::Normal).map_err(for_now)?;
            if self.paid.total() > 0 {
                self.check_place(dir, bytes)?;
            }
        }
        let wanted = bytes.saturating_sub(share.paid) as i64;
        let above = beyond_reservation(used.saturating_add(promised), reserved, wanted).max(0) as u64;
        let kept = bytes.saturating_sub(above);
        if kept > 0 {
            self.check_place(dir, bytes)?;
            self.paid.add(txg, kept);
        }
        dir.promise(txg, bytes, kept);
        if above == 0 {
            return Ok(());
        }
        let reservation_is_promised = share.reservation_is_promised || reserved > used && promised > 0;
        let share = Share { reservation_is_promised, ..Share::default() };
        let promised = dir.with_parent(|parent| self.promise(parent, txg, above, share)).unwrap_or(Ok(()));
        promised.inspect_err(|_| {
            dir.withdraw(txg, bytes, kept);
            self.paid.take_back(txg, kept);
        })
    }

    /// Takes back a part of what was promised in `dir`, and above it what no reservation there pays for.
    pub(in crate::dsl) fn take_back(&self, dir: &Dir, txg: Txg, bytes: u64) {
        let mut left = bytes;
        dir.upwards(&mut |dir| {
            let beyond = dir.take_back(txg, left);
            if beyond < left {
                self.paid.take_back(txg, left - beyond);
            }
            left = beyond;
            left > 0
        });
    }

    /// Whether there is a place for `bytes` beside all that is promised, in the pool whose root is `dir` or above it. A reservation goes before what others may
    /// use, but where much is written over what it pays for is written anew before the old can be used again, and a checkpoint keeps the old.
    pub(in crate::dsl) fn check_place(&self, dir: &Dir, bytes: u64) -> Result<(), Refusal> {
        if let Some(checked) = dir.with_parent(|parent| self.check_place(parent, bytes)) {
            return checked;
        }
        let promised = dir.promised().saturating_add(self.paid.total());
        let free = self.size.free.load(Ordering::Relaxed);
        let kept_back = slop(self.size.capacity.load(Ordering::Relaxed), self.size.embedded_log.load(Ordering::Relaxed)) >> 2;
        let needed = promised.saturating_add(bytes).saturating_mul(PIECES_FACTOR).saturating_add(kept_back);
        if needed <= free {
            return Ok(());
        }
        let coming_free = self.size.deferred.load(Ordering::Relaxed).saturating_add(self.freed_meanwhile(dir)).saturating_add(self.being_freed(dir));
        let name = dir.full_name();
        let refused = error!(NoSpace, "{name}: out of space ({free} bytes free, {promised} promised, {coming_free} coming free, {bytes} wanted)");
        Err(if promised > 0 || needed <= free.saturating_add(coming_free) { Refusal::ForNow(refused) } else { refused.into() })
    }

    /// Where much of what is left below a limit is promised, the group is to be written soon: then what is used is known, and fewer are in its way.
    pub(in crate::dsl) fn keep_known(&self, used: u64, promised: u64, limit: u64, txg: Txg) {
        if promised >= KNOWN_MIN && promised > limit.saturating_sub(used) / 2 {
            self.meta.context.groups.kick(txg);
        }
    }

    /// Whether the pool has room for `bytes` more. What is promised counts twice: in the worst case all of it is written in
    /// the smallest pieces, each level of which needs headers of its own. Promises may reach a little into what is kept back,
    /// but never so far that the group could not be written. What the group before is freeing counts as used until that is on disk.
    fn check_pool(&self, root: &Dir, used: u64, promised: u64, bytes: u64, check: SpaceCheck) -> Result<(), Refusal> {
        let deferred = self.size.deferred.load(Ordering::Relaxed);
        let freed_meanwhile = self.freed_meanwhile(root);
        let used = used.saturating_add(freed_meanwhile);
        let usable = self.usable_space(check);
        let limit = usable.saturating_sub(deferred);
        let capacity = self.size.capacity.load(Ordering::Relaxed);
        let beyond = slop(capacity, self.size.embedded_log.load(Ordering::Relaxed)) / SLOP_PARTS_PROMISED;
        let beyond = beyond.min(BEYOND_MAX);
        let wanted = used.saturating_add(bytes.saturating_mul(PIECES_FACTOR)).saturating_sub(beyond);
        if used < limit && wanted.saturating_add(promised.saturating_mul(PIECES_FACTOR)) <= limit {
            return Ok(());
        }
        let coming_free = deferred.saturating_add(freed_meanwhile).saturating_add(self.being_freed(root));
        let name = root.full_name();
        if promised == 0 && used.max(wanted) >= limit.saturating_add(coming_free) {
            return Err(error!(NoSpace, "{name}: out of space ({used} bytes used of {limit}, {bytes} wanted)").into());
        }
        let why = format_args!("{used} bytes used and {promised} promised of {limit}, {coming_free} coming free");
        Err(Refusal::ForNow(error!(NoSpace, "{name}: out of space ({why})")))
    }

    /// Whether there is room left to note in what is freed, by the root that is above `dir`.
    pub(in crate::dsl) fn check_room_to_free(&self, dir: &Dir) -> Result<(), Refusal> {
        self.check_room_again(dir, 0)
    }

    /// Whether the pool whose root is above `dir` has room for `bytes` that are written in any case, in half of what it keeps back if need be.
    pub(in crate::dsl) fn check_room_again(&self, dir: &Dir, bytes: u64) -> Result<(), Refusal> {
        match dir.with_parent(|parent| self.check_room_again(parent, bytes)) {
            Some(checked) => checked,
            None => self.check_pool(dir, dir.phys().used_bytes.get(), dir.promised(), bytes, SpaceCheck::Reserved),
        }
    }

    /// Whether an administrative change that modifies about so many `blocks` has room.
    pub(in crate::dsl) fn check_change(&self, root: &Dir, blocks: u64, check: SpaceCheck) -> Result<(), Refusal> {
        let wanted = root.phys().used_bytes.get().saturating_add(blocks.saturating_mul(BYTES_PER_BLOCK));
        let limit = self.usable_space(check);
        if wanted <= limit {
            return Ok(());
        }
        let refused = error!(NoSpace, "out of space");
        // An administrator of a pool that waits for repair does not wait for its groups.
        let comes_free = wanted - limit <= self.being_freed(root) && self.meta.context.io.devices().suspension().is_none();
        Err(if comes_free { Refusal::ForNow(refused) } else { refused.into() })
    }

    /// A transaction has dirtied more than it was promised: that cannot be refused any more, but counts for the next ones.
    pub(in crate::dsl) fn promise_more(dir: &Dir, txg: Txg, bytes: u64) {
        dir.upwards(&mut |dir| {
            dir.promise(txg, bytes, 0);
            true
        });
    }
}

/// Promises may go `beyond` the limit, and a small part of it.
fn check_quota(dir: &Dir, used: u64, promised: u64, limit: u64, beyond: u64) -> Result<(), Refusal> {
    let freeing = dir.freeing();
    let over = || error!(Quota, "{}: quota exceeded ({used} bytes used and {promised} promised of {limit}, {freeing} coming free)", dir.full_name());
    if used.saturating_sub(freeing) >= limit {
        return Err(over().into());
    }
    if used >= limit || used.saturating_add(promised) >= limit.saturating_add(limit >> OVERCOMMIT_SHIFT).saturating_add(beyond) {
        return Err(Refusal::ForNow(over()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slop_is_a_part_within_bounds() {
        assert_eq!(slop(64 << 20, 0), 32 << 20);
        assert_eq!(slop(1 << 30, 0), 128 << 20);
        assert_eq!(slop(100 << 30, 0), (100 << 30) / 32);
        assert_eq!(slop(100 << 40, 0), 128 << 30);
        assert_eq!(slop(100 << 30, 1 << 30), (100 << 30) / 32 - (1 << 30));
    }
}
