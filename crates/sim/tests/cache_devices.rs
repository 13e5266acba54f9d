//! A cache device that OpenZFS filled: what is on it is found and used, what we write goes on behind it, and the real `zdb` reads all of it.

use std::time::{Duration, Instant};

use disk::Access;
use engine::arc::NewCacheDevice;
use engine::tunables::{Parameter, Tunables};
use sim::golden::Golden;
use sim::{oracle, places};
use tarnfs::{FileKind, FileSystem, ImportOptions, InodeNumber, Pool};

fn read_all(fs: &FileSystem, directory: InodeNumber) -> u64 {
    let mut entries = Vec::new();
    let list = fs.read_directory(directory, 0, &mut |entry| {
        entries.push((entry.name.clone(), entry.inode, entry.kind));
        true
    });
    list.unwrap();
    let mut bytes = 0;
    for (name, inode, kind) in entries {
        match kind {
            FileKind::Directory if name != b"."[..] && name != b".."[..] => bytes += read_all(fs, inode),
            FileKind::Regular => bytes += fs.read(inode, 0, 4 << 20).unwrap().len() as u64,
            _ => {}
        }
    }
    bytes
}

/// A pool that may not write reads what is on its cache devices, as in OpenZFS, and no byte of them changes.
#[test]
fn what_openzfs_left_is_used_without_writing() {
    let Some(golden) = Golden::find("cache").unwrap() else { return places::skipped("golden pool cache: it is not there") };
    let tunables = Tunables::default();
    tunables.parameters.set(Parameter::CacheRebuildMinBytes, "0").unwrap();
    let device = golden.images[1].to_str().unwrap();
    let before = std::fs::read(device).unwrap();
    let options = ImportOptions { tunables: Some(tunables), force: true, read_only: true, ..ImportOptions::default() };
    let pool = Pool::import(&[golden.directory().to_owned()], "g_cache", options).unwrap();
    let listed = pool.engine().auxiliary().unwrap();
    pool.engine().use_caches(vec![NewCacheDevice { config: listed.caches[0].clone(), disk: disk::open(device, Access::Read).unwrap() }]);
    let stats = || pool.engine().context.cache.second_stats();
    let until = Instant::now() + Duration::from_secs(30);
    while stats().rebuild_success == 0 {
        assert!(Instant::now() < until, "what is there is not found: {:?}", stats());
        std::thread::sleep(Duration::from_millis(20));
    }
    let fs = pool.file_system("g_cache/a").unwrap();
    assert!(read_all(&fs, fs.root()) > 100_000);
    // A round or two of the thread that would write.
    std::thread::sleep(Duration::from_millis(1500));
    let stats = stats();
    assert!(stats.hits > 0 && stats.cksum_bad == 0 && stats.io_error == 0 && stats.writes_sent == 0, "{stats:?}");
    drop(fs);
    pool.export().unwrap();
    assert!(std::fs::read(device).unwrap() == before);
}

#[test]
fn what_openzfs_left_is_used_and_goes_on() {
    let Some(golden) = Golden::find("cache").unwrap() else { return places::skipped("golden pool cache: it is not there") };
    let tunables = Tunables::default();
    for (parameter, value) in [(Parameter::CacheRebuildMinBytes, "0"), (Parameter::CacheNoPrefetch, "0")] {
        tunables.parameters.set(parameter, value).unwrap();
    }
    let options = ImportOptions { tunables: Some(tunables), force: true, ..ImportOptions::default() };
    let pool = Pool::import(&[golden.directory().to_owned()], "g_cache", options).unwrap();
    let listed = pool.engine().auxiliary().unwrap();
    let device = golden.images[1].to_str().unwrap();
    pool.engine().use_caches(vec![NewCacheDevice { config: listed.caches[0].clone(), disk: disk::open(device, Access::Write).unwrap() }]);
    let stats = || pool.engine().context.cache.second_stats();
    let wait = |what: &str, is_so: &dyn Fn() -> bool| {
        let until = Instant::now() + Duration::from_secs(30);
        while !is_so() {
            assert!(Instant::now() < until, "{what}: {:?}", stats());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait("what is there is not found", &|| stats().rebuild_success == 1);
    assert_eq!(stats().rebuild_log_blks, 16, "{:?}", stats());
    let fs = pool.file_system("g_cache/a").unwrap();
    assert!(read_all(&fs, fs.root()) > 100_000);
    assert!(stats().hits > 0 && stats().cksum_bad == 0 && stats().io_error == 0, "{:?}", stats());
    wait("nothing is written", &|| stats().log_blk_count > 20);
    drop(fs);
    pool.export().unwrap();
    let Some(text) = oracle::zdb_text(golden.directory(), &["-l", device]) else { return };
    let count = text.lines().find_map(|line| line.strip_prefix("log_blk_count:")).and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    assert!(count.is_some_and(|count| count > 20) && text.contains("0 with invalid cksum"), "{text}");
}
