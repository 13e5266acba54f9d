//! Block pointers.
//!
//! # Theory
//! A block pointer says everything about a block: where its copies are, how large it is before and after compression,
//! how it was compressed and how to verify it, what kind of object it belongs to, and when it was born. As the checksum of
//! a block is in the pointer to it, and pointers are in blocks, the tree below an uberblock verifies itself.
//!
//! The raw form, [`BlkPtr`], is 128 untrusted bytes; a few accessors look at it directly. [`BlkPtr::decode`] checks it and
//! makes a [`BlockPointer`], which is one of four things:
//!
//! - a [`Hole`]: nothing was ever written, or zeros were. Where the pool has `hole_birth` it remembers when that was;
//! - a [`DataPointer`]: one to three copies elsewhere (each may be a gang block, which its DVA says);
//! - an [`EmbeddedPointer`]: up to 112 bytes of contents in the pointer itself;
//! - redacted: contents that were left out of a send stream on purpose.
//!
//! # On disk
//! ```text
//!        64      56      48      40      32      24      16      8       0
//!  0..5 |            three DVAs of two words each (see `dva`)            |
//!     6 |BDX| lvl |  type | checksum |E| comp |     PSIZE     |  LSIZE    |
//!     7 |R|                          reserved                           |
//!     8 |                            reserved                           |
//!     9 |             physical birth txg, zero if the same as the logical |
//!    10 |                        logical birth txg                      |
//!    11 |                           fill count                          |
//! 12..15|                        256-bit checksum                       |
//! ```
//! `B`: written by a little-endian machine. `D`: in the dedup table. `X`: encrypted, authenticated, or (above level 0) a
//! checksum of MACs. `E`: embedded; then all words but 6 and 10 are contents, LSIZE (25 bits) and PSIZE (7 bits) are in
//! bytes, and the checksum field says what the contents are. `R`: moved by a rewrite at its physical birth.
//! In an encrypted pointer the third DVA is salt and initialization vector, the upper half of the fill count is the rest
//! of the vector, and the last two checksum words are the MAC.

mod protection;

use std::fmt;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::algorithm::{ChecksumAlgorithm, Compression};
use crate::bits;
use crate::corruption::Corruption;
use crate::dva::{Dva, RawDva, SECTOR_SHIFT};
use crate::feature::Feature;
use crate::object_type::ObjectType;

pub use protection::{AUTHENTICATED_BYTES, Secrets};

#[cfg(test)]
mod tests;

/// Bytes of a block pointer.
pub const BLKPTR_BYTES: usize = 128;
/// The largest block there can be: 16 MiB.
#[doc(alias = "SPA_MAXBLOCKSIZE")]
pub const BLOCK_BYTES_MAX: u64 = 16 << 20;
/// Blocks that are larger need a feature.
const OLD_BLOCK_BYTES_MAX: u64 = 128 << 10;
/// The most copies of a block.
pub const COPIES_MAX: usize = 3;
/// The most bytes of contents in a pointer.
#[doc(alias = "BPE_PAYLOAD_SIZE")]
pub const EMBEDDED_BYTES_MAX: usize = 112;

const EMBEDDED_DATA: u8 = 0;
const EMBEDDED_RESERVED: u8 = 1;
const EMBEDDED_REDACTED: u8 = 2;

/// Where the contents of an embedded pointer are: around the property word and the logical birth.
const PAYLOAD_RANGES: [std::ops::Range<usize>; 3] = [0..48, 56..80, 88..128];

/// A block pointer as it is on disk, little-endian. Not trusted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlkPtr {
    #[doc(alias = "blk_dva")]
    dvas: [RawDva; COPIES_MAX],
    #[doc(alias = "blk_prop")]
    properties: U64,
    #[doc(alias = "blk_prop2")]
    more_properties: U64,
    #[doc(alias = "blk_pad")]
    reserved: U64,
    #[doc(alias = "blk_birth_word")]
    physical_birth: U64,
    logical_birth: U64,
    #[doc(alias = "blk_fill")]
    fill: U64,
    #[doc(alias = "blk_cksum")]
    checksum: [U64; 4],
}

