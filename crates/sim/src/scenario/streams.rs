//! Send streams, taken apart and put together again with checksums that are right.

use engine::stream::StreamReader;
use ondisk::stream::{
    BEGIN_FLAG_FREE_RECORDS, BEGIN_FLAG_SPILL_BLOCK, Begin, End, HEADER_SUBSTREAM, RECORD_CHECKSUM_OFFSET, Record, RecordBody, STREAM_MAGIC, StreamFeatures, StreamOrder,
};
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

/// A record whose checksum [`encode_stream`] makes.
pub fn record(body: RecordBody) -> Record {
    Record { body, begin_payload_bytes: 0, checksum: [0; 4] }
}

/// A stream of a file system that nobody has, with these records between its first and its last: from the snapshot with one guid (0: a full stream) to that with another.
pub fn stream_of(from_guid: u64, to_guid: u64, bodies: Vec<(RecordBody, Vec<u8>)>) -> Vec<u8> {
    let mut name = [0; 256];
    name[..8].copy_from_slice(b"tank/a@a");
    let begin = Begin {
        magic: STREAM_MAGIC,
        version_info: HEADER_SUBSTREAM | StreamFeatures::SA_SPILL.bits() << 2,
        creation_time: 1,
        objset_type: 2,
        flags: BEGIN_FLAG_FREE_RECORDS | BEGIN_FLAG_SPILL_BLOCK,
        to_guid,
        from_guid,
        name,
    };
    let first = (RecordBody::Begin(Box::new(begin)), Vec::new());
    let last = (RecordBody::End(End { to_guid, ..End::zeroed() }), Vec::new());
    let records: Vec<(Record, Vec<u8>)> = [first].into_iter().chain(bodies).chain([last]).map(|(body, payload)| (record(body), payload)).collect();
    encode_stream(&records)
}
