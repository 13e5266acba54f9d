//! What cannot be read of a file or a file system does not stop the pool.
//!
//! A file whose level-1 block had been overwritten while the pool was exported was removed: `rm` succeeded, the group that freed it could not read the
//! block, the pool was suspended, and after a new import the file was back. Now what can be found is freed; the rest stays allocated and is counted
//! in the property `leaked`, where our checker and the real zdb find the same number.

use std::path::Path;
use std::sync::Arc;

use engine::dmu::{Dnode, Objset, USED_BY_USER};
use engine::dsl::LEAK_DIR;
use engine::pool::check::Finding;
use engine::zio::Bookmark;
use ondisk::blkptr::BlkPtr;
use ondisk::object_type::ObjectType;
use sim::golden::Golden;
use sim::oracle::zdb_text;
use sim::places::{say, skipped};
use sim::scenario::{Layout, MemoryDisks, contents, found_pool, import_of, properties};
use tarnfs::control::{Backend, DatasetDestroy, DatasetKinds, DatasetList, PoolExport, Pools, Wanted};
use tarnfs::{Credentials, Error, FileSystem, Pool, SetAttributes, WriteMode, XattrMode};

const LAYOUT: Layout = Layout { tops: 1, sides: 1, parity: 0, bytes: 96 << 20, ashift: 12 };
const BLOCK: usize = 4096;
/// What one level-1 block leads to.
const SPAN: usize = 1024 * BLOCK;
const BYTES: usize = 10 << 20;

fn make(fs: &FileSystem, name: &str, bytes: usize) {
    let user = Credentials::root();
    let file = fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &user).unwrap().inode;
    fs.write(file, WriteMode::At(0), &contents(1, bytes, 0), &user).unwrap();
    fs.forget(file, 1);
}

/// A pool with one copy of what belongs to file systems: `tank/d` has a file of three level-1 blocks.
fn pool_with_file() -> MemoryDisks {
    let disks = MemoryDisks::create(LAYOUT, &[("compression", "off"), ("redundant_metadata", "none"), ("xattr", "sa")]);
    let pool = disks.import(false).unwrap();
    for name in ["tank/d", "tank/other"] {
        pool.create_file_system(name, properties(&[("recordsize", "4K")])).unwrap();
        let fs = pool.file_system(name).unwrap();
        make(&fs, "f", if name == "tank/d" { BYTES } else { 20_000 });
        make(&fs, "small", 3000);
        // So many names and owners that what lists them has blocks of its own.
        for number in 0..40_u32 {
            let file = format!("{:x}", number.wrapping_mul(2_654_435_761));
            make(&fs, &file, 10);
            let inode = fs.lookup(fs.root(), file.as_bytes()).unwrap().inode;
            let owner = SetAttributes { uid: Some(number.wrapping_mul(40_503)), ..SetAttributes::default() };
            fs.setattr(inode, &owner, &Credentials::root()).unwrap();
            fs.forget(inode, 1);
        }
        let small = fs.lookup(fs.root(), b"small").unwrap().inode;
        fs.setxattr(small, b"user.large", &[7; 5000], XattrMode::Any).unwrap();
        fs.forget(small, 1);
    }
    pool.export().unwrap();
    disks
}

fn objset(pool: &Arc<Pool>, name: &str) -> Arc<Objset> {
    let dsl = &pool.engine().dsl;
    dsl.objset(&dsl.open_dataset(name).unwrap()).unwrap()
}

fn dnode(pool: &Arc<Pool>, name: &str, file: &str) -> Arc<Dnode> {
    let fs = pool.file_system(name).unwrap();
    let inode = fs.lookup(fs.root(), file.as_bytes()).unwrap().inode;
    let dnode = fs.objset().hold(inode).unwrap();
    fs.forget(inode, 1);
    dnode
}

/// The level-1 blocks of the large file.
fn indirect_blocks(pool: &Arc<Pool>) -> Vec<BlkPtr> {
    let tree = dnode(pool, "tank/d", "f").on_disk();
    assert_eq!(tree.levels, 3);
    let root = pool.engine().context.io.read(&tree.pointers[0], &Bookmark::default()).unwrap();
    BlkPtr::slice_of(&root).iter().filter(|pointer| !pointer.is_hole()).copied().collect()
}

