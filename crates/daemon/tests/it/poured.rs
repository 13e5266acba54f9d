//! Files that are served past the kernel's cache while they are written: other programs that read or map them meanwhile
//! see what was written.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fuse::protocol::{InitFlags, MINOR_DIRECT_IS_COHERENT};
use fuse::{Filesystem, Negotiated, OpenedFlags, TransportChoice};

use crate::pattern;
use crate::rig::{Rig, can_mount, zdb};

const MIB: usize = 1 << 20;

/// `creat` of a new file, and of one that was there.
#[test]
fn what_is_poured_is_seen_at_once() {
    if !can_mount() {
        return;
    }
    for transport in [TransportChoice::Auto, TransportChoice::DevFuse] {
        let mut rig = Rig::new(256 << 20);
        rig.mount(true, transport);
        let path = rig.path("file");
        for seed in 0..3 {
            let bytes = pattern(3 * MIB + 777, seed);
            let mut writer = File::create(&path).unwrap();
            let mut reader = File::open(&path).unwrap();
            let mut seen = Vec::new();
            for piece in bytes.chunks(70_001) {
                writer.write_all(piece).unwrap();
                reader.read_to_end(&mut seen).unwrap();
                assert!(seen == bytes[..seen.len()] && seen.len() as u64 == fs::metadata(&path).unwrap().len());
            }
            assert_eq!(seen.len(), bytes.len());
            // What the reader had the kernel remember is not what is there now.
            writer.seek(SeekFrom::Start(1000)).unwrap();
            writer.write_all(b"changed").unwrap();
            let mut part = [0; 9];
            reader.read_exact_at(&mut part, 999).unwrap();
            assert_eq!(part, [&bytes[999..1000], b"changed", &bytes[1007..1008]].concat()[..]);
        }
        rig.close();
        zdb(&rig.image());
    }
}

/// A program has some of the file in memory, changed and not yet written, when another writes beside it.
#[test]
fn what_is_mapped_and_what_is_poured_go_together() {
    if !can_mount() {
        return;
    }
    let mut rig = Rig::new(256 << 20);
    rig.mount(true, TransportChoice::Auto);
    let path = rig.path("file");
    let writer = File::create(&path).unwrap();
    let bytes = pattern(MIB, 5);
    writer.write_all_at(&bytes, 0).unwrap();
    let script = "
import mmap, os, sys
f = open(sys.argv[1], 'r+b')
m = mmap.mmap(f.fileno(), 0)
m[4096:4100] = b'mine'
assert m[8192:8200] != b'poured!!'
os.pwrite(0, b'poured!!', 8192)
assert m[8192:8200] == b'poured!!', m[8192:8200]
assert m[4096:4100] == b'mine'
";
    let run = std::process::Command::new("python3").args(["-c", script]).arg(&path).stdin(writer.try_clone().unwrap()).output();
    let Ok(output) = run else {
        sim::places::skipped("mapped memory beside direct writes: python3 is not installed");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    writer.write_all_at(b"again", 12_288).unwrap();
    let mut now = bytes;
    now[4096..4100].copy_from_slice(b"mine");
    now[8192..8200].copy_from_slice(b"poured!!");
    now[12_288..12_293].copy_from_slice(b"again");
    assert!(fs::read(&path).unwrap() == now);
    let other = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    other.write_all_at(b"cached", 20_000).unwrap();
    writer.write_all_at(b"poured", 20_003).unwrap();
    let mut part = [0; 9];
    other.read_exact_at(&mut part, 20_000).unwrap();
    assert_eq!(&part, b"cacpoured");
    drop((writer, other));
    rig.close();
    zdb(&rig.image());
}

/// Somebody reads all the time, through the kernel's cache, what another writes past it: nobody ever sees less than was written before he asked.
#[test]
fn who_reads_meanwhile_does_not_bring_back_the_old() {
    if !can_mount() {
        return;
    }
    const WRITES: u64 = 4000;
    let mut rig = Rig::new(256 << 20);
    rig.mount(true, TransportChoice::Auto);
    let path = rig.path("file");
    let writer = File::create(&path).unwrap();
    writer.write_all_at(&[0; 64 << 10], 0).unwrap();
    let (written, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (path, written, ended) = (&path, &written, &ended);
            scope.spawn(move || {
                let reader = File::open(path).unwrap();
                while !ended.load(Ordering::Acquire) {
                    let before = written.load(Ordering::Acquire);
                    let place = before % 16 * 4096;
                    let mut number = [0; 8];
                    reader.read_exact_at(&mut number, place).unwrap();
                    let seen = u64::from_le_bytes(number);
                    assert!(seen >= before, "{seen} is at {place}, but {before} was written there before");
                }
            });
        }
        for number in 1..=WRITES {
            writer.write_all_at(&number.to_le_bytes(), number % 16 * 4096).unwrap();
            written.store(number, Ordering::Release);
        }
        ended.store(true, Ordering::Release);
    });
    drop(writer);
    rig.close();
}

