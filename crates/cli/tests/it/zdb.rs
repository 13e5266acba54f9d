//! `zdb` as OpenZFS's own tests use it.

use std::fs;

use crate::rig::Rig;

const MIB: u64 = 1 << 20;

/// What `zdb` is asked for in the ways of OpenZFS's tests.
#[test]
fn zdb_takes_names_as_openzfs_does() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    fs::write(rig.path("mnt/file"), vec![7; 300_000]).unwrap();
    rig.ok("zpool sync tank");
    // `tank/` is the root file system; `tank` with objects is the MOS.
    let root = rig.ok("zdb -dddd tank/");
    assert!(root.contains("Dataset tank [ZPL]") && root.contains("ZFS plain file") && !root.contains("Dataset mos"), "{root}");
    let object = fs::metadata(rig.path("mnt/file")).map(|data| std::os::unix::fs::MetadataExt::ino(&data)).unwrap();
    let blocks = rig.ok(&format!("zdb -ddddddbbbbbb tank/ {object}"));
    let line = blocks.lines().find(|line| line.contains("L0 DVA[0]=<")).expect("pointers are whole with six b");
    let place = line.split_once("DVA[0]=<").and_then(|(_, rest)| rest.split_once('>')).expect("a place").0;
    let sum = line.rsplit_once(" cksum=").expect("a checksum").1;
    assert!(rig.run(&format!("zdb -R tank {place}:c")).out.contains(sum), "{line}");
    // An indirect block by its place: its size before compression is found, and as many pointers are shown as were asked for.
    let line = blocks.lines().find(|line| line.contains("L1  DVA[0]=<")).expect("an indirect block");
    let place = line.split_once("DVA[0]=<").and_then(|(_, rest)| rest.split_once('>')).expect("a place").0;
    let first = blocks.lines().find_map(|line| line.split_once("L0 DVA[0]")).map(|(_, rest)| format!("DVA[0]{rest}")).expect("a pointer");
    assert_eq!(rig.run(&format!("zdb -R tank {place}:bd")).out.trim_end(), first);
    let (vdev, offset) = place.rsplit_once(':').expect("a size").0.split_once(':').expect("an offset");
    assert_eq!(rig.run(&format!("zdb -R tank {vdev}:{offset}:8000:id")).out.lines().count(), 0x8000 / 128);
    // What is compressed with zstd is shown with its header, and the log and the cache file can be looked at.
    rig.ok("zfs create -o compression=zstd-5 tank/small");
    let words: String = (0..40_000_u32).map(|number| format!("{} ", number.wrapping_mul(7919) % 1000)).collect();
    fs::write(rig.path("mnt/small/file"), words).unwrap();
    rig.ok("zpool sync tank");
    let object = fs::metadata(rig.path("mnt/small/file")).map(|data| std::os::unix::fs::MetadataExt::ino(&data)).unwrap();
    let shown = rig.ok(&format!("zdb -Zdddddd tank/small {object}"));
    assert!(shown.contains(" ZSTD:size=") && shown.contains(":level=5:NORMAL"), "{shown}");
    let mut file = fs::File::create(rig.path("mnt/durable")).unwrap();
    std::io::Write::write_all(&mut file, b"durable").unwrap();
    file.sync_all().unwrap();
    rig.ok("zpool sync tank");
    assert!(rig.ok("zdb -i tank/").contains("    ZIL header: claim_txg 0, "));
    rig.ok("zpool set cachefile=@cache tank");
    assert!(rig.ok("zdb -C -U @cache").contains("name: 'tank'"));
    drop(file);
    // There is no option j: JSON has a long option only.
    let said = rig.run("zdb -j tank");
    assert!(said.code != 0 && said.out.is_empty(), "{said:?}");
    fs::copy(rig.path("cache"), rig.path("old")).unwrap();
    rig.ok("zpool export tank");
    assert!(rig.ok("zdb -e -U @old -C tank").contains("MOS Configuration:"));
}

/// A label whose checksum is wrong was left out as if there were none.
#[test]
fn zdb_shows_labels_with_bad_checksums() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=none tank @a.img");
    rig.ok("zpool export tank");
    // Slots that nobody has written yet are named from two `u` on.
    let (few, all) = (rig.ok("zdb -qul @a.img"), rig.ok("zdb -quuul @a.img"));
    assert!(!few.contains("invalid") && all.contains("    Uberblock[20] invalid\n"), "{all}");
    let break_label = |label: usize| {
        let start = ondisk::label::label_offset(128 * MIB, label) + ondisk::label::CONFIG_OFFSET;
        let file = fs::OpenOptions::new().write(true).open(rig.path("a.img")).unwrap();
        // The last words of the configuration are its checksum.
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xa5; 8], start + ondisk::label::CONFIG_BYTES as u64 - 8).unwrap();
    };
    break_label(0);
    break_label(1);
    let count = |words: &str| rig.run(words).out.matches("(Bad label cksum)").count();
    assert_eq!(count("zdb -l @a.img"), 1, "labels that say the same are shown once");
    assert_eq!(count("zdb -lll @a.img"), 2);
    rig.ok("zpool import -d @ tank");
    rig.ok("zpool export tank");
    (0..4).for_each(break_label);
    assert_eq!(count("zdb -lll @a.img"), 4);
    rig.refused("zpool import -d @ tank", "no such pool available");
}
