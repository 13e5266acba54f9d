//! Streams that no program sends: what is wrong with one is found when it comes, and the pool goes on.

use std::io::Cursor;

use engine::dsl::ReceiveTarget;
use engine::error::{Error, ErrorKind};
use engine::stream::receive::Receiving;
use engine::stream::{Progress, StreamReader};
use ondisk::feature::Feature;
use ondisk::stream::{Free, FreeObjects, Object, RecordBody, Spill, StreamFeatures, Write, WriteEmbedded};
use sim::scenario::{Layout, Rig, encode_stream, stream_of, stream_records};

/// The guids of what is sent by nobody, and of the snapshot after it.
const GUID: u64 = 77;
const NEXT_GUID: u64 = 78;
/// The type of a file's contents, and of a spill block.
const FILE: u32 = 19;
const SA: u32 = 44;

type Bodies = Vec<(RecordBody, Vec<u8>)>;

/// As [`stream_of`], of a full one that may have contents in pointers.
fn embedding(bodies: Bodies) -> Vec<u8> {
    let mut records = stream_records(&stream_of(0, GUID, bodies));
    if let RecordBody::Begin(begin) = &mut records[0].0.body {
        begin.version_info |= StreamFeatures::EMBED_DATA.bits() << 2;
    }
    encode_stream(&records)
}

fn receive(rig: &Rig, bytes: Vec<u8>, snapshot: &str) -> Result<(), Error> {
    let receiving = Receiving::open(StreamReader::new(Cursor::new(bytes)), Progress::default())?;
    let target = ReceiveTarget { dataset: "tank/a".to_owned(), snapshot: snapshot.to_owned(), ..ReceiveTarget::default() };
    let (_, finished) = receiving.receive(&rig.pool().engine().dsl, target, |_, _| ());
    finished?.end()
}

/// The second record is refused.
fn refused(rig: &Rig, bytes: Vec<u8>, kind: ErrorKind, why: &str) {
    let error = receive(rig, bytes, "a").expect_err(why);
    assert!(error.kind() == kind && error.message().contains("record 2 (") && error.message().contains(why), "{why}: {error}");
}

/// Records were taken for object 0, which is the dnodes themselves: a stream could make pointers to any block of the pool.
#[test]
fn a_stream_does_not_get_at_the_dnodes_themselves() {
    let mut rig = Rig::create(Layout::default(), &[]);
    for object in [0, 1 << 48, u64::MAX - 2, u64::MAX - 1, u64::MAX] {
        let write = Write { object, object_type: FILE, logical_bytes: 16384, to_guid: GUID, ..Write::zeroed() };
        let free = Free { object, bytes: u64::MAX, to_guid: GUID, ..Free::zeroed() };
        let spill = Spill { object, logical_bytes: 512, to_guid: GUID, object_type: SA, ..Spill::zeroed() };
        // Compression 2 is none.
        let embedded = WriteEmbedded { object, bytes: 16384, to_guid: GUID, compression: 2, logical_bytes: 64, physical_bytes: 64, ..WriteEmbedded::zeroed() };
        let all = [
            (RecordBody::Write(write), vec![7; 16384]),
            (RecordBody::Free(free), Vec::new()),
            (RecordBody::Spill(spill), vec![0; 512]),
            (RecordBody::WriteEmbedded(embedded), vec![7; 64]),
        ];
        for one in all {
            refused(&rig, embedding(vec![one]), ErrorKind::Corrupt, &format!("object {object} cannot be"));
        }
    }
    rig.judge("records of object 0");
}

/// A plain file of one slot and small blocks, without a bonus.
fn object(object: u64) -> Object {
    Object { object, object_type: FILE, block_bytes: 512, slots: 1, to_guid: GUID, ..Object::zeroed() }
}

