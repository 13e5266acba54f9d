use jiff::tz::TimeZone;
use tarnfs::control::{Reply, Request};

use crate::session::{Control, Session};

struct Nobody;

impl Control for Nobody {
    fn call(&mut self, _: Request) -> Reply {
        Reply::Status(Vec::new())
    }
}

fn run(words: &[&str]) -> (u8, String, String) {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut session = Session { control: &mut Nobody, out: &mut out, err: &mut err, now: 0, zone: TimeZone::UTC, history: crate::session::History::default(), hints: Vec::new() };
    let code = super::run(&mut session, &words);
    (code, String::from_utf8(out).expect("UTF-8"), String::from_utf8(err).expect("UTF-8"))
}

#[test]
fn devices_without_labels_are_told_apart_from_none() {
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("empty").display().to_string();
    std::fs::write(&file, vec![0; 1 << 20]).expect("file");
    let (code, out, _) = run(&["-l", &file]);
    assert_eq!(code, 2);
    assert_eq!(out.lines().next(), Some("failed to unpack label 0"));
    let (code, out, _) = run(&["-l", "/nosuch/device"]);
    assert_eq!((code, out.as_str()), (1, "cannot open '/nosuch/device': No such file or directory\n"));
    let (code, out, _) = run(&["-l", "nosuch-device"]);
    assert_eq!((code, out.as_str()), (1, "failed to find device nosuch-device, try specifying absolute path instead\n"));
}

#[test]
fn usage_is_shown_when_nothing_is_named() {
    for words in [&["-l"][..], &["-j"], &["-b"], &["-x", "tank"], &["-p", "/tmp", "tank"]] {
        let (code, out, err) = run(words);
        assert_eq!((code, out.as_str()), (2, ""), "{words:?}");
        assert!(err.contains("Usage:\tzdb"), "{err}");
    }
    let directory = tempfile::tempdir().expect("directory");
    let (code, _, err) = run(&["-e", "-p", directory.path().to_str().expect("UTF-8"), "-C", "tank"]);
    assert_eq!(code, 1);
    assert!(err.starts_with("zdb: can't open 'tank': "), "{err}");
}

/// `zdb` and `zdb -C` printed the usage, where OpenZFS shows the cache file of the machine.
#[test]
fn the_cache_file_of_the_machine_is_shown_where_no_pool_is_named() {
    for words in [&[][..], &["-C"]] {
        let (code, out, err) = run(words);
        assert!(!err.contains("Usage:"), "{words:?}: {err}");
        // There may be none.
        assert!(code == 0 && !out.is_empty() || code == 1 && err.contains("/etc/zfs/zpool.cache"), "{words:?}: {code}: {err}");
    }
}

/// What only one of the two prints, or not at this place: the deadlist; what was verified beside it.
fn comparable(text: &str) -> Vec<&str> {
    let is_left_out = |line: &&str| {
        let line = line.trim();
        line.is_empty() || line.starts_with("Deadlist:") || line.starts_with("mintxg") || line.starts_with("Verified ")
    };
    text.lines().filter(|line| !is_left_out(line)).collect()
}

#[track_caller]
fn same(what: &str, ours: &str, real: &str) {
    let (ours, real) = (comparable(ours), comparable(real));
    if let Some(at) = (0..ours.len().max(real.len())).find(|at| ours.get(*at) != real.get(*at)) {
        panic!("{what}: line {at}:\nzdb:  {:?}\nours: {:?}\n(after {:?})", real.get(at), ours.get(at), at.checked_sub(1).and_then(|at| ours.get(at)));
    }
}

/// The golden pools that are in the project; of the others those that are there.
fn golden(name: &str) -> Option<sim::golden::Golden> {
    sim::golden::Golden::find(name).expect("a golden pool")
}

#[test]
fn objects_are_shown_as_openzfs_recorded_them() {
    let golden = golden("acl").expect("it is in the project");
    let directory = golden.directory().display().to_string();
    let (code, out, err) = run(&["-e", "-p", &directory, "-ddddd", "g_acl/sa"]);
    assert_eq!((code, err.as_str()), (0, ""));
    same("g_acl/sa", &out, include_str!("golden/acl-sa.txt"));
}

