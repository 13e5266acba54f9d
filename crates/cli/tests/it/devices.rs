//! Vdevs that come and go while the pool is in use: `zpool add`, `zpool remove`.

use std::fs::{self, File};
use std::io::Write;

use crate::rig::Rig;

const MIB: u64 = 1 << 20;

/// So many bytes were written to the device, by `zpool iostat`.
fn written(rig: &Rig, image: &str) -> u64 {
    let table = rig.ok("zpool iostat -Hpv tank");
    let row = table.lines().find(|line| line.split('\t').next().unwrap().ends_with(image)).unwrap_or_else(|| panic!("{image}: {table}"));
    // Per second since the import: a second at least.
    row.split('\t').nth(6).unwrap().parse().unwrap()
}

fn synced(rig: &Rig, name: &str) {
    let mut file = File::create(rig.path(&format!("mnt/{name}"))).unwrap();
    file.write_all(&vec![7; 100_000]).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn log_devices_come_and_go_under_a_mount() {
    let Some(rig) = Rig::new() else { return };
    for name in ["a.img", "b.img", "c.img", "d.img"] {
        rig.image(name, 128 * MIB);
    }
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    synced(&rig, "first");
    rig.refused("zpool add tank", "missing vdev specification");
    rig.refused("zpool add tank log @a.img", "is part of active pool 'tank'");
    rig.refused("zpool add tank mirror @b.img @c.img", "mismatched replication level: pool uses file and new vdev is mirror");
    rig.refused("zpool add -f tank draid2 @b.img @c.img", "draid2 requires at least 3 devices");
    let (a, b, c) = (rig.text("a.img"), rig.text("b.img"), rig.text("c.img"));
    let layout = format!("would update 'tank' to the following configuration:\n\n\ttank\n\t  {a}\n\tlogs\n\t  mirror\n\t    {b}\n\t    {c}\n");
    assert_eq!(rig.ok("zpool add -n tank log mirror @b.img @c.img"), layout);
    rig.ok("zpool add tank log mirror @b.img @c.img");
    let status = rig.ok("zpool status tank");
    assert!(status.contains("\tlogs\t\n\t  mirror-1 ") && status.contains("b.img"), "{status}");
    rig.refused("zpool create other @b.img", "is part of active pool 'tank'");
    (0..30).for_each(|number| synced(&rig, &format!("s{number}")));
    assert!(written(&rig, "b.img") > 0 && written(&rig, "c.img") > 0, "synchronous writes go to the log");

    rig.ok("zpool add tank @d.img");
    fs::write(rig.path("mnt/large"), vec![1; 32 << 20]).unwrap();
    rig.ok("zpool sync tank");
    assert!(written(&rig, "d.img") > 0, "data goes to all vdevs");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img", "b.img", "c.img", "d.img"]);
    rig.ok("zpool import -d @ tank");
    synced(&rig, "again");

    rig.refused("zpool remove tank @d.img", "out of space");
    rig.refused("zpool remove tank @b.img", "one side of a mirror");
    rig.refused("zpool remove tank nothing", "no such device in pool");
    rig.refused("zpool remove tank", "missing device");
    rig.ok("zpool remove tank mirror-1");
    let status = rig.ok("zpool status tank");
    assert!(!status.contains("logs") && !status.contains("b.img") && !status.contains("hole"), "{status}");
    synced(&rig, "after");
    assert!(rig.ok("zpool history tank").contains("zpool remove tank mirror-1"));
    assert!(rig.ok("zpool history -i tank").contains("vdev remove tank vdev (log) mirror-1"));
    rig.ok("zpool export tank");
    rig.zdb(&["a.img", "d.img"]);
    rig.ok("zpool import -d @ tank");
    rig.ok("zpool add tank log @b.img");
    synced(&rig, "last");
    for name in ["first", "s29", "again", "after", "last"] {
        assert_eq!(fs::read(rig.path(&format!("mnt/{name}"))).unwrap(), vec![7; 100_000], "{name}");
    }
    rig.ok("zpool export tank");
    rig.zdb(&["a.img", "b.img", "d.img"]);
}

/// Overwrites what begins with `mark` in an image.
fn damage(rig: &Rig, image: &str, mark: &[u8]) {
    let path = rig.path(image);
    let mut bytes = fs::read(&path).unwrap();
    let places: Vec<usize> = (0..bytes.len()).step_by(512).filter(|at| bytes[*at..].starts_with(mark)).collect();
    assert!(!places.is_empty(), "it is on disk as it is");
    places.iter().for_each(|at| bytes[*at..*at + 512].fill(0x5a));
    fs::write(path, bytes).unwrap();
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 96 * MIB);
    rig.ok("zpool create -O compression=off -O mountpoint=@mnt tank @a.img");
    rig.ok("zfs create tank/b");
    let contents = |mark: &str| mark.bytes().cycle().take(300_000).collect::<Vec<u8>>();
    // Block sizes that the marks do not divide, so that only the first block begins with one.
    for (name, mark) in [("gone", "this one will be removed."), ("over", "this is written over...."), ("b/kept", "this stays as it is......")] {
        fs::write(rig.path(&format!("mnt/{name}")), contents(mark)).unwrap();
    }
    rig.ok("zpool export tank");
    for mark in ["this one will be removed.", "this is written over....", "this stays as it is......"] {
        damage(&rig, "a.img", mark.as_bytes());
    }
    rig.ok("zpool import -d @a.img tank");
    assert!(rig.ok("zpool status -v tank").contains("errors: No known data errors"), "nothing was read yet");
    let (gone, over, kept) = (rig.path("mnt/gone"), rig.path("mnt/over"), rig.path("mnt/b/kept"));
    for path in [&gone, &over, &kept] {
        assert_eq!(fs::read(path).unwrap_err().raw_os_error(), Some(5), "{path:?}");
    }
    let status = rig.ok("zpool status -v tank");
    assert!(status.contains("experienced an error resulting in data\n\tcorruption.  Applications may be affected."), "{status}");
    for path in [&gone, &over, &kept] {
        assert!(status.contains(&format!("        {}\n", path.display())), "{status}");
    }
    assert!(rig.ok("zpool status tank").contains("errors: 3 data errors, use '-v' for a list"));
    fs::remove_file(&gone).unwrap();
    fs::write(&over, contents("new")).unwrap();
    rig.ok("zpool sync tank");
    let status = rig.ok("zpool status -v tank");
    assert!(status.contains(&format!("        {}\n", kept.display())), "{status}");
    assert!(!status.contains("mnt/gone") && !status.contains("mnt/over"), "{status}");
    // All that was found since the last scrub is counted, as OpenZFS does.
    assert!(rig.ok("zpool status tank").contains("errors: 3 data errors, use '-v' for a list"));
    // What is damaged stays so, also when the errors of devices are forgotten, and after an import.
    rig.ok("zpool clear tank");
    rig.ok("zpool export tank");
    rig.ok("zpool import -d @a.img tank");
    assert!(rig.ok("zpool status -v tank").contains(&format!("        {}\n", kept.display())));
    assert_eq!(fs::read(&kept).unwrap_err().raw_os_error(), Some(5));
    fs::remove_file(&kept).unwrap();
    // The first may come by what is still being removed.
    rig.ok("zpool scrub -w tank");
    rig.ok("zpool scrub -w tank");
    assert!(rig.ok("zpool status tank").contains("errors: No known data errors"), "a scrub does not find it any more");
    rig.ok("zpool export tank");
}

#[test]
fn an_image_that_was_truncated_is_named() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=none tank @a.img");
    rig.ok("zpool export tank");
    fs::rename(rig.path("a.img"), rig.path("b.img")).unwrap();
    let image = fs::OpenOptions::new().write(true).open(rig.path("b.img")).unwrap();
    // Less than its whole metaslabs take; behind these nobody has anything.
    image.set_len(116 * MIB).unwrap();
    let list = rig.run("zpool import -d @b.img").out;
    assert!(list.contains(" state: UNAVAIL") && list.contains(&format!("{}  UNAVAIL  corrupted data", rig.text("b.img"))), "{list}");
    let said = rig.run("zpool import -d @b.img tank");
    let message = format!("{} has been truncated: its 121634816 bytes lack", rig.text("b.img"));
    assert!(said.code != 0 && said.err.contains("one or more devices is currently unavailable") && said.err.contains(&message), "{said:?}");
    image.set_len(128 * MIB).unwrap();
    rig.ok("zpool import -d @b.img tank");
    rig.ok("zpool export tank");
}
