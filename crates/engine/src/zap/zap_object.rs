//! The handle: what callers see of a ZAP.

use std::sync::Arc;

use ondisk::object_type::ObjectType;
use ondisk::{zap_fat, zap_micro};
use parking_lot::{RwLock, RwLockWriteGuard};

use super::blocks::{ReadBlocks, WriteBlocks};
use super::crowd;
use super::cursor::{Cursor, CursorEntry};
use super::fat::fat_zap::Fat;
use super::key::{Normalization, int_name};
use super::micro::Micro;
use super::upgrade::{create_fat, create_micro, upgrade};
use super::value::{Integers, Value};
use crate::arc::Held;
use crate::dmu::{Dnode, DnodeSpec, ObjectId, Objset, Tx};
use crate::error::{Error, ErrorKind, Result, Within};
use crate::{bail, error};

/// Largest block of a micro ZAP; larger ones would need the feature large_microzap.
const MICRO_BLOCK_MAX: usize = 128 << 10;

/// The most blocks that are copied of a ZAP: four times what the largest one known has.
const COPIED_BLOCKS_MAX: u64 = 1 << 18;

/// When a stored name is the name looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// Byte for byte.
    Exact,
    /// After normalisation.
    #[doc(alias = "MT_NORMALIZE")]
    Normalized,
    /// After normalisation, but upper and lower case differ.
    #[doc(alias = "MT_MATCH_CASE")]
    NormalizedWithCase,
}

/// The settings of a new ZAP.
#[derive(Debug, Clone)]
pub struct ZapSpec {
    /// The object.
    pub dnode: DnodeSpec,
    /// How names are normalised.
    pub normalization: Normalization,
    /// `FLAG_*`; with any of them it is fat from the start.
    pub flags: u64,
    /// Where hashes begin; `None`: somewhere.
    pub salt: Option<u64>,
}

impl ZapSpec {
    /// A micro ZAP of 512 bytes without a bonus.
    pub fn new(object_type: ObjectType) -> Self {
        ZapSpec { dnode: DnodeSpec::new(object_type, 0), normalization: Normalization::NONE, flags: 0, salt: None }
    }

    /// A fat ZAP with the given flags (none: a micro ZAP in a larger block) and log2 sizes of its blocks.
    pub fn fat(object_type: ObjectType, flags: u64, block_shift: u32, indirect_shift: u8) -> Self {
        let dnode = DnodeSpec::new(object_type, 1 << block_shift).with_indirect_shift(indirect_shift);
        ZapSpec { dnode, normalization: Normalization::NONE, flags, salt: None }
    }

    /// With a bonus.
    #[must_use]
    pub fn with_bonus(mut self, bonus_type: ObjectType, bonus_length: usize) -> Self {
        self.dnode = self.dnode.with_bonus(bonus_type, bonus_length);
        self
    }
}

/// Micro or fat.
#[derive(Debug)]
enum Form {
    Micro(Micro),
    Fat(Fat),
}

impl Form {
    /// Bytes of the index in memory.
    fn weight(&self) -> u64 {
        match self {
            Form::Micro(micro) => micro.len() as u64 * INDEX_ENTRY_BYTES,
            Form::Fat(_) => 0,
        }
    }
}

impl Form {
    /// Whether a micro ZAP has the entry; a fat one will say so itself.
    fn has(&self, blocks: &Writing<'_>, name: &[u8]) -> Result<bool> {
        match self {
            Form::Micro(micro) => Ok(micro.lookup(&blocks.read(0)?.clone(), &micro.key(name), Match::Exact).is_some()),
            Form::Fat(_) => Ok(false),
        }
    }

    /// Makes sure that a micro ZAP has a slot for the entry, which is `there` already or not; or it becomes a fat one.
    fn make_slot(&mut self, blocks: &Writing<'_>, name: &[u8], is_word: bool, there: bool) -> Result<()> {
        let Form::Micro(micro) = self else { return Ok(()) };
        let fits_slot = is_word && name.len() <= zap_micro::NAME_MAX && (there || micro.leaf_would_hold(micro.key(name).hash));
        if fits_slot && (there || !micro.is_full()) {
            return Ok(());
        }
        if fits_slot && blocks.block_size() + 512 <= blocks.micro_max() {
            return micro.grow(blocks);
        }
        *self = Form::Fat(upgrade(blocks, micro)?);
        Ok(())
    }
}

