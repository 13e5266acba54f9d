use proptest::prelude::*;

use super::*;

const AREA: Area = Area { start: 1 << 30, size: 1 << 34, shift: 12 };

fn decode(area: Area, bytes: &[u8], block_bytes: usize) -> Result<Vec<Entry>, Corruption> {
    let mut decoder = Decoder::new(area);
    let mut entries = Vec::new();
    for block in bytes.chunks(block_bytes) {
        for entry in decoder.entries(block) {
            entries.push(entry?);
        }
    }
    Ok(entries)
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn words_are_where_the_format_says() {
    let mut encoder = Encoder::new(AREA, 0, 4096, true);
    encoder.begin(Action::Free, 0x1234, 3);
    encoder.range(Action::Free, None, AREA.start + (5 << 12), 7 << 12);
    encoder.range(Action::Allocate, None, AREA.start + (9 << 12), 0x8001 << 12);
    let expected =
        [0x900c_0000_0000_1234_u64, 5 << 16 | 1 << 15 | 6, 0xc000_0000_0000_0000 | 0x8000 << 24, 9];
    assert_eq!(words(&encoder.finish()), expected);

    let mut encoder = Encoder::new(Area::LOG, 0, 4096, true);
    encoder.range(Action::Free, Some(0xabcde), 0x2000, 0x400);
    assert_eq!(words(&encoder.finish()), [0xc000_0000_010a_bcde, 1 << 63 | 0x10]);
}

#[test]
fn a_two_word_entry_does_not_straddle_blocks() {
    let mut encoder = Encoder::new(Area::LOG, 0, 64, true);
    encoder.begin(Action::Allocate, 9, 1);
    for i in 0..8 {
        encoder.range(Action::Allocate, Some(1), i << 20, 512);
    }
    let bytes = encoder.finish();
    // A debug entry, three entries and padding; then blocks of four entries.
    assert_eq!(words(&bytes)[7], 2 << 62);
    assert_eq!(bytes.len(), 64 + 64 + 16);
    let entries = decode(Area::LOG, &bytes, 64).unwrap();
    assert_eq!(entries.len(), 8);
    assert!(entries.iter().all(|entry| entry.txg == 9 && entry.pass == 1 && entry.vdev == Some(1)));
}

#[test]
fn long_runs_are_cut_without_spacemap_v2() {
    let mut encoder = Encoder::new(AREA, 8, 4096, false);
    encoder.range(Action::Allocate, None, AREA.start, AREA.size);
    let bytes = encoder.finish();
    let entries = decode(AREA, &bytes, 4096).unwrap();
    assert_eq!(entries.len() as u64, AREA.size >> (12 + 15));
    let mut end = AREA.start;
    for entry in entries {
        assert_eq!(entry.offset, end);
        end += entry.size;
    }
    assert_eq!(end, AREA.start + AREA.size);
}

#[test]
fn what_lies_outside_is_corruption() {
    let units = AREA.size >> 12;
    let outside = (units << 16).to_le_bytes();
    assert_eq!(decode(AREA, &outside, 4096).unwrap_err().field, "run");
    let half = [0xff; 8];
    assert_eq!(decode(AREA, &half, 4096).unwrap_err().field, "second word");
    assert_eq!(decode(AREA, &[0; 5], 4096).unwrap_err().field, "length");
    let overflow = [0xff; 16];
    assert_eq!(decode(AREA, &overflow, 4096).unwrap_err().field, "offset");
}

#[test]
fn header_survives_both_sizes() {
    for with_histogram in [false, true] {
        let mut header = SpaceMapHeader::empty(77, with_histogram);
        header.length = 4096;
        header.allocated = -3;
        header.histogram_add(9, 512, 2);
        header.histogram_add(9, 1 << 41, 5);
        let bytes = header.encode();
        assert_eq!(bytes.len(), if with_histogram { 320 } else { 24 });
        assert_eq!(SpaceMapHeader::decode(&bytes), Ok(header));
        if let Some(histogram) = header.histogram {
            assert_eq!((histogram[0], histogram[31]), (2, 10));
        }
    }
    assert!(SpaceMapHeader::decode(&[0; 23]).is_err());
    let mut odd = [0; 24];
    odd[8] = 3;
    assert!(SpaceMapHeader::decode(&odd).is_err());
}

proptest! {
    #[test]
    fn round_trip(
        ranges in prop::collection::vec((0_u64..1 << 20, 1_u64..1 << 18, any::<bool>()), 1..200),
        log in any::<bool>(),
        start in 0_u64..100,
    ) {
        let area = if log { Area::LOG } else { AREA };
        let mut encoder = Encoder::new(area, start * 8, 512, true);
        for (offset, size, free) in &ranges {
            let action = if *free { Action::Free } else { Action::Allocate };
            encoder.range(action, log.then_some(3), area.start + (offset << 12), size << 12);
        }
        let mut bytes = vec![0_u8; start as usize * 8];
        // Zero is a valid entry, so what precedes the batch is debug entries.
        for word in bytes.chunks_exact_mut(8) {
            word[7] = 0x80;
        }
        bytes.extend(encoder.finish());
        let entries = decode(area, &bytes, 512).unwrap();
        prop_assert_eq!(entries.len(), ranges.len());
        for (entry, (offset, size, free)) in entries.iter().zip(ranges) {
            prop_assert_eq!(entry.offset, area.start + (offset << 12));
            prop_assert_eq!(entry.size, size << 12);
            prop_assert_eq!(entry.action == Action::Free, free);
        }
    }

    #[test]
    fn estimate_is_an_upper_bound(sizes in prop::collection::vec(1_u64..1 << 22, 0..100), long in any::<bool>()) {
        let mut segments = [0; 64];
        let mut encoder = Encoder::new(AREA, 0, 512, long);
        for size in sizes {
            segments[(size << 12).ilog2() as usize] += 1;
            encoder.range(Action::Free, None, AREA.start, size << 12);
        }
        prop_assert!(encoder.finish().len() as u64 <= estimate_bytes(&segments, 12, 512, long));
    }

    #[test]
    fn any_bytes_decode_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..512), shift in 9_u8..20) {
        let area = Area { start: 1 << 40, size: 1 << 34, shift };
        for entry in decode(area, &bytes, 128).unwrap_or_default() {
            prop_assert!(entry.offset >= area.start && entry.offset + entry.size <= area.start + area.size);
        }
        let _ = SpaceMapHeader::decode(&bytes);
    }
}
