//! `zdb -d` twice and more: the objects of an object set.
//!
//! # Theory
//!
//! The more often `-d` is given, the more is shown: twice a line for each object, four times what each type of object holds,
//! five times every block pointer and where data and holes are. Everything is read as it is on disk: nothing is trusted, and
//! what cannot be read is said where it would stand.

use std::sync::Arc;

use engine::dmu::{Dnode, Objset, USED_BY_GROUP, USED_BY_PROJECT, USED_BY_USER};
use engine::error::Error;
use engine::zio::Bookmark;
use ondisk::algorithm::Compression;
use ondisk::blkptr::{BlkPtr, BlockPointer};
use ondisk::dnode::{self, DNODE_SLOT_BYTES, DNODES_PER_BLOCK};
use ondisk::object_type::{ByteswapClass, ObjectType};
use ondisk::objset::ObjsetType;
use transform::compress::zstd::{Header, header_of};

use super::znode::Files;
use super::{Flags, zap};
use crate::session::{Session, say};
use crate::text::units::nice_number;

/// log2 of the bytes of a block pointer.
const POINTER_SHIFT: u32 = 7;
/// From so many `-b` on, pointers are shown with all that they say.
const WHOLE_POINTERS: u32 = 6;
/// Compression and checksum of an object that has none of its own.
const INHERITED: u8 = 0;

/// Shows objects of one object set.
pub(super) struct Objects<'a> {
    pub(super) objset: &'a Arc<Objset>,
    pub(super) flags: &'a Flags,
    /// The files, of a file system.
    pub(super) files: Option<Files>,
    with_heading: bool,
}

