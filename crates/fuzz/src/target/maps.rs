//! Space maps.

use ondisk::object_type::ObjectType;
use ondisk::space_map::{Action, Area, Decoder, Encoder, SpaceMapHeader, estimate_bytes, histogram_bucket};

use crate::{Input, seeds};

/// The first bytes choose the area: a metaslab, or the vdevs of a log.
pub(super) fn space_map(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let choice = input.u8();
    let area = match choice & 3 {
        0 => Area::LOG,
        1 => Area { start: input.u64(), size: input.u64(), shift: input.u8() },
        _ => Area { start: u64::from(input.u16()) << 24, size: 1 << 24, shift: if choice & 4 == 0 { 9 } else { 12 } },
    };
    let mut decoder = Decoder::new(area);
    let mut entries = Vec::new();
    let mut good = true;
    for block in input.rest().chunks(512) {
        for entry in decoder.entries(block) {
            match entry {
                Ok(entry) => {
                    let end = entry.offset.checked_add(entry.size).expect("inside of the area");
                    assert!(entry.size > 0 && entry.offset >= area.start && end - area.start <= area.size);
                    entries.push(entry);
                }
                Err(_) => good = false,
            }
        }
    }
    if !good || area.shift > 40 {
        return;
    }
    // What was decoded is what is decoded after it was encoded again, maybe in other pieces.
    let mut encoder = Encoder::new(area, 0, 4096, true);
    encoder.begin(Action::Allocate, 1, 1);
    entries.iter().for_each(|entry| encoder.range(entry.action, entry.vdev, entry.offset, entry.size));
    let packed = encoder.finish();
    let total = |entries: &[ondisk::space_map::Entry]| entries.iter().fold(0u128, |sum, entry| sum + u128::from(entry.size));
    let again: Result<Vec<_>, _> = Decoder::new(area).entries(&packed).collect();
    assert_eq!(total(&again.expect("what was encoded")), total(&entries));
}

pub(super) fn space_map_seeds() -> Vec<Vec<u8>> {
    let maps = seeds::blocks(ObjectType::SPACE_MAP);
    let short = |map: &Vec<u8>| [&[2, 0, 0], &map[..map.len().min(1024)]].concat();
    let mut seeds: Vec<Vec<u8>> = maps.iter().map(short).collect();
    for (kind, area, vdev) in [(0, Area::LOG, Some(3)), (6, Area { start: 0, size: 1 << 24, shift: 12 }, None)] {
        let mut encoder = Encoder::new(area, 0, 4096, true);
        encoder.begin(Action::Allocate, 7, 1);
        encoder.range(Action::Allocate, vdev, 8 << 12, 4 << 12);
        encoder.range(Action::Free, vdev, 9 << 12, 1 << 12);
        encoder.range(Action::Allocate, vdev, 0, 1 << 24);
        seeds.push([vec![kind; if kind == 0 { 1 } else { 3 }], encoder.finish()].concat());
    }
    seeds
}

pub(super) fn header(bytes: &[u8]) {
    if let Ok(mut header) = SpaceMapHeader::decode(bytes) {
        assert_eq!(SpaceMapHeader::decode(&header.encode()), Ok(header));
        header.histogram_add(9, header.length | 1, 1);
    }
    let mut input = Input::new(bytes);
    let _ = histogram_bucket(9, input.u64() | 1);
    let mut segments = [0; 64];
    segments.iter_mut().for_each(|count| *count = input.u64());
    let _ = (estimate_bytes(&segments, 9, 4096, true), estimate_bytes(&segments, 12, 0, false));
}

pub(super) fn header_seeds() -> Vec<Vec<u8>> {
    vec![SpaceMapHeader::empty(5, true).encode(), SpaceMapHeader::empty(5, false).encode(), vec![1; 512]]
}
