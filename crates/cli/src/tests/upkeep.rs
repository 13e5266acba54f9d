//! History, events, counters and owners, laid out as OpenZFS does it.

use tarnfs::control::*;

use super::fake::FakeBackend;
use super::golden::golden;
use super::{complains, prints, sh};

fn record(what: HistoryWhat) -> HistoryRecord {
    HistoryRecord { time: Some(1_795_172_895), elapsed_ns: None, what, user: Some(0), host: Some("lake".into()), zone: None }
}

#[test]
fn history() {
    let mut backend = golden!("cache").backend();
    let name = backend.pools[0].name.clone();
    let event = HistoryWhat::Event { txg: 5, name: "create".into(), dataset: Some(("t/a".into(), 54)), details: "".into() };
    let records = vec![
        record(HistoryWhat::Command("zpool create t /dev/sda".into())),
        record(event),
        record(HistoryWhat::OldEvent { txg: 7, number: 33, details: "dataset = 5".into() }),
    ];
    backend.histories = vec![PoolHistory { name: name.clone(), records }];
    prints(&mut backend, "zpool history", &format!("History for '{name}':\n2026-11-20.11:08:15 zpool create t /dev/sda\n\n"));
    let all = format!(
        "History for '{name}':\n2026-11-20.11:08:15 zpool create t /dev/sda [user 0 (root) on lake]\n\
         2026-11-20.11:08:15 [txg:5] create t/a (54)  [user 0 (root) on lake]\n\
         2026-11-20.11:08:15 [internal snapshot txg:7] dataset = 5 [user 0 (root) on lake]\n\n"
    );
    prints(&mut backend, "zpool history -il", &all);
    complains(&mut FakeBackend::default(), "zpool history", 0, "no pools available\n");
}

#[test]
fn events() {
    let mut backend = FakeBackend::default();
    let details = vec![("vdev_path".to_owned(), EventValue::Text("/dev/sda".into())), ("errors".to_owned(), EventValue::Number(26))];
    let class = "ereport.fs.zfs.io".to_owned();
    backend.events = vec![PoolEvent { id: 3, time: (1_795_172_895, 5), class, pool: "tank".into(), guid: 255, details }];
    prints(&mut backend, "zpool events", "TIME                           CLASS\nNov 20 2026 11:08:15.000000005 ereport.fs.zfs.io\n");
    prints(&mut backend, "zpool events -H tank", "Nov 20 2026 11:08:15.000000005\tereport.fs.zfs.io\n");
    prints(&mut backend, "zpool events -H other", "");
    let ran = sh(&mut backend, "zpool events -Hv");
    assert!(ran.out.contains("        pool_guid = 0xff\n        vdev_path = \"/dev/sda\"\n        errors = 0x1a\n"), "{}", ran.out);
}

#[test]
fn counters() {
    let mut backend = golden!("special").backend();
    let pool = &mut backend.pools[0].status;
    pool.root.stats.age_ns = 2_000_000_000;
    (pool.root.stats.space, pool.root.stats.allocated) = (10 << 20, 1 << 20);
    (pool.root.stats.reads, pool.root.stats.writes, pool.root.stats.written_bytes) = (100, 3000, 5 << 20);
    let name = pool.name.clone();
    let width = name.len().max(10);
    let dashes = format!("{}  -----  -----  -----  -----  -----  -----", "-".repeat(width));
    let expected = format!(
        "{:width$}    capacity     operations     bandwidth \n{:<width$}  alloc   free   read  write   read  write\n{dashes}\n\
         {name:<width$}     1M     9M     50  1.46K      0  2.50M\n",
        "", "pool"
    );
    prints(&mut backend, "zpool iostat", &expected);
    prints(&mut backend, &format!("zpool iostat -Hp {name}"), &format!("{name}\t1048576\t9437184\t50\t1500\t0\t2621440\n"));
    let ran = sh(&mut backend, "zpool iostat -v");
    assert!(ran.out.contains("\nspecial") && ran.out.ends_with(&format!("{}\n", "-----  -----")), "{}", ran.out);
    complains(&mut FakeBackend::default(), "zpool iostat", 1, "no pools available\n");
    let ran = sh(&mut backend, "zpool iostat -c script");
    assert!(ran.code == 1 && ran.err.contains("option 'c' is not yet supported"), "{}", ran.err);
}

