//! The token of a receive that was interrupted and can be resumed.
//!
//! # Theory
//! What was received so far stays: as the dataset itself, or, where the stream was incremental, as its hidden child `%recv`. The record
//! of that dataset says where to go on. The sender wants to know the same, and gets it as a text that users can copy: a list of names
//! and values, compressed, in hexadecimal digits, with its checksum and its length in front.
//!
//! # On disk
//! `1-CHECKSUM-LENGTH-DIGITS`: the version, the first word of the fletcher4 of what is compressed, the length of the list in its
//! native encoding, and its zlib stream of level 6. Ours is of level 9 and says 6: for so few bytes zlib makes the same of both, and that is
//! what the library's level 9 comes to as well (in 1740 of 2000 lists tried), but not its level 6. Tokens are compared by people.

use std::fmt::Write as _;

use ondisk::dsl::dataset_field as field;
use ondisk::feature::Feature;
use ondisk::nvlist::NvList;
use ondisk::object_type::ObjectType;
use transform::checksum::fletcher4;
use transform::compress::{GZIP_9, LEVEL_DEFAULT, compress};

use crate::dsl::dataset::Dataset;
use crate::dsl::mos::Mos;
use crate::dsl::received::RECEIVED_BELOW;
use crate::error::Result;

/// What the first number of a token says.
const TOKEN_VERSION: u32 = 1;
/// How a zlib stream of level 6 begins.
const LEVEL_6: [u8; 2] = [0x78, 0x9c];
/// The longest list that is made a token: names and guids of redaction snapshots come from the disk.
const TOKEN_BYTES_MAX: usize = 64 << 10;

/// The numbers of a token, in its order, and where the record has them.
const NUMBERS: [(&str, &str); 5] = [
    ("fromguid", field::RESUME_FROM_GUID),
    ("object", field::RESUME_OBJECT),
    ("offset", field::RESUME_OFFSET),
    ("bytes", field::RESUME_BYTES),
    ("toguid", field::RESUME_TO_GUID),
];
/// What is said by being there.
const FLAGS: [(&str, &str); 4] = [
    ("largeblockok", field::RESUME_LARGE_BLOCK),
    ("embedok", field::RESUME_EMBED),
    ("compressok", field::RESUME_COMPRESS),
    ("rawok", field::RESUME_RAW),
];
/// The guids of redaction snapshots: of the dataset, of the bookmark that the stream began at.
const GUIDS: [(&str, fn() -> &'static str); 2] =
    [("redact_snaps", || Feature::RedactedDatasets.guid()), ("book_redact_snaps", || field::RESUME_REDACT_SNAPSHOTS)];

impl Dataset {
    /// What `zfs send -t` needs to go on; `None`: nothing was interrupted here.
    pub(in crate::dsl) fn resume_token(&self) -> Result<Option<String>> {
        if self.is_snapshot {
            return Ok(None);
        }
        let mos = &self.meta().mos;
        if let Some(list) = interrupted(mos, self.object)? {
            return Ok(token(&list));
        }
        let Some(below) = self.tree().find_child(&self.dir, RECEIVED_BELOW)? else { return Ok(None) };
        Ok(interrupted(mos, below.phys().head_dataset.get())?.as_ref().and_then(token))
    }
}

/// What the dataset's record says of an interrupted receive.
fn interrupted(mos: &Mos, dataset: u64) -> Result<Option<NvList>> {
    if dataset == 0 || mos.info(dataset)?.object_type != ObjectType::ZAP_METADATA || !mos.zap_contains(dataset, field::RESUME_TO_GUID)? {
        return Ok(None);
    }
    let mut list = NvList::new();
    for (name, entry) in NUMBERS {
        if let Some(number) = mos.zap_u64(dataset, entry)? {
            list.set(name, number);
        }
    }
    if let Some(sent) = mos.zap_get(dataset, field::RESUME_TO_NAME)? {
        list.set("toname", sent.to_text());
    }
    for (name, entry) in FLAGS {
        if mos.zap_contains(dataset, entry)? {
            list.set_flag(name);
        }
    }
    for (name, entry) in GUIDS {
        if let Some(guids) = mos.zap_get(dataset, entry())? {
            list.set(name, guids.to_u64s());
        }
    }
    Ok(Some(list))
}

fn token(list: &NvList) -> Option<String> {
    let packed = list.encode_native();
    if packed.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let mut stream = vec![0; packed.len()];
    let length = compress(GZIP_9, LEVEL_DEFAULT, &packed, &mut stream)?;
    stream.truncate(length);
    stream.first_chunk_mut::<2>()?.copy_from_slice(&LEVEL_6);
    let [sum, ..] = fletcher4(&stream, false);
    let mut token = format!("{TOKEN_VERSION}-{sum:x}-{:x}-", packed.len());
    for byte in &stream {
        write!(token, "{byte:02x}").ok()?;
    }
    Some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of the longest name and all else that OpenZFS puts in, and what cannot be one.
    #[test]
    fn a_token_can_be_read_back() {
        let mut list = NvList::new();
        NUMBERS.iter().zip(1..).for_each(|((name, _), number)| list.set(*name, u64::MAX / number));
        list.set("toname", "n".repeat(255));
        FLAGS.iter().for_each(|(name, _)| list.set_flag(*name));
        let text = token(&list).unwrap();
        let mut parts = text.split('-').skip(2);
        let length = usize::from_str_radix(parts.next().unwrap(), 16).unwrap();
        let digits = parts.next().unwrap().as_bytes();
        let stream: Vec<u8> = digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect();
        assert_eq!(transform::compress::decompress(GZIP_9, &stream, length).unwrap(), list.encode_native());
        list.set("redact_snaps", vec![7; TOKEN_BYTES_MAX / 8]);
        assert_eq!(token(&list), None);
    }
}
