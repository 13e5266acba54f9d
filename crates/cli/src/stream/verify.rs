//! `tarn stream verify`: could a receiver use it?
//!
//! # Theory
//! The checksums say that the stream is what the sender wrote, the order of the records that nothing is missing, and each
//! compressed block that it can be decompressed: a stream kept in a file may have been made by a sender whose memory was bad.
//! What is encrypted is not looked into.

use std::io::Read;

use engine::stream::{Progress, Received, StreamReader};
use ondisk::stream::{RecordBody, StreamFeatures};
use transform::compress::decompress;

use crate::session::{Outcome, Session, complain, say};

/// What a stream that is whole consists of.
#[derive(Debug, Default)]
struct Whole {
    /// The snapshots, as `pool/a@b, incremental`.
    snapshots: Vec<String>,
    records: u64,
    bytes: u64,
}

pub(super) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    if let Some(word) = words.iter().find(|word| word.starts_with('-')) {
        return Err(session.misuse(format_args!("invalid option '{word}'")));
    }
    let mut code = 0;
    let names: Vec<Option<&String>> = if words.is_empty() { vec![None] } else { words.iter().map(Some).collect() };
    for name in names {
        let input = super::open(session, name)?;
        let shown = name.map_or("standard input", String::as_str);
        match verify(input) {
            Ok(whole) => {
                say!(session, "{shown}: whole: {} records, {} bytes", whole.records, whole.bytes);
                whole.snapshots.iter().for_each(|snapshot| say!(session, "\t{snapshot}"));
            }
            Err(error) => {
                complain!(session, "{shown}: {error}");
                code = 1;
            }
        }
    }
    Ok(code)
}

fn verify(input: impl Read) -> engine::error::Result<Whole> {
    let mut reader = StreamReader::new(input);
    let mut progress = Progress::default();
    let (mut whole, mut payload) = (Whole::default(), Vec::new());
    let mut is_raw = false;
    while let Some(received) = reader.next(&mut payload)? {
        progress.take(&received)?;
        whole.records = received.number;
        if let RecordBody::Begin(begin) = &received.record.body {
            is_raw = begin.features().contains(StreamFeatures::RAW);
            if begin.to_guid != 0 {
                let from = if begin.from_guid == 0 { String::new() } else { format!(", incremental from guid {}", begin.from_guid) };
                let raw = if is_raw { ", encrypted" } else { "" };
                whole.snapshots.push(format!("{} (guid {}){from}{raw}", String::from_utf8_lossy(begin.name()), begin.to_guid));
            }
        } else if !is_raw {
            decompresses(&received, &payload)?;
        }
    }
    progress.finish()?;
    whole.bytes = reader.position();
    Ok(whole)
}

/// Does a compressed block become what its record says?
fn decompresses(received: &Received, payload: &[u8]) -> engine::error::Result<()> {
    let (algorithm, logical) = match &received.record.body {
        RecordBody::Write(write) => (write.compression, write.logical_bytes),
        RecordBody::Spill(spill) => (spill.compression, spill.logical_bytes),
        RecordBody::WriteEmbedded(write) => (write.compression, u64::from(write.logical_bytes)),
        _ => return Ok(()),
    };
    // None, by either of its numbers.
    if matches!(algorithm, 0 | transform::compress::OFF) {
        return Ok(());
    }
    match decompress(algorithm, payload, usize::try_from(logical).unwrap_or(usize::MAX)) {
        Ok(_) => Ok(()),
        Err(error) => Err(engine::error!(Corrupt, "{}: its contents cannot be decompressed: {error}", received.place())),
    }
}
