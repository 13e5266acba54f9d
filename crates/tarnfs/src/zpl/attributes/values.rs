//! The attributes of one file: in its bonus, and in its spill block if they do not fit.
//!
//! # Theory
//! A buffer is kept as the bytes that are on disk, with an index of where each attribute is. A change of a value of the same
//! length is a patch of those bytes. A change of the *set* of attributes, or of a length, lays all of them out anew,
//! in the old order with new ones at the end, as OpenZFS does: the first attributes that do not fit the bonus begin the spill
//! block.
//!
//! # On disk
//! [`ondisk::sa`], [`ondisk::znode`].
//!
//! # Invariants
//! 1. In the bonus of a file with a spill block the last 128 bytes of the dnode are free, for the pointer.

use std::sync::Arc;

use engine::dmu::{Dnode, Tx};
use engine::error::Result;
use engine::{bail, error};
use ondisk::corruption::Corruption;
use ondisk::object_type::ObjectType;
use ondisk::sa::{self, Attribute, ByteOrderClass};
use ondisk::znode::ZNODE_SIZE;

use super::sa_tables::SaTables;
use crate::zpl::inodes::file_set::FileSet;

/// Size of a block pointer.
const POINTER_SIZE: usize = 128;

/// Where an attribute is in its buffer.
#[derive(Debug, Clone, Copy)]
struct Span {
    number: u16,
    at: usize,
    length: usize,
}

/// The bytes of a bonus or spill block, and the index over them.
#[derive(Debug, Default, Clone)]
struct Buffer {
    bytes: Arc<Vec<u8>>,
    spans: Vec<Span>,
    dirty: bool,
}

impl Buffer {
    fn find(&self, number: u16) -> Option<Span> {
        self.spans.iter().find(|span| span.number == number).copied()
    }

    fn get(&self, number: u16) -> Option<&[u8]> {
        let span = self.find(number)?;
        self.bytes.get(span.at..span.at + span.length)
    }

    /// Overwrites a value of the same length; `false` if there is none.
    fn patch(&mut self, number: u16, value: &[u8]) -> bool {
        match self.find(number) {
            Some(span) if span.length == value.len() => {
                let old = self.bytes.get(span.at..span.at + span.length);
                if old != Some(value) {
                    Arc::make_mut(&mut self.bytes)[span.at..span.at + span.length].copy_from_slice(value);
                    self.dirty = true;
                }
                true
            }
            _ => false,
        }
    }

    /// Indexes a system attribute buffer; one of the other byte order is turned around.
    fn parse(bytes: Arc<Vec<u8>>, tables: &SaTables) -> Result<Buffer> {
        let Some(header) = sa::header(&bytes)? else {
            return Ok(Buffer { bytes, ..Buffer::default() });
        };
        let layout = tables.layout(if header.layout == 0 { sa::LAYOUT_EMPTY } else { header.layout })?;
        let mut spans = Vec::with_capacity(layout.len());
        let (mut at, mut variable, mut lengths) = (header.size, 0, Vec::new());
        let mut classes: Vec<ByteOrderClass> = Vec::new();
        for &number in layout.iter() {
            let kind = tables.registration(number).ok_or(Corruption::new("SA layout", "attribute", u64::from(number)))?;
            let length = if kind.length > 0 {
                kind.length
            } else {
                variable += 1;
                let length = sa::variable_length(&bytes, &header, variable - 1).ok_or(Corruption::new("SA header", "size", header.size as u64))?;
                lengths.push(length);
                length
            };
            let length = usize::from(length);
            if at + length > bytes.len() {
                return Err(Corruption::new("SA buffer", "size", bytes.len() as u64).into());
            }
            spans.push(Span { number, at, length });
            classes.push(kind.class);
            at += length.next_multiple_of(8);
        }
        let mut buffer = Buffer { bytes, spans, dirty: false };
        if header.swapped {
            let bytes = Arc::make_mut(&mut buffer.bytes);
            for (span, class) in buffer.spans.iter().zip(classes) {
                class.swap(&mut bytes[span.at..span.at + span.length]);
            }
            if sa::header_size(lengths.len()) <= header.size {
                sa::write_header(bytes, header.layout, &lengths);
            }
        }
        Ok(buffer)
    }

    /// Indexes an old znode.
    fn of_znode(bytes: Arc<Vec<u8>>) -> Result<Buffer> {
        if bytes.len() < ZNODE_SIZE {
            return Err(Corruption::new("znode", "size", bytes.len() as u64).into());
        }
        let mut at = 0;
        let kinds = sa::ATTRIBUTES.iter().take(sa::LEGACY_COUNT).enumerate();
        let spans = kinds.map(|(number, kind)| {
            let length = usize::from(kind.length);
            at += length;
            Span { number: number as u16, at: at - length, length }
        });
        let spans = spans.collect();
        Ok(Buffer { bytes, spans, dirty: false })
    }
}