/// An object asked for a checksum that is kept in the block itself, or for what the pool had not enabled. That was met by the thread that writes groups, and the pool stopped.
#[test]
fn objects_are_made_in_ways_that_the_pool_has() {
    let rig = Rig::create_featured(Layout::default(), &[], vec![Feature::ExtensibleDataset]);
    let write = |object| Write { object, object_type: FILE, logical_bytes: 512, to_guid: GUID, ..Write::zeroed() };
    let with = |checksum, compression| {
        let made = Object { checksum, compression, ..object(5) };
        stream_of(0, GUID, vec![(RecordBody::Object(made), Vec::new()), (RecordBody::Write(write(5)), vec![7; 512])])
    };
    for checksum in [3, 4, 5, 9, 15, 255] {
        refused(&rig, with(checksum, 0), ErrorKind::Corrupt, "are none");
    }
    refused(&rig, with(0, 17), ErrorKind::Corrupt, "are none");
    for (checksum, compression) in [(11, 0), (12, 0), (13, 0), (14, 0), (0, 15), (0, 16)] {
        refused(&rig, with(checksum, compression), ErrorKind::NotSupported, "it needs the feature");
    }
    rig.sync();
    receive(&rig, with(7, 2), "a").expect("what any pool has");
    rig.sync();
}

/// A file could be of a type that leads other programs to the pointers in its contents.
#[test]
fn what_only_pools_have_is_in_no_stream() {
    let mut rig = Rig::create(Layout::default(), &[]);
    for object_type in [5, 8, 9, 10, 11, 16, 50, 53] {
        let made = Object { object_type, ..object(5) };
        refused(&rig, stream_of(0, GUID, vec![(RecordBody::Object(made), Vec::new())]), ErrorKind::Corrupt, "is in no file system and no volume");
        let write = Write { object: 5, object_type, logical_bytes: 512, to_guid: GUID, ..Write::zeroed() };
        refused(&rig, stream_of(0, GUID, vec![(RecordBody::Write(write), vec![7; 512])]), ErrorKind::Corrupt, "is in no file system and no volume");
    }
    rig.judge("types that only pools have");
}

/// The slots of a snapshot's object, if it is there.
fn slots(rig: &Rig, snapshot: &str, object: u64) -> Option<u8> {
    let dsl = &rig.pool().engine().dsl;
    let objset = dsl.objset(&dsl.open_dataset(snapshot).expect("the snapshot")).expect("its objects");
    objset.hold(object).ok().map(|dnode| dnode.info().slots)
}

/// An object got a larger dnode, which takes the place of its neighbour: it waited for its own old dnode to go, then for the neighbour's, and twice was once too often.
#[test]
fn a_larger_dnode_takes_the_place_of_its_neighbour() {
    let rig = Rig::create(Layout::default(), &[]);
    let both = [10, 11].into_iter().map(|number| (RecordBody::Object(object(number)), Vec::new())).collect();
    receive(&rig, stream_of(0, GUID, both), "a").expect("two of one slot");
    let large = Object { slots: 2, to_guid: NEXT_GUID, ..object(10) };
    receive(&rig, stream_of(GUID, NEXT_GUID, vec![(RecordBody::Object(large), Vec::new())]), "b").expect("one of two slots");
    assert_eq!((slots(&rig, "tank/a@a", 10), slots(&rig, "tank/a@a", 11)), (Some(1), Some(1)));
    assert_eq!((slots(&rig, "tank/a@b", 10), slots(&rig, "tank/a@b", 11)), (Some(2), None));
}

/// More objects are no more than are freed in one transaction: all of them go, and nothing else.
#[test]
fn many_objects_go_in_several_transactions() {
    const LAST: u64 = 2700;
    let rig = Rig::create(Layout::default(), &[]);
    let all = (5..=LAST).map(|number| (RecordBody::Object(object(number)), Vec::new())).collect();
    receive(&rig, stream_of(0, GUID, all), "a").expect("many objects");
    let free = FreeObjects { first_object: 6, objects: LAST - 6, to_guid: NEXT_GUID };
    let again = Object { block_bytes: 1024, to_guid: NEXT_GUID, ..object(LAST) };
    let bodies = vec![(RecordBody::FreeObjects(free), Vec::new()), (RecordBody::Object(again), Vec::new())];
    receive(&rig, stream_of(GUID, NEXT_GUID, bodies), "b").expect("few objects");
    let dsl = &rig.pool().engine().dsl;
    let objset = dsl.objset(&dsl.open_dataset("tank/a@b").expect("the snapshot")).expect("its objects");
    let mut left = vec![];
    while let Some(next) = objset.next_object(left.last().copied().unwrap_or(0)).expect("an object") {
        left.push(next);
    }
    assert_eq!(left, [5, LAST]);
    assert_eq!(objset.hold(LAST).expect("the last").info().block_bytes, 1024);
}
