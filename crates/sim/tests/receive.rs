//! Streams that OpenZFS sent are received into pools of ours, and are what their manifest says; then the real `zdb`.

use std::fs;
use std::io::{Cursor, Read};


use engine::dsl::{PropertyValue, ReceiveTarget};
use engine::error::{Error, ErrorKind};
use engine::stream::receive::Receiving;
use engine::stream::{Progress, StreamReader};
use engine::zil::Zil;
use ondisk::algorithm::ChecksumAlgorithm;
use ondisk::blkptr::DataPointer;
use ondisk::dva::Dva;
use ondisk::nvlist::{NvList, Value};
use ondisk::object_type::ObjectType;
use ondisk::objset::ZIL_HEADER_BYTES;
use ondisk::stream::{BEGIN_FLAG_SPILL_BLOCK, Free, HEADER_SUBSTREAM, Object, RECORD_SIZE, Record, RecordBody, Spill, StreamFeatures, StreamOrder, Write};
use ondisk::zil::{LogHeader, header_first_block};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::golden::{Compare, DatasetRecord, Golden, Manifest, compare, open_images};
use sim::scenario::{Layout, Rig, encode_stream, record, stream_of, stream_records};
use tarnfs::{Bias, CreateOptions, Credentials, ImportOptions, Pool, VdevPaths};
use zerocopy::{FromZeros, IntoBytes};

/// What two pools with other properties have in common.
const RECEIVED: Compare = Compare { inodes: true, allocated: false, segments: true, changed: true, projects: true, properties: &["guid", "creation"] };

/// The streams and the manifest, unpacked.
struct Streams {
    directory: tempfile::TempDir,
    manifest: Manifest,
}

impl Streams {
    fn find() -> Option<Streams> {
        let Some(place) = Golden::place("streams") else {
            sim::places::skipped("streams of OpenZFS: no ../shared");
            return None;
        };
        let directory = tempfile::tempdir().expect("a directory");
        let mut decoder = zstd::Decoder::new(fs::File::open(place.join("streams.tar.zst")).expect("the archive")).expect("zstd");
        decoder.window_log_max(27).expect("a window");
        tar::Archive::new(decoder).unpack(directory.path()).expect("the streams");
        let manifest = Manifest::read(&place.join("manifest.json.zst")).expect("the manifest");
        Some(Streams { directory, manifest })
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.directory.path().join("streams").join(format!("{name}.zfs"))).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The record of a golden dataset, under another name.
    fn record(&self, golden: &str, ours: &str) -> DatasetRecord {
        let found = self.manifest.datasets.iter().find(|record| record.name == format!("g_streams/{golden}"));
        let mut record = found.unwrap_or_else(|| panic!("{golden} is not in the manifest")).clone();
        record.name = ours.to_owned();
        record
    }
}

/// The streams of single snapshots that a package has.
fn streams_in(package: &[u8]) -> Vec<Vec<u8>> {
    let (mut reader, mut payload, mut begun, mut found) = (StreamReader::new(package), Vec::new(), 0, Vec::new());
    while let Some(received) = reader.next(&mut payload).expect("a record") {
        match &received.record.body {
            RecordBody::Begin(begin) if begin.header_type() == HEADER_SUBSTREAM => begun = received.position as usize,
            RecordBody::End(_) if begun > 0 => found.push(package[std::mem::take(&mut begun)..reader.position() as usize].to_vec()),
            _ => {}
        }
    }
    found
}

/// Receives the stream `bytes` as `dataset@snapshot`; what follows it is left.
fn receive(rig: &Rig, bytes: Vec<u8>, target: ReceiveTarget) -> Result<(), Error> {
    receive_into(rig.pool(), bytes, target)
}

fn receive_into(pool: &Pool, bytes: Vec<u8>, target: ReceiveTarget) -> Result<(), Error> {
    let dsl = &pool.engine().dsl;
    let length = bytes.len();
    let receiving = Receiving::open(StreamReader::new(Cursor::new(bytes)), Progress::default())?;
    let (rest, finished) = receiving.receive(dsl, target, |_, _| ());
    finished?.end()?;
    let mut left = Vec::new();
    rest.expect("the input").0.into_input().read_to_end(&mut left).expect("memory");
    assert_eq!(left.len(), 0, "of {length} bytes");
    Ok(())
}

fn target(name: &str) -> ReceiveTarget {
    let (dataset, snapshot) = name.split_once('@').expect("a snapshot");
    ReceiveTarget { dataset: dataset.to_owned(), snapshot: snapshot.to_owned(), ..ReceiveTarget::default() }
}