fn is_micro(block: &[u8]) -> bool {
    block.get(..8) == Some(&zap_micro::BLOCK_TYPE.to_le_bytes())
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.contains(&0) {
        bail!(Invalid, "a name in a ZAP is not empty and has no zero byte");
    }
    Ok(())
}

/// The memory that an entry of a micro ZAP's index takes, about.
const INDEX_ENTRY_BYTES: u64 = 40;

/// The form, and what it weighs.
#[derive(Debug)]
struct Loaded {
    form: Form,
    held: Held,
}

/// The state that all handles of one object share; it hangs on the dnode.
#[derive(Debug, Default)]
struct Shared {
    /// guards: the object's blocks; `None` until it is needed
    form: RwLock<Option<Loaded>>,
}

/// A dictionary.
#[derive(Debug, Clone)]
pub struct Zap {
    dnode: Arc<Dnode>,
    shared: Arc<Shared>,
}

struct Reading<'a>(&'a Arc<Dnode>);

struct Writing<'a> {
    dnode: &'a Arc<Dnode>,
    tx: &'a Tx,
}

impl ReadBlocks for Reading<'_> {
    fn block_size(&self) -> usize {
        self.0.block_bytes() as usize
    }

    fn read(&self, block: u64) -> Result<Arc<Vec<u8>>> {
        self.0.block(block)
    }

    fn name_max(&self) -> usize {
        if self.0.object_type() == ObjectType::DIRECTORY_CONTENTS { zap_fat::LONG_NAME_MAX } else { zap_fat::NAME_MAX }
    }

    fn micro_max(&self) -> usize {
        MICRO_BLOCK_MAX
    }
}

impl ReadBlocks for Writing<'_> {
    fn block_size(&self) -> usize {
        Reading(self.dnode).block_size()
    }

    fn read(&self, block: u64) -> Result<Arc<Vec<u8>>> {
        self.dnode.block(block)
    }

    fn name_max(&self) -> usize {
        Reading(self.dnode).name_max()
    }

    fn micro_max(&self) -> usize {
        MICRO_BLOCK_MAX
    }
}

impl WriteBlocks for Writing<'_> {
    fn modify<T>(&self, block: u64, change: impl FnOnce(&mut [u8]) -> Result<T>) -> Result<T> {
        self.dnode.modify_block(self.tx, block, change)?
    }

    fn write(&self, block: u64, contents: Vec<u8>) -> Result<()> {
        self.dnode.write_block(self.tx, block, contents)
    }

    fn set_block_size(&self, size: usize) -> Result<()> {
        self.dnode.set_block_bytes(self.tx, size as u64, None)
    }

    fn free(&self, first: u64, count: u64) -> Result<()> {
        let size = self.dnode.block_bytes();
        self.dnode.free_range(self.tx, first * size, count * size)
    }
}

impl Zap {
    /// The ZAP that is object `object`.
    ///
    /// # Errors
    /// There is no such object, or it is no ZAP.
    pub fn open(objset: &Objset, object: ObjectId) -> Result<Zap> {
        Self::of(objset.hold(object)?)
    }

    /// The ZAP that is this object.
    ///
    /// # Errors
    /// It is no ZAP.
    pub fn of(dnode: Arc<Dnode>) -> Result<Zap> {
        if dnode.object_type().byteswap() != Some(ondisk::object_type::ByteswapClass::Zap) {
            bail!(Invalid, "object {} of dataset {} ({}) is no ZAP", dnode.object(), dnode.dataset(), dnode.object_type());
        }
        let shared = dnode.attachment(Shared::default);
        Ok(Zap { dnode, shared })
    }

    /// Makes a new object with an empty ZAP.
    ///
    /// # Errors
    /// See [`Objset::allocate`].
    pub fn create(objset: &Objset, tx: &Tx, spec: &ZapSpec) -> Result<Zap> {
        let dnode = objset.allocate(tx, &spec.dnode)?;
        Self::initialize(objset, tx, dnode, spec)
    }