/// The pointers that `find` sees in the exported pool.
fn found(disks: &MemoryDisks, find: &dyn Fn(&Arc<Pool>) -> Vec<BlkPtr>) -> Vec<BlkPtr> {
    let pool = disks.import(true).unwrap();
    let pointers = find(&pool);
    pool.abandon();
    assert!(!pointers.is_empty() && pointers.iter().all(|pointer| pointer.first_dva().is_some()), "no block to damage");
    pointers
}

fn leaked_property(pool: &Arc<Pool>) -> u64 {
    let dsl = &pool.engine().dsl;
    let _names = dsl.lock_names();
    let root = dsl.root_dir().unwrap();
    dsl.find_child(&root, LEAK_DIR).unwrap().map_or(0, |dir| dir.space().used)
}

/// The property, our checker and the real zdb count the same leak, and nothing else is wrong. Returns it.
fn leak(disks: &MemoryDisks, what: &str) -> u64 {
    let pool = disks.import(true).unwrap_or_else(|error| panic!("{what}: {error}"));
    let property = leaked_property(&pool);
    let report = pool.check(true, &|_| ()).unwrap();
    let name = pool.name();
    pool.abandon();
    let mut found = 0;
    for finding in &report.findings {
        match finding {
            Finding::Leak { length, .. } => found += length,
            other => panic!("{what}: {other}"),
        }
    }
    assert_eq!(report.findings_left_out, 0);
    assert_eq!(property, found, "{what}: the property and what our checker found");
    let directory = tempfile::tempdir().unwrap();
    disks.to_images(directory.path());
    if let Some(of_zdb) = leak_of_zdb(directory.path(), &name, what) {
        assert_eq!(property, of_zdb, "{what}: the property and what zdb found");
    }
    property
}

fn leak_of_zdb(directory: &Path, pool: &str, what: &str) -> Option<u64> {
    let text = zdb_text(directory, &["-b", pool])?;
    if text.contains("No leaks") {
        return Some(0);
    }
    let number = text.split("(leaked ").nth(1).and_then(|rest| rest.split(')').next()).and_then(|number| number.trim().parse().ok());
    Some(number.unwrap_or_else(|| panic!("{what}: zdb says\n{text}")))
}

/// Writes go on and reach the disk, in the damaged file system too if `everywhere`.
fn goes_on(pool: &Arc<Pool>, what: &str, everywhere: bool) {
    pool.sync().unwrap_or_else(|error| panic!("{what}: the pool stopped: {error}"));
    for name in ["tank/other", "tank/d"].iter().take(1 + usize::from(everywhere)) {
        make(&pool.file_system(name).unwrap(), "new", 30_000);
    }
    pool.sync().unwrap_or_else(|error| panic!("{what}: the pool stopped: {error}"));
}

fn inode(fs: &FileSystem) -> u64 {
    fs.lookup(fs.root(), b"f").unwrap().inode
}

/// Parts of the file are what they were; the rest may be zeros or an error.
fn check_contents(pool: &Arc<Pool>, ranges: &[std::ops::Range<usize>], what: &str) {
    if ranges.is_empty() {
        return;
    }
    let fs = pool.file_system("tank/d").unwrap();
    let file = inode(&fs);
    let expected = contents(1, BYTES, 0);
    for range in ranges {
        let found = fs.read(file, range.start as u64, range.len()).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(found == expected[range.clone()], "{what}: {range:?} has other contents");
    }
    fs.forget(file, 1);
}

type Operation = fn(&Arc<Pool>) -> Result<(), Error>;

fn with_file(pool: &Arc<Pool>, change: &dyn Fn(&FileSystem, u64, &Credentials) -> Result<(), Error>) -> Result<(), Error> {
    let fs = pool.file_system("tank/d")?;
    let file = inode(&fs);
    let result = change(&fs, file, &Credentials::root());
    fs.forget(file, 1);
    result
}

