//! Pools so fragmented that blocks are gangs: sent raw, healed and scrubbed as others are.
#![allow(clippy::disallowed_methods)] // the real clock

use std::io::Cursor;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk::Disk;
use engine::dsl::{NewSnapshots, ReceiveTarget};
use engine::stream::receive::Receiving;
use engine::stream::{Progress, SendOptions, Sender, StreamReader};
use ondisk::blkptr::BlkPtr;
use ondisk::scan::{ScanRecord, ScanState};
use sim::oracle::zdb_check;
use sim::scenario::{Layout, MemoryDisks, contents, properties};
use tarnfs::{Credentials, FileSystem, Pool, WriteMode};

const MIRROR: Layout = Layout { tops: 1, sides: 2, parity: 0, bytes: 128 << 20, ashift: 12 };
/// Free space is in pieces of so many bytes.
const PIECE: u64 = 16 << 10;
/// Where a device's data begins.
const DATA: u64 = 4 << 20;
/// Name, seed, bytes, texture: large and small blocks, compressed and not, and contents that are in their pointers.
const FILES: [(&str, u64, usize, u8); 6] =
    [("large", 1, 3 << 20, 0), ("compressed", 2, 3 << 20, 1), ("zeros", 3, 2 << 20, 2), ("small", 4, 100_000, 0), ("tiny", 5, 3000, 0), ("embedded", 6, 600, 2)];

fn fragmented(pool: &Arc<Pool>) {
    pool.engine().context.io.allocator().faults.fragment(PIECE);
}

fn write(fs: &FileSystem) {
    let user = Credentials::root();
    for (name, seed, length, texture) in FILES {
        let file = fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &user).unwrap().inode;
        fs.write(file, WriteMode::At(0), &contents(seed, length, texture), &user).unwrap();
        fs.forget(file, 1);
    }
}

fn read(pool: &Arc<Pool>, dataset: &str, what: &str) {
    let fs = pool.file_system(dataset).unwrap();
    for (name, seed, length, texture) in FILES {
        let file = fs.lookup(fs.root(), name.as_bytes()).unwrap().inode;
        let found = fs.read(file, 0, length).unwrap_or_else(|error| panic!("{what}: {name}: {error}"));
        assert!(found == contents(seed, length, texture), "{what}: {name} has other contents");
        fs.forget(file, 1);
    }
    fs.release_all();
}

/// A pool in pieces with these files.
fn pool(layout: Layout) -> MemoryDisks {
    let disks = MemoryDisks::create(layout, &[("compression", "lz4")]);
    let pool = disks.import(false).unwrap();
    fragmented(&pool);
    pool.create_file_system("tank/src", properties(&[("recordsize", "1M")])).unwrap();
    let fs = pool.file_system("tank/src").unwrap();
    write(&fs);
    fs.release_all();
    drop(fs);
    pool.sync().unwrap();
    pool.export().unwrap();
    disks
}

/// Neither our checker nor zdb finds anything wrong.
fn judge(disks: &MemoryDisks, what: &str) {
    let pool = disks.import(true).unwrap();
    let report = pool.check(true, &|_| ()).unwrap();
    assert!(report.is_clean(), "{what}: {:#?}", report.findings.iter().take(10).collect::<Vec<_>>());
    pool.export().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let images = disks.to_images(directory.path());
    zdb_check(&images.iter().map(std::path::PathBuf::as_path).collect::<Vec<_>>()).expect_clean(what);
}

/// The pointer of a block of a file.
fn pointer(pool: &Arc<Pool>, name: &str, block: u64) -> BlkPtr {
    let fs = pool.file_system("tank/src").unwrap();
    let inode = fs.lookup(fs.root(), name.as_bytes()).unwrap().inode;
    let pointer = fs.objset().hold(inode).unwrap().block_pointer(block).unwrap();
    fs.forget(inode, 1);
    fs.release_all();
    pointer
}

/// The pieces of a gang block, those of its pieces among them, that hold contents.
fn pieces(disks: &MemoryDisks, gang: &BlkPtr) -> Vec<BlkPtr> {
    let place = gang.first_dva().expect("a block");
    if !place.gang {
        return vec![*gang];
    }
    let mut header = vec![0; 512];
    disks.sides_of(place.vdev as usize)[0].read_at(&mut header, DATA + place.offset).unwrap();
    BlkPtr::slice_of(&header[..3 * 128]).iter().filter(|piece| !piece.is_hole()).flat_map(|piece| pieces(disks, piece)).collect()
}

fn scrub(pool: &Arc<Pool>) -> ScanRecord {
    pool.engine().scrub(false).unwrap();
    let until = Instant::now() + Duration::from_secs(120);
    while pool.engine().is_scanning() {
        assert!(Instant::now() < until, "{:?}", pool.engine().scan_progress());
        std::thread::sleep(Duration::from_millis(2));
    }
    pool.sync().unwrap();
    let record = pool.engine().scan_progress().expect("a scan").record;
    assert_eq!(record.state, ScanState::Finished);
    record
}

fn send(pool: &Arc<Pool>, options: &SendOptions) -> Vec<u8> {
    let mut stream = Vec::new();
    Sender::new(&pool.engine().dsl, "tank/src@s", None, options).unwrap().send(&mut stream, &|| false).unwrap();
    stream
}

