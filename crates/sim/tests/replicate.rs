//! What is sent and received again and again is what it was: random changes with snapshots between, each sent on top of the one before into another file system of the
//! same pool, in all ways; and what went wrong elsewhere, by name.
//!
//! `TARN_SEED=n TARN_ROUNDS=m cargo test --test replicate`: from that seed on, so many rounds.

use std::fs::File;
use std::io::Cursor;
use std::os::unix::fs::FileExt;

use engine::dsl::{NewSnapshots, ReceiveTarget};
use engine::error::{Error, ErrorKind};
use engine::stream::receive::Receiving;
use engine::stream::{Progress, SendOptions, Sender, StreamReader, redact};
use ondisk::blkptr::{BlkPtr, BlockPointer};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::places::say;
use sim::scenario::{Layout, Mix, RandomSteps, Rig, contents};
use tarnfs::{Credentials, FileSystem, InodeNumber, WriteMode};

/// Where a vdev's space begins on its devices.
const DATA_START: u64 = 4 << 20;
const SMALL: Layout = Layout { tops: 1, sides: 1, parity: 0, bytes: 512 << 20, ashift: 12 };

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[track_caller]
fn take(rig: &Rig, names: &[String]) {
    let new = NewSnapshots { names: names.to_vec(), properties: Vec::new() };
    let refusals = rig.pool().engine().dsl.snapshot_verbs().create_snapshots(new).unwrap();
    assert!(refusals.is_empty(), "{refusals:?}");
}

fn send(rig: &Rig, snapshot: &str, from: Option<&str>, options: &SendOptions) -> Vec<u8> {
    let sender = Sender::new(&rig.pool().engine().dsl, snapshot, from, options).unwrap_or_else(|error| panic!("{snapshot}: {error}"));
    let mut stream = Vec::new();
    sender.send(&mut stream, &|| false).unwrap_or_else(|error| panic!("{snapshot}: {error}"));
    stream
}

fn opened(stream: Vec<u8>) -> Receiving<Cursor<Vec<u8>>> {
    Receiving::open(StreamReader::new(Cursor::new(stream)), Progress::default()).unwrap()
}

/// As `dataset@snapshot`, by force.
fn receive_as(rig: &Rig, stream: Vec<u8>, name: &str, resumable: bool) -> Result<(), Error> {
    let (dataset, snapshot) = name.split_once('@').unwrap();
    let target = ReceiveTarget { dataset: dataset.to_owned(), snapshot: snapshot.to_owned(), force: true, resumable, ..ReceiveTarget::default() };
    opened(stream).receive(&rig.pool().engine().dsl, target, |_, _| ()).1?.end()
}

#[track_caller]
fn receive(rig: &Rig, stream: Vec<u8>, name: &str) {
    receive_as(rig, stream, name, false).unwrap_or_else(|error| panic!("{name}: {error}"));
}

/// What is in a received file system is what the model of the one that was sent says.
fn compare(rig: &Rig, sent: &str, received: &str, what: &str) {
    let fs = rig.pool().file_system(received).unwrap();
    rig.model(sent).compare(&fs, what);
    fs.release_all();
}

fn file(fs: &FileSystem, name: &str) -> InodeNumber {
    let found = fs.lookup(fs.root(), name.as_bytes()).unwrap().inode;
    fs.forget(found, 1);
    found
}

fn read(fs: &FileSystem, name: &str) -> Vec<u8> {
    let file = file(fs, name);
    fs.read(file, 0, fs.getattr(file).unwrap().size as usize).unwrap()
}

/// Inverts all copies of a block, in the images of a pool that is exported.
fn damage(rig: &Rig, pointer: &BlkPtr) {
    let image = File::options().read(true).write(true).open(&rig.images()[0]).unwrap();
    for dva in pointer.dvas() {
        let mut bytes = vec![0; pointer.physical_size() as usize];
        image.read_exact_at(&mut bytes, DATA_START + dva.offset).unwrap();
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
        image.write_all_at(&bytes, DATA_START + dva.offset).unwrap();
    }
    image.sync_all().unwrap();
}

