//! Deadlists: what a snapshot needs and its successor does not.
//!
//! # Theory
//! When the head frees a block that the latest snapshot can still see, the block goes on the head's deadlist. When a
//! snapshot is made, it takes over the deadlist and the head starts a new one. So a dataset's deadlist has exactly the
//! blocks that the snapshot before it sees and it does not; destroying that snapshot means to look at them.
//!
//! Looking at them must not mean reading all: a deadlist is cut up by birth, at the txgs of the snapshots. The entry with
//! key *t* has the blocks born after *t*, up to the next key. Whole entries then change hands in one step, as bpobjs.
//!
//! ```text
//!   snapshots    1-----------5--------9------ head
//!   head's deadlist keys     0 (born 1..=1)  1 (2..=5)  5 (6..=9)      a block born in 7 goes to entry 5
//! ```
//!
//! Before pool version 26 a deadlist was one bpobj, without keys.
//!
//! # On disk
//! A ZAP with [`DeadlistPhys`] as its bonus buffer; keys are hexadecimal. Or a bpobj.

use std::collections::BTreeMap;

use ondisk::blkptr::BlkPtr;
use ondisk::dsl::{DeadlistPhys, number_key};
use ondisk::object_type::ObjectType;
use parking_lot::Mutex;
use zerocopy::IntoBytes;

use super::bpobj::Bpobj;
use crate::dmu::SyncTx;
use crate::dsl::meta::{Meta, Space, SpaceDelta};
use crate::error::{Result, Within};
use crate::{bail, error};

/// From so many keys on a deadlist with the same ones is made by copying the blocks of its dictionary.
const COPIED_KEYS_MIN: usize = 64;

/// One deadlist; a dataset has one handle of it.
#[derive(Debug)]
pub struct Deadlist {
    /// The object.
    pub object: u64,
    /// It is one bpobj.
    old_format: bool,
    /// guards: the entries, by key, once loaded
    entries: Mutex<Option<BTreeMap<u64, Bpobj>>>,
}

impl Deadlist {
    /// Opens the deadlist in `object`.
    pub fn open(meta: &Meta, object: u64) -> Result<Self> {
        let info = meta.mos.info(object).within(|| format!("deadlist {object}"))?;
        let old_format = match info.object_type {
            ObjectType::BPOBJ => true,
            ObjectType::DEADLIST => false,
            other => bail!(Corrupt, "deadlist {object}: the object is a {other}"),
        };
        Ok(Deadlist { object, old_format, entries: Mutex::new(None) })
    }

    /// Whether it is one bpobj, without keys.
    pub fn is_old_format(&self) -> bool {
        self.old_format
    }

    /// Makes an empty deadlist and returns its object.
    pub fn create(meta: &Meta, tx: &SyncTx<'_>) -> Result<u64> {
        if meta.version() < 26 {
            return Bpobj::create(meta, tx).map(|list| list.0);
        }
        let bonus = size_of::<DeadlistPhys>();
        meta.mos.zap_create_with_bonus(ObjectType::DEADLIST, ObjectType::DEADLIST_HDR, bonus, tx)
    }

    /// Frees the deadlist in `object` (not the blocks on it).
    pub fn destroy(meta: &Meta, object: u64, tx: &SyncTx<'_>) -> Result<()> {
        let list = Self::open(meta, object)?;
        if list.old_format {
            return Bpobj(object).destroy(meta, tx);
        }
        let (shared, own): (Vec<Bpobj>, Vec<Bpobj>) = list.load(meta)?.into_values().partition(|entry| entry.is_shared_empty(meta));
        own.into_iter().try_for_each(|entry| entry.destroy(meta, tx))?;
        Bpobj::release_empty(meta, shared.len() as u64, tx)?;
        meta.mos.free(object, tx)
    }

    fn load(&self, meta: &Meta) -> Result<BTreeMap<u64, Bpobj>> {
        let entries = meta.mos.zap_numbers(self.object).within(|| format!("deadlist {}", self.object))?;
        // They are in order: the tree is made at once.
        Ok(entries.into_iter().map(|(key, list)| (key, Bpobj(list))).collect())
    }