/// A kernel that would bring it back is not asked to write past its cache, neither for `creat` nor for `O_DSYNC`.
#[test]
fn an_older_kernel_has_all_of_it_in_its_cache() {
    if !can_mount() {
        return;
    }
    let mut rig = Rig::new(128 << 20);
    let ops = rig.mount(true, TransportChoice::Auto);
    fs::write(rig.path("empty"), b"").unwrap();
    fs::write(rig.path("full"), b"contents").unwrap();
    let context = fuse::Context { unique: 1, uid: 0, gid: 0, pid: 0, other_group: None };
    let is_direct = |name: &str, flags: i32| {
        let node = fs::metadata(rig.path(name)).unwrap().ino();
        ops.open(&context, node, flags as u32, false).unwrap().flags.contains(OpenedFlags::DIRECT_IO)
    };
    for (minor, direct) in [(MINOR_DIRECT_IS_COHERENT - 1, false), (MINOR_DIRECT_IS_COHERENT, true)] {
        ops.init(&Negotiated { minor, flags: InitFlags::empty(), max_write: 1 << 20 });
        assert_eq!(is_direct("empty", libc::O_WRONLY), direct);
        assert_eq!(is_direct("full", libc::O_RDWR | libc::O_DSYNC), direct);
        for (name, flags) in [("full", libc::O_WRONLY), ("empty", libc::O_RDWR), ("empty", libc::O_RDONLY), ("empty", libc::O_WRONLY | libc::O_EXCL)] {
            assert!(!is_direct(name, flags), "{name}, {flags:o}");
        }
    }
    drop(ops);
    rig.close();
}

/// What is in mapped memory alone is data, too: `cp` asks where data are and copies nothing else.
#[test]
fn what_is_mapped_is_no_hole() {
    if !can_mount() {
        return;
    }
    let script = "
import mmap, os, sys
path, size, middle = sys.argv[1], 4 << 20, 2 << 20
f = os.open(path, os.O_RDWR | os.O_CREAT)
os.pwrite(f, b'begin', 0)
os.ftruncate(f, size)
os.fsync(f)
other = os.open(path, os.O_RDONLY)
assert os.lseek(other, 0, os.SEEK_HOLE) == 128 << 10
m = mmap.mmap(f, size)
assert m[middle] == 0
m[middle:middle + 4] = b'mine'
m[128 << 10] = 1
assert os.lseek(other, 1 << 20, os.SEEK_DATA) in (middle, 1 << 20), os.lseek(other, 1 << 20, os.SEEK_DATA)
assert os.lseek(other, 0, os.SEEK_HOLE) == 256 << 10, os.lseek(other, 0, os.SEEK_HOLE)
assert os.lseek(other, middle, os.SEEK_HOLE) == middle + (128 << 10)
m[size - 1] = 7
assert os.lseek(other, 3 << 20, os.SEEK_DATA) == size - (128 << 10)
";
    for transport in [TransportChoice::Auto, TransportChoice::DevFuse] {
        let mut rig = Rig::new(256 << 20);
        rig.mount(true, transport);
        let Ok(output) = std::process::Command::new("python3").args(["-c", script]).arg(rig.path("file")).output() else {
            sim::places::skipped("mapped memory and holes: python3 is not installed");
            return;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        rig.close();
        zdb(&rig.image());
    }
}