fn judge(mut rig: Rig, what: &str) {
    rig.export();
    rig.check(what);
    rig.zdb(what, true);
}

#[test]
fn what_is_sent_again_and_again_is_the_same() {
    let seed = number("TARN_SEED").unwrap_or_else(|| rand::rng().next_u64());
    say(&format!("TARN_SEED={seed}"));
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut rig = Rig::create(SMALL, &[("recordsize", "8192"), ("compression", "lz4")]);
    rig.create_file_system("tank/src", &[("recordsize", "4096")]);
    let mut steps = RandomSteps::new(seed, Mix::default());
    let rounds = number("TARN_ROUNDS").unwrap_or(12);
    for round in 0..rounds {
        let mut actor = rig.actor("tank/src");
        (0..60).for_each(|_| steps.step(&mut actor));
        let name = |round: u64| format!("tank/src@s{round}");
        take(&rig, &[name(round)]);
        let bits = random.random_range(0..8);
        let options = SendOptions { large_blocks: true, embedded: bits & 2 != 0, compressed: bits & 4 != 0, ..SendOptions::default() };
        let before = round.checked_sub(1).map(name);
        let stream = send(&rig, &name(round), before.as_deref(), &options);
        receive(&rig, stream, &format!("tank/dst@s{round}"));
        compare(&rig, "tank/src", "tank/dst", &format!("round {round}"));
        // It is rolled back, and gets what came after that once more. An earlier time may have taken the snapshot away.
        let to = round.saturating_sub(2);
        let is_there = rig.pool().engine().dsl.open_dataset(&format!("tank/dst@s{to}")).is_ok();
        if round >= 2 && is_there && random.random_bool(0.3) {
            rig.pool().roll_back("tank/dst", Some(&format!("s{to}"))).unwrap_or_else(|error| {
                assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
            });
            let stream = send(&rig, &name(round), Some(&name(to)), &options);
            let later: Vec<String> = (to + 1..=round).map(|round| format!("tank/dst@s{round}")).collect();
            assert!(rig.pool().engine().dsl.snapshot_verbs().destroy_snapshots(later, false).unwrap().is_empty());
            receive(&rig, stream, &format!("tank/dst@s{round}"));
            compare(&rig, "tank/src", "tank/dst", &format!("round {round}, once more"));
        }
    }
    judge(rig, "after replication");
}

