//! Streams that lie behind their checksums, applied to a pool: an error or a dataset, and a pool in which nothing is wrong.

use std::io::Cursor;
use std::sync::OnceLock;

use engine::dsl::{NewSnapshots, ReceiveTarget};
use engine::stream::receive::Receiving;
use engine::stream::{Progress, SendOptions, Sender, StreamReader, redact};
use ondisk::stream::{Record, StreamOrder};
use sim::scenario::{Layout, MemoryDisks, contents, encode_stream, stream_records};
use tarnfs::{Credentials, Pool, WriteMode};

use crate::Input;

const MIB: u64 = 1 << 20;
/// No payload is made longer.
const PAYLOAD_BYTES_MAX: u64 = 1 << 20;

type Records = Vec<(Record, Vec<u8>)>;

/// A pool with snapshots `tank/src@a` and `@b`, and streams of it.
struct Base {
    disks: MemoryDisks,
    streams: Vec<(&'static str, Records)>,
}

/// Some files, those of `seed` changed.
fn write(pool: &Pool, seed: u64) {
    let (fs, user) = (pool.file_system("tank/src").expect("a file system"), Credentials::root());
    for number in 0..8_u64 {
        let name = format!("f{number}");
        let made = fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &user).or_else(|_| fs.lookup(fs.root(), name.as_bytes()));
        let inode = made.expect("a file").inode;
        if (number + seed).is_multiple_of(2) {
            fs.write(inode, WriteMode::At(number * 3000), &contents(seed + number, 1 << (number + 5), 1), &user).expect("contents");
            let _ = fs.setxattr(inode, b"user.x", &contents(seed, 300, 0), tarnfs::XattrMode::Any);
        }
    }
    let _ = fs.unlink(fs.root(), format!("f{}", seed + 3).as_bytes());
    fs.release_all();
}

fn take(pool: &Pool, name: &str) {
    let new = NewSnapshots { names: vec![name.to_owned()], properties: Vec::new() };
    assert!(pool.engine().dsl.snapshot_verbs().create_snapshots(new).expect("a snapshot").is_empty());
}

fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| {
        let disks = MemoryDisks::create(Layout { tops: 1, sides: 1, parity: 0, bytes: 128 * MIB, ashift: 9 }, &[("recordsize", "4096"), ("compression", "lz4")]);
        let pool = disks.import(false).expect("the pool");
        let dsl = pool.engine().dsl.clone();
        pool.create_file_system("tank/src", Vec::new()).expect("a file system");
        write(&pool, 0);
        take(&pool, "tank/src@a");
        write(&pool, 1);
        take(&pool, "tank/src@b");
        pool.clone_dataset("tank/src@b", "tank/clone", Vec::new()).expect("a clone");
        let fs = pool.file_system("tank/clone").expect("the clone");
        let _ = fs.unlink(fs.root(), b"f5");
        fs.release_all();
        drop(fs);
        take(&pool, "tank/clone@c");
        redact(&dsl, "tank/src@b", "book", &["tank/clone@c".to_owned()]).expect("a redaction bookmark");
        let as_on_disk = SendOptions { large_blocks: true, embedded: true, compressed: true, ..SendOptions::default() };
        let redacted = SendOptions { redact: Some("book".to_owned()), ..SendOptions::default() };
        let send = |from: Option<&str>, options: &SendOptions| {
            let mut stream = Vec::new();
            Sender::new(&dsl, "tank/src@b", from, options).expect("a sender").send(&mut stream, &|| false).expect("a stream");
            stream_records(&stream)
        };
        let streams = vec![
            ("tank/new@b", send(None, &SendOptions::default())),
            ("tank/new@b", send(None, &as_on_disk)),
            ("tank/new@b", send(None, &redacted)),
            ("tank/dst@b", send(Some("tank/src@a"), &as_on_disk)),
        ];
        let mut first = Vec::new();
        Sender::new(&dsl, "tank/src@a", None, &as_on_disk).expect("a sender").send(&mut first, &|| false).expect("a stream");
        apply(&pool, first, "tank/dst@a", false).expect("it is received");
        drop(dsl);
        pool.export().expect("an export");
        Base { disks, streams }
    })
}

fn apply(pool: &Pool, stream: Vec<u8>, name: &str, resumable: bool) -> Result<(), engine::error::Error> {
    let (dataset, snapshot) = name.split_once('@').expect("a snapshot");
    let target = ReceiveTarget { dataset: dataset.to_owned(), snapshot: snapshot.to_owned(), resumable, ..ReceiveTarget::default() };
    let receiving = Receiving::open(StreamReader::new(Cursor::new(stream)), Progress::default())?;
    receiving.receive(&pool.engine().dsl, target, |_, _| ()).1?.end()
}

/// Changes one thing.
fn spoil(records: &mut Records, input: &mut Input<'_>) {
    let (kind, one, other) = (input.u8() % 6, input.below(records.len()), input.below(records.len()));
    match kind {
        0 => records.swap(one, other),
        1 => drop(records.remove(one)),
        2 => {
            let copy = records[one].clone();
            records.insert(other, copy);
        }
        3 if !records[one].1.is_empty() => {
            let at = input.below(records[one].1.len());
            records[one].1[at] ^= input.u8();
        }
        _ => {
            let mut bytes = records[one].0.encode(StreamOrder::Little);
            for _ in 0..=input.u8() % 4 {
                let at = input.below(bytes.len());
                bytes[at] ^= input.u8();
            }
            let Ok(record) = Record::decode(&bytes, StreamOrder::Little) else { return };
            let Ok(length) = record.payload_bytes() else { return };
            if length <= PAYLOAD_BYTES_MAX {
                records[one].1.resize(length as usize, 7);
                records[one].0 = record;
            }
        }
    }
}

/// Applies a changed stream.
pub(super) fn receive(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let base = base();
    let (name, records) = &base.streams[input.below(base.streams.len())];
    let mut records = records.clone();
    let resumable = input.u8() % 2 == 1;
    let cut = input.u16();
    while !input.is_empty() && records.len() > 1 {
        spoil(&mut records, &mut input);
    }
    let mut stream = encode_stream(&records);
    if cut % 8 == 7 {
        stream.truncate(usize::from(cut) * stream.len() / (1 << 16));
    }
    let disks = base.disks.snapshot();
    let pool = disks.import(false).expect("the pool");
    let applied = apply(&pool, stream, name, resumable);
    if applied.is_ok() {
        // What was received may be nonsense, but looking at it is harmless.
        crate::image::exercise::look(&pool);
    }
    pool.export().expect("an export");
    drop(pool);
    let pool = disks.import(true).expect("the pool");
    let report = pool.check(true, &|_| ()).expect("a check");
    assert!(report.is_clean(), "{applied:?}: {:?}", report.findings);
    pool.export().expect("nothing to write");
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for stream in 0..4_u8 {
        seeds.push(vec![stream, 0, 0, 0]);
        seeds.push(vec![stream, 1, 0xff, 0x7f]);
        for kind in 0..6_u8 {
            seeds.push(vec![stream, kind % 2, 0, 0, kind, 40, 3, 90, 9, 17, 4, 33, 128, 7, 2]);
        }
    }
    seeds
}
