use serde_json::Value as Json;
use tarnfs::control::*;

use super::fake::FakeBackend;
use super::golden::{Golden, golden};
use super::{complains, prints, run, sh};

fn goldens() -> Vec<Golden> {
    vec![
        golden!("everything"),
        golden!("degraded-z1"),
        golden!("degraded-off"),
        golden!("errors"),
        golden!("special"),
        golden!("spare"),
        golden!("draid2"),
        golden!("resilver"),
        golden!("v28"),
        golden!("nofeat"),
        golden!("cache"),
        golden!("slog"),
        golden!("wholedisk"),
    ]
}

#[test]
fn status_in_json_is_what_openzfs_recorded() {
    for golden in goldens() {
        let mut backend = golden.backend();
        let ran = sh(&mut backend, "zpool status -vj --json-int");
        let mut ours: Json = serde_json::from_str(&ran.out).expect("JSON");
        let mut theirs = golden.json["status"].clone();
        // What to do is to be done with this program.
        for pools in [&mut ours["pools"], &mut theirs["pools"]] {
            pools.as_object_mut().expect("pools").values_mut().filter_map(|pool| pool.get_mut("action")).for_each(|action| *action = Json::Null);
        }
        assert_eq!(ours.to_string(), theirs.to_string(), "{}", golden.name);
        assert_eq!(ran.code, 0);
    }
}

#[test]
fn every_pool_property_is_what_openzfs_recorded() {
    for golden in goldens() {
        let mut backend = golden.backend();
        let ran = sh(&mut backend, "zpool get -Hp -o property,value all");
        let ours: Vec<(String, String)> =
            ran.out.lines().map(|line| line.split_once('\t').expect("tab")).map(|(name, value)| (name.into(), value.into())).collect();
        let mut recorded = Golden::printed(&golden.json["pool"]);
        recorded.retain(|(name, _)| name != "name");
        assert_eq!(ours, recorded, "{}", golden.name);
    }
}

#[test]
fn status_as_text() {
    let golden = golden!("everything");
    prints(
        &mut golden.backend(),
        "zpool status",
        "  pool: g_everything
 state: ONLINE
checkpoint: created Fri Nov 20 10:58:09 2026, consumes 644K
config:

\tNAME                   STATE     READ WRITE CKSUM
\tg_everything           ONLINE       0     0     0
\t  raidz2-0             ONLINE       0     0     0
\t    /dev/shm/m/d0.img  ONLINE       0     0     0
\t    /dev/shm/m/d1.img  ONLINE       0     0     0
\t    /dev/shm/m/d2.img  ONLINE       0     0     0
\t    /dev/shm/m/d3.img  ONLINE       0     0     0
\t    /dev/shm/m/d4.img  ONLINE       0     0     0
\tspecial\t
\t  mirror-1             ONLINE       0     0     0
\t    /dev/shm/m/d5.img  ONLINE       0     0     0
\t    /dev/shm/m/d6.img  ONLINE       0     0     0
\tlogs\t
\t  mirror-2             ONLINE       0     0     0
\t    /dev/shm/m/d7.img  ONLINE       0     0     0
\t    /dev/shm/m/d8.img  ONLINE       0     0     0
\tcache
\t  /dev/shm/m/d9.img    ONLINE       0     0     0

errors: No known data errors
",
    );
}

#[test]
fn status_of_pools_in_trouble() {
    let golden = golden!("degraded-z1");
    prints(
        &mut golden.backend(),
        "zpool status -x",
        "  pool: g_degraded_z1
 state: DEGRADED
status: One or more devices could not be opened.  Sufficient replicas exist for
\tthe pool to continue functioning in a degraded state.
action: Attach the missing device and online it using 'zpool online'.
   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-2Q
config:

\tNAME                     STATE     READ WRITE CKSUM
\tg_degraded_z1            DEGRADED     0     0     0
\t  raidz1-0               DEGRADED     0     0     0
\t    /dev/shm/m/d0.img    ONLINE       0     0     0
\t    7955757244308030648  UNAVAIL      0     0     0  was /dev/shm/g/degraded-z1/d1.img
\t    /dev/shm/m/d2.img    ONLINE       0     0     0
\t    /dev/shm/m/d3.img    ONLINE       0     0     0

errors: No known data errors
",
    );
    let golden = golden!("errors");
    let ran = sh(&mut golden.backend(), "zpool status -v g_errors");
    let tail = "
errors: Permanent errors have been detected in the following files:

        g_errors/a:/t2/f002
        g_errors/a:/t2/f027
        g_errors/a:/t0/f035
";
    assert!(ran.out.ends_with(tail), "{}", ran.out);
    assert!(ran.out.contains("  scan: scrub repaired 8K in 00:00:00 with 3 errors on Fri Nov 20 11:03:00 2026\n"), "{}", ran.out);
    let ran = sh(&mut golden.backend(), "zpool status g_errors");
    assert!(ran.out.ends_with("\nerrors: 3 data errors, use '-v' for a list\n"), "{}", ran.out);
    let golden = golden!("spare");
    let ran = sh(&mut golden.backend(), "zpool status");
    assert!(ran.out.contains("\tspares\n\t  /dev/shm/m/d2.img      INUSE     currently in use\n"), "{}", ran.out);
}