impl<'a> Objects<'a> {
    pub(super) fn new(objset: &'a Arc<Objset>, flags: &'a Flags) -> Objects<'a> {
        let files = (objset.objset_type() == ObjsetType::FileSystem).then(|| Files::open(objset)).flatten();
        Objects { objset, flags, files, with_heading: true }
    }

    fn pointer(&self, pointer: &BlkPtr) -> String {
        if self.flags.blocks >= WHOLE_POINTERS { pointer.to_string() } else { compact(pointer, self.flags.datasets) }
    }

    /// `-Z`: what stands before the data of a block that zstd compressed.
    fn zstd_header(&self, pointer: &BlkPtr, at: &Bookmark) -> String {
        let (kind, bytes) = match pointer.decode() {
            Ok(BlockPointer::Data(data)) if self.flags.zstd_headers && data.compression == Compression::Zstd => {
                ("NORMAL", self.objset.context().io.read_physical(pointer, at).unwrap_or_default())
            }
            Ok(BlockPointer::Embedded(data)) if self.flags.zstd_headers && data.compression == Compression::Zstd => {
                ("EMBEDDED", data.payload().to_vec())
            }
            _ => return String::new(),
        };
        let shown = |header: Header| format!(" ZSTD:size={}:version={}:level={}:{kind}", header.length, header.version, header.level);
        header_of(&bytes).map_or_else(|| format!(" ZSTD:unreadable:{kind}"), shown)
    }

    fn number(&self, number: u64) -> String {
        if self.flags.exact { number.to_string() } else { nice_number(number) }
    }

    /// All objects, and how many slots they take.
    pub(super) fn show_all(&mut self, session: &mut Session<'_>) -> Result<(), Error> {
        self.show(session, 0, &self.objset.meta())?;
        for object in [USED_BY_USER, USED_BY_GROUP, USED_BY_PROJECT] {
            if let Ok(dnode) = self.objset.hold(object) {
                self.show(session, object, &dnode)?;
            }
        }
        let (mut object, mut slots, mut last) = (0, 0, 0);
        while let Some(next) = self.objset.next_object(object)? {
            if !session.hand_over() {
                return Ok(());
            }
            object = next;
            match self.objset.hold(object) {
                Ok(dnode) => {
                    self.show(session, object, &dnode)?;
                    let taken = u64::from(dnode.info().slots);
                    slots += taken;
                    last = object + taken - 1;
                }
                Err(error) => say!(session, "{object:>10}  {error}"),
            }
        }
        say!(session, "\n    Dnode slots:\n\tTotal used:    {slots:>10}\n\tMax used:      {last:>10}");
        let empty = if last == 0 { 0.0 } else { last.saturating_sub(slots) as f64 * 100.0 / last as f64 };
        say!(session, "\tPercent empty: {empty:>10.6}\n");
        Ok(())
    }

    /// One object, by its number.
    pub(super) fn show_one(&mut self, session: &mut Session<'_>, object: u64) -> Result<(), Error> {
        let dnode = if object == 0 { self.objset.meta() } else { self.objset.hold(object)? };
        self.show(session, object, &dnode)
    }

    fn show(&mut self, session: &mut Session<'_>, object: u64, dnode: &Arc<Dnode>) -> Result<(), Error> {
        let verbosity = self.flags.datasets;
        let phys = dnode.on_disk();
        if std::mem::take(&mut self.with_heading) {
            say!(session, "\n    Object  lvl   iblk   dblk  dsize  dnsize  lsize   %full  type");
        }
        self.show_line(session, object, &phys);
        if verbosity >= 4 {
            if phys.bonus_type != ObjectType::NONE {
                say!(session, "{:45}{:>5}  {:>6}  {}", "", self.number(phys.bonus.len() as u64), "bonus", phys.bonus_type);
            }
            let flag = |bit: u8, word: &'static str| if phys.flags & bit != 0 { word } else { "" };
            say!(
                session,
                "\tdnode flags: {}{}{}{}",
                flag(dnode::FLAG_USED_BYTES, "USED_BYTES "),
                flag(dnode::FLAG_USER_ACCOUNTED, "USERUSED_ACCOUNTED "),
                flag(dnode::FLAG_USER_OBJECTS_ACCOUNTED, "USEROBJUSED_ACCOUNTED "),
                flag(dnode::FLAG_SPILL, "SPILL_BLKPTR")
            );
            say!(session, "\tdnode maxblkid: {}", phys.max_block);
            self.show_contents(session, object, dnode, &phys);
            self.with_heading = true;
        }
        if verbosity >= 5 {
            if let Some(spill) = phys.spill.as_ref().filter(|_| phys.flags & dnode::FLAG_SPILL != 0) {
                say!(session, "\nSpill block: {}", self.pointer(spill));
            }
            self.show_blocks(session, object, &phys);
            self.show_segments(session, dnode, &phys)?;
        }
        Ok(())
    }

    fn show_line(&self, session: &mut Session<'_>, object: u64, phys: &dnode::Dnode) {
        let length = phys.block_bytes.saturating_mul(phys.max_block + 1);
        let fill: u64 = phys.pointers.iter().map(BlkPtr::fill).sum();
        let per_block = if object == 0 { DNODES_PER_BLOCK } else { 1 };
        let full = 100.0 * (fill.saturating_mul(phys.block_bytes) / per_block) as f64 / length.max(1) as f64;
        let mut aux = String::new();
        if phys.checksum != INHERITED {
            let name = ondisk::algorithm::ChecksumAlgorithm::from_number(phys.checksum).map_or("UNKNOWN", |known| known.name());
            aux.push_str(&format!(" (K={name})"));
        }
        if phys.compression != INHERITED {
            let name = ondisk::algorithm::Compression::from_number(phys.compression).map_or("UNKNOWN", |known| known.name());
            aux.push_str(&format!(" (Z={name})"));
        }
        // Whole sectors, as far as OpenZFS counts.
        let allocated = (phys.used_bytes() + 256) >> 9 << 9;
        say!(
            session,
            "{:>10}  {:>3}  {:>5}  {:>5}  {:>5}  {:>6}  {:>5}  {full:>6.2}  {}{aux}",
            object.cast_signed(),
            phys.levels,
            self.number(1 << phys.indirect_shift),
            self.number(phys.block_bytes),
            self.number(allocated),
            self.number(u64::from(phys.slots) * DNODE_SLOT_BYTES as u64),
            self.number(length),
            phys.object_type
        );
    }

    /// What the bonus and the object hold, for the types that have something to show.
    fn show_contents(&mut self, session: &mut Session<'_>, object: u64, dnode: &Arc<Dnode>, phys: &dnode::Dnode) {
        let is_file = phys.bonus_type == ObjectType::SA || phys.bonus_type == ObjectType::ZNODE;
        if let Some(files) = self.files.as_mut().filter(|_| is_file) {
            files.show(session, object, self.flags.datasets, self.flags.exact);
        }
        let shown = match phys.object_type {
            ObjectType::DIRECTORY_CONTENTS => zap::show_directory(session, self.objset, dnode, object),
            kind if kind.byteswap() == Some(ByteswapClass::Zap) => zap::show(session, self.objset, dnode, object),
            _ => Ok(()),
        };
        if let Err(error) = shown {
            say!(session, "\t\t({error})");
        }
    }

    fn show_blocks(&self, session: &mut Session<'_>, object: u64, phys: &dnode::Dnode) {
        say!(session, "Indirect blocks:");
        for (index, pointer) in phys.pointers.iter().enumerate() {
            let at = Bookmark { objset: self.objset.dataset(), object, level: phys.levels.cast_signed() - 1, block: index as u64 };
            self.show_pointer(session, phys, pointer, &at);
        }
        say!(session, "");
    }

    fn show_pointer(&self, session: &mut Session<'_>, phys: &dnode::Dnode, pointer: &BlkPtr, at: &Bookmark) {
        if pointer.birth() == 0 {
            return;
        }
        let per_block_shift = u32::from(phys.indirect_shift).saturating_sub(POINTER_SHIFT);
        let level = u32::try_from(at.level).unwrap_or(0);
        let offset = at.block.checked_shl(per_block_shift * level).unwrap_or(0).wrapping_mul(phys.block_bytes);
        let mut line = format!("{offset:>16x} ");
        for other in (-1..phys.levels.cast_signed()).rev() {
            if other == at.level { line.push_str(&format!("L{:x}", at.level)) } else { line.push(' ') }
        }
        say!(session, "{line}{}{}", self.pointer(pointer), self.zstd_header(pointer, at));
        if pointer.level() == 0 || at.level <= 0 || pointer.is_hole() {
            return;
        }
        match self.objset.context().cache.read_pointers(pointer, at) {
            Ok(pointers) => {
                for (index, below) in pointers.kept().iter().enumerate() {
                    let block = (at.block << per_block_shift) + index as u64;
                    self.show_pointer(session, phys, below, &Bookmark { level: at.level - 1, block, ..*at });
                }
            }
            Err(error) => say!(session, "{offset:>16x}: {error}"),
        }
    }

    /// Where there is data: ranges of blocks; of the meta-dnode ranges of objects.
    fn show_segments(&self, session: &mut Session<'_>, dnode: &Arc<Dnode>, phys: &dnode::Dnode) -> Result<(), Error> {
        let mut segments: Vec<(u64, u64)> = Vec::new();
        let mut add = |start: u64, end: u64| match segments.last_mut() {
            Some((_, last)) if *last == start => *last = end,
            _ => segments.push((start, end)),
        };
        if phys.object_type == ObjectType::DNODE {
            let mut object = 0;
            while let Some(next) = self.objset.next_object(object)? {
                object = next;
                let slots = self.objset.hold(object).map_or(1, |dnode| u64::from(dnode.info().slots));
                add(object * DNODE_SLOT_BYTES as u64, (object + slots) * DNODE_SLOT_BYTES as u64);
            }
        } else {
            let mut block = 0;
            while let Some(data) = dnode.next_data_block(block)? {
                let hole = dnode.next_hole_block(data)?.min(phys.max_block + 1).max(data + 1);
                add(data * phys.block_bytes, hole * phys.block_bytes);
                if hole > phys.max_block {
                    break;
                }
                block = hole;
            }
        }
        for (start, end) in segments {
            say!(session, "\t\tsegment [{start:016x}, {end:016x}) size {:>5}", self.number(end - start));
        }
        Ok(())
    }
}

/// A block pointer in few words.
pub(super) fn compact(pointer: &BlkPtr, verbosity: u32) -> String {
    if pointer.is_embedded() {
        let (logical, payload) = pointer.embedded_sizes();
        return format!("EMBEDDED et={} {logical:x}L/{payload:x}P B={}", pointer.embedded_kind(), pointer.logical_birth());
    }
    let mut text = String::new();
    let copies = if verbosity > 5 { pointer.dvas().count().max(1) } else { 1 };
    for index in 0..copies {
        match pointer.dvas().nth(index) {
            Some(dva) => {
                let shown = dva.to_string();
                text.push_str(shown.trim_start_matches('<').trim_end_matches('>'));
                text.push(' ');
            }
            None => text.push_str("0:0:0 "),
        }
    }
    if pointer.is_hole() {
        return format!("{text}{:x}L B={}", pointer.logical_size(), pointer.logical_birth());
    }
    let sum = pointer.checksum_words().map(|word| format!("{word:016x}")).join(":");
    format!(
        "{text}{:x}L/{:x}P F={} B={}/{} cksum={sum}",
        pointer.logical_size(),
        pointer.physical_size(),
        pointer.fill(),
        pointer.logical_birth(),
        pointer.physical_birth()
    )
}