/// Receives a stream of one snapshot.
fn take(rig: &Rig, streams: &Streams, stream: &str, name: &str) {
    receive(rig, streams.read(stream), target(name)).unwrap_or_else(|error| panic!("{stream} as {name}: {error}"));
}

/// Exports the pool, has it checked, and compares snapshots (ours, golden's) with the manifest.
fn judge(rig: &mut Rig, streams: &Streams, what: &str, expected: &[(&str, &str)]) {
    rig.export();
    rig.check(what);
    rig.zdb(what, true);
    let pool = open_images(&rig.images()).expect("the pool");
    let mut manifest = streams.manifest.clone();
    manifest.pool.name = "tank".to_owned();
    manifest.datasets = expected.iter().map(|(ours, golden)| streams.record(golden, ours)).collect();
    let report = compare(pool.as_ref(), &manifest, RECEIVED).expect("a comparison");
    // The number of a snapshot's root follows from the dataset's, and small blocks have smaller holes.
    let is_expected = |line: &&String| line.ends_with("is not in the manifest") || line.contains(": .: ino ") || line.contains(": holey: data") && (line.starts_with("tank/small@a") || line.starts_with("tank/grown@b"));
    let differences: Vec<&String> = report.differences.iter().filter(|line| !is_expected(line)).collect();
    assert!(differences.is_empty(), "{what}: {} differences: {:#?}", differences.len(), &differences[..differences.len().min(20)]);
    assert_eq!(report.datasets, expected.len() as u64, "{what}");
    drop(pool);
    rig.import();
}

#[test]
fn full_streams_are_what_they_were() {
    let Some(streams) = Streams::find() else { return };
    let mut rig = Rig::create(Layout::default(), &[]);
    for stream in ["full", "compressed", "embedded", "Lec"] {
        take(&rig, &streams, stream, &format!("tank/{stream}@a"));
    }
    take(&rig, &streams, "full-b", "tank/b@b");
    take(&rig, &streams, "large-L", "tank/large@a");
    take(&rig, &streams, "large-noL", "tank/small@a");
    take(&rig, &streams, "enc-plain", "tank/enc@a");
    take(&rig, &streams, "vol", "tank/zv@1");
    let expected = [
        ("tank/full@a", "src@a"),
        ("tank/compressed@a", "src@a"),
        ("tank/embedded@a", "src@a"),
        ("tank/Lec@a", "src@a"),
        ("tank/b@b", "src@b"),
        ("tank/large@a", "large@a"),
        ("tank/small@a", "large@a"),
        ("tank/enc@a", "enc@a"),
        ("tank/zv@1", "zv@1"),
    ];
    judge(&mut rig, &streams, "full streams", &expected);
}

#[test]
fn incremental_streams_go_on_top() {
    let Some(streams) = Streams::find() else { return };
    let mut rig = Rig::create(Layout::default(), &[]);
    take(&rig, &streams, "full", "tank/one@a");
    take(&rig, &streams, "incr-a-b", "tank/one@b");
    take(&rig, &streams, "Lec", "tank/two@a");
    take(&rig, &streams, "incr-bookmark", "tank/two@b");
    take(&rig, &streams, "compressed", "tank/many@a");
    for (stream, name) in streams_in(&streams.read("incr-I-a-c")).into_iter().zip(["tank/many@b", "tank/many@c"]) {
        receive(&rig, stream, target(name)).expect("one of two");
    }
    take(&rig, &streams, "large-L", "tank/large@a");
    take(&rig, &streams, "large-Lec-incr", "tank/large@b");
    take(&rig, &streams, "large-noL", "tank/grown@a");
    take(&rig, &streams, "large-Lec-incr", "tank/grown@b");
    let expected = [
        ("tank/one@a", "src@a"),
        ("tank/one@b", "src@b"),
        ("tank/two@a", "src@a"),
        ("tank/two@b", "src@b"),
        ("tank/many@a", "src@a"),
        ("tank/many@b", "src@b"),
        ("tank/many@c", "src@c"),
        ("tank/large@a", "large@a"),
        ("tank/large@b", "large@b"),
        ("tank/grown@b", "large@b"),
    ];
    judge(&mut rig, &streams, "incremental streams", &expected);
}

fn property(rig: &Rig, dataset: &str, name: &str) -> Option<String> {
    let dataset = rig.pool().engine().dsl.open_dataset(dataset).expect("the dataset");
    dataset.any_property(name).expect("a property").map(|(value, _)| match value {
        PropertyValue::Text(text) => text,
        PropertyValue::Number(number) => number.to_string(),
    })
}

