//! The deduplication tables: references to a block, by its contents.
//!
//! Newer tables have logs, whose entries count before those of the table. When something changes, all that is in the logs is
//! moved into the table first, so that from then on the table alone is true.

use std::collections::{BTreeMap, BTreeSet};

use ondisk::blkptr::{BlkPtr, BlockPointer, DataPointer, Protection};
use ondisk::algorithm::ChecksumAlgorithm;
use ondisk::ddt::{
    ALGORITHMS, Class, Entry, FLAG_FLAT, FLAG_LOG, FLAGS, KEY_WORDS, Key, LogHeaderPhys, STATISTICS, STATISTICS_BUCKETS,
    STATISTICS_NUMBERS, Slot, VALUE_LITTLE_ENDIAN, VERSION, VERSION_FLAT, log_records,
};
use ondisk::dva::Dva;
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use ondisk::zap_hash::{FLAG_HASH_64, FLAG_PRE_HASHED, FLAG_WORD_KEYS};
use transform::compress;
use zerocopy::{FromBytes, IntoBytes};

use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::meta::key;
use crate::dsl::{Meta, Mos};
use crate::error;
use crate::error::{Error, ErrorKind, Result, Within};
use crate::zap::{Integers, Zap, ZapSpec};

/// log2 of the blocks of a table.
const TABLE_BLOCK_SHIFT: u32 = 15;
/// Largest log that is believed.
const LOG_BYTES_MAX: u64 = 1 << 32;
/// The algorithm whose checksums are not fit to be a hash.
const EDONR: u8 = 13;

/// Sums over a class of entries.
type Statistics = Vec<u64>;

/// What the tables are about, in bytes on disk without the share of parity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DedupSpace {
    /// What the blocks take.
    pub allocated: u64,
    /// What they would take if each reference had a block to itself.
    pub referenced: u64,
    /// What the tables and their logs take themselves.
    pub tables: u64,
    /// How long the tables and their logs are where they are not compressed.
    pub length: u64,
    /// How many blocks are in the tables.
    pub blocks: u64,
}

/// An entry that this pass came by.
struct Live {
    /// Which ZAP has a version of it.
    class: Option<Class>,
    /// That version, if it is the one that the sums know.
    counted: Option<Entry>,
    entry: Entry,
}

/// The tables of one checksum algorithm.
struct Table {
    algorithm: u8,
    name: &'static str,
    /// The ZAP that names the tables: the MOS's directory, or one of its own.
    directory: u64,
    flat: bool,
    /// Objects of the logs.
    logs: Vec<u64>,
    /// What is only in the logs.
    logged: BTreeMap<Key, (Option<Class>, Entry)>,
    live: BTreeMap<Key, Live>,
}

/// Words of a value of the table.
fn decode_value(bytes: &[u8], flat: bool) -> Result<Entry> {
    let Some((head, rest)) = bytes.split_first() else { bail!(Corrupt, "a dedup entry without a value") };
    let length = Entry::words(flat) * 8;
    let algorithm = head & !VALUE_LITTLE_ENDIAN;
    let bytes = compress::decompress(algorithm, rest, length).map_err(|error| Error::new(ErrorKind::Corrupt, format!("dedup entry: {error}")))?;
    let little = head & VALUE_LITTLE_ENDIAN != 0;
    let (words, _) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| if little { u64::from_le_bytes(*word) } else { u64::from_be_bytes(*word) }).collect();
    Ok(Entry::from_words(&words, flat)?)
}

fn encode_value(entry: &Entry, flat: bool) -> Vec<u8> {
    let bytes: Vec<u8> = entry.to_words(flat).iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut value = vec![0; bytes.len() + 1];
    let (algorithm, length) = match compress::compress(compress::ZLE, 0, &bytes, &mut value[1..]) {
        Some(length) if length < bytes.len() => (compress::ZLE, length),
        _ => {
            value[1..].copy_from_slice(&bytes);
            (compress::OFF, bytes.len())
        }
    };
    value[0] = algorithm | VALUE_LITTLE_ENDIAN;
    value.truncate(length + 1);
    value
}

