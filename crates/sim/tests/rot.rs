//! Sides of a mirror, and copies of a block, that rotted while the pool was exported.
//!
//! A mirror of two files had one of them overwritten from 5 MB on while it was exported. Its files read right, from the other side, and nobody
//! heard of it: no checksum error was counted, no event told of it, nothing was healed, and `zdb -c`, which read one copy of each block, found
//! nothing. Reads gave up on a side without a word if they were ahead of anybody's need, and looked for the right copy among the sides in order, so
//! that a wrong one behind it was never looked at.
#![allow(clippy::disallowed_methods)] // the real clock: blocks are read ahead by real threads

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::dmu::SyncTx;
use engine::dsl::{Dsl, SpaceCheck};
use engine::pool::check::Finding;
use engine::vdev::Leaf;
use ondisk::blkptr::BlkPtr;
use ondisk::object_type::ObjectType;
use ondisk::space_map::SpaceMapHeader;
use sim::scenario::{Layout, MemoryDisks, Rig, contents, found_pool, import_of};
use tarnfs::control::{Backend, PoolEvents, PoolExport, Pools};
use tarnfs::{Credentials, Pool, WriteMode};

const BYTES: usize = 12 << 20;
const MIRROR: Layout = Layout { tops: 1, sides: 2, parity: 0, bytes: 64 << 20, ashift: 12 };

fn write(pool: &Arc<Pool>) {
    let (fs, user) = (pool.file_system("tank").unwrap(), Credentials::root());
    let file = fs.create(fs.root(), b"f", 0o100_644, 0, &user).unwrap().inode;
    fs.write(file, WriteMode::At(0), &contents(1, BYTES, 0), &user).unwrap();
    fs.forget(file, 1);
    pool.sync().unwrap();
}

fn read(pool: &Arc<Pool>) {
    let fs = pool.file_system("tank").unwrap();
    let file = fs.lookup(fs.root(), b"f").unwrap().inode;
    assert!(fs.read(file, 0, BYTES).unwrap() == contents(1, BYTES, 0), "other contents");
    fs.forget(file, 1);
}

fn leaves(pool: &Pool) -> Vec<Arc<Leaf>> {
    pool.engine().vdevs.leaves()
}

fn checksum_errors(pool: &Pool) -> Vec<u64> {
    leaves(pool).iter().map(|leaf| leaf.stats.checksum_errors.load(std::sync::atomic::Ordering::Relaxed)).collect()
}

/// The pointers of the file's blocks.
fn blocks(pool: &Arc<Pool>) -> Vec<BlkPtr> {
    let fs = pool.file_system("tank").unwrap();
    let file = fs.lookup(fs.root(), b"f").unwrap().inode;
    let dnode = fs.objset().hold(file).unwrap();
    fs.forget(file, 1);
    (0..=dnode.max_block()).map(|block| dnode.block_pointer(block).unwrap()).collect()
}

fn mirror() -> MemoryDisks {
    let disks = MemoryDisks::create(MIRROR, &[("compression", "off")]);
    let pool = disks.import(false).unwrap();
    write(&pool);
    pool.export().unwrap();
    disks
}

#[test]
fn a_rotten_side_is_counted_and_healed_when_it_is_read() {
    let made = mirror();
    for rotten in [0, 1] {
        let disks = made.snapshot();
        disks.damage_range(rotten, 5 << 20..u64::MAX);
        let pool = disks.import(false).unwrap();
        // What an import reads before it may write is counted and not healed.
        let before = (checksum_errors(&pool), pool.engine().context.io.counters.healed.get());
        read(&pool);
        let errors: Vec<u64> = checksum_errors(&pool).iter().zip(&before.0).map(|(now, before)| now - before).collect();
        // Reads go to both sides, by regions of 2 MiB: about the half of 96 blocks is met.
        assert!(errors[rotten] >= 24, "side {rotten} is rotten, and this was counted: {errors:?}");
        assert_eq!(errors[1 - rotten], 0, "the good side is blamed");
        assert!(pool.engine().context.io.counters.healed.get() - before.1 >= errors[rotten]);
        assert_eq!(pool.engine().context.io.counters.lost_blocks.get(), 0);
        pool.export().unwrap();
        // What was met is healed: a second look meets nothing.
        let pool = disks.import(false).unwrap();
        let before = checksum_errors(&pool);
        read(&pool);
        assert_eq!(checksum_errors(&pool), before);
        pool.export().unwrap();
        // The good side was not touched: without the other one all is there.
        disks.damage_range(rotten, 5 << 20..u64::MAX);
        let pool = disks.import(true).unwrap();
        read(&pool);
        pool.abandon();
    }
}