/// openzfs 4996, 5030, 6050: holes that were something before, in an object that is larger, or another one, now.
#[test]
fn holes_that_were_something_are_sent() {
    let mut rig = Rig::create(SMALL, &[("recordsize", "4096"), ("compression", "off")]);
    rig.create_file_system("tank/src", &[]);
    let user = Credentials::root();
    let block = |seed: u64| contents(seed, 4096, 0);
    {
        let fs = rig.pool().file_system("tank/src").unwrap();
        for name in ["cut", "grown", "again", "punched", "indirect"] {
            fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &user).unwrap();
            // Enough for two levels of pointers.
            for number in 0..300 {
                fs.write(file(&fs, name), WriteMode::At(number * 4096), &block(number), &user).unwrap();
            }
        }
        fs.release_all();
    }
    take(&rig, &["tank/src@a".to_owned()]);
    let old_number;
    {
        let fs = rig.pool().file_system("tank/src").unwrap();
        // Cut, and longer again, with a block far behind (4996).
        fs.truncate(file(&fs, "cut"), 5000, &user).unwrap();
        fs.sync_group().unwrap();
        fs.write(file(&fs, "cut"), WriteMode::At(2000 * 4096), &block(1), &user).unwrap();
        // Empty for a moment, and much larger: the levels above are new (5030).
        fs.truncate(file(&fs, "grown"), 0, &user).unwrap();
        fs.sync_group().unwrap();
        fs.write(file(&fs, "grown"), WriteMode::At(40_000 * 4096), &block(2), &user).unwrap();
        // Another file with the same number, of which only the end is written (6050).
        old_number = file(&fs, "again");
        fs.unlink(fs.root(), b"again").unwrap();
        fs.sync_group().unwrap();
        fs.sync_group().unwrap();
        for attempt in 0..400 {
            let made = fs.create(fs.root(), format!("new{attempt}").as_bytes(), 0o100_644, 0, &user).unwrap().inode;
            if made == old_number {
                fs.write(made, WriteMode::At(299 * 4096), &block(3), &user).unwrap();
            }
        }
        fs.punch_hole(file(&fs, "punched"), 10 * 4096, 20 * 4096, &user).unwrap();
        fs.punch_hole(file(&fs, "indirect"), 0, 299 * 4096, &user).unwrap();
        fs.release_all();
    }
    take(&rig, &["tank/src@b".to_owned()]);
    for (number, options) in [SendOptions::default(), SendOptions { compressed: true, embedded: true, large_blocks: true, ..SendOptions::default() }].iter().enumerate() {
        let dst = format!("tank/dst{number}");
        receive(&rig, send(&rig, "tank/src@a", None, options), &format!("{dst}@a"));
        receive(&rig, send(&rig, "tank/src@b", Some("tank/src@a"), options), &format!("{dst}@b"));
        let (ours, theirs) = (rig.pool().file_system("tank/src").unwrap(), rig.pool().file_system(&dst).unwrap());
        let mut seen = 0;
        let mut names = Vec::new();
        let list = ours.read_directory(ours.root(), 0, &mut |entry| {
            names.push(String::from_utf8(entry.name.clone()).unwrap());
            true
        });
        list.unwrap();
        for name in names.iter().filter(|name| !matches!(name.as_str(), "." | "..")) {
            assert!(read(&ours, name) == read(&theirs, name), "{name}");
            seen += 1;
        }
        assert!(seen > 400);
        ours.release_all();
        theirs.release_all();
    }
    judge(rig, "holes");
}

/// Writes every third block of a file, beginning with block `seed`.
fn rewrite(rig: &Rig, dataset: &str, seed: u64) {
    let fs = rig.pool().file_system(dataset).unwrap();
    let user = Credentials::root();
    if fs.lookup(fs.root(), b"f").is_err() {
        fs.create(fs.root(), b"f", 0o100_644, 0, &user).unwrap();
    }
    for block in (seed % 3..60).step_by(3) {
        fs.write(file(&fs, "f"), WriteMode::At(block * 4096), &contents(seed * 100 + block, 4096, 0), &user).unwrap();
    }
    fs.release_all();
}

/// What was received is changed, rolled back to an older snapshot and changed again: an incremental stream from that snapshot makes of it what was sent.
#[test]
fn an_incremental_goes_onto_a_dataset_that_was_rolled_back() {
    let mut rig = Rig::create(SMALL, &[("recordsize", "4096"), ("compression", "off")]);
    rig.create_file_system("tank/src", &[]);
    let contents_of = |rig: &Rig, dataset: &str| {
        let fs = rig.pool().file_system(dataset).unwrap();
        let bytes = read(&fs, "f");
        fs.release_all();
        bytes
    };
    for (round, snapshot) in ["a", "b", "c"].iter().enumerate() {
        rewrite(&rig, "tank/src", round as u64 + 1);
        take(&rig, &[format!("tank/src@{snapshot}")]);
    }
    let options = SendOptions::default();
    receive(&rig, send(&rig, "tank/src@a", None, &options), "tank/dst@a");
    receive(&rig, send(&rig, "tank/src@b", Some("tank/src@a"), &options), "tank/dst@b");
    rewrite(&rig, "tank/dst", 7);
    assert_eq!(rig.pool().roll_back("tank/dst", Some("a")).expect_err("a newer one").kind(), ErrorKind::Exists);
    assert!(rig.pool().engine().dsl.snapshot_verbs().destroy_snapshots(vec!["tank/dst@b".to_owned()], false).unwrap().is_empty());
    rig.pool().roll_back("tank/dst", Some("a")).unwrap();
    rewrite(&rig, "tank/dst", 8);
    // Without force what was changed stays.
    let target = ReceiveTarget { dataset: "tank/dst".to_owned(), snapshot: "c".to_owned(), ..ReceiveTarget::default() };
    let stream = send(&rig, "tank/src@c", Some("tank/src@a"), &options);
    let refused = opened(stream.clone()).receive(&rig.pool().engine().dsl, target, |_, _| ()).1.map(drop).expect_err("it was changed");
    assert_eq!(refused.kind(), ErrorKind::Modified, "{refused}");
    receive(&rig, stream, "tank/dst@c");
    assert!(contents_of(&rig, "tank/dst") == contents_of(&rig, "tank/src"));
    judge(rig, "onto what was rolled back");
}