    /// Makes object `object`, which is free, an empty ZAP.
    ///
    /// # Errors
    /// See [`Objset::claim`].
    pub fn create_at(objset: &Objset, tx: &Tx, object: ObjectId, spec: &ZapSpec) -> Result<Zap> {
        let dnode = objset.claim(tx, object, &spec.dnode)?;
        Self::initialize(objset, tx, dnode, spec)
    }

    /// Makes an object that is new and empty a ZAP.
    ///
    /// # Errors
    /// The object cannot be written.
    pub fn initialize(objset: &Objset, tx: &Tx, dnode: Arc<Dnode>, spec: &ZapSpec) -> Result<Zap> {
        let zap = Self::of(dnode)?;
        let salt = spec.salt.unwrap_or_else(|| Self::new_salt(objset));
        let blocks = Writing { dnode: &zap.dnode, tx };
        if spec.flags == 0 {
            create_micro(&blocks, salt, spec.normalization)?;
        } else {
            create_fat(&blocks, salt, spec.normalization, spec.flags)?;
        }
        Ok(zap)
    }

    /// Makes an object that is new and empty, and has blocks of the same size, a ZAP with the same entries. They are where they are here: its
    /// hashes begin at the same place.
    ///
    /// # Errors
    /// One of the objects cannot be read or written, or this one is larger than any ZAP.
    pub fn copy_to(&self, tx: &Tx, dnode: Arc<Dnode>) -> Result<Zap> {
        self.reading(|_, blocks| {
            let mut next = blocks.0.next_data_block_to_be(0)?;
            let mut left = COPIED_BLOCKS_MAX;
            while let Some(block) = next {
                if left == 0 {
                    bail!(Corrupt, "has more than {COPIED_BLOCKS_MAX} blocks");
                }
                left -= 1;
                dnode.write_block(tx, block, blocks.read(block)?.to_vec())?;
                next = blocks.0.next_data_block_to_be(block + 1)?;
            }
            Ok(())
        })?;
        Self::of(dnode)
    }

    /// A salt for a new ZAP.
    pub fn new_salt(objset: &Objset) -> u64 {
        objset.context().host.random() | 1
    }

    /// Whether all these names would find room in a new ZAP with this salt.
    ///
    /// # Errors
    /// `NoSpace`: too many of them have nearly the same hash.
    pub fn check_room_in_new<N: AsRef<[u8]>>(names: &[N], salt: u64, normalization: Normalization) -> Result<()> {
        Self::check_room_in_new_for(&crowd::of_words(names), salt, normalization)
    }

    /// As [`Zap::check_room_in_new`], of names with values of so many bytes.
    ///
    /// # Errors
    /// See [`Zap::check_room_in_new`].
    pub fn check_room_in_new_for(entries: &[(&[u8], usize)], salt: u64, normalization: Normalization) -> Result<()> {
        crowd::check_new(entries, salt, normalization)
    }

    /// Whether all these names, with a word each, would find room beside what is there. Room on the disk is another matter.
    ///
    /// # Errors
    /// `NoSpace`: too many of them have nearly the same hash; the object cannot be read.
    pub fn check_room<N: AsRef<[u8]>>(&self, names: &[N]) -> Result<()> {
        self.check_room_for(&crowd::of_words(names))
    }

    /// As [`Zap::check_room`], of names with values of so many bytes.
    ///
    /// # Errors
    /// See [`Zap::check_room`].
    pub fn check_room_for(&self, entries: &[(&[u8], usize)]) -> Result<()> {
        self.reading(|form, blocks| match form {
            Form::Micro(micro) => crowd::check_micro(micro, entries),
            Form::Fat(fat) => crowd::check_fat(fat, blocks, entries),
        })
    }

    /// The object's number.
    pub fn object(&self) -> ObjectId {
        self.dnode.object()
    }

    /// The object.
    pub fn dnode(&self) -> &Arc<Dnode> {
        &self.dnode
    }

    fn load(&self) -> Result<Loaded> {
        let block = self.dnode.block(0)?;
        let form = if is_micro(&block) {
            Form::Micro(Micro::open(&block)?)
        } else {
            Form::Fat(Fat::open(&block)?)
        };
        let held = self.dnode.hold_memory(form.weight());
        Ok(Loaded { form, held })
    }

