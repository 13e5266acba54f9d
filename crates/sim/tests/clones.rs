//! Files that share blocks: random clones, writes, holes and removals, compared with plain copies; then the real `zdb`. And wrong
//! counts of what is shared.
//!
//! Replay with the seed that was printed: `TARN_SEED=n cargo test -p sim --test clones`.

use engine::dmu::SyncTx;
use engine::dsl::meta::key;
use engine::dsl::{Dsl, SpaceCheck};
use engine::pool::check::Finding;
use ondisk::blkptr::BlkPtr;
use ondisk::brt::{COUNTS_BLOCK_BYTES, VDEV_PREFIX};
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::golden::Golden;
use sim::places::skipped;
use sim::scenario::{Layout, MemoryDisks, Rig, contents};
use std::collections::HashSet;
use std::sync::Arc;
use tarnfs::{CloneRange, Credentials, FileSystem, InodeNumber, Pool, WriteMode};

const BLOCK: u64 = 16 << 10;
const FILES: usize = 6;
const BLOCKS: u64 = 24;

struct File {
    fs: Arc<FileSystem>,
    inode: InodeNumber,
    expected: Vec<u8>,
}

impl File {
    fn write(&mut self, at: usize, data: &[u8]) {
        self.fs.write(self.inode, WriteMode::At(at as u64), data, &Credentials::root()).expect("a write");
        if self.expected.len() < at + data.len() {
            self.expected.resize(at + data.len(), 0);
        }
        self.expected[at..at + data.len()].copy_from_slice(data);
    }

    fn compare(&self, what: &str) {
        let found = self.fs.read(self.inode, 0, self.expected.len() + 1).expect("contents");
        assert_eq!(found.len(), self.expected.len(), "{what}: size of inode {}", self.inode);
        if let Some(at) = (0..found.len()).find(|at| found[*at] != self.expected[*at]) {
            panic!("{what}: inode {} differs at {at:#x} (block {})", self.inode, at as u64 / BLOCK);
        }
    }
}

fn open_files(rig: &Rig, old: Vec<Vec<u8>>) -> Vec<File> {
    let files = old.into_iter().enumerate().map(|(number, expected)| {
        let dataset = if number % 2 == 0 { "tank" } else { "tank/other" };
        let fs = rig.pool().file_system(dataset).expect(dataset);
        let name = format!("f{number}");
        let inode = fs.lookup(fs.root(), name.as_bytes()).expect("the file").inode;
        File { fs, inode, expected }
    });
    files.collect()
}

/// One random step.
fn step(random: &mut ChaCha8Rng, files: &mut [File], shared: &mut u64) {
    let index = random.random_range(0..FILES);
    let blocks = |random: &mut ChaCha8Rng| random.random_range(0..BLOCKS) * BLOCK;
    match random.random_range(0..10) {
        0..5 => {
            let (from, to) = (blocks(random), blocks(random));
            let source = random.random_range(0..FILES);
            let length = (random.random_range(1..8 * BLOCK)).min((files[source].expected.len() as u64).saturating_sub(from));
            let overlap = source == index && from < to + length && to < from + length;
            if length == 0 || overlap {
                return;
            }
            let (source_inode, source_fs) = (files[source].inode, files[source].fs.clone());
            let target = &mut files[index];
            let range = CloneRange { source: source_inode, from, target: target.inode, to, length };
            let done = target.fs.clone_range(&source_fs, &range, &Credentials::root()).expect("a clone");
            assert!(done <= length);
            if done == 0 {
                return;
            }
            *shared += done;
            let data = files[source].expected[from as usize..(from + done) as usize].to_vec();
            let expected = &mut files[index].expected;
            if expected.len() < (to + done) as usize {
                expected.resize((to + done) as usize, 0);
            }
            expected[to as usize..(to + done) as usize].copy_from_slice(&data);
        }
        5..8 => {
            let length = random.random_range(1..2 * BLOCK as usize);
            let at = random.random_range(0..(BLOCKS * BLOCK) as usize);
            files[index].write(at, &contents(random.next_u64(), length, (length % 3) as u8));
        }
        8 => {
            let (at, length) = (blocks(random), random.random_range(1..3 * BLOCK));
            let file = &mut files[index];
            file.fs.punch_hole(file.inode, at, length, &Credentials::root()).expect("a hole");
            let size = file.expected.len();
            file.expected[(at as usize).min(size)..((at + length) as usize).min(size)].fill(0);
        }
        _ => {
            let size = random.random_range(0..BLOCKS * BLOCK);
            let file = &mut files[index];
            file.fs.truncate(file.inode, size, &Credentials::root()).expect("another size");
            file.expected.resize(size as usize, 0);
        }
    }
}

