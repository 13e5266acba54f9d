//! `zdb -R` and `-E`: blocks by their place, and what a pointer holds itself.

use std::sync::Arc;

use engine::pool::Pool;
use engine::vdev::TopVdev;
use ondisk::blkptr::{BlkPtr, BlockPointer};

use super::objects::compact;
use crate::session::{Session, Stop, complain, say};

/// No block is larger.
const BYTES_MAX: u64 = 16 << 20;

/// Bytes of a block pointer.
const POINTER_BYTES: u64 = size_of::<BlkPtr>() as u64;
/// Places and sizes are in whole sectors.
const SECTOR_BYTES: u64 = 512;

/// What is to be done with a block that was read.
#[derive(Debug, Default, PartialEq, Eq)]
struct BlockFlags {
    raw: bool,
    decompress: bool,
    indirect: bool,
    checksum: bool,
    verbose: bool,
    /// Words are turned round.
    swap: bool,
    /// One pointer, at this offset.
    pointer: Option<u64>,
}

/// `vdev:offset:[logical/]physical[:flags]`, numbers in hexadecimal.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    vdev: String,
    offset: u64,
    logical: u64,
    physical: u64,
    flags: BlockFlags,
    /// Letters that mean nothing.
    ignored: Vec<char>,
}

fn parse(text: &str) -> Result<Wanted, String> {
    let wrong = |why: &str| format!("Invalid block specifier: {text}  - {why}");
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let mut parts = text.split(':');
    let (vdev, offset) = (parts.next().unwrap_or(""), parts.next().unwrap_or("0"));
    let sizes = parts.next().and_then(|sizes| {
        let (logical, physical) = sizes.split_once('/').unwrap_or((sizes.trim_end_matches('P'), sizes));
        // As pointers are printed: `4000L/200P`.
        Some((hex(logical.trim_end_matches('L'))?, hex(physical.trim_end_matches(['L', 'P']))?)).filter(|(logical, physical)| logical >= physical && *physical > 0 && *logical <= BYTES_MAX)
    });
    let Some((logical, physical)) = sizes else { return Err(wrong("invalid size(s)")) };
    if logical % SECTOR_BYTES != 0 || physical % SECTOR_BYTES != 0 {
        return Err(wrong("size must be a multiple of sector size"));
    }
    let Some(offset) = hex(offset).filter(|offset| offset % SECTOR_BYTES == 0) else {
        return Err(wrong("offset must be a multiple of sector size"));
    };
    let words = parts.next().unwrap_or("");
    let (flags, ignored) = parse_flags(words)?;
    if flags == BlockFlags::default() && !words.is_empty() {
        return Err(format!("Invalid flag arg: '{words}'"));
    }
    Ok(Wanted { vdev: vdev.to_owned(), offset, logical, physical, flags, ignored })
}

/// The letters; what follows a `b` is an offset.
fn parse_flags(words: &str) -> Result<(BlockFlags, Vec<char>), String> {
    let (mut flags, mut ignored) = (BlockFlags::default(), Vec::new());
    let mut letters = words.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            'r' => flags.raw = true,
            'd' => flags.decompress = true,
            // A gang header is pointers, too.
            'i' | 'g' => flags.indirect = true,
            'c' => flags.checksum = true,
            'v' => flags.verbose = true,
            'e' => flags.swap = true,
            'b' => {
                let mut digits = String::new();
                while let Some(digit) = letters.next_if(|next| next.is_ascii_digit() || matches!(next, 'a' | 'f' | 'A'..='F')) {
                    digits.push(digit);
                }
                let offset = if digits.is_empty() { 0 } else { u64::from_str_radix(&digits, 16).unwrap_or(u64::MAX) };
                if offset % POINTER_BYTES != 0 {
                    return Err(format!("Block pointer offset {offset:#x} must be divisible by {:#x}", POINTER_BYTES));
                }
                flags.pointer = Some(offset);
            }
            other => ignored.push(other),
        }
    }
    Ok((flags, ignored))
}

/// A vdev, and which copy of it: `0`, `0.1`, a path or the last part of one.
fn find(pool: &Pool, name: &str) -> Option<(Arc<TopVdev>, Option<usize>)> {
    let mut numbers = name.split('.').map(str::parse::<u64>);
    if let Some(Ok(top)) = numbers.next()
        && numbers.clone().all(|number| number.is_ok())
    {
        let top = pool.vdevs.top(top)?;
        return match (numbers.next().and_then(Result::ok), numbers.next()) {
            (None, _) => Some((top, None)),
            (Some(copy), None) if top.leaves().len() > 1 => {
                let copy = usize::try_from(copy).ok().filter(|copy| *copy < top.leaves().len())?;
                Some((top, Some(copy)))
            }
            _ => None,
        };
    }
    let is_called = |leaf: &str| leaf == name || leaf.rsplit('/').next() == Some(name);
    pool.vdevs.tops().iter().find_map(|top| {
        let copy = top.leaves().iter().position(|leaf| is_called(leaf.name()))?;
        Some((top.clone(), Some(copy).filter(|_| top.leaves().len() > 1)))
    })
}

