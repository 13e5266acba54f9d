//! Files that share blocks: random clones, writes, holes and removals, compared with plain copies; then the real `zdb`.
//!
//! Replay with the seed that was printed: `TARN_SEED=n cargo test -p sim --test clones`.

use ondisk::feature::Feature;
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::scenario::{Layout, MemoryDisks, Rig, contents};
use std::sync::Arc;
use tarnfs::{CloneRange, Credentials, FileSystem, InodeNumber, WriteMode};

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
