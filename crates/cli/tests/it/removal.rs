//! `zpool remove` of vdevs that hold data, under a mount: its words, what is shown meanwhile and afterwards, and daemons that are killed.

use std::fs;

use crate::rig::Rig;

const MIB: u64 = 1 << 20;
const IMAGES: [&str; 3] = ["a.img", "b.img", "c.img"];

fn rig() -> Option<Rig> {
    let rig = Rig::new()?;
    for name in IMAGES {
        rig.image(name, 256 * MIB);
    }
    rig.ok("zpool create -O mountpoint=@mnt -O compression=off tank @a.img @b.img @c.img");
    Some(rig)
}

fn contents(number: u64) -> Vec<u8> {
    (0..200_000_u64 + number * 1000).map(|at| (at.wrapping_mul(number * 2 + 7) >> 5) as u8).collect()
}

fn write_files(rig: &Rig, numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| fs::write(rig.path(&format!("mnt/f{number}")), contents(number)).unwrap());
}

fn compare(rig: &Rig, numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| assert!(fs::read(rig.path(&format!("mnt/f{number}"))).unwrap() == contents(number), "f{number}"));
}

#[test]
fn a_vdev_is_removed_under_a_mount() {
    let Some(rig) = rig() else { return };
    write_files(&rig, 0..150);
    let [a, b] = ["a.img", "b.img"].map(|name| rig.text(name));
    rig.refused("zpool remove tank", "missing device");
    rig.refused("zpool remove tank nothing", "cannot remove nothing: no such device in pool");
    rig.refused("zpool remove -s tank", "cannot cancel removal: there are no active operations");
    assert!(rig.ok("zpool remove -n tank @a.img").starts_with(&format!("Memory that will be used after removing {a}: ")));
    let parsable = rig.ok("zpool remove -np tank @a.img");
    assert!(parsable.trim().strip_prefix(&format!("{a} ")).is_some_and(|bytes| bytes.parse::<u64>().is_ok()), "{parsable}");
    rig.ok("zpool checkpoint tank");
    rig.refused("zpool remove tank @a.img", &format!("cannot remove {a}: checkpoint exists"));
    rig.ok("zpool checkpoint -d -w tank");
    rig.ok("zpool remove -w tank @a.img");
    let status = rig.ok("zpool status -P tank");
    assert!(status.contains("remove: Removal of vdev 0 copied ") && status.contains(" memory used for removed device mappings"), "{status}");
    assert!(!status.contains("a.img") && !status.contains("indirect-0"), "{status}");
    // As OpenZFS has it: without a size where it is listed, and not a part of what the state is of.
    for command in ["zpool list -v tank", "zpool iostat -v tank"] {
        let listed = rig.ok(command);
        let line = listed.lines().find(|line| line.trim_start().starts_with("indirect-0"));
        assert!(line.is_some_and(|line| line.split_whitespace().nth(1) == Some("-")), "{command}: {listed}");
    }
    let history = rig.ok("zpool history -i tank");
    assert!(history.contains("vdev remove started") && history.contains("vdev remove completed"), "{history}");
    write_files(&rig, 150..160);
    compare(&rig, 0..160);
    rig.refused("zpool remove tank indirect-0", "cannot remove indirect-0: operation not supported on this type of pool");
    // It is nobody's now.
    rig.ok("zpool create other @a.img");
    rig.ok("zpool destroy other");
    rig.ok("zpool remove tank @b.img");
    rig.ok("zpool wait -t remove tank");
    rig.refused("zpool remove tank @c.img", "cannot remove");
    assert!(rig.ok("zpool status tank").contains("Removal of vdev 1 copied"), "{b}");
    compare(&rig, 0..160);
    rig.ok("zpool export tank");
    rig.zdb(&["c.img"]);
    rig.ok("zpool import -d @. tank");
    compare(&rig, 0..160);
    (0..160).for_each(|number| fs::remove_file(rig.path(&format!("mnt/f{number}"))).unwrap());
    rig.ok("zpool export tank");
    rig.zdb(&["c.img"]);
}

/// A command that starts the daemon, with limits from files.
fn limited(rig: &Rig, words: &str) {
    let said = rig.command(words).env("TARN_PARAMETERS", rig.path("limits")).output().unwrap();
    assert!(said.status.success() && said.stderr.is_empty(), "{words}: {said:?}");
}

fn limit(rig: &Rig, bytes: u64) {
    for name in ["zfs_remove_max_copy_bytes", "zfs_remove_max_segment"] {
        fs::write(rig.path(&format!("limits/{name}")), bytes.min(16 << 20).to_string()).unwrap();
    }
}

