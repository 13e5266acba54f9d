//! `tarn stream` on streams that OpenZFS's kernel module sent, and on damaged ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ondisk::stream::{Begin, End, HEADER_SUBSTREAM, RECORD_CHECKSUM_OFFSET, Record, RecordBody, STREAM_MAGIC, StreamOrder, Write};
use sim::places::{in_shared, say, skipped};
use transform::checksum::Fletcher4;

struct Said {
    code: i32,
    out: String,
    err: String,
}

fn tarn(words: &[&str], file: &Path) -> Said {
    let output = Command::new(env!("CARGO_BIN_EXE_tarn")).arg("stream").args(words).arg(file).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
}

/// Streams of the golden set, unpacked below `dir`.
pub(crate) fn golden(dir: &Path) -> Option<PathBuf> {
    let Some(archive) = in_shared("oracle/golden/out/streams/streams.tar.zst") else {
        skipped("streams of OpenZFS: no ../shared");
        return None;
    };
    let status = Command::new("tar").arg("--zstd").arg("-xf").arg(archive).arg("-C").arg(dir).status().unwrap();
    assert!(status.success(), "tar: {status}");
    Some(dir.join("streams"))
}

/// Records in one stream, with the checksums that a sender gives them.
fn encode(order: StreamOrder, records: Vec<(RecordBody, Vec<u8>)>) -> Vec<u8> {
    let mut sum = Fletcher4::new(order == StreamOrder::Big);
    let mut stream = Vec::new();
    for (mut body, payload) in records {
        if let RecordBody::End(end) = &mut body {
            end.checksum = sum.words();
        }
        let mut record = Record { body, begin_payload_bytes: 0, checksum: [0; 4] };
        if matches!(record.body, RecordBody::Begin(_)) {
            record.begin_payload_bytes = payload.len() as u32;
        }
        let bytes = record.encode(order);
        sum.update(&bytes[..RECORD_CHECKSUM_OFFSET]);
        record.checksum = sum.words();
        let bytes = record.encode(order);
        sum.update(&bytes[RECORD_CHECKSUM_OFFSET..]);
        sum.update(&payload);
        stream.extend(bytes);
        stream.extend(payload);
    }
    stream
}

fn small(order: StreamOrder) -> Vec<u8> {
    let mut name = [0; 256];
    name[..8].copy_from_slice(b"tank/a@b");
    let begin = Begin {
        magic: STREAM_MAGIC,
        version_info: HEADER_SUBSTREAM,
        creation_time: 1,
        objset_type: 2,
        flags: 0,
        to_guid: 77,
        from_guid: 0,
        name,
    };
    let write = |offset| {
        let write = Write {
            object: 5,
            object_type: 19,
            reserved: 0,
            offset,
            logical_bytes: 512,
            to_guid: 77,
            checksum: 7,
            flags: 0,
            compression: 0,
            reserved_2: [0; 5],
            key_checksum: [0; 4],
            key_properties: 0,
            compressed_bytes: 0,
            salt: [0; 8],
            iv: [0; 12],
            mac: [0; 16],
        };
        (RecordBody::Write(write), vec![offset as u8 + 1; 512])
    };
    let end = End { checksum: [0; 4], to_guid: 77 };
    encode(order, vec![(RecordBody::Begin(Box::new(begin)), Vec::new()), write(0), write(512), (RecordBody::End(end), Vec::new())])
}

/// `dump` prints what `zstream dump` printed of each stream, and `verify` finds each whole but the one that was broken off.
#[test]
fn golden_streams_are_dumped_as_openzfs_does() {
    let dir = tempfile::tempdir().unwrap();
    let Some(streams) = golden(dir.path()) else { return };
    let mut compared = 0;
    for entry in fs::read_dir(&streams).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "zfs") {
            continue;
        }
        let verified = tarn(&["verify"], &path);
        let expected = path.with_extension("dump.txt");
        if !expected.exists() {
            assert_eq!(verified.code, 1, "{path:?} was broken off: {}", verified.out);
            assert!(verified.err.contains("the stream ends"), "{}", verified.err);
            continue;
        }
        assert_eq!((verified.code, verified.err.as_str()), (0, ""), "{path:?}");
        let dumped = tarn(&["dump"], &path);
        assert_eq!((dumped.code, dumped.err.as_str()), (0, ""), "{path:?}");
        assert_eq!(dumped.out, fs::read_to_string(&expected).unwrap(), "{path:?}");
        compared += 1;
    }
    assert!(compared >= 20, "{compared} streams");
    let token = fs::read_to_string(streams.join("resume.token")).unwrap();
    let shown = tarn(&["token"], Path::new(token.trim()));
    assert!(shown.code == 0 && shown.out.starts_with("nvlist version: 0\n\tobject = 0x"), "{}{}", shown.out, shown.err);
    assert_eq!(tarn(&["token"], Path::new(&token.trim()[..token.trim().len() - 2])).code, 1);
    say(&format!("golden: {compared} streams of OpenZFS are dumped as zstream does, and found whole"));
}

/// Cut anywhere, flipped anywhere, in either byte order: `verify` says which record.
#[test]
fn a_damaged_stream_is_not_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stream");
    let verify = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        tarn(&["verify"], &path)
    };
    for order in [StreamOrder::Little, StreamOrder::Big] {
        let whole = small(order);
        let said = verify(&whole);
        assert_eq!((said.code, said.err.as_str()), (0, ""));
        assert!(said.out.contains("whole: 4 records, 2272 bytes\n\ttank/a@b (guid 77)\n"), "{}", said.out);
        for end in (0..whole.len()).step_by(104) {
            let said = verify(&whole[..end]);
            assert!(said.code == 1 && said.err.contains("the stream "), "cut at {end}: {}{}", said.out, said.err);
        }
        // Not in BEGIN's own payload length: then what follows is read as that.
        for at in (16..whole.len()).step_by(37) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            let said = verify(&damaged);
            assert!(said.code == 1 && said.err.contains("record "), "flipped at {at}: {}{}", said.out, said.err);
        }
        // Two WRITE records in the wrong order, one left out, the stream twice.
        let (begin, first, second, end) = (&whole[..312], &whole[312..1136], &whole[1136..1960], &whole[1960..]);
        for wrong in [[begin, second, first, end].concat(), [begin, second, end].concat(), [whole.clone(), whole.clone()].concat()] {
            let said = verify(&wrong);
            assert!(said.code == 1 && said.err.contains("record "), "{}{}", said.out, said.err);
        }
    }
    assert!(verify(b"no stream at all").err.contains("the stream ends within record 1"));
    assert!(verify(&[7; 400]).err.contains("no send stream"));
}