/// What is done to the file, whose second level-1 block is lost: what that answers, how much is leaked, what is left.
#[allow(clippy::single_range_in_vec_init)] // lists of ranges, some of one
const OPERATIONS: [(&str, Operation, bool, u64, &[std::ops::Range<usize>]); 7] = [
    ("remove", |pool| pool.file_system("tank/d").and_then(|fs| fs.unlink(fs.root(), b"f")), true, SPAN as u64, &[]),
    ("truncate to nothing", |pool| with_file(pool, &|fs, file, user| fs.truncate(file, 0, user)), true, SPAN as u64, &[]),
    ("truncate before it", |pool| with_file(pool, &|fs, file, user| fs.truncate(file, 1 << 20, user)), true, SPAN as u64, &[0..1 << 20]),
    (
        "punch all of it",
        |pool| with_file(pool, &|fs, file, user| fs.punch_hole(file, SPAN as u64 - 8192, SPAN as u64 + 16384, user)),
        true,
        SPAN as u64,
        &[0..SPAN - 8192, 2 * SPAN + 8192..BYTES],
    ),
    // What cannot be done is, and nothing is changed.
    ("truncate inside", |pool| with_file(pool, &|fs, file, user| fs.truncate(file, 6 << 20, user)), false, 0, &[0..SPAN]),
    (
        "punch a part of it",
        |pool| with_file(pool, &|fs, file, user| fs.punch_hole(file, 5 << 20, 1 << 20, user)),
        false,
        0,
        &[0..SPAN, 2 * SPAN..BYTES],
    ),
    (
        "overwrite below it",
        |pool| with_file(pool, &|fs, file, user| fs.write(file, WriteMode::At(5 << 20), &[9; 3 * BLOCK], user).map(drop)),
        false,
        0,
        &[0..SPAN, 2 * SPAN..BYTES],
    ),
];

#[test]
fn a_lost_indirect_block_does_not_stop_the_pool() {
    let made = pool_with_file();
    let lost = found(&made, &|pool| vec![indirect_blocks(pool)[1]]);
    assert_eq!(leak(&made, "before"), 0);
    made.damage_block(&lost[0], &|_, _| true);
    for (what, operation, succeeds, leaked, left) in OPERATIONS {
        let disks = made.snapshot();
        let pool = disks.import(false).unwrap();
        let done = operation(&pool);
        assert_eq!(done.is_ok(), succeeds, "{what}: {done:?}");
        goes_on(&pool, what, true);
        check_contents(&pool, left, what);
        assert_eq!(leaked_property(&pool), leaked, "{what}");
        pool.export().unwrap_or_else(|error| panic!("{what}: export: {error}"));
        if succeeds {
            assert_eq!(leak(&disks, what), leaked, "{what}");
        }
        // In the end the file goes, however it was changed.
        let pool = disks.import(false).unwrap();
        let fs = pool.file_system("tank/d").unwrap();
        let _ = fs.unlink(fs.root(), b"f");
        drop(fs);
        pool.export().unwrap_or_else(|error| panic!("{what}, removed: {error}"));
        assert_eq!(leak(&disks, &format!("{what}, then removed")), SPAN as u64);
    }
    say("leaks: a lost level-1 block, and seven things that are done to its file: our checker and zdb agree");
}

type Find = fn(&Arc<Pool>) -> Vec<BlkPtr>;

/// Blocks of `tank/d` that are lost, all copies.
const LOST: [(&str, Find); 8] = [
    ("object set", |pool| vec![objset(pool, "tank/d").pointer()]),
    ("root of the meta-dnode", |pool| objset(pool, "tank/d").meta().on_disk().pointers[..1].to_vec()),
    ("first block of dnodes", |pool| vec![objset(pool, "tank/d").meta().block_pointer(0).unwrap()]),
    ("space used by users", |pool| vec![objset(pool, "tank/d").hold(USED_BY_USER).unwrap().block_pointer(0).unwrap()]),
    ("root directory", |pool| {
        let fs = pool.file_system("tank/d").unwrap();
        vec![fs.objset().hold(fs.root()).unwrap().block_pointer(0).unwrap()]
    }),
    ("second block of dnodes", |pool| vec![objset(pool, "tank/d").meta().block_pointer(1).unwrap()]),
    ("spill block", |pool| vec![dnode(pool, "tank/d", "small").on_disk().spill.expect("a spill block")]),
    ("level-1 and data blocks", |pool| {
        let data = dnode(pool, "tank/d", "f");
        [indirect_blocks(pool), (3000..3005).map(|block| data.block_pointer(block % 2500).unwrap()).collect()].concat()
    }),
];