/// The columns of `-l` and `-q`, and the histograms, in the layout of OpenZFS.
#[test]
fn single_requests() {
    let mut backend = golden!("special").backend();
    let status = &mut backend.pools[0].status;
    let buckets = |at: usize, count: u64| (0..=at).map(|bucket| if bucket == at { count } else { 0 }).collect::<Vec<u64>>();
    let stats = &mut status.root.stats;
    stats.age_ns = 2_000_000_000;
    stats.read_requests = Requests { wait: buckets(17, 3), single: buckets(12, 3), joined: Vec::new(), active: 2 };
    stats.log_requests = Requests { wait: buckets(18, 1), single: buckets(9, 1), joined: Vec::new(), active: 0 };
    stats.write_requests = Requests { wait: buckets(20, 1), single: Vec::new(), joined: buckets(20, 2000), active: 9 };
    let name = status.name.clone();
    let width = name.len().max(10);
    let ran = sh(&mut backend, "zpool iostat -lq");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines[0].ends_with(" asyncq_wait  scrub   trim  rebuild   syncq_read    syncq_write   asyncq_read  asyncq_write   scrubq_read   trimq_write  rebuildq_write"), "{}", ran.out);
    assert!(lines[1].ends_with("   wait   wait   wait   pend  activ   pend  activ   pend  activ   pend  activ   pend  activ   pend  activ   pend  activ"), "{}", ran.out);
    let cells: Vec<&str> = lines[3].split_whitespace().skip(7).collect();
    assert_eq!(cells[..4], ["196us", "983us", "196us", "983us"], "{}", ran.out);
    assert_eq!(cells[4..11], ["-"; 7]);
    assert_eq!(cells[11..], ["0", "2", "0", "0", "0", "0", "0", "9", "0", "0", "0", "0", "0", "0"]);
    let ran = sh(&mut backend, &format!("zpool iostat -w {name}"));
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[1], format!("{name:<width$}   total_wait     disk_wait    syncq_wait    asyncq_wait"), "{}", ran.out);
    assert_eq!(lines[2], format!("{:<width$}   read  write   read  write   read  write   read  write  scrub   trim  rebuild", "latency"));
    assert_eq!(lines.len(), 4 + 37 + 1, "{}", ran.out);
    assert_eq!(lines[4 + 17], format!("{:<width$}      3      0      3      0      0      0      0      0      0      0      0", "262us"));
    let ran = sh(&mut backend, &format!("zpool iostat -rHp {name}"));
    assert!(ran.out.contains("\n4096\t3\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0\n"), "{}", ran.out);
    assert!(ran.out.contains("\n1048576\t0\t0\t0\t0\t0\t0\t0\t2000\t"), "{}", ran.out);
    let ran = sh(&mut backend, "zpool iostat -wl");
    assert!(ran.code == 2 && ran.err.starts_with("[-r|-w] isn't allowed with [-c|-l|-q]\n"), "{}", ran.err);
}

#[test]
fn owners() {
    let mut backend = FakeBackend::default();
    backend.dataset("tank", DatasetKind::Filesystem, 1, Vec::new());
    let used = |owner: &str, used, objects| OwnerUse { owner: owner.into(), used: Some(used), objects: Some(objects), ..OwnerUse::default() };
    backend.owners = vec![used("54321", 2 << 20, 7), OwnerUse { quota: Some(5 << 30), ..used("0", 1536, 3) }];
    prints(
        &mut backend,
        "zfs userspace -n tank",
        "TYPE        NAME    USED  QUOTA  OBJUSED  OBJQUOTA\n\
         POSIX User  0      1.50K     5G        3      none\n\
         POSIX User  54321     2M   none        7      none\n",
    );
    prints(&mut backend, "zfs userspace -H -p -o name,used,quota -S used tank", "54321\t2097152\t0\nroot\t1536\t5368709120\n");
    prints(&mut backend, "zfs groupspace tank", "");
    let ran = sh(&mut backend, "zfs userspace -o nothing tank");
    assert_eq!((ran.code, ran.err.as_str()), (255, "invalid type 'nothing' for -o option\n"));
}

#[test]
fn renames_are_checked_before_anybody_is_asked() {
    let mut backend = FakeBackend::default();
    for name in ["tank", "tank/a"] {
        backend.dataset(name, DatasetKind::Filesystem, 1, Vec::new());
    }
    backend.dataset("tank/a@s", DatasetKind::Snapshot, 2, Vec::new());
    prints(&mut backend, "zfs rename tank/a@s t", "");
    prints(&mut backend, "zfs rename tank/a tank/b", "");
    prints(&mut backend, "zfs rename tank/a tank/a", "");
    let renamed: Vec<(String, String)> = backend
        .changes()
        .into_iter()
        .map(|request| match request {
            Request::DatasetRename(rename) => (rename.from, rename.to),
            other => panic!("{other:?}"),
        })
        .collect();
    let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    assert_eq!(renamed, [pair("tank/a@s", "tank/a@t"), pair("tank/a", "tank/b")]);
    complains(&mut backend, "zfs rename tank/a tank/a/b", 1, "cannot rename to 'tank/a/b': New dataset name cannot be a descendant of current dataset name\n");
    complains(&mut backend, "zfs rename tank/a other/b", 1, "cannot rename to 'other/b': datasets must be within same pool\n");
}