    fn within<T>(&self, result: Result<T>) -> Result<T> {
        result.within(|| format!("ZAP object {} of dataset {}", self.object(), self.dnode.dataset()))
    }

    fn reading<T>(&self, read: impl FnOnce(&Form, &Reading<'_>) -> Result<T>) -> Result<T> {
        let blocks = Reading(&self.dnode);
        let form = self.shared.form.read();
        if let Some(loaded) = form.as_ref() {
            return self.within(read(&loaded.form, &blocks));
        }
        drop(form);
        let mut form = self.shared.form.write();
        if form.is_none() {
            *form = Some(self.within(self.load())?);
        }
        let form = RwLockWriteGuard::downgrade(form);
        match form.as_ref() {
            Some(loaded) => self.within(read(&loaded.form, &blocks)),
            None => unreachable!("loaded above"),
        }
    }

    fn writing<T>(&self, tx: &Tx, write: impl FnOnce(&mut Form, &Writing<'_>) -> Result<T>) -> Result<T> {
        let blocks = Writing { dnode: &self.dnode, tx };
        let mut shared = self.shared.form.write();
        let mut loaded = match shared.take() {
            Some(loaded) => loaded,
            None => self.within(self.load())?,
        };
        let result = write(&mut loaded.form, &blocks);
        loaded.held.resize(loaded.form.weight());
        // After a failure half-way the index may be wrong (invariant 2): it is not put back.
        let harmless = |error: &Error| matches!(error.kind(), ErrorKind::Exists | ErrorKind::NotFound);
        if result.as_ref().err().is_none_or(harmless) {
            *shared = Some(loaded);
        }
        self.within(result)
    }

    // Reading ---------------------------------------------------------------------------------------------------

    /// The value of `name`.
    ///
    /// # Errors
    /// The object cannot be read or makes no sense.
    pub fn lookup(&self, name: impl AsRef<[u8]>) -> Result<Option<Value>> {
        Ok(self.lookup_matching(name, Match::Exact)?.map(|(value, _)| value))
    }

    /// The value of the entry whose name matches `name`, and that name.
    ///
    /// # Errors
    /// See [`Zap::lookup`].
    pub fn lookup_matching(&self, name: impl AsRef<[u8]>, matching: Match) -> Result<Option<(Value, Vec<u8>)>> {
        let name = name.as_ref();
        self.reading(|form, blocks| match form {
            Form::Micro(micro) => {
                let found = micro.lookup(&blocks.read(0)?.clone(), &micro.key(name), matching);
                Ok(found.map(|(word, name)| (Value::of_word(word), name)))
            }
            Form::Fat(fat) => fat.lookup(blocks, &fat.name_key(name)?, matching),
        })
    }

    /// The first integer of the value of `name`.
    ///
    /// # Errors
    /// See [`Zap::lookup`].
    pub fn lookup_u64(&self, name: impl AsRef<[u8]>) -> Result<Option<u64>> {
        Ok(self.lookup(name)?.map(|value| value.first()))
    }

    /// The first integer of the value of `name`, which must be there.
    ///
    /// # Errors
    /// `NotFound`, and see [`Zap::lookup`].
    pub fn get_u64(&self, name: impl AsRef<[u8]>) -> Result<u64> {
        let name = name.as_ref();
        self.lookup_u64(name)?.ok_or_else(|| self.missing(name))
    }

    /// The value of a key of words.
    ///
    /// # Errors
    /// See [`Zap::lookup`].
    pub fn lookup_words(&self, key: &[u64]) -> Result<Option<Value>> {
        self.reading(|form, blocks| match form {
            Form::Micro(_) => bail!(Invalid, "has no keys of words"),
            Form::Fat(fat) => Ok(fat.lookup(blocks, &fat.word_key(key)?, Match::Exact)?.map(|(value, _)| value)),
        })
    }

    /// The value of the number `number`, as name.
    ///
    /// # Errors
    /// See [`Zap::lookup`].
    pub fn lookup_int(&self, number: u64) -> Result<Option<u64>> {
        self.lookup_u64(int_name(number))
    }

    /// Whether there is an entry of this name.
    ///
    /// # Errors
    /// See [`Zap::lookup`].
    pub fn contains(&self, name: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.lookup(name)?.is_some())
    }

    /// Number of entries.
    ///
    /// # Errors
    /// See [`Zap::lookup`].
    pub fn len(&self) -> Result<u64> {
        self.reading(|form, blocks| match form {
            Form::Micro(micro) => Ok(micro.len() as u64),
            Form::Fat(fat) => fat.len(blocks),
        })
    }

    /// Whether there are no entries.
    ///
    /// # Errors
    /// See [`Zap::lookup`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// How names are normalised.
    ///
    /// # Errors
    /// See [`Zap::lookup`].
    pub fn normalization(&self) -> Result<Normalization> {
        self.reading(|form, _| match form {
            Form::Micro(micro) => Ok(micro.normalization),
            Form::Fat(fat) => Ok(fat.normalization),
        })
    }

    /// A cursor at a packed position (0: the start).
    ///
    /// # Errors
    /// See [`Zap::lookup`].
    pub fn cursor_at(&self, position: u64) -> Result<Cursor> {
        self.reading(|form, _| match form {
            Form::Micro(_) => Ok(Cursor::unpack(position, 0)),
            Form::Fat(fat) => Ok(Cursor::unpack(position, fat.flags)),
        })
    }

    /// The entry at the cursor, which moves behind it; `None` at the end.
    ///
    /// # Errors
    /// See [`Zap::lookup`].
    pub fn next(&self, cursor: &mut Cursor) -> Result<Option<CursorEntry>> {
        if cursor.at_end {
            return Ok(None);
        }
        let found = self.reading(|form, blocks| {
            let Cursor { hash, collision, .. } = *cursor;
            match form {
                Form::Micro(micro) => Ok(micro.next(blocks, hash, collision)?.map(|entry| {
                    *cursor = Cursor::after(entry.hash, entry.collision);
                    CursorEntry { name: entry.name, value: Value::of_word(entry.value), next_position: cursor.pack(0) }
                })),
                Form::Fat(fat) => {
                    if hash == 0 && collision == 0 {
                        blocks.0.prefetch(0, u64::MAX);
                    }
                    Ok(fat.next(blocks, hash, collision)?.map(|(entry, name, value)| {
                        *cursor = Cursor::after(entry.hash, entry.collision);
                        CursorEntry { name, value, next_position: cursor.pack(fat.flags) }
                    }))
                }
            }
        })?;
        cursor.at_end = found.is_none();
        Ok(found)
    }

    /// All entries, in the order of positions. For ZAPs that are known to be small; else use a [`Cursor`].
    ///
    /// # Errors
    /// See [`Zap::lookup`].
    pub fn entries(&self) -> Result<Vec<CursorEntry>> {
        self.reading(|form, blocks| {
            let mut entries = Vec::new();
            match form {
                Form::Micro(micro) => {
                    let mut at = Cursor::start();
                    while let Some(entry) = micro.next(blocks, at.hash, at.collision)? {
                        at = Cursor::after(entry.hash, entry.collision);
                        entries.push(CursorEntry { name: entry.name, value: Value::of_word(entry.value), next_position: at.pack(0) });
                    }
                }
                Form::Fat(fat) => {
                    blocks.0.prefetch(0, u64::MAX);
                    fat.each(blocks, &mut |entry, name, value| {
                        let next_position = Cursor::after(entry.hash, entry.collision).pack(fat.flags);
                        entries.push(CursorEntry { name, value, next_position });
                    })?;
                }
            }
            Ok(entries)
        })
    }

    /// Calls `visit` with the name and the first integer of each entry, in no order. Of a micro ZAP no index is made for it: for large ones that are listed once.
    ///
    /// # Errors
    /// See [`Zap::lookup`]; the one of `visit`.
    pub fn each_number(&self, visit: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        {
            let _unchanged = self.shared.form.read();
            let block = self.dnode.block(0)?;
            if is_micro(&block) {
                let mut slots = zap_micro::slots(&block).iter().filter(|slot| !slot.is_free());
                return self.within(slots.try_for_each(|slot| visit(slot.name(), slot.value.get())));
            }
        }
        self.reading(|form, blocks| match form {
            Form::Fat(fat) => {
                blocks.0.prefetch(0, u64::MAX);
                fat.each_number(blocks, visit)
            }
            Form::Micro(_) => Err(error!(Corrupt, "it is of another form than a moment ago")),
        })
    }

    /// The name of the first entry whose value is `word` under `mask`.
    ///
    /// # Errors
    /// See [`Zap::lookup`].
    #[doc(alias = "zap_value_search")]
    pub fn find_value(&self, word: u64, mask: u64) -> Result<Option<Vec<u8>>> {
        let mut cursor = Cursor::start();
        while let Some(entry) = self.next(&mut cursor)? {
            if entry.value.first() & mask == word & mask {
                return Ok(Some(entry.name));
            }
        }
        Ok(None)
    }

    // Changing --------------------------------------------------------------------------------------------------

    fn missing(&self, name: &[u8]) -> Error {
        error!(NotFound, "object {} of dataset {} has no entry {}", self.object(), self.dnode.dataset(), String::from_utf8_lossy(name))
    }

    fn put(&self, tx: &Tx, name: &[u8], value: Integers<'_>, replace: bool) -> Result<()> {
        check_name(name)?;
        self.writing(tx, |form, blocks| {
            let there = form.has(blocks, name)?;
            if there && !replace {
                bail!(Exists, "the entry {} exists already", String::from_utf8_lossy(name));
            }
            form.make_slot(blocks, name, value.single_word().is_some(), there)?;
            match (form, value.single_word()) {
                (Form::Micro(micro), Some(word)) if there => micro.update(blocks, &micro.key(name), word),
                (Form::Micro(micro), Some(word)) => micro.add(blocks, &micro.key(name), word),
                (Form::Fat(fat), _) => fat.put(blocks, &fat.name_key(name)?, None, value, replace),
                (Form::Micro(_), None) => unreachable!("it was made fat"),
            }
        })
    }

    /// Makes everything ready for adding an entry of one word, perhaps after one of this name was removed. Afterwards neither can fail in
    /// this transaction, as long as no other transaction adds names: all blocks are there and have room.
    ///
    /// # Errors
    /// See [`Zap::add`]; no entry has changed.
    pub fn prepare_to_add(&self, tx: &Tx, name: impl AsRef<[u8]>) -> Result<()> {
        let name = name.as_ref();
        check_name(name)?;
        self.writing(tx, |form, blocks| {
            let there = form.has(blocks, name)?;
            form.make_slot(blocks, name, true, there)?;
            match form {
                Form::Micro(_) => blocks.modify(0, |_| Ok(())),
                Form::Fat(fat) => fat.prepare(blocks, &fat.name_key(name)?, true),
            }
        })
    }

    /// Makes everything ready for removing an entry: see [`Zap::prepare_to_add`].
    ///
    /// # Errors
    /// See [`Zap::remove`]; no entry has changed.
    pub fn prepare_to_remove(&self, tx: &Tx, name: impl AsRef<[u8]>) -> Result<()> {
        let name = name.as_ref();
        self.writing(tx, |form, blocks| match form {
            Form::Micro(_) => blocks.modify(0, |_| Ok(())),
            Form::Fat(fat) => fat.prepare(blocks, &fat.name_key(name)?, false),
        })
    }

    /// Adds an entry that is not there.
    ///
    /// # Errors
    /// `Exists`; `NameTooLong`; `TooBig`; the object cannot be read.
    pub fn add(&self, tx: &Tx, name: impl AsRef<[u8]>, value: Integers<'_>) -> Result<()> {
        self.put(tx, name.as_ref(), value, false)
    }

    /// Adds an entry of one word that is not there.
    ///
    /// # Errors
    /// See [`Zap::add`].
    pub fn add_u64(&self, tx: &Tx, name: impl AsRef<[u8]>, value: u64) -> Result<()> {
        self.add(tx, name, Integers::U64(&[value]))
    }

    /// Adds an entry, or replaces its value.
    ///
    /// # Errors
    /// See [`Zap::add`].
    pub fn update(&self, tx: &Tx, name: impl AsRef<[u8]>, value: Integers<'_>) -> Result<()> {
        self.put(tx, name.as_ref(), value, true)
    }

    /// Adds an entry of one word, or replaces its value.
    ///
    /// # Errors
    /// See [`Zap::add`].
    pub fn update_u64(&self, tx: &Tx, name: impl AsRef<[u8]>, value: u64) -> Result<()> {
        self.update(tx, name, Integers::U64(&[value]))
    }

    /// Adds a number as name and value.
    ///
    /// # Errors
    /// See [`Zap::add`].
    #[doc(alias = "zap_add_int")]
    pub fn add_int(&self, tx: &Tx, number: u64) -> Result<()> {
        self.add_u64(tx, int_name(number), number)
    }

    /// Removes what [`Zap::add_int`] added.
    ///
    /// # Errors
    /// See [`Zap::remove`].
    pub fn remove_int(&self, tx: &Tx, number: u64) -> Result<()> {
        self.remove(tx, int_name(number))
    }

    /// Adds `change` to the value of `name`; a value of 0 is an entry that is not there, and no sum is below 0.
    ///
    /// # Errors
    /// See [`Zap::add`].
    pub fn increment(&self, tx: &Tx, name: impl AsRef<[u8]>, change: i64) -> Result<()> {
        let name = name.as_ref();
        if change == 0 {
            return Ok(());
        }
        let value = self.lookup_u64(name)?;
        // Other programs let sums fall below 0: such a value is a negative number.
        let sum = (value.unwrap_or(0) as i64).saturating_add(change).max(0) as u64;
        match (value, sum) {
            (Some(_), 0) => self.remove(tx, name),
            (None, 0) => Ok(()),
            (_, sum) => self.update_u64(tx, name, sum),
        }
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// `NotFound`; the object cannot be read.
    pub fn remove(&self, tx: &Tx, name: impl AsRef<[u8]>) -> Result<()> {
        self.remove_matching(tx, name, Match::Exact)
    }

    /// Removes the entry whose name matches `name`.
    ///
    /// # Errors
    /// See [`Zap::remove`].
    pub fn remove_matching(&self, tx: &Tx, name: impl AsRef<[u8]>, matching: Match) -> Result<()> {
        let name = name.as_ref();
        let removed = self.writing(tx, |form, blocks| match form {
            Form::Micro(micro) => {
                let key = micro.key(name);
                micro.remove(blocks, &key, matching)
            }
            Form::Fat(fat) => fat.remove(blocks, &fat.name_key(name)?, matching),
        })?;
        if removed { Ok(()) } else { Err(self.missing(name)) }
    }

    /// Adds an entry with a key of words that is not there.
    ///
    /// # Errors
    /// See [`Zap::add`].
    pub fn add_words(&self, tx: &Tx, key: &[u64], value: Integers<'_>) -> Result<()> {
        self.put_words(tx, key, value, false)
    }

    /// Adds an entry with a key of words, or replaces its value.
    ///
    /// # Errors
    /// See [`Zap::add`].
    pub fn update_words(&self, tx: &Tx, key: &[u64], value: Integers<'_>) -> Result<()> {
        self.put_words(tx, key, value, true)
    }

    fn put_words(&self, tx: &Tx, key: &[u64], value: Integers<'_>, replace: bool) -> Result<()> {
        self.writing(tx, |form, blocks| match form {
            Form::Micro(_) => bail!(Invalid, "has no keys of words"),
            Form::Fat(fat) => fat.put(blocks, &fat.word_key(key)?, None, value, replace),
        })
    }

    /// Removes an entry with a key of words.
    ///
    /// # Errors
    /// See [`Zap::remove`].
    pub fn remove_words(&self, tx: &Tx, key: &[u64]) -> Result<()> {
        let removed = self.writing(tx, |form, blocks| match form {
            Form::Micro(_) => bail!(Invalid, "has no keys of words"),
            Form::Fat(fat) => fat.remove(blocks, &fat.word_key(key)?, Match::Exact),
        })?;
        if removed { Ok(()) } else { bail!(NotFound, "object {} has no entry {key:x?}", self.object()) }
    }
}
