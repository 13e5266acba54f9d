//! Requests of every shape against memory, on a file opened past the cache and on loop devices with both sizes of sectors.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::{Access, Disk, DiskKind, FileDisk};

const BYTES: usize = 3 << 20;

fn skipped(what: &str) {
    let _ = std::io::stderr().write_all(format!("SKIPPED: {what}\n").as_bytes());
}

/// What a disk does, as the model asks it.
trait Subject: Sync {
    fn read(&self, buf: &mut [u8], offset: u64);
    fn read_pieces(&self, bufs: &mut [&mut [u8]], offset: u64);
    fn write(&self, bufs: &[&[u8]], offset: u64, durable: bool);
}

impl Subject for (&File, &Direct) {
    fn read(&self, buf: &mut [u8], offset: u64) {
        self.1.read(self.0, buf, offset).unwrap();
    }

    fn read_pieces(&self, bufs: &mut [&mut [u8]], offset: u64) {
        self.1.read_vectored(self.0, bufs, offset).unwrap();
    }

    fn write(&self, bufs: &[&[u8]], offset: u64, durable: bool) {
        let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
        self.1.write(self.0, bufs, offset, flags).unwrap();
    }
}

impl Subject for FileDisk {
    fn read(&self, buf: &mut [u8], offset: u64) {
        self.read_at(buf, offset).unwrap();
    }

    fn read_pieces(&self, bufs: &mut [&mut [u8]], offset: u64) {
        self.read_vectored_at(bufs, offset).unwrap();
    }

    fn write(&self, bufs: &[&[u8]], offset: u64, durable: bool) {
        match bufs {
            _ if durable => self.write_durable_at(bufs, offset).unwrap(),
            [buf] => self.write_at(buf, offset).unwrap(),
            _ => self.write_vectored_at(bufs, offset).unwrap(),
        }
    }
}

fn seed() -> u64 {
    std::env::var("TARN_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Random requests, whole sectors and parts of them, in memory that is aligned and not; all of it is compared now and then.
fn against_memory(subject: &dyn Subject, seed: u64, requests: usize) {
    println!("TARN_SEED={seed} cargo test -p disk direct");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut model = vec![0; BYTES];
    subject.write(&[&model], 0, false);
    let mut memory = vec![0_u8; (2 << 20) + 4096];
    for number in 0..requests {
        let unit = [1, 512, 4096][random.random_range(0..3)];
        let longest = [3 * unit, 40_000, 2 << 20][random.random_range(0..3)].min(BYTES);
        let offset = random.random_range(0..BYTES) / unit * unit;
        let length = (random.random_range(1..=longest).next_multiple_of(unit)).min(BYTES - offset);
        let aligned = memory.as_ptr().align_offset(4096);
        let start = if random.random_bool(0.5) { aligned } else { random.random_range(0..4096) };
        let part = &mut memory[start..][..length.min(2 << 20)];
        let end = offset + part.len();
        if random.random_bool(0.4) {
            part.fill(0x5a);
            if random.random_bool(0.5) {
                let (first, rest) = part.split_at_mut(random.random_range(0..=part.len()) / unit * unit);
                let (second, third) = rest.split_at_mut(rest.len() / 2 / unit * unit);
                subject.read_pieces(&mut [first, second, third], offset as u64);
            } else {
                subject.read(part, offset as u64);
            }
            assert!(part == &model[offset..end], "request {number}: {} bytes at {offset}", end - offset);
            continue;
        }
        random.fill(part);
        model[offset..end].copy_from_slice(part);
        // In one piece, or cut anywhere, empty pieces too.
        let cuts = random.random_range(0..4);
        let mut places: Vec<usize> = (0..cuts).map(|_| random.random_range(0..=end - offset) / unit * unit).chain([0, end - offset]).collect();
        places.sort_unstable();
        let pieces: Vec<&[u8]> = places.windows(2).map(|pair| &part[pair[0]..pair[1]]).collect();
        subject.write(&pieces, offset as u64, random.random_bool(0.2));
    }
    let mut whole = vec![1; BYTES];
    subject.read(&mut whole, 0);
    assert!(whole == model, "all of it, after {requests} requests");
}

/// Each thread writes its own pieces of the same sectors: nobody's are lost.
fn neighbours(subject: &dyn Subject, sector: usize) {
    let (threads, own) = (8, sector / 8);
    subject.write(&[&vec![0; 4 * sector]], 0, false);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for round in 1..=20_u8 {
                    for place in 0..4 {
                        subject.write(&[&vec![round * 10 + thread as u8; own]], (place * sector + thread * own) as u64, false);
                    }
                }
            });
        }
    });
    let mut whole = vec![0; 4 * sector];
    subject.read(&mut whole, 0);
    for (at, byte) in whole.iter().enumerate() {
        assert_eq!(usize::from(*byte), 200 + at % sector / own, "byte {at}");
    }
}