#[test]
fn objects_are_shown_as_the_real_zdb_shows_them() {
    for (name, dataset) in [
        ("xattr", "g_xattr/both@x"),
        ("acl", "g_acl/nfs4"),
        ("single-a12", "g_single_a12/child"),
        ("names", "g_names/long"),
        ("dnodesize", "g_dnodesize/mixed"),
    ] {
        let Some(golden) = golden(name) else {
            sim::places::skipped(&format!("zdb on golden pool {name}: no ../shared"));
            continue;
        };
        let Some(real) = sim::oracle::zdb_text(golden.directory(), &["-ddddd", dataset]) else { return };
        assert!(real.contains("Object  lvl"), "{name}: {real}");
        let (code, out, err) = run(&["-e", "-p", &golden.directory().display().to_string(), "-ddddd", dataset]);
        assert_eq!((code, err.as_str()), (0, ""), "{name}");
        same(dataset, &out, &real);
    }
}

/// The table of the real one, to the letter: with clones, dedup tables, snapshots, several copies.
#[test]
fn dedup_is_simulated_as_the_real_zdb_does() {
    for name in ["acl", "bclone", "dedup-fast", "snap", "copies", "compress"] {
        let Some(golden) = golden(name) else {
            sim::places::skipped(&format!("zdb -S on golden pool {name}: no ../shared"));
            continue;
        };
        let pool = golden.manifest.pool.name.clone();
        let (code, out, err) = run(&["-e", "-p", &golden.directory().display().to_string(), "-S", &pool]);
        assert_eq!((code, err.as_str()), (0, ""), "{name}");
        assert!(name == "acl" || out.contains("\n Total   "), "{name}: {out}");
        let Some(real) = sim::oracle::zdb_text(golden.directory(), &["-S", &pool]) else { return };
        assert!(real.contains("Simulated DDT histogram:"), "{name}: {real}");
        same(name, &out, &real);
    }
}

/// Records of calls were shown as the program has them in memory, and events without their details.
#[test]
fn history_is_shown_as_the_real_zdb_shows_it() {
    for name in ["acl", "quota", "snap", "v28"] {
        let Some(golden) = golden(name) else {
            sim::places::skipped(&format!("zdb -h on golden pool {name}: no ../shared"));
            continue;
        };
        let pool = golden.manifest.pool.name.clone();
        let (code, out, err) = run(&["-e", "-p", &golden.directory().display().to_string(), "-h", &pool]);
        assert_eq!((code, err.as_str()), (0, ""), "{name}");
        assert!(out.contains(" ioctl create\n    input:\n        type: 2\n") || name == "v28", "{name}: {out}");
        let Some(real) = sim::oracle::zdb_text(golden.directory(), &["-h", &pool]) else { return };
        same(name, &out, &real);
    }
}