/// One reads ahead of anybody's need, in threads of its own.
#[test]
fn reading_ahead_counts_and_heals_too() {
    for rotten in [0, 1] {
        let mut rig = Rig::create(MIRROR, &[("compression", "off")]);
        write(rig.pool());
        rig.export();
        let image = std::fs::OpenOptions::new().write(true).open(&rig.images()[rotten]).unwrap();
        let zeros = vec![0; (MIRROR.bytes - (6 << 20)) as usize];
        std::os::unix::fs::FileExt::write_all_at(&image, &zeros, 5 << 20).unwrap();
        rig.import();
        let pool = rig.pool();
        let fs = pool.file_system("tank").unwrap();
        let file = fs.lookup(fs.root(), b"f").unwrap().inode;
        let before = checksum_errors(pool)[rotten];
        let dnode = fs.objset().hold(file).unwrap();
        dnode.block_pointer(0).unwrap();
        let counted = checksum_errors(pool)[rotten];
        // In parts that do not fill the queue of the readers.
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut at = 0;
        while checksum_errors(pool)[rotten] < counted + 8 {
            dnode.prefetch(at, 1 << 20);
            at = (at + (1 << 20)) % BYTES as u64;
            assert!(Instant::now() < deadline, "{before}, {counted}, then {:?}: side {rotten} was read ahead of need, and not counted", checksum_errors(pool));
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(dnode);
        fs.forget(file, 1);
        drop(fs);
        read(rig.pool());
        assert_eq!(checksum_errors(rig.pool())[1 - rotten], 0);
        rig.export();
    }
}

/// `zdb -c` looks at every copy: each side, each address.
#[test]
fn the_checker_looks_at_every_copy() {
    let made = mirror();
    let (pointer, log_places) = {
        let pool = made.snapshot().import(true).unwrap();
        let found = (blocks(&pool)[17], pool.check(true, &|_| ()).unwrap());
        pool.abandon();
        found
    };
    assert!(log_places.is_clean(), "{:?}", log_places.findings);
    for side in [0, 1] {
        let disks = made.snapshot();
        assert_eq!(disks.damage_block(&pointer, &|_, at| at == side), 1);
        let pool = disks.import(true).unwrap();
        let found = pool.check(true, &|_| ()).unwrap().findings;
        assert_eq!(found.len(), 1, "side {side}: {found:?}");
        let text = found[0].to_string();
        assert!(text.contains(&format!("/memory/d{side}")) && text.contains("wrong checksum"), "{text}");
        pool.abandon();
    }
    let one = MemoryDisks::create(Layout { sides: 1, ..MIRROR }, &[("compression", "off"), ("copies", "2")]);
    let pool = one.import(false).unwrap();
    write(&pool);
    let pointer = blocks(&pool)[17];
    pool.export().unwrap();
    for copy in [0, 1] {
        let disks = one.snapshot();
        assert_eq!(disks.damage_block(&pointer, &|at, _| at == copy), 1);
        let pool = disks.import(true).unwrap();
        let found = pool.check(true, &|_| ()).unwrap().findings;
        assert_eq!(found.len(), 1, "copy {copy}: {found:?}");
        pool.abandon();
        // And reading mends the one that is met: the first.
        let pool = disks.import(false).unwrap();
        read(&pool);
        assert_eq!(checksum_errors(&pool)[0], u64::from(copy == 0));
        pool.export().unwrap();
    }
}

/// `zdb -c` without a second `c` reads all metadata. Of what leads to no other blocks it read nothing, and a directory that was lost was no finding.
#[test]
fn the_checker_reads_directories_without_reading_data() {
    let disks = MemoryDisks::create(Layout { sides: 1, ..MIRROR }, &[("compression", "off")]);
    let pool = disks.import(false).unwrap();
    write(&pool);
    let fs = pool.file_system("tank").unwrap();
    // So many names that do not compress that the directory has a block of its own.
    for number in 0..40_u32 {
        let name = format!("{:x}", number.wrapping_mul(2_654_435_761));
        let file = fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &Credentials::root()).unwrap().inode;
        fs.forget(file, 1);
    }
    drop(fs);
    pool.export().unwrap();
    let pool = disks.import(true).unwrap();
    let fs = pool.file_system("tank").unwrap();
    let directory = fs.objset().hold(fs.root()).unwrap().block_pointer(0).unwrap();
    let data = blocks(&pool)[17];
    drop(fs);
    assert!(directory.first_dva().is_some() && pool.check(false, &|_| ()).unwrap().is_clean());
    pool.abandon();
    for (what, pointer, is_found) in [("a directory", directory, true), ("data", data, false)] {
        let disks = disks.snapshot();
        assert!(disks.damage_block(&pointer, &|_, _| true) > 0, "{what}");
        let pool = disks.import(true).unwrap();
        let found = pool.check(false, &|_| ()).unwrap().findings;
        pool.abandon();
        match found.as_slice() {
            [Finding::Unreadable { .. }] => assert!(is_found, "{what}: {found:?}"),
            _ => assert!(!is_found && found.is_empty(), "{what}: {found:?}"),
        }
    }
}

