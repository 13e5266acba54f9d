//! Records in bonus buffers: lists of blocks, directories and datasets; and the records of send streams.

use engine::stream::{Progress, StreamReader};
use ondisk::bpobj::{self, BpobjPhys, BpobjVersion, BptreePhys};
use ondisk::dsl::{BookmarkPhys, DatasetPhys, DeadlistPhys, DirPhys, RedactionListPhys, number_key, parse_number_key};
use ondisk::dva::Dva;
use ondisk::indirect::{MappingHeaderPhys, MappingPhys, RemovalPhys};
use ondisk::object_type::ObjectType;
use ondisk::stream;
use zerocopy::{FromBytes, IntoBytes};

use crate::seeds;

pub(super) fn bpobj(bytes: &[u8]) {
    let _ = BpobjVersion::from_bonus_size(bytes.len());
    if let Ok((record, version)) = BpobjPhys::from_bonus(bytes) {
        let _ = record.is_empty();
        assert_eq!(record.to_bonus(version), bytes[..record.to_bonus(version).len()]);
    }
    let _ = BptreePhys::from_bonus(bytes);
    for bp in ondisk::blkptr::BlkPtr::slice_of(bytes) {
        let _ = (bpobj::entry_is_freed(bp), bpobj::listed(bp, bpobj::entry_is_freed(bp)));
    }
}

pub(super) fn bpobj_seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![0; 16], vec![1; 32], vec![2; 48], vec![3; 56], vec![0; 40]];
    seeds.extend(seeds::bonuses(ObjectType::BPOBJ_HDR));
    seeds
}

pub(super) fn dsl(bytes: &[u8]) {
    let _ = DirPhys::from_bonus(bytes);
    if let Ok(dataset) = DatasetPhys::from_bonus(bytes) {
        let _ = dataset.block.decode();
    }
    let _ = (DeadlistPhys::from_bonus(bytes).is_ok(), RedactionListPhys::from_bonus(bytes).is_ok());
    let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let _ = BookmarkPhys::from_words(&words);
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(number) = parse_number_key(text)
    {
        assert_eq!(parse_number_key(&number_key(number)), Ok(number));
    }
}

pub(super) fn dsl_seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![b"2f".to_vec()];
    seeds.extend([ObjectType::DSL_DIR, ObjectType::DSL_DATASET].into_iter().flat_map(seeds::bonuses));
    seeds
}

pub(super) fn stream(bytes: &[u8]) {
    let _ = stream::stream_order(bytes);
    if let Some(record) = bytes.first_chunk() {
        for order in [stream::StreamOrder::Little, stream::StreamOrder::Big] {
            let _ = stream::Record::decode(record, order).map(|record| (record.payload_bytes(), record.to_guid(), record.encode(order)));
        }
    }
    let (mut reader, mut progress, mut payload) = (StreamReader::unchecked(bytes), Progress::default(), Vec::new());
    while let Ok(Some(received)) = reader.next(&mut payload) {
        let _ = progress.take(&received);
    }
    let _ = progress.finish();
}

pub(super) fn stream_seeds() -> Vec<Vec<u8>> {
    let mut begin = vec![0; 312];
    begin[8..16].copy_from_slice(&0x2_f5ba_cbacu64.to_le_bytes());
    let big = begin.iter().rev().copied().collect();
    vec![begin, big]
}

/// Maps of removed vdevs.
pub(super) fn removal(bytes: &[u8]) {
    let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let _ = RemovalPhys::from_words(&words);
    let _ = MappingHeaderPhys::read_from_prefix(bytes).is_ok();
    let raw = bytes.chunks_exact(size_of::<MappingPhys>()).filter_map(|raw| MappingPhys::read_from_bytes(raw).ok());
    if let Ok(runs) = raw.map(|raw| raw.decode()).collect::<Result<Vec<_>, _>>() {
        let mut map = engine::vdev::IndirectMap::default();
        let _ = runs.into_iter().try_for_each(|run| map.push(run));
    }
}

pub(super) fn removal_seeds() -> Vec<Vec<u8>> {
    let run = |source: u64, offset: u64| MappingPhys { source: source.into(), target: Dva::new(1, offset, 0x2000).encode() };
    let map: Vec<u8> = (0..6).flat_map(|n| run(n * 16, n << 20).as_bytes().to_vec()).collect();
    vec![map, vec![1; 56]]
}
