//! Megabytes that are synced again and again: their blocks are written before anybody asks, and several rounds of a commit by several threads. Then the
//! power goes.

use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tarnfs::{Credentials, WriteMode};

use crate::directed::make;
use crate::disk::CutDisk;
use crate::{DISK_BYTES, Mode, check, create_with, file_system_in, open, replay, top, zdb};

const SYNCS: usize = 3;
/// Beyond one round.
const BETWEEN_SYNCS: usize = 5 << 20;
const PIECES: std::ops::Range<usize> = 20_000..80_000;

#[test]
fn what_was_written_before_it_was_asked_for_is_there() {
    for seed in 0..4 {
        println!("seed {seed}");
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let disk = CutDisk::new(vec![0; DISK_BYTES]);
        let mode = Mode::default();
        let pool = create_with(vec![top(&disk, "/cut", false)], mode);
        let fs = file_system_in(&pool, mode);
        let (file, user) = (make(&fs, "file"), Credentials::root());
        let mut model: Vec<u8> = Vec::new();
        let write = |offset: usize, model: &mut Vec<u8>, random: &mut ChaCha8Rng| {
            let mut piece = vec![0; random.random_range(PIECES)];
            random.fill_bytes(&mut piece);
            fs.write(file, WriteMode::At(offset as u64), &piece, &user).unwrap();
            let end = model.len().max(offset + piece.len());
            model.resize(end, 0);
            model[offset..offset + piece.len()].copy_from_slice(&piece);
        };
        for _ in 0..SYNCS {
            let begin = model.len();
            while model.len() < begin + BETWEEN_SYNCS {
                let end = model.len();
                write(end, &mut model, &mut random);
                // Over what is just being written, perhaps.
                if random.random_range(0..20) == 0 {
                    let back = random.random_range(1..(end - begin).clamp(2, 1 << 20));
                    write(end - back.min(end), &mut model, &mut random);
                }
            }
            fs.fsync(file).unwrap();
        }
        let safe = model.len();
        while model.len() < safe + (3 << 20) {
            let end = model.len();
            write(end, &mut model, &mut random);
        }
        let image = disk.cut(seed).image;
        fs.release_all();
        drop(fs);
        pool.sync_all().unwrap();
        check(&pool, "blocks that were written early");
        pool.export().unwrap();
        zdb(&image, "the power went");
        let pool = open(&CutDisk::new(image), false);
        let fs = file_system_in(&pool, mode);
        replay(&pool, &fs, "blocks that were written early");
        let found = fs.lookup(fs.root(), b"file").unwrap();
        assert!(fs.read(found.inode, 0, safe).unwrap() == model[..safe], "seed {seed}: what was acknowledged is gone");
        fs.release_all();
        drop(fs);
        check(&pool, "after the replay");
        pool.export().unwrap();
    }
}