/// OpenZFS goes by what the headers of space maps say is in use, and the real `zdb` compares that with what it finds. Our checker
/// read only what is in the maps.
#[test]
fn the_checker_adds_up_what_is_in_use() {
    let disks = MemoryDisks::create(Layout { sides: 1, bytes: 256 << 20, ..MIRROR }, &[("compression", "off")]);
    let pool = disks.import(false).unwrap();
    let (fs, user) = (pool.file_system("tank").unwrap(), Credentials::root());
    let file = fs.create(fs.root(), b"f", 0o100_644, 0, &user).unwrap().inode;
    // So much that a group which writes little leaves most space maps alone.
    for part in 0..10 {
        fs.write(file, WriteMode::At(part * BYTES as u64), &contents(part, BYTES, 0), &user).unwrap();
        pool.sync().unwrap();
    }
    fs.forget(file, 1);
    drop(fs);
    pool.export().unwrap();
    let check = || {
        let pool = disks.import(true).unwrap();
        let found = pool.check(false, &|_| ()).unwrap().findings;
        pool.abandon();
        found
    };
    let before = check();
    assert!(before.is_empty(), "{before:?}");
    let pool = disks.import(false).unwrap();
    let changed = pool.engine().dsl.run_task(1, SpaceCheck::None, |_| Ok(()), |dsl: &Arc<Dsl>, tx: &SyncTx<'_>| {
        let (mos, mut object) = (&dsl.meta.mos, 0);
        while let Some(next) = mos.0.next_object(object)? {
            object = next;
            if mos.0.hold(object)?.object_type() == ObjectType::SPACE_MAP {
                let mut header = SpaceMapHeader::decode(&mos.bonus(object)?)?;
                header.allocated += 4096;
                mos.set_bonus(object, &header.encode(), tx)?;
            }
        }
        Ok(())
    });
    changed.unwrap();
    pool.abandon();
    let after = check();
    assert!(matches!(after[..], [Finding::Accounting { recorded, found, .. }] if recorded > found), "{after:?}");
}

/// What an import meets is told too: a program that looked at events for the first time after it heard of nothing, as what had been counted by then was taken for old.
#[test]
fn what_an_import_meets_is_an_event() {
    let disks = mirror();
    disks.damage_range(0, 5 << 20..u64::MAX);
    let directory = tempfile::tempdir().unwrap();
    let paths = disks.to_images(directory.path());
    let mut pools = Pools::default();
    pools.pool_import(import_of(&found_pool(&paths), &paths)).unwrap();
    let events = pools.pool_events(PoolEvents { after: 0, clear: false }).unwrap();
    assert!(events.iter().any(|event| event.class == "ereport.fs.zfs.checksum"), "{events:?}");
    pools.pool_export(PoolExport { name: "tank".into(), force: false, hard_force: false }).unwrap();
}