/// What is received on a snapshot began with the log that the snapshot's file system had, whose next block is that file system's own: it was freed twice, or written to by both.
#[test]
fn what_is_received_on_a_snapshot_has_not_its_log() {
    let mut rig = Rig::create(SMALL, &[("recordsize", "4096"), ("compression", "off")]);
    rig.create_file_system("tank/a", &[]);
    let logged = |rig: &Rig, dataset: &str, seed: u64| {
        rewrite(rig, dataset, seed);
        let fs = rig.pool().file_system(dataset).unwrap();
        fs.write(file(&fs, "f"), WriteMode::At(seed * 4096), &contents(seed, 4096, 0), &Credentials::root()).unwrap();
        fs.fsync(file(&fs, "f")).unwrap();
        fs.release_all();
    };
    let check = |rig: &Rig, what: &str| {
        rig.sync();
        let report = rig.pool().check(true, &|_| ()).unwrap();
        assert!(report.is_clean(), "{what}: {:?}", report.findings);
    };
    let options = SendOptions::default();
    logged(&rig, "tank/a", 1);
    take(&rig, &["tank/a@s1".to_owned()]);
    receive(&rig, send(&rig, "tank/a@s1", None, &options), "tank/b@s1");
    for round in 2..5 {
        let (before, now) = (format!("tank/b@s{}", round - 1), format!("tank/b@s{round}"));
        logged(&rig, "tank/b", round);
        take(&rig, &[now.clone()]);
        let back = send(&rig, &now, Some(&before), &options);
        // One that breaks off goes again, with all that it has.
        receive_as(&rig, back[..back.len() / 2].to_vec(), &format!("tank/a@s{round}"), false).expect_err("it is cut");
        check(&rig, "one that broke off");
        receive(&rig, back, &format!("tank/a@s{round}"));
        check(&rig, "one that went on");
        let (a, b) = (rig.pool().file_system("tank/a").unwrap(), rig.pool().file_system("tank/b").unwrap());
        assert!(read(&a, "f") == read(&b, "f"), "round {round}");
        a.release_all();
        b.release_all();
        drop((a, b));
        logged(&rig, "tank/a", round + 10);
        check(&rig, "a log since");
    }
    judge(rig, "logs of what was received");
}

