//! A stream that heals: damaged blocks of a snapshot get the contents that the stream has.
//!
//! # Theory
//! Nothing changes but bytes on disk that are wrong: a WRITE record whose block can be read is passed over, and all other records are. What a block was on disk its
//! checksum says: the contents are tried as they came, as they are, and compressed as the pointer has it.

use std::io::Read;
use std::sync::Arc;

use ondisk::algorithm::Compression;
use ondisk::blkptr::{BlockPointer, DataPointer};
use ondisk::byteswap::swap_block;
use ondisk::object_type::ObjectType;
use ondisk::stream::{RecordBody, StreamOrder, Write};
use transform::compress::{LEVEL_DEFAULT, compress, decompress};

use super::receiving::Receiving;
use crate::dmu::Objset;
use crate::dsl::{Dataset, Dsl};
use crate::error;
use crate::error::{ErrorKind, Result, Within};
use crate::zio::Bookmark;

/// What the low bits of `compression` say: the rest is a level.
const COMPRESSION_MASK: u64 = 0x7f;
const COMPRESSION_BITS: u32 = 7;

/// A snapshot that is healed.
struct Patient {
    objset: Arc<Objset>,
    /// The level of zstd that the dataset is written with.
    level: u8,
    is_swapped: bool,
}

impl<R: Read + Send + 'static> Receiving<R> {
    /// Heals a snapshot with this stream of it: how many blocks were healed.
    ///
    /// # Errors
    /// `NotFound`; `Mismatch`: the stream is of another snapshot; `NotSupported`: it is encrypted; `Checksum`: it does not have what a damaged block had; what
    /// is wrong with the stream.
    #[doc(alias = "do_corrective_recv")]
    pub fn heal(self, dsl: &Arc<Dsl>, snapshot: &str) -> Result<u64> {
        let Receiving { mut reader, mut progress, head } = self;
        let dataset = dsl.open_dataset(snapshot)?;
        if !dataset.is_snapshot || dataset.phys().guid.get() != head.begin.to_guid {
            return Err(error!(Mismatch, "local snapshot doesn't match the snapshot in the provided stream"));
        }
        if dataset.dir.crypto_key != 0 {
            return Err(error!(NotSupported, "'{snapshot}' is encrypted, and this version does not heal it"));
        }
        let is_swapped = reader.order() == Some(StreamOrder::Big);
        let patient = Patient { objset: dsl.objset(&dataset)?, level: level(&dataset)?, is_swapped };
        let (mut payload, mut healed) = (Vec::new(), 0);
        loop {
            let Some(received) = reader.next(&mut payload)? else {
                progress.finish()?;
                return Err(error!(Corrupt, "the stream ends before its END record: the sender or the way broke off"));
            };
            progress.take(&received)?;
            match &received.record.body {
                RecordBody::End(_) => return Ok(healed),
                RecordBody::Write(write) => healed += u64::from(patient.write(write, &payload).within(|| received.place())?),
                _ => {}
            }
        }
    }
}

/// The level of zstd that the dataset is written with.
fn level(dataset: &Dataset) -> Result<u8> {
    let compression = dataset.number_property("compression")?;
    let level = (compression >> COMPRESSION_BITS) as u8;
    let is_zstd = compression & COMPRESSION_MASK == Compression::Zstd as u64;
    Ok(if is_zstd && level != 0 { level } else { LEVEL_DEFAULT })
}

impl Patient {
    /// Heals the block of a record, if it is damaged: whether it was.
    fn write(&self, record: &Write, payload: &[u8]) -> Result<bool> {
        let dnode = match self.objset.hold(record.object) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            dnode => dnode?,
        };
        let size = dnode.block_bytes();
        let block = record.offset / size;
        if block > dnode.max_block() {
            return Ok(false);
        }
        let BlockPointer::Data(data) = dnode.block_pointer(block)?.decode()? else { return Ok(false) };
        let at = Bookmark { objset: dnode.dataset(), object: record.object, level: 0, block };
        let io = &self.objset.context().io;
        match io.read_physical(&dnode.block_pointer(block)?, &at) {
            Ok(_) => return Ok(false),
            Err(error) if error.kind() != ErrorKind::Checksum => return Err(error),
            Err(_) => {}
        }
        if record.logical_bytes != size || !record.offset.is_multiple_of(size) {
            return Err(error!(NotSupported, "stream is not compatible with the data in the pool."));
        }
        if io.correct(&data, &at, self.candidates(record, payload, &data)?)? {
            return Ok(true);
        }
        Err(error!(Checksum, "corrective receive was not able to reconstruct the data needed for healing."))
    }

    /// What the block may have been on disk.
    fn candidates(&self, record: &Write, payload: &[u8], data: &DataPointer) -> Result<Vec<Vec<u8>>> {
        let mut candidates = Vec::new();
        let contents = if record.compression == 0 {
            let mut contents = payload.to_vec();
            if self.is_swapped
                && let Ok(kind) = u8::try_from(record.object_type)
            {
                swap_block(ObjectType(kind), 0, &mut contents);
            }
            contents
        } else {
            candidates.push(payload.to_vec());
            let contents = decompress(record.compression, payload, record.logical_bytes as usize);
            contents.map_err(|why| error!(Corrupt, "its contents cannot be decompressed: {why}"))?
        };
        for level in [self.level, LEVEL_DEFAULT] {
            let mut packed = vec![0; contents.len()];
            if data.compression != Compression::Off
                && let Some(length) = compress(data.compression.number(), level, &contents, &mut packed)
            {
                packed.truncate(length);
                candidates.push(packed);
            }
        }
        candidates.push(contents);
        Ok(candidates)
    }
}
