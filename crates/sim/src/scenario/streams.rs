//! Send streams, taken apart and put together again with checksums that are right.

use engine::stream::StreamReader;
use ondisk::stream::{RECORD_CHECKSUM_OFFSET, Record, RecordBody, StreamOrder};
use transform::checksum::Fletcher4;

/// The records of a stream, with what is behind each.
///
/// # Panics
/// It is no whole stream.
pub fn stream_records(stream: &[u8]) -> Vec<(Record, Vec<u8>)> {
    let (mut reader, mut payload, mut records) = (StreamReader::new(stream), Vec::new(), Vec::new());
    while let Some(received) = reader.next(&mut payload).expect("a record") {
        records.push((received.record, payload.clone()));
    }
    records
}

/// Records with their payloads, as a stream whose checksums are right.
pub fn encode_stream(records: &[(Record, Vec<u8>)]) -> Vec<u8> {
    let (mut sum, mut stream) = (Fletcher4::new(false), Vec::new());
    for (record, payload) in records {
        let mut record = record.clone();
        if let RecordBody::End(end) = &mut record.body {
            end.checksum = sum.words();
        }
        let before = record.encode(StreamOrder::Little);
        sum.update(&before[..RECORD_CHECKSUM_OFFSET]);
        if !matches!(record.body, RecordBody::Begin(_)) {
            record.checksum = sum.words();
        }
        let bytes = record.encode(StreamOrder::Little);
        sum.update(&bytes[RECORD_CHECKSUM_OFFSET..]);
        sum.update(payload);
        stream.extend(bytes);
        stream.extend(payload);
    }
    stream
}