const _: () = {
    assert!(size_of::<BlkPtr>() == BLKPTR_BYTES);
    assert!(std::mem::offset_of!(BlkPtr, properties) == 0x30);
    assert!(std::mem::offset_of!(BlkPtr, physical_birth) == 0x48);
    assert!(std::mem::offset_of!(BlkPtr, logical_birth) == 0x50);
    assert!(std::mem::offset_of!(BlkPtr, fill) == 0x58);
    assert!(std::mem::offset_of!(BlkPtr, checksum) == 0x60);
};

/// A block pointer that makes sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockPointer {
    /// Reads as zeros.
    Hole(Hole),
    /// Contents are elsewhere.
    Data(DataPointer),
    /// Contents are in the pointer.
    Embedded(EmbeddedPointer),
    /// Contents were left out of a send stream.
    Redacted(Hole),
}

/// A pointer to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// Type of the object.
    pub object_type: ObjectType,
    /// Level in the tree of the object.
    pub level: u8,
    /// Bytes that the hole stands for. Of a hole that was never written this means nothing.
    pub logical_size: u64,
    /// When it was punched; 0 when it was never written or the pool does not remember.
    pub logical_birth: u64,
}

/// A pointer to a block with copies elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataPointer {
    dvas: [Dva; COPIES_MAX],
    copies: u8,
    /// Type of the object.
    pub object_type: ObjectType,
    /// Level in the tree of the object.
    pub level: u8,
    /// Bytes of contents (LSIZE).
    #[doc(alias = "lsize")]
    pub logical_size: u64,
    /// Bytes after compression (PSIZE).
    #[doc(alias = "psize")]
    pub physical_size: u64,
    /// How it was made smaller.
    pub compression: Compression,
    /// How it is verified.
    pub checksum_algorithm: ChecksumAlgorithm,
    /// The checksum; of an encrypted block, two words of checksum and two of MAC.
    pub checksum: [u64; 4],
    /// Encryption, if any.
    pub protection: Protection,
    /// In the dedup table.
    pub dedup: bool,
    /// Moved by a rewrite at its physical birth.
    pub rewritten: bool,
    /// Contents are little-endian.
    pub little_endian: bool,
    /// When the contents came to be.
    pub logical_birth: u64,
    /// When the copies were written; the same as the logical birth for nearly all blocks.
    pub physical_birth: u64,
    /// How many blocks with contents are at level 0 below (of dnodes: how many dnodes).
    pub fill: u64,
}

/// How the encryption of a dataset protects a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Nothing.
    None,
    /// Contents are encrypted. The MAC is in the last two checksum words.
    Encrypted {
        /// Salt from which the key of the block is made.
        salt: u64,
        /// First 64 bits of the initialization vector.
        iv: u64,
        /// Last 32 bits of the initialization vector.
        iv_tail: u32,
    },
    /// Contents are plain; the last two checksum words are a MAC.
    Authenticated,
    /// Above level 0: the last two checksum words are a checksum of the MACs below.
    IndirectMac,
}

/// A pointer that holds its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedPointer {
    /// Type of the object.
    pub object_type: ObjectType,
    /// Level in the tree of the object.
    pub level: u8,
    /// How the contents were made smaller.
    pub compression: Compression,
    /// Bytes of contents.
    pub logical_size: u64,
    /// When the contents came to be.
    pub logical_birth: u64,
    /// Contents are little-endian.
    pub little_endian: bool,
    payload: [u8; EMBEDDED_BYTES_MAX],
    payload_bytes: u8,
}