/// Blocks that the deadlists of several datasets have, while the snapshots change hands: each is there as long as somebody has it, and is freed once.
#[test]
fn promotions_with_deadlists_that_are_shared() {
    let mut rig = Rig::create(SMALL, &[("recordsize", "4096"), ("compression", "off")]);
    rig.create_file_system("tank/a", &[]);
    for round in 1..=6 {
        rewrite(&rig, "tank/a", round);
        take(&rig, &[format!("tank/a@s{round}")]);
        // Clones of two snapshots, and one of a clone.
        match round {
            2 => rig.pool().clone_dataset("tank/a@s2", "tank/b", Vec::new()).unwrap(),
            4 => rig.pool().clone_dataset("tank/a@s4", "tank/c", Vec::new()).unwrap(),
            _ => {}
        }
    }
    for round in 10..=12 {
        for clone in ["tank/b", "tank/c"] {
            rewrite(&rig, clone, round);
            take(&rig, &[format!("{clone}@s{round}")]);
        }
    }
    let name = |rig: &Rig, short: &str| {
        let dsl = &rig.pool().engine().dsl;
        ["tank/a", "tank/b", "tank/c"].iter().map(|head| format!("{head}@{short}")).find(|name| dsl.open_dataset(name).is_ok())
    };
    let check = |rig: &Rig, what: &str| {
        rig.sync();
        let report = rig.pool().check(true, &|_| ()).unwrap();
        assert!(report.is_clean(), "{what}: {:?}", report.findings);
    };
    for (promoted, gone) in [("tank/b", "s1"), ("tank/c", "s3"), ("tank/a", "s5"), ("tank/a", "s2"), ("tank/c", "s4")] {
        rig.pool().engine().dsl.promote_dataset(promoted).unwrap_or_else(|error| panic!("{promoted}: {error}"));
        check(&rig, promoted);
        let destroyed = name(&rig, gone).unwrap();
        let refusals = rig.pool().engine().dsl.snapshot_verbs().destroy_snapshots(vec![destroyed.clone()], true).unwrap();
        assert!(refusals.is_empty(), "{destroyed}: {refusals:?}");
        check(&rig, &destroyed);
    }
    judge(rig, "promoted again and again");
}

/// Resumed where it was cut, many times over, and what is there of it sent on.
#[test]
fn a_cut_stream_goes_on_and_can_be_sent_on() {
    let mut rig = Rig::create(SMALL, &[("recordsize", "4096"), ("compression", "lz4")]);
    rig.create_file_system("tank/src", &[]);
    let mut steps = RandomSteps::new(77, Mix::default());
    for snapshot in ["tank/src@a", "tank/src@b"] {
        let mut actor = rig.actor("tank/src");
        (0..150).for_each(|_| steps.step(&mut actor));
        take(&rig, &[snapshot.to_owned()]);
    }
    let point = |rig: &Rig, dataset: &str| {
        let dsl = &rig.pool().engine().dsl;
        let dataset = dsl.open_dataset(dataset).unwrap();
        let field = |name: &str| dsl.meta.mos.zap_u64(dataset.object, name).unwrap().unwrap();
        (field("com.delphix:resume_object"), field("com.delphix:resume_offset"))
    };
    for (from, options) in [(None, SendOptions::default()), (Some("tank/src@a"), SendOptions { compressed: true, ..SendOptions::default() })] {
        let base = if from.is_some() { "tank/inc" } else { "tank/full" };
        if from.is_some() {
            receive(&rig, send(&rig, "tank/src@a", None, &SendOptions::default()), &format!("{base}@a"));
        }
        let mut stream = send(&rig, "tank/src@b", from, &options);
        let mut cuts = 0;
        let place = if from.is_some() { format!("{base}/%recv") } else { base.to_owned() };
        // A fourth each time; the rest is sent from where the token says.
        while stream.len() > 40_000 {
            let cut = stream.len() / 4;
            receive_as(&rig, stream[..cut].to_vec(), &format!("{base}@b"), true).expect_err("it is cut");
            let saved = SendOptions { saved: true, ..options.clone() };
            // What it is incremental from is in the received file system, too.
            let own = from.map(|_| format!("{base}@a"));
            let whole = send(&rig, base, own.as_deref(), &saved);
            assert!(whole.len() > 312, "what is there is sent on");
            let resume = Some(point(&rig, &place));
            stream = send(&rig, "tank/src@b", from, &SendOptions { resume, ..options.clone() });
            cuts += 1;
            if from.is_none() && cuts == 2 {
                // Somebody else gets what is there, and goes on from there, too.
                receive_as(&rig, whole, "tank/third@b", true).expect_err("it has no end");
                let resume = Some(point(&rig, "tank/third"));
                let rest = send(&rig, "tank/src@b", from, &SendOptions { resume, ..options.clone() });
                receive_as(&rig, rest, "tank/third@b", true).expect("the rest");
                compare(&rig, "tank/src", "tank/third", "sent on");
            }
        }
        assert!(cuts >= 3, "{cuts} cuts of {} bytes", stream.len());
        receive_as(&rig, stream, &format!("{base}@b"), true).expect("the rest");
        compare(&rig, "tank/src", base, "resumed");
    }
    judge(rig, "resumed");
}

