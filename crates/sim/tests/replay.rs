//! Pools that crashed with an unreplayed intent log, made by the real OpenZFS: imported for writing, what is in them afterwards is what
//! the real one makes of them, and the real `zdb` finds nothing wrong.

use sim::golden::replayed::{AFTER_REPLAY, is_of_replay, now};
use sim::golden::{Compare, compare, open_images};
use sim::places;
use sim::scenario::Rig;
use tarnfs::{Credentials, ImportOptions, Pool, WriteMode};

fn replay(name: &str) {
    let Some(golden) = sim::golden::Golden::find(name).unwrap_or_else(|error| panic!("{name}: {error:#}")) else {
        return places::skipped(&format!("golden pool {name}: not found"));
    };
    // As OpenZFS shows it without a replay: read-only import changes nothing.
    let before = open_images(&golden.images).unwrap_or_else(|error| panic!("{name}: read-only: {error:#}"));
    let without = compare(before.as_ref(), &golden.manifest, Compare::STRICT).unwrap();
    assert!(without.differences_found > 50, "{name}: a read-only import replays nothing: {} differences", without.differences_found);
    drop(before);
    let start = now();
    let mut rig = Rig::golden(name).unwrap();
    rig.export();
    let golden = rig.golden_pool();
    let pool = open_images(&golden.images).unwrap_or_else(|error| panic!("{name}: {error:#}"));
    let report = compare(pool.as_ref(), &golden.manifest, AFTER_REPLAY).unwrap_or_else(|error| panic!("{name}: {error:#}"));
    drop(pool);
    let wrong: Vec<&String> = report.differences.iter().filter(|line| !is_of_replay(line, start)).collect();
    places::say(&format!("replay: {name}: {} files the same but for {} times of the replay and empty ACLs", report.files_compared, report.differences.len() - wrong.len()));
    assert!(wrong.is_empty() && report.files_compared > 50, "{name}: {} differences:\n{wrong:#?}", wrong.len());
    rig.check(name);
    rig.zdb(name, true);
}

#[test]
fn a_log_of_openzfs_is_replayed() {
    replay("zil");
}

/// `logbias=throughput`, on a mirror with sectors of 512 bytes: each write leads to a block. Some are so small that they are in the pointer; the log
/// was taken to end at the first of those.
#[test]
fn a_log_of_openzfs_that_leads_to_blocks_is_replayed() {
    replay("zil-throughput");
}

#[test]
fn a_log_of_openzfs_on_a_device_of_its_own_is_replayed() {
    replay("slog");
}

/// A pool whose log device is missing: the error says what to do; without what the log holds it is imported, and goes on.
#[test]
fn a_log_that_cannot_be_read_is_given_up_only_if_asked() {
    let Some(golden) = sim::golden::Golden::find("slog").unwrap() else {
        return places::skipped("golden pool slog: not found");
    };
    std::fs::remove_file(&golden.images[1]).unwrap();
    let import = |forget_log| {
        let options = ImportOptions { force: true, forget_log, ..ImportOptions::default() };
        Pool::import(&[golden.directory().to_owned()], "g_slog", options)
    };
    let refused = import(false).err().expect("refused").to_string();
    assert!(refused.contains("import with -m"), "{refused}");
    let pool = import(true).unwrap_or_else(|error| panic!("{error}"));
    let fs = pool.file_system("g_slog/fs").unwrap();
    let file = fs.create(fs.root(), b"ours", 0o100_644, 0, &Credentials::root()).unwrap().inode;
    for round in 0..20 {
        fs.write(file, WriteMode::Append, &[round; 5000], &Credentials::root()).unwrap();
        fs.fsync(file).unwrap();
    }
    fs.release_all();
    drop(fs);
    pool.sync().unwrap();
    let report = pool.check(true, &|_| ()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    pool.export().unwrap();
}