    /// Runs `work` on the loaded entries.
    fn with_entries<T>(&self, meta: &Meta, work: impl FnOnce(&mut BTreeMap<u64, Bpobj>) -> Result<T>) -> Result<T> {
        let mut guard = self.entries.lock();
        match &mut *guard {
            Some(entries) => work(entries),
            empty => work(empty.insert(self.load(meta)?)),
        }
    }

    /// The lists that it is made of.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn lists(&self, meta: &Meta) -> Result<Vec<Bpobj>> {
        if self.old_format {
            return Ok(vec![Bpobj(self.object)]);
        }
        self.with_entries(meta, |entries| Ok(entries.values().copied().collect()))
    }

    fn phys(&self, meta: &Meta) -> Result<DeadlistPhys> {
        Ok(DeadlistPhys::from_bonus(&meta.mos.bonus(self.object)?)?)
    }

    fn change_space(&self, meta: &Meta, delta: SpaceDelta, tx: &SyncTx<'_>) -> Result<()> {
        let mut phys = self.phys(meta)?;
        delta.apply(&mut phys.used_bytes, &mut phys.compressed_bytes, &mut phys.uncompressed_bytes);
        meta.mos.set_bonus(self.object, phys.as_bytes(), tx)
    }

    /// The entry is no longer to be the shared empty bpobj.
    fn own_entry(&self, meta: &Meta, key: u64, list: &mut Bpobj, tx: &SyncTx<'_>) -> Result<()> {
        if list.is_shared_empty(meta) {
            let own = Bpobj::create(meta, tx)?;
            Bpobj::release_empty(meta, 1, tx)?;
            meta.mos.zap_set_u64(self.object, &number_key(key), own.0, tx)?;
            *list = own;
        }
        Ok(())
    }

    /// Puts blocks on the list.
    pub fn insert(&self, meta: &Meta, pointers: &[BlkPtr], tx: &SyncTx<'_>) -> Result<()> {
        self.insert_marked(meta, pointers, false, tx)
    }

    /// Puts blocks on the list; in a livelist `freed` says that they were freed.
    pub fn insert_marked(&self, meta: &Meta, pointers: &[BlkPtr], freed: bool, tx: &SyncTx<'_>) -> Result<()> {
        if pointers.is_empty() {
            return Ok(());
        }
        if self.old_format {
            return Bpobj(self.object).append_marked(meta, pointers, freed, tx);
        }
        let mut sum = Space::default();
        self.with_entries(meta, |entries| {
            let mut by_entry: BTreeMap<u64, Vec<BlkPtr>> = BTreeMap::new();
            for bp in pointers {
                sum.add(meta.space_of(bp));
                // The key is exclusive: a block born in the txg of a key belongs to the entry before it.
                let before = entries.range(..bp.birth()).next_back().or_else(|| entries.iter().next());
                match before {
                    Some((key, _)) => by_entry.entry(*key).or_default().push(*bp),
                    None => bail!(Corrupt, "deadlist {}: no entry for a block born in txg {}", self.object, bp.birth()),
                }
            }
            for (key, pointers) in &by_entry {
                if let Some(list) = entries.get_mut(key) {
                    self.own_entry(meta, *key, list, tx)?;
                    list.append_marked(meta, pointers, freed, tx)?;
                }
            }
            Ok(())
        })?;
        self.change_space(meta, if freed { sum.negative() } else { sum.positive() }, tx)
    }

    /// Starts an entry for blocks born after `key`, which must be later than all others.
    pub fn add_key(&self, meta: &Meta, key: u64, tx: &SyncTx<'_>) -> Result<()> {
        if self.old_format {
            return Ok(());
        }
        self.with_entries(meta, |entries| {
            let list = Bpobj::create_empty(meta, tx)?;
            meta.mos.zap_add_u64(self.object, &number_key(key), list.0, tx)?;
            entries.insert(key, list);
            Ok(())
        })
    }

    /// Whether it tells what was born before `key` from what was born after it.
    pub fn has_key(&self, meta: &Meta, key: u64) -> Result<bool> {
        if self.old_format {
            return Ok(false);
        }
        self.with_entries(meta, |entries| Ok(entries.contains_key(&key)))
    }

    /// Merges the entry of `key` into the one before it.
    pub fn remove_key(&self, meta: &Meta, key: u64, tx: &SyncTx<'_>) -> Result<()> {
        if self.old_format {
            return Ok(());
        }
        self.with_entries(meta, |entries| {
            let Some(list) = entries.remove(&key) else { bail!(Corrupt, "deadlist {}: no entry {key}", self.object) };
            let Some((before, into)) = entries.range_mut(..key).next_back() else {
                bail!(Corrupt, "deadlist {}: no entry before {key}", self.object)
            };
            let released = self.take_over(meta, *before, into, list, tx)?;
            Bpobj::release_empty(meta, released, tx)?;
            meta.mos.zap_remove(self.object, &number_key(key), tx).map(|_| ())
        })
    }

    /// Removes an entry with what is on it (not the blocks).
    #[doc(alias = "dsl_deadlist_remove_entry")]
    pub fn remove_entry(&self, meta: &Meta, key: u64, tx: &SyncTx<'_>) -> Result<()> {
        let list = self.with_entries(meta, |entries| entries.remove(&key).ok_or_else(|| error!(Corrupt, "deadlist {}: no entry {key}", self.object)))?;
        meta.mos.zap_remove(self.object, &number_key(key), tx)?;
        self.drop_list(meta, list, tx)
    }

    /// Removes what is on an entry (not the blocks); the entry stays.
    #[doc(alias = "dsl_deadlist_clear_entry")]
    pub fn clear_entry(&self, meta: &Meta, key: u64, tx: &SyncTx<'_>) -> Result<()> {
        let empty = Bpobj::create_empty(meta, tx)?;
        meta.mos.zap_set_u64(self.object, &number_key(key), empty.0, tx)?;
        let list = self.with_entries(meta, |entries| entries.insert(key, empty).ok_or_else(|| error!(Corrupt, "deadlist {}: no entry {key}", self.object)))?;
        self.drop_list(meta, list, tx)
    }

    fn drop_list(&self, meta: &Meta, list: Bpobj, tx: &SyncTx<'_>) -> Result<()> {
        self.change_space(meta, list.space(meta)?.negative(), tx)?;
        list.destroy(meta, tx)
    }

    /// Moves the entries of blocks born after `key` to `target`.
    #[doc(alias = "dsl_deadlist_move_bpobj")]
    pub fn move_born_after(&self, meta: &Meta, key: u64, target: Bpobj, tx: &SyncTx<'_>) -> Result<()> {
        let moved = self.space_born_in(meta, key, u64::MAX)?;
        self.with_entries(meta, |entries| {
            for (key, list) in entries.split_off(&key) {
                target.adopt(meta, list, tx)?;
                meta.mos.zap_remove(self.object, &number_key(key), tx)?;
            }
            Ok(())
        })?;
        self.change_space(meta, moved.negative(), tx)
    }

    /// Takes over the entries of another one, which is gone after that.
    #[doc(alias = "dsl_deadlist_merge")]
    pub fn absorb(&self, meta: &Meta, other: &Deadlist, tx: &SyncTx<'_>) -> Result<()> {
        let more = other.space(meta)?;
        let theirs = other.with_entries(meta, |entries| Ok(std::mem::take(entries)))?;
        let mut released = 0;
        self.with_entries(meta, |entries| {
            for (key, list) in theirs {
                if list.is_shared_empty(meta) {
                    released += 1;
                    continue;
                }
                let Some((before, into)) = entries.range_mut(..=key).next_back() else {
                    bail!(Corrupt, "deadlist {}: no entry for blocks born after {key}", self.object)
                };
                released += self.take_over(meta, *before, into, list, tx)?;
            }
            Ok(())
        })?;
        Bpobj::release_empty(meta, released, tx)?;
        self.change_space(meta, more.positive(), tx)?;
        meta.mos.free(other.object, tx)
    }

    /// `into` gets what is in `list`; if it is the shared empty list, it becomes `list`. Returns how many users the shared empty list has less:
    /// the caller counts them, of all entries at once.
    fn take_over(&self, meta: &Meta, key: u64, into: &mut Bpobj, list: Bpobj, tx: &SyncTx<'_>) -> Result<u64> {
        if list.is_shared_empty(meta) {
            return Ok(1);
        }
        if into.is_shared_empty(meta) {
            meta.mos.zap_set_u64(self.object, &number_key(key), list.0, tx)?;
            *into = list;
            return Ok(1);
        }
        into.adopt(meta, list, tx).map(|()| 0)
    }

    /// Makes a deadlist with the keys of this one below `before`, all empty. For a new snapshot, or the clone of one.
    /// An old deadlist has no keys: the new one gets those that `old_keys` finds (the txgs before each snapshot, newest first).
    #[doc(alias = "dsl_deadlist_clone")]
    pub fn clone_keys(&self, meta: &Meta, before: u64, old_keys: &dyn Fn() -> Result<Vec<u64>>, tx: &SyncTx<'_>) -> Result<Deadlist> {
        if self.old_format {
            return Self::with_keys(meta, &old_keys()?, tx);
        }
        let (wanted, others): (Vec<_>, Vec<_>) = self.entries(meta)?.into_iter().partition(|(key, _)| *key < before);
        if wanted.len() < COPIED_KEYS_MIN || others.len() > wanted.len() / 2 {
            let keys: Vec<u64> = wanted.into_iter().map(|(key, _)| key).collect();
            return Self::with_keys(meta, &keys, tx);
        }
        let Some(empty) = Bpobj::share_empty(meta, wanted.len() as u64, tx)? else {
            let keys: Vec<u64> = wanted.into_iter().map(|(key, _)| key).collect();
            return Self::with_keys(meta, &keys, tx);
        };
        // Almost all entries are there already, and empty: the dictionary is copied as it is, and the rest of them put right.
        let object = meta.mos.zap_copy(self.object, size_of::<DeadlistPhys>(), tx)?;
        for (key, _) in others {
            meta.mos.zap_remove(object, &number_key(key), tx)?;
        }
        for (key, _) in wanted.iter().filter(|(_, list)| *list != empty) {
            meta.mos.zap_set_u64(object, &number_key(*key), empty.0, tx)?;
        }
        let entries = wanted.into_iter().map(|(key, _)| (key, empty)).collect();
        Ok(Deadlist { object, old_format: false, entries: Mutex::new(Some(entries)) })
    }

    fn with_keys(meta: &Meta, keys: &[u64], tx: &SyncTx<'_>) -> Result<Deadlist> {
        let made = Self::open(meta, Self::create(meta, tx)?)?;
        keys.iter().try_for_each(|key| made.add_key(meta, *key, tx))?;
        Ok(made)
    }

    /// The space of all blocks on it.
    pub fn space(&self, meta: &Meta) -> Result<Space> {
        if self.old_format {
            return Bpobj(self.object).space(meta);
        }
        let phys = self.phys(meta)?;
        Ok(Space {
            used: phys.used_bytes.get(),
            compressed: phys.compressed_bytes.get(),
            uncompressed: phys.uncompressed_bytes.get(),
        })
    }

    /// The space of the blocks born after `after` and not after `last`; both are keys, or `last` is `u64::MAX`.
    pub fn space_born_in(&self, meta: &Meta, after: u64, last: u64) -> Result<Space> {
        if self.old_format {
            return Bpobj(self.object).space_born_in(meta, after, last);
        }
        // Of two snapshots the later one is the younger one, on every pool but a damaged one.
        if after > last {
            bail!(Corrupt, "deadlist {}: from txg {after} to txg {last}", self.object);
        }
        self.with_entries(meta, |entries| {
            let mut sum = Space::default();
            for (_, list) in entries.range(after..last) {
                if !list.is_shared_empty(meta) {
                    sum.add(list.space(meta)?);
                }
            }
            Ok(sum)
        })
    }

    /// Its entries by key; of an old deadlist the one list, with key 0.
    pub fn entries(&self, meta: &Meta) -> Result<Vec<(u64, Bpobj)>> {
        if self.old_format {
            return Ok(vec![(0, Bpobj(self.object))]);
        }
        self.with_entries(meta, |entries| Ok(entries.iter().map(|(key, list)| (*key, *list)).collect()))
    }
}