impl Table {
    fn open(mos: &Mos, algorithm: u8, name: &'static str) -> Result<Option<Table>> {
        let own = mos.zap_u64(key::DIRECTORY, &format!("DDT-{name}"))?;
        let mut table = Table {
            algorithm,
            name,
            directory: own.unwrap_or(key::DIRECTORY),
            flat: false,
            logs: Vec::new(),
            logged: BTreeMap::new(),
            live: BTreeMap::new(),
        };
        let Some(directory) = own else {
            let mut classes = Class::ALL.into_iter();
            let exists = classes.try_fold(false, |found, class| Ok::<_, Error>(found || table.object(mos, class)?.is_some()))?;
            return Ok(exists.then_some(table));
        };
        let flags = mos.zap_u64(directory, FLAGS)?.unwrap_or(0);
        if mos.zap_u64(directory, VERSION)? != Some(VERSION_FLAT) || flags & !(FLAG_FLAT | FLAG_LOG) != 0 {
            bail!(Unsupported, "the dedup table {name} is of an unknown version");
        }
        table.flat = flags & FLAG_FLAT != 0;
        for number in 0..2 {
            if let Some(object) = mos.zap_u64(directory, &format!("DDT-log-{name}-{number}"))? {
                table.logs.push(object);
            }
        }
        table.read_logs(mos)?;
        Ok(Some(table))
    }

    /// What is in the logs: first the one that is being moved, then the newer one.
    fn read_logs(&mut self, mos: &Mos) -> Result<()> {
        let mut headers = Vec::new();
        for object in &self.logs {
            headers.push((*object, log_header(mos, *object)?));
        }
        headers.sort_by_key(|(_, header)| header.flags() & ondisk::ddt::LOG_FLUSHING == 0);
        for (object, header) in headers {
            let length = header.length.get();
            let block = mos.info(object)?.block_bytes;
            if header.version() != 1 || length > LOG_BYTES_MAX || length > mos.info(object)?.length {
                bail!(Corrupt, "dedup log in object {object}: version {}, {length} bytes", header.version());
            }
            let done = header.checkpoint_key();
            for at in (0..length).step_by(block as usize) {
                let bytes = mos.read(object, at, block as usize)?;
                for (class, key, entry) in log_records(&bytes, self.flat)? {
                    if done.is_none_or(|done| key > done) {
                        self.logged.insert(key, (class, entry));
                    }
                }
            }
        }
        Ok(())
    }

    fn table_name(&self, class: Class) -> String {
        format!("DDT-{}-zap-{}", self.name, class.name())
    }

    /// The ZAP of a class.
    fn object(&self, mos: &Mos, class: Class) -> Result<Option<u64>> {
        mos.zap_u64(self.directory, &self.table_name(class))
    }

    /// The entry, in memory, if there is one.
    fn load(&mut self, mos: &Mos, key: &Key) -> Result<Option<&mut Live>> {
        if !self.live.contains_key(key) {
            let live = match self.logged.remove(key) {
                Some((class, entry)) => Some(Live { class, counted: None, entry }),
                None => self.find(mos, key)?,
            };
            let Some(live) = live else { return Ok(None) };
            self.live.insert(*key, live);
        }
        Ok(self.live.get_mut(key))
    }

    fn find(&self, mos: &Mos, key: &Key) -> Result<Option<Live>> {
        for class in Class::ALL {
            let Some(object) = self.object(mos, class)? else { continue };
            if let Some(value) = mos.zap(object)?.lookup_words(&key.0)? {
                let entry = decode_value(&value.to_le_bytes(), self.flat)?;
                return Ok(Some(Live { class: Some(class), counted: Some(entry.clone()), entry }));
            }
        }
        Ok(None)
    }

