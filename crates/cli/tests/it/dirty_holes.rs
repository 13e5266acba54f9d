//! Holes of files that are being written: a program that copies a file by its holes (`cp` does) beside writers and snapshots gets what was written,
//! not zeros in its place (openzfs 15526).

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::fs::{SeekFrom, seek};

use crate::rig::Rig;

/// Bytes of one write: no multiple of a block.
const PIECE_BYTES: usize = 3000;
const PIECES: u64 = 150;
const ROUNDS: u64 = 6;

/// What is written to a place: never a zero.
fn piece(number: u64) -> Vec<u8> {
    vec![(number % 255) as u8 + 1; PIECE_BYTES]
}

/// Reads the data of a file, and takes zeros for its holes, as programs do that copy it.
fn copy_by_holes(file: &File) -> Vec<u8> {
    let length = file.metadata().unwrap().len();
    let (mut copy, mut at) = (vec![0; length as usize], 0);
    while let Ok(data) = seek(file, SeekFrom::Data(at)) {
        let hole = seek(file, SeekFrom::Hole(data)).unwrap().min(length);
        if data >= hole {
            break;
        }
        file.read_exact_at(&mut copy[data as usize..hole as usize], data).unwrap();
        at = hole;
    }
    copy
}

/// All that was written before is in what is copied now.
fn read_along(path: &Path, written: &AtomicU64, is_over: &AtomicBool, seed: u64) -> u64 {
    let (file, mut dice, mut copies) = (File::open(path).unwrap(), ChaCha8Rng::seed_from_u64(seed), 0);
    while !is_over.load(Ordering::Acquire) {
        let end = written.load(Ordering::Acquire) * PIECE_BYTES as u64;
        if end == 0 {
            continue;
        }
        assert!(seek(&file, SeekFrom::Hole(0)).unwrap() >= end, "a hole where data was written, before {end}");
        let inside = dice.random_range(0..end);
        assert_eq!(seek(&file, SeekFrom::Data(inside)).unwrap(), inside, "no data where data was written, of {end} bytes");
        let copy = copy_by_holes(&file);
        assert!(copy.len() as u64 >= end, "{} bytes, after {end} were written", copy.len());
        let wrong = (0..end as usize).find(|at| copy[*at] != piece((at / PIECE_BYTES) as u64)[0]);
        assert!(wrong.is_none(), "byte {wrong:?} of {end} is not what was written");
        copies += 1;
    }
    copies
}

#[test]
fn holes_of_dirty_files() {
    let Some(rig) = Rig::new() else { return };
    rig.image("img", 1 << 30);
    rig.ok("zpool create -O compression=off -O recordsize=16k -m @mnt tank @img");
    let mut copies = 0;
    for round in 0..ROUNDS {
        let path = rig.path("mnt").join(format!("f{round}"));
        let (written, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let file = File::create(&path).unwrap();
        copies += thread::scope(|scope| {
            let readers: Vec<_> = (0..2).map(|seed| scope.spawn({
                let (path, written, is_over) = (&path, &written, &is_over);
                move || read_along(path, written, is_over, seed)
            })).collect();
            let (rig, over) = (&rig, &is_over);
            let snapshots = scope.spawn(move || {
                for number in 0.. {
                    if over.load(Ordering::Acquire) {
                        return;
                    }
                    rig.ok(&format!("zfs snapshot tank@r{round}n{number}"));
                }
            });
            for number in 0..PIECES {
                file.write_all_at(&piece(number), number * PIECE_BYTES as u64).unwrap();
                written.store(number + 1, Ordering::Release);
                if number % 16 == 0 {
                    // Both are there at a group's end and in its middle.
                    thread::sleep(std::time::Duration::from_millis(3));
                }
            }
            thread::sleep(std::time::Duration::from_millis(50));
            is_over.store(true, Ordering::Release);
            snapshots.join().unwrap();
            readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u64>()
        });
        // A copy right after the last write, and after a change in the middle.
        let small = rig.path("mnt").join("small");
        for number in 0..40 {
            fs::write(&small, piece(number)).unwrap();
            assert_eq!(copy_by_holes(&File::open(&small).unwrap()), piece(number), "a file that was just written");
        }
        let expected: Vec<u8> = (0..PIECES).flat_map(piece).collect();
        assert_eq!(copy_by_holes(&File::open(&path).unwrap()), expected);
    }
    println!("{copies} copies");
    assert!(copies > ROUNDS, "{copies} copies");
    rig.ok("zpool export tank");
    rig.zdb(&["img"]);
}