impl BlkPtr {
    /// The hole that was never written: all zeros.
    pub const ZERO: BlkPtr = BlkPtr {
        dvas: [RawDva { location: U64::ZERO, offset: U64::ZERO }; COPIES_MAX],
        properties: U64::ZERO,
        more_properties: U64::ZERO,
        reserved: U64::ZERO,
        physical_birth: U64::ZERO,
        logical_birth: U64::ZERO,
        fill: U64::ZERO,
        checksum: [U64::ZERO; 4],
    };

    /// The pointer in exactly 128 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        BlkPtr::read_from_bytes(bytes).ok()
    }

    /// The bytes of the pointer.
    pub fn as_bytes(&self) -> &[u8; BLKPTR_BYTES] {
        zerocopy::transmute_ref!(self)
    }

    /// The pointers of an indirect block; a tail that is no whole pointer is left out.
    pub fn slice_of(bytes: &[u8]) -> &[BlkPtr] {
        let whole = bytes.len() - bytes.len() % BLKPTR_BYTES;
        <[BlkPtr]>::ref_from_bytes(bytes.get(..whole).unwrap_or_default()).unwrap_or_default()
    }

    fn bit(&self, at: u32) -> bool {
        bits::get(self.properties.get(), at, 1) != 0
    }

    /// The contents are in the pointer (or it is redacted).
    pub fn is_embedded(&self) -> bool {
        self.bit(39)
    }

    /// The features that a program has to know to read the block.
    pub fn features(&self) -> impl Iterator<Item = Feature> {
        let word = self.properties.get();
        let large = (self.logical_size() > OLD_BLOCK_BYTES_MAX).then_some(Feature::LargeBlocks);
        let algorithm = ChecksumAlgorithm::from_number(bits::get(word, 40, 8) as u8).filter(|_| !self.is_embedded());
        let checksum = algorithm.and_then(ChecksumAlgorithm::feature);
        let is_zstd = bits::get(word, 32, 7) == Compression::Zstd as u64;
        [large, checksum, is_zstd.then_some(Feature::ZstdCompress)].into_iter().flatten()
    }

    /// The four words of the checksum, as they are stored.
    pub fn checksum_words(&self) -> [u64; 4] {
        self.checksum.map(|word| word.get())
    }

    /// The contents can be told from what else may be in their place.
    pub fn has_checksum(&self) -> bool {
        let algorithm = ChecksumAlgorithm::from_number(bits::get(self.properties.get(), 40, 8) as u8);
        self.is_embedded() || !matches!(algorithm, Some(ChecksumAlgorithm::Off | ChecksumAlgorithm::NoParity))
    }

    /// The number of the compression, known or not.
    pub fn compression_number(&self) -> u8 {
        bits::get(self.properties.get(), 32, 7) as u8
    }

    /// Of an embedded pointer: bytes of contents, and bytes that it holds for them.
    pub fn embedded_sizes(&self) -> (u64, u64) {
        let word = self.properties.get();
        (bits::get_scaled(word, 0, 25, 0, 1), bits::get_scaled(word, 25, 7, 0, 1))
    }

    /// The kind of contents of an embedded pointer.
    pub fn embedded_kind(&self) -> u8 {
        bits::get(self.properties.get(), 40, 8) as u8
    }

    /// The contents were left out of a send stream.
    pub fn is_redacted(&self) -> bool {
        self.is_embedded() && self.embedded_kind() == EMBEDDED_REDACTED
    }

    /// There are no contents: reads as zeros.
    pub fn is_hole(&self) -> bool {
        !self.is_embedded() && self.dvas[0].is_empty()
    }

    /// The first copy is a gang block.
    pub fn is_gang(&self) -> bool {
        !self.is_embedded() && self.dvas[0].decode().gang
    }

    /// Level in the tree of the object.
    pub fn level(&self) -> u8 {
        bits::get(self.properties.get(), 56, 5) as u8
    }

    /// Type of the object; may be no valid one.
    pub fn object_type(&self) -> ObjectType {
        ObjectType(bits::get(self.properties.get(), 48, 8) as u8)
    }

    /// The block is metadata: an indirect block, or of a type that is metadata.
    pub fn is_metadata(&self) -> bool {
        self.level() > 0 || self.object_type().is_metadata()
    }

    /// Bytes of contents (LSIZE).
    #[doc(alias = "BP_GET_LSIZE")]
    pub fn logical_size(&self) -> u64 {
        let word = self.properties.get();
        match self.is_embedded() {
            false => bits::get_scaled(word, 0, 16, SECTOR_SHIFT, 1),
            true if self.embedded_kind() == EMBEDDED_DATA => bits::get_scaled(word, 0, 25, 0, 1),
            true => 0,
        }
    }

    /// Bytes after compression (PSIZE); 0 for a hole and for an embedded pointer, which take none on disk.
    #[doc(alias = "BP_GET_PSIZE")]
    pub fn physical_size(&self) -> u64 {
        if self.is_embedded() || self.is_hole() {
            return 0;
        }
        bits::get_scaled(self.properties.get(), 16, 16, SECTOR_SHIFT, 1)
    }

    /// Bytes allocated for all copies (ASIZE).
    #[doc(alias = "BP_GET_ASIZE")]
    pub fn allocated_size(&self) -> u64 {
        self.raw_dvas().iter().map(|dva| dva.decode().allocated).sum()
    }

    /// The DVAs that are addresses: of an encrypted pointer the third is not.
    fn raw_dvas(&self) -> &[RawDva] {
        let places = if self.is_embedded() {
            0
        } else if self.is_encrypted() {
            2
        } else {
            COPIES_MAX
        };
        self.dvas.get(..places).unwrap_or_default()
    }

    /// The copies, without the checks of [`BlkPtr::decode`].
    pub fn dvas(&self) -> impl Iterator<Item = Dva> + '_ {
        self.raw_dvas().iter().filter(|dva| dva.is_valid()).map(RawDva::decode)
    }

    /// The first copy, which together with the physical birth identifies the block.
    pub fn first_dva(&self) -> Option<Dva> {
        self.dvas().next()
    }

    /// Contents are encrypted, or authenticated, or their MACs are checksummed.
    pub fn uses_encryption(&self) -> bool {
        self.bit(61)
    }

    /// Contents are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.uses_encryption() && self.level() == 0 && self.object_type().is_encrypted()
    }

    /// The block is in the dedup table.
    pub fn is_dedup(&self) -> bool {
        !self.is_embedded() && self.bit(62)
    }

    /// Contents are little-endian.
    pub fn is_little_endian(&self) -> bool {
        self.bit(63)
    }

    /// Moved by a rewrite at its physical birth.
    pub fn is_rewritten(&self) -> bool {
        !self.is_embedded() && bits::get(self.more_properties.get(), 63, 1) != 0
    }

    /// When the contents came to be.
    pub fn logical_birth(&self) -> u64 {
        self.logical_birth.get()
    }

    /// When the copies were written; 0 for an embedded pointer.
    pub fn physical_birth(&self) -> u64 {
        match self.physical_birth.get() {
            _ if self.is_embedded() => 0,
            0 => self.logical_birth(),
            physical => physical,
        }
    }

    /// When the space was allocated: what snapshots and frees compare.
    #[doc(alias = "BP_GET_BIRTH")]
    pub fn birth(&self) -> u64 {
        if self.is_rewritten() { self.physical_birth() } else { self.logical_birth() }
    }

    /// How many blocks with contents are below; of an embedded pointer one.
    #[doc(alias = "BP_GET_FILL")]
    pub fn fill(&self) -> u64 {
        if self.is_embedded() {
            1
        } else if self.is_encrypted() {
            bits::get(self.fill.get(), 0, 32)
        } else {
            self.fill.get()
        }
    }

    /// Sets the fill count. An embedded pointer has none, as its words are contents: it counts as one whatever is set.
    pub fn set_fill(&mut self, fill: u64) {
        if self.is_embedded() {
            return;
        }
        self.fill = if self.is_encrypted() { bits::set(self.fill.get(), 0, 32, fill).into() } else { fill.into() };
    }

    /// The same block as a part of something that comes to be in `txg`: the copies keep the birth that they have.
    #[must_use]
    #[doc(alias = "BP_SET_BIRTH")]
    pub fn reborn(&self, txg: u64) -> BlkPtr {
        let mut pointer = *self;
        if !self.is_embedded() {
            let physical = self.physical_birth();
            pointer.physical_birth = if physical == txg { 0 } else { physical }.into();
            pointer.more_properties = bits::set(self.more_properties.get(), 63, 1, 0).into();
        }
        pointer.logical_birth = txg.into();
        pointer
    }

    /// Both point at the same copies, born at the same time.
    #[doc(alias = "BP_EQUAL")]
    pub fn same_block(&self, other: &BlkPtr) -> bool {
        self.physical_birth() == other.physical_birth()
            && self.logical_birth() == other.logical_birth()
            && self.dvas == other.dvas
    }

    /// Checks everything that can be checked without the pool.
    ///
    /// # Errors
    /// Names the first field that cannot be: an unknown type, checksum or compression, a size beyond 16 MiB, no copy.
    pub fn decode(&self) -> Result<BlockPointer, Corruption> {
        let word = self.properties.get();
        let bad = |field, found| Err(Corruption::new("block pointer", field, found));
        let object_type = self.object_type();
        if !object_type.is_valid() {
            return bad("type", object_type.0.into());
        }
        let Some(compression) = Compression::from_number(bits::get(word, 32, 7) as u8) else {
            return bad("compression", bits::get(word, 32, 7));
        };
        let logical_size = self.logical_size();
        if logical_size > BLOCK_BYTES_MAX {
            return bad("logical size", logical_size);
        }
        let level = self.level();
        let hole = Hole { object_type, level, logical_size, logical_birth: self.logical_birth() };
        if self.is_hole() {
            return Ok(BlockPointer::Hole(hole));
        }
        if self.is_embedded() {
            return match self.embedded_kind() {
                EMBEDDED_DATA => self.decode_embedded(compression).map(BlockPointer::Embedded),
                EMBEDDED_REDACTED => {
                    let logical_size = bits::get_scaled(word, 0, 25, 0, 1);
                    Ok(BlockPointer::Redacted(Hole { logical_size, ..hole }))
                }
                EMBEDDED_RESERVED => bad("kind of embedded contents (reserved)", EMBEDDED_RESERVED.into()),
                unknown => bad("kind of embedded contents", unknown.into()),
            };
        }
        self.decode_data(compression).map(BlockPointer::Data)
    }

    fn decode_embedded(&self, compression: Compression) -> Result<EmbeddedPointer, Corruption> {
        let payload_bytes = bits::get_scaled(self.properties.get(), 25, 7, 0, 1);
        if payload_bytes > EMBEDDED_BYTES_MAX as u64 {
            return Err(Corruption::new("block pointer", "size of embedded contents", payload_bytes));
        }
        let mut payload = [0; EMBEDDED_BYTES_MAX];
        let places = PAYLOAD_RANGES.iter().filter_map(|range| self.as_bytes().get(range.clone())).flatten();
        payload.iter_mut().zip(places).for_each(|(to, &from)| *to = from);
        Ok(EmbeddedPointer {
            object_type: self.object_type(),
            level: self.level(),
            compression,
            logical_size: self.logical_size(),
            logical_birth: self.logical_birth(),
            little_endian: self.is_little_endian(),
            payload,
            payload_bytes: payload_bytes as u8,
        })
    }

    fn decode_data(&self, compression: Compression) -> Result<DataPointer, Corruption> {
        let word = self.properties.get();
        let bad = |field, found| Err(Corruption::new("block pointer", field, found));
        let Some(checksum_algorithm) = ChecksumAlgorithm::from_number(bits::get(word, 40, 8) as u8) else {
            return bad("checksum", bits::get(word, 40, 8));
        };
        let physical_size = self.physical_size();
        if physical_size > BLOCK_BYTES_MAX {
            return bad("physical size", physical_size);
        }
        let mut dvas = [Dva::default(); COPIES_MAX];
        let mut copies = 0;
        for (place, dva) in dvas.iter_mut().zip(self.raw_dvas().iter().take_while(|dva| dva.is_valid())) {
            *place = dva.decode();
            copies += 1;
        }
        if copies == 0 {
            return bad("first DVA", self.dvas[0].location.get());
        }
        let protection = match (self.uses_encryption(), self.level() > 0, self.object_type().is_encrypted()) {
            (false, ..) => Protection::None,
            (true, true, _) => Protection::IndirectMac,
            (true, false, false) => Protection::Authenticated,
            (true, false, true) => Protection::Encrypted {
                salt: self.dvas[2].location.get(),
                iv: self.dvas[2].offset.get(),
                iv_tail: bits::get(self.fill.get(), 32, 32) as u32,
            },
        };
        Ok(DataPointer {
            dvas,
            copies,
            object_type: self.object_type(),
            level: self.level(),
            logical_size: self.logical_size(),
            physical_size,
            compression,
            checksum_algorithm,
            checksum: self.checksum.map(U64::get),
            protection,
            dedup: self.is_dedup(),
            rewritten: self.is_rewritten(),
            little_endian: self.is_little_endian(),
            logical_birth: self.logical_birth(),
            physical_birth: self.physical_birth(),
            fill: self.fill(),
        })
    }
}

