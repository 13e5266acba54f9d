//! Logs of OpenZFS, turned into those of a machine of the other byte order, are replayed to what the real one makes of them.
#![allow(missing_docs)]

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use disk::{Disk, DiskRef, MemDisk};
use fuzz::image::Base;
use sim::golden::replayed::{AFTER_REPLAY, is_of_replay, now};
use sim::golden::{Golden, compare, open_images};
use sim::places;
use tarnfs::{ImportOptions, Pool};

fn store(disk: &MemDisk, path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    file.set_len(disk.size_bytes()).unwrap();
    let mut chunk = vec![0; 1 << 20];
    for at in (0..disk.size_bytes()).step_by(chunk.len()) {
        let length = chunk.len().min((disk.size_bytes() - at) as usize);
        disk.read_at(&mut chunk[..length], at).unwrap();
        if chunk[..length].iter().any(|byte| *byte != 0) {
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(&chunk[..length]).unwrap();
        }
    }
}

fn replay(name: &str) {
    let Some(golden) = Golden::find(name).unwrap_or_else(|error| panic!("{name}: {error:#}")) else {
        return places::skipped(&format!("golden pool {name}: not found"));
    };
    let images: Vec<&Path> = golden.images.iter().map(std::path::PathBuf::as_path).collect();
    let (disks, blocks) = Base::load(name, &images).with_big_endian_logs();
    assert!(blocks > 0, "{name}: no log");
    let start = now();
    let devices: Vec<DiskRef> = disks.iter().map(|disk| disk.clone() as DiskRef).collect();
    let pool = Pool::import_disks(devices, ImportOptions { force: true, ..ImportOptions::default() }).unwrap_or_else(|error| panic!("{name}: {error}"));
    let report = pool.check(true, &|_| ()).unwrap();
    assert!(report.is_clean(), "{name}: {:#?}", report.findings);
    pool.export().unwrap();
    for (disk, image) in disks.iter().zip(&images) {
        store(disk, image);
    }
    let pool = open_images(&golden.images).unwrap_or_else(|error| panic!("{name}: {error:#}"));
    let report = compare(pool.as_ref(), &golden.manifest, AFTER_REPLAY).unwrap_or_else(|error| panic!("{name}: {error:#}"));
    let wrong: Vec<&String> = report.differences.iter().filter(|line| !is_of_replay(line, start)).collect();
    assert!(wrong.is_empty() && report.files_compared > 50, "{name}: {} differences:\n{wrong:#?}", wrong.len());
    places::say(&format!("replay of a big-endian log: {name}: {blocks} blocks, {} files the same", report.files_compared));
    sim::oracle::zdb_check(&images).expect_clean(&format!("{name}, its big-endian log replayed"));
}

#[test]
fn a_big_endian_log_is_replayed() {
    replay("zil");
}

#[test]
fn a_big_endian_log_on_a_device_of_its_own_is_replayed() {
    replay("slog");
}
