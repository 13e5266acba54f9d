//! The pool's own objects, as the DSL uses them.
//!
//! # Theory
//! The records of the DSL are bonus buffers, plain arrays and dictionaries in the MOS. [`Mos`] has the dozen operations on them
//! that the DSL is made of, so that the code above reads as the format does. Reads may run in any context, changes only in
//! the sync thread.
//!
//! # Path
//! called by all of dsl and by pool; calls dmu and zap.

use std::sync::Arc;

use ondisk::dsl::parse_number_key;
use ondisk::object_type::ObjectType;

use crate::dmu::{Dnode, DnodeSpec, Objset, SyncTx};
use crate::error;
use crate::error::{ErrorKind, Result};
use crate::zap::{Integers, Normalization, Value, Zap, ZapSpec};

/// See the module.
#[derive(Clone)]
pub struct Mos(pub Arc<Objset>);

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its type.
    pub object_type: ObjectType,
    /// The type of its bonus buffer.
    pub bonus_type: ObjectType,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes up to the end of the last block that was ever written.
    pub length: u64,
}

impl Mos {
    fn dnode(&self, object: u64) -> Result<Arc<Dnode>> {
        self.0.hold(object)
    }

    /// The ZAP in `object`.
    pub fn zap(&self, object: u64) -> Result<Zap> {
        Zap::open(&self.0, object)
    }

    /// What an object is.
    pub fn info(&self, object: u64) -> Result<ObjectInfo> {
        let info = self.dnode(object)?.info();
        Ok(ObjectInfo {
            object_type: info.object_type,
            bonus_type: info.bonus_type,
            block_bytes: info.block_bytes,
            length: (info.max_block + 1).saturating_mul(info.block_bytes),
        })
    }

    /// Makes an object with a bonus buffer of zeros. `block_bytes` 0 is the smallest block.
    pub fn allocate(
        &self,
        object_type: ObjectType,
        block_bytes: u64,
        bonus_type: ObjectType,
        bonus_bytes: usize,
        tx: &SyncTx<'_>,
    ) -> Result<u64> {
        let spec = DnodeSpec::new(object_type, block_bytes).with_bonus(bonus_type, bonus_bytes);
        Ok(self.0.allocate(tx, &spec)?.object())
    }

    /// Frees an object.
    pub fn free(&self, object: u64, tx: &SyncTx<'_>) -> Result<()> {
        self.0.free(tx, object)
    }

    /// The bonus buffer.
    pub fn bonus(&self, object: u64) -> Result<Arc<Vec<u8>>> {
        Ok(self.dnode(object)?.bonus())
    }

    /// Replaces the start of the bonus buffer; what is longer than `bytes` stays.
    pub fn set_bonus(&self, object: u64, bytes: &[u8], tx: &SyncTx<'_>) -> Result<()> {
        let dnode = self.dnode(object)?;
        let mut bonus = dnode.bonus().to_vec();
        if bonus.len() < bytes.len() {
            bonus.resize(bytes.len(), 0);
        }
        bonus[..bytes.len()].copy_from_slice(bytes);
        dnode.set_bonus(tx, bonus);
        Ok(())
    }