fn properties(object_type: ObjectType, level: u8, compression: Compression) -> u64 {
    let word = bits::set(0, 56, 5, level.into());
    bits::set(bits::set(word, 48, 8, object_type.0.into()), 32, 7, compression.number().into())
}

impl Hole {
    /// The pointer. With a birth of 0 it is all zeros.
    pub fn encode(&self) -> BlkPtr {
        if self.logical_birth == 0 {
            return BlkPtr::ZERO;
        }
        let word = properties(self.object_type, self.level, Compression::Inherit);
        BlkPtr {
            properties: bits::set_scaled(word, 0, 16, SECTOR_SHIFT, 1, self.logical_size).into(),
            logical_birth: self.logical_birth.into(),
            ..BlkPtr::ZERO
        }
    }
}

impl DataPointer {
    /// A pointer to plain contents, born in `birth`, with a fill count of one and no checksum yet.
    ///
    /// # Panics
    /// When there is no copy, or more than three.
    pub fn new(dvas: &[Dva], object_type: ObjectType, level: u8, birth: u64) -> Self {
        let mut pointer = DataPointer {
            dvas: [Dva::default(); COPIES_MAX],
            copies: 0,
            object_type,
            level,
            logical_size: 1 << SECTOR_SHIFT,
            physical_size: 1 << SECTOR_SHIFT,
            compression: Compression::Off,
            checksum_algorithm: ChecksumAlgorithm::Fletcher4,
            checksum: [0; 4],
            protection: Protection::None,
            dedup: false,
            rewritten: false,
            little_endian: true,
            logical_birth: birth,
            physical_birth: birth,
            fill: 1,
        };
        pointer.set_dvas(dvas);
        pointer
    }