    /// Calls `visit` with the place of the first copy of each block on disk, and its references.
    fn each(&self, mos: &Mos, visit: &mut dyn FnMut(Dva, u64)) -> Result<()> {
        let mut visit_slots = |key: &Key, entry: &Entry| {
            for slot in entry.slots.iter().filter(|slot| slot.birth != 0) {
                if let Some(first) = slot.dvas(key).first() {
                    visit(*first, slot.references);
                }
            }
        };
        for class in Class::ALL {
            let Some(object) = self.object(mos, class)? else { continue };
            let entries = mos.zap(object)?;
            let mut cursor = entries.cursor_at(0)?;
            while let Some(entry) = entries.next(&mut cursor)? {
                let Ok(words) = <[u64; KEY_WORDS]>::try_from(entry.words()) else {
                    bail!(Corrupt, "the table {} has a key of {} bytes", self.table_name(class), entry.name.len());
                };
                let key = Key(words);
                if !self.logged.contains_key(&key) {
                    visit_slots(&key, &decode_value(&entry.value.to_le_bytes(), self.flat)?);
                }
            }
        }
        self.logged.iter().for_each(|(key, (_, entry))| visit_slots(key, entry));
        Ok(())
    }

    /// Changes the references to a block; `false`: it is not in the table.
    fn change(&mut self, mos: &Mos, block: &DataPointer, change: i64) -> Result<bool> {
        let name = self.name;
        let Some(live) = self.load(mos, &Key::of(block))? else { return Ok(false) };
        let Some(slot) = live.entry.slots.iter_mut().find(|slot| slot.is(block)) else { return Ok(false) };
        let Some(references) = slot.references.checked_add_signed(change) else {
            bail!(Corrupt, "dedup table {name}: more is freed than was counted");
        };
        slot.references = references;
        Ok(true)
    }

    fn pointer(&self, key: &Key, slot: &Slot) -> Option<DataPointer> {
        let dvas = slot.dvas(key);
        if dvas.is_empty() || slot.birth == 0 {
            return None;
        }
        let mut block = DataPointer::new(&dvas, ObjectType::DEDUP, 0, slot.birth);
        // What the checksum of a gang header covers depends on it.
        if key.is_encrypted() {
            block.protection = Protection::Encrypted { salt: 0, iv: 0, iv_tail: 0 };
        }
        block.logical_size = key.logical_size();
        block.physical_size = key.physical_size();
        block.checksum.copy_from_slice(&key.0[..4]);
        if let Some(algorithm) = ChecksumAlgorithm::from_number(self.algorithm) {
            block.checksum_algorithm = algorithm;
        }
        Some(block)
    }

    /// Adds an entry to, or takes it from, the sums of its class.
    fn count(&self, meta: &Meta, sums: &mut Statistics, key: &Key, entry: &Entry, add: bool) {
        let mut numbers = [0_u64; STATISTICS_NUMBERS];
        for slot in &entry.slots {
            let Some(block) = self.pointer(key, slot) else { continue };
            let one = [1, key.logical_size(), key.physical_size(), meta.context.io.deflated_size(&block.encode())];
            for (index, number) in one.into_iter().enumerate() {
                numbers[index] = numbers[index].wrapping_add(number);
                numbers[index + 4] = numbers[index + 4].wrapping_add(number.wrapping_mul(slot.references));
            }
        }
        let Some(bucket) = numbers[4].checked_ilog2() else { return };
        let at = bucket as usize * STATISTICS_NUMBERS;
        for (sum, number) in sums[at..at + STATISTICS_NUMBERS].iter_mut().zip(numbers) {
            *sum = if add { sum.saturating_add(number) } else { sum.saturating_sub(number) };
        }
    }

    fn make_class(&self, mos: &Mos, class: Class, tx: &SyncTx<'_>) -> Result<u64> {
        let hashed = if self.algorithm == EDONR { 0 } else { FLAG_PRE_HASHED };
        let flags = FLAG_HASH_64 | FLAG_WORD_KEYS | hashed;
        let spec = ZapSpec::fat(ObjectType::DDT_ZAP, flags, TABLE_BLOCK_SHIFT, TABLE_BLOCK_SHIFT as u8);
        let object = Zap::create(&mos.0, tx, &spec)?.object();
        mos.zap_add_u64(self.directory, &self.table_name(class), object, tx)?;
        Ok(object)
    }

