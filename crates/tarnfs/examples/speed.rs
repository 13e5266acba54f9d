//! Speed of the library without a mount: `cargo run --release -p tarnfs --example speed [DIRECTORY]`.
//!
//! Ratios between its lines in one run mean something; single figures depend on the machine.

use std::path::PathBuf;
use std::time::Instant;

use tarnfs::{CreateOptions, Credentials, Pool, VdevPaths, WriteMode};

#[allow(clippy::disallowed_methods)] // a program that measures
fn timed(what: &str, bytes: u64, operations: u64, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    let seconds = start.elapsed().as_secs_f64();
    println!("{what:<40} {:>10.0} MB/s {:>12.0} /s", bytes as f64 / seconds / 1e6, operations as f64 / seconds);
}

fn main() {
    let directory = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let path = directory.join(format!("tarn-speed-{}.img", std::process::id()));
    std::fs::File::create(&path).and_then(|file| file.set_len(8 << 30)).expect("the image");
    let vdev = VdevPaths { paths: vec![path.clone()], ..VdevPaths::default() };
    let pool = Pool::create("speed", &[vdev], CreateOptions::default()).expect("the pool");
    let fs = pool.file_system("speed").expect("the file system");
    let who = Credentials::root();
    let random: Vec<u8> = (0..1u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let root = fs.root();
    let file = fs.create(root, b"big", 0o100_644, 0, &who).expect("a file").inode;
    const BIG: u64 = 1 << 30;
    timed("write 1 GB, 1 MB at a time", BIG, BIG >> 20, || {
        for at in (0..BIG).step_by(1 << 20) {
            fs.write(file, WriteMode::At(at), &random, &who).expect("write");
        }
    });
    timed("sync", 0, 1, || pool.sync().expect("sync"));
    let mut buffer = vec![0; 32 << 10];
    for _ in 0..2 {
        timed("read it, 32 KB at a time", BIG, BIG >> 15, || {
            for at in (0..BIG).step_by(32 << 10) {
                fs.read_into(file, at, &mut buffer).expect("read");
            }
        });
    }
    timed("read 2 KB at random offsets", 100_000 * 2048, 100_000, || {
        let mut at = 1u64;
        for _ in 0..100_000 {
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            fs.read_into(file, (at >> 20) % (BIG - 2048), &mut buffer[..2048]).expect("read");
        }
    });
    timed("overwrite 200 MB, 4 KB at a time", 200 << 20, 200 << 8, || {
        for at in (0..200u64 << 20).step_by(4096) {
            fs.write(file, WriteMode::At(at), &random[..4096], &who).expect("write");
        }
    });
    timed("sync", 0, 1, || pool.sync().expect("sync"));
    const FILES: u64 = 50_000;
    let directory = fs.mkdir(root, b"d", 0o755, &who).expect("a directory").inode;
    timed("create files of 1 KB", FILES * 1024, FILES, || {
        for i in 0..FILES {
            let file = fs.create(directory, format!("file{i}").as_bytes(), 0o100_644, 0, &who).expect("create").inode;
            fs.write(file, WriteMode::At(0), &random[..1024], &who).expect("write");
        }
    });
    timed("sync", 0, 1, || pool.sync().expect("sync"));
    timed("look them up", 0, FILES, || {
        for i in 0..FILES {
            fs.lookup(directory, format!("file{i}").as_bytes()).expect("lookup");
        }
    });
    timed("unlink them", 0, FILES, || {
        for i in 0..FILES {
            fs.unlink(directory, format!("file{i}").as_bytes()).expect("unlink");
        }
    });
    timed("sync", 0, 1, || pool.sync().expect("sync"));
    drop(fs);
    pool.export().expect("export");
    std::fs::remove_file(path).expect("remove");
}