#[test]
fn a_lost_block_of_one_file_system_does_not_stop_the_others() {
    let made = pool_with_file();
    for (what, find) in LOST {
        let pointers = found(&made, &find);
        let disks = made.snapshot();
        for pointer in &pointers {
            disks.damage_block(pointer, &|_, _| true);
        }
        let pool = disks.import(false).unwrap_or_else(|error| panic!("{what}: import: {error}"));
        // Whatever can be done to it is done or refused.
        if let Ok(fs) = pool.file_system("tank/d") {
            let user = Credentials::root();
            for name in ["f", "small"] {
                if let Ok(stat) = fs.lookup(fs.root(), name.as_bytes()) {
                    let _ = fs.read(stat.inode, 0, 100_000);
                    let _ = fs.write(stat.inode, WriteMode::At(0), &[3; 100], &user);
                    let _ = fs.setxattr(stat.inode, b"user.large", &[8; 6000], XattrMode::Any);
                    fs.forget(stat.inode, 1);
                }
            }
            for number in 0..40 {
                if let Ok(stat) = fs.create(fs.root(), format!("n{number}").as_bytes(), 0o100_644, 0, &user) {
                    let _ = fs.write(stat.inode, WriteMode::At(0), &[1; 5000], &user);
                    fs.forget(stat.inode, 1);
                }
            }
            pool.sync().unwrap_or_else(|error| panic!("{what}: the pool stopped: {error}"));
            let _ = fs.unlink(fs.root(), b"small");
            let _ = fs.unlink(fs.root(), b"f");
            fs.release_all();
        }
        goes_on(&pool, what, false);
        pool.destroy_file_system("tank/d").unwrap_or_else(|error| panic!("{what}: destroy: {error}"));
        for _ in 0..6 {
            pool.sync().unwrap_or_else(|error| panic!("{what}: the pool stopped: {error}"));
        }
        assert!(!pool.engine().dsl.has_background_frees().unwrap(), "{what}: something is still to be freed");
        pool.export().unwrap_or_else(|error| panic!("{what}: export: {error}"));
        let leaked = leak(&disks, what);
        say(&format!("leaks: {what}: {leaked} bytes, in the property, by our checker and by zdb"));
    }
}

/// The header of a gang block is lost: the places of its pieces are not known.
#[test]
fn a_lost_gang_header_does_not_stop_the_pool() {
    let disks = MemoryDisks::create(LAYOUT, &[("compression", "off"), ("redundant_metadata", "none")]);
    let pool = disks.import(false).unwrap();
    pool.engine().context.io.allocator().faults.fragment(16 << 10);
    pool.create_file_system("tank/d", Vec::new()).unwrap();
    make(&pool.file_system("tank/d").unwrap(), "f", 1 << 20);
    pool.export().unwrap();
    let gangs = found(&disks, &|pool| {
        let file = dnode(pool, "tank/d", "f");
        (2..4).map(|block| file.block_pointer(block).unwrap()).collect()
    });
    assert!(gangs.iter().all(|gang| gang.dvas().all(|dva| dva.gang)), "no gang blocks");
    for gang in &gangs {
        disks.damage_block(gang, &|_, _| true);
    }
    let pool = disks.import(false).unwrap();
    let fs = pool.file_system("tank/d").unwrap();
    fs.unlink(fs.root(), b"f").unwrap();
    drop(fs);
    pool.export().unwrap();
    let headers: u64 = gangs.iter().flat_map(BlkPtr::dvas).map(|_| BLOCK as u64).sum();
    let all: u64 = gangs.iter().flat_map(BlkPtr::dvas).map(|dva| dva.allocated).sum();
    assert_eq!(leak(&disks, "gang headers"), all - headers);
}