    /// The copies, one to three.
    pub fn dvas(&self) -> &[Dva] {
        self.dvas.get(..usize::from(self.copies)).unwrap_or_default()
    }

    /// Gives the block other places.
    ///
    /// # Panics
    /// When there is no copy, or more than three.
    pub fn set_dvas(&mut self, dvas: &[Dva]) {
        assert!((1..=COPIES_MAX).contains(&dvas.len()), "a block has one to three copies, not {}", dvas.len());
        self.dvas = [Dva::default(); COPIES_MAX];
        self.dvas.iter_mut().zip(dvas).for_each(|(to, from)| *to = *from);
        self.copies = dvas.len() as u8;
    }

    /// The contents can be told from what else may be in their place.
    pub fn has_checksum(&self) -> bool {
        !matches!(self.checksum_algorithm, ChecksumAlgorithm::Off | ChecksumAlgorithm::NoParity)
    }

    /// The first copy is a gang block.
    pub fn is_gang(&self) -> bool {
        self.dvas[0].gang
    }

    /// The pointer.
    ///
    /// # Panics
    /// When sizes are no whole sectors or an encrypted block has three copies: programmer's errors.
    pub fn encode(&self) -> BlkPtr {
        let mut word = properties(self.object_type, self.level, self.compression);
        word = bits::set_scaled(word, 0, 16, SECTOR_SHIFT, 1, self.logical_size);
        word = bits::set_scaled(word, 16, 16, SECTOR_SHIFT, 1, self.physical_size);
        word = bits::set(word, 40, 8, self.checksum_algorithm.number().into());
        word = bits::set(word, 61, 1, (self.protection != Protection::None).into());
        word = bits::set(word, 62, 1, self.dedup.into());
        word = bits::set(word, 63, 1, self.little_endian.into());
        let mut raw = BlkPtr {
            properties: word.into(),
            more_properties: (u64::from(self.rewritten) << 63).into(),
            logical_birth: self.logical_birth.into(),
            fill: self.fill.into(),
            checksum: self.checksum.map(U64::new),
            ..BlkPtr::ZERO
        };
        if self.physical_birth != self.logical_birth {
            raw.physical_birth = self.physical_birth.into();
        }
        raw.dvas.iter_mut().zip(self.dvas()).for_each(|(to, dva)| *to = dva.encode());
        if let Protection::Encrypted { salt, iv, iv_tail } = self.protection {
            assert!(self.copies < 3, "an encrypted block has at most two copies");
            raw.dvas[2] = RawDva { location: salt.into(), offset: iv.into() };
            raw.fill = bits::set(bits::set(0, 0, 32, self.fill), 32, 32, iv_tail.into()).into();
        }
        raw
    }
}

