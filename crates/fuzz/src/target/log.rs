//! Records of the intent log.

use ondisk::zil::{self, ChainPhys, LogHeader, Record, RecordHeader, RecordType};
use zerocopy::{FromBytes, IntoBytes};

pub(super) fn records(bytes: &[u8]) {
    let _ = (LogHeader::read_from_prefix(bytes).is_ok(), ChainPhys::read_from_prefix(bytes).is_ok());
    let _ = (zil::header_needs_replay(bytes), zil::header_first_block(bytes));
    let swapped = zil::from_big_endian(bytes);
    assert_eq!(swapped.len(), bytes.len());
    let _ = zil::records(&swapped).filter_map(|record| Record::decode(record.ok()?.1).ok().map(|record| format!("{record:?}"))).count();
    for record in zil::records(bytes) {
        let Ok((_, record)) = record else { continue };
        match Record::decode(record) {
            Ok(Record::Create(_, create, rest)) => {
                let _ = (create, zil::c_string(rest));
            }
            Ok(
                Record::Remove(_, _, rest) | Record::Link(_, rest) | Record::Rename(_, _, rest) | Record::RenameWhiteout(_, rest),
            ) => {
                let _ = zil::c_string(rest).map(|(_, rest)| zil::c_string(rest));
            }
            Ok(other) => drop(format!("{other:?}")),
            Err(_) => {}
        }
    }
}

pub(super) fn records_seeds() -> Vec<Vec<u8>> {
    let all: Vec<u64> = (0..64).filter(|number| RecordType::from_number(*number).is_some()).collect();
    assert!(all.len() > 15);
    let record = |number: u64| {
        let mut body = vec![0; 256];
        body[192..].fill(b'n');
        body[200] = 0;
        body[220] = 0;
        let header = RecordHeader { record_type: number.into(), length: 256.into(), txg: 5.into(), sequence: 1.into() };
        body[..size_of::<RecordHeader>()].copy_from_slice(header.as_bytes());
        body
    };
    let mut seeds: Vec<Vec<u8>> = all.iter().map(|number| record(*number)).collect();
    seeds.push(seeds.concat());
    seeds
}