/// How a list of attributes is divided.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    header_size: usize,
    /// Bytes of all values.
    total: usize,
    /// The first attribute that goes to the spill block.
    spill_from: Option<usize>,
}

/// Divides attributes of the given (length, is it variable) between a bonus of `space` bytes and a spill block.
/// Without `space` all go into one buffer.
fn plan(attributes: &[(usize, bool)], space: Option<usize>) -> Plan {
    let (mut total, mut header, mut given_back, mut variable) = (0usize, sa::HEADER_MIN, 0, 0);
    let (mut could_spill_from, mut spills) = (None, false);
    for (index, &(length, is_variable)) in attributes.iter().enumerate() {
        total = total.next_multiple_of(8) + length;
        if spills {
            continue;
        }
        variable += usize::from(is_variable);
        let one_more = is_variable && variable > 1;
        let next_header = header + if one_more { 2 } else { 0 };
        let in_the_way = space.is_some_and(|space| could_spill_from.is_none() && total + next_header.next_multiple_of(8) > space - POINTER_SIZE);
        if one_more {
            if space.is_none_or(|space| next_header + total < space) {
                header = next_header;
                if could_spill_from.is_some() || in_the_way {
                    given_back += 2;
                }
            } else {
                could_spill_from.get_or_insert(index);
                spills = true;
                continue;
            }
        }
        if in_the_way {
            could_spill_from = Some(index);
        }
        spills = space.is_some_and(|space| total + header.next_multiple_of(8) > space);
    }
    if spills {
        header -= given_back;
    }
    Plan { header_size: header.next_multiple_of(8), total, spill_from: could_spill_from.filter(|_| spills) }
}

/// One attribute to be laid out.
type Item<'a> = (u16, &'a [u8]);

/// The attributes of one file.
#[derive(Debug)]
pub(in crate::zpl) struct Attributes {
    set: Arc<FileSet>,
    bonus: Buffer,
    spill: Option<Buffer>,
    /// The spill block was looked at.
    spill_loaded: bool,
    is_znode: bool,
}

impl Attributes {
    /// Those of a new object without attributes.
    pub(in crate::zpl) fn empty(set: &Arc<FileSet>) -> Self {
        Attributes { set: set.clone(), bonus: Buffer::default(), spill: None, spill_loaded: true, is_znode: false }
    }

    /// Reads the bonus of an object.
    pub(in crate::zpl) fn load(dnode: &Dnode, set: &Arc<FileSet>) -> Result<Self> {
        let bonus = dnode.bonus();
        let (bonus, is_znode) = match dnode.bonus_type() {
            ObjectType::SA => (Buffer::parse(bonus, set.tables())?, false),
            ObjectType::ZNODE => (Buffer::of_znode(bonus)?, true),
            other => bail!(Invalid, "object {} is no file (its bonus is {})", dnode.object(), other.name()),
        };
        Ok(Attributes { set: set.clone(), bonus, spill: None, spill_loaded: is_znode, is_znode })
    }

    /// What the file shares with the others of its file system.
    pub(in crate::zpl) fn set_of_files(&self) -> &FileSet {
        &self.set
    }

    fn number(&self, attribute: Attribute) -> u16 {
        self.set.tables().number(attribute)
    }

    /// The attributes are an old znode.
    pub(in crate::zpl) fn is_znode(&self) -> bool {
        self.is_znode
    }

    /// Reads the spill block, if there is one and it was not read.
    pub(in crate::zpl) fn load_spill(&mut self, dnode: &Dnode) -> Result<()> {
        if !self.spill_loaded {
            self.spill = dnode.spill()?.map(|bytes| Buffer::parse(bytes, self.set.tables())).transpose()?;
            self.spill_loaded = true;
        }
        Ok(())
    }

    /// Whether there may be more attributes in a spill block that was not read.
    pub(super) fn spill_unread(&self) -> bool {
        !self.spill_loaded
    }

    /// A value; `None` if the file has no such attribute (in what was read).
    pub(in crate::zpl) fn get(&self, attribute: Attribute) -> Option<&[u8]> {
        let number = self.number(attribute);
        self.bonus.get(number).or_else(|| self.spill.as_ref()?.get(number))
    }