/// Where the records of a stream begin.
fn records(stream: &[u8]) -> Vec<usize> {
    let (mut reader, mut payload, mut found) = (StreamReader::new(stream), Vec::new(), Vec::new());
    while let Some(received) = reader.next(&mut payload).expect("a record") {
        found.push(received.position as usize);
    }
    found
}

#[test]
fn a_stream_that_broke_off_goes_on_with_openzfs_token() {
    let Some(streams) = Streams::find() else { return };
    let mut rig = Rig::create(Layout::default(), &[]);
    let into = ReceiveTarget { resumable: true, ..target("tank/resumed@b") };
    receive(&rig, streams.read("resume-part1"), into.clone()).expect_err("it is cut");
    let token = fs::read_to_string(streams.directory.path().join("streams/resume.token")).expect("the token");
    assert_eq!(property(&rig, "tank/resumed", "receive_resume_token").as_deref(), Some(token.trim()));
    // It survives an export, and what is to be resumed is nobody's file system.
    rig.export();
    rig.check("half received");
    rig.zdb("half received", false);
    rig.import();
    assert_eq!(property(&rig, "tank/resumed", "receive_resume_token").as_deref(), Some(token.trim()));
    assert_eq!(rig.pool().file_system("tank/resumed").map(drop).expect_err("half a file system").kind(), ErrorKind::Busy);
    receive(&rig, streams.read("full-b"), into.clone()).expect_err("it is not the rest");
    receive(&rig, streams.read("resume-part2"), into).expect("the rest");
    assert_eq!(property(&rig, "tank/resumed", "receive_resume_token"), None);
    judge(&mut rig, &streams, "resumed", &[("tank/resumed@b", "src@b")]);
}

#[test]
fn what_a_cut_stream_leaves() {
    let Some(streams) = Streams::find() else { return };
    let mut rig = Rig::create(Layout::default(), &[]);
    take(&rig, &streams, "full", "tank/one@a");
    let stream = streams.read("incr-a-b");
    let places = records(&stream);
    for at in places.iter().step_by(places.len() / 12).flat_map(|place| [*place, place + 100]).chain([stream.len() - 1]) {
        let error = receive(&rig, stream[..at].to_vec(), target("tank/one@b")).expect_err("it is cut");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "cut at {at}: {error}");
    }
    // Resumable, it is kept, and in the way until it is given up.
    let resumable = ReceiveTarget { resumable: true, ..target("tank/one@b") };
    let middle = places[places.len() / 2];
    receive(&rig, stream[..middle].to_vec(), resumable).expect_err("it is cut");
    assert_eq!(receive(&rig, stream.clone(), target("tank/one@b")).expect_err("it is kept").kind(), ErrorKind::Busy);
    rig.pool().engine().dsl.receiving().abort_receive("tank/one").expect("it is given up");
    assert_eq!(rig.pool().engine().dsl.receiving().abort_receive("tank/one").expect_err("nothing is there").kind(), ErrorKind::Invalid);
    take(&rig, &streams, "incr-a-b", "tank/one@b");
    judge(&mut rig, &streams, "cut", &[("tank/one@a", "src@a"), ("tank/one@b", "src@b")]);
}

#[test]
fn what_is_in_the_way() {
    let Some(streams) = Streams::find() else { return };
    let mut rig = Rig::create(Layout::default(), &[]);
    take(&rig, &streams, "full", "tank/one@a");
    let kind = |result: Result<(), Error>| result.expect_err("it is refused").kind();
    assert_eq!(kind(receive(&rig, streams.read("full-b"), target("tank/one@b"))), ErrorKind::Exists);
    assert_eq!(kind(receive(&rig, streams.read("incr-a-b"), target("tank/none@b"))), ErrorKind::NotFound);
    assert_eq!(kind(receive(&rig, streams.read("incr-a-b"), target("tank/one@a"))), ErrorKind::Exists);
    assert_eq!(kind(receive(&rig, streams.read("large-Lec-incr"), target("tank/one@b"))), ErrorKind::Mismatch);
    assert_eq!(kind(receive(&rig, streams.read("raw-incr"), target("tank/one@b"))), ErrorKind::Mismatch);
    // Changed since: only by force.
    let fs = rig.pool().file_system("tank/one").expect("a file system");
    fs.create(fs.root(), b"new", 0o100_644, 0, &Credentials::root()).expect("a file");
    rig.sync();
    assert_eq!(kind(receive(&rig, streams.read("incr-a-b"), target("tank/one@b"))), ErrorKind::Modified);
    let force = |name| ReceiveTarget { force: true, ..target(name) };
    assert_eq!(kind(receive(&rig, streams.read("incr-a-b"), force("tank/one@b"))), ErrorKind::Busy, "it is in use");
    fs.release_all();
    drop(fs);
    receive(&rig, streams.read("incr-a-b"), force("tank/one@b")).expect("by force");
    // A full one over what has no snapshots.
    rig.create_file_system("tank/two", &[]);
    assert_eq!(kind(receive(&rig, streams.read("raw"), force("tank/two@a"))), ErrorKind::NotSupported);
    receive(&rig, streams.read("full"), force("tank/two@a")).expect("by force");
    judge(&mut rig, &streams, "in the way", &[("tank/one@a", "src@a"), ("tank/one@b", "src@b"), ("tank/two@a", "src@a")]);
}

