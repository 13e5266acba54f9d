//! Pools that crashed with an unreplayed intent log, made by the real OpenZFS: imported for writing, what is in them afterwards is what
//! the real one makes of them, and the real `zdb` finds nothing wrong.

use sim::golden::{Compare, compare, open_images};
use sim::places;
use sim::scenario::Rig;

/// Seconds since 1970.
fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// mtime and ctime of what a replay changes are those of the replay, here as there: not before `start`.
fn is_time_of_replay(line: &str, start: u64) -> bool {
    let ours = line.rsplit_once("!= (").and_then(|(_, ours)| ours.split(',').next()?.parse::<u64>().ok());
    (line.contains(": mtime ") || line.contains(": ctime ")) && ours.is_some_and(|ours| ours >= start)
}

/// What the log made of POSIX ACLs kept as files (`xattr=dir`) is empty; the kernel, which looks into it, says EIO instead.
fn is_empty_acl(line: &str) -> bool {
    line.contains("system.posix_acl") && line.replace("error:EIO", "").split_once(" != ").is_some_and(|(one, other)| one.ends_with(other))
}

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
    // The manifest was made before the replay was on disk, so that what is allocated was not final.
    let what = Compare { allocated: false, ..Compare::STRICT };
    let report = compare(pool.as_ref(), &golden.manifest, what).unwrap_or_else(|error| panic!("{name}: {error:#}"));
    drop(pool);
    let wrong: Vec<&String> = report.differences.iter().filter(|line| !is_time_of_replay(line, start) && !is_empty_acl(line)).collect();
    places::say(&format!("replay: {name}: {} files the same but for {} times of the replay and empty ACLs", report.files_compared, report.differences.len() - wrong.len()));
    assert!(wrong.is_empty() && report.files_compared > 100, "{name}: {} differences:\n{wrong:#?}", wrong.len());
    rig.check(name);
    rig.zdb(name, true);
}

#[test]
fn a_log_of_openzfs_is_replayed() {
    replay("zil");
}

#[test]
fn a_log_of_openzfs_on_a_device_of_its_own_is_replayed() {
    replay("slog");
}