/// A file of a file system with a snapshot, that the snapshot has too, with one level of indirect blocks.
fn file_with_snapshot(pool: &Arc<Pool>) -> Option<(String, u64)> {
    let dsl = &pool.engine().dsl;
    let mut waiting = vec![(pool.name(), dsl.root_dir().unwrap())];
    while let Some((name, dir)) = waiting.pop() {
        waiting.extend(dsl.children(&dir).unwrap().into_iter().map(|(child, dir)| (format!("{name}/{child}"), dir)));
        let Ok(dataset) = dsl.open_dataset(&name) else { continue };
        let Some(prev) = dataset.prev().filter(|prev| Some(prev.object) != dsl.origin_snapshot()) else { continue };
        let (Ok(head), Ok(snapshot)) = (dsl.objset(&dataset), dsl.objset(&prev)) else { continue };
        let mut object = 0;
        while let Ok(Some(next)) = head.next_object(object) {
            object = next;
            let (Ok(new), Ok(old)) = (head.hold(object), snapshot.hold(object)) else { continue };
            let (new, old) = (new.on_disk(), old.on_disk());
            let is_plain = new.object_type == ObjectType::PLAIN_FILE_CONTENTS;
            if is_plain && new.levels == 2 && new.pointers[0] == old.pointers[0] && new.max_block >= 2 {
                return Some((name, object));
            }
        }
    }
    None
}

/// The head had written to a file since the snapshot, so that its indirect block was its own, and most of what is below it the snapshot's too. That block was
/// lost, and the file emptied: the snapshot's blocks were on no deadlist, and would have been leaked with the snapshot.
#[test]
fn what_a_snapshot_has_below_a_lost_block_is_noted() {
    let Some(golden) = Golden::find("snap").unwrap() else { return skipped("a lost block above a snapshot's: no golden pool snap") };
    let made = MemoryDisks::of_images(&golden.images);
    let pool = made.import(false).unwrap();
    let Some((name, file)) = file_with_snapshot(&pool) else { panic!("no such file") };
    let (fs, user) = (pool.file_system(&name).unwrap(), Credentials::root());
    fs.write(file, WriteMode::At(0), &contents(9, 1000, 0), &user).unwrap();
    drop(fs);
    pool.export().unwrap();
    let lost = found(&made, &|pool| objset(pool, &name).hold(file).unwrap().on_disk().pointers[..1].to_vec());
    let deadlist = |disks: &MemoryDisks| {
        let pool = disks.import(false).unwrap();
        let fs = pool.file_system(&name).unwrap();
        fs.truncate(file, 0, &user).unwrap();
        drop(fs);
        pool.sync().unwrap();
        let dataset = pool.engine().dsl.open_dataset(&name).unwrap();
        let space = dataset.deadlist().space(&pool.engine().dsl.meta).unwrap();
        drop(dataset);
        pool.export().unwrap();
        space
    };
    let before = made.snapshot();
    let damaged = made.snapshot();
    damaged.damage_block(&lost[0], &|_, _| true);
    let (expected, noted) = (deadlist(&before), deadlist(&damaged));
    assert_eq!(noted, expected, "{name}: file {file}");
    assert_eq!(leak(&before, "nothing lost"), 0);
    let leaked = leak(&damaged, "a lost block above a snapshot's");
    assert!((512..=1 << 20).contains(&leaked), "{leaked}: the one block that was the head's");
}

/// The administrative verbs on a pool of which one file system has lost its object set: it stopped the import, and then `zfs list` of everything.
#[test]
fn a_lost_file_system_is_listed_and_destroyed() {
    let disks = pool_with_file();
    let lost = found(&disks, &|pool| vec![objset(pool, "tank/d").pointer()]);
    disks.damage_block(&lost[0], &|_, _| true);
    let directory = tempfile::tempdir().unwrap();
    let paths = disks.to_images(directory.path());
    let mut pools = Pools::default();
    let import = import_of(&found_pool(&paths), &paths);
    pools.pool_import(import).unwrap();
    let list = DatasetList { root: None, depth: None, kinds: DatasetKinds::ALL, snapshots_where_listed: false, properties: Wanted::All, received: false };
    let names: Vec<String> = pools.dataset_list(list).unwrap().entries.into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["tank", "tank/d", "tank/other"]);
    pools.dataset_destroy(DatasetDestroy { names: vec!["tank/d".into()], defer: false, force: false }).unwrap();
    pools.pool_export(PoolExport { name: "tank".into(), force: false, hard_force: false }).unwrap();
}