/// An error scrub of an hour was shown without its days.
#[test]
fn an_error_scrub_is_shown_with_its_days() {
    let mut backend = golden!("everything").backend();
    let scrub = ErrorScrubStatus { state: ScanState::Finished, start_time: 1_700_000_000, end_time: 1_700_003_661, to_examine: 0, examined: 5, errors: 0, is_paused: false };
    backend.pools[0].status.error_scrub = Some(scrub);
    let ran = sh(&mut backend, "zpool status");
    assert!(ran.out.contains(" scrub: scrubbed 5 error blocks in 0 days 01:01:01 on "), "{}", ran.out);
}

/// Devices that an earlier rebuild had written were shown as being resilvered while those of another vdev were.
#[test]
fn only_devices_of_the_vdev_that_is_rebuilt_are_resilvered() {
    let mut backend = golden!("everything").backend();
    let status = &mut backend.pools[0].status;
    status.root.children.iter_mut().flat_map(|top| &mut top.children).for_each(|leaf| leaf.stats.rebuild_processed = 5);
    status.rebuilds.push(RebuildStatus {
        state: RebuildState::Active,
        vdev: status.root.children[1].id,
        start_time: 1_700_000_000,
        end_time: 0,
        scan_time_ms: 1000,
        scanned: 1 << 20,
        issued: 1 << 20,
        rebuilt: 1 << 20,
        estimate: 1 << 30,
        errors: 0,
        pass_time_ms: 1000,
        pass_scanned: 1 << 20,
        pass_issued: 1 << 20,
        pass_skipped: 0,
    });
    let expected: Vec<String> = status.root.children[1].children.iter().filter_map(|leaf| leaf.path.clone()).collect();
    let ran = sh(&mut backend, "zpool status");
    let shown: Vec<&str> = ran.out.lines().filter(|line| line.ends_with("(resilvering)")).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(shown, expected, "{}", ran.out);
}

#[test]
fn status_without_trouble() {
    let mut backend = golden!("cache").backend();
    prints(&mut backend, "zpool status -x", "all pools are healthy\n");
    prints(&mut backend, "zpool status -x g_cache", "pool 'g_cache' is healthy\n");
    let ran = sh(&mut FakeBackend::default(), "zpool status");
    assert_eq!((ran.code, ran.err.as_str()), (0, "no pools available\n"));
    complains(&mut backend, "zpool status nosuch", 1, "cannot open 'nosuch': no such pool\n");
    let only_bad = sh(&mut golden!("degraded-z1").backend(), "zpool status -e").out;
    assert!(only_bad.contains("UNAVAIL") && !only_bad.contains("d0.img"), "{only_bad}");
}

#[test]
fn list() {
    let mut backend = golden!("everything").backend();
    prints(
        &mut backend,
        "zpool list",
        "NAME           SIZE  ALLOC   FREE  CKPOINT  EXPANDSZ   FRAG    CAP  DEDUP    HEALTH  ALTROOT
g_everything   336M      0   336M     644K         -     0%     0%  5.59x    ONLINE  /mnt/m0
",
    );
    prints(&mut backend, "zpool list -H -o cap", "0%\n");
    prints(&mut backend, "zpool list -Hp -o name,size,dedup,health g_everything", "g_everything\t352321536\t5.59\tONLINE\n");
    prints(
        &mut backend,
        "zpool list -o name,size,cap,health,free g_everything",
        "NAME           SIZE    CAP    HEALTH   FREE\ng_everything   336M     0%    ONLINE   336M\n",
    );
    prints(&mut FakeBackend::default(), "zpool list", "no pools available\n");
    complains(&mut backend, "zpool list nosuch", 1, "cannot open 'nosuch': no such pool\n");
}