#[test]
fn shared_blocks_are_as_good_as_copies() {
    let seed = std::env::var("TARN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| rand::rng().next_u64());
    println!("TARN_SEED={seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut rig = Rig::create(Layout { tops: 2, ..Layout::default() }, &[("recordsize", "16K")]);
    rig.create_file_system("tank/other", &[("compression", "off"), ("checksum", "sha256")]);
    for number in 0..FILES {
        let fs = rig.pool().file_system(if number % 2 == 0 { "tank" } else { "tank/other" }).expect("a file system");
        fs.create(fs.root(), format!("f{number}").as_bytes(), 0o100_644, 0, &Credentials::root()).expect("a file");
    }
    let mut files = open_files(&rig, vec![Vec::new(); FILES]);
    for file in &mut files {
        file.write(0, &contents(random.next_u64(), (BLOCKS * BLOCK) as usize - 100, 0));
    }
    let mut shared = 0;
    for round in 0..4 {
        for number in 0..60 {
            step(&mut random, &mut files, &mut shared);
            if number % 20 == 19 {
                files.iter().for_each(|file| file.compare(&format!("round {round}, step {number}")));
            }
        }
        let old = files.drain(..).map(|file| { file.fs.release_all(); file.expected }).collect();
        rig.export();
        let what = format!("clones: seed {seed}, round {round}");
        rig.check(&what);
        rig.zdb(&what, round == 3);
        rig.import();
        files = open_files(&rig, old);
        files.iter().for_each(|file| file.compare(&what));
    }
    assert!(shared > 0, "nothing was ever shared");
    let cloning = |rig: &Rig| rig.pool().engine().dsl.meta.features.count(Feature::BlockCloning).unwrap_or(0);
    for (number, file) in files.drain(..).enumerate() {
        file.fs.unlink(file.fs.root(), format!("f{number}").as_bytes()).expect("removed");
        file.fs.release_all();
    }
    rig.sync();
    rig.export();
    rig.check("clones: all removed");
    rig.zdb("clones: all removed", false);
    rig.import();
    assert_eq!(cloning(&rig), 0, "the table of clones is left");
}

/// What is shared takes no room: it is not asked for, either, as OpenZFS does not. (Twice the length was; a file that took more than a third
/// of a pool could not be shared.)
#[test]
fn a_large_file_can_be_shared_again_and_again() {
    const LENGTH: usize = 70 << 20;
    let mut rig = Rig::create(Layout::default(), &[("recordsize", "1M"), ("compression", "off")]);
    let fs = rig.pool().file_system("tank").expect("a file system");
    let user = Credentials::root();
    let new = |name: &str| fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &user).expect("a file").inode;
    let (source, data) = (new("source"), contents(5, LENGTH, 0));
    fs.write(source, WriteMode::At(0), &data, &user).expect("written");
    rig.sync();
    for number in 0..4 {
        let target = new(&format!("clone{number}"));
        let range = CloneRange { source, from: 0, target, to: 0, length: LENGTH as u64 };
        assert_eq!(fs.clone_range(&fs, &range, &user).expect("shared"), LENGTH as u64, "clone {number}");
        rig.sync();
        assert!(fs.read(target, 60 << 20, 1 << 20).expect("read") == data[60 << 20..61 << 20], "clone {number}");
    }
    fs.write(source, WriteMode::At(0), &data[1 << 20..9 << 20], &user).expect("there is room for more");
    fs.release_all();
    drop(fs);
    rig.export();
    rig.check("a large file, shared");
    rig.zdb("a large file, shared", true);
}

/// Some of the source cannot be read, after some of it has been shared: that counts. (It was changed, and said to be as it was.)
#[test]
fn what_was_shared_before_a_failure_is_said_to_be() {
    // Two blocks of pointers, each of which is one step.
    const LENGTH: usize = 1 << 20;
    let disks = MemoryDisks::create(Layout { bytes: 64 << 20, ..Layout::default() }, &[("recordsize", "512"), ("compression", "off")]);
    let (user, data) = (Credentials::root(), contents(6, LENGTH, 0));
    let pool = disks.import(false).expect("an import");
    let fs = pool.file_system("tank").expect("a file system");
    let [source, target] = ["source", "target"].map(|name| fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &user).expect("a file").inode);
    fs.write(source, WriteMode::At(0), &data, &user).expect("written");
    fs.release_all();
    drop(fs);
    pool.export().expect("exported");
    let (mut nth, mut in_part) = (0, 0);
    loop {
        nth += 1;
        assert!(nth < 200, "it reads that often");
        let disks = disks.snapshot();
        let pool = disks.import(false).expect("an import");
        let fs = pool.file_system("tank").expect("a file system");
        let sizes = [source, target].map(|inode| fs.getattr(inode).expect("attributes").size);
        assert_eq!(sizes, [LENGTH as u64, 0]);
        disks.disk(0).faults.fail_reads_from(nth);
        let shared = fs.clone_range(&fs, &CloneRange { source, from: 0, target, to: 0, length: LENGTH as u64 }, &user);
        disks.disk(0).faults.break_reads(false);
        let size = fs.getattr(target).expect("attributes").size;
        assert_eq!(size, *shared.as_ref().unwrap_or(&0), "read {nth}: {shared:?}");
        assert!(fs.read(target, 0, LENGTH).expect("contents") == data[..size as usize], "read {nth}");
        in_part += u32::from(size > 0 && size < LENGTH as u64);
        fs.release_all();
        drop(fs);
        pool.export().expect("exported");
        if size == LENGTH as u64 {
            break;
        }
    }
    assert!(in_part > 0, "it never failed after the first step");
}

