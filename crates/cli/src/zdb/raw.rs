//! `zdb -R` and `-E`: blocks by their place, and what a pointer holds itself.

use engine::pool::Pool;
use ondisk::blkptr::{BlkPtr, BlockPointer};

use super::objects::compact;
use crate::session::{Session, Stop, complain, say};

/// No block is larger.
const BYTES_MAX: u64 = 16 << 20;

/// What is to be done with a block that was read.
#[derive(Debug, Default, PartialEq, Eq)]
struct BlockFlags {
    raw: bool,
    decompress: bool,
    indirect: bool,
    checksum: bool,
    verbose: bool,
}

/// `vdev:offset:[logical/]physical[:flags]`, numbers in hexadecimal.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    vdev: u64,
    offset: u64,
    logical: u64,
    physical: u64,
    flags: BlockFlags,
}

fn parse(text: &str) -> Result<Wanted, String> {
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).map_err(|_| format!("'{text}' is no hexadecimal number"));
    let parts: Vec<&str> = text.split(':').collect();
    let ([vdev, offset, size] | [vdev, offset, size, _]) = parts.as_slice() else {
        return Err("a block is named as vdev:offset:size[:flags]".to_owned());
    };
    let (logical, physical) = size.split_once('/').unwrap_or((size, size));
    let vdev = vdev.parse().map_err(|_| format!("'{vdev}' is no number of a vdev"))?;
    let mut flags = BlockFlags::default();
    for letter in parts.get(3).unwrap_or(&"").chars() {
        match letter {
            'r' => flags.raw = true,
            'd' => flags.decompress = true,
            'i' => flags.indirect = true,
            'c' => flags.checksum = true,
            'v' => flags.verbose = true,
            other => return Err(format!("flag '{other}' is not known; there are c d i r v")),
        }
    }
    let wanted = Wanted { vdev, offset: hex(offset)?, logical: hex(logical)?, physical: hex(physical)?, flags };
    if wanted.physical == 0 || wanted.logical == 0 || wanted.physical > BYTES_MAX || wanted.logical > BYTES_MAX {
        return Err(format!("size must be from 1 to {BYTES_MAX:x} bytes"));
    }
    Ok(wanted)
}

pub(super) fn read(session: &mut Session<'_>, pool: &Pool, text: &str) -> Result<u8, Stop> {
    let wanted = parse(text).map_err(|words| {
        complain!(session, "zdb: {words}");
        Stop::Code(1)
    })?;
    let Some(top) = pool.vdevs.top(wanted.vdev) else {
        complain!(session, "***Invalid vdev: {}", wanted.vdev);
        return Ok(1);
    };
    let mut data = vec![0; wanted.physical as usize];
    if let Err(error) = top.read(wanted.offset, &mut data) {
        complain!(session, "Read of {text} failed: {error}");
        return Ok(1);
    }
    if wanted.flags.verbose || !wanted.flags.raw {
        say!(session, "Found vdev: {}", top.leaves().first().map_or("?", |leaf| leaf.name()));
    }
    if wanted.flags.checksum {
        for (name, sum) in checksums(&data) {
            say!(session, "{name:>12}\tcksum={sum}");
        }
        return Ok(0);
    }
    if wanted.flags.decompress {
        match decompress(&data, wanted.logical as usize) {
            Some((name, plain)) => {
                if !wanted.flags.raw {
                    say!(session, "decompressed with {name}");
                }
                data = plain;
            }
            None => {
                complain!(session, "zdb: no compression gives {:x} bytes from these; try another size", wanted.logical);
                return Ok(1);
            }
        }
    }
    if wanted.flags.raw {
        let _ = session.out.write_all(&data);
    } else if wanted.flags.indirect {
        for pointer in BlkPtr::slice_of(&data) {
            say!(session, "{pointer}");
        }
    } else {
        dump(session, text, &data);
    }
    Ok(0)
}

/// The checksums that need no key.
fn checksums(data: &[u8]) -> Vec<(&'static str, String)> {
    use transform::checksum::{fletcher2, fletcher4, sha256, sha512};
    let sums = [("fletcher2", fletcher2(data, false)), ("fletcher4", fletcher4(data, false)), ("sha256", sha256(data)), ("sha512", sha512(data, false))];
    sums.into_iter().map(|(name, sum)| (name, sum.map(|word| format!("{word:016x}")).join(":"))).collect()
}

/// The first compression that makes sense of the bytes.
fn decompress(data: &[u8], logical: usize) -> Option<(&'static str, Vec<u8>)> {
    use ondisk::algorithm::Compression;
    let all = [Compression::Lz4, Compression::Zstd, Compression::Gzip6, Compression::Lzjb, Compression::Zle];
    all.into_iter().find_map(|compression| {
        let plain = transform::compress::decompress(compression as u8, data, logical).ok()?;
        Some((compression.name(), plain))
    })
}

/// `-E`: what an embedded pointer holds.
pub(super) fn embedded(session: &mut Session<'_>, text: &str) -> u8 {
    let words: Vec<u64> = text.split(':').filter_map(|word| u64::from_str_radix(word, 16).ok()).collect();
    if words.len() != 16 || text.split(':').count() != 16 {
        complain!(session, "Error: invalid input format: a block pointer is 16 hexadecimal words with colons between them");
        return 1;
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let Some(pointer) = BlkPtr::from_bytes(&bytes) else { return 1 };
    let Ok(BlockPointer::Embedded(found)) = pointer.decode() else {
        complain!(session, "Error: this is no embedded block pointer: {}", compact(&pointer, 0));
        return 1;
    };
    let plain = transform::compress::decompress(found.compression as u8, found.payload(), pointer.logical_size() as usize);
    match plain {
        Ok(plain) => {
            say!(session, "{pointer}");
            dump(session, "", &plain);
            0
        }
        Err(error) => {
            complain!(session, "Error: the block cannot be decompressed: {error}");
            1
        }
    }
}

/// Bytes as little-endian words, two on a line, and as text.
fn dump(session: &mut Session<'_>, title: &str, data: &[u8]) {
    say!(session, "\n{title}\n        0 1 2 3 4 5 6 7   8 9 a b c d e f  0123456789abcdef");
    for (line, bytes) in data.chunks(16).enumerate() {
        let word = |at: usize| {
            let mut word = [0; 8];
            let part = bytes.get(at..bytes.len().min(at + 8)).unwrap_or_default();
            word[..part.len()].copy_from_slice(part);
            u64::from_le_bytes(word)
        };
        let text: String = bytes.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' }).collect();
        say!(session, "{:06x}:  {:016x}  {:016x}  {text}", line * 16, word(0), word(8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let flags = BlockFlags { raw: true, decompress: true, ..BlockFlags::default() };
        assert_eq!(parse("0:1000:4000/200:dr"), Ok(Wanted { vdev: 0, offset: 0x1000, logical: 0x4000, physical: 0x200, flags }));
        for bad in ["0:1000", "x:0:200", "0:zz:200", "0:0:0", "0:0:1000001", "0:0:200:q", "0:0:200:r:1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