impl EmbeddedPointer {
    /// A pointer that holds `payload`, which is the contents after `compression`.
    ///
    /// # Panics
    /// When the payload is empty or longer than 112 bytes.
    pub fn new(
        payload: &[u8],
        compression: Compression,
        logical_size: u64,
        object_type: ObjectType,
        level: u8,
        birth: u64,
    ) -> Self {
        assert!((1..=EMBEDDED_BYTES_MAX).contains(&payload.len()), "{} bytes cannot be embedded", payload.len());
        let mut padded = [0; EMBEDDED_BYTES_MAX];
        padded.iter_mut().zip(payload).for_each(|(to, &from)| *to = from);
        EmbeddedPointer {
            object_type,
            level,
            compression,
            logical_size,
            logical_birth: birth,
            little_endian: true,
            payload: padded,
            payload_bytes: payload.len() as u8,
        }
    }

    /// The contents, still compressed.
    pub fn payload(&self) -> &[u8] {
        self.payload.get(..usize::from(self.payload_bytes)).unwrap_or_default()
    }

    /// The pointer.
    pub fn encode(&self) -> BlkPtr {
        let mut word = properties(self.object_type, self.level, self.compression);
        word = bits::set(word, 39, 1, 1);
        word = bits::set(word, 40, 8, EMBEDDED_DATA.into());
        word = bits::set_scaled(word, 0, 25, 0, 1, self.logical_size);
        word = bits::set_scaled(word, 25, 7, 0, 1, self.payload_bytes.into());
        word = bits::set(word, 63, 1, self.little_endian.into());
        let mut bytes = [0; BLKPTR_BYTES];
        let mut rest = self.payload.iter();
        for range in PAYLOAD_RANGES {
            if let Some(place) = bytes.get_mut(range) {
                place.iter_mut().zip(&mut rest).for_each(|(to, &from)| *to = from);
            }
        }
        let mut raw: BlkPtr = zerocopy::transmute!(bytes);
        raw.properties = word.into();
        raw.logical_birth = self.logical_birth.into();
        raw
    }
}