/// One thing is wrong with a stream, and its checksums say nothing of it.
fn spoil(random: &mut ChaCha8Rng, records: &mut Vec<(Record, Vec<u8>)>) -> String {
    let (one, other) = (random.random_range(1..records.len() - 1), random.random_range(1..records.len() - 1));
    match random.random_range(0..10) {
        0 => {
            records.swap(one, other);
            format!("records {one} and {other} are swapped")
        }
        1 => {
            records.remove(one);
            format!("record {one} is left out")
        }
        2 => {
            let copy = records[one].clone();
            records.insert(other, copy);
            format!("record {one} comes again before {other}")
        }
        3 if !records[one].1.is_empty() => {
            let at = random.random_range(0..records[one].1.len());
            records[one].1[at] ^= 1 << random.random_range(0..8);
            format!("byte {at} of the payload of record {one} is flipped")
        }
        _ => {
            let mut bytes = records[one].0.encode(StreamOrder::Little);
            let at = random.random_range(8..96);
            bytes[at] ^= 1 << random.random_range(0..8);
            if let Ok(record) = Record::decode(&bytes, StreamOrder::Little)
                && record.payload_bytes().is_ok_and(|bytes| bytes <= 1 << 20)
            {
                let length = record.payload_bytes().unwrap_or(0) as usize;
                records[one].1.resize(length, 7);
                records[one].0 = record;
            }
            format!("byte {at} of record {one} is flipped")
        }
    }
}

/// What a stream says in the contents of objects is believed, as OpenZFS does; but where that is no file system zdb cannot open it, and takes what it did
/// not see for leaked. Such a one is destroyed, which must leave nothing behind either.
fn destroy_if_hollow(rig: &Rig, snapshot: &str) -> bool {
    let dataset = snapshot.split('@').next().unwrap_or_default();
    let opened = rig.pool().file_system(dataset).map(drop);
    let is_hollow = opened.is_err_and(|error| error.kind() != ErrorKind::KeyNotLoaded);
    if is_hollow {
        let dsl = &rig.pool().engine().dsl;
        assert!(dsl.snapshot_verbs().destroy_snapshots(vec![snapshot.to_owned()], false).expect("the snapshot goes").is_empty());
        dsl.destroy_dataset(dataset).expect("the dataset goes");
    }
    is_hollow
}