    /// Writes an entry; blocks that have no reference are `freed`.
    fn write_entry(&self, meta: &Meta, key: &Key, live: Live, sums: &mut Sums, freed: &mut Vec<DataPointer>, tx: &SyncTx<'_>) -> Result<()> {
        let Live { class: old, counted, mut entry } = live;
        for (index, slot) in entry.slots.iter_mut().enumerate() {
            let unused = !self.flat && index == 0;
            if slot.birth != 0 && (unused || slot.references == 0) {
                freed.extend(self.pointer(key, slot));
                *slot = Slot::default();
            }
        }
        let references = entry.references();
        let new = (references > 0).then(|| Class::of(references));
        let mos = &meta.mos;
        if let Some(class) = old {
            if let Some(counted) = &counted {
                self.count(meta, sums.of(self, meta, class)?, key, counted, false);
            }
            if new != Some(class) {
                let Some(object) = self.object(mos, class)? else { bail!(Corrupt, "the table {} is gone", self.table_name(class)) };
                mos.zap(object)?.remove_words(tx, &key.0)?;
            }
        }
        let Some(class) = new else { return Ok(()) };
        if self.flat {
            entry.changed = meta.context.host.wall_clock().0;
        }
        let object = match self.object(mos, class)? {
            Some(object) => object,
            None => self.make_class(mos, class, tx)?,
        };
        self.count(meta, sums.of(self, meta, class)?, key, &entry, true);
        mos.zap(object)?.update_words(tx, &key.0, Integers::U8(&encode_value(&entry, self.flat)))
    }

    /// Writes what changed; `false`: nothing is left, and the table is gone.
    fn sync(&mut self, meta: &Meta, tx: &SyncTx<'_>, freed: &mut Vec<DataPointer>) -> Result<bool> {
        let mos = &meta.mos;
        for (key, (class, entry)) in std::mem::take(&mut self.logged) {
            self.live.entry(key).or_insert(Live { class, counted: None, entry });
        }
        for object in &self.logs {
            empty_log(mos, *object, tx)?;
        }
        let statistics = match mos.zap_u64(key::DIRECTORY, STATISTICS)? {
            Some(object) => object,
            None => {
                let object = mos.zap_create(ObjectType::DDT_STATS, tx)?;
                mos.zap_add_u64(key::DIRECTORY, STATISTICS, object, tx)?;
                object
            }
        };
        let mut sums = Sums { statistics, by_class: BTreeMap::new() };
        for (key, live) in std::mem::take(&mut self.live) {
            self.write_entry(meta, &key, live, &mut sums, freed, tx)?;
        }
        let zap = mos.zap(statistics)?;
        for (class, sums) in &sums.by_class {
            zap.update(tx, self.table_name(*class), Integers::U64(sums))?;
        }
        let mut objects = Vec::new();
        let mut left = 0;
        for class in Class::ALL {
            if let Some(object) = self.object(mos, class)? {
                left += mos.zap_count(object)?;
                objects.push((class, object));
            }
        }
        if left == 0 {
            self.destroy(meta, &objects, statistics, tx)?;
        }
        Ok(left > 0)
    }

    fn destroy(&self, meta: &Meta, objects: &[(Class, u64)], statistics: u64, tx: &SyncTx<'_>) -> Result<()> {
        let mos = &meta.mos;
        for (class, object) in objects {
            mos.zap_remove(self.directory, &self.table_name(*class), tx)?;
            mos.zap_remove(statistics, &self.table_name(*class), tx)?;
            mos.free(*object, tx)?;
        }
        if self.directory == key::DIRECTORY {
            return Ok(());
        }
        for object in &self.logs {
            mos.free(*object, tx)?;
        }
        mos.free(self.directory, tx)?;
        mos.zap_remove(key::DIRECTORY, &format!("DDT-{}", self.name), tx)?;
        meta.features.decrement(mos, Feature::FastDedup, tx)
    }
}

