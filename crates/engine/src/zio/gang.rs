//! Gang blocks: a block in pieces, for when no free range is long enough.
//!
//! # Theory
//! The DVA of a gang block leads to a header, a small block of up to three pointers to the pieces (more where the pool has
//! `dynamic_gang_header` and the header fills a whole unit of allocation; we write the small ones there too), each of which may be a gang again. The header
//! carries its own checksum, made with its address and birth, as the pointer's checksum is that of all the contents.
//! All copies of a header are the same and are made with the address of the first. The header of an encrypted block has half a checksum, as the
//! block itself has; its pieces are ordinary blocks.
//!
//! # On disk
//! ```text
//! | pointer | pointer | pointer | ... | padding | magic and checksum (40) |
//! ```

use ondisk::algorithm::{ChecksumAlgorithm, Compression};
use ondisk::blkptr::{BLKPTR_BYTES, BlkPtr, BlockPointer, DataPointer};
use ondisk::byteswap;
use ondisk::dva::Dva;
use ondisk::object_type::{ByteswapClass, ObjectType};
use transform::checksum::{GANG_HEADER, embedded};

use super::Bookmark;
use super::block_io::BlockIo;
use super::stages::checksum_stage::{self, shares_with_mac};
use super::read::Intent;
use super::write::Placement;
use crate::alloc::Request;
use crate::bail;
use crate::error::{ErrorKind, Result};

/// Bytes of a header without `dynamic_gang_header`.
#[doc(alias = "SPA_OLD_GANGBLOCKSIZE")]
pub(super) const HEADER_BYTES: usize = 512;
/// Pointers in such a header.
const PIECES_MAX: usize = (HEADER_BYTES - embedded::TRAILER_BYTES) / BLKPTR_BYTES;
/// A header leads to at most so many headers below each other: each level makes pieces a third as large, so that real
/// ones have far fewer.
const DEPTH_MAX: usize = 16;
/// The most pieces of one block, whatever the headers say: as many as it has sectors.
const ALL_PIECES_MAX: usize = 1 << 16;

fn verifier(pointer: &DataPointer) -> [u64; 4] {
    let first = pointer.dvas()[0];
    [first.vdev.into(), first.offset, pointer.physical_birth, 0]
}

/// The pieces that a verified header lists, in order.
fn pieces(header: &[u8], swapped: bool) -> Vec<BlkPtr> {
    let mut header = header.to_vec();
    if swapped {
        byteswap::swap(ByteswapClass::U64, &mut header);
    }
    let end = header.len().saturating_sub(embedded::TRAILER_BYTES);
    BlkPtr::slice_of(header.get(..end).unwrap_or_default()).iter().filter(|bp| !bp.is_hole()).copied().collect()
}

impl BlockIo {
    /// The pieces of the gang block that `pointer` leads to.
    pub(super) fn gang_pieces(&self, pointer: &DataPointer, at: &Bookmark, intent: Intent<'_>) -> Result<Vec<DataPointer>> {
        let verifier = verifier(pointer);
        let size = self.gang_header_bytes(pointer)?;
        // A pool that got `dynamic_gang_header` later has old headers too: they are in the front of the unit.
        let parts = |header: &[u8]| {
            [size, HEADER_BYTES].into_iter().find_map(|length| {
                let part = header.get(..length)?;
                let found = embedded::embedded(GANG_HEADER, part, verifier).ok()?;
                let is_valid = if shares_with_mac(pointer) { found.is_valid_beside_mac(GANG_HEADER) } else { found.is_valid() };
                is_valid.then_some((length, found.byteswap))
            })
        };
        let header = self.read_verified(pointer, size, &|header| Ok(parts(header).is_some()), at, intent)?;
        let Some((length, swapped)) = parts(&header) else { bail!(Checksum, "block {at}: gang header") };
        let mut found = Vec::new();
        for bp in pieces(&header[..length], swapped) {
            match bp.decode()? {
                BlockPointer::Data(piece) => found.push(piece),
                _ => bail!(Corrupt, "block {at}: gang header with a piece that is no block: {bp}"),
            }
        }
        Ok(found)
    }

    fn gang_header_bytes(&self, pointer: &DataPointer) -> Result<usize> {
        if !self.features().dynamic_gang_header {
            return Ok(HEADER_BYTES);
        }
        let mut size = usize::MAX;
        for dva in pointer.dvas() {
            size = size.min(1 << self.device(*dva)?.ashift());
        }
        Ok(size.max(HEADER_BYTES))
    }