/// What our checker finds in the pool on these disks.
fn found(disks: &MemoryDisks) -> Vec<Finding> {
    let pool = disks.import(true).expect("an import");
    let report = pool.check(false, &|_| ()).expect("a check");
    pool.abandon();
    report.findings
}

/// Nothing is wrong, until the table counts one pointer to `block` more than there are, or one fewer: then that is all that is wrong.
fn check_counts(disks: &MemoryDisks, block: BlkPtr, what: &str) {
    let before = found(disks);
    assert!(before.is_empty(), "{what}: {before:?}");
    for is_more in [true, false] {
        let changed = disks.snapshot();
        let pool = changed.import(false).expect("an import");
        let change = move |_: &Arc<Dsl>, tx: &SyncTx<'_>| {
            if is_more {
                return tx.context.io.add_reference(&block, 0);
            }
            tx.free(&block);
            Ok(())
        };
        pool.engine().dsl.run_task(1, SpaceCheck::None, |_| Ok(()), change).expect("another count");
        pool.export().expect("exported");
        let after = found(&changed);
        let is_right = |recorded: u64, found: u64| found > 1 && if is_more { recorded == found + 1 } else { recorded + 1 == found };
        assert!(matches!(after[..], [Finding::Accounting { recorded, found, .. }] if is_right(recorded, found)), "{what}: one more: {is_more}: {after:?}");
    }
}

