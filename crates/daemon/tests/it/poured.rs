//! Files that are served past the kernel's cache while they are written: whoever reads or maps them meanwhile sees what was written.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use fuse::TransportChoice;

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
        eprintln!("SKIPPED: python3 is needed to map a file");
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
