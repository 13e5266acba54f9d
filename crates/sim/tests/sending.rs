//! Sending: streams of our own pools are whole, as long as they were said to be, and an incremental one costs what has changed.

use engine::dsl::NewSnapshots;
use engine::error::ErrorKind;
use engine::stream::{Progress, SendOptions, Sender, StreamReader};
use ondisk::stream::RecordBody;
use sim::places::say;
use sim::scenario::{Layout, Mix, RandomSteps, Rig, contents};
use tarnfs::{Credentials, WriteMode};

const HEADS: [&str; 3] = ["tank", "tank/a", "tank/a/b"];
/// One changed block among so many files.
const FILES: u64 = 20_000;
/// What an incremental stream of one block may read.
const BLOCKS_READ_MAX: u64 = 100;

#[track_caller]
fn take(rig: &Rig, short: &str, heads: &[&str]) {
    let new = NewSnapshots { names: heads.iter().map(|head| format!("{head}@{short}")).collect(), properties: Vec::new() };
    let refusals = rig.pool().engine().dsl.snapshot_verbs().create_snapshots(new).unwrap();
    assert!(refusals.is_empty(), "{refusals:?}");
}

fn send(rig: &Rig, snapshot: &str, from: Option<&str>, options: &SendOptions) -> Vec<u8> {
    let sender = Sender::new(&rig.pool().engine().dsl, snapshot, from, options).unwrap_or_else(|error| panic!("{snapshot}: {error}"));
    let mut stream = Vec::new();
    sender.send(&mut stream, &|| false).unwrap_or_else(|error| panic!("{snapshot}: {error}"));
    assert_eq!(sender.count(&|| false).unwrap(), stream.len() as u64, "{snapshot}: as long as it was said to be");
    stream
}

/// How many WRITE records a stream has; it is whole, and its records are in order.
fn writes(stream: &[u8], what: &str) -> u64 {
    let mut reader = StreamReader::new(stream);
    let (mut progress, mut payload, mut writes) = (Progress::default(), Vec::new(), 0);
    let mut last = (0, 0);
    while let Some(received) = reader.next(&mut payload).unwrap_or_else(|error| panic!("{what}: {error}")) {
        progress.take(&received).unwrap_or_else(|error| panic!("{what}: {error}"));
        if let RecordBody::Write(write) = &received.record.body {
            assert!((write.object, write.offset + 1) > last, "{what}: {} is out of order", received.place());
            last = (write.object, write.offset + 1);
            writes += 1;
        }
    }
    progress.finish().unwrap_or_else(|error| panic!("{what}: {error}"));
    writes
}

#[test]
fn streams_of_our_pools_are_whole() {
    let mut rig = Rig::create(Layout { bytes: 512 << 20, ..Layout::default() }, &[("compression", "lz4")]);
    rig.create_file_system("tank/a", &[("recordsize", "16384")]);
    rig.create_file_system("tank/a/b", &[("recordsize", "1048576"), ("dnodesize", "1"), ("compression", "zstd")]);
    let mut steps = RandomSteps::new(7, Mix::default());
    let mut streams = 0;
    for round in 0..4 {
        for head in HEADS {
            let mut actor = rig.actor(head);
            (0..80).for_each(|_| steps.step(&mut actor));
        }
        take(&rig, &format!("s{round}"), &HEADS);
        for head in HEADS {
            for flags in 0..8 {
                let options = SendOptions { large_blocks: flags & 1 != 0, embedded: flags & 2 != 0, compressed: flags & 4 != 0, ..SendOptions::default() };
                let snapshot = format!("{head}@s{round}");
                writes(&send(&rig, &snapshot, None, &options), &snapshot);
                if round > 0 {
                    let from = format!("{head}@s{}", round - 1);
                    writes(&send(&rig, &snapshot, Some(&from), &options), &snapshot);
                }
                streams += 1;
            }
        }
    }
    let backwards = Sender::new(&rig.pool().engine().dsl, "tank@s0", Some("tank@s1"), &SendOptions::default());
    assert_eq!(backwards.err().map(|error| error.kind()), Some(ErrorKind::CrossDevice));
    let strange = Sender::new(&rig.pool().engine().dsl, "tank/a@s1", Some("tank@s0"), &SendOptions::default());
    assert_eq!(strange.err().map(|error| error.kind()), Some(ErrorKind::CrossDevice));
    say(&format!("{streams} streams are whole"));
    rig.export();
    rig.check("after sending");
}

#[test]
fn an_incremental_stream_reads_what_has_changed() {
    let mut rig = Rig::create(Layout { bytes: 512 << 20, ..Layout::default() }, &[]);
    let user = Credentials::root();
    let mut changed = 0;
    {
        let fs = rig.pool().file_system("tank").unwrap();
        for directory in 0..FILES / 500 {
            let stat = fs.mkdir(fs.root(), format!("d{directory}").as_bytes(), 0o755, &user).unwrap();
            for file in 0..500u64 {
                let made = fs.create(stat.inode, format!("f{file}").as_bytes(), 0o100_644, 0, &user).unwrap();
                fs.write(made.inode, WriteMode::At(0), &contents(file, 600, 0), &user).unwrap();
                changed = if (directory, file) == (FILES / 1000, 250) { made.inode } else { changed };
                fs.forget(made.inode, 1);
            }
            fs.forget(stat.inode, 1);
        }
        take(&rig, "a", &["tank"]);
        fs.write(changed, WriteMode::At(0), b"changed", &user).unwrap();
        take(&rig, "b", &["tank"]);
    }
    rig.export();
    rig.import();
    let cache = &rig.pool().engine().context.cache;
    let sender = Sender::new(&rig.pool().engine().dsl, "tank@b", Some("tank@a"), &SendOptions::default()).unwrap();
    let before = cache.stats();
    let mut stream = Vec::new();
    sender.send(&mut stream, &|| false).unwrap();
    let after = cache.stats();
    let written = writes(&stream, "incremental");
    let read = after.misses - before.misses + after.ahead.issued - before.ahead.issued + written;
    say(&format!("an incremental stream of one changed block among {FILES} files: {read} blocks read, {} bytes", stream.len()));
    assert!(written >= 1 && read <= BLOCKS_READ_MAX, "{read} blocks were read for {written} that are sent");
}