/// What is sent raw of gangs, and without, is received as gangs or not, and is the same.
#[test]
fn gangs_are_sent_raw() {
    let sent = pool(MIRROR);
    let from = sent.import(false).unwrap();
    fragmented(&from);
    let gang = pointer(&from, "large", 1);
    assert!(gang.dvas().all(|dva| dva.gang), "no gang blocks");
    let new = NewSnapshots { names: vec!["tank/src@s".into()], properties: Vec::new() };
    assert!(from.engine().dsl.snapshot_verbs().create_snapshots(new).unwrap().is_empty());
    let raw = SendOptions { raw: true, large_blocks: true, embedded: true, compressed: true, ..SendOptions::default() };
    let (raw, plain) = (send(&from, &raw), send(&from, &SendOptions { large_blocks: true, ..SendOptions::default() }));
    assert!(raw.len() < plain.len(), "it is compressed: {} and {}", raw.len(), plain.len());
    for (what, stream) in [("raw", &raw), ("plain", &plain)] {
        for is_fragmented in [true, false] {
            let received = MemoryDisks::create(MIRROR, &[]);
            let to = received.import(false).unwrap();
            if is_fragmented {
                fragmented(&to);
            }
            let target = ReceiveTarget { dataset: "tank/dst".into(), snapshot: "s".into(), ..ReceiveTarget::default() };
            let opened = Receiving::open(StreamReader::new(Cursor::new(stream.clone())), Progress::default()).unwrap();
            opened.receive(&to.engine().dsl, target, |_, _| ()).1.unwrap().end().unwrap();
            read(&to, "tank/dst", what);
            to.export().unwrap();
            let to = received.import(true).unwrap();
            read(&to, "tank/dst", what);
            to.export().unwrap();
            judge(&received, what);
        }
    }
    from.export().unwrap();
    judge(&sent, "sent");
}

/// A piece is wrong on one side: readers get the contents and repair it, and a scrub repairs it and counts once.
#[test]
fn a_piece_of_a_gang_heals() {
    for by_reading in [true, false] {
        let disks = pool(MIRROR);
        let found = disks.import(true).unwrap();
        let gang = pointer(&found, "large", 1);
        found.export().unwrap();
        let all = pieces(&disks, &gang);
        assert!(all.len() > 10, "{}", all.len());
        for piece in [all[0], all[all.len() / 2], gang] {
            assert_eq!(disks.damage_block(&piece, &|copy, side| (copy, side) == (0, 1)), 1);
        }
        // A header has 512.
        let bytes = all[0].physical_size() + all[all.len() / 2].physical_size() + 512;
        let pool = disks.import(false).unwrap();
        if by_reading {
            // Readers ask one side or the other.
            (0..8).for_each(|_| read(&pool, "tank/src", "damaged"));
        }
        let record = scrub(&pool);
        assert_eq!(record.errors, 0);
        assert!(if by_reading { record.processed <= bytes } else { record.processed == bytes }, "{} of {bytes}: {record:?}", record.processed);
        assert_eq!((scrub(&pool).processed, scrub(&pool).errors), (0, 0));
        pool.export().unwrap();
        judge(&disks, "healed");
        let pool = disks.import(false).unwrap();
        disks.disk(0).faults.break_reads(true);
        read(&pool, "tank/src", "side 1 alone");
        disks.disk(0).faults.break_reads(false);
        pool.export().unwrap();
    }
}

/// Of a gang one piece is lost, and others are wrong on one side: one block is lost, and what can be repaired is.
#[test]
fn what_is_left_of_a_gang_is_repaired() {
    let disks = pool(MIRROR);
    let found = disks.import(true).unwrap();
    let gang = pointer(&found, "large", 1);
    found.export().unwrap();
    let all = pieces(&disks, &gang);
    disks.damage_block(&all[1], &|_, _| true);
    let wrong = [&all[0], &all[2], &all[all.len() - 1]];
    for piece in wrong {
        disks.damage_block(piece, &|_, side| side == 1);
    }
    let pool = disks.import(false).unwrap();
    let record = scrub(&pool);
    assert_eq!((record.errors, record.processed), (1, wrong.iter().map(|piece| piece.physical_size()).sum()), "{record:?}");
    let again = scrub(&pool);
    assert_eq!((again.errors, again.processed), (1, 0), "{again:?}");
    pool.export().unwrap();
}

/// All that a column of RAID-Z has is wrong.
#[test]
fn a_column_of_gangs_heals() {
    for (sides, parity) in [(3, 1), (5, 2)] {
        let disks = pool(Layout { sides, parity, ..MIRROR });
        for bad in 0..usize::from(parity) {
            disks.damage_range(bad + 1, DATA..64 << 20);
        }
        let pool = disks.import(false).unwrap();
        read(&pool, "tank/src", "damaged");
        let record = scrub(&pool);
        // Readers have repaired what they asked for.
        assert!(record.errors == 0 && record.processed > 0, "{record:?}");
        assert_eq!(scrub(&pool).processed, 0);
        pool.export().unwrap();
        judge(&disks, "healed");
        let pool = disks.import(true).unwrap();
        (sides - usize::from(parity)..sides).for_each(|number| disks.disk(number).faults.break_reads(true));
        read(&pool, "tank/src", "the others alone");
        pool.export().unwrap();
    }
}