/// The sums that a pass changes.
struct Sums {
    statistics: u64,
    by_class: BTreeMap<Class, Statistics>,
}

impl Sums {
    fn of(&mut self, table: &Table, meta: &Meta, class: Class) -> Result<&mut Statistics> {
        if !self.by_class.contains_key(&class) {
            let stored = meta.mos.zap_get(self.statistics, &table.table_name(class))?;
            let mut sums = stored.map_or_else(Vec::new, |value| value.to_u64s());
            sums.resize(STATISTICS_BUCKETS * STATISTICS_NUMBERS, 0);
            self.by_class.insert(class, sums);
        }
        self.by_class.get_mut(&class).ok_or_else(|| error!(Corrupt, "no sums of {}", table.table_name(class)))
    }
}

fn log_header(mos: &Mos, object: u64) -> Result<LogHeaderPhys> {
    let bonus = mos.bonus(object)?;
    match LogHeaderPhys::read_from_prefix(bonus.as_slice()) {
        Ok((header, _)) => Ok(header),
        Err(_) => bail!(Corrupt, "dedup log in object {object}: header of {} bytes", bonus.len()),
    }
}

/// Everything of a log is in the table now.
fn empty_log(mos: &Mos, object: u64, tx: &SyncTx<'_>) -> Result<()> {
    let mut header = log_header(mos, object)?;
    if header.length.get() == 0 && header.checkpoint_key().is_none() {
        return Ok(());
    }
    mos.free_range(object, 0, u64::MAX, tx)?;
    header.length = 0.into();
    header.info = (header.info.get() & !(ondisk::ddt::LOG_CHECKPOINT << 8)).into();
    header.checkpoint = [0.into(); KEY_WORDS];
    mos.set_bonus(object, header.as_bytes(), tx)
}

/// Adds the sums of a class to what the blocks of the tables take, and would take if each reference had its own.
fn add_sums(totals: &mut DedupSpace, sums: &[u64]) {
    const BLOCKS: usize = 0;
    const ALLOCATED: usize = 3;
    const REFERENCED: usize = 7;
    for bucket in sums.chunks_exact(STATISTICS_NUMBERS) {
        totals.blocks = totals.blocks.saturating_add(bucket[BLOCKS]);
        totals.allocated = totals.allocated.saturating_add(bucket[ALLOCATED]);
        totals.referenced = totals.referenced.saturating_add(bucket[REFERENCED]);
    }
}

/// The tables of all algorithms.
pub(super) struct DedupTables {
    tables: BTreeMap<u8, Table>,
    changed: BTreeSet<u8>,
    /// `None`: not known since the last change.
    space: Option<DedupSpace>,
}

impl DedupTables {
    pub(super) fn open(mos: &Mos) -> Result<DedupTables> {
        let mut tables = BTreeMap::new();
        for (algorithm, name) in ALGORITHMS {
            if let Some(table) = Table::open(mos, algorithm, name).within(|| format!("dedup table {name}"))? {
                tables.insert(algorithm, table);
            }
        }
        Ok(DedupTables { tables, changed: BTreeSet::new(), space: None })
    }

    /// What the sums say; they change with each sync of a table.
    pub(super) fn space(&mut self, meta: &Meta) -> DedupSpace {
        if self.space.is_none() {
            self.space = self.count_space(meta).ok();
        }
        self.space.unwrap_or_default()
    }