    /// The contents of a gang block: its pieces, one after the other.
    pub(super) fn read_gang(&self, pointer: &DataPointer, at: &Bookmark, intent: Intent<'_>) -> Result<Vec<u8>> {
        let wanted = pointer.physical_size as usize;
        let mut contents = Vec::with_capacity(wanted);
        let mut pieces = 0;
        self.read_pieces(pointer, at, intent, 0, &mut pieces, wanted, &mut contents)?;
        if contents.len() != wanted {
            bail!(Corrupt, "block {at}: gang block of {} bytes instead of {wanted}", contents.len());
        }
        Ok(contents)
    }

    #[allow(clippy::too_many_arguments)] // it calls itself
    fn read_pieces(
        &self,
        pointer: &DataPointer,
        at: &Bookmark,
        intent: Intent<'_>,
        depth: usize,
        pieces: &mut usize,
        wanted: usize,
        contents: &mut Vec<u8>,
    ) -> Result<()> {
        if depth > DEPTH_MAX {
            bail!(Corrupt, "block {at}: gang block of more than {DEPTH_MAX} levels");
        }
        let mut lost = None;
        for piece in self.gang_pieces(pointer, at, intent)? {
            *pieces += 1;
            if contents.len() + piece.physical_size as usize > wanted || *pieces > ALL_PIECES_MAX {
                bail!(Corrupt, "block {at}: gang block of more than {wanted} bytes");
            }
            let read = match piece.is_gang() {
                true => self.read_pieces(&piece, at, intent, depth + 1, pieces, wanted, contents),
                false => self.read_plain(&piece, at, intent).map(|bytes| contents.extend_from_slice(&bytes)),
            };
            match read {
                // A scan makes right what it can of the others.
                Err(error) if matches!(intent, Intent::Scan(_)) => drop(lost.get_or_insert(error)),
                read => read?,
            }
        }
        lost.map_or(Ok(()), Err)
    }

    /// Frees the pieces of a gang block, but not its header. If that cannot be read, nobody knows where they are: they are leaked.
    pub(super) fn free_gang(&self, pointer: &DataPointer, txg: u64, depth: usize, pieces: &mut usize) -> Result<()> {
        if depth > DEPTH_MAX {
            bail!(Corrupt, "gang block of more than {DEPTH_MAX} levels");
        }
        let listed = match self.gang_pieces(pointer, &Bookmark::default(), Intent::Needed) {
            Err(error) if self.is_lost(&error) => {
                tracing::error!("the pieces of a gang block are leaked: {error}");
                for dva in pointer.dvas() {
                    let header = self.own_space(*dva)?.allocated;
                    self.note_leak(Dva { allocated: dva.allocated.saturating_sub(header), ..*dva });
                }
                return Ok(());
            }
            listed => listed?,
        };
        for piece in listed {
            *pieces += 1;
            if *pieces > ALL_PIECES_MAX {
                bail!(Corrupt, "gang block of more than {ALL_PIECES_MAX} pieces");
            }
            self.free_data(&piece, txg, depth + 1, pieces)?;
        }
        Ok(())
    }

    /// Writes `bytes` in pieces and returns the addresses of the header. Or nothing is allocated.
    pub(super) fn write_gang(&self, bytes: &[u8], placement: &Placement) -> Result<Vec<Dva>> {
        let mut taken = Vec::new();
        let result = self.write_gang_level(bytes, placement, 0, &mut taken);
        if result.is_err() {
            for dva in taken {
                self.allocator().unallocate(dva, placement.txg)?;
            }
        }
        result
    }

    /// Writes other contents of the same length into the places of a gang block that `placement.txg` itself has written: a
    /// pass that gave such a block new places would make the next pass necessary, for ever. `None`: it has another shape.
    pub(super) fn rewrite_gang(&self, pointer: &DataPointer, bytes: &[u8], placement: &Placement) -> Result<Option<Vec<Dva>>> {
        let at = Bookmark::default();
        if pointer.physical_birth != placement.txg {
            return Ok(None);
        }
        let pieces = self.gang_pieces(pointer, &at, Intent::Needed)?;
        let fits = |piece: &DataPointer| piece.physical_birth == placement.txg && (piece.is_gang() || piece.dvas().len() == placement.copies);
        let length: u64 = pieces.iter().map(|piece| piece.physical_size).sum();
        if length != bytes.len() as u64 || pieces.len() > PIECES_MAX || !pieces.iter().all(fits) {
            return Ok(None);
        }
        let mut header = vec![0; HEADER_BYTES];
        let mut rest = bytes;
        for (index, mut piece) in pieces.into_iter().enumerate() {
            let (part, after) = rest.split_at(piece.physical_size as usize);
            rest = after;
            if !piece.is_gang() {
                self.write_copies(piece.dvas(), part, placement.txg)?;
            } else if self.rewrite_gang(&piece, part, placement)?.is_none() {
                return Ok(None);
            }
            piece.checksum_algorithm = placement.checksum;
            piece.checksum = checksum_stage::compute(placement.checksum, part, false, &self.salt())?;
            header[index * BLKPTR_BYTES..][..BLKPTR_BYTES].copy_from_slice(piece.encode().as_bytes());
        }
        self.write_header(pointer.dvas(), header, placement)?;
        Ok(Some(pointer.dvas().to_vec()))
    }