/// A durable write waited for the lock of the file while a group was copied into the page cache, and for all that lay there.
#[test]
fn a_file_is_past_the_cache_where_its_file_system_says_how() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("d0");
    let disk = FileDisk::create(&path, BYTES as u64).unwrap();
    if super::alignment(&File::open(&path).unwrap()).is_none_or(|(_, offset)| offset > 512) {
        assert!(!disk.is_direct());
        skipped(&format!("files past the cache: {} does not say how", scratch.path().display()));
        return;
    }
    assert!(disk.is_direct());
    assert!(!FileDisk::open(&path, Access::Inspect).unwrap().is_direct());
    against_memory(&disk, seed(), 400);
}

#[test]
fn a_file_past_the_cache() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("d0");
    std::fs::write(&path, vec![0; BYTES]).unwrap();
    let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&path);
    let Ok(file) = opened else {
        skipped(&format!("direct requests to a file: {} takes none", scratch.path().display()));
        return;
    };
    for sector in [512, 4096] {
        let direct = Direct::new(&file, sector);
        assert!(direct.sector() >= sector && direct.memory >= 1);
        (seed()..seed() + 4).for_each(|seed| against_memory(&(&file, &direct), seed, 60));
        neighbours(&(&file, &direct), direct.sector);
        assert!(locked(&direct.spare).len() <= SPARE_MAX);
    }
}

/// A loop device, and its end.
struct Loop(PathBuf);

impl Loop {
    fn new(file: &Path, sector: u64) -> Option<Loop> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let output = Command::new("losetup").args(["--find", "--show", "--sector-size", &sector.to_string()]).arg(file).output().ok()?;
        output.status.success().then(|| Loop(String::from_utf8(output.stdout).unwrap().trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn a_block_device_is_past_the_cache_and_remembers_every_byte() {
    for sector in [512, 4096] {
        let scratch = tempfile::tempdir().unwrap();
        let image = scratch.path().join("image");
        // The device ends within a sector of 4 K.
        std::fs::write(&image, vec![0; BYTES + 1536]).unwrap();
        let Some(device) = Loop::new(&image, sector) else {
            skipped("direct requests to block devices: loop devices take root and losetup");
            return;
        };
        let disk = FileDisk::open(&device.0, Access::Write).unwrap();
        assert_eq!((disk.kind(), disk.sector_bytes()), (DiskKind::Block, sector));
        assert!(disk.is_direct());
        assert_eq!(disk.size_bytes(), if sector == 512 { BYTES as u64 + 1536 } else { BYTES as u64 });
        (seed()..seed() + 4).for_each(|seed| against_memory(&disk, seed, 60));
        neighbours(&disk, sector as usize);
        let last = disk.size_bytes() - 3;
        disk.write_at(b"end", last).unwrap();
        assert_eq!(disk.write_at(b"end", last + 1).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        disk.flush().unwrap();
        // A program that looks through the cache sees the same.
        let mut cached = vec![0; BYTES];
        File::open(&device.0).unwrap().read_exact_at(&mut cached, 0).unwrap();
        disk.write_at(&[0x5A; 700], 300).unwrap();
        let (mut through, mut past) = (vec![0; BYTES], vec![0; BYTES]);
        File::open(&device.0).unwrap().read_exact_at(&mut through, 0).unwrap();
        disk.read_at(&mut past, 0).unwrap();
        assert!(through == past && through[300..1000] == [0x5A; 700] && through[..300] == cached[..300], "sectors of {sector}");
        disk.flush().unwrap();
        assert!(FileDisk::open(&device.0, Access::Write).is_err(), "one writer");
    }
}