#[test]
fn list_with_vdevs() {
    let mut backend = golden!("cache").backend();
    prints(
        &mut backend,
        "zpool list -v -o name,size,allocated,capacity,health",
        "NAME                  SIZE  ALLOC    CAP    HEALTH
g_cache                80M      0     0%    ONLINE
  /dev/shm/m/d0.img    96M      0  0.00%    ONLINE
cache                    -      -      -         -
  /dev/shm/m/d1.img    96M      0  0.00%    ONLINE
",
    );
    prints(
        &mut backend,
        "zpool list -Hpv -o name,size",
        "g_cache\t83886080\n\t/dev/shm/m/d0.img\t100663296\ncache                       -\n\t/dev/shm/m/d1.img\t100663296\n",
    );
}

#[test]
fn get() {
    let mut backend = golden!("everything").backend();
    prints(
        &mut backend,
        "zpool get size,failmode,feature@lz4_compress,comment g_everything",
        "NAME          PROPERTY              VALUE                 SOURCE
g_everything  size                  336M                  -
g_everything  failmode              wait                  default
g_everything  feature@lz4_compress  active                local
g_everything  comment               -                     default
"
        .replace("336M                  -\n", "336M                  default\n")
        .as_str(),
    );
    prints(&mut backend, "zpool get -o value -H feature@extensible_dataset g_everything", "active\n");
    complains(&mut backend, "zpool get all nosuch", 1, "Cannot get properties of nosuch: no such pool available.\n");
    let ran = run(&mut backend, &["zpool", "get", "-H", "nosuch", "g_everything"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.starts_with("bad property list: invalid property 'nosuch'\nusage:\n\tget [-Hp] [-j"), "{}", ran.err);
}

#[test]
fn import_lists_what_it_found() {
    let golden = golden!("degraded-off");
    let mut status = super::golden::status(&golden.json["status"]["pools"][&golden.name]);
    status.state = PoolState::Exported;
    let found = FoundPool {
        status,
        comment: None,
        hostname: Some("golden".into()),
        hostid: 7,
        other_host: false,
        timestamp: 0,
        unsupported: Vec::new(),
        can_read_only: false,
    };
    let guid = found.status.guid.to_string();
    let mut backend = FakeBackend { found: vec![found], ..FakeBackend::default() };
    prints(
        &mut backend,
        "zpool import -d /dev/shm/m",
        "  pool: g_degraded_off
    id: GUID
 state: DEGRADED
status: One or more devices are offlined.
action: The pool can be imported despite missing or damaged devices.  The
\tfault tolerance of the pool may be compromised if imported.
config:

\tg_degraded_off           DEGRADED
\t  raidz1-0               DEGRADED
\t    /dev/shm/m/d0.img    ONLINE
\t    /dev/shm/m/d1.img    ONLINE
\t    /dev/shm/m/d2.img    OFFLINE
"
        .replace("GUID", &guid)
        .replace("g_degraded_off           ", "g_degraded_off         ")
        .replace("  raidz1-0               ", "  raidz1-0             ")
        .replace(".img    ", ".img  ")
        .as_str(),
    );
    let in_dev = "pools were looked for in /dev: '-d DIRECTORY' looks for those on images there\n";
    complains(&mut FakeBackend::default(), "zpool import", 0, &format!("no pools available to import\n{in_dev}"));
    complains(&mut FakeBackend::default(), "zpool import -d /nonexistent", 0, "no pools available to import\nthere is no '/nonexistent'\n");
    complains(&mut backend, "zpool import g_degraded_of", 1, "cannot import 'g_degraded_of': no such pool available\ndid you mean 'g_degraded_off'?\n");
    complains(&mut backend, "zpool import nosuch", 1, "cannot import 'nosuch': no such pool available\n");
    complains(&mut backend, "zpool import -n g_degraded_off", 2, &usage_after(&mut FakeBackend::default(), "zpool import -n x"));
    prints(&mut backend, "zpool import -o readonly=on -R /mnt g_degraded_off tank", "");
    let changes = backend.changes();
    let Request::PoolImport(import) = &changes[0] else { panic!("{changes:?}") };
    assert_eq!(import.name, "tank");
    assert_eq!(import.properties, [Setting::new("readonly", 1), Setting::new("altroot", "/mnt"), Setting::new("cachefile", "none")]);
    assert!(matches!(&changes[1], Request::DatasetsMount(mounts) if mounts.len() == 1 && mounts[0].name == "tank"), "{changes:?}");
}

fn usage_after(backend: &mut FakeBackend, line: &str) -> String {
    sh(backend, line).err
}

#[test]
fn import_refuses_pools_of_other_hosts() {
    let golden = golden!("cache");
    let status = super::golden::status(&golden.json["status"]["pools"][&golden.name]);
    let found = FoundPool {
        status,
        comment: Some("a comment".into()),
        hostname: Some("golden".into()),
        hostid: 0x7f00,
        other_host: true,
        timestamp: 1_795_172_289,
        unsupported: Vec::new(),
        can_read_only: false,
    };
    let mut backend = FakeBackend { found: vec![found], ..FakeBackend::default() };
    complains(
        &mut backend,
        "zpool import g_cache",
        1,
        "cannot import 'g_cache': pool was previously in use from another system.
Last accessed by golden (hostid=7f00) at Fri Nov 20 10:58:09 2026
The pool can be imported, use 'zpool import -f' to import the pool.
",
    );
    let ran = sh(&mut backend, "zpool import");
    assert!(ran.out.contains(" status: The pool was last accessed by another system.\n action: The pool can be imported using its name or numeric identifier and\n\t the '-f' flag.\ncomment: a comment\n    see: https"), "{}", ran.out);
    prints(&mut backend, "zpool import -fN g_cache", "");
}

#[test]
fn create_checks_its_vdevs() {
    let directory = tempfile::tempdir().expect("directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    for name in ["a", "b", "c"] {
        std::fs::write(path(name), vec![0; 4096]).expect("file");
    }
    let (a, b, c) = (path("a"), path("b"), path("c"));
    let mut backend = FakeBackend::default();
    let mut fails = |line: &[&str], err: &str| {
        let ran = run(&mut backend, line);
        assert_eq!((ran.code, ran.err.as_str()), (1, err), "{line:?}");
    };
    let mp = directory.path().join("mnt").display().to_string();
    fails(&["zpool", "create", "-m", &mp, "tank", "nosuch"], "cannot open 'nosuch': no such device in /dev\nmust be a full path or shorthand device name\n");
    fails(&["zpool", "create", "-m", &mp, "tank", "/nosuch/x"], "cannot resolve path '/nosuch/x'\n");
    fails(&["zpool", "create", "-m", &mp, "tank", "mirror", &a], "invalid vdev specification: mirror requires at least 2 devices\n");
    fails(&["zpool", "create", "-m", &mp, "tank", "/dev"], "cannot use '/dev': must be a block device or regular file\n");
    let uneven = "invalid vdev specification
use '-f' to override the following errors:
mismatched replication level: both mirror and file vdevs are present
";
    fails(&["zpool", "create", "-m", &mp, "tank", "mirror", &a, &b, "dedup", &c], uneven);
    let twice = "cannot create 'tank': one or more vdevs refer to the same device, or one of
the devices is part of an active md or lvm device
";
    fails(&["zpool", "create", "-m", &mp, "tank", "mirror", &a, &a], twice);
    fails(&["zpool", "create", "-m", "x", "tank", &a], "invalid mountpoint 'x': must be an absolute path, 'legacy', or 'none'\n");
    let full = directory.path().display().to_string();
    let words = format!("mountpoint '{full}' exists and is not empty\nuse '-m' option to provide a different default\n");
    fails(&["zpool", "create", "-m", &full, "tank", &a], &words);
    fails(&["zpool", "create", "-m", &mp, "raidzz", &a], "cannot create 'raidzz': name is reserved\npool name may have been omitted\n");
    fails(&["zpool", "create", "-m", &mp, "-o", "ashift=20", "tank", &a], "invalid 'ashift=20' property: only values between 9 and 16 are allowed.\n");
    fails(&["zpool", "create", "-O", "nosuch=1", "tank", &a], "property 'nosuch' is not a valid filesystem property\n");
    fails(&["zpool", "create", "a/b", &a], "cannot create 'a/b': invalid character '/' in pool name\nuse 'zfs create' to create a dataset\n");
}

#[test]
fn create_refuses_devices_in_use() {
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("a").display().to_string();
    std::fs::write(&file, vec![0; 4096]).expect("file");
    let golden = golden!("cache");
    let mut status = super::golden::status(&golden.json["status"]["pools"][&golden.name]);
    status.root.children[0].path = Some(file.clone());
    let mut backend = golden.backend();
    backend.pools[0].status = status;
    let line = ["zpool", "create", "-f", "-m", "none", "tank", &file];
    let ran = run(&mut backend, &line);
    let words = format!("invalid vdev specification\nthe following errors must be manually repaired:\n{file} is part of active pool 'g_cache'\n");
    assert_eq!((ran.code, ran.err.as_str()), (1, words.as_str()));
    assert_eq!(backend.changes(), []);
}

/// What allows an uneven redundancy allowed devices in use, and what allows these did nothing.
#[test]
fn each_option_of_add_allows_what_it_says() {
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("a").display().to_string();
    std::fs::write(&file, vec![0; 4096]).expect("file");
    let golden = golden!("degraded-off");
    let mut status = super::golden::status(&golden.json["status"]["pools"][&golden.name]);
    (status.name, status.state) = ("other".to_owned(), PoolState::Exported);
    let mut backend = golden.backend();
    backend.found = vec![FoundPool {
        status,
        comment: None,
        hostname: None,
        hostid: 7,
        other_host: false,
        timestamp: 0,
        unsupported: Vec::new(),
        can_read_only: false,
    }];
    let mut add = |allowed: &[&str], found: bool| {
        if !found {
            backend.found.clear();
        }
        let words = [&["zpool", "add", "-n"][..], allowed, &[golden.name.as_str(), file.as_str()][..]].concat();
        let ran = run(&mut backend, &words);
        (ran.code, ran.err)
    };
    let in_use = format!("invalid vdev specification\nuse '-f' to override the following errors:\n{file} is part of exported pool 'other'\n");
    assert_eq!(add(&["--allow-replication-mismatch"], true), (1, in_use));
    let (code, err) = add(&["--allow-in-use"], true);
    assert!(code == 1 && err.contains("mismatched replication level:") && !err.contains("exported"), "{err}");
    assert_eq!(add(&["--allow-in-use", "--allow-replication-mismatch"], true), (0, String::new()));
    assert_eq!(add(&["-f"], true), (0, String::new()));
    assert_eq!(add(&["--allow-replication-mismatch"], false), (0, String::new()));
}

#[test]
fn create_takes_groups_of_all_kinds() {
    let directory = tempfile::tempdir().expect("directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    for name in ["a", "b", "c"] {
        std::fs::write(path(name), vec![0; 4096]).expect("file");
    }
    let (a, b, c) = (path("a"), path("b"), path("c"));
    let mp = directory.path().join("mnt").display().to_string();
    let mut backend = FakeBackend::default();
    let ran = run(&mut backend, &["zpool", "create", "-m", &mp, "tank", "draid", &a, &b]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let ran = run(&mut backend, &["zpool", "create", "-m", &mp, "tank", "draid1:3d", &a, &b]);
    assert_eq!((ran.code, ran.err.as_str()), (1, "requested number of dRAID data disks per group 3 is too high,\nat most 1 disks are available for data\n"));
    let ran = run(&mut backend, &["zpool", "create", "-n", "-m", &mp, "x", "draid:1s", &a, &b, &c]);
    assert_eq!((ran.code, ran.out), (0, format!("would create 'x' with the following layout:\n\n\tx\n\t  draid1:1d:3c:1s\n\t    {a}\n\t    {b}\n\t    {c}\n")));
    let ran = run(&mut backend, &["zpool", "create", "-m", &mp, "tank", &a, "spare", "draid1-0-0"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, "cannot open 'draid1-0-0': dRAID spares can only be used to replace primary vdevs\n"));
    let ran = run(&mut backend, &["zpool", "create", "-m", &mp, "tank", "mirror", &a, &b, &c]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let ran = run(&mut backend, &["zpool", "create", "-n", "-m", &mp, "x", "mirror", &a, &b, "log", &c]);
    let layout = format!("would create 'x' with the following layout:\n\n\tx\n\t  mirror\n\t    {a}\n\t    {b}\n\tlogs\n\t  {c}\n");
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, layout.as_str(), ""));
}
