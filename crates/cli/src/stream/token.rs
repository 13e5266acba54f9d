//! `tarn stream token`: where a broken receive can be resumed.
//!
//! # On disk
//! `1-CHECKSUM-BYTES-HEXADECIMAL`: the first word of the fletcher-4 of the compressed bytes, how many bytes they were before, and the bytes:
//! a packed nvlist, compressed with zlib.

use ondisk::nvlist::NvList;
use transform::checksum::Fletcher4;
use transform::compress::{GZIP_6, decompress};

use crate::session::{Outcome, Session, complain};

/// The list that a token holds, or what is wrong with it.
pub(crate) fn decode(token: &str) -> Result<NvList, &'static str> {
    let mut parts = token.splitn(4, '-');
    let mut part = || parts.next().ok_or("it has not the four parts of one");
    if part()? != "1" {
        return Err("it is of a version that is unknown");
    }
    let checksum = u64::from_str_radix(part()?, 16).map_err(|_| "its checksum is no number")?;
    let bytes = usize::from_str_radix(part()?, 16).map_err(|_| "its length is no number")?;
    let compressed = hex::decode(part()?).map_err(|_| "it is cut off, or not hexadecimal")?;
    let mut sum = Fletcher4::new(false);
    sum.update(&compressed);
    if sum.words()[0] != checksum {
        return Err("its checksum is wrong");
    }
    let packed = decompress(GZIP_6, &compressed, bytes).map_err(|_| "it cannot be decompressed")?;
    NvList::decode(&packed).map_err(|_| "its list cannot be read")
}

pub(super) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let [token] = words else {
        return Err(session.misuse(if words.is_empty() { "missing resume token" } else { "too many arguments" }));
    };
    match decode(token) {
        Ok(list) => {
            let _ = super::nvlist::print(session.out, &list, 0);
            Ok(0)
        }
        Err(why) => {
            complain!(session, "this resume token is corrupt: {why}");
            Ok(1)
        }
    }
}