    /// A value of one word.
    pub(in crate::zpl) fn word(&self, attribute: Attribute) -> Option<u64> {
        self.get(attribute)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// A value of two words: seconds and nanoseconds.
    pub(in crate::zpl) fn two_words(&self, attribute: Attribute) -> Option<(u64, u64)> {
        let (first, second) = self.get(attribute)?.split_first_chunk()?;
        Some((u64::from_le_bytes(*first), u64::from_le_bytes(*second.first_chunk()?)))
    }

    /// What follows an old znode in the bonus.
    pub(in crate::zpl) fn after_znode(&self) -> &[u8] {
        if self.is_znode { self.bonus.bytes.get(ZNODE_SIZE..).unwrap_or(&[]) } else { &[] }
    }

    /// Sets attributes; those that are not there yet are added at the end, in the order given.
    pub(in crate::zpl) fn set(&mut self, writing: &Writing<'_>, changes: &[(Attribute, &[u8])]) -> Result<()> {
        let mut structural = Vec::new();
        for (attribute, value) in changes {
            let number = self.number(*attribute);
            if self.bonus.patch(number, value) {
                continue;
            }
            if self.bonus.find(number).is_none() {
                self.load_spill(writing.dnode)?;
                if self.spill.as_mut().is_some_and(|spill| spill.patch(number, value)) {
                    continue;
                }
            }
            structural.push((number, *value));
        }
        if structural.is_empty() {
            self.flush(writing);
            return Ok(());
        }
        let old = self.buffers(writing)?;
        let mut items = items(&old);
        for (number, value) in structural {
            match items.iter_mut().find(|(other, _)| *other == number) {
                Some(item) => item.1 = value,
                None => items.push((number, value)),
            }
        }
        self.lay_out(writing, &items)
    }

    /// Adds an attribute that is not there right behind `before`: the project id has a fixed place.
    pub(super) fn insert_after(&mut self, writing: &Writing<'_>, before: Attribute, attribute: Attribute, value: &[u8]) -> Result<()> {
        let before = self.number(before);
        let old = self.buffers(writing)?;
        let mut items = items(&old);
        let at = items.iter().position(|(number, _)| *number == before).map_or(items.len(), |at| at + 1);
        items.insert(at, (self.number(attribute), value));
        self.lay_out(writing, &items)
    }

    /// Gives a new file its attributes.
    pub(in crate::zpl) fn replace_all(&mut self, writing: &Writing<'_>, values: &[(Attribute, &[u8])]) -> Result<()> {
        let items: Vec<Item<'_>> = values.iter().map(|(attribute, value)| (self.number(*attribute), *value)).collect();
        self.lay_out(writing, &items)
    }

    /// Makes the attributes an old znode, whose fields `values` are, in their order.
    pub(in crate::zpl) fn replace_znode(&mut self, writing: &Writing<'_>, values: &[&[u8]]) -> Result<()> {
        self.bonus = Buffer::of_znode(Arc::new(values.concat()))?;
        self.bonus.dirty = true;
        self.is_znode = true;
        self.flush(writing);
        Ok(())
    }

    /// Puts bytes behind an old znode.
    pub(in crate::zpl) fn set_after_znode(&mut self, writing: &Writing<'_>, bytes: &[u8]) {
        let bonus = Arc::make_mut(&mut self.bonus.bytes);
        bonus.truncate(ZNODE_SIZE);
        bonus.extend_from_slice(bytes);
        self.bonus.dirty = true;
        self.flush(writing);
    }

    fn flush(&mut self, writing: &Writing<'_>) {
        if std::mem::take(&mut self.bonus.dirty) {
            // Shared until the next change.
            writing.dnode.set_bonus(writing.tx, self.bonus.bytes.clone());
        }
        if let Some(spill) = self.spill.as_mut().filter(|spill| spill.dirty) {
            spill.dirty = false;
            writing.dnode.set_spill(writing.tx, Some(spill.bytes.to_vec()));
        }
    }

    /// All attributes, as they are now.
    fn buffers(&mut self, writing: &Writing<'_>) -> Result<Vec<Buffer>> {
        if self.is_znode {
            bail!(NotSupported, "object {}: its old attributes have no room for more", writing.dnode.object());
        }
        self.load_spill(writing.dnode)?;
        Ok([Some(&self.bonus), self.spill.as_ref()].into_iter().flatten().cloned().collect())
    }

    /// Lays attributes out in bonus and spill block, and writes both.
    fn lay_out(&mut self, writing: &Writing<'_>, items: &[Item<'_>]) -> Result<()> {
        let sizes: Vec<(usize, bool)> = items.iter().map(|(number, value)| (value.len(), is_variable(self.set.tables(), *number))).collect();
        if let Some((number, value)) = items.iter().find(|(_, value)| value.len() > usize::from(u16::MAX)) {
            bail!(TooBig, "attribute {number} of {} bytes is too long", value.len());
        }
        // A layout names attributes by their numbers in the registry.
        self.set.tables().register(self.set.objset(), writing.tx)?;
        let space = writing.dnode.bonus_bytes_max();
        // No file has so little (one with three block pointers would).
        if space < POINTER_SIZE + sa::HEADER_MIN {
            return Err(Corruption::new("dnode of a file", "room for attributes", space as u64).into());
        }
        let bonus_plan = plan(&sizes, Some(space));
        let (in_bonus, in_spill) = items.split_at(bonus_plan.spill_from.unwrap_or(items.len()));
        let spill_sizes = sizes.get(in_bonus.len()..).unwrap_or(&[]);
        let spill_plan = plan(spill_sizes, None);
        if spill_plan.total + spill_plan.header_size > sa::SPILL_MAX {
            bail!(TooBig, "object {}: its attributes are larger than {} bytes", writing.dnode.object(), sa::SPILL_MAX);
        }
        let bonus_length = match bonus_plan.spill_from {
            Some(_) => space - POINTER_SIZE,
            None => bonus_plan.header_size + bonus_plan.total,
        };
        let bonus = self.encode(writing, in_bonus, bonus_plan.header_size, bonus_length)?;
        let spill = if in_spill.is_empty() {
            None
        } else {
            let length = (spill_plan.header_size + spill_plan.total).next_multiple_of(512);
            Some(self.encode(writing, in_spill, spill_plan.header_size, length)?)
        };
        // The bonus shrinks before the spill pointer comes, and grows after it is gone.
        if spill.is_some() {
            writing.dnode.set_bonus(writing.tx, bonus.bytes.clone());
        }
        if spill.is_some() || self.spill.is_some() {
            writing.dnode.set_spill(writing.tx, spill.as_ref().map(|spill| spill.bytes.to_vec()));
        }
        if spill.is_none() {
            writing.dnode.set_bonus(writing.tx, bonus.bytes.clone());
        }
        self.bonus = bonus;
        self.spill = spill;
        self.spill_loaded = true;
        Ok(())
    }