#[test]
fn damaged_blocks_are_healed_by_a_stream() {
    let mut rig = Rig::create(SMALL, &[("recordsize", "16384"), ("atime", "off")]);
    let user = Credentials::root();
    let words = [("plain", "off"), ("lz", "lz4"), ("gz", "gzip-6"), ("zs", "zstd")];
    for (name, compression) in words {
        rig.create_file_system(&format!("tank/{name}"), &[("compression", compression)]);
        let fs = rig.pool().file_system(&format!("tank/{name}")).unwrap();
        let made = fs.create(fs.root(), b"f", 0o100_644, 0, &user).unwrap().inode;
        fs.write(made, WriteMode::At(0), &contents(5, 400_000, 1), &user).unwrap();
        fs.release_all();
        drop(fs);
        take(&rig, &[format!("tank/{name}@s")]);
    }
    let dsl = rig.pool().engine().dsl.clone();
    let mut pointers = Vec::new();
    let mut streams = Vec::new();
    for (number, (name, _)) in words.iter().enumerate() {
        let snapshot = format!("tank/{name}@s");
        streams.push(send(&rig, &snapshot, None, &SendOptions { compressed: number % 2 == 1, ..SendOptions::default() }));
        let fs = rig.pool().file_system(&format!("tank/{name}")).unwrap();
        let dataset = dsl.open_dataset(&snapshot).unwrap();
        let dnode = dsl.objset(&dataset).unwrap().hold(file(&fs, "f")).unwrap();
        for block in [0, 3, 24] {
            let pointer = dnode.block_pointer(block).unwrap();
            assert!(matches!(pointer.decode().unwrap(), BlockPointer::Data(_)), "{name}: block {block}");
            pointers.push(pointer);
        }
        fs.release_all();
    }
    drop(dsl);
    rig.export();
    pointers.iter().for_each(|pointer| damage(&rig, pointer));
    rig.import();
    let dsl = rig.pool().engine().dsl.clone();
    for ((name, _), stream) in words.iter().zip(&streams) {
        let snapshot = format!("tank/{name}@s");
        let healed = opened(stream.clone()).heal(&dsl, &snapshot).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(healed, 3, "{name}");
        assert_eq!(opened(stream.clone()).heal(&dsl, &snapshot).unwrap(), 0, "{name}: nothing is left to heal");
        let fs = rig.pool().file_system(&format!("tank/{name}")).unwrap();
        assert!(read(&fs, "f") == contents(5, 400_000, 1), "{name}");
        fs.release_all();
    }
    let other = opened(streams[1].clone()).heal(&dsl, "tank/plain@s").expect_err("it is of another one");
    assert_eq!(other.kind(), ErrorKind::Mismatch);
    drop(dsl);
    judge(rig, "healed");
}