#[test]
fn single_objects_and_blocks() {
    let golden = golden("acl").expect("it is in the project");
    let directory = golden.directory().display().to_string();
    let words = |rest: &[&'static str]| [&["-e", "-p", directory.as_str()], rest].concat();
    let (code, out, _) = run(&words(&["-dd", "g_acl/sa", "1", "34"]));
    assert_eq!(code, 0);
    let objects: Vec<&str> = out.lines().filter(|line| line.contains("ZFS")).collect();
    assert!(objects.len() == 2 && objects[0].ends_with("ZFS master node") && objects[1].ends_with("ZFS directory"), "{out}");
    let (code, _, err) = run(&words(&["-dd", "g_acl/none"]));
    assert!(code == 1 && err.contains("dataset does not exist"), "{err}");
    let (code, _, err) = run(&words(&["-dd", "g_acl/sa", "x"]));
    assert!(code == 2 && err.contains("Bad object or range: 'x': Invalid characters in object ID"), "{err}");
    // The first label's nvlist begins in the first vdev at -4 MiB; offset 0 of the data is behind it.
    let (code, out, err) = run(&words(&["-R", "g_acl", "0:0:200"]));
    assert_eq!((code, err), (0, format!("Found vdev: {directory}/d0.img\n")));
    // As the real zdb prints it: bytes in their order.
    let head = "\n0:0:200\n          0 1 2 3 4 5 6 7   8 9 a b c d e f  0123456789abcdef\n";
    assert!(out.starts_with(&format!("{head}000000:  0000007721010001  006180abb22af502  ...w!....a...*..\n")), "{out}");
    let (_, out, _) = run(&words(&["-R", "g_acl", "d0.img:0:200:ec", "0:400000:200"]));
    let head = "\nd0.img:0:200:ec\n          7 6 5 4 3 2 1 0   f e d c b a 9 8  0123456789abcdef\n000000:  0100012177000000  02f52ab2ab806100  ";
    assert!(out.starts_with(head) && out.contains("\n   fletcher2\tcksum=8e83a02181170f66:bdf907b8ba828a92:"), "{out}");
    assert!(out.contains("\n      blake3\tcksum=d240b599952bab34:f7b930b3e45916d3:"), "the pool's salt: {out}");
    // 16 words of a pointer that holds five bytes, uncompressed.
    let (code, out, _) = run(&["-E", "6f6c6c6568:0:0:0:0:0:8000008208000004:0:0:0:0:0:0:0:0:0"]);
    assert_eq!((code, out.as_str()), (0, "hello"));
    let (code, _, err) = run(&words(&["-R", "g_acl", "7:0:200"]));
    assert!(code == 1 && err.contains("***Invalid vdev: 7"), "{err}");
    let (code, _, err) = run(&["-E", "0:1"]);
    assert!(code == 1 && err.contains("invalid input format"), "{err}");
    // By type; of all objects; all that there is, in as much detail.
    let (code, out, _) = run(&words(&["-dd", "g_acl/sa", "0:-1:d"]));
    assert!(code == 0 && out.contains("ZFS directory") && !out.contains("ZFS plain file") && !out.contains("master node"), "{out}");
    let (code, out, _) = run(&words(&["-vvv", "g_acl"]));
    assert!(code == 0 && ["MOS Configuration:", "Uberblock:", "Metaslabs:", "rootbp DVA[0]=", "\tmicrozap: ", "No leaks", "History:"].iter().all(|words| out.contains(words)));
    let (code, out, _) = run(&words(&["-vvv", "g_acl/sa", "1"]));
    assert!(code == 0 && out.contains("\t\tVERSION = 5"), "{out}");
    // By its path: as by its number, without the dataset's line.
    let (code, out, err) = run(&words(&["-Ovv", "g_acl/sa", "/"]));
    let (_, whole, _) = run(&words(&["-ddddd", "g_acl/sa", "34"]));
    assert!(code == 0 && out.contains("ZFS directory") && out.trim().len() > 300 && whole.trim_end().ends_with(out.trim()), "{out}{err}");
    let name = whole.lines().find_map(|line| line.strip_prefix("\t\t")?.strip_suffix(" (type: Regular File)")).expect("a file");
    let (path, number) = name.split_once(" = ").expect("a name and an object");
    let (code, out, err) = run(&[&words(&["-vv", "g_acl/sa", "-O"])[..], &[path]].concat());
    assert!(code == 0 && out.contains(&format!("\n{number:>10} ")) && out.contains("ZFS plain file"), "{out}{err}");
    let (code, _, err) = run(&words(&["-O", "g_acl/sa", "nosuch"]));
    assert!(code == 1 && err.starts_with("zdb: can't show 'nosuch' of 'g_acl/sa': "), "{err}");
    let (code, out, _) = run(&words(&["-h", "g_acl"]));
    assert!(code == 0 && out.contains("zpool create"), "{out}");
    let (code, out, _) = run(&words(&["-m", "g_acl"]));
    assert!(code == 0 && out.contains("metaslab      0   offset            0   spacemap    142   free    15.9M"), "{out}");
}
