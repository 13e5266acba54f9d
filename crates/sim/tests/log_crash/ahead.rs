//! What lies ahead of the log is written with zeros before the log gets there: never over anything that somebody needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tarnfs::zpl::FileSystem;
use tarnfs::{Credentials, WriteMode};

use crate::crowd;
use crate::directed::make;
use crate::disk::CutDisk;
use crate::{Mode, check, create_with, file_system, file_system_in, open, top, zdb};

/// Large enough that the log has a metaslab to itself, and small enough that it is full soon.
const BYTES: usize = 136 << 20;

fn gaining_disk() -> Arc<CutDisk> {
    let disk = CutDisk::new(vec![0; BYTES]);
    disk.gains.store(true, Ordering::Relaxed);
    disk
}

#[test]
fn what_was_acknowledged_while_places_were_prepared_is_there() {
    let first: u64 = rand::random_range(0..1 << 40);
    println!("seeds {first}..");
    let mut prepared = 0;
    for seed in first..first + 3 {
        let disk = gaining_disk();
        crowd::run(&disk, 8, seed % 60, seed);
        prepared += disk.prepared.lock().len();
    }
    assert!(prepared >= 3, "hardly anything was prepared: {prepared}");
}

/// What a file of this number holds. It does not compress.
fn content(number: u64) -> Vec<u8> {
    let mut random = ChaCha8Rng::seed_from_u64(number);
    let mut bytes = vec![0; random.random_range(1..400_000)];
    random.fill(bytes.as_mut_slice());
    bytes
}

/// Files are made, synced and removed until there is no room, again and again: then what is prepared is taken from what others would have.
fn fill(fs: &FileSystem, thread: u64, seed: u64, full: &AtomicUsize) -> Vec<(u64, u64)> {
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ thread);
    let (mut kept, root) = (Vec::new(), Credentials::root());
    for turn in 0..400 {
        let number = (seed << 20) + (thread << 12) + turn;
        let Ok(entry) = fs.create(fs.root(), number.to_string().as_bytes(), 0o100_644, 0, &root) else { continue };
        let written = fs.write(entry.inode, WriteMode::At(0), &content(number), &root);
        if written.is_err() || (random.random_range(0..3) == 0 && fs.fsync(entry.inode).is_err()) {
            full.fetch_add(1, Ordering::Relaxed);
            fs.unlink(fs.root(), number.to_string().as_bytes()).unwrap();
            // Room for the next ones.
            for _ in 0..kept.len() / 4 {
                let (gone, _) = kept.swap_remove(random.random_range(0..kept.len()));
                fs.unlink(fs.root(), format!("{gone}").as_bytes()).unwrap();
            }
        } else {
            kept.push((number, entry.inode));
        }
        fs.forget(entry.inode, 1);
    }
    kept
}

#[test]
fn what_is_prepared_is_nobodys_in_a_full_pool_too() {
    let seed: u64 = std::env::var("TARN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| rand::random_range(0..1 << 30));
    let what = format!("TARN_SEED={seed} cargo test -p sim --test log_crash what_is_prepared");
    println!("{what}");
    let (disk, full) = (gaining_disk(), AtomicUsize::new(0));
    let pool = create_with(vec![top(&disk, "/cut", false)], Mode::default());
    let fs = file_system_in(&pool, Mode::default());
    fs.fsync(make(&fs, "first")).unwrap();
    let kept: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn({ let (fs, full) = (&fs, &full); move || fill(fs, thread, seed, full) })).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(full.load(Ordering::Relaxed) > 0, "{what}: it was never full");
    assert!(disk.prepared.lock().len() > 1, "{what}: nothing was prepared");
    fs.release_all();
    drop(fs);
    pool.sync_all().unwrap();
    pool.export().unwrap();
    let disk = CutDisk::new(disk.cut(0).image);
    let pool = open(&disk, false);
    let fs = file_system(&pool);
    for (number, _) in &kept {
        let entry = fs.lookup(fs.root(), number.to_string().as_bytes()).unwrap_or_else(|error| panic!("{what}: file {number}: {error}"));
        let wanted = content(*number);
        let read = fs.read(entry.inode, 0, wanted.len() + 1).unwrap_or_else(|error| panic!("{what}: file {number}: {error}"));
        assert!(read == wanted, "{what}: file {number} is not what was written");
        fs.forget(entry.inode, 1);
    }
    fs.release_all();
    drop(fs);
    check(&pool, &what);
    pool.export().unwrap();
    zdb(&disk.cut(0).image, &what);
}
