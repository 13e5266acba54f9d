//! A pool that we filled with files of all kinds passes the real `zdb`, and is what it was after an import.
#![allow(clippy::disallowed_methods)] // a test measures its own time

use std::path::Path;
use std::time::Instant;

use sim::oracle::zdb_check;
use tarnfs::{CreateOptions, Credentials, FileSystem, ImportOptions, Pool, RenameMode, SetAttributes, VdevPaths, WriteMode, XattrMode};

fn fill(fs: &FileSystem) {
    let root = Credentials::root();
    let make = |directory, name: &str| {
        let inode = fs.create(directory, name.as_bytes(), 0o100_644, 0, &root).unwrap().inode;
        fs.forget(inode, 1);
        inode
    };
    // A directory that becomes a fat ZAP, and one that stays a large micro ZAP.
    for (name, count) in [("large", 5000), ("small", 1500)] {
        let directory = fs.mkdir(fs.root(), name.as_bytes(), 0o755, &root).unwrap().inode;
        for number in 0..count {
            let inode = make(directory, &format!("a file with a rather long name {number}"));
            if number % 3 == 0 {
                fs.write(inode, WriteMode::At(0), &vec![number as u8; number % 20_000], &root).unwrap();
            }
        }
        for number in (0..count).step_by(7) {
            fs.unlink(directory, format!("a file with a rather long name {number}").as_bytes()).unwrap();
        }
    }
    let directory = fs.mkdir(fs.root(), b"kinds", 0o2770, &root).unwrap().inode;
    let big = make(directory, "big");
    for block in 0..200u64 {
        fs.write(big, WriteMode::At(block * 150_000), &vec![block as u8 | 1; 100_000], &root).unwrap();
    }
    fs.truncate(big, 20_000_000, &root).unwrap();
    fs.punch_hole(big, 1_000_000, 5_000_000, &root).unwrap();
    for (number, size) in [10, 200, 2000, 30_000, 60_000].into_iter().enumerate() {
        let inode = make(directory, &format!("xattr{number}"));
        for key in 0..3 {
            fs.setxattr(inode, format!("user.key{key}").as_bytes(), &vec![7; size], XattrMode::Any).unwrap();
        }
        fs.removexattr(inode, b"user.key1").unwrap();
        fs.setattr(inode, &SetAttributes { mode: Some(0o604), uid: Some(1000), gid: Some(50), ..SetAttributes::default() }, &root).unwrap();
    }
    fs.symlink(directory, b"link", b"target", &root).unwrap();
    fs.symlink(directory, b"long link", &[b't'; 1000], &root).unwrap();
    fs.create(directory, b"device", 0o020_600, 5 << 20 | 3, &root).unwrap();
    fs.create(directory, b"pipe", 0o010_600, 0, &root).unwrap();
    fs.link(big, fs.root(), b"second name").unwrap();
    fs.rename(fs.root(), b"small", directory, b"moved", RenameMode::Replace).unwrap();
}

fn digest(fs: &FileSystem, directory: u64, path: &str, lines: &mut Vec<String>) {
    let mut entries = Vec::new();
    fs.read_directory(directory, 2, &mut |entry| {
        entries.push(entry);
        true
    })
    .unwrap();
    for entry in entries {
        let stat = fs.getattr(entry.inode).unwrap();
        let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
        let xattrs: Vec<_> = fs.listxattr(entry.inode).unwrap().into_iter().map(|name| (fs.getxattr(entry.inode, &name).unwrap().len(), name)).collect();
        let data = if stat.mode & 0o170_000 == 0o100_000 { fs.read(entry.inode, 0, usize::MAX).unwrap() } else { Vec::new() };
        let sum = data.iter().fold(0u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        lines.push(format!("{path} {:o} {} {} {} {} {sum} {xattrs:?} {:?}", stat.mode, stat.uid, stat.gid, stat.links, stat.size, stat.modification_time));
        if stat.mode & 0o170_000 == 0o040_000 {
            digest(fs, entry.inode, &path, lines);
        }
    }
}

fn run(version: Option<u64>) {
    let place = tempfile::tempdir().unwrap();
    let image = place.path().join("disk.img");
    std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    let vdevs = [VdevPaths { paths: vec![image.clone()], ..VdevPaths::default() }];
    let pool = Pool::create("p", &vdevs, CreateOptions::default()).unwrap();
    let properties = version.map(|version| ("version".to_owned(), tarnfs::PropertyChange::Set(engine::dsl::PropertyValue::Number(version))));
    pool.create_file_system("p/fs", properties.into_iter().collect()).unwrap();
    let mut before = Vec::new();
    {
        let fs = pool.file_system("p/fs").unwrap();
        let start = Instant::now();
        fill(&fs);
        println!("filled in {:?}", start.elapsed());
        digest(&fs, fs.root(), "", &mut before);
    }
    pool.export().unwrap();
    drop(pool);
    zdb_check(&[Path::new(&image)]).expect_clean("a pool with files of all kinds");
    let pool = Pool::import(std::slice::from_ref(&image), "p", ImportOptions { read_only: true, ..ImportOptions::default() }).unwrap();
    let fs = pool.file_system("p/fs").unwrap();
    let mut after = Vec::new();
    digest(&fs, fs.root(), "", &mut after);
    assert!(before == after, "the files are not what they were");
}

#[test]
fn files_of_all_kinds_pass_zdb() {
    run(None);
}

#[test]
fn files_of_an_old_version_pass_zdb() {
    run(Some(4));
}