    /// The sums on disk are those of the tables: what is only in the logs comes on top of that.
    fn count_space(&self, meta: &Meta) -> Result<DedupSpace> {
        let mut space = DedupSpace::default();
        if let Some(object) = meta.mos.zap_u64(key::DIRECTORY, STATISTICS)? {
            for (_, sums) in meta.mos.zap_entries(object)? {
                add_sums(&mut space, &sums.to_u64s());
            }
        }
        for table in self.tables.values() {
            let mut sums = vec![0; STATISTICS_BUCKETS * STATISTICS_NUMBERS];
            table.logged.iter().for_each(|(key, (_, entry))| table.count(meta, &mut sums, key, entry, true));
            add_sums(&mut space, &sums);
            let classes = Class::ALL.into_iter().map(|class| table.object(&meta.mos, class)).collect::<Result<Vec<_>>>()?;
            for object in classes.into_iter().flatten().chain(table.logs.iter().copied()) {
                let info = meta.mos.0.hold(object)?.info();
                space.tables = space.tables.saturating_add(info.used_bytes);
                space.length = space.length.saturating_add(info.max_block.saturating_add(1).saturating_mul(info.block_bytes));
            }
        }
        Ok(space)
    }

    /// Calls `visit` with the place of the first copy of each block on disk, and its references.
    pub(super) fn each(&self, mos: &Mos, visit: &mut dyn FnMut(Dva, u64)) -> Result<()> {
        self.tables.values().try_for_each(|table| table.each(mos, visit).within(|| format!("dedup table {}", table.name)))
    }

    pub(super) fn is_dirty(&self) -> bool {
        !self.changed.is_empty()
    }

    fn change(&mut self, mos: &Mos, block: &DataPointer, change: i64) -> Result<bool> {
        let algorithm = block.checksum_algorithm.number();
        let Some(table) = self.tables.get_mut(&algorithm) else { return Ok(false) };
        let found = table.change(mos, block, change).within(|| format!("dedup table {}", table.name))?;
        if found {
            self.changed.insert(algorithm);
        }
        Ok(found)
    }

    /// Adds a reference; `false`: the block is not in a table.
    pub(super) fn add(&mut self, mos: &Mos, bp: &BlkPtr) -> Result<bool> {
        match bp.decode()? {
            BlockPointer::Data(block) => self.change(mos, &block, 1),
            _ => Ok(false),
        }
    }

    /// Takes a reference; `false`: the block is not in a table any more, and only this pointer leads to it.
    pub(super) fn release(&mut self, mos: &Mos, block: &DataPointer) -> Result<bool> {
        self.change(mos, block, -1)
    }

    pub(super) fn sync(&mut self, meta: &Meta, tx: &SyncTx<'_>, freed: &mut Vec<DataPointer>) -> Result<()> {
        for algorithm in std::mem::take(&mut self.changed) {
            self.space = None;
            let Some(table) = self.tables.get_mut(&algorithm) else { continue };
            if !table.sync(meta, tx, freed).within(|| format!("dedup table {}", table.name))? {
                self.tables.remove(&algorithm);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ondisk::dva::Dva;

    use super::*;

    /// It was metadata, of which there are no clones, and never encrypted: an encrypted gang block that lost its last reference was leaked.
    #[test]
    fn the_pointer_of_an_entry_is_to_a_block_of_data_and_encrypted_if_that_is() {
        let table = Table { algorithm: 8, name: "sha256", directory: 1, flat: true, logs: Vec::new(), logged: BTreeMap::new(), live: BTreeMap::new() };
        for protection in [Protection::None, Protection::Encrypted { salt: 1, iv: 2, iv_tail: 3 }] {
            let mut block = DataPointer::new(&[Dva::new(1, 0x2000, 0x1000)], ObjectType::PLAIN_FILE_CONTENTS, 0, 7);
            block.protection = protection;
            let (key, place) = (Key::of(&block), block.dvas()[0].encode());
            let entry = Entry::from_words(&[place.location.get(), place.offset.get(), 0, 0, 0, 0, 1, 7, 0], true).unwrap();
            let pointer = table.pointer(&key, &entry.slots[0]).unwrap();
            assert_eq!((pointer.dvas(), pointer.physical_birth, pointer.object_type), (block.dvas(), 7, ObjectType::DEDUP));
            let encoded = pointer.encode();
            assert_eq!(encoded.is_encrypted(), protection != Protection::None);
            assert!(!encoded.is_metadata());
            assert_eq!(Key::of(&pointer), key);
        }
    }
}