#[test]
fn what_all_clones_have_changed_is_not_sent() {
    let mut rig = Rig::create(SMALL, &[("recordsize", "4096"), ("compression", "off")]);
    rig.create_file_system("tank/src", &[]);
    let user = Credentials::root();
    let whole = contents(9, 40 * 4096, 0);
    {
        let fs = rig.pool().file_system("tank/src").unwrap();
        for name in ["f", "gone", "kept"] {
            let made = fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &user).unwrap().inode;
            fs.write(made, WriteMode::At(0), &whole, &user).unwrap();
        }
        let sparse = fs.create(fs.root(), b"sparse", 0o100_644, 0, &user).unwrap().inode;
        fs.write(sparse, WriteMode::At(0), &whole[..8 * 4096], &user).unwrap();
        fs.write(sparse, WriteMode::At(32 * 4096), &whole[32 * 4096..], &user).unwrap();
        fs.release_all();
    }
    take(&rig, &["tank/src@s".to_owned()]);
    // Both change blocks 5 to 9 of one file; each changes others alone; both remove one file.
    for (clone, range) in [("tank/one", 0..10), ("tank/two", 5..20)] {
        rig.pool().clone_dataset("tank/src@s", clone, Vec::new()).unwrap();
        let fs = rig.pool().file_system(clone).unwrap();
        for block in range {
            fs.write(file(&fs, "f"), WriteMode::At(block * 4096), &contents(100 + block, 4096, 0), &user).unwrap();
        }
        fs.unlink(fs.root(), b"gone").unwrap();
        // What was nothing can be no secret, and is read as nothing.
        fs.write(file(&fs, "sparse"), WriteMode::At(16 * 4096), &contents(99, 4 * 4096, 0), &user).unwrap();
        fs.release_all();
        drop(fs);
        take(&rig, &[format!("{clone}@s")]);
    }
    let dsl = rig.pool().engine().dsl.clone();
    let others = ["tank/one@s".to_owned(), "tank/two@s".to_owned()];
    redact(&dsl, "tank/src@s", "book", &others).unwrap();
    assert_eq!(redact(&dsl, "tank/src@s", "book", &others).expect_err("it is there").kind(), ErrorKind::Exists);
    assert_eq!(redact(&dsl, "tank/src@s", "more", &["tank/src@s".to_owned()]).expect_err("no descendant").kind(), ErrorKind::Invalid);
    let options = SendOptions { redact: Some("book".to_owned()), ..SendOptions::default() };
    receive(&rig, send(&rig, "tank/src@s", None, &options), "tank/dst@s");
    let check = |rig: &Rig| {
        let fs = rig.pool().file_system("tank/dst").unwrap();
        let is_there = |name: &str, block: u64| {
            let bytes = fs.read(file(&fs, name), block * 4096, 4096).unwrap();
            let is_there = bytes == whole[block as usize * 4096..][..4096];
            assert!(is_there || bytes.iter().all(|byte| *byte == 0), "{name}: block {block}");
            is_there
        };
        for block in 0..40 {
            assert_eq!(is_there("f", block), !(5..10).contains(&block), "block {block}");
            assert!(is_there("kept", block) && !is_there("gone", block), "block {block}");
            assert_eq!(is_there("sparse", block), !(8..32).contains(&block), "block {block}");
        }
        fs.release_all();
    };
    check(&rig);
    drop(dsl);
    rig.export();
    rig.check("redacted");
    rig.zdb("redacted", true);
    rig.import();
    check(&rig);
    let dsl = rig.pool().engine().dsl.clone();
    assert_eq!(redact(&dsl, "tank/dst@s", "book", &[]).expect_err("it is redacted itself").kind(), ErrorKind::Conflict);
    // One of the snapshots that it was redacted for goes on top of it.
    let stream = send(&rig, "tank/one@s", Some("tank/src#book"), &SendOptions::default());
    let target = ReceiveTarget { dataset: "tank/third".to_owned(), snapshot: "s".to_owned(), origin: Some("tank/dst@s".to_owned()), ..ReceiveTarget::default() };
    opened(stream).receive(&dsl, target, |_, _| ()).1.and_then(|finished| finished.end()).expect("it goes on top");
    drop(dsl);
    judge(rig, "redacted, and gone on with");
}
