//! Damage, made while a pool is exported, to what says which blocks are to be freed: deadlists, their block pointer objects, the list of deferred frees.
//!
//! # Theory
//! With a good copy left nobody notices, and real zdb finds nothing wrong afterwards. With none left a list of what is being freed is given up, and its space stays
//! in `$FREE`; where a deadlist's map is needed the pool stops, since this is the pool's own. But nothing panics or hangs, an error names what is lost,
//! and what can still be read is read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use ondisk::blkptr::BlkPtr;
use ondisk::object_type::ObjectType;
use sim::golden::Golden;
use sim::oracle::zdb_check;
use sim::places::{say, skipped};
use sim::scenario::{MemoryDisks, contents};
use tarnfs::{Credentials, Error, ErrorKind, FileKind, Pool, WriteMode};

const LIMIT: Duration = Duration::from_secs(240);
/// Of each kind, in each pool.
const BLOCKS_MAX: usize = 60;
const POOLS: [&str; 3] = ["snap", "dedup-legacy", "upgraded"];
const KINDS: [(&str, ObjectType); 5] = [
    ("deadlist map", ObjectType::DEADLIST),
    ("deadlist map's header", ObjectType::DEADLIST_HDR),
    ("block pointer object", ObjectType::BPOBJ),
    ("block pointer object's header", ObjectType::BPOBJ_HDR),
    ("list of block pointer objects", ObjectType::BPOBJ_SUBOBJ),
];

/// The first blocks of all MOS objects of one type.
fn blocks(disks: &MemoryDisks, kind: ObjectType) -> Vec<BlkPtr> {
    let pool = disks.import(true).unwrap();
    let mos = &pool.engine().dsl.meta.mos.0;
    let (mut found, mut object) = (Vec::new(), 0);
    while let Some(next) = mos.next_object(object).unwrap() {
        object = next;
        let dnode = mos.hold(object).unwrap();
        if dnode.on_disk().object_type == kind {
            found.extend((0..=dnode.max_block()).filter_map(|block| dnode.block_pointer(block).ok()));
        }
    }
    found.retain(|pointer| pointer.first_dva().is_some());
    pool.abandon();
    found
}

/// In each file system some files are changed and removed: blocks of snapshots go to deadlists, others are freed. Then perhaps those that may be are destroyed.
fn work(pool: &Arc<Pool>, destroys: bool) -> Result<(), Error> {
    let dsl = &pool.engine().dsl;
    let mut waiting = vec![(pool.name(), dsl.root_dir()?)];
    let (mut result, mut without_children) = (Ok(()), Vec::new());
    while let Some((name, dir)) = waiting.pop() {
        let children = dsl.children(&dir)?;
        if children.is_empty() {
            without_children.push(name.clone());
        }
        waiting.extend(children.into_iter().map(|(child, dir)| (format!("{name}/{child}"), dir)));
        let Ok(fs) = pool.file_system(&name) else { continue };
        let user = Credentials::root();
        let mut names = Vec::new();
        fs.read_directory(fs.root(), 2, &mut |entry| {
            names.push(entry.name);
            names.len() < 20
        })?;
        for (number, file) in names.iter().enumerate() {
            let stat = fs.lookup(fs.root(), file)?;
            if stat.kind() == FileKind::Regular {
                let changed = fs.write(stat.inode, WriteMode::At(7), &contents(number as u64, 5000, 0), &user).map(drop);
                let removed = if number % 2 == 0 { fs.unlink(fs.root(), file).map(drop) } else { Ok(()) };
                result = result.and(changed).and(removed);
            }
            fs.forget(stat.inode, 1);
        }
        fs.release_all();
    }
    result = result.and(pool.sync());
    // A clone's deadlist is taken apart.
    for name in without_children.into_iter().filter(|_| destroys) {
        if let Err(error) = pool.destroy_file_system(&name)
            && !matches!(error.kind(), ErrorKind::Busy | ErrorKind::Exists | ErrorKind::Invalid)
        {
            result = result.and(Err(error));
        }
    }
    result.and(pool.sync())
}

/// Imports, works, exports; what failed first.
fn live(disks: &MemoryDisks, destroys: bool) -> Result<(), Error> {
    let pool = disks.import(false)?;
    if let Err(error) = work(&pool, destroys) {
        pool.abandon();
        return Err(error);
    }
    pool.export()
}

/// The same in a thread of its own, so that a hang is a failure and not the end of the test run.
fn live_in_time(disks: Arc<MemoryDisks>, destroys: bool, what: &str) -> Result<(), Error> {
    let (sender, receiver) = channel();
    #[allow(clippy::disallowed_methods)]
    let thread = std::thread::spawn(move || sender.send(live(&disks, destroys)));
    match receiver.recv_timeout(LIMIT) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("{what}: hangs"),
        Err(_) => panic!("{what}: panicked: {:?}", thread.join().is_err()),
    }
}

#[test]
fn damaged_lists_of_what_is_to_be_freed() {
    let mut kinds = BTreeMap::<&str, usize>::new();
    for name in POOLS {
        match Golden::find(name).unwrap() {
            Some(golden) => damage(name, &golden, &mut kinds),
            None => skipped(&format!("damage to deadlists: the golden pool {name} is not there")),
        }
    }
    say(&format!("damage to what is to be freed: {kinds:?}"));
}

fn damage(name: &str, golden: &Golden, kinds: &mut BTreeMap<&'static str, usize>) {
    let made = Arc::new(MemoryDisks::of_images(&golden.images));
    // The deadlists of heads get something.
    live_in_time(made.clone(), false, name).unwrap_or_else(|error| panic!("{name}: {error}"));
    let everything = Arc::new(made.snapshot());
    for (kind, object_type) in KINDS {
        for (number, pointer) in blocks(&made, object_type).iter().enumerate().take(BLOCKS_MAX) {
            let what = format!("{name}: all copies of {kind} {number}");
            assert!(pointer.dvas().count() > 1, "{what}: there is one");
            everything.damage_block(pointer, &|number, _| number == 0);
            let disks = Arc::new(made.snapshot());
            disks.damage_block(pointer, &|_, _| true);
            if let Err(error) = live_in_time(disks.clone(), true, &what) {
                let message = error.message();
                assert!(message.len() > 10 && !message.contains("(os error") && !message.contains("a bug"), "{what}: {message}");
                say(&format!("{what}: {message}"));
                *kinds.entry(kind).or_default() += 1;
            }
            // What is there is read, whatever was lost of what was to be freed.
            let pool = disks.import(true).unwrap_or_else(|error| panic!("{what}: not even to be read: {error}"));
            let fs = pool.file_system(&pool.name()).unwrap_or_else(|error| panic!("{what}: {error}"));
            fs.read_directory(fs.root(), 2, &mut |_| true).unwrap_or_else(|error| panic!("{what}: {error}"));
            drop(fs);
            pool.abandon();
        }
    }
    live_in_time(everything.clone(), true, name).unwrap_or_else(|error| panic!("{name}: one copy of each: {error}"));
    let directory = tempfile::tempdir().unwrap();
    let images = everything.to_images(directory.path());
    let images: Vec<&Path> = images.iter().map(PathBuf::as_path).collect();
    zdb_check(&images).expect_clean(&format!("{name}: one copy of each list was damaged"));
}
