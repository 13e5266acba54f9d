//! `O_DIRECT` and the property `direct`, through the mount.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::places::skipped;

use crate::rig::Rig;

const MIB: usize = 1 << 20;
const RECORD: usize = 128 << 10;

fn open(path: &Path, flags: i32) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path).unwrap()
}

fn direct(path: &Path) -> File {
    open(path, libc::O_DIRECT)
}

fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    ChaCha8Rng::seed_from_u64(seed).fill(&mut bytes[..]);
    bytes
}

/// Memory that begins with a page: the kernel makes one request of as many pages as it can, so that of odd memory large requests would be odd, too.
struct Pages {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Pages {
    fn new(length: usize) -> Pages {
        let bytes = vec![1; length + 4096];
        let start = bytes.as_ptr().align_offset(4096);
        Pages { bytes, start, length }
    }

    fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

fn read(file: &File, offset: usize, length: usize) -> Vec<u8> {
    let mut pages = Pages::new(length);
    let mut done = 0;
    while done < length {
        match file.read_at(&mut pages.get()[done..], (offset + done) as u64).unwrap() {
            0 => break,
            count => done += count,
        }
    }
    pages.get()[..done].to_vec()
}

fn write(file: &File, bytes: &[u8], offset: usize) {
    let mut pages = Pages::new(bytes.len());
    pages.get().copy_from_slice(bytes);
    file.write_all_at(pages.get(), offset as u64).unwrap();
}

/// Blocks that were read and written around the cache since the pool was imported.
fn counters(rig: &Rig) -> (u64, u64) {
    let all: serde_json::Value = serde_json::from_str(&rig.ok("arcstat -j tank")).unwrap();
    let of = |name: &str| all["pools"]["tank"][name].as_u64().unwrap();
    (of("direct_read_count"), of("direct_write_count"))
}

#[test]
fn the_property_says_which_requests_go_around_the_cache() {
    let Some(rig) = Rig::with_tank("a.img", 256 << 20, "-O mountpoint=@mnt") else { return };
    assert_eq!(rig.ok("zfs get -H -o value,source direct tank").trim(), "standard\tdefault");
    rig.refused("zfs set direct=on tank", "'direct' must be one of 'disabled | standard | always'");
    rig.ok("zfs create tank/below");
    let path = rig.path("mnt/below/file");
    let bytes = noise(8 * RECORD, 1);
    let use_file = |flags: i32| {
        let (reads, writes) = counters(&rig);
        let file = open(&path, flags);
        write(&file, &bytes, 0);
        assert!(read(&file, 0, bytes.len() + 4096) == bytes);
        let now = counters(&rig);
        (now.0 - reads, now.1 - writes)
    };
    // A new file's first record is its own size.
    fs::write(&path, vec![1; 2 * RECORD]).unwrap();
    assert_eq!(use_file(0), (0, 0));
    assert_eq!(use_file(libc::O_DIRECT), (8, 8));
    assert_eq!(rig.ok("zfs set direct=always tank"), "", "no warning that it has no effect");
    assert_eq!(rig.ok("zfs get -H -o value,source direct tank/below").trim(), "always\tinherited from tank");
    assert_eq!(use_file(0), (8, 8));
    // What is not made of pages goes the usual way, and nobody is told.
    let file = direct(&path);
    let (_, before) = counters(&rig);
    write(&file, &bytes[..RECORD + 100], 512);
    assert!(read(&file, 512, RECORD + 100) == bytes[..RECORD + 100]);
    assert_eq!(counters(&rig).1, before);
    rig.ok("zfs set direct=disabled tank");
    assert_eq!(use_file(libc::O_DIRECT), (0, 0));
    rig.ok("zfs inherit direct tank");
    assert_eq!(rig.get("tank/below", "direct"), "standard");
    drop(file);
    rig.ok("zpool export tank");
    rig.ok("zpool import -d @. tank");
    assert!(fs::read(&path).unwrap() == bytes);
    rig.finish("tank", &["a.img"]);
}

/// One program goes around the cache, one through the kernel's, in turns and at random; snapshots keep what was there.
fn beside(layout: &str, properties: &str, seed: u64) {
    println!("TARN_SEED={seed}: {layout}, {properties}");
    let Some(rig) = Rig::new() else { return };
    let used = layout.matches(".img").count();
    let images: Vec<String> = (0..used).map(|number| format!("d{number}.img")).collect();
    images.iter().for_each(|image| drop(rig.image(image, 256 << 20)));
    rig.ok(&format!("zpool create -f -O mountpoint=@mnt {properties} tank {layout}"));
    let path = rig.path("mnt/file");
    let (around, through) = (direct(&path), open(&path, 0));
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut model: Vec<u8> = Vec::new();
    let mut snapshots: Vec<Vec<u8>> = Vec::new();
    for step in 0..300 {
        let odd = if random.random_range(0..4) == 0 { random.random_range(0..4096) } else { 0 };
        let (at, length) = (random.random_range(0..256) * 4096 + odd, random.random_range(1..80) * 4096);
        let file = if random.random_range(0..3) > 0 { &around } else { &through };
        match random.random_range(0..24) {
            0..11 => {
                let bytes = if random.random_range(0..6) == 0 { vec![0; length] } else { noise(length, random.random()) };
                write(file, &bytes, at);
                model.resize(model.len().max(at + length), 0);
                model[at..at + length].copy_from_slice(&bytes);
            }
            11 => {
                file.set_len(at as u64).unwrap();
                model.resize(at, 0);
            }
            12 => {
                rustix::fs::fallocate(file, rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE, at as u64, length as u64).unwrap();
                let end = model.len();
                model[at.min(end)..(at + length).min(end)].fill(0);
            }
            13 => file.sync_all().unwrap(),
            14 if snapshots.len() < 6 => {
                rig.ok(&format!("zfs snapshot tank@s{}", snapshots.len()));
                snapshots.push(model.clone());
            }
            _ => {
                let expected = model.get(at..model.len().min(at + length)).unwrap_or_default();
                assert!(read(file, at, length) == *expected, "TARN_SEED={seed}, step {step}: {length} bytes at {at}");
            }
        }
    }
    let check = |path: &Path, expected: &[u8]| {
        assert!(read(&File::open(path).unwrap(), 0, 4 * MIB) == expected, "{}", path.display());
        let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
        assert!(read(&file, 0, 4 * MIB) == expected, "{}, around the cache", path.display());
    };
    let check_all = || {
        check(&path, &model);
        snapshots.iter().enumerate().for_each(|(number, kept)| check(&rig.path(&format!("mnt/.zfs/snapshot/s{number}/file")), kept));
    };
    check_all();
    let (reads, writes) = counters(&rig);
    assert!(reads > 0 && writes > 0);
    drop((around, through));
    rig.ok("zpool export tank");
    rig.ok("zpool import -d @. tank");
    check_all();
    rig.finish("tank", &images.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn two_programs_see_one_file_whichever_way_they_go() {
    let seed = std::env::var("TARN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    beside("@d0.img mirror @d1.img @d2.img", "-O recordsize=128K", seed);
    beside("raidz1 @d0.img @d1.img @d2.img @d3.img", "-O recordsize=32K -O compression=off", seed + 1);
    beside("mirror @d0.img @d1.img mirror @d2.img @d3.img", "-O recordsize=16K -O direct=always -O copies=2", seed + 2);
}

/// Mapped memory is seen by a program that goes around all caches, and shows what that wrote.
#[test]
fn mapped_memory_is_the_same_file() {
    let Some(rig) = Rig::with_tank("a.img", 256 << 20, "-O mountpoint=@mnt") else { return };
    let script = "
import mmap, os, sys
path, size = sys.argv[1], 1 << 20
f = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
page = mmap.mmap(-1, size)
page[:] = bytes([1]) * size
assert os.pwrite(f, page, 0) == size
m = mmap.mmap(os.open(path, os.O_RDWR), size)
assert m[5000] == 1
m[5000] = 2
back = mmap.mmap(-1, size)
assert os.preadv(f, [back], 0) == size
assert back[5000] == 2 and back[5001] == 1, back[4999:5002]
m[300000] = 3
page[:] = bytes([4]) * size
assert os.pwrite(f, memoryview(page)[:131072], 0) == 131072
assert m[5000] == 4 and m[131071] == 4 and m[131072] == 1 and m[300000] == 3
# A mapping of the file that is open for direct requests, too.
d = mmap.mmap(f, size)
assert d[5000] == 4 and d[300000] == 3
d[6000] = 5
assert m[6000] == 5
assert os.preadv(f, [back], 0) == size
assert back[6000] == 5 and back[300000] == 3
";
    for properties in ["direct=standard", "direct=always"] {
        rig.ok(&format!("zfs set {properties} tank"));
        let Ok(output) = Command::new("python3").args(["-c", script]).arg(rig.path(&format!("mnt/{properties}"))).output() else {
            return skipped("mapped memory beside O_DIRECT: python3 is not installed");
        };
        assert!(output.status.success(), "{properties}: {}", String::from_utf8_lossy(&output.stderr));
    }
    rig.finish("tank", &["a.img"]);
}

/// What `O_DSYNC` or `fsync` acknowledged is there after the daemon was killed, and the log leads to the blocks instead of having their bytes.
#[test]
fn what_was_written_durably_around_the_cache_survives() {
    for (layout, direct) in [("@a.img", "standard"), ("@a.img log @b.img", "standard"), ("raidz1 @a.img @b.img @c.img", "always")] {
        let Some(rig) = Rig::new() else { return };
        for image in ["a.img", "b.img", "c.img"] {
            rig.image(image, 256 << 20);
        }
        rig.ok(&format!("zpool create -f -O mountpoint=@mnt -O compression=off -O direct={direct} tank {layout}"));
        let path = rig.path("mnt/file");
        fs::write(&path, vec![1; 4 * MIB]).unwrap();
        rig.ok("zpool sync tank");
        let (file, synced) = (open(&path, libc::O_DIRECT | libc::O_DSYNC), self::direct(&path));
        let mut model = vec![1; 4 * MIB];
        for (number, at) in [0, 5, 17, 5, 30, 9].into_iter().enumerate() {
            let bytes = noise(if number % 2 == 0 { RECORD } else { 2 * RECORD + 4096 }, number as u64);
            let offset = at * RECORD / 2;
            let writer = if number % 3 == 2 { &synced } else { &file };
            write(writer, &bytes, offset);
            if number % 3 == 2 {
                writer.sync_data().unwrap();
            }
            model[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
        assert!(counters(&rig).1 > 3);
        rig.kill();
        drop((file, synced));
        rig.unmount_all();
        rig.ok("zpool import -d @. tank");
        assert!(fs::read(&path).unwrap() == model, "{layout}");
        let images: &[&str] = if layout.contains("raidz1") { &["a.img", "b.img", "c.img"] } else if layout.contains("log") { &["a.img", "b.img"] } else { &["a.img"] };
        rig.finish("tank", images);
    }
}