impl BlockPointer {
    /// The raw form.
    pub fn encode(&self) -> BlkPtr {
        match self {
            BlockPointer::Hole(hole) => hole.encode(),
            BlockPointer::Data(data) => data.encode(),
            BlockPointer::Embedded(embedded) => embedded.encode(),
            BlockPointer::Redacted(hole) => BlkPtr::redacted(hole),
        }
    }
}

impl BlkPtr {
    /// A pointer to contents that were left out of a send stream.
    pub fn redacted(hole: &Hole) -> BlkPtr {
        let mut word = properties(hole.object_type, hole.level, Compression::Inherit);
        word = bits::set(bits::set(word, 39, 1, 1), 40, 8, EMBEDDED_REDACTED.into());
        word = bits::set_scaled(word, 0, 25, 0, 1, hole.logical_size);
        BlkPtr { properties: word.into(), logical_birth: hole.logical_birth.into(), ..BlkPtr::ZERO }
    }
}

impl fmt::Display for BlkPtr {
    /// In one line, as `zdb` prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (level, object_type) = (self.level(), self.object_type());
        let size = self.logical_size();
        let compression = Compression::from_number(bits::get(self.properties.get(), 32, 7) as u8);
        let compression = compression.map_or("UNKNOWN", Compression::name);
        if self.is_hole() {
            return write!(f, "HOLE [L{level} {object_type}] size={size:x}L birth={}L", self.logical_birth());
        }
        if self.is_embedded() {
            let (size, payload) = self.embedded_sizes();
            let kind = self.embedded_kind();
            return write!(
                f,
                "EMBEDDED [L{level} {object_type}] et={kind} {compression} size={size:x}L/{payload:x}P birth={}L",
                self.logical_birth()
            );
        }
        for (index, dva) in self.dvas().enumerate() {
            write!(f, "DVA[{index}]={dva} ")?;
        }
        let encryption = match (self.uses_encryption(), level > 0, object_type.is_encrypted()) {
            (false, ..) => "unencrypted",
            (true, true, _) => "indirect-MAC",
            (true, false, false) => "authenticated",
            (true, false, true) => {
                let (salt, iv) = (self.dvas[2].location.get(), self.dvas[2].offset.get());
                write!(f, "salt={salt:x} iv={iv:x}:{:x} ", bits::get(self.fill.get(), 32, 32))?;
                "encrypted"
            }
        };
        let checksum = ChecksumAlgorithm::from_number(bits::get(self.properties.get(), 40, 8) as u8);
        let copies = ["zero", "single", "double", "triple"];
        write!(
            f,
            "[L{level} {object_type}] {} {compression} {encryption} {} {} {} {} size={size:x}L/{:x}P \
             birth={}L/{}P fill={} cksum={:016x}:{:016x}:{:016x}:{:016x}",
            checksum.map_or("UNKNOWN", ChecksumAlgorithm::name),
            if self.is_little_endian() { "LE" } else { "BE" },
            if self.is_gang() { "gang" } else { "contiguous" },
            if self.is_dedup() { "dedup" } else { "unique" },
            copies.get(self.dvas().count()).unwrap_or(&"zero"),
            self.physical_size(),
            self.logical_birth(),
            self.physical_birth(),
            self.fill(),
            self.checksum[0],
            self.checksum[1],
            self.checksum[2],
            self.checksum[3],
        )
    }
}
