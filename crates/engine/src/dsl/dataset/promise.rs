//! What may still be written into a dataset, and promises of it to transactions.
//!
//! # Theory
//! The theory of limits is in [`Room`](crate::dsl::space::room::Room). A dataset adds its own two: refreservation and refquota.

use super::Dataset;
use crate::dmu::Refusal;
use crate::dsl::space::room::{Room, Share};
use crate::dsl::tree::dir::beyond_reservation;
use crate::error;
use crate::txg::Txg;

impl Dataset {
    /// What may still be written into it.
    pub fn available(&self) -> u64 {
        let mut available = self.room().available(&self.dir, true);
        let state = self.state.lock();
        available = available.saturating_add(state.reserved.saturating_sub(state.phys.unique_bytes.get()));
        if state.quota != 0 {
            available = available.min(state.quota.saturating_sub(state.phys.referenced_bytes.get()));
        }
        available
    }

    /// What may still be promised: [`Dataset::available`] less what is promised already and not on disk yet.
    pub(in crate::dsl) fn left_to_promise(&self) -> u64 {
        let (limits, promised) = (self.limits(), self.promised.total());
        let reserved = limits.reserved().saturating_sub(limits.unique()).saturating_sub(promised);
        let left = self.room().available(&self.dir, false).saturating_add(reserved);
        match limits.quota() {
            0 => left,
            quota => left.min(quota.saturating_sub(limits.referenced()).saturating_sub(promised)),
        }
    }

    /// Promises `bytes` to a transaction of `txg`.
    pub(in crate::dsl) fn promise(&self, txg: Txg, bytes: u64) -> Result<(), Refusal> {
        if bytes == 0 {
            return Ok(());
        }
        // Not what is promised in file systems below: these two limits are of this one alone.
        let promised = self.promised.total();
        let limits = self.limits();
        let (unique, reserved, referenced, quota) = (limits.unique(), limits.reserved(), limits.referenced(), limits.quota());
        let mut share = Share::default();
        if reserved > unique {
            share.refreserved = reserved - unique;
            let wanted = (bytes + promised) as i64;
            let seen = beyond_reservation(unique, reserved, wanted).max(0) as u64;
            share.paid = bytes - bytes.min(seen);
            share.reservation_is_promised = promised > 0;
        }
        if quota != 0 {
            self.room().keep_known(referenced, promised, quota, txg);
        }
        if quota != 0 && referenced.saturating_add(promised) >= quota {
            let freeing = self.freeing.total();
            let over = error!(Quota, "{}: refquota exceeded ({referenced} bytes used of {quota}, {freeing} coming free)", self.dir.full_name());
            let is_for_now = promised > 0 || referenced.saturating_sub(freeing) < quota;
            return Err(if is_for_now { Refusal::ForNow(over) } else { over.into() });
        }
        self.room().promise(&self.dir, txg, bytes, share)?;
        self.promised.add(txg, bytes);
        Ok(())
    }

    /// Promises what was promised before a crash: quotas do not matter, only whether the pool has room, and a part of what it keeps back is for that too. As many
    /// small groups write it as were needed then for one: what one could take beyond a quota, they could not.
    pub(in crate::dsl) fn promise_again(&self, txg: Txg, bytes: u64) -> Result<(), Refusal> {
        self.room().check_room_again(&self.dir, bytes)?;
        self.room().check_place(&self.dir, bytes)?;
        self.promise_more(txg, bytes);
        Ok(())
    }

    /// A transaction of `txg` has dirtied `bytes` more than it was promised, or is promised them in any case.
    pub(in crate::dsl) fn promise_more(&self, txg: Txg, bytes: u64) {
        self.promised.add(txg, bytes);
        Room::promise_more(&self.dir, txg, bytes);
    }

    /// A transaction of `txg` frees `bytes` of it, about.
    pub(in crate::dsl) fn note_freeing(&self, txg: Txg, bytes: u64) {
        self.freeing.add(txg, bytes);
        self.dir.upwards(&mut |dir| {
            dir.note_freeing(txg, bytes);
            true
        });
    }

    /// `bytes` of what was promised to a transaction of `txg` were not needed.
    pub(in crate::dsl) fn take_back(&self, txg: Txg, bytes: u64) {
        self.promised.take_back(txg, bytes);
        self.room().take_back(&self.dir, txg, bytes);
    }
}