/// Any two pointers to a cloned block were fine to our checker, however many the table counted: had it lost one, the next free would have given the block away.
#[test]
fn wrong_counts_of_clones_are_found() {
    let disks = MemoryDisks::create(Layout { bytes: 64 << 20, ..Layout::default() }, &[("recordsize", "16K"), ("compression", "off")]);
    let (user, length) = (Credentials::root(), 5 * BLOCK);
    let pool = disks.import(false).expect("an import");
    let fs = pool.file_system("tank").expect("a file system");
    let [source, one, other] = ["source", "one", "other"].map(|name| fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &user).expect("a file").inode);
    fs.write(source, WriteMode::At(0), &contents(8, length as usize, 0), &user).expect("written");
    pool.sync().expect("synced");
    for target in [one, other] {
        let range = CloneRange { source, from: 0, target, to: 0, length };
        assert_eq!(fs.clone_range(&fs, &range, &user).expect("shared"), length);
    }
    pool.sync().expect("synced");
    let block = fs.objset().hold(source).expect("the file").block_pointer(2).expect("its pointer");
    fs.release_all();
    drop(fs);
    pool.export().expect("exported");
    check_counts(&disks, block, "clones");
    // Where the range of an entry counts none, frees do not look for it.
    let pool = disks.import(false).expect("an import");
    let change = |dsl: &Arc<Dsl>, tx: &SyncTx<'_>| {
        let counts = dsl.meta.mos.zap_u64(key::DIRECTORY, &format!("{VDEV_PREFIX}0"))?.expect("a table of clones");
        let mut bytes = vec![1_u8; COUNTS_BLOCK_BYTES as usize];
        bytes[..1024].fill(0);
        dsl.meta.mos.write(counts, 0, &bytes, tx)
    };
    pool.engine().dsl.run_task(1, SpaceCheck::None, |_| Ok(()), change).expect("no counts");
    pool.export().expect("exported");
    let after = found(&disks);
    let is_wrong = |finding: &Finding| matches!(finding, Finding::Accounting { recorded: 1, found: 3, .. });
    assert!(after.len() == 5 && after.iter().all(is_wrong), "{after:?}");
}

/// A deduplicated block to which two pointers of one dataset lead.
fn deduplicated_block(pool: &Arc<Pool>) -> BlkPtr {
    let dsl = &pool.engine().dsl;
    let mut waiting = vec![(pool.name(), dsl.root_dir().expect("the root"))];
    while let Some((name, dir)) = waiting.pop() {
        waiting.extend(dsl.children(&dir).expect("children").into_iter().map(|(child, dir)| (format!("{name}/{child}"), dir)));
        let Ok(objset) = dsl.open_dataset(&name).and_then(|dataset| dsl.objset(&dataset)) else { continue };
        let (mut seen, mut object) = (HashSet::new(), 0);
        while let Some(next) = objset.next_object(object).expect("an object") {
            object = next;
            let Ok(dnode) = objset.hold(object) else { continue };
            if dnode.object_type() != ObjectType::PLAIN_FILE_CONTENTS {
                continue;
            }
            for block in 0..=dnode.max_block().min(500) {
                let pointer = dnode.block_pointer(block).expect("a pointer");
                let is_block = !pointer.is_hole() && !pointer.is_embedded();
                if is_block && pointer.is_dedup() && !seen.insert(pointer.first_dva()) {
                    return pointer;
                }
            }
        }
    }
    panic!("no block is deduplicated");
}

/// The same of the tables of deduplication, older and newer ones.
#[test]
fn wrong_counts_of_deduplicated_blocks_are_found() {
    for name in ["dedup-legacy", "dedup-fast"] {
        let Some(golden) = Golden::find(name).expect("a golden pool") else {
            skipped(&format!("counts of deduplicated blocks: the golden pool {name} is not there"));
            continue;
        };
        let disks = MemoryDisks::of_images(&golden.images);
        let pool = disks.import(true).expect("an import");
        let block = deduplicated_block(&pool);
        pool.abandon();
        check_counts(&disks, block, name);
    }
}

/// A file that was made empty got the smaller blocks of what was cloned into it. It is the same file, though: no receiver that has it takes it with smaller ones.
#[test]
fn blocks_of_an_emptied_file_do_not_become_smaller() {
    const LARGE: usize = 128 << 10;
    let mut rig = Rig::create(Layout::default(), &[("recordsize", "128K"), ("compression", "off")]);
    let fs = rig.pool().file_system("tank").expect("a file system");
    let user = Credentials::root();
    let [small, big] = ["small", "big"].map(|name| fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &user).expect("a file").inode);
    fs.write(small, WriteMode::At(0), &contents(9, 10240, 0), &user).expect("written");
    fs.write(big, WriteMode::At(0), &contents(10, 8 * LARGE, 0), &user).expect("written");
    rig.sync();
    fs.truncate(big, 0, &user).expect("emptied");
    let range = CloneRange { source: small, from: 0, target: big, to: 0, length: 10240 };
    assert_eq!(fs.clone_range(&fs, &range, &user).expect("nothing is shared"), 0);
    assert_eq!(fs.objset().hold(big).expect("the file").info().block_bytes, LARGE as u64);
    fs.release_all();
    drop(fs);
    rig.export();
    rig.check("an emptied file");
}