pub(super) fn read(session: &mut Session<'_>, pool: &Pool, text: &str) -> Result<u8, Stop> {
    let wanted = parse(text).map_err(|words| {
        complain!(session, "{words}");
        Stop::Code(1)
    })?;
    for letter in &wanted.ignored {
        complain!(session, "***Ignoring flag: {letter}");
    }
    let Some((top, copy)) = find(pool, &wanted.vdev) else {
        complain!(session, "***Invalid vdev: {}", wanted.vdev);
        return Ok(1);
    };
    match (copy, top.leaves().as_slice()) {
        (None, [leaf]) => complain!(session, "Found vdev: {}", leaf.name()),
        (Some(copy), leaves) => complain!(session, "Found vdev: {}", leaves[copy].name()),
        (None, _) => complain!(session, "Found vdev type: {}", top.kind()),
    }
    let mut data = vec![0; wanted.physical as usize];
    let done = match copy {
        Some(copy) => top.leaves()[copy].read(engine::vdev::Class::SyncRead, wanted.offset, &mut data),
        None => engine::zio::read_range(&(top.clone() as Arc<dyn engine::zio::BlockDevice>), wanted.offset, &mut data, engine::vdev::BIRTH_UNKNOWN),
    };
    if let Err(error) = done {
        complain!(session, "Read of {text} failed: {error}");
        return Ok(1);
    }
    show(session, pool, text, &wanted, data)
}

fn show(session: &mut Session<'_>, pool: &Pool, text: &str, wanted: &Wanted, physical: Vec<u8>) -> Result<u8, Stop> {
    let flags = &wanted.flags;
    let sums = if flags.checksum && !flags.raw { checksums(&physical, &pool.context.io.salt()) } else { Vec::new() };
    let mut data = physical;
    if flags.decompress {
        let Some((name, plain)) = decompress(&data, wanted.logical as usize) else {
            complain!(session, "Decompress of {text} failed");
            return Ok(1);
        };
        if flags.verbose {
            complain!(session, "{:05x} -> {:05x} ({name})", data.len(), plain.len());
        }
        data = plain;
    } else {
        data.resize(wanted.logical as usize, 0);
    }
    if flags.swap && (flags.raw || flags.indirect || flags.pointer.is_some()) {
        data.as_chunks_mut::<8>().0.iter_mut().for_each(|word| word.reverse());
    }
    if let Some(offset) = flags.pointer {
        let pointers = BlkPtr::slice_of(&data);
        let Some(pointer) = usize::try_from(offset).ok().and_then(|offset| pointers.get(offset / POINTER_BYTES as usize)) else {
            complain!(session, "invalid block pointer at this DVA");
            return Ok(1);
        };
        say!(session, "{pointer}");
    } else if flags.raw {
        let _ = session.out.write_all(&data);
    } else if flags.indirect {
        // As many as have room in the size that was asked for, however large the block turned out to be.
        for pointer in BlkPtr::slice_of(&data).iter().take((wanted.logical / POINTER_BYTES) as usize) {
            say!(session, "{pointer}");
        }
    } else {
        dump(session, text, &data, flags.swap);
    }
    if !sums.is_empty() {
        say!(session, "");
    }
    for (name, sum) in sums {
        say!(session, "{name:>12}\tcksum={sum}");
    }
    Ok(0)
}

/// The checksums of a block, the keyed ones with the pool's salt.
fn checksums(data: &[u8], salt: &[u8; 32]) -> Vec<(&'static str, String)> {
    use transform::checksum::{BLAKE3, EDONR, FLETCHER2, FLETCHER4, SHA256, SHA512, SKEIN, checksum};
    let all = [
        ("fletcher2", FLETCHER2),
        ("fletcher4", FLETCHER4),
        ("sha256", SHA256),
        ("sha512", SHA512),
        ("skein", SKEIN),
        ("edonr", EDONR),
        ("blake3", BLAKE3),
    ];
    let text = |sum: [u64; 4]| sum.map(|word| format!("{word:016x}")).join(":");
    all.into_iter().filter_map(|(name, algorithm)| Some((name, text(checksum(algorithm, data, false, salt)?)))).collect()
}

