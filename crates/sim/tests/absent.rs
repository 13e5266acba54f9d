//! A side of a mirror that was away while the pool was written: what it missed is on disk, and what it has is not served, as long as it is not resilvered.

use std::fs;
use std::path::{Path, PathBuf};

use engine::tunables::{Parameter, Tunables};
use engine::vdev::key;
use sim::scenario::{Layout, Rig, contents};
use tarnfs::{Credentials, WriteMode};

const FILES: u64 = 8;
const BYTES: usize = 300_000;

fn side(rig: &Rig, number: usize) -> PathBuf {
    rig.images()[number].clone()
}

/// Writes all files anew; without checksums, so that nothing tells old contents from new ones.
fn write(rig: &Rig, seed: u64) {
    let fs = rig.pool().file_system("tank/plain").expect("the file system");
    for number in 0..FILES {
        let name = format!("f{number}");
        let found = fs.lookup(fs.root(), name.as_bytes()).or_else(|_| fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &Credentials::root()));
        let file = found.expect("the file").inode;
        fs.write(file, WriteMode::At(0), &contents(seed + number, BYTES, 0), &Credentials::root()).expect("contents");
        fs.forget(file, 1);
    }
    rig.sync();
}

fn compare(rig: &Rig, seed: u64, what: &str) {
    let fs = rig.pool().file_system("tank/plain").expect("the file system");
    for number in 0..FILES {
        let file = fs.lookup(fs.root(), format!("f{number}").as_bytes()).expect("the file").inode;
        let found = fs.read(file, 0, BYTES).expect("contents");
        assert!(found == contents(seed + number, BYTES, 0), "{what}: f{number} has other contents");
        fs.forget(file, 1);
    }
}

fn mirror() -> Rig {
    let tunables = Tunables::default();
    tunables.parameters.set(Parameter::ScanSuspendProgress, "1").expect("no resilver");
    let mut rig = Rig::create_with(Layout { sides: 2, ..Layout::default() }, &[("compression", "off")], tunables);
    rig.create_file_system("tank/plain", &[("checksum", "off")]);
    write(&rig, 100);
    rig
}

/// Which sides are behind, and whether their descriptions name a log.
fn behind(rig: &Rig) -> Vec<(bool, bool)> {
    let top = rig.pool().engine().vdevs.top(0).expect("the mirror");
    let config = top.config();
    top.leaves().iter().map(|leaf| (leaf.is_behind(), config.find(leaf.guid()).is_some_and(|config| config.number(key::DTL) != 0))).collect()
}

fn copy(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("--sparse=always").args([from, to]).status();
    assert!(copied.is_ok_and(|status| status.success()), "copying {}", from.display());
}

#[test]
fn a_side_that_was_away_is_known_to_have_missed_what_was_written() {
    let mut rig = mirror();
    rig.export();
    let (away, hidden) = (side(&rig, 1), tempfile::tempdir().expect("a place"));
    copy(&away, &hidden.path().join("away"));
    fs::remove_file(&away).expect("the side goes");
    rig.import();
    write(&rig, 200);
    assert_eq!(behind(&rig), [(false, false), (true, true)]);
    rig.export();
    rig.zdb("one side written", false);
    copy(&hidden.path().join("away"), &away);
    rig.import();
    assert_eq!(behind(&rig), [(false, false), (true, true)], "after it came back");
    compare(&rig, 200, "after it came back");
    // It stays so: what it missed is not made good by what it gets now.
    write(&rig, 300);
    rig.export();
    rig.check("both sides written");
    rig.zdb("both sides written", false);
    rig.import();
    assert_eq!(behind(&rig), [(false, false), (true, true)], "after both were written");
    compare(&rig, 300, "after both were written");
}

/// Both were there when the pool was written; then one is an old copy of itself. Nobody has written that down.
#[test]
fn an_old_copy_of_a_side_is_not_served() {
    let mut rig = mirror();
    rig.export();
    let (old, hidden) = (side(&rig, 0), tempfile::tempdir().expect("a place"));
    copy(&old, &hidden.path().join("old"));
    rig.import();
    for round in 0..3 {
        write(&rig, 200 + 100 * round);
    }
    rig.export();
    fs::remove_file(&old).expect("the side goes");
    copy(&hidden.path().join("old"), &old);
    rig.import();
    assert!(behind(&rig)[0].0, "an old copy");
    assert_eq!(behind(&rig)[1], (false, false));
    compare(&rig, 400, "with an old copy");
    write(&rig, 500);
    assert_eq!(behind(&rig)[0], (true, true));
    rig.export();
    rig.check("with an old copy");
    rig.zdb("with an old copy", false);
}