/// The daemon is killed again and again while a vdev goes: the removal goes on where it was, and files are what they were.
#[test]
fn a_removal_survives_kills() {
    let Some(rig) = Rig::new() else { return };
    IMAGES.iter().for_each(|name| drop(rig.image(name, 256 * MIB)));
    fs::create_dir(rig.path("limits")).unwrap();
    // Many hundred groups: it is under way still after some seconds, however fast groups follow one another.
    limit(&rig, 32 << 10);
    limited(&rig, "zpool create -O mountpoint=@mnt -O compression=off tank @a.img @b.img @c.img");
    write_files(&rig, 0..400);
    rig.ok("zpool sync tank");
    rig.ok("zpool remove tank @a.img");
    let mut under_way = 0;
    for round in 0..6 {
        std::thread::sleep(std::time::Duration::from_millis(150 + 90 * round));
        rig.kill();
        rig.unmount_all();
        rig.zdb_after_kill(&IMAGES);
        limited(&rig, "zpool import -f -d @. tank");
        under_way += u32::from(rig.ok("zpool status -P tank").contains("remove: Evacuation of "));
        compare(&rig, 0..400);
        write_files(&rig, 400..410);
    }
    assert!(under_way > 2, "it was under way after {under_way} of 6 kills");
    limit(&rig, 64 << 20);
    rig.ok("zpool wait -t remove tank");
    assert!(rig.ok("zpool status tank").contains("Removal of vdev 0 copied"));
    compare(&rig, 0..400);
    rig.ok("zpool export tank");
    rig.zdb(&["b.img", "c.img"]);
    sim::places::say(&format!("removal: it was under way after {under_way} of 6 kills"));
}

/// Free space of a vdev that goes is nobody's to work on, now or later.
#[test]
fn an_initialization_ends_when_its_vdev_goes() {
    let Some(rig) = Rig::new() else { return };
    IMAGES.iter().for_each(|name| drop(rig.image(name, 256 * MIB)));
    fs::create_dir(rig.path("limits")).unwrap();
    // It would take minutes, and the vdev stays as long as it is looked at.
    for (name, value) in [("zfs_initialize_chunk_size", "512"), ("zfs_removal_suspend_progress", "1")] {
        fs::write(rig.path(&format!("limits/{name}")), value).unwrap();
    }
    limited(&rig, "zpool create -O mountpoint=@mnt -O compression=off tank @a.img @b.img @c.img");
    rig.ok("zpool initialize tank @a.img");
    assert!(rig.ok("zpool status -i tank").contains("% initialized, started"));
    rig.ok("zpool remove tank @a.img");
    let status = rig.ok("zpool status -i tank");
    assert!(status.contains("remove: Evacuation of ") && !status.contains("% initialized"), "{status}");
    rig.ok("zpool wait -t initialize tank");
    let history = rig.ok("zpool history -i tank");
    assert!(history.contains("a.img canceled"), "{history}");
    fs::write(rig.path("limits/zfs_removal_suspend_progress"), "0").unwrap();
    rig.ok("zpool wait -t remove tank");
    rig.ok("zpool export tank");
    rig.zdb(&["b.img", "c.img"]);
}

#[test]
fn a_removal_is_given_up_by_command() {
    let Some(rig) = rig() else { return };
    write_files(&rig, 0..400);
    rig.ok("zpool sync tank");
    rig.ok("zpool remove tank @a.img");
    let said = rig.run("zpool remove -s tank");
    let status = rig.ok("zpool status -P tank");
    if said.code == 0 {
        let a = rig.text("a.img");
        assert!(status.contains(&format!("remove: Removal of {a} canceled on ")), "{status}");
        rig.ok("zpool remove -w tank @a.img");
    } else {
        // It was faster than the command.
        assert!(said.err.contains("there are no active operations") && status.contains("Removal of vdev 0 copied"), "{said:?} {status}");
    }
    compare(&rig, 0..400);
    rig.ok("zpool export tank");
    rig.zdb(&["b.img", "c.img"]);
}

/// What special devices have goes to the others.
#[test]
fn a_special_vdev_is_removed() {
    let Some(rig) = Rig::new() else { return };
    for name in ["a.img", "b.img", "s.img", "t.img"] {
        rig.image(name, 128 * MIB);
    }
    rig.ok("zpool create -O mountpoint=@mnt -O special_small_blocks=32K tank mirror @a.img @b.img special mirror @s.img @t.img");
    for number in 0..300 {
        fs::write(rig.path(&format!("mnt/s{number}")), vec![number as u8; 20_000]).unwrap();
    }
    write_files(&rig, 0..30);
    rig.ok("zpool remove -w tank mirror-1");
    let status = rig.ok("zpool status -P tank");
    assert!(status.contains("Removal of vdev 1 copied") && !status.contains("s.img"), "{status}");
    compare(&rig, 0..30);
    (0..300).for_each(|number| assert_eq!(fs::read(rig.path(&format!("mnt/s{number}"))).unwrap(), vec![number as u8; 20_000]));
    rig.ok("zpool export tank");
    rig.zdb(&["a.img", "b.img"]);
    rig.ok("zpool import -d @. tank");
    fs::write(rig.path("mnt/more"), vec![1; 20_000]).unwrap();
    (0..300).for_each(|number| fs::remove_file(rig.path(&format!("mnt/s{number}"))).unwrap());
    rig.ok("zpool export tank");
    rig.zdb(&["a.img", "b.img"]);
}