/// The first compression that makes sense of the bytes. Where one size is given only, that of the block before compression is guessed, by those
/// algorithms that notice a wrong guess.
fn decompress(data: &[u8], logical: usize) -> Option<(&'static str, Vec<u8>)> {
    use ondisk::algorithm::Compression;
    let larger = (0..=BYTES_MAX.trailing_zeros()).map(|shift| 1 << shift).filter(|size| logical == data.len() && *size > logical);
    let sizes: Vec<usize> = std::iter::once(logical).chain(larger).collect();
    let exact = [Compression::Lz4, Compression::Zstd, Compression::Gzip6].into_iter().flat_map(|exact| sizes.iter().map(move |size| (exact, *size)));
    let all = exact.chain([(Compression::Lzjb, logical), (Compression::Zle, logical)]);
    all.into_iter().find_map(|(compression, size)| {
        let plain = transform::compress::decompress(compression as u8, data, size).ok()?;
        Some((compression.name(), plain))
    })
}

/// `-E`: what an embedded pointer holds.
pub(super) fn embedded(session: &mut Session<'_>, text: &str) -> u8 {
    let words: Vec<u64> = text.split(':').filter_map(|word| u64::from_str_radix(word, 16).ok()).collect();
    if words.len() != 16 || text.split(':').count() != 16 {
        complain!(session, "invalid input format: a block pointer is 16 hexadecimal words with colons between them");
        return 1;
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let Some(pointer) = BlkPtr::from_bytes(&bytes) else { return 1 };
    let Ok(BlockPointer::Embedded(found)) = pointer.decode() else {
        complain!(session, "decode failed: this is no embedded block pointer: {}", compact(&pointer, 0));
        return 1;
    };
    match transform::compress::decompress(found.compression as u8, found.payload(), pointer.logical_size() as usize) {
        Ok(plain) => {
            let _ = session.out.write_all(&plain);
            0
        }
        Err(error) => {
            complain!(session, "decode failed: {error}");
            1
        }
    }
}

/// Bytes in their order, sixteen on a line, and as text; `swap`: each word turned round.
fn dump(session: &mut Session<'_>, title: &str, data: &[u8], swap: bool) {
    let numbers = if swap { " 7 6 5 4 3 2 1 0   f e d c b a 9 8" } else { " 0 1 2 3 4 5 6 7   8 9 a b c d e f" };
    say!(session, "\n{title}\n{:6}   {numbers}  0123456789abcdef", "");
    for (line, bytes) in data.chunks(16).enumerate() {
        let word = |at: usize| {
            let mut word = [0; 8];
            let part = bytes.get(at..bytes.len().min(at + 8)).unwrap_or_default();
            word[..part.len()].copy_from_slice(part);
            if swap { u64::from_le_bytes(word) } else { u64::from_be_bytes(word) }
        };
        let text: String = bytes.iter().map(|byte| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '.' }).collect();
        say!(session, "{:06x}:  {:016x}  {:016x}  {text}", line * 16, word(0), word(8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let flags = BlockFlags { raw: true, decompress: true, ..BlockFlags::default() };
        let wanted = Wanted { vdev: "0".into(), offset: 0x1000, logical: 0x4000, physical: 0x200, flags, ignored: Vec::new() };
        assert_eq!(parse("0:1000:4000/200:dr"), Ok(wanted));
        assert_eq!(parse("0:1000:4000L/200P:d").map(|wanted| (wanted.logical, wanted.physical)), Ok((0x4000, 0x200)));
        assert_eq!(parse("0:1000:200P:d").map(|wanted| wanted.logical), Ok(0x200));
        assert_eq!(parse("/d0.img:0:200:vb80q").map(|wanted| (wanted.flags.pointer, wanted.ignored)), Ok((Some(0x80), vec!['q'])));
        for (bad, why) in [
            ("0:1000", "invalid size(s)"),
            ("0:zz:200", "offset must be"),
            ("0:1:200", "offset must be"),
            ("0:0:0", "invalid size(s)"),
            ("0:0:200/400", "invalid size(s)"),
            ("0:0:1000001", "invalid size(s)"),
            ("0:0:100", "size must be"),
            ("0:0:200:q", "Invalid flag arg: 'q'"),
            ("0:0:200:b10", "Block pointer offset 0x10 must be divisible by 0x80"),
        ] {
            assert!(parse(bad).unwrap_err().contains(why), "{bad}");
        }
    }
}