#[test]
fn streams_that_lie_behind_their_checksums() {
    let Some(streams) = Streams::find() else { return };
    let seed = std::env::var("TARN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| rand::rng().next_u64());
    println!("TARN_SEED={seed} cargo test -p sim --test receive streams_that_lie");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let rounds = std::env::var("TARN_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(30);
    let mut rig = Rig::create(Layout::default(), &[]);
    let (mut refused, mut taken, mut given_up) = (0, 0, 0);
    for round in 0..rounds {
        let stream = streams.read(["compressed", "Lec", "embedded", "raw"][round % 4]);
        let mut records = stream_records(&stream);
        let what = spoil(&mut random, &mut records);
        let name = format!("tank/spoilt{round}@a");
        match receive(&rig, encode_stream(&records), target(&name)) {
            Ok(()) => {
                taken += 1;
                given_up += u32::from(destroy_if_hollow(&rig, &name));
            }
            Err(error) => {
                refused += 1;
                assert!(error.message().contains("record "), "{what}: no record is named: {error}");
                let left = rig.pool().engine().dsl.open_dataset(name.split('@').next().unwrap_or_default());
                assert_eq!(left.expect_err("nothing is left").kind(), ErrorKind::NotFound, "{what}");
            }
        }
    }
    println!("{refused} refused, {taken} taken, {given_up} of these destroyed");
    rig.export();
    rig.check("spoilt streams");
    rig.zdb("spoilt streams", false);
    rig.import();
}

#[test]
fn a_pool_that_is_full_half_way() {
    let Some(streams) = Streams::find() else { return };
    let mut rig = Rig::create(Layout { bytes: 64 << 20, tops: 1, sides: 1, ..Layout::default() }, &[("compression", "off")]);
    let mut count = 0;
    let error = loop {
        match receive(&rig, streams.read("large-L"), target(&format!("tank/full{count}@a"))) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
        assert!(count < 20, "the pool is never full");
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    let left = rig.pool().engine().dsl.open_dataset(&format!("tank/full{count}"));
    assert_eq!(left.expect_err("nothing is left").kind(), ErrorKind::NotFound);
    judge(&mut rig, &streams, "full", &[("tank/full0@a", "large@a")]);
}

/// The guid of what is sent by nobody.
const GUID: u64 = 77;
/// The type of a file's contents, and of its bonus and spill block.
const FILE: u32 = 19;
const SA: u32 = 44;

/// A bonus took all of its dnode, and a spill block came for the object: the dnode had no room for the pointer, and the thread that writes groups panicked.
#[test]
fn a_spill_block_beside_a_full_bonus_is_refused() {
    let mut rig = Rig::create(Layout::default(), &[]);
    let object = Object { object: 5, object_type: FILE, bonus_type: SA, block_bytes: 512, bonus_bytes: 320, slots: 1, to_guid: GUID, ..Object::zeroed() };
    let spill = Spill { object: 5, logical_bytes: 512, to_guid: GUID, object_type: SA, ..Spill::zeroed() };
    let pair = vec![(RecordBody::Object(object), vec![0; 320]), (RecordBody::Spill(spill), vec![0; 512])];
    let error = receive(&rig, stream_of(0, GUID, pair), target("tank/a@a")).expect_err("the dnode has no room");
    assert!(error.kind() == ErrorKind::Corrupt && error.message().contains("record 3 (SPILL)"), "{error}");
    rig.sync();
    rig.create_file_system("tank/b", &[]);
    rig.judge("a spill block beside a full bonus");
}

/// The same of a stream that was sent raw, whose bonus takes all of its dnode as it is encrypted.
#[test]
fn a_raw_spill_block_beside_a_full_bonus_is_refused() {
    let Some(streams) = Streams::find() else { return };
    let mut rig = Rig::create(Layout::default(), &[]);
    let mut records = stream_records(&streams.read("raw"));
    let full = records.iter().enumerate().find_map(|(at, (record, _))| match &record.body {
        RecordBody::Object(object) if object.raw_bonus_bytes == 320 && object.slots <= 1 => Some((at, object.object, object.to_guid)),
        _ => None,
    });
    let (at, object, to_guid) = full.expect("an object with a full bonus");
    // Compression 2 is none.
    let spill = Spill { object, logical_bytes: 512, to_guid, compression: 2, compressed_bytes: 512, object_type: SA, ..Spill::zeroed() };
    records.insert(at + 1, (record(RecordBody::Spill(spill)), vec![7; 512]));
    let error = receive(&rig, encode_stream(&records), target("tank/e@a")).expect_err("the dnode has no room");
    assert!(error.kind() == ErrorKind::Corrupt && error.message().contains(&format!("record {} (SPILL)", at + 2)), "{error}");
    rig.sync();
    // Nor is a stream taken that does not say which objects have spill blocks.
    let mut records = stream_records(&streams.read("raw"));
    if let RecordBody::Begin(begin) = &mut records[0].0.body {
        begin.flags &= !BEGIN_FLAG_SPILL_BLOCK;
    }
    let error = receive(&rig, encode_stream(&records), target("tank/e@a")).expect_err("nothing is said of spill blocks");
    assert!(error.message().contains("Spill block flag missing"), "{error}");
    rig.judge("a raw spill block beside a full bonus");
}

/// The stream as one that goes on where what is left of the dataset broke off; `change` spoils it.
fn going_on(rig: &Rig, dataset: &str, stream: &[u8], change: impl FnOnce(&mut NvList)) -> Vec<u8> {
    let dsl = &rig.pool().engine().dsl;
    let left = dsl.open_dataset(dataset).expect("what is left");
    let field = |name: &str| dsl.meta.mos.zap_u64(left.object, name).expect("a field").unwrap_or_default();
    let mut records = stream_records(stream);
    let (first, payload) = &mut records[0];
    let mut list = if payload.is_empty() { NvList::new() } else { NvList::decode(payload).expect("a list") };
    list.set("resume_object", field("com.delphix:resume_object"));
    list.set("resume_offset", field("com.delphix:resume_offset"));
    change(&mut list);
    *payload = list.encode_native();
    first.begin_payload_bytes = payload.len() as u32;
    let RecordBody::Begin(begin) = &mut first.body else { panic!("{dataset}: no BEGIN record") };
    begin.version_info |= StreamFeatures::RESUMING.bits() << 2;
    encode_stream(&records)
}

/// What went on with a receive that broke off was compared with that by guids and the place: what was sent plain went on with what was sent raw, and the other
/// way round, and the pool stopped when it was written. A stream with another master key replaced that of the snapshots before.
#[test]
fn a_stream_of_the_other_kind_does_not_go_on() {
    let Some(streams) = Streams::find() else { return };
    let mut rig = Rig::create(Layout::default(), &[]);
    let raw = streams.read("raw");
    let guid = stream_records(&raw)[0].0.to_guid();
    let places = records(&raw);
    let resumable = |name: &str| ReceiveTarget { resumable: true, ..target(name) };
    receive(&rig, raw[..places[places.len() / 2]].to_vec(), resumable("tank/e@a")).expect_err("it is cut");
    let object = Object { object: 5, object_type: FILE, bonus_type: SA, block_bytes: 512, bonus_bytes: 168, slots: 1, to_guid: guid, ..Object::zeroed() };
    let write = Write { object: 5, object_type: FILE, logical_bytes: 512, to_guid: guid, ..Write::zeroed() };
    let plain = stream_of(0, guid, vec![(RecordBody::Object(object), vec![0; 168]), (RecordBody::Write(write), vec![7; 512])]);
    receive(&rig, plain[..plain.len() - RECORD_SIZE].to_vec(), resumable("tank/p@a")).expect_err("it has no end");
    // Both are there to the same place, but of two kinds.
    for (dataset, stream) in [("tank/e", &plain), ("tank/p", &raw)] {
        let error = receive(&rig, going_on(&rig, dataset, stream, |_| ()), resumable(&format!("{dataset}@a"))).expect_err("it is of the other kind");
        assert!(error.kind() == ErrorKind::Invalid && error.message().contains("was sent raw"), "{dataset}: {error}");
    }
    let other_key = going_on(&rig, "tank/e", &raw, |list| {
        let Some(Value::List(key)) = list.get_mut("crypt_keydata") else { panic!("no key") };
        let theirs = key.u64("DSL_CRYPTO_GUID").expect("a guid");
        key.set("DSL_CRYPTO_GUID", theirs ^ 1);
    });
    let error = receive(&rig, other_key, resumable("tank/e@a")).expect_err("it has another key");
    assert!(error.kind() == ErrorKind::NotSupported && error.message().contains("encryption key does not match existing key"), "{error}");
    rig.sync();
    for dataset in ["tank/e", "tank/p"] {
        rig.pool().engine().dsl.receiving().abort_receive(dataset).expect("it is given up");
    }
    rig.judge("of the other kind");
}

/// Where a log block lies that nobody has written.
const LOG_AT: u64 = 128 << 20;

/// Gives an encrypted dataset the header of a log of one block, which was never written. `claimed`: by an import after which the block is allocated; else it
/// was allocated in a group that is not on disk.
fn give_empty_log(rig: &Rig, dataset: &str, claimed: bool) {
    give_log_at(rig.pool(), Dva::new(0, LOG_AT, 4096), dataset, claimed);
}

fn give_log_at(pool: &Pool, place: Dva, dataset: &str, claimed: bool) {
    let engine = pool.engine();
    let objset = engine.dsl.objset(&engine.dsl.open_dataset(dataset).expect("the dataset")).expect("its objects");
    let txg = engine.context.groups.open_txg();
    let mut pointer = DataPointer::new(&[place], ObjectType::INTENT_LOG, 0, if claimed { txg } else { txg + 8 });
    (pointer.logical_size, pointer.physical_size) = (4096, 4096);
    (pointer.checksum_algorithm, pointer.checksum) = (ChecksumAlgorithm::Zilog2, [1, 2, objset.dataset(), 1]);
    let mut header = LogHeader::new_zeroed();
    header.log = pointer.encode();
    if claimed {
        header.claim_txg = txg.into();
        header.claim_block_sequence = 1.into();
    }
    let mut bytes = [0; ZIL_HEADER_BYTES];
    bytes.copy_from_slice(header.as_bytes());
    let change = engine.dsl.queue_task(move |dsl, tx| {
        if claimed {
            dsl.meta.context.io.allocator().claim(place, tx.txg())?;
        }
        objset.set_zil_header(tx, bytes);
        Ok(())
    });
    change.expect("a task");
    pool.sync().expect("it is on disk");
    pool.sync().expect("it is on disk");
}

/// The header of an encrypted dataset led to a block of a group that was not on disk. It was neither claimed nor forgotten: others got its space, and a program that
/// claimed the log later, or destroyed the dataset, took it from them.
#[test]
fn a_log_block_of_a_lost_group_is_forgotten() {
    let Some(streams) = Streams::find() else { return };
    let mut rig = Rig::create(Layout::default(), &[]);
    take(&rig, &streams, "raw", "tank/e@a");
    give_empty_log(&rig, "tank/e", false);
    let first_block = |rig: &Rig| {
        let dsl = &rig.pool().engine().dsl;
        header_first_block(&dsl.objset(&dsl.open_dataset("tank/e").expect("the dataset")).expect("its objects").zil_header())
    };
    assert!(first_block(&rig).is_some());
    rig.crash();
    rig.import();
    rig.sync();
    assert_eq!(first_block(&rig), None);
    rig.judge("a log block of a lost group");
}

/// An import looks at all logs that are open. The dataset whose log it had seen to be claimed and empty was destroyed without the block of that.
#[test]
fn a_claimed_empty_log_goes_with_its_dataset() {
    let Some(streams) = Streams::find() else { return };
    let mut rig = Rig::create(Layout::default(), &[]);
    take(&rig, &streams, "raw", "tank/e@a");
    give_empty_log(&rig, "tank/e", true);
    let dsl = rig.pool().engine().dsl.clone();
    let refusals = dsl.snapshot_verbs().destroy_snapshots(vec!["tank/e@a".to_owned()], false).expect("the snapshot goes");
    assert!(refusals.is_empty(), "{refusals:?}");
    let needs_replay = Zil::of(&dsl.objset(&dsl.open_dataset("tank/e").expect("the dataset")).expect("its objects")).needs_replay();
    assert!(!needs_replay);
    dsl.destroy_dataset("tank/e").expect("the dataset goes");
    drop(dsl);
    rig.judge("a claimed log without records");
}

/// A file of several blocks was removed, and another one with smaller blocks got its number: the next stream could not be received on top of the old file.
#[test]
fn a_reused_object_number_gets_blocks_of_another_size() {
    let Some(streams) = Streams::find() else { return };
    let mut rig = Rig::create(Layout::default(), &[]);
    take(&rig, &streams, "raw", "tank/e@a");
    let mut records = stream_records(&streams.read("raw-incr"));
    let is_written = |object: u64| records.iter().any(|(record, _)| matches!(&record.body, RecordBody::Write(write) if write.object == object));
    let old = records.iter().position(|(record, _)| match &record.body {
        RecordBody::Object(object) => object.object_type == FILE && object.last_block > 0 && !is_written(object.object),
        _ => false,
    });
    let at = old.expect("a file of several blocks that did not change");
    let RecordBody::Object(file) = &mut records[at].0.body else { unreachable!("found above") };
    assert!(file.block_bytes > 65536, "{file:?}");
    (file.block_bytes, file.last_block) = (65536, 0);
    let (object, to_guid) = (file.object, file.to_guid);
    // Compression 2 is none.
    let write = Write { object, object_type: FILE, logical_bytes: 65536, compression: 2, compressed_bytes: 65536, to_guid, ..Write::zeroed() };
    records.insert(at + 1, (record(RecordBody::Write(write)), vec![7; 65536]));
    receive(&rig, encode_stream(&records), target("tank/e@b")).expect("the number is used again");
    let dsl = rig.pool().engine().dsl.clone();
    let info = dsl.objset(&dsl.open_dataset("tank/e@b").expect("the snapshot")).expect("its objects").hold(object).expect("the new file").info();
    assert_eq!((info.block_bytes, info.max_block), (65536, 0));
    drop(dsl);
    rig.judge("a reused object number");
}

/// The device of the intent log was lost. Those of plain datasets are given up when that is asked for; with an encrypted one the pool could not be imported at all.
#[test]
fn a_lost_log_device_takes_the_log_of_an_encrypted_dataset() {
    let Some(streams) = Streams::find() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let image = |name: &str, bytes: u64| {
        let path = directory.path().join(name);
        fs::File::create(&path).and_then(|file| file.set_len(bytes)).expect("an image");
        path
    };
    let (data, log) = (image("data.img", 256 << 20), image("log.img", 64 << 20));
    let vdev = |path: &std::path::PathBuf, bias| VdevPaths { paths: vec![path.clone()], bias, ..VdevPaths::default() };
    let pool = Pool::create("tank", &[vdev(&data, Bias::None), vdev(&log, Bias::Log)], CreateOptions::default()).expect("a pool");
    receive_into(&pool, streams.read("raw"), target("tank/e@a")).expect("a stream");
    give_log_at(&pool, Dva::new(1, 8 << 20, 4096), "tank/e", false);
    pool.abandon();
    drop(pool);
    fs::remove_file(&log).expect("the log device");
    let options = ImportOptions { force: true, forget_log: true, ..ImportOptions::default() };
    let pool = Pool::import(&[data], "tank", options).unwrap_or_else(|error| panic!("{error}"));
    pool.sync().expect("it goes on");
    let dsl = pool.engine().dsl.clone();
    let header = dsl.objset(&dsl.open_dataset("tank/e").expect("the dataset")).expect("its objects").zil_header();
    assert_eq!(header_first_block(&header), None);
    drop(dsl);
    let report = pool.check(true, &|_| ()).expect("a check");
    assert!(report.is_clean(), "{:#?}", report.findings);
    pool.export().expect("an export");
}

/// The beginning of a raw stream says where its dnodes end. What was beyond that was cut off, and what those dnodes led to was never freed.
#[test]
fn a_raw_stream_whose_dnodes_end_before_those_that_are_there_is_refused() {
    let Some(streams) = Streams::find() else { return };
    let mut rig = Rig::create(Layout::default(), &[]);
    take(&rig, &streams, "raw", "tank/e@a");
    let mut records = stream_records(&streams.read("raw-incr"));
    let (first, payload) = &mut records[0];
    let mut list = NvList::decode(payload).expect("a list");
    let Some(Value::List(key)) = list.get_mut("crypt_keydata") else { panic!("no key") };
    assert!(key.u64("mdn_maxblkid").is_some_and(|end| end > 0));
    key.set("mdn_maxblkid", 0u64);
    *payload = list.encode_native();
    first.begin_payload_bytes = payload.len() as u32;
    let error = receive(&rig, encode_stream(&records), target("tank/e@b")).expect_err("dnodes are cut off");
    assert!(error.kind() == ErrorKind::Invalid && error.message().contains("end before those of"), "{error}");
    take(&rig, &streams, "raw-incr", "tank/e@b");
    rig.judge("dnodes that end earlier");
}

/// An object came without what protects its block of dnodes, which had that on disk: until a group that was being written had freed all that was in it. Then
/// the next group could not be written, and the pool stopped.
#[test]
fn a_raw_object_without_what_protects_its_dnode_is_refused() {
    let Some(streams) = Streams::find() else { return };
    let mut rig = Rig::create(Layout::default(), &[]);
    take(&rig, &streams, "raw", "tank/e@a");
    let mut records = stream_records(&streams.read("raw-incr"));
    records.retain(|(record, _)| !matches!(record.body, RecordBody::ObjectRange(_)));
    let error = receive(&rig, encode_stream(&records), target("tank/e@b")).expect_err("nothing protects the dnodes");
    assert!(error.kind() == ErrorKind::Corrupt && error.message().contains("nothing was said of the block"), "{error}");
    rig.judge("objects without what protects them");
}

/// A part of a block was to be free: what is not encrypted was read, changed and could not be written, and the pool stopped.
#[test]
fn a_part_of_a_block_is_not_freed_without_its_key() {
    let Some(streams) = Streams::find() else { return };
    let mut rig = Rig::create(Layout::default(), &[]);
    let mut records = stream_records(&streams.read("raw"));
    let written = records.iter().enumerate().find_map(|(at, (record, _))| match &record.body {
        RecordBody::Write(write) if write.logical_bytes >= 1024 => Some((at, write.object, write.offset, write.to_guid)),
        _ => None,
    });
    let (at, object, offset, to_guid) = written.expect("a block");
    let free = Free { object, offset: offset + 512, bytes: 512, to_guid };
    records.insert(at + 1, (record(RecordBody::Free(free)), Vec::new()));
    let error = receive(&rig, encode_stream(&records), target("tank/e@a")).expect_err("it takes the key");
    assert!(error.kind() == ErrorKind::Corrupt && error.message().contains("no whole blocks"), "{error}");
    rig.judge("a part of a block");
}

/// The master node of an encrypted file system can be read without the key, and was changed: the pool stopped.
#[test]
fn a_locked_file_system_is_not_upgraded() {
    let Some(streams) = Streams::find() else { return };
    let mut rig = Rig::create(Layout::default(), &[]);
    take(&rig, &streams, "raw", "tank/e@a");
    let error = rig.pool().upgrade_file_system("tank/e", 5).expect_err("it takes the key");
    assert_eq!(error.kind(), ErrorKind::KeyNotLoaded, "{error}");
    rig.judge("a locked file system");
}