    fn write_header(&self, dvas: &[Dva], mut header: Vec<u8>, placement: &Placement) -> Result<()> {
        let first = dvas[0];
        let verifier = [first.vdev.into(), first.offset, placement.txg, 0];
        let seal = if placement.has_mac { embedded::seal_beside_mac } else { embedded::seal };
        assert!(seal(GANG_HEADER, &mut header, verifier).is_ok(), "a gang header has room for its checksum");
        self.write_copies(dvas, &header, placement.txg)
    }

    fn write_gang_level(&self, bytes: &[u8], placement: &Placement, depth: usize, taken: &mut Vec<Dva>) -> Result<Vec<Dva>> {
        if depth > DEPTH_MAX {
            bail!(NoSpace, "the free space is in pieces too small for a gang block");
        }
        // One copy more than of the contents, so that a lost header does not lose them.
        let header_copies = (placement.copies + 1).min(if placement.has_secrets { 2 } else { 3 });
        let request = Request { must_succeed: true, ..Request::new(placement.class, HEADER_BYTES as u64, header_copies, placement.txg) };
        // Where there is no room for one more, as many as of the contents must do.
        let mut dvas = match self.allocator().allocate(&request) {
            Err(error) if error.kind() == ErrorKind::NoSpace && header_copies > placement.copies => {
                self.allocator().allocate(&Request { copies: placement.copies, ..request })?
            }
            other => other?,
        };
        taken.extend_from_slice(&dvas);
        let headers = dvas.clone();
        dvas.iter_mut().for_each(|dva| dva.gang = true);

        let mut header = vec![0; HEADER_BYTES];
        let mut rest = bytes;
        for index in 0..PIECES_MAX {
            if rest.is_empty() {
                break;
            }
            let share = rest.len().div_ceil(PIECES_MAX - index).next_multiple_of(self.unit());
            let (part, after) = rest.split_at(share.min(rest.len()));
            let piece = self.write_piece(part, placement, &headers, depth, taken)?;
            for (dva, member) in dvas.iter_mut().zip(piece.dvas()) {
                dva.allocated += member.allocated;
            }
            header[index * BLKPTR_BYTES..][..BLKPTR_BYTES].copy_from_slice(piece.encode().as_bytes());
            rest = after;
        }
        // Only the header that the block's own pointer leads to knows of MACs.
        let own = Placement { has_mac: placement.has_mac && depth == 0, ..*placement };
        self.write_header(&dvas, header, &own)?;
        Ok(dvas)
    }

    fn write_piece(
        &self,
        part: &[u8],
        placement: &Placement,
        headers: &[Dva],
        depth: usize,
        taken: &mut Vec<Dva>,
    ) -> Result<DataPointer> {
        let smallest = part.len() <= self.unit();
        let request = Request {
            near: headers,
            must_succeed: smallest,
            ..Request::new(placement.class, part.len() as u64, placement.copies, placement.txg)
        };
        let dvas = match self.allocator().allocate(&request) {
            Ok(dvas) => {
                taken.extend_from_slice(&dvas);
                self.write_copies(&dvas, part, placement.txg)?;
                dvas
            }
            Err(error) if error.kind() == ErrorKind::NoSpace && !smallest => {
                self.write_gang_level(part, placement, depth + 1, taken)?
            }
            Err(error) => return Err(error),
        };
        let mut piece = DataPointer::new(&dvas, ObjectType::NONE, 0, placement.txg);
        piece.logical_size = part.len() as u64;
        piece.physical_size = part.len() as u64;
        piece.compression = Compression::Off;
        piece.checksum_algorithm = placement.checksum;
        piece.checksum = checksum_stage::compute(placement.checksum, part, false, &self.salt())?;
        piece.fill = 0;
        Ok(piece)
    }
}

const _: () = assert!(PIECES_MAX == 3);
const _: () = assert!(ChecksumAlgorithm::GangHeader.number() == GANG_HEADER);
