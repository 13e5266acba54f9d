//! What files were before: `tarn fs history`, `undelete`, `at`, `diff`, and `zfs diff`.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::rig::{LIMIT, Rig, run_for};

const MIB: u64 = 1 << 20;

/// A checksum of an image, by the system's own program.
fn sum(path: &Path) -> String {
    let said = run_for(Command::new("sha256sum").arg(path), LIMIT).unwrap();
    said.out.split(' ').next().unwrap().to_owned()
}

/// The columns of what a `-H` printed.
fn rows(text: &str) -> Vec<Vec<String>> {
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// A pool with a file that was changed over several groups and snapshots, and one that was deleted.
fn pool() -> Option<Rig> {
    let rig = Rig::new()?;
    rig.image("a.img", 256 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    rig.ok("zfs create tank/home");
    fs::create_dir_all(rig.path("mnt/home/d/below")).unwrap();
    fs::write(rig.path("mnt/home/d/below/gone"), b"it was here").unwrap();
    for (text, snapshot) in [("one", "first"), ("two, longer", "second")] {
        fs::write(rig.path("mnt/home/file"), text).unwrap();
        rig.ok("zpool sync tank");
        rig.ok(&format!("zfs snapshot tank/home@{snapshot}"));
    }
    for text in ["three: no snapshot has it", "four: and it is there now"] {
        fs::write(rig.path("mnt/home/file"), text).unwrap();
        rig.ok("zpool sync tank");
    }
    fs::write(rig.path("mnt/home/short-lived"), vec![b'x'; 300_000]).unwrap();
    rig.ok("zpool sync tank");
    fs::remove_file(rig.path("mnt/home/short-lived")).unwrap();
    fs::remove_file(rig.path("mnt/home/d/below/gone")).unwrap();
    rig.ok("zpool sync tank");
    Some(rig)
}

/// Each version comes back, from its snapshot or its group, while the pool is imported and when it is not; and not a byte is written.
#[test]
fn every_version_of_a_file_is_found_and_copied_out() {
    let Some(rig) = pool() else { return };
    let versions = ["four: and it is there now", "three: no snapshot has it", "two, longer", "one"];
    let check = |place: &str, where_: &str| {
        let listed = rows(&rig.ok(&format!("fs history -H {where_} {place}")));
        let sizes: Vec<usize> = listed.iter().map(|row| row[2].parse().unwrap()).collect();
        assert_eq!(sizes, versions.map(str::len), "{listed:?}");
        for (row, text) in listed.iter().zip(versions) {
            assert_eq!(row[4], "0", "nothing of it is gone: {row:?}");
            for moment in row[5].split(',') {
                // In the rig's words an `@` begins a path; the name of a snapshot will do without.
                let moment = moment.trim_start_matches('@');
                assert_eq!(rig.ok(&format!("fs at {where_} {moment} {place}")), text, "{moment}");
            }
        }
        assert!(listed[0][5].split(',').any(|moment| moment == "now") && listed[2][5].contains("@second") && listed[3][5].contains("@first"));
        let shown = rig.ok(&format!("fs history {where_} {place}"));
        assert!(shown.contains("HELD BY") && shown.contains("@first") && shown.contains("tarn fs at"), "{shown}");
        let json: serde_json::Value = serde_json::from_str(&rig.ok(&format!("fs history -j {where_} {place}"))).unwrap();
        assert_eq!(json["versions"].as_array().unwrap().len(), 4);
    };
    check(&rig.text("mnt/home/file"), "");
    check("tank/home:/file", "");
    rig.ok("zpool export tank");
    let before = sum(&rig.path("a.img"));
    check("tank/home:/file", &format!("-d {}", rig.text("a.img")));
    let out = rig.text("out");
    rig.ok(&format!("fs at -d @a.img first tank/home:/d {out}"));
    assert_eq!(fs::read(rig.path("out/below/gone")).unwrap(), b"it was here");
    rig.refused("fs at -d @a.img none tank/home:/file", "@none");
    rig.refused("fs at -d @a.img 1 tank/home:/file", "the oldest group that is left");
    assert_eq!(sum(&rig.path("a.img")), before, "the image was written");
    assert!(rig.find_daemon().is_none());
    rig.zdb(&["a.img"]);
}

#[test]
fn what_was_deleted_is_listed_and_comes_back() {
    let Some(rig) = pool() else { return };
    let listed = rows(&rig.ok("fs undelete -H @mnt/home"));
    let paths: Vec<&str> = listed.iter().map(|row| row[3].as_str()).collect();
    assert_eq!(paths, ["/d/below/gone", "/short-lived"], "{listed:?}");
    assert_eq!((listed[0][2].as_str(), listed[0][1].as_str(), listed[1][1].as_str()), ("@second", "11", "300000"));
    assert!(listed[1][2].parse::<u64>().is_ok(), "only a group has it: {listed:?}");
    let below = rows(&rig.ok("fs undelete -H @mnt/home/d"));
    assert_eq!(below.len(), 1);
    fs::create_dir(rig.path("back")).unwrap();
    let said = rig.ok("fs undelete tank/home:/ @back");
    assert!(said.starts_with("2 copied to"), "{said}");
    assert_eq!(fs::read(rig.path("back/d/below/gone")).unwrap(), b"it was here");
    assert_eq!(fs::read(rig.path("back/short-lived")).unwrap(), vec![b'x'; 300_000]);
    // With its directory, too, and from a pool that nobody has.
    fs::remove_dir_all(rig.path("mnt/home/d")).unwrap();
    rig.ok("zpool export tank");
    let before = sum(&rig.path("a.img"));
    let paths: Vec<String> = rows(&rig.ok("fs undelete -H -d @a.img tank/home:/d")).into_iter().map(|row| row[3].clone()).collect();
    assert_eq!(paths, ["/d/", "/d/below/", "/d/below/gone"]);
    rig.ok("fs undelete -d @a.img tank/home:/d @again");
    assert_eq!(fs::read(rig.path("again/d/below/gone")).unwrap(), b"it was here");
    assert_eq!(sum(&rig.path("a.img")), before, "the image was written");
}

/// A damaged block is said by name, and the rest of the file is copied.
#[test]
fn what_of_a_file_can_be_read_is_copied() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt -O compression=off -O recordsize=16K tank @a.img");
    let record = |byte: u8| vec![byte; 16 << 10];
    let whole: Vec<u8> = [b'A', b'B', b'C', b'D'].into_iter().flat_map(record).collect();
    fs::write(rig.path("mnt/file"), &whole).unwrap();
    rig.ok("zfs snapshot tank@snap");
    rig.ok("zpool export tank");
    let image = fs::read(rig.path("a.img")).unwrap();
    let found: Vec<usize> = (0..image.len()).step_by(512).filter(|at| image[*at..*at + 512].iter().all(|byte| *byte == b'C')).collect();
    assert_eq!(found.len(), 32);
    let file = fs::OpenOptions::new().write(true).open(rig.path("a.img")).unwrap();
    file.write_all_at(b"!", found[1] as u64).unwrap();
    drop(file);
    let said = rig.run("fs at -d @a.img snap tank:/file @copy");
    assert!(said.code == 1 && said.err.contains("tank@snap:/file") && said.err.contains("bytes 32768 to 49151 are zeros"), "{said:?}");
    let copy = fs::read(rig.path("copy")).unwrap();
    let expected: Vec<u8> = [b'A', b'B', 0, b'D'].into_iter().flat_map(record).collect();
    assert!(copy == expected);
}

/// The words of `zfs diff`, on each kind of change.
#[test]
fn differences_in_the_words_of_openzfs() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 256 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    rig.ok("zfs create tank/a");
    let root = rig.path("mnt/a");
    for name in ["modified", "deleted", "renamed", "linked", "replaced", "same", "od d\u{e4}"] {
        fs::write(root.join(name), "1").unwrap();
    }
    fs::create_dir(root.join("dir")).unwrap();
    rig.ok("zfs snapshot tank/a@1");
    fs::write(root.join("modified"), "2").unwrap();
    fs::write(root.join("od d\u{e4}"), "2").unwrap();
    fs::remove_file(root.join("deleted")).unwrap();
    fs::rename(root.join("renamed"), root.join("dir/new")).unwrap();
    fs::hard_link(root.join("linked"), root.join("link")).unwrap();
    fs::write(root.join("added"), "2").unwrap();
    symlink("x", root.join("symlink")).unwrap();
    let top = rig.text("mnt/a");
    let expected = |separator: &str| {
        let mut lines = vec![
            format!("M\t/\t{top}/"),
            format!("M\tF\t{top}/modified"),
            format!("-\tF\t{top}/deleted"),
            format!("R\tF\t{top}/renamed{separator}{top}/dir/new"),
            format!("M\tF\t{top}/linked\t(+1)"),
            format!("M\tF\t{top}/od\\0040d\\0303\\0244"),
            format!("M\t/\t{top}/dir"),
            format!("+\tF\t{top}/added"),
            format!("+\t@\t{top}/symlink"),
        ];
        lines.sort();
        lines
    };
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&rig.ok("zfs diff -F tank/a@1")), expected(" -> "), "the head counts as it is now");
    rig.ok("zfs snapshot tank/a@2");
    for words in [["tank/a@1", "tank/a@2"], ["tank/a@1", "@2"], ["@1", "tank/a@2"], ["tank/a@1", "tank/a"]] {
        let said = run_for(rig.command("zfs diff -FH").args(words), LIMIT).unwrap();
        assert_eq!((said.code, sorted(&said.out)), (0, expected("\t")), "{words:?}: {}", said.err);
    }
    assert!(rig.ok("zfs diff -h tank/a@1").contains("/od d\u{e4}\n"));
    let timed = rig.ok("zfs diff -t tank/a@1 tank/a@2");
    assert!(timed.lines().all(|line| line.split('\t').next().unwrap().trim().split_once('.').unwrap().1.len() == 9), "{timed}");
    assert_eq!(rig.ok("zfs diff tank/a@2 tank/a@2"), "");
    rig.refused("zfs diff tank/a@2 tank/a@1", "Not an earlier snapshot from the same fs");
    rig.refused("zfs diff tank/a@none", "cannot open 'tank/a@none': dataset does not exist");
    rig.refused("zfs diff tank/a", "Badly formed snapshot name tank/a: invalid name");
    rig.refused("zfs diff", "must provide at least one snapshot name");
    // The same, of a pool that nobody has.
    rig.ok("zpool export tank");
    let shown = sorted(&rig.ok("fs diff -FH -d @a.img tank/a@1 tank/a@2").replace("\t/", &format!("\t{top}/")).replace(&format!("\t{top}/\t{top}/"), &format!("\t/\t{top}/")));
    assert_eq!(shown.len(), expected("\t").len(), "{shown:?}");
    rig.zdb(&["a.img"]);
}