    fn encode(&self, writing: &Writing<'_>, items: &[Item<'_>], header_size: usize, length: usize) -> Result<Buffer> {
        let tables = self.set.tables();
        let numbers: Vec<u16> = items.iter().map(|(number, _)| *number).collect();
        let lengths: Vec<u16> = items.iter().filter(|(number, _)| is_variable(tables, *number)).map(|(_, value)| value.len() as u16).collect();
        if sa::header_size(lengths.len()) != header_size {
            return Err(error!(Corrupt, "object {}: its attributes cannot be laid out", writing.dnode.object()));
        }
        let layout = tables.layout_number(self.set.objset(), writing.tx, &numbers)?;
        let mut bytes = vec![0; length];
        sa::write_header(&mut bytes, layout, &lengths);
        let (mut at, mut spans) = (header_size, Vec::with_capacity(items.len()));
        for (number, value) in items {
            bytes[at..at + value.len()].copy_from_slice(value);
            spans.push(Span { number: *number, at, length: value.len() });
            at += value.len().next_multiple_of(8);
        }
        Ok(Buffer { bytes: Arc::new(bytes), spans, dirty: false })
    }
}

/// What a change of attributes is written with.
#[derive(Clone, Copy)]
pub(in crate::zpl) struct Writing<'a> {
    pub(in crate::zpl) dnode: &'a Arc<Dnode>,
    pub(in crate::zpl) tx: &'a Tx,
}

/// The attributes of buffers, in order.
fn items(buffers: &[Buffer]) -> Vec<Item<'_>> {
    let items = buffers.iter().flat_map(|buffer| buffer.spans.iter().map(move |span| (span.number, buffer.bytes.get(span.at..span.at + span.length).unwrap_or(&[]))));
    items.collect()
}

fn is_variable(tables: &SaTables, number: u16) -> bool {
    tables.registration(number).is_some_and(|kind| kind.length == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The attributes of a plain file: 11 fixed (7 words, 4 times), links, project, ACL count, ACL of `acl` bytes.
    fn file(acl: usize) -> Vec<(usize, bool)> {
        let mut sizes = vec![(8, false); 7];
        sizes.extend([(16, false); 4]);
        sizes.extend([(8, false); 3]);
        sizes.push((acl, true));
        sizes
    }

    #[test]
    fn a_plain_file_fits_its_bonus() {
        // 8 header + 144 + 24 = 176 bytes, as zdb shows for new files.
        assert_eq!(plan(&file(24), Some(320)), Plan { header_size: 8, total: 168, spill_from: None });
    }

    #[test]
    fn a_long_list_spills() {
        let mut sizes = file(24);
        sizes.push((300, true));
        // The two lengths would need a header of 16 bytes; the list goes to the spill block and the header is 8 again.
        assert_eq!(plan(&sizes, Some(320)), Plan { header_size: 8, total: 468, spill_from: Some(15) });
        assert_eq!(plan(&sizes[15..], None), Plan { header_size: 8, total: 300, spill_from: None });
        // In the bonus of a larger dnode there is room.
        assert_eq!(plan(&sizes, Some(832)), Plan { header_size: 16, total: 468, spill_from: None });
    }
}