    /// Reads an object; behind its end there are zeros.
    pub fn read(&self, object: u64, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.dnode(object)?.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes into an object.
    pub fn write(&self, object: u64, offset: u64, bytes: &[u8], tx: &SyncTx<'_>) -> Result<()> {
        self.dnode(object)?.write(tx, offset, bytes)
    }

    /// Frees a part of an object; `u64::MAX`: to its end.
    pub fn free_range(&self, object: u64, offset: u64, length: u64, tx: &SyncTx<'_>) -> Result<()> {
        self.dnode(object)?.free_range(tx, offset, length)
    }

    /// Makes an empty ZAP.
    pub fn zap_create(&self, object_type: ObjectType, tx: &SyncTx<'_>) -> Result<u64> {
        Ok(Zap::create(&self.0, tx, &ZapSpec::new(object_type))?.object())
    }

    /// Makes an empty ZAP that ignores the case of names when asked to.
    pub fn zap_create_upper(&self, object_type: ObjectType, tx: &SyncTx<'_>) -> Result<u64> {
        let spec = ZapSpec { normalization: Normalization::NONE.ignoring_case(), ..ZapSpec::new(object_type) };
        Ok(Zap::create(&self.0, tx, &spec)?.object())
    }

    /// Makes an empty ZAP with a bonus buffer of zeros.
    pub fn zap_create_with_bonus(
        &self,
        object_type: ObjectType,
        bonus_type: ObjectType,
        bonus_bytes: usize,
        tx: &SyncTx<'_>,
    ) -> Result<u64> {
        let spec = ZapSpec::new(object_type).with_bonus(bonus_type, bonus_bytes);
        Ok(Zap::create(&self.0, tx, &spec)?.object())
    }

    /// Makes a ZAP with the entries of another one, and with a bonus buffer of `bonus_bytes` zeros of the same type.
    pub fn zap_copy(&self, object: u64, bonus_bytes: usize, tx: &SyncTx<'_>) -> Result<u64> {
        let original = self.zap(object)?;
        let dnode = original.dnode();
        let spec = DnodeSpec::new(dnode.object_type(), dnode.block_bytes()).with_bonus(dnode.bonus_type(), bonus_bytes);
        Ok(original.copy_to(tx, self.0.allocate(tx, &spec)?)?.object())
    }

    /// Turns an object that has a bonus buffer only into an empty ZAP, keeping the bonus. `false`: it is one already.
    pub fn zapify(&self, object: u64, tx: &SyncTx<'_>) -> Result<bool> {
        let dnode = self.dnode(object)?;
        if dnode.object_type() == ObjectType::ZAP_METADATA {
            return Ok(false);
        }
        dnode.set_object_type(tx, ObjectType::ZAP_METADATA);
        Zap::initialize(&self.0, tx, dnode, &ZapSpec::new(ObjectType::ZAP_METADATA))?;
        Ok(true)
    }

    /// The value of an entry.
    pub fn zap_get(&self, object: u64, name: &str) -> Result<Option<Value>> {
        self.zap(object)?.lookup(name)
    }

    /// The value of an entry that is a number.
    pub fn zap_u64(&self, object: u64, name: &str) -> Result<Option<u64>> {
        self.zap(object)?.lookup_u64(name)
    }

    /// Whether there is an entry.
    pub fn zap_contains(&self, object: u64, name: &str) -> Result<bool> {
        self.zap(object)?.contains(name)
    }

    /// How many entries there are.
    pub fn zap_count(&self, object: u64) -> Result<u64> {
        self.zap(object)?.len()
    }

    /// All entries, in no order that means anything.
    pub fn zap_entries(&self, object: u64) -> Result<Vec<(String, Value)>> {
        let entries = self.zap(object)?.entries()?;
        Ok(entries.into_iter().map(|entry| (entry.text(), entry.value)).collect())
    }

    /// All entries of a dictionary of numbers by numbers, in the order of the keys.
    pub fn zap_numbers(&self, object: u64) -> Result<Vec<(u64, u64)>> {
        let mut entries = Vec::new();
        self.zap(object)?.each_number(&mut |name, value| {
            let name = std::str::from_utf8(name).unwrap_or_default();
            entries.push((parse_number_key(name)?, value));
            Ok(())
        })?;
        entries.sort_unstable();
        Ok(entries)
    }

    /// The name of the entry whose value is `number`.
    pub fn zap_name_of(&self, object: u64, number: u64) -> Result<String> {
        match self.zap(object)?.find_value(number, u64::MAX)? {
            Some(name) => Ok(String::from_utf8_lossy(&name).into_owned()),
            None => Err(error!(Corrupt, "object {object}: nothing in it has the value {number}")),
        }
    }

    /// Whether a number that is to be added would find room; asked before a change, which must not fail.
    ///
    /// # Errors
    /// `NoSpace`: too many names have its hash.
    pub fn zap_check_room(&self, object: u64, name: &str) -> Result<()> {
        self.zap(object)?.check_room(&[name])
    }

    /// Adds a number that is not there.
    pub fn zap_add_u64(&self, object: u64, name: &str, number: u64, tx: &SyncTx<'_>) -> Result<()> {
        self.zap(object)?.add_u64(tx, name, number)
    }

    /// Adds or changes a number.
    pub fn zap_set_u64(&self, object: u64, name: &str, number: u64, tx: &SyncTx<'_>) -> Result<()> {
        self.zap(object)?.update_u64(tx, name, number)
    }

    /// Adds or changes numbers.
    pub fn zap_set_numbers(&self, object: u64, name: &str, numbers: &[u64], tx: &SyncTx<'_>) -> Result<()> {
        self.zap(object)?.update(tx, name, Integers::U64(numbers))
    }

    /// Adds or changes bytes.
    pub fn zap_set_bytes(&self, object: u64, name: &str, bytes: &[u8], tx: &SyncTx<'_>) -> Result<()> {
        self.zap(object)?.update(tx, name, Integers::U8(bytes))
    }

    /// Adds or changes a text, which is stored with a final zero byte.
    pub fn zap_set_text(&self, object: u64, name: &str, text: &str, tx: &SyncTx<'_>) -> Result<()> {
        self.zap_set_bytes(object, name, &[text.as_bytes(), &[0]].concat(), tx)
    }

    /// Removes an entry. `false`: there was none.
    pub fn zap_remove(&self, object: u64, name: &str, tx: &SyncTx<'_>) -> Result<bool> {
        match self.zap(object)?.remove(tx, name) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}
